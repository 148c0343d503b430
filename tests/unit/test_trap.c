/* What the trap code does to the frame of the code that was interrupted. */
#include <asm/prctl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "fake_log.h"
#include "x86/trap.c" /* no machine is needed for what is tested of it */

#define INSN_STI 0xfb
#define INSN_HLT 0xf4

/* ---- what it needs of the machine ---- */

static struct cpu cpu;
const u8 image_text_end[1];
static unsigned taken;

static void on_irq(u8 vector) { taken++; }

static int setup(void **state) {
    cpu.p.self = &cpu.p;
    syscall(SYS_arch_prctl, ARCH_SET_GS, &cpu.p);
    irq_register(VEC_TIMER, on_irq);
    return 0;
}

static u64 rip_after(u64 vector, u64 rip) {
    struct trap_frame f = { .vector = vector, .rip = rip };

    cpu.nmi_kicks = 1;
    trap_handle(&f);
    return f.rip;
}

static void test_nmi_before_the_halt_ends_it(void **state) {
    u64 hlt = (u64)irq_halt_insn;
    const u8 *code = (const u8 *)(hlt - 1);

    assert_true(code[0] == INSN_STI && code[1] == INSN_HLT);
    assert_int_equal(rip_after(TRAP_NMI, hlt), hlt + 1);
    assert_int_equal(cpu.nmi_kicks, 0); /* it was handled all the same */
    assert_int_equal(rip_after(VEC_TIMER, hlt), hlt + 1);
    assert_int_equal(taken, 1);
}

/* Woken by one, or anywhere else: it goes on where it was. */
static void test_others_go_on(void **state) {
    u64 hlt = (u64)irq_halt_insn;

    assert_int_equal(rip_after(TRAP_NMI, hlt + 1), hlt + 1);
    assert_int_equal(rip_after(TRAP_NMI, hlt - 1), hlt - 1);
    assert_int_equal(rip_after(VEC_TIMER, hlt + 1), hlt + 1);
}

/* If two pCPUs have sent kicks, two NMIs come, or one. If three have sent kicks, at most two NMIs
 * come. Further NMIs are reported. */
static void test_kicks_and_strangers(void **state) {
    struct trap_frame f = { .vector = TRAP_NMI };
    unsigned before = fake_log_lines;

    for (u32 sent = 0; sent < 4; sent++) {
        cpu.nmi_kicks = sent;
        for (u32 i = 0; i < MIN(sent, 2u); i++) trap_handle(&f);
        assert_int_equal(fake_log_lines, before + sent);
        trap_handle(&f);
        assert_int_equal(fake_log_lines, before + sent + 1);
        assert_non_null(strstr(fake_log_last, "NMI that nobody sent"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_nmi_before_the_halt_ends_it, setup),
        cmocka_unit_test_setup(test_others_go_on, setup),
        cmocka_unit_test_setup(test_kicks_and_strangers, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
