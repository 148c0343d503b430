/* Gives VMs the devices that their VM files ask for with `pci =`, and takes them back
 * (passthrough). A device belongs to the VM from before the VM gets memory until after that memory
 * was freed, so that no other VM can get the device while it may still reach this VM's memory. To
 * "claim" a device is to become its owner; to "attach" it is to map its registers (BARs) for the VM
 * and to let it access the VM's memory (DMA), which an IOMMU confines. All of that is done in short
 * steps.
 *
 * Claim, release, attach and detach are parts of making and destroying a VM. They run on the
 * housekeeping pCPU, and so do the handlers of devices' interrupts, so they cannot run at the same
 * time and need no lock among each other. */
#include "passthrough/give.h"

#include <takt/device.h>
#include <takt/errno.h>
#include <takt/io.h>
#include "devices/devices.h"
#include "lib/printf.h"
#include "common/string.h"
#include "nodes/nodes.h"
#include "passthrough/interrupt.h"
#include "passthrough/mediate.h"
#include "passthrough/reset.h"
#include "passthrough/vtd.h"
#include "pci/sriov.h"
#include "platform/console.h"
#include "trace/trace.h"
#include "vcpu/hypercall.h"
#include "x86/tsc.h"

#define LET_GO_NS   (2 * NS_PER_S)   /* the time that a VM has to stop its driver */
#define LET_GO_LOOK (10 * NS_PER_MS) /* how often we look whether it has */

/* From this address to 4 GiB each VM has its own IOAPIC and APICs, as the machine has. Below this
 * I/O port there are the fixed devices of a PC. So no BAR may lie there. */
#define FIXED_PLACES TAKT_IOAPIC_GPA
#define FIXED_PORTS  0x400u
#define LAST_PORT    0xffffu

#define BAR_MAX      BIT(30) /* the largest BAR: one step unmaps it, and must stay short */
/* The guest-physical space that each device of a VM has for BARs that the VM cannot see at their
 * real address. */
#define BAR_SPACE (8 * BAR_MAX)
#define MAP_LARGE (64ull << 20)  /* the most that one step maps, in 2 MiB pages */
#define MAP_SMALL (256ull << 10) /* likewise in 4 KiB pages */

static const struct memmap *ram; /* of the machine */
static hpa_t low_end;            /* where RAM below 4 GiB ends */

/* Makes a sentence about the device the reason for which the VM's job fails. Returns `error`. */
static int refuse_device(struct vm *vm, int error, const struct pci_device *d, const char *why) {
    return assign_refuse(vm, error, "PCI device %s: %s", d->name, why);
}

/* ---- who has a device ---- */

/* Can a memory BAR be at [first, last]? If the firmware has forgotten to place a BAR, it may hold
 * any address, such as one of RAM. */
static bool bar_can_be(hpa_t first, hpa_t last) {
    if (last < first || memmap_overlaps(ram, first, last + 1)) return false;
    if (first >= BIT(32)) return !(last >> cpuid_physical_bits());
    return first >= low_end && last < FIXED_PLACES;
}

/* Can a BAR of ports be at [first, last]? */
static bool ports_can_be(u64 first, u64 last) { return first >= FIXED_PORTS && last <= LAST_PORT; }

/* Can this BAR, which has a size, be where its register says? */
static bool place_can_be(const struct pci_bar *b) {
    u64 last = b->addr + b->size - 1;

    if (b->io) return ports_can_be(b->addr, last);
    return bar_can_be(b->addr, last);
}

/* Returns the sentence that says why no VM can have this device, or NULL if one can. Besides
 * devices that Takt needs itself, those are refused whose BARs are missing or make no sense: a VM
 * would reach something else by them. */
const char *give_refused(const struct pci_device *d) {
    if (!d->assignment) return "there was no memory to keep account of it";
    if (d->lost) return "it did not come back from its reset";
    if (d->header == 1 || d->header == 2) return "it is a bridge";
    if (d->header) return "its configuration space is not understood";
    if (pci_part_of_machine(d)) return "it is a part of the machine itself";
    if (d->class_rev >> 24 == PCI_CLASS_DISPLAY) return "the screen shows the log";
    if (console_is_pci(d->bdf)) return "it is the console";
    for (u32 i = 0; i < ARRAY_SIZE(d->bar); i++) {
        const struct pci_bar *b = &d->bar[i];

        if (!b->size) continue;
        if (!b->addr) return "firmware gave a BAR of it no address";
        if (b->size > BAR_MAX) return "a BAR of it is larger than 1 GiB";
        if (!place_can_be(b)) return "a BAR of it lies where none can be";
    }
    return NULL;
}

