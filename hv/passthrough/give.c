/* What a VM file's `pci =` asks for. A device has an owner from before the VM gets memory until after it
 * was freed; claim, release, attach and detach are parts of the making and destroying of a VM, on the
 * housekeeping pCPU, as are its interrupts: so none of them waits for another. */
#include "passthrough/give.h"

#include <takt/device.h>
#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "passthrough/interrupt.h"
#include "passthrough/mediate.h"
#include "pci/sriov.h"
#include "passthrough/vtd.h"
#include "platform/console.h"
#include "trace/trace.h"
#include "vm/vm.h"
#include "x86/tsc.h"

#define FIXED_PLACES TAKT_IOAPIC_GPA /* from here to 4 GiB a VM has its own, and so has the machine */

static const struct memmap *ram; /* of the machine */
static hpa_t low_end;            /* of what of it is below 4 GiB */

#define LET_GO_NS   (2 * NS_PER_S) /* that a VM has to stop its driver */
#define BAR_MAX     BIT(30)        /* so that tables for it are few: they are freed in one step */
#define FIXED_PORTS 0x400u         /* below them too */
#define BAR_SPACE   (8 * BAR_MAX)  /* of one device, in what a VM has for BARs that cannot stay */
#define MAP_LARGE   (64ull << 20)  /* that a part maps, in 2 MiB pages */
#define MAP_SMALL   (256ull << 10) /* in 4 KiB pages */

int give_refuse(struct vm *vm, int error, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(vm->why, sizeof(vm->why), fmt, ap);
    va_end(ap);
    vm->job.why = vm->why;
    return error;
}

static int refuse_device(struct vm *vm, int error, const struct pci_device *d, const char *why) {
    return give_refuse(vm, error, "PCI device %s: %s", d->name, why);
}

/* ---- who has it ---- */

/* Firmware may have forgotten a BAR, and what is in it is then any address. */
static bool bar_can_be(hpa_t first, hpa_t last) {
    if (last < first || memmap_overlaps(ram, first, last + 1)) return false;
    if (first >= BIT(32)) return !(last >> cpuid_physical_bits());
    return first >= low_end && last < FIXED_PLACES;
}

const char *give_refused(const struct pci_device *d) {
    if (d->lost) return "it did not come back from its reset";
    if (d->header == 1 || d->header == 2) return "it is a bridge";
    if (d->header) return "its configuration space is not understood";
    if (pci_part_of_machine(d)) return "it is a part of the machine itself";
    if (d->class_rev >> 24 == PCI_CLASS_DISPLAY) return "the screen shows the log";
    if (console_is_pci(d->bdf)) return "it is the console";
    for (u32 i = 0; i < 6; i++) {
        const struct pci_bar *b = &d->bar[i];
        hpa_t last = b->addr + b->size - 1;

        if (!b->size) continue;
        if (!b->addr) return "firmware gave a BAR of it no address";
        if (b->size > BAR_MAX) return "a BAR of it is larger than 1 GiB";
        if (b->io ? last > 0xffff || b->addr < FIXED_PORTS : !bar_can_be(b->addr, last))
            return "a BAR of it lies where none can be";
    }
    return NULL;
}

/* Has the VM nothing of its own there? */
static bool is_free(const struct vm *vm, gpa_t first, gpa_t last) {
    u64 high = vm->mem.size - vm->mem.low_size;

    if (last > TAKT_BAR_GPA || first < vm->mem.low_size) return false;
    if (first < TAKT_HIGH_RAM) return last <= FIXED_PLACES;
    return first >= TAKT_HIGH_RAM + high;
}

/* Where the VM is to see BAR i: where it is, or else, if the register has 64 bits, in a GiB that
 * is kept for this BAR of this device. It has the same place within that, so that large pages
 * fit. */
static int place_bar(const struct vm *vm, struct pci_device *d, u32 i) {
    const struct pci_bar *b = &d->bar[i];
    gpa_t first = ALIGN_DOWN(b->addr, PAGE_SIZE), last = ALIGN_UP(b->addr + b->size, PAGE_SIZE);
    u64 high = vm->mem.size - vm->mem.low_size;
    u32 index = 0;

    if (is_free(vm, first, last)) {
        d->gpa[i] = b->addr;
        return 0;
    }
    if (!b->wide || TAKT_HIGH_RAM + high > TAKT_BAR_GPA) return -EINVAL;
    while (vm->pci[index] != d) index++;
    d->gpa[i] = TAKT_BAR_GPA + index * BAR_SPACE + i * BAR_MAX + b->addr % BAR_MAX;
    return 0;
}
_Static_assert(TAKT_BAR_GPA + CONFIG_MAX_PCI * BAR_SPACE <= TAKT_FOREIGN_GPA, "they end before windows");

