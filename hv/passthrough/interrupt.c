#include "passthrough/interrupt.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "passthrough/give.h"
#include "passthrough/vtd.h"
#include "trace/trace.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(device_interrupts);
DEFINE_COUNTER(device_interrupts_held);
DEFINE_COUNTER(device_interrupts_moved);

#define RATE    20000u /* interrupts a second, if a VM file says nothing */
#define RATE_VF 8000u
#define STORM   64u /* in a millisecond, though it is masked: more than can have been on their way */

static const struct acpi_info *acpi;
static struct mp_info mp;

/* ---- pins ---- */

static const struct mp_route *mp_route(u32 bus, u32 device, u32 pin) {
    for (const struct mp_route *r = mp.route; r < mp.route + mp.nr; r++)
        if (r->bus == bus && r->device == device && r->pin == pin) return r;
    return NULL;
}

/* MPS INTI flags (ACPI 6.5, 5.2.12.5): what they leave to the bus is low and level for PCI. */
static u32 line_flags(u16 flags) {
    return ((flags & 3) == 1 ? 0 : IRQ_LOW) | ((flags >> 2 & 3) == 1 ? 0 : IRQ_LEVEL);
}

const char *interrupt_line(const struct pci_device *d, u32 *gsi, u32 *flags) {
    u32 bus = d->bdf >> 8, device = d->bdf >> 3 & 31, pin = d->pin - 1u;

    if (!d->pin) return NULL;
    /* behind a bridge pins turn with the device's number: PCI-PCI Bridge 1.2, 9.1 */
    for (u32 up = 0; up < 8; up++) {
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

/* ---- masking ---- */

static void set_bits(const struct pci_device *d, u32 offset, u32 bits, bool on) {
    u32 v = pci_read(d->bdf, offset, 2);

    pci_write(d->bdf, offset, 2, on ? v | bits : v & ~bits);
}

/* Of messages, under the lock of the device. */
static void set_masked(struct pci_device *d, bool masked) {
    /* The pin is masked when `masked` says so, also to an EOI that comes in between. */
    if (!masked) __atomic_store_n(&d->masked, false, __ATOMIC_SEQ_CST);
    if (d->irq == PCI_INTX) irq_pin_mask(d->gsi, masked);
    if (d->irq == PCI_MSI && !(masked && d->mute)) set_bits(d, d->msi + 2u, PCI_MSI_ENABLE, !masked);
    if (d->irq == PCI_MSIX && !(masked && d->mute)) set_bits(d, d->msix + 2u, PCI_MSIX_MASK, masked);
    if (masked) __atomic_store_n(&d->masked, true, __ATOMIC_SEQ_CST);
}

static void wait_for_window(struct pci_device *d) {
    counter_inc(&device_interrupts_held, this_cpu()->id);
    timer_set(WORK_CPU, &d->unmask, d->window + NS_PER_MS);
}

/* A message that came while they were held may be lost, if there is no bit for it. */
static void on_unmask(struct timer *t, u64 now) {
    struct pci_device *d = container_of(t, struct pci_device, unmask);

    spin_lock(&d->lock);
    set_masked(d, false);
    spin_unlock(&d->lock);
    if (d->irq == PCI_MSI) evtchn_raise(&d->owner->events, d->entry[0].port, now);
}

/* ---- where messages go ---- */

static u32 cpu_for(const struct pci_vector *e) {
    const struct vm *vm = e->device->owner;

    return vm->vcpu[evtchn_vcpu(&vm->events, e->port)]->sched.cpu;
}

/* PCI 3.0, 6.8.1: one message. */
static void write_msi(const struct pci_device *d, struct irq_message m) {
    u32 control = pci_read(d->bdf, d->msi + 2u, 2) & ~0x70u, wide = control & PCI_MSI_WIDE ? 4 : 0;

    pci_write(d->bdf, d->msi + 4u, 4, (u32)m.addr);
    if (wide) pci_write(d->bdf, d->msi + 8u, 4, (u32)(m.addr >> 32));
    pci_write(d->bdf, d->msi + 8u + wide, 2, m.data);
    pci_write(d->bdf, d->msi + 2u, 2, control);
    if (control & PCI_MSI_MASKS) pci_write(d->bdf, d->msi + 12u + wide, 4, ~1u);
}

/* 6.8.2: masked while it changes. */
static void write_msix(const struct pci_vector *e, struct irq_message m) {
    volatile u8 *at = e->device->msix_table + 16 * (e - e->device->entry);

    mmio_write32(at + 12, 1);
    mmio_write32(at, (u32)m.addr);
    mmio_write32(at + 4, (u32)(m.addr >> 32));
    mmio_write32(at + 8, m.data);
    mmio_write32(at + 12, e->masked);
}

/* -ENODEV: messages cannot reach that pCPU, and go where they went. */
static int direct(struct pci_vector *e, u32 cpu) {
    struct pci_device *d = e->device;
    struct irq_message m;
    int err = iommu_irq(d, (u32)e->vector, cpu, &m);

    if (err) return err;
    e->cpu = cpu;
    d->irq == PCI_MSIX ? write_msix(e, m) : write_msi(d, m);
    return 0;
}

static void on_move(struct timer *t, u64 now) {
    struct pci_device *d = container_of(t, struct pci_device, move);

    spin_lock(&d->lock);
    for (struct pci_vector *e = d->entry; e < d->entry + d->nr_vectors; e++)
        if (!d->off && e->cpu != cpu_for(e) && !direct(e, cpu_for(e)))
            counter_inc(&device_interrupts_moved, this_cpu()->id);
    spin_unlock(&d->lock);
}

/* ---- interrupts ---- */

/* It does not obey, or writes messages as data. */
static void stop_storm(struct pci_device *d) {
    pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d));
    vm_crash(d->owner, NULL, "PCI device %s goes on interrupting though it is masked", d->name);
}

