/* The end of the machine's run: power-off, reset, halt, and panic(), which is called when the
 * hypervisor finds that one of its own invariants is broken. Before any of these, the other CPUs
 * are stopped, and the console sends what it has queued. Emulators are ended by ports of their own,
 * so that tests see an exit code. The last part makes faults on request, to test that they are
 * reported. */
#include "platform/power.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "common/string.h"
#include "platform/acpi_power.h"
#include "platform/apic.h"
#include "platform/clock.h"
#include "platform/console.h"
#include "platform/crashlog.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "platform/watchdog.h"
#include "common/insn.h"
#include "x86/percpu.h"

#define BOCHS_DEBUG_PORT     0xe9
#define BOCHS_SHUTDOWN_PORT  0x8900
#define QEMU_DEBUG_EXIT_PORT 0xf4
#define CPUID_HYPERVISOR     BIT(31) /* leaf 1, ECX */

/* The register RST_CNT: "Intel I/O Controller Hub 9 Family Datasheet" (316972), 13.7.5. Changing
 * RESET_NOW from 0 to 1 causes the reset. If RESET_SYSTEM was set before, the whole machine is
 * reset, not only the CPU. */
#define RESET_PORT   0xcf9
#define RESET_SYSTEM 0x02
#define RESET_NOW    0x04
/* A command of the keyboard controller (8042): it pulses the line that resets the CPU. */
#define KEYBOARD_PORT  0x64
#define KEYBOARD_RESET 0xfe

#define NO_CPU         (~0u)

/* how long a machine that panicked waits before it starts again, so that its screen can be read */
#define READING_TIME (5 * NS_PER_S)

bool noreboot;

/* Halts this CPU for ever. */
static void __attribute__((noreturn)) halt(void) {
    for (;;) __asm__ volatile("cli; hlt");
}

/* Stops all other CPUs and sends all that the console has to send. */
static void last_words(void) {
    smp_stop_others();
    console_set_panic();
    console_flush();
}

/* Ends an emulator. Bochs ends when it gets the bytes "Shutdown" on port 0x8900; QEMU ends at a
 * write to the port of isa-debug-exit. On a real machine these ports may belong to any device, so
 * each is written only if its emulator is there. Bochs answers at port 0xe9 with the number of that
 * port (port_e9_hack). For QEMU we only check in CPUID that there is some hypervisor. */
static void emulator_off(u8 code) {
    if (inb(BOCHS_DEBUG_PORT) == BOCHS_DEBUG_PORT)
        for (const char *p = "Shutdown"; *p; p++) outb(BOCHS_SHUTDOWN_PORT, (u8)*p);
    if (cpuid(1, 0).ecx & CPUID_HYPERVISOR) outb(QEMU_DEBUG_EXIT_PORT, code);
}

/* Causes an exception while there is no IDT. This becomes a triple fault, which resets the machine:
 * SDM 3A 6.15. */
static void triple_fault(void) {
    static const u8 no_idt[10];

    __asm__ volatile("lidt %0; ud2" : : "m"(no_idt));
}

/* Resets the machine. Tries, one after the other, the register that ACPI names, the chipset's reset
 * register, the keyboard controller, and a triple fault, until one of them works. */
static void __attribute__((noreturn)) reset(void) {
    acpi_reset();
    outb(RESET_PORT, RESET_SYSTEM);
    outb(RESET_PORT, RESET_SYSTEM | RESET_NOW);
    outb(KEYBOARD_PORT, KEYBOARD_RESET);
    delay_ns(NS_PER_S);
    triple_fault();
    __builtin_unreachable();
}

/* Switches the machine off: by the emulator's port if there is an emulator, or else by ACPI. If
 * neither works, it halts. */
void platform_poweroff(void) {
    log_info("Switching the machine off.");
    last_words();
    crashlog_end(CRASH_ORDERLY);
    emulator_off(0);
    /* the next may take four seconds, and a reset instead is not what was asked for */
    watchdog_stop();
    acpi_off();
    log_err("The machine does not switch itself off. Switch it off by hand.");
    console_flush();
    halt();
}

/* Resets the machine after an orderly end; does not return. */
void platform_reboot(void) {
    last_words();
    crashlog_end(CRASH_ORDERLY);
    reset();
}

/* Ends an emulator, or halts a real machine. Unlike a power-off, a halt leaves the machine's last
 * text on its screen. */
void platform_halt(void) {
    last_words();
    crashlog_end(CRASH_ORDERLY);
    emulator_off(0);
    /* This is a real machine, or an emulator that has no port to end it. The operator has to do the
     * rest. */
    log_info("The machine stands still now. Switch it off or reset it.");
    console_flush();
    halt();
}

/* Says `why` and halts the machine, where it cannot go on but the hypervisor has no bug. */
void stop_machine(const char *why) {
    log_err("%s", why);
    last_words();
    crashlog_end(CRASH_STOPPED);
    if (!noreboot) emulator_off(1);
    watchdog_stop();
    halt();
}

