/* VT-d, Intel's IOMMU: it decides which memory a device can read and write, and which interrupts it
 * can raise. A "unit" is one such IOMMU; a machine may have several. A "domain" is the memory that
 * the devices of one VM reach: page tables from the VM's addresses to the machine's. A "context" is
 * the entry of a device, which says to which domain it belongs; a device without one reaches
 * nothing. A "region" (RMRR) is memory that the firmware goes on using by a device. Section numbers
 * are of the VT-d specification.
 *
 * Lock order: a domain's page tables, then the queue of a unit. While they are held, no other lock
 * is taken.
 * All units of a segment share these tables: one root table, a context table for each bus, and one
 * table of interrupts, where the entry of a vector has the vector's number. Only the housekeeping
 * pCPU writes them. Two segments do not share tables, because a unit knows a device only by bus,
 * device and function, and two segments may have devices with the same ones. */
#include "passthrough/vtd.h"

#include <takt/errno.h>
#include "lib/printf.h"
#include "common/string.h"
#include "mm/npt.h"
#include "passthrough/vtd_unit.h"
#include "platform/apic.h"
#include "platform/hostmap.h"
#include "trace/trace.h"
#include "devices/devices.h"
#include "x86/cpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(dma_faults);

/* Entries of tables. The upper half of a context entry holds the id of its domain, and the number
 * of levels of its page tables: 9.3. */
#define PRESENT            1ull
#define SNOOP              BIT(11) /* of a leaf entry: devices cannot bypass the caches, 9.8 */
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

/* Reasons of faults: 7.1. Those from 20h to 2Fh are about interrupts. */
enum {
    FAULT_CONTEXT_ABSENT =
        2, /* the device is blocked; so it is with 1, no entry in the root table */
    FAULT_IRQ_FIRST = 0x20,
    FAULT_IRQ_INDEX = 0x21,
    FAULT_IRQ_ABSENT = 0x22,
    FAULT_IRQ_FORM = 0x25,
    FAULT_IRQ_SOURCE = 0x26,
    FAULT_IRQ_LAST = 0x2f,
};
#define FAULT_IRQ_ENTRY(info) ((u32)((info) >> 48))

#define MAX_DOMAINS           64u
#define FIRMWARE              1u  /* the id of the firmware's domain; 0 is reserved, 6.1 */
#define CHUNKS_A_PART         64u /* chunks of RAM that one step maps */
#define REGION_PART           (256ull << 10) /* bytes of a reserved region that one step maps */
/* the largest such region, in bytes: it is unmapped in a single step, which must be short */
#define REGION_MAX  (16ull << 20)
#define FAULT_PAUSE NS_PER_MS /* at least so long from one interrupt about faults to the next */
#define FAULT_SAYS  NS_PER_S  /* at least so long from one log line about a device to the next */

/* A domain: the memory that the devices of one VM reach. */
struct iommu_domain {
    u32 id, chunks;    /* its number for the units; how many chunks of the VM's RAM are mapped */
    u32 regions;       /* a bit for each region reserved by firmware that is mapped as a whole */
    u64 region_mapped; /* how many bytes of the next region are mapped */
    struct npt npt;    /* the page tables that the units walk */
};

static struct dmar_info dmar;
static struct iommu_unit unit[DMAR_MAX_UNITS]; /* in the order of dmar.unit */
static u32 regions_believed; /* a bit for each region reserved by firmware that is plausible */
static bool relax;           /* devices that firmware goes on using may be given to VMs */
static bool on;              /* at least one unit is switched on */
static bool x2apic;          /* ids of APICs have 32 bits in the entries of interrupts */
static bool eager;           /* a unit also caches absent entries: flush after adding one, too */
static const char *why_off = "no IOMMU is in use";
static struct npt_format format; /* the format of page tables that all units understand */
static struct iommu_domain *domain[MAX_DOMAINS];
static u32 nr_domains = MAX_DOMAINS;
static struct tables *segments;
/* the unit by which the interrupts of each vector come; NULL: by none */
static struct iommu_unit *unit_of_vector[256];
static int fault_vector;
static struct timer fault_timer;

#define FOR_UNITS(u) for (struct iommu_unit *u = unit; u < unit + dmar.nr_units; u++)

/* ---- which unit has a device ---- */

