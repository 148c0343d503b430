/* The decoder of MOV instructions gets random bytes. It must not read behind them, and its answer
 * must depend on the bytes of the instruction alone, not on those that follow: a guest's other vCPU
 * may change these at any time. */
#include <stdlib.h>
#include <string.h>
#include "vdev/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
    if (!ok) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const unsigned modes[] = { 16, 32, 64 };
    struct mmio_insn in, again;
    unsigned mode, n;
    u8 *copy;

    if (size < 1) return 0;
    mode = modes[data[0] % 3];
    n = (unsigned)MIN(size - 1, (size_t)64);
    copy = malloc(MAX(n, 1u)); /* not in `data`: the sanitizer finds a read behind its end */
    memcpy(copy, data + 1, n);
    if (mmio_decode(&in, copy, n, mode) == 0) {
        check(in.len >= 2 && in.len <= INSN_MAX && in.len <= n);
        check(in.size == 1 || in.size == 2 || in.size == 4 || in.size == 8);
        check(in.reg < 16 && (!in.high || (in.reg < 4 && in.size == 1)));
        check(!in.imm || in.write);
        check(in.imm || in.reg_size >= in.size);
        check(mode == 64 || (in.reg < 8 && in.size < 8));
        check(mmio_decode(&again, copy, in.len, mode) == 0 && memcmp(&in, &again, sizeof(in)) == 0);
        check(mmio_decode(&again, copy, in.len - 1u, mode) != 0);
        (void)mmio_loaded(&in, ~0ull, ~0ull);
        check(in.size == 8 || mmio_stored(&in, ~0ull) >> (8 * in.size) == 0);
    }
    free(copy);
    return 0;
}