/* Is [first, last) free in the VM's guest-physical address space, so that a BAR can be mapped
 * there? */
static bool gpa_is_free(const struct vm *vm, gpa_t first, gpa_t last) {
    u64 high = vm->mem.size - vm->mem.low_size;

    if (last > TAKT_BAR_GPA || first < vm->mem.low_size) return false;
    if (first < TAKT_HIGH_RAM) return last <= FIXED_PLACES;
    return first >= TAKT_HIGH_RAM + high;
}

/* Decides where the VM sees BAR i, and sets a->gpa[i]. If possible, this is the BAR's real address.
 * If the VM has something of its own there and the BAR has 64 bits, it is a place in a GiB that is
 * kept for this BAR of this device. On a PC a BAR above 4 GiB is always there, as the ACPI tables
 * name only that place (hv/image/dsdt.asl). The offset within that GiB is the same as in the real
 * address, so that large pages can still be used. Returns 0, or
 *   -EINVAL  the BAR can be at neither place */
static int place_bar(const struct vm *vm, struct assignment *a, u32 i) {
    const struct pci_bar *b = &a->pci->bar[i];
    gpa_t first = ALIGN_DOWN(b->addr, PAGE_SIZE), last = ALIGN_UP(b->addr + b->size, PAGE_SIZE);
    u64 high = vm->mem.size - vm->mem.low_size;
    u32 index = 0;

    if (gpa_is_free(vm, first, last) && !(vm_is_pc(vm) && first >= TAKT_HIGH_RAM)) {
        a->gpa[i] = b->addr;
        return 0;
    }
    if (!b->wide || TAKT_HIGH_RAM + high > TAKT_BAR_GPA) return -EINVAL;
    while (vm->pci[index] != a) index++;
    a->gpa[i] = TAKT_BAR_GPA + index * BAR_SPACE + i * BAR_MAX + b->addr % BAR_MAX;
    return 0;
}
_Static_assert(TAKT_BAR_GPA + CONFIG_MAX_PCI * BAR_SPACE <= TAKT_FOREIGN_GPA,
               "they end before windows");

/* Returns another device with registers in a page of memory BAR `bar` of d, or NULL if there is
 * none. A VM that has d would reach these registers too. We take a BAR that was not sized to be one
 * byte long: if it ends within its first page, only that page matters; if it is longer, it is also
 * aligned to more than a page, so that it begins with a page of its own. */
static const struct pci_device *page_shared(const struct pci_device *d, const struct pci_bar *bar) {
    hpa_t from = ALIGN_DOWN(bar->addr, PAGE_SIZE), to = ALIGN_UP(bar->addr + bar->size, PAGE_SIZE);

    for (u32 i = 0; i < pci_count() && bar->size && !bar->io; i++) {
        const struct pci_device *other = pci_at(i);

        if (other == d) continue;
        for (u32 k = 0; k < ARRAY_SIZE(other->bar); k++) {
            const struct pci_bar *b = &other->bar[k];
            u64 size = b->size;

            if (other->unsized && b->addr) size = 1;
            if (size && !b->io && from < b->addr + size && b->addr < to) return other;
        }
    }
    return NULL;
}

/* Returns an endpoint that d can reach past the IOMMU, and that the VM neither has nor is about to
 * get. Returns NULL if there is none, or if the VM's file allows it. */
static const struct pci_device *group_shared(const struct vm *vm, const struct pci_device *d) {
    if (vm->config.allow_shared_group) return NULL;
    for (u32 i = 0; i < pci_count(); i++) {
        const struct pci_device *other = pci_at(i);
        const struct vm *owner = assignment_of(other)->owner;
        bool its = other == d || owner == vm;

        for (u32 k = 0; k < vm->config.nr_pci; k++) {
            if (vm->config.pci[k] == other->bdf && !owner) its = true;
        }
        if (!its && other->header == 0 && other->group == d->group) return other;
    }
    return NULL;
}

/* Returns 0 if an IOMMU confines the device's DMA, or if the VM file allows DMA that is not
 * confined. Otherwise returns -EPERM, with the sentence in vm->why. */
