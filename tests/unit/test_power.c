/* How a session ends, as the next boot tells it: each way to end the machine notes itself in the
 * crash log before the machine is gone. The test plays the ports; with the first access to one
 * of them the machine is gone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <takt/io.h>

#define panic tested_panic /* the fakes have one of their own */
#include "fake_insn.h"
#include "fake_log.h"
#include "platform/acpi_power.h"
#include "platform/apic.h"
#include "platform/clock.h"
#include "platform/console.h"
#include "platform/crashlog.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "platform/watchdog.h"
#include "x86/percpu.h"

static jmp_buf end;
static u8 ram[CRASHLOG_SIZE] __attribute__((aligned(64)));
static bool others_stopped;
static struct percpu boot_cpu;
u32 nr_cpus = 1;
volatile bool smp_fault_kick;

static bool is_real; /* the machine is no emulator, and has a watchdog that runs */
static bool dog_runs, off_while_it_runs;

static u8 model_inb(u16 port) {
    if (!is_real) longjmp(end, 1);
    return 0xff;
}

static struct cpuid no_hypervisor(u32 leaf, u32 sub) { return (struct cpuid){ 0 }; }

static void model_outb(u16 port, u8 v) { longjmp(end, 1); }

static bool was_reset;

void acpi_reset(void) {
    was_reset = true;
    longjmp(end, 1);
}

void acpi_off(void) {
    off_while_it_runs = dog_runs;
    longjmp(end, 1);
}

void watchdog_stop(void) { dog_runs = false; }

void smp_stop_others(void) { others_stopped = true; }

void console_set_panic(void) {}

static bool trouble; /* what a panic does on its way panics, too */

void console_flush(void) {
    if (trouble) {
        trouble = false;
        tested_panic("another assertion does not hold");
    }
    /* CLI and HLT would follow, which a test cannot execute. */
    if (fake_log_said("stands still")) longjmp(end, 1);
}

void delay_ns(u64 ns) {}

void apic_send(u32 apic_id, enum apic_delivery how, u8 vector) {}

void lapic_timer_arm(u64 when) {}

void cpu_halt(void) {}

void irq_window(void) {}

#define inb        model_inb
#define outb       model_outb
#define this_cpu() (&boot_cpu)
#include "hv/platform/power.c"

/* Returns what the boot after this end is told. */
static enum crash_end told_after(void (*finish)(void)) {
    crashlog_open(ram);
    others_stopped = false;
    panicking = NO_CPU;
    if (!setjmp(end)) finish();
    assert_true(others_stopped);
    crashlog_open(ram);
    return crashlog_last();
}

static void stop(void) { stop_machine("There is no configuration."); }

static void crash(void) { tested_panic("an assertion does not hold"); }

static void test_what_the_next_boot_is_told(void **state) {
    assert_int_equal(told_after(platform_poweroff), CRASH_ORDERLY);
    assert_int_equal(told_after(platform_reboot), CRASH_ORDERLY);
    /* The self test and the probe end the machine in this way. */
    assert_int_equal(told_after(platform_halt), CRASH_ORDERLY);
    assert_int_equal(told_after(stop), CRASH_STOPPED);
    assert_int_equal(told_after(crash), CRASH_STOPPED);
}

/* The machine starts again even if there is a panic within a panic. */
static void test_a_panic_in_a_panic(void **state) {
    panicking = NO_CPU;
    was_reset = false;
    trouble = true;
    if (!setjmp(end)) crash();
    assert_false(trouble);
    assert_true(was_reset);
}

/* A watchdog must not start the machine again that is being switched off. */
static void test_off_without_the_watchdog(void **state) {
    is_real = dog_runs = true;
    fake_cpuid = no_hypervisor;
    assert_int_equal(told_after(platform_poweroff), CRASH_ORDERLY);
    assert_false(off_while_it_runs);
}

/* After the self test a machine that does not end says what a person has to do. */
static void test_a_machine_that_stands_still(void **state) {
    is_real = true;
    fake_cpuid = no_hypervisor;
    fake_log_forget();
    assert_int_equal(told_after(platform_halt), CRASH_ORDERLY);
    assert_true(fake_log_said("Switch it off or reset it."));
    fake_log_forget();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_next_boot_is_told),
        cmocka_unit_test(test_off_without_the_watchdog),
        cmocka_unit_test(test_a_machine_that_stands_still),
        cmocka_unit_test(test_a_panic_in_a_panic),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
