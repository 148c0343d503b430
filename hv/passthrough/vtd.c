/* VT-d, Intel's IOMMU: it decides which memory a device can read and write, and which interrupts it
 * can raise. This file gives devices to VMs and takes them back. vtd_scope.c says which unit has a
 * device, vtd_start.c switches the units on, vtd_fault.c handles what they have stopped, and
 * vtd_unit.c gives commands to a single unit.
 *
 * A "unit" is one such IOMMU; a machine may have several. A "domain" is the memory that the devices
 * of one VM reach: page tables from the VM's addresses to the machine's. A "context" is the entry
 * of a device, which says to which domain it belongs; a device without one reaches nothing. A
 * "region" (RMRR) is memory that the firmware goes on using by a device. A "window" is a part of
 * another VM's RAM that a VM with a back end has mapped. Section numbers are of the VT-d
 * specification.
 *
 * Lock order: a domain's page tables, then the queue of a unit. While they are held, no other lock
 * is taken. All units of a segment share these tables: one root table, a context table for each
 * bus, and one table of interrupts, where the entry of a vector has the vector's number. Only the
 * housekeeping pCPU writes them. Two segments do not share tables, because a unit knows a device
 * only by bus, device and function, and two segments may have devices with the same ones. */
#include "passthrough/vtd.h"

#include <takt/errno.h>
#include "lib/printf.h"
#include "mm/npt.h"
#include "passthrough/vtd_shared.h"
#include "passthrough/vtd_unit.h"
#include "devices/devices.h"
#include "x86/cpu.h"

/* Entries of tables. The upper half of a context entry holds the id of its domain, and the number
 * of levels of its page tables: 9.3. */
#define PRESENT            1ull
#define CONTEXT_DOMAIN(id) ((id) << 8)
#define CONTEXT_ID(high)   ((u32)((high) >> 8))
#define CONTEXT_LEVELS_3   1u
#define CONTEXT_LEVELS_4   2u

/* An entry of the table of interrupts, for an interrupt that is remapped and not posted: 9.10. */
#define IRTE_LEVEL          BIT(4)
#define IRTE_VECTOR(vector) ((vector) << 16)
#define IRTE_X2APIC(id)     ((u64)(id) << 32)
#define IRTE_XAPIC(id)      ((u64)(id) << 40)
#define XAPIC_MAX_ID        254u
#define IRTE_SOURCE(bdf)    ((bdf)&0xffffu)
#define IRTE_VERIFY         (1ull << 18) /* all 16 bits of the source must match */

/* The address of a message in the form that units remap: 5.1.2.2. The subhandle is added to the
 * index of the entry. */
#define MESSAGE_BASE         0xfee00000u
#define MESSAGE_REMAPPED     BIT(4)
#define MESSAGE_SUBHANDLE    BIT(3)
#define MESSAGE_INDEX(index) ((index) << 5) /* of 15 bits */

#define FIRMWARE             1u  /* the id of the firmware's domain; 0 is reserved, 6.1 */
#define CHUNKS_A_PART        64u /* chunks of RAM that one step maps */
#define REGION_PART          (256ull << 10) /* bytes of a reserved region that one step maps */

static struct iommu_domain *domain[VTD_MAX_DOMAINS];
/* the unit by which the interrupts of each vector come; NULL: by none */
static struct iommu_unit *unit_of_vector[256];

/* ---- what a VM's devices reach ---- */

/* Makes an empty domain with a number that is free. Returns NULL if there is no memory, or no
 * number. */
static struct iommu_domain *make_domain(void) {
    struct iommu_domain *m = heap_alloc(sizeof(*m));
    u32 id = FIRMWARE;

    while (id < vtd.nr_domains && domain[id]) id++;
    if (!m || id == vtd.nr_domains || npt_init(&m->npt, &vtd.format)) {
        heap_free(m);
        return NULL;
    }
    m->id = id;
    domain[id] = m;
    return m;
}

/* Makes the VM's domain: the addresses that its devices can reach. A VM that serves virtio devices
 * has the RAM of other VMs mapped, in windows (devices/window.c). Those that it gets later are
 * mapped in the domain, too; but those that it has already would be missing, so then there is an
 * error. backend_lock is held so that no window comes or goes in between. */
static int begin_domain(struct vm *vm) {
    int err = 0;

    spin_lock(&backend_lock);
    if (vm->back.nr_windows) {
        err = assign_refuse(
            vm, -EBUSY, "it serves other VMs already, whose RAM its first device would not reach");
    } else {
        vm->dma = make_domain();
        if (!vm->dma)
            err = assign_refuse(vm, -ENOMEM, "there is no memory for what its devices reach");
    }
    spin_unlock(&backend_lock);
    return err;
}