static int give_check_dma(struct vm *vm, const struct pci_device *d) {
    const char *why = iommu_refused(d);

    if (!why) return 0;
    if (iommu_blocks(d))
        return assign_refuse(vm, -EPERM, "PCI device %s cannot be given to VMs, as %s", d->name,
                             why);
    /* Its operating system would give the device guest-physical addresses. */
    if (vm_is_pc(vm))
        return assign_refuse(vm, -EPERM,
                             "PCI device %s reaches all memory, as %s: no VM with a kernel= can "
                             "have it",
                             d->name, why);
    if (vm->config.unsafe_dma) return 0;
    return assign_refuse(vm, -EPERM,
                         "PCI device %s reaches all memory, as %s: it needs unsafe_dma = yes",
                         d->name, why);
}

/* May the VM have the device that is asked for (config.h)? A device whose registers share a page
 * with another device's, or that could reach another device past the IOMMU, would give the VM more
 * than itself. Each call checks only the registers of BAR number `part`, since to check all of them
 * takes too long for one step. Returns 0, with the device in *found, or an error, with the sentence
 * in vm->why. */
static int may_have(struct vm *vm, u64 asked, u32 part, struct assignment **found) {
    const struct pci_device *d = assign_asked(asked), *other;
    const struct vm *owner = assignment_of(d)->owner;
    char name[PCI_NAME];

    *found = assignment_of(d);
    if (!d && asked & CONFIG_VF)
        return assign_refuse(vm, -ENOENT,
                             "no free virtual function matches the one that is asked for");
    if (!d)
        return assign_refuse(vm, -ENOENT, "there is no PCI device %s", pci_name((u32)asked, name));
    if (give_refused(d)) return refuse_device(vm, -EINVAL, d, give_refused(d));
    if (owner)
        return assign_refuse(vm, -EBUSY, "PCI device %s belongs to %s", d->name, owner->name);
    other = page_shared(d, &d->bar[part]);
    if (other)
        return assign_refuse(vm, -EINVAL, "PCI device %s shares a page of registers with %s",
                             d->name, other->name);
    /* The group of a device does not depend on the BAR, so it is checked only once. */
    other = NULL;
    if (part == 0) other = group_shared(vm, d);
    if (other)
        return assign_refuse(
            vm, -EPERM,
            "PCI device %s could reach %s past the IOMMU: one VM gets both, or it needs"
            " allow_shared_group = yes",
            d->name, other->name);
    if (vm_is_pc(vm) && !d->msix_table)
        return refuse_device(vm, -EINVAL, d,
                             "it has no MSI-X, and so no interrupt for a VM with a kernel=");
    return give_check_dma(vm, d);
}

/* Makes the VM the owner of a device, as its device number `index`. Nothing is mapped yet. */
static void take_device(struct vm *vm, struct assignment *a, u32 index, u64 asked) {
    a->owner = vm;
    a->asked = asked;
    a->part = a->offset = 0;
    for (u32 i = 0; i < ARRAY_SIZE(a->gpa); i++) a->gpa[i] = PCI_NOWHERE;
    a->command = PCI_COMMAND_IO | PCI_COMMAND_MEMORY;
    a->msix_control = a->sizing = a->line = 0;
    a->leaving = a->released = false;
    a->off = true;
    a->confined = !iommu_refused(a->pci);
    if (!a->confined)
        log_warn("%s: unsafe_dma: who controls this VM can read and write all memory of the "
                 "machine, by PCI "
                 "device %s",
                 vm->name, a->pci->name);
    vm->pci[index] = a;
    vm->nr_pci = MAX(vm->nr_pci, index + 1);
}

/* Checks one BAR of the next device that the VM file asks for. When all BARs of a device are
 * checked, the VM owns it. Returns 1 if there is more to do, 0 if the VM owns all devices, or an
 * error. */
static int claim_devices(struct vm *vm) {
    struct assignment *a;
    int err;

    if (!vm->config.nr_pci) return 0;
    err = may_have(vm, vm->config.pci[vm->nr_pci], vm->job.at, &a);
    if (err) return err;
    if (++vm->job.at < ARRAY_SIZE(a->gpa)) return 1;
    vm->job.at = 0;
    take_device(vm, a, vm->nr_pci, vm->config.pci[vm->nr_pci]);
    return vm->nr_pci < vm->config.nr_pci;
}

