/* Reads lines "mode hexbytes" and prints what the MOV decoder makes of them.
 * tests/tools/test_decode.py compares that with what binutils says. */
#include <stdio.h>
#include "vdev/decode.h"

int main(void) {
    char hex[64];
    unsigned mode;

    while (scanf("%u %63s", &mode, hex) == 2) {
        const char *direction = "load", *extension = "zx", *operand = "reg", *high = "";
        unsigned reg, bytes_of_reg;
        struct mmio_insn in;
        u8 bytes[32];
        unsigned n = 0;

        while (n < sizeof(bytes) && sscanf(hex + 2 * n, "%2hhx", &bytes[n]) == 1) n++;
        if (mmio_decode(&in, bytes, n, mode)) {
            printf("unknown\n");
            continue;
        }
        reg = in.reg;
        bytes_of_reg = in.reg_size;
        if (in.write) direction = "store";
        if (in.sign) extension = "sx";
        if (in.high) high = "h";
        if (in.imm) {
            operand = "imm";
            reg = 0;
            bytes_of_reg = in.size;
        }
        printf("%u %u %s %s %s%u/%u%s\n", in.len, in.size, direction, extension, operand, reg,
               bytes_of_reg, high);
    }
    return 0;
}
