/* Interrupts of devices that VMs have. The hypervisor takes each interrupt itself and raises an
 * event of the VM for it, so a VM can neither choose a vector nor keep a pCPU busy. A device
 * interrupts by its pin, a wire that is shared and has to be masked until the VM has served the
 * device, or by a message (MSI, or MSI-X with a table of messages). A device that interrupts too
 * often is masked for the rest of the millisecond; a->burst is how many interrupts it may raise in
 * one. */
#include "passthrough/interrupt.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "passthrough/vtd.h"
#include "trace/trace.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(device_interrupts);
DEFINE_COUNTER(device_interrupts_held);
DEFINE_COUNTER(device_interrupts_moved);

/* how many interrupts a second a device, and a virtual function, may raise if the VM file gives no
 * number */
#define RATE    20000u
#define RATE_VF 8000u
/* If so many interrupts come in a millisecond after a device was masked, it does not obey: no
 * device has so many on their way. */
#define STORM 64u

/* Offsets in the MSI capability: PCI 3.0, 6.8.1. In a wide capability, whose address has 64 bits,
 * data and mask come later. */
#define MSI_ADDRESS       4u
#define MSI_ADDRESS_UPPER 8u
#define MSI_DATA          8u
#define MSI_MASK          12u
#define MSI_WIDER         4u    /* how many bytes later data and mask come in a wide capability */
#define MSI_MULTIPLE      0x70u /* field of the control word: how many messages are on; 0: one */

/* Offsets in the MSI-X capability, and in an entry of its table: PCI 3.0, 6.8.2. */
#define MSIX_TABLE        4u /* lowest three bits: which BAR it is in */
#define MSIX_BAR          7u
#define MSIX_ENTRY_SIZE   16u
#define MSIX_ADDRESS      0u
#define MSIX_UPPER        4u
#define MSIX_DATA         8u
#define MSIX_CONTROL      12u
#define MSIX_ENTRY_MASKED 1u

/* MPS INTI flags: ACPI 6.5, table 5.24. */
#define INTI_POLARITY(flags) ((flags)&3u)
#define INTI_TRIGGER(flags)  ((flags) >> 2 & 3u)
#define INTI_ACTIVE_HIGH     1u
#define INTI_EDGE            1u

static const struct acpi_info *acpi;
static struct mp_info mp;

/* ---- pins ---- */

/* Returns the MP table's entry for an interrupt pin of a PCI device; NULL if there is none. */
static const struct mp_route *mp_route(u32 bus, u32 device, u32 pin) {
    for (const struct mp_route *r = mp.route; r < mp.route + mp.nr; r++)
        if (r->bus == bus && r->device == device && r->pin == pin) return r;
    return NULL;
}

/* Turns MPS INTI flags into IRQ_* bits. If the flags leave polarity or trigger mode to the bus,
 * they are those of PCI: active low and level triggered. */
static u32 line_flags(u16 flags) {
    u32 irq = 0;

    if (INTI_POLARITY(flags) != INTI_ACTIVE_HIGH) irq |= IRQ_LOW;
    if (INTI_TRIGGER(flags) != INTI_EDGE) irq |= IRQ_LEVEL;
    return irq;
}

/* Finds out to which IOAPIC pin (*gsi) the device's interrupt pin leads, and how it signals
 * (*flags). Returns which source says so, or NULL if none does. The MP table is asked first, since
 * it says how pins are wired. The device's own line register is what the firmware has noted there
 * for old systems; the exceptions in ACPI's MADT apply to it. */