static u32 scope_segment(const struct dmar_scope *s) {
    if (s->of_region) return dmar.region[s->of].segment;
    return dmar.unit[s->of].segment;
}

#define NOWHERE (~0u)

/* Returns the bdf to which the path of a scope leads (8.3.1). Returns NOWHERE if a bridge on the
 * path is missing. */
static u32 scope_bdf(const struct dmar_scope *s) {
    u32 segment = scope_segment(s) << 16, bus = s->bus, bdf = NOWHERE;

    for (u32 i = 0; i < s->hops; i++) {
        if (i && (pci_read(bdf, PCI_HEADER, 1) & 0x7f) != 1) return NOWHERE;
        if (i) bus = pci_read(bdf, PCI_SECONDARY, 1);
        bdf = segment | PCI_BDF(bus, s->path[i][0] & 31, s->path[i][1] & 7);
    }
    return bdf;
}

/* Does the scope name this device, or a bridge above it? */
static bool scope_covers(const struct dmar_scope *s, u32 bdf) {
    u32 at = scope_bdf(s);

    if (at == bdf) return s->kind == DMAR_ENDPOINT || s->kind == DMAR_BRIDGE;
    return s->kind == DMAR_BRIDGE && at != NOWHERE && at >> 16 == bdf >> 16 &&
           (bdf >> 8 & 0xff) >= pci_read(at, PCI_SECONDARY, 1) &&
           (bdf >> 8 & 0xff) <= pci_read(at, PCI_SUBORDINATE, 1);
}

/* Returns the bdf by which firmware's tables name a device. For a virtual function that is its
 * physical function, as tables name no virtual ones. */
static u32 table_bdf(const struct pci_device *d) {
    if (d->pf) return d->pf->bdf;
    return d->bdf;
}

/* Returns a scope that names the device `d`: of a region if `region` is set, or else of a unit.
 * NULL if there is none. */
static const struct dmar_scope *scope_of(const struct pci_device *d, bool region) {
    u32 bdf = table_bdf(d);

    for (const struct dmar_scope *s = dmar.scope; s < dmar.scope + dmar.nr_scopes; s++)
        if (s->of_region == region && scope_covers(s, bdf)) return s;
    return NULL;
}

/* Returns the unit that has a device: the one that names it, or else the one of its segment for all
 * others. */
static struct iommu_unit *unit_of(const struct pci_device *d) {
    const struct dmar_scope *s = scope_of(d, false);

    if (s) return &unit[s->of];
    FOR_UNITS(u)
    if (dmar.unit[u - unit].all && dmar.unit[u - unit].segment == d->bdf >> 16) return u;
    return NULL;
}

/* May this device belong to another unit than unit_of() says? It may, if no entry names the device
 * and some entry could not be read: that one might name it. */
static bool is_unsure(const struct pci_device *d) {
    if (scope_of(d, false)) return false;
    for (u32 i = 0; i < dmar.nr_units; i++)
        if (dmar.unit[i].unsure && dmar.unit[i].segment == d->bdf >> 16) return true;
    return dmar.unsure;
}

/* Does firmware reserve region n for this device? */
static bool has_region(const struct pci_device *d, u32 n) {
    u32 bdf = table_bdf(d);

    for (const struct dmar_scope *s = dmar.scope; s < dmar.scope + dmar.nr_scopes; s++)
        if (s->of_region && s->of == n && scope_covers(s, bdf)) return true;
    return false;
}

/* Was region n mapped at boot? If not, its entry is malformed, or the machine has RAM there. */
static bool region_is_good(u32 n) { return regions_believed >> n & 1; }

static u64 region_len(u32 n) { return dmar.region[n].last + 1 - dmar.region[n].first; }

/* Returns why a device that firmware goes on using cannot be given to a VM; NULL if it can be. */
static const char *region_refused(const struct pci_device *d) {
    if (!relax) return "firmware goes on using it (RMRR; relax_rmrr allows it)";
    for (u32 n = 0; n < dmar.nr_regions; n++)
        if (has_region(d, n) && region_is_good(n) && region_len(n) > REGION_MAX)
            return "firmware reserves more than 16 MiB of memory for it (RMRR)";
    return NULL;
}

bool iommu_blocks(const struct pci_device *d) {
    const struct iommu_unit *u;

    if (!on) return false;
    u = unit_of(d);
    return u && u->on && !is_unsure(d);
}

