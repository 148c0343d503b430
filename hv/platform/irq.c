/* Interrupts of devices. A device interrupts by a wire to a pin of an IOAPIC, the chip that turns
 * wires into messages to CPUs, or by sending such a message itself (MSI). Both name a vector: the
 * number by which a CPU chooses the handler. This file hands out the vectors VEC_DEVICE and up, and
 * programs the pins. The number of a pin among those of all IOAPICs is called GSI. */
#include "platform/irq.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "lib/spinlock.h"
#include "platform/hostmap.h"
#include "platform/timer.h"
#include "common/insn.h"
#include "x86/percpu.h"
#include "x86/trap.h"

enum { IOAPIC_VERSION = 1, IOAPIC_TABLE = 0x10 };
/* An MSI is a write to this address, whose bits 12 to 19 are the APIC id: SDM 3A 11.11. */
#define MSI_ADDRESS  0xfee00000u
#define MSI_ID_SHIFT 12
#define MSI_MAX_ID   254u /* 255 means all CPUs */
#define RTE_LOW      BIT(13)
#define RTE_LEVEL    BIT(15)
#define RTE_MASKED   BIT(16)
/* Set in the upper half of an entry whose bits from 17 on are an index into the IOMMU's table of
 * interrupts: VT-d 5.1.5.1. */
#define RTE_REMAPS BIT(16)

static struct {
    volatile u8 *regs; /* NULL: there is no such IOAPIC */
    u32 first, pins;   /* the GSI of its first pin; how many pins it has (0: it does not answer) */
    u32 id;
} ioapic[ACPI_MAX_IOAPICS];
/* Each access to an IOAPIC takes two steps, an index and a value, and nobody may come in
 * between. */
static struct spinlock pin_lock;
int (*irq_remap_pin)(u32 id, u32 vector, bool level);

static struct {
    void (*fn)(void *arg); /* NULL: free */
    void *arg;
    u32 busy; /* calls of fn that are under way; changed atomically */
} use[NR_VEC_DEVICE];

/* ---- vectors ---- */

/* The handler of all device vectors. A pCPU takes interrupts only at a place of its loop where it
 * holds no lock, so the function that is called here may take locks. `busy` counts the calls, so
 * that irq_free() can wait for them. */
static void on_device(u8 vector) {
    u32 i = vector - VEC_DEVICE;
    void (*fn)(void *);

    __atomic_fetch_add(&use[i].busy, 1, __ATOMIC_SEQ_CST);
    fn = __atomic_load_n(&use[i].fn, __ATOMIC_SEQ_CST);
    if (fn) fn(use[i].arg);
    __atomic_fetch_sub(&use[i].busy, 1, __ATOMIC_SEQ_CST);
}

/* Reserves a vector whose interrupts call fn(arg). Returns the vector, or a negative errno. All of
 * these interrupts go to the housekeeping pCPU (WORK_CPU). Pins and messages have only 8 bits for
 * the id of the APIC that is to take the interrupt, and the id 255 means all of them. So a machine
 * whose housekeeping pCPU has a larger id gets no interrupts. */
int irq_alloc(void (*fn)(void *), void *arg) {
    if (percpu_of[WORK_CPU]->apic_id > 254) return -ENODEV;
    for (u32 i = 0; i < NR_VEC_DEVICE; i++) {
        if (use[i].fn) continue;
        use[i].arg = arg;
        __atomic_store_n(&use[i].fn, fn, __ATOMIC_SEQ_CST);
        irq_register((u8)(VEC_DEVICE + i), on_device);
        return (int)(VEC_DEVICE + i);
    }
    return -ENOSPC;
}

/* Gives a vector back, and returns when no call of its function is under way. The function is taken
 * away first, and then we wait for calls that had begun before. So the caller can free what the
 * function uses. */
void irq_free(int vector) {
    __atomic_store_n(&use[vector - VEC_DEVICE].fn, NULL, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&use[vector - VEC_DEVICE].busy, __ATOMIC_SEQ_CST)) cpu_relax();
}

/* Sets *m to the message that raises `vector` on pCPU `cpu`. Returns 0 or -ENODEV. The address and
 * the value are those that the CPU expects of an MSI. */
int irq_message(int vector, u32 cpu, struct irq_message *m) {
    u32 id = percpu_of[cpu]->apic_id;

    *m = (struct irq_message){ MSI_ADDRESS | id << MSI_ID_SHIFT, (u32)vector };
    if (id > MSI_MAX_ID) return -ENODEV;
    return 0;
}

/* ---- pins ---- */