const char *interrupt_line(const struct pci_device *d, u32 *gsi, u32 *flags) {
    u32 bus = d->bdf >> 8, device = d->bdf >> 3 & 31, pin = d->pin - 1u;

    if (!d->pin) return NULL;
    /* Firmware may name the pins of the first bus only. A bridge connects pin n of device k behind
     * it to its own pin (n + k) % 4: PCI-PCI Bridge 1.2, 9.1. */
    for (u32 up = 0; up < 8; up++) {
        const struct mp_route *r = mp_route(bus, device, pin);
        const struct pci_device *bridge;

        if (r) {
            *gsi = r->gsi;
            *flags = line_flags(r->flags);
            return "the MP table";
        }
        if (!bus) break; /* nothing is above the first bus */
        bridge = pci_bridge_of(bus);
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

/* ---- masking, and what the VM is told ---- */

/* Tells the VM that this interrupt came: by the message that it has asked for if it is a PC, or
 * else by an event. */
static void tell_vm(struct vm *vm, const struct pci_vector *e, u64 now) {
    if (vm_is_pc(vm))
        vm_message(vm, e->address, e->data);
    else
        evtchn_raise(&vm->events, e->port, now);
}

/* Sets or clears bits of a register of 16 bits in configuration space. */
static void change_bits(const struct pci_device *d, u32 offset, u32 bits, bool on) {
    u32 v = pci_read(d->bdf, offset, 2);

    if (on)
        v |= bits;
    else
        v &= ~bits;
    pci_write(d->bdf, offset, 2, v);
}

/* Masks or unmasks all interrupts of the device. For messages the caller holds the device's
 * lock. */
static void set_masked(struct assignment *a, bool masked) {
    const struct pci_device *d = a->pci;
    bool broken = masked && d->mute;

    /* For a line a->masked tells interrupt_done() whether there is something to unmask. It is set
     * after masking and cleared before unmasking. Otherwise an EOI in between would be lost, and
     * the pin would stay masked for ever. */
    if (!masked) __atomic_store_n(&a->masked, false, __ATOMIC_SEQ_CST);
    if (a->irq == PCI_INTX) irq_pin_mask(a->gsi, masked);
    if (a->irq == PCI_MSI && !broken)
        change_bits(d, d->msi + PCI_MSI_CONTROL, PCI_MSI_ENABLE, !masked);
    if (a->irq == PCI_MSIX && !broken)
        change_bits(d, d->msix + PCI_MSI_CONTROL, PCI_MSIX_MASK, masked);
    if (masked) __atomic_store_n(&a->masked, true, __ATOMIC_SEQ_CST);
}

/* Arms the timer that unmasks a masked device when its millisecond is over. */
static void wait_for_window(struct assignment *a) {
    counter_inc(&device_interrupts_held, this_cpu()->id);
    timer_set(WORK_CPU, &a->unmask, a->window + NS_PER_MS);
}

/* The function of the timer of a masked device: unmasks it, as its millisecond is over. */
static void on_unmask(struct timer *t, u64 now) {
    struct assignment *a = container_of(t, struct assignment, unmask);

    spin_lock(&a->lock);
    set_masked(a, false);
    spin_unlock(&a->lock);
    /* A device without pending bits for MSI may have lost a message while it was masked. So raise
     * the event in any case, and the VM looks at the device. */
    if (a->irq == PCI_MSI) tell_vm(a->owner, &a->entry[0], now);
}

/* ---- where messages go ---- */

/* Returns the pCPU of the vCPU to which the event or the message of this entry goes. */
static u32 cpu_for(const struct pci_vector *e) {
    const struct vm *vm = e->assignment->owner;

    if (vm_is_pc(vm)) return vm->vcpu[vm_message_vcpu(vm, e->address)]->sched.cpu;
    return vm->vcpu[evtchn_vcpu(&vm->events, e->port)]->sched.cpu;
}

/* Writes the device's one message to its MSI capability (PCI 3.0, 6.8.1): the address and the
 * number by which a write to memory becomes an interrupt. */
static void write_msi(const struct pci_device *d, struct irq_message m) {
    u32 control = pci_read(d->bdf, d->msi + PCI_MSI_CONTROL, 2) & ~MSI_MULTIPLE;
    u32 wider = 0;

    if (control & PCI_MSI_WIDE) wider = MSI_WIDER;
    pci_write(d->bdf, d->msi + MSI_ADDRESS, 4, (u32)m.addr);
    if (wider) pci_write(d->bdf, d->msi + MSI_ADDRESS_UPPER, 4, (u32)(m.addr >> 32));
    pci_write(d->bdf, d->msi + MSI_DATA + wider, 2, m.data);
    pci_write(d->bdf, d->msi + PCI_MSI_CONTROL, 2, control);
    /* only message 0 is unmasked */
    if (control & PCI_MSI_MASKS) pci_write(d->bdf, d->msi + MSI_MASK + wider, 4, ~1u);
}

/* Returns the control word of an entry of an MSI-X table as it has to be in the device. */
static u32 msix_control(const struct pci_vector *e) {
    if (e->masked || e->assignment->shut) return MSIX_ENTRY_MASKED;
    return 0;
}

/* Writes the control word of an entry to the device's MSI-X table. */
static void msix_control_write(const struct pci_vector *e) {
    u64 at = MSIX_ENTRY_SIZE * (u64)(e - e->assignment->entry) + MSIX_CONTROL;

    mmio_write32(e->assignment->pci->msix_table + at, msix_control(e));
}

/* Writes an entry of the MSI-X table. The entry must be masked while it changes: PCI 3.0, 6.8.2. */
static void write_msix(const struct pci_vector *e, struct irq_message m) {
    const struct assignment *a = e->assignment;
    volatile u8 *at = a->pci->msix_table + MSIX_ENTRY_SIZE * (e - a->entry);

    mmio_write32(at + MSIX_CONTROL, MSIX_ENTRY_MASKED);
    mmio_write32(at + MSIX_ADDRESS, (u32)m.addr);
    mmio_write32(at + MSIX_UPPER, (u32)(m.addr >> 32));
    mmio_write32(at + MSIX_DATA, m.data);
    msix_control_write(e);
}

/* Sends the messages of this entry to `cpu`. Returns 0, or an error of iommu_irq(); then they still
 * go where they went before. */
static int msix_direct(struct pci_vector *e, u32 cpu) {
    struct assignment *a = e->assignment;
    struct irq_message m;
    int err = iommu_irq(a, (u32)e->vector, cpu, &m);

    if (err) return err;
    e->cpu = cpu;
    if (a->irq == PCI_MSIX)
        write_msix(e, m);
    else
        write_msi(a->pci, m);
    return 0;
}

/* The function of the timer that on_message() sets when a vCPU has moved: sends the messages of the
 * device to the pCPUs on which the vCPUs are now. */
static void on_move(struct timer *t, u64 now) {
    struct assignment *a = container_of(t, struct assignment, move);

    spin_lock(&a->lock);
    for (struct pci_vector *e = a->entry; e < a->entry + a->nr_vectors; e++)
        if (!a->off && e->cpu != cpu_for(e) && !msix_direct(e, cpu_for(e)))
            counter_inc(&device_interrupts_moved, this_cpu()->id);
    spin_unlock(&a->lock);
}

/* ---- interrupts ---- */

/* Judges a device that has interrupted `more` times since it was masked. A few messages may have
 * been on their way. A device that goes on is stopped, and its VM ended: either the device does not
 * obey, or the VM makes it write messages as ordinary data. */
static void judge_storm(struct assignment *a, u32 more) {
    const struct pci_device *d = a->pci;

    if (more != STORM) return;
    pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d));
    vm_crash(a->owner, "PCI device %s goes on interrupting though it is masked", d->name);
}

