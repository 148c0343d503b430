/* The local APIC (LAPIC), by which a vCPU sends and receives interrupts. It has two modes: in xAPIC
 * mode its registers are in memory, in x2APIC mode they are MSRs, which is faster in a VM. lapic.h
 * has the contracts. */
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <guest/x86.h>
#include <takt/io.h>

#define BASE_ENABLE BIT(11) /* Bits of MSR IA32_APIC_BASE (SDM 3A 11.12.1). */
#define BASE_X2     BIT(10)
#define PIC1_MASK   0x21 /* the ports that mask the interrupts of the two 8259 */
#define PIC2_MASK   0xa1
#define SVR_ENABLE  0x100u
#define X2_MSR(o)   (0x800 + ((o) >> 4))

static u64 timer_khz;

bool lapic_has_x2(void) { return cpuid(1, 0).ecx & BIT(21); }

bool lapic_has_deadline(void) { return cpuid(1, 0).ecx & BIT(24); }

bool lapic_is_x2(void) { return this_vcpu()->x2apic; }

u32 lapic_read(u32 offset) {
    if (lapic_is_x2()) return rdmsr(X2_MSR(offset));
    return mmio_read32((void *)(TAKT_LAPIC_GPA + offset));
}

void lapic_write(u32 offset, u32 value) {
    if (lapic_is_x2())
        wrmsr(X2_MSR(offset), value);
    else
        mmio_write32((void *)(TAKT_LAPIC_GPA + offset), value);
}

u32 lapic_id(void) {
    u32 id = lapic_read(LAPIC_ID);

    if (lapic_is_x2()) return id;
    return id >> 24; /* in xAPIC mode the id is in bits 24 to 31: SDM 3A 11.4.6 */
}

void lapic_eoi(void) { lapic_write(LAPIC_EOI, 0); }

/* Sends an interrupt to the vCPU with LAPIC id `id`, by the interrupt command register. In xAPIC
 * mode the command is two registers, and writing the low one sends the interrupt. An interrupt
 * handler in between that sends one, too, would change the high one. */
void lapic_icr(u32 id, u32 command) {
    if (lapic_is_x2()) {
        wrmsr(X2_MSR(LAPIC_ICR), (u64)id << 32 | command);
        return;
    }
    u64 f = irq_save();
    mmio_write32((void *)(TAKT_LAPIC_GPA + LAPIC_ICR_HIGH), id << 24);
    mmio_write32((void *)(TAKT_LAPIC_GPA + LAPIC_ICR), command);
    irq_restore(f);
}

void lapic_ipi(u32 id, u8 vector) { lapic_icr(id, ICR_FIXED | ICR_ASSERT | vector); }

void lapic_self_ipi(u8 vector) { lapic_icr(0, ICR_SELF | ICR_ASSERT | vector); }

/* Gives the registers their values after the LAPIC was switched on: interrupts of any priority are
 * accepted, and the two pins for old interrupt controllers are off. */
static void lapic_set_up(void) {
    lapic_write(LAPIC_SVR, SVR_ENABLE | VECTOR_SPURIOUS);
    lapic_write(LAPIC_TPR, 0);
    lapic_write(LAPIC_LVT_LINT0, LVT_MASKED);
    lapic_write(LAPIC_LVT_LINT1, LVT_MASKED);
    lapic_write(LAPIC_LVT_ERROR, VECTOR_APICERROR);
    lapic_write(LAPIC_TIMER_DIVIDE, 0xb); /* divide by 1 */
}

/* Switches this vCPU's LAPIC to x2APIC or to xAPIC mode, and sets it up again. The LAPIC can only
 * be switched from x2APIC to xAPIC mode through "off" (SDM 3A 11.12.5). */
void lapic_set_mode(bool want_x2) {
    u64 base = rdmsr(MSR_APIC_BASE) & ~(BASE_ENABLE | BASE_X2);

    wrmsr(MSR_APIC_BASE, base);
    wrmsr(MSR_APIC_BASE, base | BASE_ENABLE);
    if (want_x2) wrmsr(MSR_APIC_BASE, base | BASE_ENABLE | BASE_X2);
    this_vcpu()->x2apic = want_x2;
    lapic_set_up();
}

/* Sets up the LAPIC of this vCPU. x2APIC mode is used where the CPU has it, unless the command line
 * says `xapic`. If the firmware has switched it on already, it stays on. */
void lapic_init_cpu(void) {
    u64 base = rdmsr(MSR_APIC_BASE);

    bool x2 = base & BASE_X2 || (lapic_has_x2() && !cmdline_has("xapic"));

    this_vcpu()->x2apic = x2;
    /* Without this, the two 8259 would interrupt as the firmware has set them up. */
    if (!on_takt()) {
        outb(PIC1_MASK, 0xff);
        outb(PIC2_MASK, 0xff);
    }
    if (x2 && !(base & BASE_X2))
        wrmsr(MSR_APIC_BASE, base | BASE_ENABLE | BASE_X2);
    else if (!(base & BASE_ENABLE))
        wrmsr(MSR_APIC_BASE, base | BASE_ENABLE);
    lapic_set_up();
}

u64 lapic_timer_khz(void) { return timer_khz; }

void lapic_set_timer_khz(u64 khz) { timer_khz = khz; }
