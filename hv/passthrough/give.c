/* What a VM file's `pci =` asks for. A device has an owner from before the VM gets memory until after it
 * was freed; claim, release, attach and detach are parts of the making and destroying of a VM, on the
 * housekeeping pCPU, as are its interrupts: so none of them waits for another. */
#include "passthrough/give.h"

#include <takt/device.h>
#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/irq.h"
#include "trace/trace.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(device_interrupts);
DEFINE_COUNTER(device_interrupts_held);

/* So many interrupts a millisecond, then it has to wait for the next. */
#define BURST        20u

#define FIXED_PLACES TAKT_IOAPIC_GPA /* from here to 4 GiB a VM has its own */

static const struct acpi_info *acpi;
static struct mp_info mp;
static hpa_t low_limit, high_limit; /* no register of a device is below, or between 4 GiB and the latter */

#define BAR_MAX      BIT(30)        /* so that tables for it are few: they are freed in one step */
#define FIXED_PORTS  0x400u         /* below them too */
#define MAP_LARGE    (64ull << 20)  /* that a part maps, in 2 MiB pages */
#define MAP_SMALL    (256ull << 10) /* in 4 KiB pages */
#define RESET_PHASES 8u             /* more than there are */

#define BDF          "%02x:%02x.%x"
#define BDF_OF(d)    (d)->bdf >> 8, (d)->bdf >> 3 & 31, (d)->bdf & 7

static PRINTF(3, 4) int refuse(struct vm *vm, int error, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(vm->why, sizeof(vm->why), fmt, ap);
    va_end(ap);
    vm->job.why = vm->why;
    return error;
}

/* ---- who has it ---- */

const char *give_refused(const struct pci_device *d) {
    if (d->header == 1 || d->header == 2) return "it is a bridge";
    if (d->header) return "its configuration space is not understood";
    if (d->class_rev >> 24 == 6) return "it is a part of the machine itself";
    if (d->class_rev >> 24 == 3) return "the screen shows the log";
    for (u32 i = 0; i < 6; i++) {
        const struct pci_bar *b = &d->bar[i];
        hpa_t last = b->addr + b->size - 1;

        if (!b->size) continue;
        if (!b->addr) return "firmware gave a BAR of it no address";
        if (b->size > BAR_MAX) return "a BAR of it is larger than 1 GiB";
        if (b->io ? last > 0xffff || b->addr < FIXED_PORTS
                  : last < b->addr || b->addr < low_limit || (last >= FIXED_PLACES && b->addr < high_limit) ||
                        last >= TAKT_FOREIGN_GPA)
            return "a BAR of it lies where none can be";
    }
    return NULL;
}

/* The pages of a memory BAR of d may hold registers of another device. */
static const struct pci_device *page_shared(const struct pci_device *d, const struct pci_bar *a) {
    hpa_t from = ALIGN_DOWN(a->addr, PAGE_SIZE), to = ALIGN_UP(a->addr + a->size, PAGE_SIZE);

    for (u32 i = 0; i < pci_count() && a->size && !a->io; i++) {
        const struct pci_device *other = pci_at(i);

        for (const struct pci_bar *b = other->bar; other != d && b < other->bar + 6; b++)
            if (b->size && !b->io && from < b->addr + b->size && b->addr < to) return other;
    }
    return NULL;
}

/* Looks at a BAR of the next device; after the last one the VM has the device. */
static int claim(struct vm *vm) {
    u32 bdf = vm->config.pci[vm->nr_pci];
    struct pci_device *d = pci_find(bdf);
    const struct pci_device *other = d ? page_shared(d, &d->bar[vm->job.at]) : NULL;

    if (!d) return refuse(vm, -ENOENT, "there is no PCI device " BDF, bdf >> 8, bdf >> 3 & 31, bdf & 7);
    if (give_refused(d)) return refuse(vm, -EINVAL, "PCI device " BDF ": %s", BDF_OF(d), give_refused(d));
    if (d->owner) return refuse(vm, -EBUSY, "PCI device " BDF " belongs to %s", BDF_OF(d), d->owner->name);
    if (other)
        return refuse(vm, -EINVAL, "PCI device " BDF " has registers in one page with " BDF, BDF_OF(d),
                      BDF_OF(other));
    if (!vm->config.unsafe_dma)
        return refuse(vm, -EPERM,
                      "PCI device " BDF " reaches all memory, as no IOMMU is in use: it needs"
                      " unsafe_dma = yes",
                      BDF_OF(d));
    if (++vm->job.at < ARRAY_SIZE(d->bar)) return 1;
    vm->job.at = 0;
    d->owner = vm;
    vm->pci[vm->nr_pci++] = d;
    if (vm->nr_pci < vm->config.nr_pci) return 1;
    log_warn("%s: unsafe_dma: who controls this VM can read and write all memory of the machine, by its "
             "devices",
             vm->name);
    return 0;
}

