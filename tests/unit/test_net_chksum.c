/* The checksum that lwIP uses, compared with RFC 1071 computed word by word, for any length and
 * any alignment. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <takt/types.h>
#include "lwip/opt.h"

#define MOST 1700

static u8 data[MOST + 8];

/* Words as the machine reads them, an odd byte with a zero behind it. */
static u16 reference(const u8 *p, u32 len) {
    u32 sum = 0;

    for (u32 i = 0; i < len; i++) sum += (u32)p[i] << (i % 2 * 8);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (u16)sum;
}

static void all_lengths(void) {
    for (u32 len = 0; len <= MOST; len++)
        for (u32 at = 0; at < 8; at++)
            if (net_chksum(data + at, (int)len) != reference(data + at, len))
                fail_msg("%u bytes at %u: %x", len, at, net_chksum(data + at, (int)len));
}

static void test_random(void **state) {
    u32 rng = 1;

    for (u32 i = 0; i < sizeof(data); i++) data[i] = (u8)((rng = rng * 1664525 + 1013904223) >> 24);
    all_lengths();
}

/* Every addition carries, or none does. */
static void test_carries(void **state) {
    memset(data, 0xff, sizeof(data));
    all_lengths();
    memset(data, 0, sizeof(data));
    all_lengths();
    for (u32 i = 0; i < sizeof(data); i++) data[i] = i % 8 == 7 ? 0x80 : 0;
    all_lengths();
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_random),
                                        cmocka_unit_test(test_carries) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
