/* Checks of interrupts and of DMA, with devices that most machines have. For interrupts that is the
 * real-time clock, which can tick at a fixed rate. For DMA (a device that accesses memory by
 * itself) it is a controller of disks (NVMe) or of USB (xHCI): it is made to access memory that it
 * must not reach, and the IOMMU has to stop it and to report it. */
#include <takt/io.h>
#include "lib/printf.h"
#include "common/string.h"
#include "passthrough/vtd.h"
#include "platform/clock.h"
#include "platform/hostmap.h"
#include "platform/irq.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "selftest/check.h"
#include "common/insn.h"
#include "x86/tsc.h"

#define PATIENCE_NS (500 * NS_PER_MS)

/* ---- the real-time clock: MC146818 data sheet ---- */

#define RTC_INDEX    0x70
#define RTC_DATA     0x71
#define RTC_NMI_OFF  0x80 /* of the index: bit 7 keeps NMIs off while the clock is asked */
#define RTC_A        0x0a
#define RTC_B        0x0b
#define RTC_C        0x0c
#define RTC_RATE     0x06 /* of A: 1,024 times a second */
#define RTC_RATES    0x0f
#define RTC_PERIODIC BIT(6) /* of B: interrupt so often; of C: it is due. Reading C takes it back */
#define RTC_ASKED    BIT(7) /* of C: the line is raised */
#define RTC_IRQ      8u
#define TICKS        32u

/* Reads a register of the clock. NMIs are kept off meanwhile: a handler that uses the clock, too,
 * would change the register that is selected. */
static u8 rtc_read(u8 at) {
    outb(RTC_INDEX, at | RTC_NMI_OFF);
    return inb(RTC_DATA);
}

/* Writes a register of the clock. */
static void rtc_write(u8 at, u8 value) {
    outb(RTC_INDEX, at | RTC_NMI_OFF);
    outb(RTC_DATA, value);
}

static volatile u32 ticks;

/* The handler of the clock's interrupt. The clock interrupts again only after C was read. */
static void on_tick(void *arg) {
    rtc_read(RTC_C);
    ticks++;
}

/* Lets the clock tick for a while. Returns whether it ever raised its line and was not heard. */
static bool let_tick(void) {
    u8 a = rtc_read(RTC_A), b = rtc_read(RTC_B);
    u64 end = now_ns() + PATIENCE_NS;
    bool raised = false;

    rtc_write(RTC_A, (a & ~RTC_RATES) | RTC_RATE);
    rtc_write(RTC_B, b | (u8)RTC_PERIODIC);
    rtc_read(RTC_C);
    while (ticks < TICKS && now_ns() < end) irq_window();
    if (!ticks) raised = rtc_read(RTC_C) & RTC_ASKED;
    rtc_write(RTC_B, b);
    rtc_write(RTC_A, a);
    rtc_read(RTC_C);
    outb(RTC_INDEX, 0); /* NMIs may come again */
    return raised;
}

/* Checks whether an interrupt of a device, the real-time clock, comes through. It tells apart three
 * cases: interrupts come; the clock asks for one and none comes, so something on the way is broken;
 * the clock does not ask or cannot be connected, so there is nothing to check. `no_iommu` says why
 * there is no IOMMU; it is NULL if there is one. */
void check_interrupt(struct finding *f, const struct acpi_info *acpi, const char *no_iommu) {
    u32 flags, pin = acpi_line(acpi, RTC_IRQ, &flags);
    int vector = irq_alloc(on_tick, NULL);
    const char *how = "remapped by the IOMMU";
    bool raised;

    if (no_iommu) how = "by its IOAPIC; none are remapped";
    if (vector < 0) {
        found(f, NOT_HERE, "there is no vector left");
        return;
    }
    if (irq_pin_connect(pin, vector, flags)) {
        irq_free(vector);
        found(f, NOT_HERE, "no IOAPIC has pin %u of the real-time clock", pin);
        return;
    }
    irq_pin_mask(pin, false);
    raised = let_tick();
    irq_pin_mask(pin, true);
    irq_free(vector);
    if (ticks)
        found(f, HOLDS, "%u of the real-time clock, %s", ticks, how);
    else if (raised)
        found(f, FAILS, "the real-time clock asks for one by pin %u and none comes", pin);
    else
        found(f, NOT_HERE, "the real-time clock does not ask for any");
}

/* ---- a device that reaches for memory ---- */

#define CLASS_NVME 0x010802u
#define CLASS_XHCI 0x0c0330u
#define NVME_BYTES 0x2000u
#define XHCI_BYTES 0x4000u

/* NVMe 1.4, 3.1 */
enum {
    NVME_CAP = 0x00,
    NVME_CC = 0x14,
    NVME_CSTS = 0x1c,
    NVME_AQA = 0x24,
    NVME_ASQ = 0x28,
    NVME_ACQ = 0x30
};
#define NVME_DOORBELL 0x1000u
#define NVME_ENABLE   BIT(0)                /* of CC, and READY of CSTS */
#define NVME_SIZES    (6u << 16 | 4u << 20) /* entries of 64 and 16 bytes */
#define NVME_QUEUES   (1u << 16 | 1u)       /* each of two entries */

/* xHCI 1.2, 5.3 to 5.5 */
enum { XHCI_LENGTH = 0x00, XHCI_RUNTIME = 0x18, XHCI_COMMAND = 0x00, XHCI_STATUS = 0x04 };
/* Of the first interrupter, in the runtime registers; and what is behind the last of these. */
enum { XHCI_TABLE_SIZE = 0x28, XHCI_TABLE = 0x30, XHCI_TABLE_END = 0x38 };
#define XHCI_RUN       BIT(0)
#define XHCI_RESET     BIT(1)
#define XHCI_HALTED    BIT(0) /* of the status, as XHCI_NOT_READY */
#define XHCI_NOT_READY BIT(11)