static void release(struct vm *vm) {
    while (vm->nr_pci) vm->pci[--vm->nr_pci]->owner = NULL;
}

/* ---- interrupts ---- */

static const struct mp_route *mp_route(u32 bus, u32 device, u32 pin) {
    for (const struct mp_route *r = mp.route; r < mp.route + mp.nr; r++)
        if (r->bus == bus && r->device == device && r->pin == pin) return r;
    return NULL;
}

/* MPS INTI flags (ACPI 6.5, 5.2.12.5): what they leave to the bus is low and level for PCI. */
static u32 line_flags(u16 flags) {
    return ((flags & 3) == 1 ? 0 : IRQ_LOW) | ((flags >> 2 & 3) == 1 ? 0 : IRQ_LEVEL);
}

const char *give_line(const struct pci_device *d, u32 *gsi, u32 *flags) {
    u32 bus = d->bdf >> 8, device = d->bdf >> 3 & 31, pin = d->pin - 1u;

    if (!d->pin) return NULL;
    for (u32 up = 0; up < 8;
         up++) { /* behind a bridge pins turn with the device's number: PCI-PCI Bridge 1.2, 9.1 */
        const struct mp_route *r = mp_route(bus, device, pin);
        const struct pci_device *bridge = r || !bus ? NULL : pci_bridge_of(bus);

        if (r) {
            *gsi = r->gsi;
            *flags = line_flags(r->flags);
            return "the MP table";
        }
        if (!bridge) break;
        pin = (pin + device) % 4;
        bus = bridge->bdf >> 8;
        device = bridge->bdf >> 3 & 31;
    }
    if (d->line == 0 || d->line > 15) return NULL;
    *gsi = d->line;
    *flags = line_flags(0);
    for (u32 i = 0; i < acpi->nr_overrides; i++)
        if (acpi->override[i].irq == d->line) {
            *gsi = acpi->override[i].gsi;
            *flags = line_flags(acpi->override[i].flags);
        }
    return "its interrupt line register";
}

static void set_bits(const struct pci_device *d, u32 offset, u32 bits, bool on) {
    u32 v = pci_read(d->bdf, offset, 2);

    pci_write(d->bdf, offset, 2, on ? v | bits : v & ~bits);
}

static void set_masked(struct pci_device *d, bool masked) {
    /* The pin is masked when `masked` says so, also to an EOI that comes in between. */
    if (!masked) __atomic_store_n(&d->masked, false, __ATOMIC_SEQ_CST);
    if (d->irq == PCI_INTX) irq_pin_mask(d->gsi, masked);
    if (d->irq == PCI_MSI) set_bits(d, d->msi + 2u, PCI_MSI_ENABLE, !masked);
    if (d->irq == PCI_MSIX) set_bits(d, d->msix + 2u, PCI_MSIX_MASK, masked);
    if (masked) __atomic_store_n(&d->masked, true, __ATOMIC_SEQ_CST);
}

static void raise(struct pci_device *d, u64 now) { evtchn_raise(&d->owner->events, d->port, now); }

static bool too_many(const struct pci_device *d, u64 now) {
    return d->in_window >= BURST && now - d->window < NS_PER_MS;
}

static void wait_for_window(struct pci_device *d) {
    counter_inc(&device_interrupts_held, this_cpu()->id);
    timer_set(WORK_CPU, &d->unmask, d->window + NS_PER_MS);
}

/* A message that came while they were held may be lost. */
static void on_unmask(struct timer *t, u64 now) {
    struct pci_device *d = container_of(t, struct pci_device, unmask);

    set_masked(d, false);
    if (d->irq == PCI_MSI) raise(d, now);
}

/* A line stays masked until the VM has done; so that storms of messages end too, these wait for their next
 * millisecond. */
