/* The sum of 16-bit words from which lwIP makes its checksums (RFC 1071). Carries are added to the
 * sum again, so words of 64 bits give the same sum when it is folded at the end. The byte order of
 * the sum is that of the data. The result is not inverted. */
#include <string.h>
#include <takt/types.h>
#include "lwip/opt.h"

#define BLOCK 64

/* Adds `n` blocks. The carry of each addition goes into the next one, and the last carry is added
 * at the end. */
static u64 add_blocks(u64 sum, const u8 *p, u64 n) {
    for (; n; n--, p += BLOCK)
        __asm__("addq 0(%1), %0\n\tadcq 8(%1), %0\n\tadcq 16(%1), %0\n\tadcq 24(%1), %0\n\t"
                "adcq 32(%1), %0\n\tadcq 40(%1), %0\n\tadcq 48(%1), %0\n\tadcq 56(%1), %0\n\tadcq "
                "$0, %0"
                : "+r"(sum)
                : "r"(p), "m"(*(const u8(*)[BLOCK])p)
                : "cc");
    return sum;
}

/* Adds `v`, and the carry. */
static u64 add_with_carry(u64 sum, u64 v) {
    sum += v;
    return sum + (sum < v);
}

/* Returns the Internet checksum (RFC 1071) of `len` bytes, without the complement at the end. It
 * adds 64 bits at a time, which is faster than lwIP's own. */
unsigned short net_chksum(const void *data, int len) {
    const u8 *p = data;
    u64 n = (u64)len, v, sum = add_blocks(0, p, n / BLOCK);

    p += n - n % BLOCK;
    for (n %= BLOCK; n >= 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        sum = add_with_carry(sum, v);
    }
    v = 0;
    memcpy(&v, p, n); /* the missing bytes count as zeros */
    sum = add_with_carry(sum, v);
    sum = (sum >> 32) + (u32)sum;
    sum = (sum >> 32) + (u32)sum;
    sum = (sum >> 16) + (u16)sum;
    sum = (sum >> 16) + (u16)sum;
    return (unsigned short)sum;
}