/* Takes the ownership of all devices from the VM. vm->config then asks for the devices that the VM
 * had at its end, not those that it had at first. So if the VM is made again from vm->config, as
 * after a reset, it gets the same devices. */
static int release_devices(struct vm *vm) {
    if (!vm->nr_pci) return 0;
    vm->config.nr_pci = 0;
    for (u32 i = 0; i < vm->nr_pci; i++) {
        struct assignment *a = vm->pci[i];

        if (a && !a->leaving) vm->config.pci[vm->config.nr_pci++] = a->asked;
        if (a) a->owner = NULL;
    }
    vm->nr_pci = 0;
    return 0;
}

const struct vm_part pci_claim_part = { "claim", claim_devices, release_devices };

/* ---- registers ---- */

/* A bus_fn (vdev/bus.h): carries out a VM's access to a port of its device. */
static void ports_access(void *dev, const struct bus_access *access, u64 *value) {
    u16 port = (u16)access->addr;

    switch (access->size) {
    case 1:
        if (access->write)
            outb(port, (u8)*value);
        else
            *value = inb(port);
        return;
    case 2:
        if (access->write)
            outw(port, (u16)*value);
        else
            *value = inw(port);
        return;
    default:
        if (access->write)
            outl(port, (u32)*value);
        else
            *value = inl(port);
    }
}

/* Returns the end of the part of a BAR that one step maps, which begins at `from`. The part
 * consists of 2 MiB pages if `from` is aligned to one and there is enough left, or else of 4 KiB
 * pages. It does not go beyond `limit`. */
static hpa_t part_end(hpa_t from, hpa_t limit) {
    hpa_t large = MIN(ALIGN_DOWN(limit, SIZE_2M), from + MAP_LARGE);

    if (from % SIZE_2M == 0 && large > from) return large;
    return MIN(limit, ALIGN_DOWN(from, MAP_SMALL) + MAP_SMALL);
}

/* Maps the next part of memory BAR i. Returns 1 if there is more to map, 0 if all is mapped, or an
 * error. The pages of the MSI-X table are not mapped: a VM that could write there could raise any
 * vector on any pCPU. msix_access() serves accesses to them instead. */
static int map_bar(struct vm *vm, struct assignment *a, u32 i) {
    const struct pci_device *d = a->pci;
    const struct pci_bar *b = &d->bar[i];
    hpa_t first = ALIGN_DOWN(b->addr, PAGE_SIZE), last = ALIGN_UP(b->addr + b->size, PAGE_SIZE);
    hpa_t from = first + a->offset, to, limit = last, table, end;
    u64 away; /* how far the VM sees it from where it is */

    if (place_bar(vm, a, i))
        return assign_refuse(vm, -EINVAL, "BAR %u of PCI device %s lies where this VM has RAM", i,
                             d->name);
    away = a->gpa[i] - b->addr;
    if (!msix_pages(d, i, &table, &end)) table = end = last;
    table = MIN(table, last);
    end = MIN(end, last);
    if (from == table && table < end) {
        a->msix_gpa = d->msix_addr + away;
        bus_add(&vm->mmio, table + away, end - table, msix_access, a);
        from = end;
    }
    if (from < table) limit = table;
    to = part_end(from, limit);
    a->offset = to - first;
    if (from < to && npt_map(&vm->virt.npt, from + away, from, to - from, NPT_RW, NPT_UC))
        return -ENOMEM;
    return to < last;
}

/* Does the next step of giving the VM one BAR: maps memory, or lets the VM reach ports. Returns 1
 * if there is more to do, 0, or an error. */
static int attach_bar(struct vm *vm, struct assignment *a, u32 i) {
    const struct pci_bar *b = &a->pci->bar[i];

    if (!b->size) return 0;
    if (!b->io) return map_bar(vm, a, i);
    a->gpa[i] = b->addr;
    if (vm->ports.nr >= BUS_RANGES)
        return refuse_device(vm, -ENOSPC, a->pci, "it has too many ranges of ports");
    bus_add(&vm->ports, b->addr, b->size, ports_access, NULL);
    return 0;
}

/* ---- making and destroying ---- */

/* Returns the time, in ns, of a step that has to come `wait` ns from now; 0, which means soon, if
 * it need not wait. */