static void on_interrupt(void *arg) {
    struct pci_device *d = arg;
    u64 now = now_ns();

    counter_inc(&device_interrupts, this_cpu()->id);
    d->interrupts++;
    if (now - d->window >= NS_PER_MS) {
        d->window = now;
        d->in_window = 0;
    }
    d->in_window++;
    if (d->irq == PCI_INTX || d->in_window == BURST) set_masked(d, true);
    if (d->irq != PCI_INTX && d->in_window == BURST) wait_for_window(d);
    raise(d, now);
}

static i64 pci_eoi(struct vm *vm, u32 index) {
    struct pci_device *d = vm->pci[index];

    if (d->irq != PCI_INTX || !__atomic_load_n(&d->masked, __ATOMIC_SEQ_CST)) return 0;
    if (too_many(d, now_ns()))
        wait_for_window(d);
    else
        set_masked(d, false);
    return 0;
}

/* PCI 3.0, 6.8.1: one message. */
static void connect_msi(struct pci_device *d) {
    struct irq_message m = irq_message(d->vector);
    u32 control = pci_read(d->bdf, d->msi + 2u, 2) & ~0x71u, wide = control & PCI_MSI_WIDE ? 4 : 0;

    pci_write(d->bdf, d->msi + 4u, 4, (u32)m.addr);
    if (wide) pci_write(d->bdf, d->msi + 8u, 4, (u32)(m.addr >> 32));
    pci_write(d->bdf, d->msi + 8u + wide, 2, m.data);
    if (control & PCI_MSI_MASKS) pci_write(d->bdf, d->msi + 12u + wide, 4, ~1u);
    pci_write(d->bdf, d->msi + 2u, 2, control | (u32)PCI_MSI_ENABLE);
}

/* 6.8.2: the first entry of the table; the others stay masked, as they are after reset. */
static void connect_msix(struct pci_device *d) {
    struct irq_message m = irq_message(d->vector);

    set_bits(d, d->msix + 2u, PCI_MSIX_ENABLE | PCI_MSIX_MASK, true);
    mmio_write32(d->msix_entry, (u32)m.addr);
    mmio_write32(d->msix_entry + 4, (u32)(m.addr >> 32));
    mmio_write32(d->msix_entry + 8, m.data);
    mmio_write32(d->msix_entry + 12, 0);
    set_bits(d, d->msix + 2u, PCI_MSIX_MASK, false);
}

static int connect_line(struct vm *vm, struct pci_device *d) {
    u32 flags = 0;
    const char *source = give_line(d, &d->gsi, &flags);

    if (!source) {
        log_warn("%s: PCI device " BDF " has no interrupt that firmware tells of", vm->name, BDF_OF(d));
        return 0;
    }
    for (u32 i = 0; i < pci_count(); i++)
        if (pci_at(i) != d && pci_at(i)->irq == PCI_INTX && pci_at(i)->gsi == d->gsi)
            return refuse(vm, -EBUSY, "PCI device " BDF " shares its interrupt line with " BDF, BDF_OF(d),
                          BDF_OF(pci_at(i)));
    if (irq_pin_connect(d->gsi, d->vector, flags))
        return refuse(vm, -ENODEV, "PCI device " BDF ": there is no interrupt pin %u", BDF_OF(d), d->gsi);
    log_info("%s: PCI device " BDF " interrupts by pin %u, active %s, %s, by %s", vm->name, BDF_OF(d), d->gsi,
             flags & IRQ_LOW ? "low" : "high", flags & IRQ_LEVEL ? "level" : "edge", source);
    d->irq = PCI_INTX;
    set_masked(d, false);
    return 0;
}

static int connect(struct vm *vm, struct pci_device *d) {
    int port = evtchn_make(&vm->events);

    if (port < 0) return port;
    d->vector = irq_alloc(on_interrupt, d);
    if (d->vector < 0) return refuse(vm, d->vector, "there are too many devices that interrupt");
    d->port = (u32)port;
    timer_init(&d->unmask, on_unmask);
    d->window = d->in_window = 0;
    d->interrupts = 0;
    if (!d->msix_entry && !d->msi) return connect_line(vm, d);
    d->irq = d->msix_entry ? PCI_MSIX : PCI_MSI;
    d->irq == PCI_MSIX ? connect_msix(d) : connect_msi(d);
    log_info("%s: PCI device " BDF " interrupts by %s", vm->name, BDF_OF(d), d->msix_entry ? "MSI-X" : "MSI");
    return 0;
}