/* Counts an interrupt of the device. Returns whether it is the first one of a new millisecond. */
static bool count_interrupt(struct assignment *a, u64 now) {
    bool first = (i64)(now - a->window) >= (i64)NS_PER_MS;

    a->interrupts++;
    a->in_window++;
    if (first) {
        a->window = now;
        a->in_window = 1;
    }
    return first;
}

/* Handles an interrupt that came by a line. The line is level triggered, and would interrupt again
 * at once, so it is masked until the VM calls interrupt_done(). */
static void on_line(void *arg) {
    struct pci_vector *e = arg;
    u64 now = now_ns();

    counter_inc(&device_interrupts, this_cpu()->id);
    count_interrupt(e->assignment, now);
    set_masked(e->assignment, true);
    evtchn_raise(&e->assignment->owner->events, e->port, now);
}

/* Handles an interrupt that came as a message. If the device has used up its burst, it is masked
 * until the next millisecond. Otherwise it could keep a pCPU busy with nothing but interrupts. A
 * device that goes on although it is masked is stopped. If the vCPU has moved to another pCPU, a
 * timer sends the device's messages there from now on. */
static void on_message(void *arg) {
    struct pci_vector *e = arg;
    struct assignment *a = e->assignment;
    u64 now = now_ns();
    bool first;
    u32 n;

    counter_inc(&device_interrupts, this_cpu()->id);
    spin_lock(&a->lock);
    first = count_interrupt(a, now);
    n = a->in_window;
    if (n == a->burst) {
        set_masked(a, true);
        wait_for_window(a);
    }
    if (first && cpu_for(e) != e->cpu) timer_set(WORK_CPU, &a->move, now);
    spin_unlock(&a->lock);
    tell_vm(a->owner, e, now);
    if (n > a->burst) judge_storm(a, n - a->burst);
}