static u64 time_after(u64 wait) {
    if (!wait) return 0;
    return now_ns() + wait;
}

/* Does one phase of the reset for all devices of the VM at once. Returns 1 if some device needs
 * another phase. */
static int reset_all(struct vm *vm) {
    u64 wait = 0;

    for (u32 i = 0; i < vm->nr_pci; i++) {
        u64 ns;

        if (!vm->pci[i]) continue;
        ns = assign_reset(vm->pci[i], vm->job.at);
        wait = MAX(wait, ns);
    }
    vm->job.at++;
    vm->job.work.not_before = time_after(wait);
    return wait != 0;
}

/* Returns the bits of COMMAND that the device needs to answer at the addresses in its BARs. */
static u32 decoding(const struct pci_device *d) {
    u32 bits = 0;

    for (u32 i = 0; i < ARRAY_SIZE(d->bar); i++) {
        const struct pci_bar *b = &d->bar[i];

        if (!b->size) continue;
        if (b->io)
            bits |= PCI_COMMAND_IO;
        else
            bits |= PCI_COMMAND_MEMORY;
    }
    return bits;
}

/* The last part of attaching: switches on DMA, interrupts and bus mastering. If the device is a
 * virtual function whose physical function is being reset, returns 1 and sets *at, to be called
 * again then. That cannot go on for ever, since a reset has a limited number of phases. Returns 0
 * when all is done, or an error. */
static int switch_device_on(struct vm *vm, struct assignment *a, u64 *at) {
    struct pci_device *d = a->pci;
    u32 command = decoding(d) | PCI_COMMAND_NO_INTX;
    int err = 0;

    if (d->lost) return refuse_device(vm, -EIO, d, give_refused(d));
    if (d->pf && d->pf->in_reset) {
        *at = now_ns() + SRIOV_SETTLE_NS;
        if (a->offset++ < PCI_RESET_PHASES) return 1;
        return refuse_device(vm, -EAGAIN, d, "its physical function stays in its reset");
    }
    if (!d->was_reset && !d->quiet)
        log_info("%s: PCI device %s cannot be reset: it may go on where it was left", vm->name,
                 d->name);
    pci_write(d->bdf, PCI_COMMAND, 2, command);
    if (a->confined) err = iommu_attach(a, vm);
    if (err) return refuse_device(vm, err, d, "its IOMMU does not take it");
    err = interrupt_connect(vm, a);
    if (err) return err;
    if (a->irq == PCI_INTX) command &= ~(u32)PCI_COMMAND_NO_INTX;
    pci_write(d->bdf, PCI_COMMAND, 2, command | PCI_COMMAND_MASTER);
    a->off = false;
    return 0;
}

/* One step of attaching a device that has been reset. The steps map what its DMA reaches, then each
 * BAR in one or more parts, and then switch the device on. Returns 1 if there is more to do, 0, or
 * an error. */
static int attach_part(struct vm *vm, struct assignment *a, u64 *at) {
    const u32 bars = ARRAY_SIZE(a->gpa);
    int r = 0;

    if (a->confined) r = iommu_prepare(vm, a->pci);
    if (r) return r;
    if (a->part < bars)
        r = attach_bar(vm, a, a->part);
    else
        r = switch_device_on(vm, a, at);
    if (r) return r;
    a->offset = 0;
    return ++a->part <= bars;
}

/* A step of making a VM: resets all its devices together, and then attaches one after the other.
 * vm->job.at counts first the phases of the reset, and then the devices. */
static int attach_devices(struct vm *vm) {
    struct vm_job *j = &vm->job;
    int r = 1;

    if (!vm->nr_pci) return 0;
    if (j->at >= PCI_RESET_PHASES)
        r = attach_part(vm, vm->pci[j->at - PCI_RESET_PHASES], &j->work.not_before);
    else if (!reset_all(vm))
        j->at = PCI_RESET_PHASES;
    if (r) return r;
    j->at++;
    return j->at < PCI_RESET_PHASES + vm->nr_pci;
}

/* A step of destroying a VM: resets its devices, and then takes away their interrupts and what they
 * reach. */
