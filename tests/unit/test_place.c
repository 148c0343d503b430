/* Where CPUs are (socket, core, thread) by their APIC ids, in which order they are numbered, and
 * which features of a CPU cannot be trusted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include "x86/errata.h"
#include "x86/place.h"

/* Two threads a core, ids of 4 bits a socket: two sockets of three cores, of which the first
 * begins at 0 and the second at 16. Firmware lists the first threads of all cores, then the
 * second ones. */
static const struct place_bits bits = { .thread = 1, .socket = 4 };
static const u32 listed[12] = { 0, 2, 4, 16, 18, 20, 1, 3, 5, 17, 19, 21 };

static void check_order(u32 first, const u32 *expected, u32 nr, bool smt) {
    u32 ids[12];

    memcpy(ids, listed, sizeof(ids));
    place_sort(&bits, ids, 12, first);
    assert_int_equal(smt ? 12 : place_one_per_core(&bits, ids, 12), nr);
    assert_memory_equal(ids, expected, nr * sizeof(u32));
}

static void places(void **state) {
    struct place p = place_of(&bits, 19);

    assert_int_equal(p.socket, 1);
    assert_int_equal(p.core, 1);
    assert_int_equal(p.thread, 1);
    p = place_of(&(struct place_bits){ .thread = 0, .socket = 32 }, 0xfffffff0);
    assert_int_equal(p.socket, 0);
    assert_int_equal(p.core, 0xfffffff0);
    assert_int_equal(p.thread, 0);
}

static void numbered_by_place(void **state) {
    static const u32 from_0[] = { 0, 1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 21 };
    /* The boot CPU is number 0, and its neighbours come next. */
    static const u32 from_19[] = { 19, 18, 16, 17, 20, 21, 0, 1, 2, 3, 4, 5 };

    check_order(0, from_0, 12, true);
    check_order(19, from_19, 12, true);
}

static void one_thread_a_core(void **state) {
    static const u32 from_0[] = { 0, 2, 4, 16, 18, 20 }, from_19[] = { 19, 16, 20, 0, 2, 4 };

    check_order(0, from_0, 6, false);
    check_order(19, from_19, 6, false);
}

/* Family 6 unless the signature says otherwise. */
static struct cpu_kind intel(u32 signature, u32 microcode) {
    return (struct cpu_kind){ .intel = true, .signature = signature, .microcode = microcode };
}

static void deadline(void **state) {
    struct cpu_kind skylake = intel(0x506e3, 0xb1), haswell_ex = intel(0x306f4, 0x0e);
    u32 mended;

    assert_true(erratum_tsc_deadline(&skylake, &mended));
    assert_int_equal(mended, 0xb2);
    skylake.microcode = 0xb2;
    assert_false(erratum_tsc_deadline(&skylake, &mended));
    assert_int_equal(mended, 0);
    /* The microcode that is needed depends on the stepping. */
    assert_true(erratum_tsc_deadline(&haswell_ex, &mended));
    assert_int_equal(mended, 0x0f);
    haswell_ex.signature = 0x306f3;
    assert_false(erratum_tsc_deadline(&haswell_ex, &mended));
}

static void whose_errata(void **state) {
    struct cpu_kind k = intel(0x506e3, 0);
    u32 mended;

    k.emulated = true; /* what it shows is the hypervisor's below */
    assert_false(erratum_tsc_deadline(&k, &mended));
    k = intel(0x506e3, 0);
    k.intel = false; /* another vendor's model of that number */
    assert_false(erratum_tsc_deadline(&k, &mended));
    assert_false(erratum_preemption_timer(&k));
    assert_false(erratum_itlb_multihit(&k, 0));
}

static void preemption_timer(void **state) {
    struct cpu_kind westmere = intel(0x20652, 0), sandy_bridge = intel(0x206a7, 0);

    assert_true(erratum_preemption_timer(&westmere));
    assert_false(erratum_preemption_timer(&sandy_bridge));
    westmere.emulated = true;
    assert_false(erratum_preemption_timer(&westmere));
}

static void itlb_multihit(void **state) {
    struct cpu_kind skylake = intel(0x506e3, 0), goldmont = intel(0x506c9, 0),
                    p4 = intel(0x00f43, 0);

    assert_true(erratum_itlb_multihit(&skylake, 0));
    assert_false(erratum_itlb_multihit(&skylake, BIT(6))); /* it says that it is not affected */
    assert_false(erratum_itlb_multihit(&goldmont, 0));
    assert_false(erratum_itlb_multihit(&p4, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test(numbered_by_place),
        cmocka_unit_test(one_thread_a_core),
        cmocka_unit_test(deadline),
        cmocka_unit_test(whose_errata),
        cmocka_unit_test(preemption_timer),
        cmocka_unit_test(itlb_multihit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