/* Unmasks the device's interrupt line, now that the VM has served it. a->masked is false if the
 * line was unmasked already, as when a VM calls twice. */
void interrupt_done(struct assignment *a) {
    if (a->irq != PCI_INTX || !__atomic_load_n(&a->masked, __ATOMIC_SEQ_CST)) return;
    if (a->in_window >= a->burst && now_ns() - a->window < NS_PER_MS)
        wait_for_window(a);
    else
        set_masked(a, false);
}

/* ---- MSI-X tables ---- */

/* Returns whether BAR i holds the MSI-X table of `d`; if so, [*from, *to) becomes the pages that
 * hold it. Those pages must not be mapped for the VM: it could send messages with any vector to any
 * pCPU. */
bool msix_pages(const struct pci_device *d, u32 i, u64 *from, u64 *to) {
    const struct pci_bar *b = &d->bar[i];
    u32 where, entries;
    u64 table;

    if (!d->msix) return false;
    where = pci_read(d->bdf, d->msix + MSIX_TABLE, 4);
    entries = (pci_read(d->bdf, d->msix + PCI_MSI_CONTROL, 2) & PCI_MSIX_SIZE) + 1;
    table = b->addr + (where & ~MSIX_BAR);
    *from = ALIGN_DOWN(table, PAGE_SIZE);
    *to = ALIGN_UP(table + MSIX_ENTRY_SIZE * entries, PAGE_SIZE);
    return (where & MSIX_BAR) == i;
}

/* Keeps all messages of the device back, or lets them through again, as its VM has switched
 * them. */
void interrupt_shut(struct assignment *a, bool shut) {
    spin_lock(&a->lock);
    a->shut = shut;
    for (u32 i = 0; i < a->nr_vectors && a->irq == PCI_MSIX; i++) msix_control_write(&a->entry[i]);
    spin_unlock(&a->lock);
}

/* Returns what the VM reads in the word at `offset` of an entry of the MSI-X table. A PC reads what
 * it has written there. Another VM needs only the port by which the interrupt comes, which stands
 * in the place of the data. */
static u64 msix_shown(const struct pci_vector *e, u64 offset) {
    bool pc = vm_is_pc(e->assignment->owner);

    if (offset == MSIX_CONTROL && e->masked) return MSIX_ENTRY_MASKED;
    if (offset == MSIX_CONTROL) return 0;
    if (!pc && offset == MSIX_DATA) return e->port;
    if (!pc) return 0;
    switch (offset) {
    case MSIX_ADDRESS: return (u32)e->address;
    case MSIX_UPPER: return e->address >> 32;
    default: return e->data;
    }
}

/* Carries out a VM's write to a word of an entry of its MSI-X table. Only a PC may say what message
 * it wants. */
static void msix_write(struct pci_vector *e, u64 offset, u32 value) {
    if (offset == MSIX_CONTROL) {
        e->masked = value & MSIX_ENTRY_MASKED;
        msix_control_write(e);
    }
    if (!vm_is_pc(e->assignment->owner)) return;
    if (offset == MSIX_ADDRESS) e->address = (e->address & ~0xffffffffull) | value;
    if (offset == MSIX_UPPER) e->address = (u32)e->address | (u64)value << 32;
    if (offset == MSIX_DATA) e->data = value;
}

/* Carries out a VM's access to the MSI-X table of its device, as the VM sees the table. Any access
 * that is not of 4 bytes, or beyond the entries that are in use, does nothing. */
void msix_access(void *dev, const struct bus_access *access, u64 *value) {
    struct assignment *a = dev;
    u64 at = access->addr - a->msix_gpa, offset = at % MSIX_ENTRY_SIZE, n = at / MSIX_ENTRY_SIZE;
    struct pci_vector *e = &a->entry[n % PCI_MAX_VECTORS];

    spin_lock(&a->lock);
    if (access->size == 4 && n < a->nr_vectors && a->irq == PCI_MSIX) {
        if (access->write)
            msix_write(e, offset, (u32)*value);
        else
            *value = msix_shown(e, offset);
    }
    spin_unlock(&a->lock);
}