static int detach_devices(struct vm *vm) {
    if (!vm->nr_pci) return 0;
    for (u32 i = 0; i < vm->nr_pci; i++)
        if (vm->pci[i]) interrupt_quiet(vm->pci[i]);
    if (reset_all(vm)) return 1;
    for (u32 i = 0; i < vm->nr_pci; i++) {
        if (!vm->pci[i]) continue;
        interrupt_disconnect(vm->pci[i]);
        iommu_detach(vm->pci[i]);
    }
    iommu_release(vm);
    return 0;
}

const struct vm_part pci_part = { "PCI", attach_devices, detach_devices };

/* ---- giving a device to a VM that runs, and taking one from it. The shell does the steps, and it
 * does one such command at a time ---- */

#define STAYS "it has ports, and comes and goes with its VM alone"

/* The sequence of steps that is under way; `a` is NULL if none is. */
static struct hot {
    struct assignment *a;
    u32 index;  /* in vm->pci */
    u32 step;   /* phase of the reset; PCI_RESET_PHASES: it is over */
    int failed; /* the error for which the device is being taken back */
    u64 end;    /* until when the VM has time to let go of the device, in ns */
    /* The generation of the VM's page tables when the BARs were unmapped. Once all pCPUs have seen
     * it, none of them can use the device's registers any more. */
    u64 generation;
} hot;

/* Is the VM neither being made nor being destroyed? */
static bool vm_is_standing(const struct vm *vm) {
    return vm->state != VM_CREATING && vm->state != VM_DYING;
}

/* Notes that a device comes or goes, and logs it. Returns 1: there is more to do. */
static int hot_start(struct vm *vm, struct assignment *a, u32 index) {
    const char *what = "comes";

    if (a->leaving) what = "is to be taken";
    hot = (struct hot){ .a = a, .index = index, .end = now_ns() + LET_GO_NS };
    log_info("%s: PCI device %s %s", vm->name, a->pci->name, what);
    return 1;
}

/* Does the next phase of the device's reset. *at becomes the time at which to go on. Returns 1. */
static int hot_reset(struct assignment *a, u64 *at) {
    u64 wait = assign_reset(a, hot.step);

    *at = time_after(wait);
    if (wait)
        hot.step++;
    else
        hot.step = PCI_RESET_PHASES;
    return 1;
}

/* Unmaps one BAR. After the last one, takes interrupts and DMA away, too. */
static int hot_unmap(struct vm *vm, struct assignment *a) {
    u32 i = a->part++;
    u64 size = a->pci->bar[i].size;
    gpa_t at = a->gpa[i];
    gpa_t first = ALIGN_DOWN(at, PAGE_SIZE), last = ALIGN_UP(at + size, PAGE_SIZE);
    bool mapped = size && at != PCI_NOWHERE;

    if (mapped && npt_unmap(&vm->virt.npt, first, last - first)) return -ENOMEM;
    if (a->part < ARRAY_SIZE(a->gpa)) return 1;
    hot.generation = vm->virt.npt.tlb.current;
    bus_remove(&vm->mmio, a);
    interrupt_disconnect(a);
    iommu_detach(a);
    return 1;
}

/* A step of taking a device from a VM that goes on running: its interrupts stop, it is reset, and
 * its BARs are unmapped. Returns 1 if there is more to do, or at the end hot.failed. The last step
 * waits until no pCPU has a translation of the device's registers in its TLB any more. Otherwise
 * the VM could still use them after another VM got the device. */
static int take_back(struct vm *vm, struct assignment *a, u64 *at) {
    struct tlbgen *g = &vm->virt.npt.tlb;

    if (hot.step == 0) {
        interrupt_quiet(a);
        a->part = 0;
    }
    if (hot.step < PCI_RESET_PHASES) return hot_reset(a, at);
    if (a->part < ARRAY_SIZE(a->gpa)) return hot_unmap(vm, a);
    if (!tlbgen_passed(g, hot.generation)) {
        kick_users(g);
        *at = now_ns() + NS_PER_MS;
        return 1;
    }
    a->owner = NULL;
    vm->pci[hot.index] = NULL;
    storelink_pci(vm, hot.index);
    hot.a = NULL;
    return hot.failed;
}

/* Begins to give a device to a VM that runs: checks all its BARs, and makes the VM its owner.
 * Returns 1, as there is more to do, or an error. A device with I/O ports is refused, because a VM
 * gets ports only while it is made. */
