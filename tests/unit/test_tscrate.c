/* The rate of the TSC as CPUID says it, and whether a measurement confirms it. All times of the
 * hypervisor depend on it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "fake_insn.h"
#include "platform/tscrate.h"

static struct cpuid leaf_1, leaf_15, hypervisor, timing;

static struct cpuid made_up(u32 leaf, u32 sub) {
    switch (leaf) {
    case 0: return (struct cpuid){ .eax = 0x16 };
    case 1: return leaf_1;
    case 0x15: return leaf_15;
    case 0x40000000: return hypervisor;
    case 0x40000010: return timing;
    default: return (struct cpuid){ 0 };
    }
}

static int setup(void **state) {
    fake_cpuid = made_up;
    leaf_1 = leaf_15 = hypervisor = timing = (struct cpuid){ 0 };
    return 0;
}

static void test_leaf_15(void **state) {
    const char *leaf;

    assert_int_equal(tsc_rate_said(&leaf), 0);
    leaf_15 = (struct cpuid){ .eax = 2, .ebx = 200, .ecx = 0 }; /* no rate of the crystal */
    assert_int_equal(tsc_rate_said(&leaf), 0);
    leaf_15.ecx = 24000000;
    assert_int_equal(tsc_rate_said(&leaf), 2400000);
    assert_string_equal(leaf, "CPUID 15h");
}

/* KVM's, with QEMU's invtsc: 2,394.230 MHz. Leaves of a hypervisor mean nothing where there is
 * none. */
static void test_leaf_of_a_hypervisor(void **state) {
    const char *leaf;

    hypervisor = (struct cpuid){ .eax = 0x40000010, 0x4b4d564b, 0x564b4d56, 0x4d };
    timing = (struct cpuid){ .eax = 2394230, .ebx = 1000000 };
    assert_int_equal(tsc_rate_said(&leaf), 0);
    leaf_1.ecx = (u32)BIT(31);
    assert_int_equal(tsc_rate_said(&leaf), 2394230);
    assert_string_equal(leaf, "CPUID 40000010h");
    hypervisor.eax = 0x40000001; /* it has no such leaf */
    assert_int_equal(tsc_rate_said(&leaf), 0);
    hypervisor.eax = 0x0c000000; /* and here 40000000h is not its first one */
    assert_int_equal(tsc_rate_said(&leaf), 0);
}

static void test_confirmed(void **state) {
    assert_true(tsc_rate_confirmed(2000000, &(struct tsc_measured){ 0, 0 }));
    assert_true(tsc_rate_confirmed(2000000, &(struct tsc_measured){ 2001900, 50 }));
    assert_false(tsc_rate_confirmed(2000000, &(struct tsc_measured){ 2002100, 50 }));
    assert_false(tsc_rate_confirmed(2000000, &(struct tsc_measured){ 1997900, 50 }));
    /* A measurement as inexact as this one does not contradict a rate that is further away. */
    assert_true(tsc_rate_confirmed(2000000, &(struct tsc_measured){ 2009000, 5000 }));
    assert_false(tsc_rate_confirmed(2000000, &(struct tsc_measured){ 2011000, 5000 }));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_leaf_15, setup),
        cmocka_unit_test_setup(test_leaf_of_a_hypervisor, setup),
        cmocka_unit_test_setup(test_confirmed, setup),
    };

    return cmocka_run_group_tests_name("tscrate", tests, NULL, NULL);
}