/* Writes a register of 64 bits in two halves, since not all controllers take 8 bytes at once. */
static void device_write64(volatile u8 *at, u64 value) {
    mmio_write32(at, (u32)value);
    mmio_write32(at + 4, (u32)(value >> 32));
}

/* Waits until `bits` of a register have this value. Returns false if that takes too long. */
static bool register_becomes(volatile u8 *at, u32 bits, u32 value) {
    u64 end = now_ns() + PATIENCE_NS;

    while ((mmio_read32(at) & bits) != value)
        if (now_ns() > end) return false;
    return true;
}

/* Makes the controller fetch a command from `memory`: switches it off, gives it a queue of commands
 * there, switches it on, and says that there is a command. Returns false if it does not obey. */
static bool provoke_nvme(volatile u8 *regs, hpa_t memory) {
    mmio_write32(regs + NVME_CC, 0);
    if (!register_becomes(regs + NVME_CSTS, NVME_ENABLE, 0)) return false;
    mmio_write32(regs + NVME_AQA, NVME_QUEUES);
    device_write64(regs + NVME_ASQ, memory);
    device_write64(regs + NVME_ACQ, memory + PAGE_SIZE);
    mmio_write32(regs + NVME_CC, NVME_SIZES | NVME_ENABLE);
    if (!register_becomes(regs + NVME_CSTS, NVME_ENABLE, NVME_ENABLE)) return false;
    mmio_write32(regs + NVME_DOORBELL, 1);
    return true;
}

/* Makes the controller fetch its table of event rings from `memory`. It may be reset only after it
 * has halted (5.4.1). Returns false if it does not obey. */
static bool provoke_xhci(volatile u8 *regs, hpa_t memory) {
    volatile u8 *operational = regs + (mmio_read32(regs + XHCI_LENGTH) & 0xff);
    u32 runtime_at = mmio_read32(regs + XHCI_RUNTIME) & ~0x1fu;
    volatile u8 *runtime = regs + runtime_at;

    if (runtime_at > XHCI_BYTES - XHCI_TABLE_END) return false; /* more is not mapped */
    mmio_write32(operational + XHCI_COMMAND, 0);
    if (!register_becomes(operational + XHCI_STATUS, XHCI_HALTED, XHCI_HALTED)) return false;
    mmio_write32(operational + XHCI_COMMAND, XHCI_RESET);
    if (!register_becomes(operational + XHCI_COMMAND, XHCI_RESET, 0)) return false;
    if (!register_becomes(operational + XHCI_STATUS, (u32)XHCI_NOT_READY, 0)) return false;
    mmio_write32(runtime + XHCI_TABLE_SIZE, 1);
    device_write64(runtime + XHCI_TABLE, memory);
    mmio_write32(operational + XHCI_COMMAND, XHCI_RUN);
    return true;
}

static const struct provoker {
    u32 class, bytes; /* of its registers, that it needs */
    bool (*provoke)(volatile u8 *regs, hpa_t memory);
} provokers[] = { { CLASS_NVME, NVME_BYTES, provoke_nvme },
                  { CLASS_XHCI, XHCI_BYTES, provoke_xhci } };

/* Returns how this device can be made to access memory; NULL if we do not know how, or must not:
 * the firmware may go on using it, or no IOMMU blocks it. */
static const struct provoker *provoker_of(const struct pci_device *d) {
    for (u32 i = 0; i < ARRAY_SIZE(provokers); i++)
        if (d->class_rev >> 8 == provokers[i].class && !d->bar[0].io && d->bar[0].addr &&
            d->bar[0].size >= provokers[i].bytes && iommu_blocks(d) && !iommu_firmware_uses(d))
            return &provokers[i];
    return NULL;
}

/* Makes device `d` access memory, and looks whether the IOMMU reports it. Returns false if the
 * device cannot be used for this, so that another one is tried. */
static bool try_device(struct finding *f, struct pci_device *d, const struct provoker *p) {
    volatile u8 *regs = mmio_map(d->bar[0].addr, p->bytes);
    hpa_t memory = frame_alloc_zeroed(1);
    u64 before = iommu_faults(d), end;
    bool asked;

    if (!regs || memory == HPA_NONE) return false;
    pci_write(d->bdf, PCI_COMMAND, 2,
              pci_idle_command(d) | PCI_COMMAND_MASTER | PCI_COMMAND_MEMORY);
    asked = p->provoke(regs, memory);
    for (end = now_ns() + PATIENCE_NS; asked && iommu_faults(d) == before && now_ns() < end;)
        irq_window();
    pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d));
    if (!asked) return false; /* the frames stay its own: it may yet do something with them */
    if (iommu_faults(d) != before)
        found(f, HOLDS, "PCI device %s reached for memory, was stopped and was told of", d->name);
    else
        found(f, FAILS, "PCI device %s reached for memory and the IOMMU told of nothing", d->name);
    return true;
}

/* Checks whether the IOMMU stops a device that reaches for memory. Of the devices of this machine,
 * the first one that can be used decides. */
void check_dma(struct finding *f, const char *no_iommu) {
    if (no_iommu) {
        found(f, NOT_HERE, "nothing confines devices: %s", no_iommu);
        return;
    }
    for (u32 i = 0; i < pci_count(); i++) {
        const struct provoker *p = provoker_of(pci_at(i));

        if (p && try_device(f, pci_at(i), p)) return;
    }
    found(f, NOT_HERE, "no NVMe or xHCI controller is here that could be made to reach for memory");
}