static int hot_begin(struct vm *vm, u64 asked) {
    struct assignment *a;
    u32 index = 0;
    int err = 0;

    for (u32 i = 0; i < ARRAY_SIZE(a->gpa) && !err; i++) err = may_have(vm, asked, i, &a);
    if (err) return err;
    if (decoding(a->pci) & PCI_COMMAND_IO) return refuse_device(vm, -EINVAL, a->pci, STAYS);
    while (index < CONFIG_MAX_PCI && vm->pci[index]) index++;
    if (index == CONFIG_MAX_PCI)
        return assign_refuse(vm, -ENOSPC, "it has as many devices as a VM can have");
    take_device(vm, a, index, asked);
    assign_refuse(vm, 0, "there is not enough free memory for it"); /* if nothing else is said */
    return hot_start(vm, a, index);
}

/* Does the next step of giving a device to a VM that runs. Returns 1 if there is more to do, 0 at
 * the end, or an error. If a step fails, the device is taken back in further steps, and the error
 * is returned at the end. */
int give_attach(struct vm *vm, u64 asked, u64 *at) {
    struct assignment *a = hot.a;
    int r;

    if (!vm_is_standing(vm) || (a && a->owner != vm))
        return assign_refuse(vm, -EAGAIN, "it is still being made, or is being destroyed");
    if (!a) return hot_begin(vm, asked);
    if (hot.failed) return take_back(vm, a, at);
    if (hot.step < PCI_RESET_PHASES) return hot_reset(a, at);
    r = attach_part(vm, a, at);
    if (r > 0) return r;
    if (r < 0) {
        hot.failed = r;
        hot.step = 0;
        return 1;
    }
    storelink_pci(vm, hot.index);
    hot.a = NULL;
    return 0;
}

/* Does the next step of taking a device from a VM that runs. Returns 1 if there is more to do, 0 at
 * the end, or an error. The first call tells the VM. The next ones wait until its driver has let go
 * or its time is over. Only then is the device taken back, because a driver that loses its device
 * in the middle may crash. */
int give_detach(struct vm *vm, u32 bdf, bool force, u64 *at) {
    struct assignment *a = hot.a;

    if (!vm_is_standing(vm) || (a && a->owner != vm))
        return assign_refuse(vm, -EAGAIN, "it is still being made, or is being destroyed");
    for (u32 i = 0; !a && i < vm->nr_pci; i++) {
        struct assignment *own = vm->pci[i];

        if (!own || own->pci->bdf != bdf) continue;
        if (decoding(own->pci) & PCI_COMMAND_IO) return refuse_device(vm, -EINVAL, own->pci, STAYS);
        own->leaving = true;
        storelink_pci(vm, i);
        return hot_start(vm, own, i);
    }
    if (!a) return assign_refuse(vm, -ENOENT, "it has no such device");
    if (a->released || force || now_ns() >= hot.end) {
        a->released = true;
        return take_back(vm, a, at);
    }
    *at = now_ns() + LET_GO_LOOK;
    return 1;
}

/* Forgets the sequence of steps that is under way, because the shell's command was given up. */
void give_stop(void) { hot.a = NULL; }

/* ---- the VM's nodes in the store: what the node of device `index` says, and what happens when the
 * VM writes there that it has let go of the device ---- */

/* Returns the word for the state of a device in the store. */
static const char *state_name(const struct assignment *a) {
    if (a->leaving) return "leaving";
    if (a->pci->lost) return "lost";
    if (a->held) return "reset";
    return "given";
}

/* Writes to `text` what the store says about device `index` of the VM. */
static void write_node(const struct vm *vm, u32 index, char *text, u32 size) {
    const struct assignment *a = vm->pci[index];

    *text = 0;
    if (a) hv_snprintf(text, size, "%s %s", a->pci->name, state_name(a));
}

/* The VM's driver says that it has let go of the device. Returns -EINVAL if nobody has asked it
 * to. */
static int device_let_go(struct vm *vm, u32 index) {
    struct assignment *a = vm->pci[index];

    if (!a || !a->leaving) return -EINVAL;
    a->released = true;
    return 0;
}

/* ---- hypercalls, from any pCPU ---- */

/* Returns device number `index` of the VM; NULL if it has no such device, or not any more. */
static struct assignment *device_of(const struct vm *vm, u32 index) {
    if (index >= vm->nr_pci) return NULL;
    return __atomic_load_n(&vm->pci[index], __ATOMIC_RELAXED);
}

