/* Decodes lines "mode hexbytes" from standard input; tests/tools/test_decode.py compares with
 * binutils. */
#include <stdio.h>
#include "vdev/decode.h"

int main(void) {
    char hex[64];
    unsigned mode;

    while (scanf("%u %63s", &mode, hex) == 2) {
        struct mmio_insn in;
        u8 bytes[32];
        unsigned n = 0;

        while (n < sizeof(bytes) && sscanf(hex + 2 * n, "%2hhx", &bytes[n]) == 1) n++;
        if (mmio_decode(&in, bytes, n, mode))
            printf("unknown\n");
        else
            printf("%u %u %s %s %s%u/%u%s\n", in.len, in.size, in.write ? "store" : "load",
                   in.sign ? "sx" : "zx", in.imm ? "imm" : "reg", in.imm ? 0 : in.reg,
                   in.imm ? in.size : in.reg_size, in.high ? "h" : "");
    }
    return 0;
}