/* The pages of a memory BAR of d may hold registers of another device. One that was not sized is
 * taken to end with its page: a BAR that is larger has whole pages of its own. */
static const struct pci_device *page_shared(const struct pci_device *d, const struct pci_bar *a) {
    hpa_t from = ALIGN_DOWN(a->addr, PAGE_SIZE), to = ALIGN_UP(a->addr + a->size, PAGE_SIZE);

    for (u32 i = 0; i < pci_count() && a->size && !a->io; i++) {
        const struct pci_device *other = pci_at(i);

        for (const struct pci_bar *b = other->bar; other != d && b < other->bar + 6; b++) {
            u64 size = other->unsized && b->addr ? 1 : b->size;

            if (size && !b->io && from < b->addr + size && b->addr < to) return other;
        }
    }
    return NULL;
}

/* Another device, which the VM neither has nor is about to get, and that this one can reach unseen. */
static const struct pci_device *group_shared(const struct vm *vm, const struct pci_device *d) {
    for (u32 i = 0; i < pci_count() && !vm->config.allow_shared_group; i++) {
        const struct pci_device *other = pci_at(i);
        bool its = other == d || other->owner == vm;

        for (u32 k = 0; k < vm->config.nr_pci; k++) its |= vm->config.pci[k] == other->bdf && !other->owner;
        if (!its && other->header == 0 && other->group == d->group) return other;
    }
    return NULL;
}

/* May the VM have what is asked for (config.h)? Looks at BAR `part` of it. */
static int may_have(struct vm *vm, u64 asked, u32 part, struct pci_device **found) {
    struct pci_device *d = *found = asked & CONFIG_VF ? sriov_asked(asked) : pci_find((u32)asked);
    const struct pci_device *other = d ? page_shared(d, &d->bar[part]) : NULL;
    const char *why = d ? iommu_refused(d) : NULL;
    char name[PCI_NAME];

    if (!d && asked & CONFIG_VF)
        return give_refuse(vm, -ENOENT, "there is no virtual function, or none left, as it is asked for");
    if (!d) return give_refuse(vm, -ENOENT, "there is no PCI device %s", pci_name((u32)asked, name));
    if (give_refused(d)) return refuse_device(vm, -EINVAL, d, give_refused(d));
    if (d->owner) return give_refuse(vm, -EBUSY, "PCI device %s belongs to %s", d->name, d->owner->name);
    if (other)
        return give_refuse(vm, -EINVAL, "PCI device %s has registers in one page with %s", d->name,
                           other->name);
    other = part ? NULL : group_shared(vm, d);
    if (other)
        return give_refuse(vm, -EPERM,
                           "PCI device %s could reach %s unseen: one VM gets both, or it needs"
                           " allow_shared_group = yes",
                           d->name, other->name);
    if (why && iommu_blocks(d))
        return give_refuse(vm, -EPERM, "PCI device %s cannot be given to VMs, as %s", d->name, why);
    if (why && !vm->config.unsafe_dma)
        return give_refuse(vm, -EPERM, "PCI device %s reaches all memory, as %s: it needs unsafe_dma = yes",
                           d->name, why);
    return 0;
}

static void take(struct vm *vm, struct pci_device *d, u32 index, u64 asked) {
    d->owner = vm;
    d->asked = asked;
    d->part = d->offset = 0;
    for (u32 i = 0; i < ARRAY_SIZE(d->gpa); i++) d->gpa[i] = PCI_NOWHERE;
    d->leaving = d->released = false;
    d->off = true;
    d->confined = !iommu_refused(d);
    if (!d->confined)
        log_warn("%s: unsafe_dma: who controls this VM can read and write all memory of the machine, by PCI "
                 "device %s",
                 vm->name, d->name);
    vm->pci[index] = d;
    vm->nr_pci = MAX(vm->nr_pci, index + 1);
}

/* Looks at a BAR of the next device; after the last one the VM has the device. */
static int claim(struct vm *vm) {
    struct pci_device *d;
    int err = may_have(vm, vm->config.pci[vm->nr_pci], vm->job.at, &d);

    if (err) return err;
    if (++vm->job.at < ARRAY_SIZE(d->bar)) return 1;
    vm->job.at = 0;
    take(vm, d, vm->nr_pci, vm->config.pci[vm->nr_pci]);
    return vm->nr_pci < vm->config.nr_pci;
}

