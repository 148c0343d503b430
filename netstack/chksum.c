/* The sum of 16-bit words that lwIP's checksums are made of (RFC 1071): carries are added in
 * again, so words of 64 bits do as well, and in any byte order the sum is in that order. Not
 * inverted. */
#include <string.h>
#include <takt/types.h>
#include "lwip/opt.h"

#define BLOCK 64

/* The carry goes from one word to the next, and the last one comes in again. */
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

static u64 add(u64 sum, u64 v) {
    sum += v;
    return sum + (sum < v);
}

unsigned short net_chksum(const void *data, int len) {
    const u8 *p = data;
    u64 n = (u64)len, v, sum = add_blocks(0, p, n / BLOCK);

    p += n - n % BLOCK;
    for (n %= BLOCK; n >= 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        sum = add(sum, v);
    }
    v = 0;
    memcpy(&v, p, n); /* as if zeros followed */
    sum = add(sum, v);
    sum = (sum >> 32) + (u32)sum;
    sum = (sum >> 32) + (u32)sum;
    sum = (sum >> 16) + (u16)sum;
    sum = (sum >> 16) + (u16)sum;
    return (unsigned short)sum;
}