/* ---- connecting ---- */

/* Tells which pin the device uses and where we know that from, since firmware is often wrong
 * there. */
static void log_pin(const struct vm *vm, const struct assignment *a, u32 flags,
                    const char *source) {
    const char *level = "high", *trigger = "edge";

    if (flags & IRQ_LOW) level = "low";
    if (flags & IRQ_LEVEL) trigger = "level";
    log_info("%s: PCI device %s interrupts by pin %u, active %s, %s, by %s", vm->name, a->pci->name,
             a->gsi, level, trigger, source);
}

/* Connects the device's interrupt line. A device without a line that the firmware describes works
 * without interrupts. Returns 0, or an error with the sentence in vm->why. */
static int connect_line(struct vm *vm, struct assignment *a) {
    const struct pci_device *d = a->pci;
    u32 flags = 0;
    const char *source = interrupt_line(d, &a->gsi, &flags);

    a->irq = PCI_NO_IRQ;
    if (!source) {
        log_warn("%s: PCI device %s works without interrupts: firmware does not tell where they go",
                 vm->name, d->name);
        return 0;
    }
    FOR_ASSIGNMENTS(other) {
        if (other != a && other->irq == PCI_INTX && other->gsi == a->gsi)
            return assign_refuse(vm, -EBUSY, "PCI device %s shares its interrupt line with %s",
                                 d->name, other->pci->name);
    }
    if (irq_pin_connect(a->gsi, a->entry[0].vector, flags))
        return assign_refuse(vm, -ENODEV, "PCI device %s: there is no interrupt pin %u", d->name,
                             a->gsi);
    log_pin(vm, a, flags, source);
    a->irq = PCI_INTX;
    set_masked(a, false);
    return 0;
}

/* Adds one more interrupt of the device, with a vector and a port. The first entry begins unmasked
 * and all others masked, because a driver that uses only one interrupt unmasks none. On a PC all
 * begin masked, as PCI says (PCI 3.0, 6.8.2.9). Returns 0, or an error. */
static int add_vector(struct vm *vm, struct assignment *a) {
    struct pci_vector *e = &a->entry[a->nr_vectors];
    void (*handler)(void *) = on_message;
    int port = evtchn_make(&vm->events);

    if (port < 0) return port;
    if (a->irq == PCI_INTX) handler = on_line;
    *e = (struct pci_vector){ .assignment = a,
                              .port = (u32)port,
                              .masked = vm_is_pc(vm) || e != a->entry };
    e->vector = irq_alloc(handler, e);
    if (e->vector < 0) {
        evtchn_unmake(&vm->events, e->port);
        return e->vector;
    }
    a->nr_vectors++;
    if (a->irq == PCI_INTX || !msix_direct(e, cpu_for(e))) return 0;
    return msix_direct(e, WORK_CPU); /* messages may not reach the pCPU of the vCPU */
}

/* Returns how many interrupts a second the device may raise. The VM file can give a number for this
 * one device, or for all devices of the VM; otherwise Takt's own limit counts. */
static u64 rate_of(const struct vm *vm, const struct assignment *a) {
    u64 own = CONFIG_VF_RATE(a->asked);

    if (own) return own;
    if (vm->config.irq_rate) return vm->config.irq_rate;
    if (a->pci->pf) return RATE_VF;
    return RATE;
}

/* Returns the best way that the device has: MSI-X has a message for each queue, MSI has one
 * message, and a pin is shared and slow. */
static enum pci_irq best_irq(const struct pci_device *d) {
    if (d->msix_table) return PCI_MSIX;
    if (d->msi) return PCI_MSI;
    return PCI_INTX;
}

static const char *const irq_names[] = {
    [PCI_NO_IRQ] = "nothing", [PCI_INTX] = "a pin", [PCI_MSI] = "MSI", [PCI_MSIX] = "MSI-X"
};