/* Maps the next part of the regions that firmware reserves for the device. Returns 1 if there is
 * more to map, 0 if all is mapped, or an error. */
static int map_region(struct vm *vm, const struct pci_device *d) {
    struct iommu_domain *m = vm->dma;
    u64 high_end = TAKT_HIGH_RAM + vm->mem.size - vm->mem.low_size, first, len;
    u32 n = 0;

    while (n < vtd.dmar.nr_regions &&
           (m->regions >> n & 1 || !vtd_region_is_good(n) || !vtd_has_region(d, n)))
        n++;
    if (n == vtd.dmar.nr_regions) return 0;
    first = vtd.dmar.region[n].first;
    if (first < vm->mem.low_size ||
        (first + vtd_region_len(n) > TAKT_HIGH_RAM && first < high_end) ||
        first + vtd_region_len(n) > TAKT_BAR_GPA)
        return assign_refuse(
            vm, -EINVAL,
            "memory that firmware reserves for PCI device %s lies where this VM has its own",
            d->name);
    len = MIN(vtd_region_len(n) - m->region_mapped, REGION_PART);
    first += m->region_mapped;
    if (npt_map(&m->npt, first, first, len, NPT_RW, NPT_WB)) return -ENOMEM;
    m->region_mapped += len;
    if (m->region_mapped == vtd_region_len(n)) {
        m->regions |= 1u << n;
        m->region_mapped = 0;
        log_warn(
            "%s: relax_rmrr: who controls this VM can read and write %lx to %lx, which firmware"
            " uses by PCI device %s",
            vm->name, vtd.dmar.region[n].first, vtd.dmar.region[n].last, d->name);
    }
    return 1;
}

/* Does another device of the VM need region n? */
static bool region_shared(const struct vm *vm, const struct pci_device *d, u32 n) {
    for (u32 i = 0; i < vm->nr_pci; i++) {
        const struct assignment *other = vm->pci[i];

        if (other && other->pci != d && other->iommu && vtd_has_region(other->pci, n)) return true;
    }
    return false;
}

/* Unmaps the regions that firmware reserves for d, except those that another device of the VM
 * needs. A region may be mapped only in part, if attaching d has failed half-way. */
static void unmap_regions(const struct vm *vm, const struct pci_device *d) {
    struct iommu_domain *m = vm->dma;
    bool any = false;

    for (u32 n = 0; m && n < vtd.dmar.nr_regions; n++) {
        if (!vtd_region_is_good(n) || !vtd_has_region(d, n) || region_shared(vm, d, n)) continue;
        if (!(m->regions >> n & 1) && !m->region_mapped) continue;
        npt_unmap(&m->npt, vtd.dmar.region[n].first, vtd_region_len(n));
        m->regions &= ~(1u << n);
        any = true;
    }
    if (!any) return;
    m->region_mapped = 0;
    FOR_UNITS(u) vtd_flush(u, FLUSH_DOMAIN(m->id));
}

/* Makes the VM's domain, of the VM's RAM and of the regions that firmware reserves for `d`. Mapping
 * all of it takes long, so each call maps only a part, and returns 1 if there is more to do. The
 * VM's RAM consists of chunks, and m->chunks counts those that are mapped. */
int iommu_prepare(struct vm *vm, const struct pci_device *d) {
    u32 part = CHUNKS_A_PART;
    struct iommu_domain *m;

    if (!vm->dma) {
        int err = begin_domain(vm);

        if (err) return err;
    }
    if (vtd.format.small) part = 1; /* a chunk then takes 512 entries instead of one */
    m = vm->dma;
    for (u32 i = 0; i < part && m->chunks < vm->mem.grown; i++, m->chunks++)
        if (npt_map(&m->npt, guestmem_chunk_gpa(&vm->mem, m->chunks), vm->mem.chunk[m->chunks],
                    CHUNK_SIZE, NPT_RW, NPT_WB))
            return -ENOMEM;
    if (m->chunks < vm->mem.grown) return 1;
    return map_region(vm, d);
}

/* Frees the VM's domain. The caller has detached every device before, which flushed what the units
 * remember of the domain's tables. So no unit walks these tables any more. */
void iommu_release(struct vm *vm) {
    struct iommu_domain *m = vm->dma;

    if (!m) return;
    domain[m->id] = NULL;
    npt_fini(&m->npt);
    heap_free(m);
    vm->dma = NULL;
}