static void disconnect(struct pci_device *d) {
    if (d->irq == PCI_INTX) irq_pin_mask(d->gsi, true);
    if (d->port) timer_cancel_wait(&d->unmask);
    if (d->port && d->vector > 0) irq_free(d->vector);
    d->irq = PCI_NO_IRQ;
    d->port = 0;
    d->masked = false;
}

/* ---- registers ---- */

static void ports_access(void *dev, const struct bus_access *a, u64 *value) {
    u16 port = (u16)a->addr;

    if (a->write) {
        if (a->size == 1) outb(port, (u8)*value);
        if (a->size == 2) outw(port, (u16)*value);
        if (a->size == 4) outl(port, (u32)*value);
    } else {
        *value = a->size == 1 ? inb(port) : a->size == 2 ? inw(port) : inl(port);
    }
}

/* Maps the next part of a BAR, 1 if there is more: as far as 2 MiB pages go, or a few of 4 KiB. The pages of
 * the MSI-X table are read-only: who writes there interrupts by any vector. */
static int map_bar(struct vm *vm, const struct pci_device *d, u32 i) {
    const struct pci_bar *b = &d->bar[i];
    gpa_t first = ALIGN_DOWN(b->addr, PAGE_SIZE), last = ALIGN_UP(b->addr + b->size, PAGE_SIZE);
    gpa_t from = first + vm->job.offset, to, large, table = last, end = last;
    u32 where = d->msix ? pci_read(d->bdf, d->msix + 4u, 4) : 7;
    u32 entries = d->msix ? (pci_read(d->bdf, d->msix + 2u, 2) & 0x7ff) + 1 : 0;

    if ((where & 7) == i) {
        table = MIN(ALIGN_DOWN(b->addr + (where & ~7u), PAGE_SIZE), last);
        end = MIN(ALIGN_UP(b->addr + (where & ~7u) + 16 * entries, PAGE_SIZE), last);
    }
    if (first < vm->mem.low_size ||
        (last > TAKT_HIGH_RAM && first < TAKT_HIGH_RAM + vm->mem.size - vm->mem.low_size))
        return refuse(vm, -EINVAL, "BAR %u of PCI device " BDF " lies where this VM has RAM", i, BDF_OF(d));
    to = from < table ? table : from < end ? end : last;
    large = MIN(ALIGN_DOWN(to, SIZE_2M), from + MAP_LARGE);
    to = from % SIZE_2M == 0 && large > from ? large : MIN(to, ALIGN_DOWN(from, MAP_SMALL) + MAP_SMALL);
    vm->job.offset = to - first;
    if (npt_map(&vm->virt.npt, from, from, to - from, from >= table && from < end ? NPT_R : NPT_RW, NPT_UC))
        return -ENOMEM;
    return to < last;
}

static int attach_bar(struct vm *vm, const struct pci_device *d, u32 i) {
    const struct pci_bar *b = &d->bar[i];

    if (!b->size) return 0;
    if (!b->io) return map_bar(vm, d, i);
    if (vm->ports.nr >= BUS_RANGES - 3) /* io.c adds three */
        return refuse(vm, -ENOSPC, "PCI device " BDF ": it has too many ranges of ports", BDF_OF(d));
    bus_add(&vm->ports, b->addr, b->size, ports_access, NULL);
    return 0;
}

/* ---- making and destroying ---- */

/* A phase of the reset of all its devices: 1 until they are done. */
static int reset_all(struct vm *vm) {
    u64 wait = 0;

    for (u32 i = 0; i < vm->nr_pci; i++) {
        u64 ns = pci_reset(vm->pci[i], vm->job.at);

        wait = MAX(wait, ns);
    }
    vm->job.at++;
    vm->job.work.not_before = wait ? now_ns() + wait : 0;
    return wait != 0;
}

static u32 decoding(const struct pci_device *d) {
    u32 bits = 0;

    for (u32 i = 0; i < 6; i++)
        if (d->bar[i].size) bits |= d->bar[i].io ? PCI_COMMAND_IO : PCI_COMMAND_MEMORY;
    return bits;
}

