/* The local APIC ("LAPIC"): the part of each CPU that receives its interrupts, sends interrupts to
 * other CPUs (IPIs), and has a timer. Its registers are reached by memory (xAPIC mode) or, on newer
 * CPUs, as MSRs (x2APIC mode). The 8259 is the interrupt controller of the first PCs. Takt uses
 * none, so this file makes it silent. */
#include "platform/apic.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "platform/hostmap.h"
#include "platform/irq.h"
#include "x86/errata.h"
#include "common/insn.h"
#include "x86/trap.h"

/* Register numbers: MMIO offset / 16, MSR - 0x800 (SDM 3A table 11-1 and 11-6) */
enum { REG_ID = 0x02, REG_TPR = 0x08, REG_EOI = 0x0b, REG_SVR = 0x0f };
enum { REG_ICR = 0x30, REG_ICR_HIGH = 0x31 };
enum { LVT_TIMER = 0x32, LVT_THERMAL, LVT_PERF, LVT_LINT0, LVT_LINT1, LVT_ERROR };
enum { TIMER_COUNT = 0x38, TIMER_LEFT = 0x39, TIMER_DIVIDE = 0x3e };

#define CPUID_TSC_DEADLINE BIT(24) /* leaf 1, ECX */
#define LVT_MASKED         BIT(16)
#define LVT_DELIVERY       (7u << 8) /* SDM 3A figure 11-8 */
#define LVT_SMI            (2u << 8)
#define LVT_DEADLINE       (2u << 17)
#define LVT_NMI            (4u << 8)
#define ICR_BUSY           BIT(12)
#define ICR_ASSERT         BIT(14)
#define APIC_BASE_X2APIC   BIT(10) /* SDM 3A 11.12.1 */
#define APIC_BASE_ENABLED  BIT(11)
#define SVR_ENABLED        BIT(8) /* SDM 3A figure 11-23 */
#define TIMER_BY_1         0xb    /* SDM 3A figure 11-10: the timer's clock is not divided */

/* How often we look whether the APIC has sent the IPI before. It takes some microseconds; so many
 * looks take milliseconds at least. */
#define ICR_POLLS 100000

bool apic_x2, apic_tsc_deadline;
static volatile u8 *regs;
static const struct acpi_info *acpi;

/* Reads register `reg` of the local APIC, in the mode that it is in. */
static u32 apic_read(u32 reg) {
    if (apic_x2) return (u32)rdmsr(MSR_X2APIC + reg);
    return mmio_read32(regs + reg * 16);
}

/* Writes register `reg` of the local APIC, in the mode that it is in. */
static void apic_write(u32 reg, u32 v) {
    if (apic_x2)
        wrmsr(MSR_X2APIC + reg, v);
    else
        mmio_write32(regs + reg * 16, v);
}

/* Returns the APIC id of this CPU. */
u32 apic_id(void) {
    u32 id = apic_read(REG_ID);

    if (apic_x2) return id;
    return id >> 24;
}

/* Tells the local APIC that the handler of an interrupt is done ("end of interrupt"). */
static void eoi(void) { apic_write(REG_EOI, 0); }

/* Sends an interrupt to another CPU (an IPI). In xAPIC mode the register that sends an IPI has two
 * halves, and the APIC may still be sending the last one. So this waits until that IPI is gone,
 * writes the receiver, and then the half that sends. The wait has an end, because a CPU that panics
 * calls this too and must get on. */
void apic_send(u32 dest, enum apic_delivery how, u8 vector) {
    u32 low = (u32)how << 8 | ICR_ASSERT | vector;

    /* What we stored before has to be visible to the receiver when the IPI arrives. A write in
     * x2APIC mode does not wait for earlier stores (SDM 3A 11.12.3), so wait here. */
    __asm__ volatile("mfence; lfence" : : : "memory");
    if (apic_x2) {
        wrmsr(MSR_X2APIC + REG_ICR, (u64)dest << 32 | low);
        return;
    }
    for (int i = 0; i < ICR_POLLS && (apic_read(REG_ICR) & ICR_BUSY); i++) cpu_relax();
    apic_write(REG_ICR_HIGH, dest << 24);
    apic_write(REG_ICR, low);
}

/* Makes this CPU's APIC timer count down once from `ticks`; 0 stops it. */
void apic_timer_count(u32 ticks) { apic_write(TIMER_COUNT, ticks); }