const char *iommu_refused(const struct pci_device *d) {
    const struct iommu_unit *u;

    if (!on) return why_off;
    u = unit_of(d);
    if (!u) return "firmware names no IOMMU for it";
    if (is_unsure(d)) return "firmware's table of IOMMUs has a malformed entry";
    if (!u->why && scope_of(d, true)) return region_refused(d);
    return u->why;
}

/* ---- what a VM's devices reach ---- */

/* Makes an empty domain with a number that is free. NULL: there is no memory, or no number. */
static struct iommu_domain *make_domain(void) {
    struct iommu_domain *m = heap_alloc(sizeof(*m));
    u32 id = FIRMWARE;

    while (id < nr_domains && domain[id]) id++;
    if (!m || id == nr_domains || npt_init(&m->npt, &format)) {
        heap_free(m);
        return NULL;
    }
    m->id = id;
    domain[id] = m;
    return m;
}

/* Makes the VM's domain. Windows to other VMs' RAM that the VM gets later are mapped in it, too;
 * but windows that it has already would be missing, so then there is an error. backend_lock is held
 * so that no window comes or goes in between. */
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

    while (n < dmar.nr_regions && (m->regions >> n & 1 || !region_is_good(n) || !has_region(d, n)))
        n++;
    if (n == dmar.nr_regions) return 0;
    first = dmar.region[n].first;
    if (first < vm->mem.low_size || (first + region_len(n) > TAKT_HIGH_RAM && first < high_end) ||
        first + region_len(n) > TAKT_BAR_GPA)
        return assign_refuse(
            vm, -EINVAL,
            "memory that firmware reserves for PCI device %s lies where this VM has its own",
            d->name);
    len = MIN(region_len(n) - m->region_mapped, REGION_PART);
    first += m->region_mapped;
    if (npt_map(&m->npt, first, first, len, NPT_RW, NPT_WB)) return -ENOMEM;
    m->region_mapped += len;
    if (m->region_mapped == region_len(n)) {
        m->regions |= 1u << n;
        m->region_mapped = 0;
        log_warn(
            "%s: relax_rmrr: who controls this VM can read and write %lx to %lx, which firmware"
            " uses by PCI device %s",
            vm->name, dmar.region[n].first, dmar.region[n].last, d->name);
    }
    return 1;
}

/* Does another device of the VM need region n? */
static bool region_shared(const struct vm *vm, const struct pci_device *d, u32 n) {
    for (u32 i = 0; i < vm->nr_pci; i++) {
        const struct assignment *other = vm->pci[i];

        if (other && other->pci != d && other->iommu && has_region(other->pci, n)) return true;
    }
    return false;
}

/* Unmaps the regions that firmware reserves for d, except those that another device of the VM
 * needs. A region may be mapped only in part, if attaching d has failed half-way. */
static void unmap_regions(const struct vm *vm, const struct pci_device *d) {
    struct iommu_domain *m = vm->dma;
    bool any = false;

    for (u32 n = 0; m && n < dmar.nr_regions; n++) {
        if (!region_is_good(n) || !has_region(d, n) || region_shared(vm, d, n)) continue;
        if (!(m->regions >> n & 1) && !m->region_mapped) continue;
        npt_unmap(&m->npt, dmar.region[n].first, region_len(n));
        m->regions &= ~(1u << n);
        any = true;
    }
    if (!any) return;
    m->region_mapped = 0;
    FOR_UNITS(u) vtd_flush(u, FLUSH_DOMAIN(m->id));
}

int iommu_prepare(struct vm *vm, const struct pci_device *d) {
    u32 part = CHUNKS_A_PART;
    struct iommu_domain *m;

    if (!vm->dma) {
        int err = begin_domain(vm);

        if (err) return err;
    }
    if (format.small) part = 1; /* a chunk then takes 512 entries instead of one */
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
    if (eager || m->npt.tlb.current != before) {
        FOR_UNITS(u) { vtd_flush(u, FLUSH_DOMAIN(m->id)); }
    }
    return err;
}

/* ---- context entries, 9.1 and 9.3 ---- */

/* Returns the context entry of a device. If its bus has no context table yet, makes one. NULL:
 * there is no memory for it. */
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