/* Lets all devices of the VM reach [hpa, hpa + len) at `gpa`, or nothing there if hpa is HPA_NONE.
 * Returns 0 or -ENOMEM. Units have to forget an old entry that was replaced. Some units ("eager")
 * also remember that an entry was absent, so for them a new entry needs a flush, too. */
int iommu_map(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len) {
    struct iommu_domain *m = vm->dma;
    u64 before;
    int err;

    if (!m) return 0;
    before = m->npt.tlb.current;
    if (hpa == HPA_NONE)
        err = npt_unmap(&m->npt, gpa, len);
    else
        err = npt_map(&m->npt, gpa, hpa, len, NPT_RW, NPT_WB);
    if (vtd.eager || m->npt.tlb.current != before) {
        FOR_UNITS(u) { vtd_flush(u, FLUSH_DOMAIN(m->id)); }
    }
    return err;
}

/* ---- context entries, 9.1 and 9.3 ---- */

/* Returns the context entry of a device, which says to which domain the device belongs. If its bus
 * has no context table yet, makes one, and returns NULL if there is no memory for it. */
static u64 *context_of(const struct iommu_unit *u, u32 bdf) {
    u64 *bus = u->tables->root[bdf >> 8 & 0xff], (*table)[2]; /* an entry has two words */

    if (!(*bus & PRESENT)) {
        hpa_t pa = frame_alloc_zeroed(0);

        if (pa == HPA_NONE) return NULL;
        vtd_publish(hpa_to_va(pa), PAGE_SIZE);
        *bus = pa | PRESENT;
        vtd_publish(bus, 16);
    }
    table = hpa_to_va(*bus & ~(PAGE_SIZE - 1));
    return table[bdf & 0xff];
}

/* Writes the entry of a context or of an interrupt. The unit may read the entry at any time, so it
 * must never see PRESENT together with an old upper half. PRESENT is in the lower half, so the
 * upper half is written first. `low` = 0 makes the entry absent and leaves the upper half as it
 * is. */
static void entry_set(u64 *e, u64 low, u64 high) {
    if (low) e[1] = high;
    __atomic_store_n(&e[0], low, __ATOMIC_RELEASE);
    vtd_publish(e, 16);
}

/* Lets the device reach the memory of domain m. Our tables have four levels. A unit that walks only
 * three begins with the second level, whose first table covers the first 512 GiB. If nothing is
 * mapped, there is no such table, and the device stays blocked. Returns 0, or
 *   -ENOMEM  there is no memory for a context table
 *   -EIO     the unit does not answer */
static int context_attach(struct assignment *a, struct iommu_unit *u,
                          const struct iommu_domain *m) {
    u64 *e = context_of(u, a->pci->bdf), *top = hpa_to_va(m->npt.root);
    u64 levels = CONTEXT_LEVELS_3;
    hpa_t table = *top & ~(PAGE_SIZE - 1);

    if (!e) return -ENOMEM;
    if (u->cap & CAP_LEVELS_4) {
        levels = CONTEXT_LEVELS_4;
        table = m->npt.root;
    }
    if (table) entry_set(e, table | PRESENT, CONTEXT_DOMAIN(m->id) | levels);
    a->iommu = u;
    vtd_flush_context(u, m->id);
    if (u->why) return -EIO;
    return 0;
}

/* Lets the device reach what the VM's domain has. Until now firmware may have used it, by a context
 * entry from boot. That one has to be forgotten first. */
int iommu_attach(struct assignment *a, struct vm *vm) {
    struct iommu_unit *u = vtd_unit_of(a->pci);
    u64 *e = context_of(u, a->pci->bdf);

    a->faults = 0;
    if (e && *e & PRESENT) { /* it is in the domain of firmware, from boot */
        entry_set(e, 0, 0);
        vtd_flush_context(u, FIRMWARE);
    }
    return context_attach(a, u, vm->dma);
}

/* Blocks the device. The context entry becomes absent first; then the unit forgets it and its
 * translations, which also waits for accesses that are under way. */
void iommu_detach(struct assignment *a) {
    u64 *e;

    if (a->iommu) {
        e = context_of(a->iommu, a->pci->bdf);
        entry_set(e, 0, 0);
        vtd_flush_context(a->iommu, CONTEXT_ID(e[1]));
        a->iommu = NULL;
    }
    if (vtd.relax && a->owner) unmap_regions(a->owner, a->pci);
}

/* Lets devices reach the memory that firmware reserves for them (8.4), so that firmware can go on
 * using them until a VM gets them. A domain of its own, FIRMWARE, holds all these regions. The
 * firmware's table may contain errors, so a region that is RAM, or does not consist of whole pages,
 * is not mapped. Returns 0, or -ENOMEM. */