/* The CPU that panicked first. It says why, and starts the machine again; other CPUs that panic
 * meanwhile only halt. If the first one panics again before it is done, it resets the machine at
 * once: a message that is lost does less harm than a machine that stays off. */
static u32 panicking = NO_CPU;

/* Stops the hypervisor because of a bug: logs the sentence, keeps what the next session is to know,
 * and resets the machine. Only the first CPU that panics does this work. It stops all other CPUs
 * first, so their trace records do not change any more and can be kept for the next session
 * (crashlog.c). With `noreboot` the machine stands still instead of starting again, which a
 * developer wants. */
void panic(const char *fmt, ...) {
    u32 known = NO_CPU;
    char text[192];
    va_list ap;

    if (!__atomic_compare_exchange_n(&panicking, &known, this_cpu()->id, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST)) {
        if (known == this_cpu()->id && !noreboot) reset();
        halt();
    }
    last_words();
    va_start(ap, fmt);
    hv_vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_err("PANIC on CPU %u: %s", this_cpu()->id, text);
    crashlog_end(CRASH_STOPPED);
    crashlog_drain_trace();
    if (noreboot) stop_machine("Stopped, since noreboot is set.");
    log_err("Rebooting.");
    console_flush();
    emulator_off(1);
    delay_ns(READING_TIME);
    reset();
}

/* ---- faults on request ---- */

#define STRAY_VECTOR 0xd5

const char fault_words[] =
    "pf|gp|ud|df|stack|mc|assert|nmi|stray|storm|hang|freeze|sleep|kick|triple";

/* Causes #PF: this small address is not mapped. */
static void page_fault(void) { *(volatile int *)(u64)nr_cpus = 0; }

/* Causes #GP: this address is not canonical. */
static void general_protection(void) { *(volatile int *)(0x8000000000000000ull | nr_cpus) = 0; }

static void undefined(void) { __asm__ volatile("ud2"); }

/* Makes RSP point to memory that is not mapped. Then the page fault of the push cannot be
 * delivered, and becomes a double fault. */
static void double_fault(void) {
    __asm__ volatile("mov %0, %%rsp; push %%rax" : : "r"(0x1000ull) : "memory");
}

static void deeper(void) { __asm__ volatile("call *%0" : : "r"(deeper) : "memory"); }

static void machine_check(void) { __asm__ volatile("int $18"); }

static void assertion(void) { ASSERT(nr_cpus == 0); }

static void nmi(void) { apic_send(this_cpu()->apic_id, APIC_NMI, 0); }

/* Sends this CPU an interrupt for which nobody has registered a handler. */
static void stray(void) {
    apic_send(this_cpu()->apic_id, APIC_FIXED, STRAY_VECTOR);
    irq_window();
}

#define STORM 1200 /* stray interrupts: more than trap.c accepts from one source (STRAY_STORM) */

/* Sends so many stray interrupts that trap.c masks their source. */
static void storm(void) {
    for (int i = 0; i < STORM; i++) stray();
}

#define HANG_NS (10 * NS_PER_S) /* longer than a CPU may be silent */

/* Hangs for 10 s, so that the other CPUs notice that this one is silent. */
static void hang(void) { delay_ns(HANG_NS); }

/* Hangs for ever, so that the other CPUs and the watchdog notice. */
static void freeze(void) {
    for (;;) cpu_relax();
}

/* Stops the timer of this CPU and then halts, so that the CPU would sleep for ever if no other CPU
 * noticed it. */
static void sleep(void) {
    lapic_timer_arm(~0ull);
    cpu_halt();
}

/* The next kick is lost, so that the CPU that should get it waits until another one notices. */
static void lost_kick(void) { smp_fault_kick = true; }

/* Makes the fault `what` on this CPU, for tests. Returns 0, or -EINVAL if there is no such fault;
 * most faults end in a panic or a reset. The words are listed in fault_words for the shell's help;
 * both lists have to be kept alike. */
int fault_inject(const char *what) {
    static const struct {
        const char *word;
        void (*fn)(void);
    } faults[] = {
        { "pf", page_fault },       { "gp", general_protection },
        { "ud", undefined },        { "df", double_fault },
        { "stack", deeper },        { "mc", machine_check },
        { "assert", assertion },    { "nmi", nmi },
        { "stray", stray },         { "storm", storm },
        { "hang", hang },           { "freeze", freeze },
        { "sleep", sleep },         { "kick", lost_kick },
        { "triple", triple_fault },
    };

    for (u32 i = 0; i < ARRAY_SIZE(faults); i++) {
        if (strcmp(what, faults[i].word)) continue;
        log_warn("fault on request: %s", what);
        faults[i].fn();
        return 0;
    }
    return -EINVAL;
}