int iommu_attach(struct assignment *a, struct vm *vm) {
    struct iommu_unit *u = unit_of(a->pci);
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
    if (relax && a->owner) unmap_regions(a->owner, a->pci);
}

/* ---- interrupts, 5.1.3 and 9.10 ---- */

/* Sets the entry of `vector` in unit u's table: a message by it, if it comes from device `source`,
 * interrupts pCPU `cpu`. Messages of other devices are dropped. Returns 0, or -ENODEV if entries
 * have 8 bits for APIC ids and that pCPU's id is larger. */
static int interrupt_set(struct iommu_unit *u, u32 vector, u32 source, u32 cpu, bool level) {
    u32 id = percpu_of[cpu]->apic_id;
    u64 low = PRESENT | IRTE_VECTOR(vector);

    if (!x2apic && id > XAPIC_MAX_ID) return -ENODEV;
    if (level) low |= IRTE_LEVEL;
    if (x2apic)
        low |= IRTE_X2APIC(id);
    else
        low |= IRTE_XAPIC(id);
    entry_set(u->tables->interrupts[vector], low, IRTE_SOURCE(source) | IRTE_VERIFY);
    unit_of_vector[vector] = u;
    vtd_flush(u, FLUSH_INTERRUPT(vector));
    return 0;
}

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
static int remap_pin(u32 id, u32 vector, bool level) {
    for (const struct dmar_scope *s = dmar.scope; s < dmar.scope + dmar.nr_scopes; s++) {
        if (s->of_region || s->kind != DMAR_IOAPIC || s->id != id) continue;
        if (unit[s->of].why) return 1;
        return interrupt_set(&unit[s->of], vector, scope_bdf(s), WORK_CPU, level);
    }
    return -ENODEV;
}

/* ---- faults, 7 ---- */

/* Returns the end of the sentence about a fault, which says why the access was stopped; "" if Takt
 * has no words for the reason. */
static const char *fault_reason(u32 reason) {
    if (reason <= FAULT_CONTEXT_ABSENT) return ": it is blocked";
    switch (reason) {
    case FAULT_IRQ_INDEX: return ": there are not so many";
    case FAULT_IRQ_ABSENT: return ": there is none";
    case FAULT_IRQ_FORM: return ": it is not of the form that is remapped";
    case FAULT_IRQ_SOURCE: return ": it is another device's";
    default: return "";
    }
}

/* Writes a sentence about a fault to `to`, which has `size` bytes. `source` is the bdf of the
 * device, `reason` and `info` are from the fault record, and `read` says whether the access was a
 * read. */
static void describe_fault(char *to, u32 size, u32 source, u32 reason, u64 info, bool read) {
    const char *why = fault_reason(reason), *access = "write to";
    char name[PCI_NAME];

    if (read) access = "read from";
    pci_name(source, name);
    if (reason >= FAULT_IRQ_FIRST && reason <= FAULT_IRQ_LAST)
        hv_snprintf(to, size, "PCI device %s may not interrupt by entry %u%s (VT-d fault %x)", name,
                    FAULT_IRQ_ENTRY(info), why, reason);
    else
        hv_snprintf(to, size, "PCI device %s may not %s %lx%s (VT-d fault %x)", name, access,
                    (u64)ALIGN_DOWN(info, PAGE_SIZE), why, reason);
}

/* Handles one fault record (7.3, 11.4.7.8) with the halves `info` and `high`. If a VM that has not
 * ended owns the device, the VM is ended, unless its VM file says that it should go on. Otherwise
 * the log gets a line, at most one every FAULT_SAYS for a device. */
static void on_fault(u32 segment, u64 info, u64 high) {
    u32 source = segment << 16 | RECORD_SOURCE(high);
    struct assignment *a = assignment_of(pci_find(source));
    struct vm *vm = a->owner;
    const char *whose = "nobody's";
    u64 now = now_ns();
    char text[96];

    if (vm) whose = vm->name;
    counter_inc(&dma_faults, this_cpu()->id);
    a->faults++;
    describe_fault(text, sizeof(text), source, RECORD_REASON(high), info, high & RECORD_READ);
    if (vm && vm->config.on_dma_fault == ON_DMA_FAULT_STOP &&
        (vm->state == VM_RUNNING || vm->state == VM_PAUSED)) {
        pci_write(a->pci->bdf, PCI_COMMAND, 2, pci_idle_command(a->pci));
        vm_crash(vm, "%s", text);
    } else if (!a->fault_said || now - a->fault_said >= FAULT_SAYS) {
        a->fault_said = now;
        log_warn("%s: %s; %lu so far", whose, text, a->faults);
    }
}