/* If it is made anew it asks for what it has now. */
static void release(struct vm *vm) {
    vm->config.nr_pci = 0;
    for (u32 i = 0; i < vm->nr_pci; i++) {
        struct pci_device *d = vm->pci[i];

        if (d && !d->leaving) vm->config.pci[vm->config.nr_pci++] = d->asked;
        if (d) d->owner = NULL;
    }
    vm->nr_pci = 0;
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
 * the MSI-X table are not: who writes there interrupts by any vector. */
static int map_bar(struct vm *vm, struct pci_device *d, u32 i) {
    const struct pci_bar *b = &d->bar[i];
    hpa_t first = ALIGN_DOWN(b->addr, PAGE_SIZE), last = ALIGN_UP(b->addr + b->size, PAGE_SIZE);
    hpa_t from = first + d->offset, to, large, table, end;
    u64 away; /* how far the VM sees it from where it is */

    if (place_bar(vm, d, i))
        return give_refuse(vm, -EINVAL, "BAR %u of PCI device %s lies where this VM has RAM", i, d->name);
    away = d->gpa[i] - b->addr;
    table = msix_pages(d, i, &table, &end) ? MIN(table, last) : (end = last);
    end = MIN(end, last);
    if (from == table && table < end) {
        d->msix_gpa = d->msix_addr + away;
        bus_add(&vm->mmio, table + away, end - table, msix_access, d);
        from = end;
    }
    to = from < table ? table : last;
    large = MIN(ALIGN_DOWN(to, SIZE_2M), from + MAP_LARGE);
    to = from % SIZE_2M == 0 && large > from ? large : MIN(to, ALIGN_DOWN(from, MAP_SMALL) + MAP_SMALL);
    d->offset = to - first;
    if (from < to && npt_map(&vm->virt.npt, from + away, from, to - from, NPT_RW, NPT_UC)) return -ENOMEM;
    return to < last;
}

static int attach_bar(struct vm *vm, struct pci_device *d, u32 i) {
    const struct pci_bar *b = &d->bar[i];

    if (!b->size) return 0;
    if (!b->io) return map_bar(vm, d, i);
    d->gpa[i] = b->addr;
    if (vm->ports.nr >= BUS_RANGES - 3) /* io.c adds three */
        return refuse_device(vm, -ENOSPC, d, "it has too many ranges of ports");
    bus_add(&vm->ports, b->addr, b->size, ports_access, NULL);
    return 0;
}

/* ---- making and destroying ---- */

/* A phase of the reset of all its devices: 1 until they are done. */
static int reset_all(struct vm *vm) {
    u64 wait = 0;

    for (u32 i = 0; i < vm->nr_pci; i++) {
        u64 ns = vm->pci[i] ? pci_reset(vm->pci[i], vm->job.at) : 0;

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

/* Called again at *at while its physical function is reset, which takes no longer than all its phases. */
static int switch_on(struct vm *vm, struct pci_device *d, u64 *at) {
    u32 command = decoding(d) | PCI_COMMAND_NO_INTX;
    int err;

    if (d->lost) return refuse_device(vm, -EIO, d, give_refused(d));
    if (d->pf && d->pf->in_reset) {
        *at = now_ns() + SRIOV_SETTLE_NS;
        if (d->offset++ < PCI_RESET_PHASES) return 1;
        return refuse_device(vm, -EAGAIN, d, "its physical function stays in its reset");
    }
    if (!d->was_reset && !d->quiet)
        log_info("%s: PCI device %s cannot be reset: it may go on where it was left", vm->name, d->name);
    pci_write(d->bdf, PCI_COMMAND, 2, command);
    if (d->confined && (err = iommu_attach(d, vm)))
        return refuse_device(vm, err, d, "its IOMMU does not take it");
    err = interrupt_connect(vm, d);
    if (d->irq == PCI_INTX) command &= ~(u32)PCI_COMMAND_NO_INTX;
    if (err) return err;
    pci_write(d->bdf, PCI_COMMAND, 2, command | PCI_COMMAND_MASTER);
    d->off = false;
    return 0;
}

/* After its reset each BAR is one part or more, and what switches it on is one. */
static int attach_part(struct vm *vm, struct pci_device *d, u64 *at) {
    int r = d->confined ? iommu_prepare(vm, d) : 0;

    if (!r) r = d->part < ARRAY_SIZE(d->bar) ? attach_bar(vm, d, d->part) : switch_on(vm, d, at);
    if (r) return r;
    d->offset = 0;
    return ++d->part <= ARRAY_SIZE(d->bar);
}

static int attach(struct vm *vm) {
    struct vm_job *j = &vm->job;
    int r = 1;

    if (j->at >= PCI_RESET_PHASES)
        r = attach_part(vm, vm->pci[j->at - PCI_RESET_PHASES], &j->work.not_before);
    else if (!reset_all(vm))
        j->at = PCI_RESET_PHASES;
    return r ? r : ++j->at < PCI_RESET_PHASES + vm->nr_pci;
}

static int detach(struct vm *vm) {
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

/* ---- of a VM that runs: steps of the shell, which does one thing at a time ---- */

#define STAYS "it has ports, and comes and goes with its VM alone"

static struct hot {
    struct pci_device *d;
    u32 index, step;
    int failed;
    u64 end, generation; /* of the wait for the VM to let go; after which no pCPU uses its registers */
} hot;

static bool standing(const struct vm *vm) { return vm->state != VM_CREATING && vm->state != VM_DYING; }

static int begin(struct vm *vm, struct pci_device *d, u32 index) {
    hot = (struct hot){ .d = d, .index = index, .end = now_ns() + LET_GO_NS };
    log_info("%s: PCI device %s %s", vm->name, d->name, d->leaving ? "is to be taken" : "comes");
    return 1;
}

/* A phase of its reset: *at is until when it waits. */
static int hot_reset(struct pci_device *d, u64 *at) {
    u64 wait = pci_reset(d, hot.step);

    *at = wait ? now_ns() + wait : 0;
    hot.step = wait ? hot.step + 1 : PCI_RESET_PHASES;
    return 1;
}

static int unmap(struct vm *vm, struct pci_device *d) {
    u32 i = d->part++;
    const struct pci_bar *b = &d->bar[i];
    gpa_t at = d->gpa[i], first = ALIGN_DOWN(at, PAGE_SIZE), last = ALIGN_UP(at + b->size, PAGE_SIZE);
    bool mapped = b->size && at != PCI_NOWHERE;

    if (mapped && npt_unmap(&vm->virt.npt, first, last - first)) return -ENOMEM;
    if (d->part < ARRAY_SIZE(d->bar)) return 1;
    hot.generation = vm->virt.npt.tlb.current;
    bus_remove(&vm->mmio, d);
    interrupt_disconnect(d);
    iommu_detach(d);
    return 1;
}

/* Takes it from the VM, as detach() does, and then its registers, which are free when no pCPU uses them any
 * more. */
static int take_back(struct vm *vm, struct pci_device *d, u64 *at) {
    struct tlbgen *g = &vm->virt.npt.tlb;

    if (hot.step == 0) {
        interrupt_quiet(d);
        d->part = 0;
    }
    if (hot.step < PCI_RESET_PHASES) return hot_reset(d, at);
    if (d->part < ARRAY_SIZE(d->bar)) return unmap(vm, d);
    if (!tlbgen_passed(g, hot.generation)) {
        kick_users(g);
        *at = now_ns() + NS_PER_MS;
        return 1;
    }
    d->owner = NULL;
    vm->pci[hot.index] = NULL;
    storelink_pci(vm, hot.index);
    hot.d = NULL;
    return hot.failed;
}

static int hot_begin(struct vm *vm, u64 asked) {
    struct pci_device *d;
    u32 index = 0;
    int err = 0;

    for (u32 i = 0; i < 6 && !err; i++) err = may_have(vm, asked, i, &d);
    if (err) return err;
    if (decoding(d) & PCI_COMMAND_IO) return refuse_device(vm, -EINVAL, d, STAYS);
    while (index < CONFIG_MAX_PCI && vm->pci[index]) index++;
    if (index == CONFIG_MAX_PCI) return give_refuse(vm, -ENOSPC, "it has as many devices as a VM can have");
    take(vm, d, index, asked);
    give_refuse(vm, 0, "there is not enough free memory for it"); /* if nothing else is said */
    return begin(vm, d, index);
}

int give_attach(struct vm *vm, u64 asked, u64 *at) {
    struct pci_device *d = hot.d;
    int r;

    if (!standing(vm) || (d && d->owner != vm))
        return give_refuse(vm, -EAGAIN, "it is being made, or on its way out");
    if (!d) return hot_begin(vm, asked);
    if (hot.failed) return take_back(vm, d, at);
    if (hot.step < PCI_RESET_PHASES) return hot_reset(d, at);
    r = attach_part(vm, d, at);
    if (r > 0) return r;
    if (r < 0) {
        hot.failed = r;
        hot.step = 0;
        return 1;
    }
    storelink_pci(vm, hot.index);
    hot.d = NULL;
    return 0;
}

int give_detach(struct vm *vm, u32 bdf, bool force, u64 *at) {
    struct pci_device *d = hot.d;

    if (!standing(vm) || (d && d->owner != vm))
        return give_refuse(vm, -EAGAIN, "it is being made, or on its way out");
    for (u32 i = 0; !d && i < vm->nr_pci; i++) {
        if (!vm->pci[i] || vm->pci[i]->bdf != bdf) continue;
        if (decoding(vm->pci[i]) & PCI_COMMAND_IO) return refuse_device(vm, -EINVAL, vm->pci[i], STAYS);
        vm->pci[i]->leaving = true;
        storelink_pci(vm, i);
        return begin(vm, vm->pci[i], i);
    }
    if (!d) return give_refuse(vm, -ENOENT, "it has no such device");
    if (d->released || force || now_ns() >= hot.end) {
        d->released = true;
        return take_back(vm, d, at);
    }
    *at = now_ns() + 10 * NS_PER_MS;
    return 1;
}

void give_stop(void) { hot.d = NULL; }

/* What the VM's node in the store says of device `index`, and what it can write there. */
static void tell(const struct vm *vm, u32 index, char *text, u32 size) {
    const struct pci_device *d = vm->pci[index];

    if (d)
        hv_snprintf(text, size, "%s %s", d->name,
                    d->leaving ? "leaving"
                    : d->lost  ? "lost"
                    : d->held  ? "reset"
                               : "given");
    else
        *text = 0;
}

void give_tell(const struct pci_device *d) {
    for (u32 i = 0; i < d->owner->nr_pci; i++)
        if (d->owner->pci[i] == d) storelink_pci(d->owner, i);
}

static int let_go(struct vm *vm, u32 index) {
    struct pci_device *d = vm->pci[index];

    if (!d || !d->leaving) return -EINVAL;
    d->released = true;
    return 0;
}

/* ---- hypercalls; the VM has, or had, a device `index` ---- */

static struct pci_device *of(const struct vm *vm, u32 index) {
    return __atomic_load_n(&vm->pci[index], __ATOMIC_RELAXED);
}

static i64 pci_eoi(struct vm *vm, u32 index) {
    struct pci_device *d = of(vm, index);

    if (d) interrupt_done(d);
    return d ? 0 : -ENOENT;
}

static i64 pci_info(struct vm *vm, u32 index, gpa_t to) {
    const struct pci_device *d = of(vm, index);
    struct takt_pci info = { 0 };

    if (!d) return -ENOENT;
    info.dma_offset = d->confined ? 0 : vm->mem.chunk[0];
    info.bdf = d->bdf;
    info.id = d->vendor | (u32)d->device << 16;
    info.class_rev = d->class_rev;
    info.port = d->irq ? d->entry[0].port : 0;
    for (u32 i = 0; i < 6; i++) {
        const struct pci_bar *b = &d->bar[i];

        info.bar[i].addr = b->io || d->gpa[i] == PCI_NOWHERE ? 0 : d->gpa[i];
        info.bar[i].size = b->io ? 0 : b->size;
        info.bar[i].io = b->io ? (u32)b->addr : 0;
        info.bar[i].io_size = b->io ? (u32)b->size : 0;
    }
    return guestmem_write(&vm->mem, to, &info, sizeof(info));
}

static i64 pci_register_read(struct vm *vm, u32 index, u32 offset, u32 size) {
    struct pci_device *d = of(vm, index);

    return d ? mediate_read(d, offset, size) : -ENOENT;
}

static i64 pci_register_write(struct vm *vm, u32 index, u32 offset, u32 size, u32 value) {
    struct pci_device *d = of(vm, index);

    return d ? mediate_write(d, offset, size, value) : -ENOENT;
}

void give_init(const struct acpi_info *a, const struct memmap *all_ram) {
    static const struct vm_giver giver = {
        .claim = claim,
        .release = release,
        .attach = attach,
        .detach = detach,
        .map = iommu_map,
        .info = pci_info,
        .eoi = pci_eoi,
        .read = pci_register_read,
        .write = pci_register_write,
        .tell = tell,
        .let_go = let_go,
    };

    interrupt_init(a);
    ram = all_ram;
    low_end = 0;
    for (u32 i = 0; i < ram->nr; i++)
        if (ram->range[i].start < BIT(32)) low_end = MAX(low_end, MIN(ram->range[i].end, BIT(32)));
    vm_giver = &giver;
}
