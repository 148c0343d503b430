/* <takt/seed.h> and <guest/phase.h>: random numbers that the hypervisor, the guests and the
 * simulation must compute alike, so that one seed means the same experiment everywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <guest/phase.h>

/* These are the first numbers of splitmix64 from seed 0, as every implementation of it has them. */
static void test_sequence(void **state) {
    u64 s = 0;

    assert_int_equal(seed_next(&s), 0xe220a8397b1dcdaf);
    assert_int_equal(seed_next(&s), 0x6e789e6aa1b965f4);
    assert_int_equal(seed_next(&s), 0x06c45d188009454f);
}

static int by_value(const void *a, const void *b) {
    u64 x = *(const u64 *)a, y = *(const u64 *)b;

    return x < y ? -1 : x > y;
}

static void assert_all_different(u64 *s, u32 n) {
    qsort(s, n, sizeof(*s), by_value);
    for (u32 i = 1; i < n; i++) assert_int_not_equal(s[i - 1], s[i]);
}

/* Of 100 machines with 50 VMs of 4 vCPUs, no two have a seed in common. */
static void test_all_differ(void **state) {
    static u64 seed[100 * 50 * 4];
    u32 n = 0;

    for (u64 machine = 0; machine < 100; machine++)
        for (u32 vm = 0; vm < 50; vm++)
            for (u32 vcpu = 0; vcpu < 4; vcpu++) {
                char name[16];

                snprintf(name, sizeof(name), "hog-%u", vm);
                seed[n++] = seed_of(seed_of_vm(machine, name), vcpu);
            }
    assert_all_different(seed, n);
    assert_int_not_equal(seed_of_vm(0, "ab"), seed_of_vm(0, "ba"));
    assert_int_not_equal(seed_of_vm(0, ""), seed_of_vm(0, "a"));
}

/* Phases are spread over the whole span: each tenth of it has its tenth of 10,000, within five
 * standard deviations (30 each). And they are below it. */
static void test_phases(void **state) {
    u32 in[10] = { 0 };

    for (u64 machine = 0; machine < 10000; machine++) {
        u64 ns = phase_of(seed_of_vm(machine, "waker"), 0, 10 * NS_PER_MS);

        assert_true(ns < 10 * NS_PER_MS);
        in[ns / NS_PER_MS]++;
    }
    for (u32 i = 0; i < 10; i++) assert_in_range(in[i], 850, 1150);
    assert_int_equal(phase_of(7, 0, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequence),
        cmocka_unit_test(test_all_differ),
        cmocka_unit_test(test_phases),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