/* Reads all fault records of a unit that are valid, handles them if the unit is on, and clears
 * them. */
static void take_faults(struct iommu_unit *u) {
    u32 first = CAP_FAULT_RECORDS(u->cap), end = first + RECORD_SIZE * CAP_NR_RECORDS(u->cap);

    for (u32 at = first; at < end; at += RECORD_SIZE) {
        u64 high = vtd_read64(u, at + RECORD_UPPER);

        if (!(high & RECORD_VALID)) continue;
        if (u->on) on_fault(dmar.unit[u - unit].segment, vtd_read64(u, at), high);
        vtd_write(u, at + RECORD_LAST, (u32)(RECORD_VALID >> 32));
    }
    vtd_write(u, REG_FAULTS, (u32)FAULTS_LOST);
}

/* Handles the faults of all units, and masks their fault interrupts, or unmasks them. To unmask
 * comes last, since a record that is valid already raises no interrupt. */
static void faults_masked(bool masked) {
    FOR_UNITS(u) {
        if (!u->on) continue;
        if (masked) vtd_write(u, REG_FAULT_CONTROL, (u32)FAULTS_MASKED);
        take_faults(u);
        if (!masked) vtd_write(u, REG_FAULT_CONTROL, 0);
    }
}

/* A device can raise one interrupt per fault. So mask the fault interrupt, and look again after a
 * while. */
static void on_fault_interrupt(void *arg) {
    faults_masked(true);
    timer_set(WORK_CPU, &fault_timer, now_ns() + FAULT_PAUSE);
}

static void on_fault_timer(struct timer *t, u64 now) { faults_masked(false); }

/* ---- switching it on ---- */

/* Maps the unit's registers and looks at what it can do. Returns NULL, or why it is of no use. */
static const char *probe_unit(struct iommu_unit *u, u64 base) {
    u64 end;

    u->base = base;
    u->regs = mmio_map(base, PAGE_SIZE);
    if (!u->regs) return "the registers of its IOMMU cannot be mapped";
    u->cap = vtd_read64(u, REG_CAP);
    u->ecap = vtd_read64(u, REG_ECAP);
    if (!~u->cap || !u->cap) return "its IOMMU does not answer";
    if (!(u->cap & (CAP_LEVELS_3 | CAP_LEVELS_4)) || u->cap & CAP_WRITE_BUFFER ||
        !(u->ecap & ECAP_QUEUE))
        return "its IOMMU is too old";
    if (!(u->ecap & ECAP_REMAPS) || !dmar.remaps_interrupts)
        return "its IOMMU does not remap interrupts";
    end = CAP_FAULT_RECORDS(u->cap) + RECORD_SIZE * CAP_NR_RECORDS(u->cap);
    if (end > PAGE_SIZE) u->regs = mmio_map(base, end);
    if (!u->regs) return "the registers of its IOMMU cannot be mapped";
    return NULL;
}

/* Switches off what the firmware has left switched on in this unit. The queue is switched off after
 * the functions that need it. Returns false if the unit does not obey. */
static bool take_over_unit(struct iommu_unit *u) {
    static const u32 off[] = { (u32)REMAP, (u32)TRANSLATE, (u32)QUEUE, (u32)COMPATIBLE };
    u32 was = vtd_read(u, REG_STATUS) & (u32)(TRANSLATE | REMAP | QUEUE);

    if (was) log_info("firmware left the IOMMU at %lx on (%x)", dmar.unit[u - unit].base, was);
    for (u32 i = 0; i < ARRAY_SIZE(off); i++)
        if (vtd_read(u, REG_STATUS) & off[i] && !vtd_command(u, off[i], false)) return false;
    if (!(u->cap & CAP_PROTECTED) || !(vtd_read(u, REG_PROTECTED) & PROTECTED_ON)) return true;
    vtd_write(u, REG_PROTECTED, 0); /* ranges of memory that no device reaches */
    return vtd_becomes(u, REG_PROTECTED, PROTECTED_ON, 0);
}