/* Returns how many there were in this millisecond. */
static u32 count(struct pci_device *d, u64 now) {
    d->interrupts++;
    if ((i64)(now - d->window) >= (i64)NS_PER_MS) {
        d->window = now;
        d->in_window = 0;
    }
    return ++d->in_window;
}

/* A line stays masked until the VM has done; so that storms of messages end too, these wait for their next
 * millisecond. */
static void on_line(void *arg) {
    struct pci_vector *e = arg;
    u64 now = now_ns();

    counter_inc(&device_interrupts, this_cpu()->id);
    count(e->device, now);
    set_masked(e->device, true);
    evtchn_raise(&e->device->owner->events, e->port, now);
}

static void on_message(void *arg) {
    struct pci_vector *e = arg;
    struct pci_device *d = e->device;
    u64 now = now_ns();
    u32 n;

    counter_inc(&device_interrupts, this_cpu()->id);
    spin_lock(&d->lock);
    n = count(d, now);
    if (n == d->burst) {
        set_masked(d, true);
        wait_for_window(d);
    }
    if (n == 1 && cpu_for(e) != e->cpu) timer_set(WORK_CPU, &d->move, now);
    spin_unlock(&d->lock);
    evtchn_raise(&d->owner->events, e->port, now);
    if (n == d->burst + STORM) stop_storm(d);
}

void interrupt_done(struct pci_device *d) {
    if (d->irq != PCI_INTX || !__atomic_load_n(&d->masked, __ATOMIC_SEQ_CST)) return;
    if (d->in_window >= d->burst && now_ns() - d->window < NS_PER_MS)
        wait_for_window(d);
    else
        set_masked(d, false);
}

/* ---- MSI-X tables ---- */

bool msix_pages(const struct pci_device *d, u32 i, u64 *from, u64 *to) {
    const struct pci_bar *b = &d->bar[i];
    u32 where = d->msix ? pci_read(d->bdf, d->msix + 4u, 4) : 7;
    u32 entries = d->msix ? (pci_read(d->bdf, d->msix + 2u, 2) & 0x7ff) + 1 : 0;

    *from = ALIGN_DOWN(b->addr + (where & ~7u), PAGE_SIZE);
    *to = ALIGN_UP(b->addr + (where & ~7u) + 16 * entries, PAGE_SIZE);
    return (where & 7) == i;
}

void msix_access(void *dev, const struct bus_access *a, u64 *value) {
    struct pci_device *d = dev;
    u64 at = a->addr - d->msix_gpa;
    struct pci_vector *e = &d->entry[at / 16 % PCI_MAX_VECTORS];

    spin_lock(&d->lock);
    if (a->size == 4 && at / 16 < d->nr_vectors && d->irq == PCI_MSIX) {
        if (a->write && at % 16 == 12) {
            e->masked = *value & 1;
            mmio_write32(d->msix_table + at, e->masked);
        } else if (!a->write) {
            *value = at % 16 == 8 ? e->port : at % 16 == 12 ? e->masked : 0;
        }
    }
    spin_unlock(&d->lock);
}

/* ---- connecting ---- */