/* The VM has served the interrupt of its device `index`, so the device may interrupt again. Returns
 * 0, or -ENOENT if it has no such device. */
i64 give_eoi(struct vm *vm, u32 index) {
    struct assignment *a = device_of(vm, index);

    if (!a) return -ENOENT;
    interrupt_done(a);
    return 0;
}

/* Tells the VM about its device `index`: what it is, where its registers are for the VM, and which
 * event its interrupt raises. Returns 0 or a negative errno. dma_offset is how far the device's
 * addresses differ from the VM's if no IOMMU translates them; otherwise it is 0. */
i64 give_info(struct vm *vm, u32 index, gpa_t to) {
    const struct assignment *a = device_of(vm, index);
    struct takt_pci info = { 0 };
    const struct pci_device *d;

    if (!a) return -ENOENT;
    d = a->pci;
    if (!a->confined) info.dma_offset = vm->mem.chunk[0];
    info.bdf = d->bdf;
    info.id = d->vendor | (u32)d->device << 16;
    info.class_rev = d->class_rev;
    if (a->irq != PCI_NO_IRQ) info.port = a->entry[0].port;
    for (u32 i = 0; i < ARRAY_SIZE(d->bar); i++) {
        const struct pci_bar *b = &d->bar[i];

        if (b->io) {
            info.bar[i].io = (u32)b->addr;
            info.bar[i].io_size = (u32)b->size;
        } else {
            if (a->gpa[i] != PCI_NOWHERE) info.bar[i].addr = a->gpa[i];
            info.bar[i].size = b->size;
        }
    }
    return guestmem_write(&vm->mem, to, &info, sizeof(info));
}

/* Reads the configuration space of device `index` for the VM. Returns the value, or a negative
 * errno. */
i64 give_read(struct vm *vm, u32 index, u32 offset, u32 size) {
    struct assignment *a = device_of(vm, index);

    if (!a) return -ENOENT;
    return mediate_read(a, offset, size);
}

/* Writes to the configuration space of device `index` for the VM. Returns 0 or a negative errno. */
i64 give_write(struct vm *vm, u32 index, u32 offset, u32 size, u32 value) {
    struct assignment *a = device_of(vm, index);

    if (!a) return -ENOENT;
    return mediate_write(a, offset, size, value);
}

static i64 hc_pci_info(struct vcpu *v, const u64 *a) { return give_info(v->vm, (u32)a[0], a[1]); }

static i64 hc_pci_eoi(struct vcpu *v, const u64 *a) { return give_eoi(v->vm, (u32)a[0]); }

static i64 hc_pci_read(struct vcpu *v, const u64 *a) {
    return give_read(v->vm, (u32)a[0], (u32)a[1], (u32)a[2]);
}

static i64 hc_pci_write(struct vcpu *v, const u64 *a) {
    return give_write(v->vm, (u32)a[0], (u32)a[1], (u32)a[2], (u32)a[3]);
}

/* Prepares passthrough (giving devices of the machine to VMs) at boot: the list of who has which
 * device, their interrupts, and the hypercalls. Then tells the other parts which functions to call:
 * devices/ maps memory for devices by iommu_map(), and the store's nodes of devices are written by
 * `nodes`. low_end is where RAM below 4 GiB ends: a BAR of memory may lie only above it. */
void give_init(const struct acpi_info *a, const struct memmap *all_ram) {
    static const struct pci_nodes nodes = { .tell = write_node, .let_go = device_let_go };
    static const struct hypercall calls[] = {
        { .nr = TAKT_HC_PCI_INFO, .fn = hc_pci_info, .words = 1 },
        { .nr = TAKT_HC_PCI_EOI, .fn = hc_pci_eoi, .words = 1 },
        { .nr = TAKT_HC_PCI_READ, .fn = hc_pci_read, .words = 3 },
        { .nr = TAKT_HC_PCI_WRITE, .fn = hc_pci_write, .words = 4 },
    };

    assign_init();
    interrupt_init(a);
    ram = all_ram;
    low_end = 0;
    for (u32 i = 0; i < ram->nr; i++)
        if (ram->range[i].start < BIT(32)) low_end = MAX(low_end, MIN(ram->range[i].end, BIT(32)));
    devices_dma_map = iommu_map;
    pci_nodes = &nodes;
    hypercalls_add(calls, ARRAY_SIZE(calls));
}