/* Switches the unit on: first its tables and its queue, at last translation and the remapping of
 * interrupts. Returns false if the unit does not obey, or if there is no memory. */
static bool start_unit(struct iommu_unit *u) {
    hpa_t pages = frame_alloc_zeroed(1);
    struct irq_message m;
    u64 form = INTERRUPTS_SIZE_256; /* of the table of interrupts */

    if (x2apic) form |= INTERRUPTS_X2APIC;
    if (pages == HPA_NONE || irq_message(fault_vector, WORK_CPU, &m)) return false;
    u->queue = hpa_to_va(pages);
    u->done = hpa_to_va(pages + PAGE_SIZE);
    vtd_write64(u, REG_ROOT, va_to_hpa(u->tables->root));
    if (!vtd_command(u, (u32)SET_ROOT, true)) return false;
    vtd_write(u, REG_FAULTS, FAULTS_QUEUE); /* with an old error the queue would stand still */
    vtd_write(u, REG_QUEUE_TAIL, 0);
    vtd_write64(u, REG_QUEUE, pages);
    if (!vtd_command(u, (u32)QUEUE, true)) return false;
    vtd_flush(u, FLUSH_CONTEXTS);
    vtd_flush(u, FLUSH_ALL);
    vtd_write64(u, REG_INTERRUPTS, va_to_hpa(u->tables->interrupts) | form);
    if (!vtd_command(u, (u32)SET_INTERRUPTS, true)) return false;
    vtd_flush(u, FLUSH_INTERRUPTS);
    take_faults(u); /* clears old ones: the unit is not on yet */
    vtd_write(u, REG_FAULT_DATA, m.data);
    vtd_write(u, REG_FAULT_ADDR, (u32)m.addr);
    vtd_write(u, REG_FAULT_UPPER, 0);
    vtd_write(u, REG_FAULT_CONTROL, 0);
    u->on = !u->why && vtd_command(u, (u32)TRANSLATE, true) && vtd_command(u, (u32)REMAP, true);
    return u->on;
}

/* Finds the format of tables that all units understand, because they share the tables. */
static void find_common_form(void) {
    format = npt_format_vtd;
    x2apic = apic_x2;
    for (u32 i = 0; i < ARRAY_SIZE(format.right); i++)
        if (format.right[i]) format.right[i] |= SNOOP;
    FOR_UNITS(u) {
        if (u->why) continue;
        nr_domains = MIN(nr_domains, CAP_DOMAINS(u->cap));
        if (u->cap & CAP_CACHING) eager = true;
        if (!(u->cap & CAP_2M)) format.small = true;
        if (!(u->ecap & ECAP_COHERENT)) format.write_back = true;
        if (!(u->ecap & ECAP_X2APIC)) x2apic = false;
        for (u32 i = 0; i < ARRAY_SIZE(format.right) && !(u->ecap & ECAP_SNOOPS); i++)
            format.right[i] &= ~SNOOP;
    }
    vtd_write_back = format.write_back;
}

/* Returns the tables of a segment, and makes them if there are none yet. NULL: there is no
 * memory. */
static struct tables *tables_of(u32 segment) {
    struct tables *t = segments;
    hpa_t pages;

    while (t && t->segment != segment) t = t->next;
    if (t) return t;
    t = heap_alloc(sizeof(*t));
    if (!t) return NULL;
    pages = frame_alloc_zeroed(1);
    if (pages == HPA_NONE) {
        heap_free(t);
        return NULL;
    }
    *t = (struct tables){ segments, segment, hpa_to_va(pages), hpa_to_va(pages + PAGE_SIZE) };
    vtd_publish(t->root, 2 * PAGE_SIZE);
    segments = t;
    return t;
}

/* Lets devices reach the memory that firmware reserves for them (8.4), so that firmware can go on
 * using them until a VM gets them. A domain of its own, FIRMWARE, holds all these regions. The
 * firmware's table may contain errors, so a region that is RAM, or does not consist of whole pages,
 * is not mapped. Returns 0, or -ENOMEM. */