/* Selects register n of IOAPIC i, and returns the address by which it is read and written. */
static volatile u8 *ioapic_reg(u32 i, u32 n) {
    mmio_write32(ioapic[i].regs, n);
    return ioapic[i].regs + 16;
}

/* Masks all pins that raise `vector`. The trap code calls it if that vector has no handler and
 * comes again and again. */
static void mask_vector(u8 vector) {
    spin_lock(&pin_lock);
    for (u32 i = 0; i < ACPI_MAX_IOAPICS; i++)
        for (u32 pin = 0; pin < ioapic[i].pins; pin++)
            if ((mmio_read32(ioapic_reg(i, IOAPIC_TABLE + 2 * pin)) & 0xff) == vector)
                mmio_write32(ioapic_reg(i, IOAPIC_TABLE + 2 * pin), RTE_MASKED);
    spin_unlock(&pin_lock);
}

/* Finds the IOAPIC that has this pin, and takes pin_lock, which the caller gives back. Returns
 * false, without the lock, if there is no such pin. */
static bool find_pin(u32 gsi, u32 *i) {
    spin_lock(&pin_lock);
    for (*i = 0; *i < ACPI_MAX_IOAPICS; ++*i)
        if (gsi - ioapic[*i].first < ioapic[*i].pins) return true;
    spin_unlock(&pin_lock);
    return false;
}

/* Lets the IOAPIC pin `gsi` raise `vector`. Returns 0 or -ENODEV. The pin is masked at first. If an
 * IOMMU remaps interrupts, the entry of the pin holds an index into the IOMMU's table, not a CPU
 * and a vector. irq_remap_pin() writes that table; it returns 0 if it did so, a positive number if
 * there is no remapping, and a negative one if remapping is on but this IOAPIC is behind no known
 * IOMMU. Then the IOMMU would drop the interrupts, so the pin is refused. */
int irq_pin_connect(u32 gsi, int vector, u32 flags) {
    u32 i, low = RTE_MASKED | (u32)vector, high = percpu_of[WORK_CPU]->apic_id << 24;
    int how = 1;

    if (!find_pin(gsi, &i)) return -ENODEV;
    if (irq_remap_pin) how = irq_remap_pin(ioapic[i].id, (u32)vector, flags & IRQ_LEVEL);
    if (how == 0) high = (u32)vector << 17 | RTE_REMAPS;
    if (flags & IRQ_LOW) low |= RTE_LOW;
    if (flags & IRQ_LEVEL) low |= RTE_LEVEL;
    if (how >= 0) {
        mmio_write32(ioapic_reg(i, IOAPIC_TABLE + 2 * (gsi - ioapic[i].first)), low);
        mmio_write32(ioapic_reg(i, IOAPIC_TABLE + 2 * (gsi - ioapic[i].first) + 1), high);
    }
    spin_unlock(&pin_lock);
    return MIN(how, 0);
}

/* Masks or unmasks the IOAPIC pin `gsi`. Reads the entry and writes it back with the bit changed.
 * Both have to happen under the lock, since another pCPU may change the same entry. */
void irq_pin_mask(u32 gsi, bool masked) {
    volatile u8 *low;
    u32 i, v;

    if (!find_pin(gsi, &i)) return;
    low = ioapic_reg(i, IOAPIC_TABLE + 2 * (gsi - ioapic[i].first));
    v = mmio_read32(low) & ~(u32)RTE_MASKED;
    if (masked) v |= RTE_MASKED;
    mmio_write32(low, v);
    spin_unlock(&pin_lock);
}

/* Finds the IOAPICs and masks all their pins. An IOAPIC that does not answer reads as all ones. All
 * pins are masked, because the firmware may have left some open, and nobody would handle their
 * interrupts. */
void irq_init(const struct acpi_info *a) {
    for (u32 i = 0; i < a->nr_ioapics; i++) {
        u32 version = ~0u;

        ioapic[i].regs = mmio_map(a->ioapic[i].addr, PAGE_SIZE);
        if (ioapic[i].regs) version = mmio_read32(ioapic_reg(i, IOAPIC_VERSION));
        if (version == ~0u) {
            log_warn("no IOAPIC answers at %lx", a->ioapic[i].addr);
            continue;
        }
        ioapic[i].first = a->ioapic[i].gsi_base;
        ioapic[i].id = a->ioapic[i].id;
        ioapic[i].pins = (version >> 16 & 0xff) + 1;
        for (u32 pin = 0; pin < ioapic[i].pins; pin++)
            mmio_write32(ioapic_reg(i, IOAPIC_TABLE + 2 * pin), RTE_MASKED);
    }
    irq_mask_vector = mask_vector;
}