int vtd_map_regions(const struct memmap *ram) {
    struct iommu_domain *m;

    if (!vtd.dmar.nr_regions) return 0;
    m = make_domain();
    if (!m) return -ENOMEM;
    for (u32 i = 0; i < vtd.dmar.nr_regions; i++) {
        u64 first = vtd.dmar.region[i].first, len = vtd.dmar.region[i].last + 1 - first;

        if (vtd.dmar.region[i].odd || vtd.dmar.region[i].last >= NPT_LIMIT)
            log_warn("a region of firmware's table is ignored: %lx to %lx are not whole pages",
                     first, vtd.dmar.region[i].last);
        else if (memmap_overlaps(ram, first, first + len))
            log_warn("a region of firmware's table is ignored: there is RAM at %lx", first);
        else if (npt_map(&m->npt, first, first, len, NPT_RW, NPT_WB))
            return -ENOMEM;
        else
            vtd.good_regions |= 1u << i;
    }
    FOR_ASSIGNMENTS(a) {
        struct iommu_unit *u = vtd_unit_of(a->pci);

        if (!u || u->why || !vtd_scope_of(a->pci, true)) continue;
        if (context_attach(a, u, m)) return -ENOMEM;
        a->iommu = NULL; /* context_attach() has set it, but no VM has the device */
    }
    return 0;
}

/* ---- interrupts, 5.1.3 and 9.10 ---- */

/* Sets the entry of `vector` in unit u's table: a message by it, if it comes from device `source`,
 * interrupts pCPU `cpu`. Messages of other devices are dropped. Returns 0, or -ENODEV if entries
 * have 8 bits for APIC ids and that pCPU's id is larger. */
static int interrupt_set(struct iommu_unit *u, u32 vector, u32 source, u32 cpu, bool level) {
    u32 id = percpu_of[cpu]->apic_id;
    u64 low = PRESENT | IRTE_VECTOR(vector);

    if (!vtd.x2apic && id > XAPIC_MAX_ID) return -ENODEV;
    if (level) low |= IRTE_LEVEL;
    if (vtd.x2apic)
        low |= IRTE_X2APIC(id);
    else
        low |= IRTE_XAPIC(id);
    entry_set(u->tables->interrupts[vector], low, IRTE_SOURCE(source) | IRTE_VERIFY);
    unit_of_vector[vector] = u;
    vtd_flush(u, FLUSH_INTERRUPT(vector));
    return 0;
}

/* Sets *m to the message by which the device interrupts `cpu` on `vector`. If a unit confines the
 * device, the message holds only the number of an entry in the unit's table. That entry names the
 * pCPU, and the one device that may use it. */
int iommu_irq(const struct assignment *a, u32 vector, u32 cpu, struct irq_message *m) {
    int err;

    if (!a->iommu) return irq_message((int)vector, cpu, m);
    err = interrupt_set(a->iommu, vector, a->pci->bdf, cpu, false);
    m->addr = MESSAGE_BASE | MESSAGE_REMAPPED | MESSAGE_SUBHANDLE | MESSAGE_INDEX(vector);
    m->data = 0; /* the subhandle */
    if (err) return err;
    if (a->iommu->why) return -EIO;
    return 0;
}

/* Makes the entry of `vector` absent, so that messages by it interrupt nobody any more. */
void iommu_irq_free(u32 vector) {
    struct iommu_unit *u = unit_of_vector[vector];

    if (!u) return;
    entry_set(u->tables->interrupts[vector], 0, 0);
    unit_of_vector[vector] = NULL;
    vtd_flush(u, FLUSH_INTERRUPT(vector));
}

/* The function behind irq_remap_pin (platform/irq.h): lets a pin of IOAPIC `id` raise `vector`
 * through the unit that has that IOAPIC. Returns 0; 1 if that unit is not in use, so that its pins
 * are not remapped; -ENODEV if no unit is said to have the IOAPIC. */
int vtd_remap_pin(u32 id, u32 vector, bool level) {
    for (const struct dmar_scope *s = vtd.dmar.scope; s < vtd.dmar.scope + vtd.dmar.nr_scopes;
         s++) {
        if (s->of_region || s->kind != DMAR_IOAPIC || s->id != id) continue;
        if (vtd.unit[s->of].why) return 1;
        return interrupt_set(&vtd.unit[s->of], vector, vtd_scope_bdf(s), WORK_CPU, level);
    }
    return -ENODEV;
}