static int connect_line(struct vm *vm, struct pci_device *d) {
    u32 flags = 0;
    const char *source = interrupt_line(d, &d->gsi, &flags);

    d->irq = PCI_NO_IRQ;
    if (!source) {
        log_warn("%s: PCI device %s has no interrupt that firmware tells of", vm->name, d->name);
        return 0;
    }
    for (u32 i = 0; i < pci_count(); i++)
        if (pci_at(i) != d && pci_at(i)->irq == PCI_INTX && pci_at(i)->gsi == d->gsi)
            return give_refuse(vm, -EBUSY, "PCI device %s shares its interrupt line with %s", d->name,
                               pci_at(i)->name);
    if (irq_pin_connect(d->gsi, d->entry[0].vector, flags))
        return give_refuse(vm, -ENODEV, "PCI device %s: there is no interrupt pin %u", d->name, d->gsi);
    log_info("%s: PCI device %s interrupts by pin %u, active %s, %s, by %s", vm->name, d->name, d->gsi,
             flags & IRQ_LOW ? "low" : "high", flags & IRQ_LEVEL ? "level" : "edge", source);
    d->irq = PCI_INTX;
    set_masked(d, false);
    return 0;
}

/* One more entry, masked unless it is the first, which a driver that knows of one interrupt uses. */
static int add_vector(struct vm *vm, struct pci_device *d) {
    struct pci_vector *e = &d->entry[d->nr_vectors];
    int port = evtchn_make(&vm->events);

    if (port < 0) return port;
    *e = (struct pci_vector){ .device = d, .port = (u32)port, .masked = e != d->entry };
    e->vector = irq_alloc(d->irq == PCI_INTX ? on_line : on_message, e);
    if (e->vector < 0) {
        evtchn_unmake(&vm->events, e->port);
        return e->vector;
    }
    d->nr_vectors++;
    return d->irq == PCI_INTX || !direct(e, cpu_for(e)) ? 0 : direct(e, WORK_CPU);
}

int interrupt_connect(struct vm *vm, struct pci_device *d) {
    u64 rate = vm->config.irq_rate ? vm->config.irq_rate : d->pf ? RATE_VF : RATE;
    u32 own = (u32)CONFIG_VF_RATE(d->asked);
    u32 most = d->msix_table ? d->msix_size : 1;
    int err = 0;

    timer_init(&d->unmask, on_unmask);
    timer_init(&d->move, on_move);
    d->window = d->in_window = 0;
    d->interrupts = d->refused = 0;
    d->burst = (u32)MAX(MIN(own ? own : rate, (u64)UINT32_MAX) / 1000, 1ull);
    d->irq = d->msix_table ? PCI_MSIX : d->msi ? PCI_MSI : PCI_INTX;
    if (d->irq == PCI_MSIX) set_bits(d, d->msix + 2u, PCI_MSIX_ENABLE | PCI_MSIX_MASK, true);
    while (!err && d->nr_vectors < most) err = add_vector(vm, d);
    if (err)
        return give_refuse(vm, err,
                           err == -ENOSPC
                               ? "PCI device %s: it needs %u interrupt%s, and there are too few left"
                               : "PCI device %s: it needs %u interrupt%s, which cannot be set up",
                           d->name, most, plural(most));
    if (d->irq == PCI_INTX) return connect_line(vm, d);
    set_masked(d, false);
    log_info("%s: PCI device %s interrupts by %s", vm->name, d->name, d->irq == PCI_MSIX ? "MSI-X" : "MSI");
    return 0;
}

void interrupt_again(struct pci_device *d) {
    if (d->owner->state > VM_RUNNING) return;
    spin_lock(&d->lock);
    if (d->irq == PCI_MSIX) set_bits(d, d->msix + 2u, PCI_MSIX_ENABLE | PCI_MSIX_MASK, true);
    for (u32 i = 0; i < d->nr_vectors && d->irq > PCI_INTX; i++) direct(&d->entry[i], d->entry[i].cpu);
    set_masked(d, false);
    d->held = d->off = false;
    pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d) | PCI_COMMAND_MASTER);
    spin_unlock(&d->lock);
}

void interrupt_quiet(struct pci_device *d) {
    if (!d->nr_vectors) return;
    timer_cancel(&d->unmask);
    timer_cancel(&d->move);
}

void interrupt_disconnect(struct pci_device *d) {
    u32 nr = d->nr_vectors;

    if (d->irq == PCI_INTX && nr) irq_pin_mask(d->gsi, true);
    for (u32 i = 0; i < nr; i++) {
        iommu_irq_free((u32)d->entry[i].vector);
        irq_free(d->entry[i].vector);
    }
    if (nr) {
        timer_cancel_wait(&d->unmask);
        timer_cancel_wait(&d->move);
    }
    spin_lock(&d->lock);
    d->irq = PCI_NO_IRQ;
    d->nr_vectors = 0;
    d->masked = false;
    spin_unlock(&d->lock);
    for (u32 i = 0; i < nr; i++) evtchn_unmake(&d->owner->events, d->entry[i].port);
}

void interrupt_init(const struct acpi_info *a) {
    acpi = a;
    mp_parse(&mp, a);
    if (mp.bad) log_warn("the MP table is malformed; what does not hold of it was left out");
}