/* Makes the device's interrupts raise events of its VM, by the best way that the device has.
 * Returns 0, or an error with the sentence in vm->why. What was made before an error is taken away
 * by interrupt_disconnect(). MSI-X is enabled but masked at first, because its table can be written
 * only then. Also sets up how often the device may interrupt: `burst` times in each millisecond
 * (see the head of this file). On a PC all interrupts are `shut` until the guest enables them. */
int interrupt_connect(struct vm *vm, struct assignment *a) {
    const struct pci_device *d = a->pci;
    u32 most = 1; /* vectors */
    int err = 0;

    if (d->msix_table) most = d->msix_size;
    timer_init(&a->unmask, on_unmask);
    timer_init(&a->move, on_move);
    a->window = a->in_window = 0;
    a->interrupts = a->refused = 0;
    a->burst = (u32)MAX(MIN(rate_of(vm, a), (u64)UINT32_MAX) / 1000, 1ull);
    a->irq = best_irq(d);
    a->shut = vm_is_pc(vm);
    if (a->irq == PCI_MSIX)
        change_bits(d, d->msix + PCI_MSI_CONTROL, PCI_MSIX_ENABLE | PCI_MSIX_MASK, true);
    while (!err && a->nr_vectors < most) err = add_vector(vm, a);
    if (err == -ENOSPC)
        return assign_refuse(vm, err,
                             "PCI device %s: it needs %u interrupt%s, and there are too few left",
                             d->name, most, plural(most));
    if (err)
        return assign_refuse(vm, err,
                             "PCI device %s: it needs %u interrupt%s, which cannot be set up",
                             d->name, most, plural(most));
    if (a->irq == PCI_INTX) return connect_line(vm, a);
    set_masked(a, false);
    log_info("%s: PCI device %s interrupts by %s", vm->name, d->name, irq_names[a->irq]);
    return 0;
}

/* Lets a virtual function that was held interrupt again, and makes it master of the bus again,
 * unless its VM has ended. A virtual function is "held" while the card that it is a part of is
 * reset. The reset has cleared the function's own registers, too, so its messages are written
 * again. */
void interrupt_again(struct assignment *a) {
    const struct pci_device *d = a->pci;

    if (a->owner->state > VM_RUNNING) return;
    spin_lock(&a->lock);
    if (a->irq == PCI_MSIX)
        change_bits(d, d->msix + PCI_MSI_CONTROL, PCI_MSIX_ENABLE | PCI_MSIX_MASK, true);
    for (u32 i = 0; i < a->nr_vectors && a->irq > PCI_INTX; i++)
        msix_direct(&a->entry[i], a->entry[i].cpu);
    set_masked(a, false);
    a->held = a->off = false;
    pci_write(d->bdf, PCI_COMMAND, 2, pci_idle_command(d) | PCI_COMMAND_MASTER);
    spin_unlock(&a->lock);
}

/* Cancels the timers of the device's interrupts, so that none of them touches the device while it
 * is reset. */
void interrupt_quiet(struct assignment *a) {
    if (!a->nr_vectors) return; /* then the timers are not initialised */
    timer_cancel(&a->unmask);
    timer_cancel(&a->move);
}

/* Takes away all that interrupt_connect() has made. First nothing can interrupt any more, then the
 * handlers are gone, then the timers, and the events come last: each of them may use what comes
 * after it. */
void interrupt_disconnect(struct assignment *a) {
    u32 nr = a->nr_vectors;

    if (a->irq == PCI_INTX && nr) irq_pin_mask(a->gsi, true);
    for (u32 i = 0; i < nr; i++) {
        iommu_irq_free((u32)a->entry[i].vector);
        irq_free(a->entry[i].vector);
    }
    if (nr) {
        timer_cancel_wait(&a->unmask);
        timer_cancel_wait(&a->move);
    }
    spin_lock(&a->lock);
    a->irq = PCI_NO_IRQ;
    a->nr_vectors = 0;
    a->masked = false;
    spin_unlock(&a->lock);
    for (u32 i = 0; i < nr; i++) evtchn_unmake(&a->owner->events, a->entry[i].port);
}

/* Reads the firmware's MP table, which says how interrupt pins are wired. Once at boot. */
void interrupt_init(const struct acpi_info *a) {
    acpi = a;
    mp_parse(&mp, a);
    if (mp.bad) log_warn("the MP table is malformed: its wrong entries were left out");
}