/* Returns what is left of the count. */
u32 apic_timer_left(void) { return apic_read(TIMER_LEFT); }

/* ---- the interrupt controller that Takt does not use ---- */

/* Masks all interrupts of the two 8259s. They also get vectors of their own first: an 8259 may send
 * a spurious interrupt even if all is masked, and with its vectors of old this would be taken for
 * an exception (8259A data sheet). */
static void silence_8259(void) {
    static const struct {
        u8 port, value;
    } init[] = { { 0x20, 0x11 }, { 0xa0, 0x11 }, { 0x21, VEC_PIC }, { 0xa1, VEC_PIC + 8 },
                 { 0x21, 4 },    { 0xa1, 2 },    { 0x21, 1 },       { 0xa1, 1 },
                 { 0x21, 0xff }, { 0xa1, 0xff } };

    for (unsigned i = 0; i < ARRAY_SIZE(init); i++) outb(init[i].port, init[i].value);
}

/* ---- set-up ---- */

/* Chooses the mode of the local APIC and of its timer. Returns 0, or -ENODEV if there is no APIC.
 * In TSC-deadline mode the timer fires when the TSC reaches a given value. On some CPUs with old
 * microcode it may never fire, although CPUID promises it (an "erratum"); the timer that counts
 * down is used there instead. */
int apic_probe(void) {
    struct cpuid c = cpuid(1, 0);
    struct cpu_kind kind = cpu_kind_read();
    u32 microcode;

    if (!(c.edx >> 9 & 1)) return -ENODEV;
    apic_x2 = c.ecx >> 21 & 1;
    apic_tsc_deadline = c.ecx & CPUID_TSC_DEADLINE && !erratum_tsc_deadline(&kind, &microcode);
    return 0;
}

/* Finds the local APIC's registers and masks the interrupts of all other controllers. Returns 0 or
 * -ENODEV. The firmware may ask for xAPIC mode. acpi_wants_x2apic() says when we obey. In that mode
 * the registers are in memory and have to be mapped. */
int apic_init(const struct acpi_info *a) {
    acpi = a;
    if (apic_probe() < 0) return -ENODEV;
    if (apic_x2 && !acpi_wants_x2apic(a, rdmsr(MSR_APIC_BASE) & APIC_BASE_X2APIC)) {
        log_info("x2APIC is left off, as the firmware asks");
        apic_x2 = false;
    }
    if (!apic_x2) regs = mmio_map(ALIGN_DOWN(rdmsr(MSR_APIC_BASE), PAGE_SIZE), PAGE_SIZE);
    if (!apic_x2 && !regs) return -ENODEV;
    silence_8259();
    irq_init(a);
    irq_eoi = eoi;
    return 0;
}

/* Sets up the local APIC of this CPU. An LVT entry says what each source of interrupts inside the
 * CPU raises. All entries stay masked but those of the timer, of the pin on which the machine
 * reports defects by NMI, and of sources that the firmware handles itself. */
void apic_init_cpu(void) {
    u64 base = rdmsr(MSR_APIC_BASE) | APIC_BASE_ENABLED;
    u32 timer = VEC_TIMER;

    wrmsr(MSR_APIC_BASE, base); /* x2APIC is reached through xAPIC mode (SDM 3A 11.12.5) */
    if (apic_x2) wrmsr(MSR_APIC_BASE, base | APIC_BASE_X2APIC);
    apic_write(REG_SVR, SVR_ENABLED | VEC_SPURIOUS);
    apic_write(REG_TPR, 0);
    for (u32 lvt = LVT_THERMAL; lvt <= LVT_ERROR; lvt++) {
        u32 value = LVT_MASKED;

        /* Firmware that watches the temperature in SMM goes on doing so. */
        if ((apic_read(lvt) & LVT_DELIVERY) == LVT_SMI) continue;
        if (lvt - LVT_LINT0 == acpi->nmi_lint) value = LVT_NMI;
        apic_write(lvt, value);
    }
    apic_write(TIMER_DIVIDE, TIMER_BY_1);
    if (apic_tsc_deadline) timer |= LVT_DEADLINE;
    apic_write(LVT_TIMER, timer);
    /* The mode must have changed before the deadline is written (SDM 3A 11.5.4.1). */
    __asm__ volatile("mfence" : : : "memory");
}