static int map_regions(const struct memmap *ram) {
    struct iommu_domain *m;

    if (!dmar.nr_regions) return 0;
    m = make_domain();
    if (!m) return -ENOMEM;
    for (u32 i = 0; i < dmar.nr_regions; i++) {
        u64 first = dmar.region[i].first, len = dmar.region[i].last + 1 - first;

        if (dmar.region[i].odd || dmar.region[i].last >= NPT_LIMIT)
            log_warn("a region of firmware's table is ignored: %lx to %lx are not whole pages",
                     first, dmar.region[i].last);
        else if (memmap_overlaps(ram, first, first + len))
            log_warn("a region of firmware's table is ignored: there is RAM at %lx", first);
        else if (npt_map(&m->npt, first, first, len, NPT_RW, NPT_WB))
            return -ENOMEM;
        else
            regions_believed |= 1u << i;
    }
    FOR_ASSIGNMENTS(a) {
        struct iommu_unit *u = unit_of(a->pci);

        if (!u || u->why || !scope_of(a->pci, true)) continue;
        if (context_attach(a, u, m)) return -ENOMEM;
        a->iommu = NULL; /* context_attach() has set it, but no VM has the device */
    }
    return 0;
}

void iommu_read(const struct acpi_info *a, bool relax_rmrr) {
    relax = relax_rmrr;
    if (a->dmar) dmar_parse(&dmar, a->dmar, a->dmar_len);
}

bool iommu_firmware_uses(const struct pci_device *d) { return scope_of(d, true) != NULL; }

u64 iommu_faults(const struct pci_device *d) { return assignment_of(d)->faults; }

/* Looks at all units and prepares what they share. Returns why this machine's IOMMU is not used at
 * all. Returns NULL otherwise; a unit that is not used then has the reason in its own `why`. */
static const char *prepare_units(const struct acpi_info *a) {
    bool usable = false;

    if (a->ivrs) return "this kind of IOMMU is not known";
    if (!a->dmar) return why_off;
    if (dmar.unsure && !dmar.nr_units) return "firmware's table of IOMMUs is malformed";
    if (dmar.lost_regions)
        log_warn(
            "%u of the regions of memory that firmware's table reserves for devices are malformed",
            dmar.lost_regions);
    FOR_UNITS(u) {
        u->why = dmar.unit[u - unit].odd;
        if (!u->why) u->why = probe_unit(u, dmar.unit[u - unit].base);
        if (u->why) log_warn("%s: the unit at %lx is not used", u->why, dmar.unit[u - unit].base);
        if (!u->why) usable = true;
    }
    if (!usable) return NULL; /* each unit says why */
    find_common_form();
    FOR_UNITS(u) {
        if (u->why) continue;
        u->tables = tables_of(dmar.unit[u - unit].segment);
        if (!u->tables) return "there is no memory for its tables";
    }
    fault_vector = irq_alloc(on_fault_interrupt, NULL);
    if (fault_vector < 0) return "there is no interrupt left for its faults";
    timer_init(&fault_timer, on_fault_timer);
    return NULL;
}

static void log_unit(const struct iommu_unit *u) {
    const char *pages = "4 KiB", *coherent = "not coherent", *ids = "xAPIC";

    if (u->cap & CAP_2M) pages = "2 MiB";
    if (u->ecap & ECAP_COHERENT) coherent = "coherent";
    if (x2apic) ids = "x2APIC";
    log_info("the IOMMU at %lx: %s pages, %s, %s ids", u->base, pages, coherent, ids);
}

/* Switches a unit on. Returns NULL, or why it is not in use. */
static const char *switch_unit_on(struct iommu_unit *u) {
    if (!take_over_unit(u) || !start_unit(u)) {
        vtd_command(u, (u32)TRANSLATE, false);
        u->on = vtd_read(u, REG_STATUS) & TRANSLATE; /* if it stays on, it blocks all its devices */
        return "its IOMMU cannot be switched on";
    }
    log_unit(u);
    return NULL;
}

const char *iommu_init(const struct acpi_info *a, const struct memmap *ram) {
    const char *why = prepare_units(a);

    if (!why && map_regions(ram)) why = "there is no memory for its tables";
    FOR_UNITS(u) {
        if (!why && !u->why) u->why = switch_unit_on(u);
        if (!on && u->why) why_off = u->why;
        if (u->on) on = true;
    }
    if (on) irq_remap_pin = remap_pin;
    if (why) why_off = why;
    if (on) return NULL;
    return why_off;
}