static int switch_on(struct vm *vm, struct pci_device *d) {
    u32 command = decoding(d) | PCI_COMMAND_NO_INTX;
    int err;

    if (!d->was_reset && !d->quiet)
        log_info("%s: PCI device " BDF " cannot be reset: it may go on where it was left", vm->name,
                 BDF_OF(d));
    pci_write(d->bdf, PCI_COMMAND, 2, command);
    err = connect(vm, d);
    if (d->irq == PCI_INTX) command &= ~(u32)PCI_COMMAND_NO_INTX;
    if (!err) pci_write(d->bdf, PCI_COMMAND, 2, command | PCI_COMMAND_MASTER);
    return err;
}

/* All are reset; then, device by device, each BAR is one part or more, and what switches it on is one. */
static int attach(struct vm *vm) {
    struct vm_job *j = &vm->job;
    u32 parts = ARRAY_SIZE(vm->pci[0]->bar) + 1, at = j->at - RESET_PHASES;
    int r;

    if (j->at < RESET_PHASES) {
        if (!reset_all(vm)) j->at = RESET_PHASES;
        return 1;
    }
    r = at % parts + 1 < parts ? attach_bar(vm, vm->pci[at / parts], at % parts)
                               : switch_on(vm, vm->pci[at / parts]);
    if (r) return r;
    j->offset = 0;
    j->at++;
    return at + 1 < parts * vm->nr_pci;
}

static int detach(struct vm *vm) {
    for (u32 i = 0; i < vm->nr_pci; i++) timer_cancel(&vm->pci[i]->unmask); /* not amid a reset */
    if (reset_all(vm)) return 1;
    for (u32 i = 0; i < vm->nr_pci; i++) disconnect(vm->pci[i]);
    return 0;
}

/* ---- hypercalls; the VM has a device `index` ---- */

static i64 pci_info(struct vm *vm, u32 index, gpa_t to) {
    const struct pci_device *d = vm->pci[index];
    struct takt_pci info = { .bdf = d->bdf,
                             .id = d->vendor | (u32)d->device << 16,
                             .class_rev = d->class_rev };

    info.port = d->irq ? d->port : 0;
    info.dma_offset = vm->mem.chunk[0];
    for (u32 i = 0; i < 6; i++) {
        const struct pci_bar *b = &d->bar[i];

        info.bar[i].addr = b->io ? 0 : b->addr;
        info.bar[i].size = b->io ? 0 : b->size;
        info.bar[i].io = b->io ? (u32)b->addr : 0;
        info.bar[i].io_size = b->io ? (u32)b->size : 0;
    }
    return guestmem_write(&vm->mem, to, &info, sizeof(info));
}

static bool register_ok(u32 offset, u32 size) {
    return (size == 1 || size == 2 || size == 4) && offset < 4096 && !(offset & (size - 1));
}

static i64 pci_register_read(struct vm *vm, u32 index, u32 offset, u32 size) {
    return register_ok(offset, size) ? (i64)pci_read(vm->pci[index]->bdf, offset, size) : -EINVAL;
}

/* Its right to be master, and INTx: all else could hurt others, or the hypervisor does it itself. */
static i64 pci_register_write(struct vm *vm, u32 index, u32 offset, u32 size, u32 value) {
    const struct pci_device *d = vm->pci[index];
    u32 own = PCI_COMMAND_MASTER | (d->irq == PCI_INTX ? PCI_COMMAND_NO_INTX : 0);

    if (!register_ok(offset, size)) return -EINVAL;
    if (offset != PCI_COMMAND || size != 2 || (value ^ pci_read(d->bdf, PCI_COMMAND, 2)) & ~own)
        return -EPERM;
    pci_write(d->bdf, PCI_COMMAND, 2, value);
    return 0;
}

void give_init(const struct acpi_info *a, hpa_t low_ram, hpa_t high_ram) {
    static const struct vm_giver giver = {
        .claim = claim,
        .release = release,
        .attach = attach,
        .detach = detach,
        .info = pci_info,
        .eoi = pci_eoi,
        .read = pci_register_read,
        .write = pci_register_write,
    };

    acpi = a;
    low_limit = low_ram;
    high_limit = high_ram;
    mp_parse(&mp, a);
    if (mp.bad) log_warn("the MP table is malformed; what does not hold of it was left out");
    vm_giver = &giver;
}
