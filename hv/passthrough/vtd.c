/* Lock order: a domain's page tables, then the queue of a unit; both leaves. Tables that all
 * units of a segment use are written on the housekeeping pCPU alone: one root table, a context
 * table a bus, and one table of interrupts, in which the entry of a vector has the vector's
 * number. Segments do not share them, as a unit knows a device by bus, device and function,
 * which two segments may both have. */
#include "passthrough/vtd.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/npt.h"
#include "platform/apic.h"
#include "platform/hostmap.h"
#include "trace/trace.h"
#include "vm/vm.h"
#include "x86/cpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(dma_faults);
DEFINE_COUNTER(iommu_flushes);

/* VT-d 11.4 */
enum { REG_CAP = 0x08, REG_ECAP = 0x10, REG_COMMAND = 0x18, REG_STATUS = 0x1c, REG_ROOT = 0x20 };
enum { REG_FAULTS = 0x34, REG_FAULT_CONTROL = 0x38, REG_FAULT_DATA = 0x3c, REG_FAULT_ADDR = 0x40 };
enum { REG_FAULT_UPPER = 0x44, REG_PROTECTED = 0x64, REG_QUEUE_TAIL = 0x88, REG_QUEUE = 0x90 };
enum { REG_INTERRUPTS = 0xb8 };

/* of the command register, and of the status register when it is so */
#define TRANSLATE        BIT(31)
#define SET_ROOT         BIT(30)
#define QUEUE            BIT(26)
#define REMAP            BIT(25)
#define SET_INTERRUPTS   BIT(24)
#define COMPATIBLE       BIT(23)     /* interrupts that are not remapped pass */
#define LASTING          0x96ffffffu /* the others are asked for once */

#define CAP_WRITE_BUFFER BIT(4)
#define CAP_CACHING      BIT(7) /* caches what is not present, too */
#define CAP_LEVELS_3     BIT(9)
#define CAP_LEVELS_4     BIT(10)
#define CAP_2M           BIT(34)
#define ECAP_COHERENT    BIT(0)
#define ECAP_QUEUE       BIT(1)
#define ECAP_REMAPS      BIT(3)
#define ECAP_X2APIC      BIT(4)
#define ECAP_SNOOPS      BIT(7)

#define FAULTS_QUEUE     (7u << 4) /* of REG_FAULTS: the queue's own */
#define FAULTS_LOST      BIT(0)
#define FAULTS_MASKED    BIT(31) /* of REG_FAULT_CONTROL */
#define FAULT_VALID      BIT(31) /* of a record's last word; and of its upper half */
#define FAULT_READ       BIT(62)

/* descriptors of the queue, 6.5.2 */
#define FLUSH_CONTEXTS          (1ull | 1u << 4) /* all */
#define FLUSH_ALL               (2ull | 1u << 4 | DRAIN)
#define FLUSH_DOMAIN(id)        (2ull | 2u << 4 | DRAIN | (id) << 16)
#define DRAIN                   (3u << 6) /* with reads and writes that are under way */
#define FLUSH_INTERRUPTS        4ull      /* all; and that of one vector, 6.5.2.7 */
#define FLUSH_INTERRUPT(vector) (4ull | 1u << 4 | (u64)(vector) << 32)
#define WAIT(serial)            (5ull | 1u << 5 | (u64)(serial) << 32)

#define PRESENT                 1ull
#define SNOOP                   BIT(11)      /* of a leaf: devices cannot pass by the caches */
#define VERIFY_SOURCE           (1ull << 18) /* of an interrupt's entry: all bits of it, 9.10 */

#define QUEUE_ENTRIES           256u
#define PATIENCE                10000u /* reads of a register, some 100 ns to 1 us each */
#define MAX_DOMAINS             64u
#define FIRMWARE                1u /* its domain; 0 is for nobody, 6.1 */
#define CHUNKS_A_PART           64u
#define REGION_PART             (256ull << 10) /* of a region that firmware reserves, mapped in one part */
#define REGION_MAX              (16ull << 20)  /* it is unmapped in one */
#define FAULT_PAUSE             NS_PER_MS      /* from one interrupt about faults to the next */
#define FAULT_SAYS              NS_PER_S       /* from one sentence about a device to the next */

struct tables {
    struct tables *next;
    u32 segment;
    u64 (*root)[2], (*interrupts)[2];
};

struct iommu_unit {
    volatile u8 *regs; /* NULL: of no use */
    const char *why;   /* it confines nobody; NULL: it does */
    bool on;           /* it translates */
    u64 cap, ecap;
    struct tables *tables;
    struct spinlock lock; /* of the queue */
    u64 (*queue)[2];
    volatile u32 *done; /* the serial number of the last wait that is over */
    u32 tail, serial;
};

struct iommu_domain {
    u32 id, chunks;    /* of RAM that is mapped */
    u32 regions;       /* of those that firmware reserves: a bit each that is mapped ... */
    u64 region_mapped; /* ... and how much of the next one */
    struct npt npt;
};

static struct dmar_info dmar;
static struct iommu_unit unit[DMAR_MAX_UNITS];
static u32 regions_believed;   /* a bit each: those that devices are let reach */
static bool relax;             /* devices that firmware goes on using may be given */
static bool on, x2apic, eager; /* some unit is; APICs' ids have 32 bits; what is added is flushed, too */
static const char *why_off = "no IOMMU is in use";
static struct npt_format format;
static struct iommu_domain *domain[MAX_DOMAINS];
static u32 nr_domains = MAX_DOMAINS;
static struct tables *segments;
static struct iommu_unit *unit_of_vector[256]; /* whose requests use that entry; NULL: none does */
static int fault_vector;
static struct timer fault_timer;

#define FOR_UNITS(u) for (struct iommu_unit *u = unit; u < unit + dmar.nr_units; u++)

/* ---- a unit ---- */

static u32 get(const struct iommu_unit *u, u32 reg) { return mmio_read32(u->regs + reg); }

static u64 get64(const struct iommu_unit *u, u32 reg) { return get(u, reg) | (u64)get(u, reg + 4) << 32; }

static void set(const struct iommu_unit *u, u32 reg, u32 v) { mmio_write32(u->regs + reg, v); }

static void set64(const struct iommu_unit *u, u32 reg, u64 v) {
    set(u, reg, (u32)v);
    set(u, reg + 4, (u32)(v >> 32));
}

static bool becomes(const struct iommu_unit *u, u32 reg, u32 bits, u32 value) {
    for (u32 i = 0; i < PATIENCE; i++)
        if ((get(u, reg) & bits) == value) return true;
    return false;
}

/* 11.4.4.1: one bit at a time. */
static bool command(const struct iommu_unit *u, u32 bit, bool yes) {
    u32 now = get(u, REG_STATUS) & (u32)LASTING & ~bit;

    set(u, REG_COMMAND, now | (yes ? bit : 0));
    return becomes(u, REG_STATUS, bit, yes ? bit : 0);
}

static void publish(const volatile void *p, u64 len) {
    if (format.write_back) cache_write_back((const void *)p, len);
}

static void submit(struct iommu_unit *u, u64 low, u64 high) {
    u->queue[u->tail][0] = low;
    u->queue[u->tail][1] = high;
    publish(u->queue[u->tail], 16);
    u->tail = (u->tail + 1) % QUEUE_ENTRIES;
}

static void on_trouble(struct timer *t, u64 now);
static struct timer trouble = { .fn = on_trouble };

/* Asks the unit to forget what descriptor `what` (6.5.2) names, and waits until it has. One wait
 * each: the unit may do descriptors in any order unless a wait is between them, and the IOTLB must
 * be flushed after the contexts are, or translations that it fetches by an old context meanwhile
 * stay in it (6.5.2.8).
 *
 * If the unit does not answer we never wait for it again. Its old entries may live on, so all
 * its devices lose the right to be master at once, and their VMs are stopped. */
static void flush(struct iommu_unit *u, u64 what) {
    bool done = false;

    if (u->why || !u->queue) return;
    counter_inc(&iommu_flushes, this_cpu()->id);
    spin_lock(&u->lock);
    submit(u, what, 0);
    u->serial++;
    submit(u, WAIT(u->serial), va_to_hpa((const void *)u->done));
    set(u, REG_QUEUE_TAIL, u->tail * 16);
    for (u32 i = 0; i < PATIENCE && !done && !(get(u, REG_FAULTS) & FAULTS_QUEUE); i++)
        done = *u->done == u->serial;
    done |= *u->done == u->serial;
    if (!done) u->why = "its IOMMU does not answer any more";
    spin_unlock(&u->lock);
    if (done) return;
    log_err("the IOMMU at %lx does not answer: its devices are taken away", dmar.unit[u - unit].base);
    FOR_ASSIGNMENTS(a) {
        if (a->iommu == u) pci_write(a->pci->bdf, PCI_COMMAND, 2, pci_idle_command(a->pci));
    }
    timer_set(WORK_CPU, &trouble, now_ns());
}

/* After the context entry of a device in this domain has changed. */
static void flush_context(struct iommu_unit *u, u32 domain_id) {
    flush(u, FLUSH_CONTEXTS);
    flush(u, FLUSH_DOMAIN(domain_id));
}

static void on_trouble(struct timer *t, u64 now) {
    FOR_ASSIGNMENTS(a) {
        if (!a->iommu || !a->iommu->why || !a->owner) continue;
        assign_off(a, false); /* its VM may have made it master again meanwhile */
        vm_crash(a->owner, NULL, "the IOMMU of its devices does not answer any more");
    }
}

/* ---- whose is a device? ---- */

static u32 scope_segment(const struct dmar_scope *s) {
    return s->of_region ? dmar.region[s->of].segment : dmar.unit[s->of].segment;
}

/* 8.3.1: where the path leads; ~0: nowhere. */
static u32 scope_bdf(const struct dmar_scope *s) {
    u32 segment = scope_segment(s) << 16, bus = s->bus, bdf = ~0u;

    for (u32 i = 0; i < s->hops; i++) {
        if (i && (pci_read(bdf, PCI_HEADER, 1) & 0x7f) != 1) return ~0u;
        if (i) bus = pci_read(bdf, PCI_SECONDARY, 1);
        bdf = segment | PCI_BDF(bus, s->path[i][0] & 31, s->path[i][1] & 7);
    }
    return bdf;
}

static bool covers(const struct dmar_scope *s, u32 bdf) {
    u32 at = scope_bdf(s);

    if (at == bdf) return s->kind == DMAR_ENDPOINT || s->kind == DMAR_BRIDGE;
    return s->kind == DMAR_BRIDGE && at != ~0u && at >> 16 == bdf >> 16 &&
           (bdf >> 8 & 0xff) >= pci_read(at, PCI_SECONDARY, 1) &&
           (bdf >> 8 & 0xff) <= pci_read(at, PCI_SUBORDINATE, 1);
}

/* What the tables say of a device, of its unit or of a region: of a virtual function that of the physical
 * one, which alone they may name. */
static const struct dmar_scope *scope_of(const struct pci_device *d, bool region) {
    u32 bdf = d->pf ? d->pf->bdf : d->bdf;

    for (const struct dmar_scope *s = dmar.scope; s < dmar.scope + dmar.nr_scopes; s++)
        if (s->of_region == region && covers(s, bdf)) return s;
    return NULL;
}

static struct iommu_unit *unit_of(const struct pci_device *d) {
    const struct dmar_scope *s = scope_of(d, false);

    if (s) return &unit[s->of];
    FOR_UNITS(u)
    if (dmar.unit[u - unit].all && dmar.unit[u - unit].segment == d->bdf >> 16) return u;
    return NULL;
}

/* A unit that is said to have all other devices: may this one be another unit's all the same,
 * whose entry could not be read? */
static bool is_unsure(const struct pci_device *d) {
    if (scope_of(d, false)) return false;
    for (u32 i = 0; i < dmar.nr_units; i++)
        if (dmar.unit[i].unsure && dmar.unit[i].segment == d->bdf >> 16) return true;
    return dmar.unsure;
}

/* Is this region one of the device's? */
static bool has_region(const struct pci_device *d, u32 n) {
    u32 bdf = d->pf ? d->pf->bdf : d->bdf;

    for (const struct dmar_scope *s = dmar.scope; s < dmar.scope + dmar.nr_scopes; s++)
        if (s->of_region && s->of == n && covers(s, bdf)) return true;
    return false;
}

/* Was it mapped at boot, or is it not believed? */
static bool region_is_good(u32 n) { return regions_believed >> n & 1; }

static u64 region_len(u32 n) { return dmar.region[n].last + 1 - dmar.region[n].first; }

static const char *region_refused(const struct pci_device *d) {
    if (!relax) return "firmware goes on using it (RMRR; relax_rmrr allows it)";
    for (u32 n = 0; n < dmar.nr_regions; n++)
        if (has_region(d, n) && region_is_good(n) && region_len(n) > REGION_MAX)
            return "firmware reserves more than 16 MiB of memory for it (RMRR)";
    return NULL;
}

bool iommu_blocks(const struct pci_device *d) {
    const struct iommu_unit *u = on ? unit_of(d) : NULL;

    return u && u->on && !is_unsure(d);
}

const char *iommu_refused(const struct pci_device *d) {
    const struct iommu_unit *u = on ? unit_of(d) : NULL;

    if (!on) return why_off;
    if (!u) return "no IOMMU is said to have it";
    if (is_unsure(d)) return "firmware's table of IOMMUs has a malformed entry";
    if (!u->why && scope_of(d, true)) return region_refused(d);
    return u->why;
}

/* ---- what a VM's devices reach ---- */

static struct iommu_domain *make_domain(void) {
    struct iommu_domain *m = heap_alloc(sizeof(*m));
    u32 id = FIRMWARE;

    while (id < nr_domains && domain[id]) id++;
    if (!m || id == nr_domains || npt_init(&m->npt, &format)) {
        heap_free(m);
        return NULL;
    }
    m->id = id;
    return domain[id] = m;
}

/* From here on windows are put into it; they do not come nor go meanwhile. */
static int begin_domain(struct vm *vm) {
    int err = 0;

    spin_lock(&backend_lock);
    if (vm->back.nr_windows)
        err = assign_refuse(vm, -EBUSY,
                            "it has other VMs' RAM already, which its first device would not reach");
    else if (!(vm->dma = make_domain()))
        err = assign_refuse(vm, -ENOMEM, "there is no memory for what its devices reach");
    spin_unlock(&backend_lock);
    return err;
}

/* The next part of what firmware reserves for the device: 1 if there is more. */
static int map_region(struct vm *vm, const struct pci_device *d) {
    struct iommu_domain *m = vm->dma;
    u64 high_end = TAKT_HIGH_RAM + vm->mem.size - vm->mem.low_size, first, len;
    u32 n = 0;

    while (n < dmar.nr_regions && (m->regions >> n & 1 || !region_is_good(n) || !has_region(d, n))) n++;
    if (n == dmar.nr_regions) return 0;
    first = dmar.region[n].first;
    if (first < vm->mem.low_size || (first + region_len(n) > TAKT_HIGH_RAM && first < high_end) ||
        first + region_len(n) > TAKT_BAR_GPA)
        return assign_refuse(vm, -EINVAL,
                             "memory that firmware reserves for PCI device %s lies where this VM has its own",
                             d->name);
    len = MIN(region_len(n) - m->region_mapped, REGION_PART);
    first += m->region_mapped;
    if (npt_map(&m->npt, first, first, len, NPT_RW, NPT_WB)) return -ENOMEM;
    m->region_mapped += len;
    if (m->region_mapped == region_len(n)) {
        m->regions |= 1u << n;
        m->region_mapped = 0;
        log_warn("%s: relax_rmrr: who controls this VM can read and write %lx to %lx, which firmware"
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

/* Also one that was mapped in part. */
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
    FOR_UNITS(u) flush(u, FLUSH_DOMAIN(m->id));
}

int iommu_prepare(struct vm *vm, const struct pci_device *d) {
    u32 part = format.small ? 1 : CHUNKS_A_PART;
    int err = vm->dma ? 0 : begin_domain(vm);
    struct iommu_domain *m = vm->dma;

    if (err) return err;
    for (u32 i = 0; i < part && m->chunks < vm->mem.grown; i++, m->chunks++)
        if (npt_map(&m->npt, guestmem_chunk_gpa(&vm->mem, m->chunks), vm->mem.chunk[m->chunks], CHUNK_SIZE,
                    NPT_RW, NPT_WB))
            return -ENOMEM;
    return m->chunks < vm->mem.grown ? 1 : map_region(vm, d);
}

void iommu_release(struct vm *vm) {
    struct iommu_domain *m = vm->dma;

    if (!m) return;
    domain[m->id] = NULL;
    npt_fini(&m->npt);
    heap_free(m);
    vm->dma = NULL;
}

int iommu_map(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len) {
    struct iommu_domain *m = vm->dma;
    u64 before = m ? m->npt.tlb.current : 0;
    int err;

    if (!m) return 0;
    err = hpa == HPA_NONE ? npt_unmap(&m->npt, gpa, len) : npt_map(&m->npt, gpa, hpa, len, NPT_RW, NPT_WB);
    if (eager || m->npt.tlb.current != before) FOR_UNITS(u) flush(u, FLUSH_DOMAIN(m->id));
    return err;
}

/* ---- context entries, 9.1 and 9.3 ---- */

static u64 *context_of(const struct iommu_unit *u, u32 bdf) {
    u64 *bus = u->tables->root[bdf >> 8 & 0xff], (*table)[2];

    if (!(*bus & PRESENT)) {
        hpa_t pa = frame_alloc_zeroed(0);

        if (pa == HPA_NONE) return NULL;
        publish(hpa_to_va(pa), PAGE_SIZE);
        *bus = pa | PRESENT;
        publish(bus, 16);
    }
    table = hpa_to_va(*bus & ~(PAGE_SIZE - 1));
    return table[bdf & 0xff];
}

/* Of contexts and of interrupts: the upper half is written while the entry is not present, or as it was. */
static void entry_set(u64 *e, u64 low, u64 high) {
    if (low) e[1] = high;
    __atomic_store_n(&e[0], low, __ATOMIC_RELEASE);
    publish(e, 16);
}

/* A unit whose tables have three levels begins with the second of ours, which covers 512 GiB, if it is there:
 * a device that reaches nothing stays blocked. */
static int attach(struct assignment *a, struct iommu_unit *u, const struct iommu_domain *m) {
    u64 *e = context_of(u, a->pci->bdf), *top = hpa_to_va(m->npt.root);
    bool four = u->cap & CAP_LEVELS_4;
    hpa_t table = four ? m->npt.root : *top & ~(PAGE_SIZE - 1);

    if (!e) return -ENOMEM;
    if (table) entry_set(e, table | PRESENT, m->id << 8 | (four ? 2 : 1));
    a->iommu = u;
    flush_context(u, m->id);
    return u->why ? -EIO : 0;
}

int iommu_attach(struct assignment *a, struct vm *vm) {
    struct iommu_unit *u = unit_of(a->pci);
    u64 *e = context_of(u, a->pci->bdf);

    a->faults = 0;
    if (e && *e & PRESENT) { /* that of the domain FIRMWARE, from boot */
        entry_set(e, 0, 0);
        flush_context(u, FIRMWARE);
    }
    return attach(a, u, vm->dma);
}

void iommu_detach(struct assignment *a) {
    u64 *e;

    if (a->iommu) {
        e = context_of(a->iommu, a->pci->bdf);
        entry_set(e, 0, 0);
        flush_context(a->iommu, (u32)(e[1] >> 8));
        a->iommu = NULL;
    }
    if (relax && a->owner) unmap_regions(a->owner, a->pci);
}

/* ---- interrupts, 5.1.3 and 9.10 ---- */

/* Requests of `source`, which come by unit u, with the entry of this vector interrupt `cpu`.
 * Posted interrupts (5.2) would have another form of entry. */
static int interrupt_set(struct iommu_unit *u, u32 vector, u32 source, u32 cpu, bool level) {
    u32 id = percpu_of[cpu]->apic_id;

    if (!x2apic && id > 254) return -ENODEV;
    entry_set(u->tables->interrupts[vector],
              PRESENT | (u64)level << 4 | vector << 16 | (u64)(x2apic ? id : id << 8) << 32,
              (source & 0xffff) | VERIFY_SOURCE);
    unit_of_vector[vector] = u;
    flush(u, FLUSH_INTERRUPT(vector));
    return 0;
}

int iommu_irq(const struct assignment *a, u32 vector, u32 cpu, struct irq_message *m) {
    int err;

    if (!a->iommu) return irq_message((int)vector, cpu, m);
    err = interrupt_set(a->iommu, vector, a->pci->bdf, cpu, false);
    m->addr = 0xfee00000 | BIT(4) | BIT(3) | vector << 5; /* remapped, with a subhandle, which is 0 */
    m->data = 0;
    if (err) return err;
    return a->iommu->why ? -EIO : 0;
}

void iommu_irq_free(u32 vector) {
    struct iommu_unit *u = unit_of_vector[vector];

    if (!u) return;
    entry_set(u->tables->interrupts[vector], 0, 0);
    unit_of_vector[vector] = NULL;
    flush(u, FLUSH_INTERRUPT(vector));
}

static int remap_pin(u32 id, u32 vector, bool level) {
    for (const struct dmar_scope *s = dmar.scope; s < dmar.scope + dmar.nr_scopes; s++)
        if (!s->of_region && s->kind == DMAR_IOAPIC && s->id == id)
            return unit[s->of].why ? 1 : interrupt_set(&unit[s->of], vector, scope_bdf(s), WORK_CPU, level);
    return -ENODEV;
}

/* ---- faults, 7 ---- */

static void say(char *to, u32 size, u32 source, u32 reason, u64 info, bool read) {
    static const char *const what[] = { [0x21] = "there are not so many",
                                        [0x22] = "there is none",
                                        [0x25] = "it is not of the form that is remapped",
                                        [0x26] = "it is another device's" };
    const char *known = reason < ARRAY_SIZE(what) ? what[reason] : NULL;
    char name[PCI_NAME];

    pci_name(source, name);
    if (reason >= 0x20 && reason < 0x30)
        hv_snprintf(to, size, "PCI device %s may not interrupt by entry %u%s%s (VT-d fault %x)", name,
                    (u32)(info >> 48), known ? ": " : "", known ? known : "", reason);
    else
        hv_snprintf(to, size, "PCI device %s may not %s %lx%s (VT-d fault %x)", name,
                    read ? "read from" : "write to", (u64)ALIGN_DOWN(info, PAGE_SIZE),
                    reason < 3 ? ": it is blocked" : "", reason);
}

/* 7.3, 11.4.13: of a VM that runs it is the end, unless its file wants it otherwise. */
static void on_fault(u32 segment, u64 info, u64 high) {
    u32 source = segment << 16 | (high & 0xffff);
    struct assignment *a = assignment_of(pci_find(source));
    struct vm *vm = a->owner;
    u64 now = now_ns();
    char text[96];

    counter_inc(&dma_faults, this_cpu()->id);
    a->faults++;
    say(text, sizeof(text), source, high >> 32 & 0xff, info, high & FAULT_READ);
    if (vm && vm->config.on_dma_fault == ON_DMA_FAULT_STOP &&
        (vm->state == VM_RUNNING || vm->state == VM_PAUSED)) {
        pci_write(a->pci->bdf, PCI_COMMAND, 2, pci_idle_command(a->pci));
        vm_crash(vm, NULL, "%s", text);
    } else if (!a->fault_said || now - a->fault_said >= FAULT_SAYS) {
        a->fault_said = now;
        log_warn("%s: %s; %lu so far", vm ? vm->name : "nobody's", text, a->faults);
    }
}

static void take_faults(struct iommu_unit *u) {
    u32 first = (u32)(u->cap >> 24 & 0x3ff) * 16, n = (u32)(u->cap >> 40 & 0xff) + 1;

    for (u32 at = first; at < first + 16 * n; at += 16) {
        u64 high = get64(u, at + 8);

        if (!(high >> 32 & FAULT_VALID)) continue;
        if (u->on) on_fault(dmar.unit[u - unit].segment, get64(u, at), high);
        set(u, at + 12, (u32)FAULT_VALID);
    }
    set(u, REG_FAULTS, (u32)FAULTS_LOST);
}

static void faults_masked(bool masked) {
    FOR_UNITS(u) {
        if (!u->on) continue;
        if (masked) set(u, REG_FAULT_CONTROL, (u32)FAULTS_MASKED);
        take_faults(u);
        if (!masked) set(u, REG_FAULT_CONTROL, 0);
    }
}

/* However many there are, there are so many interrupts. */
static void on_fault_interrupt(void *arg) {
    faults_masked(true);
    timer_set(WORK_CPU, &fault_timer, now_ns() + FAULT_PAUSE);
}

static void on_fault_timer(struct timer *t, u64 now) { faults_masked(false); }

/* ---- switching it on ---- */

static const char *probe(struct iommu_unit *u, u64 base) {
    u64 end;

    u->regs = mmio_map(base, PAGE_SIZE);
    if (!u->regs) return "the registers of its IOMMU are nowhere";
    u->cap = get64(u, REG_CAP);
    u->ecap = get64(u, REG_ECAP);
    if (!~u->cap || !u->cap) return "its IOMMU does not answer";
    if (!(u->cap & (CAP_LEVELS_3 | CAP_LEVELS_4)) || u->cap & CAP_WRITE_BUFFER || !(u->ecap & ECAP_QUEUE))
        return "its IOMMU is too old";
    if (!(u->ecap & ECAP_REMAPS) || !dmar.remaps_interrupts) return "its IOMMU does not remap interrupts";
    end = (u->cap >> 24 & 0x3ff) * 16 + ((u->cap >> 40 & 0xff) + 1) * 16;
    if (end > PAGE_SIZE) u->regs = mmio_map(base, end);
    if (!u->regs) return "the registers of its IOMMU are nowhere";
    return NULL;
}

/* What firmware left on, in an order in which nothing is cut off that a later step needs. */
static bool take_over(struct iommu_unit *u) {
    static const u32 off[] = { (u32)REMAP, (u32)TRANSLATE, (u32)QUEUE, (u32)COMPATIBLE };
    u32 was = get(u, REG_STATUS) & (u32)(TRANSLATE | REMAP | QUEUE);

    if (was) log_info("firmware left the IOMMU at %lx on (%x)", dmar.unit[u - unit].base, was);
    for (u32 i = 0; i < ARRAY_SIZE(off); i++)
        if (get(u, REG_STATUS) & off[i] && !command(u, off[i], false)) return false;
    if (!(u->cap & (3u << 5)) || !(get(u, REG_PROTECTED) & 1)) return true;
    set(u, REG_PROTECTED, 0); /* 11.4.11: ranges of memory that no device reaches */
    return becomes(u, REG_PROTECTED, 1, 0);
}

static bool start(struct iommu_unit *u) {
    hpa_t pages = frame_alloc_zeroed(1);
    struct irq_message m;

    if (pages == HPA_NONE || irq_message(fault_vector, WORK_CPU, &m)) return false;
    u->queue = hpa_to_va(pages);
    u->done = hpa_to_va(pages + PAGE_SIZE);
    set64(u, REG_ROOT, va_to_hpa(u->tables->root));
    if (!command(u, (u32)SET_ROOT, true)) return false;
    set(u, REG_FAULTS, FAULTS_QUEUE); /* an error of before: the queue would stand still */
    set(u, REG_QUEUE_TAIL, 0);
    set64(u, REG_QUEUE, pages);
    if (!command(u, (u32)QUEUE, true)) return false;
    flush(u, FLUSH_CONTEXTS);
    flush(u, FLUSH_ALL);
    set64(u, REG_INTERRUPTS, va_to_hpa(u->tables->interrupts) | (u64)x2apic << 11 | 7); /* 2^8 entries */
    if (!command(u, (u32)SET_INTERRUPTS, true)) return false;
    flush(u, FLUSH_INTERRUPTS);
    take_faults(u); /* of before */
    set(u, REG_FAULT_DATA, m.data);
    set(u, REG_FAULT_ADDR, (u32)m.addr);
    set(u, REG_FAULT_UPPER, 0);
    set(u, REG_FAULT_CONTROL, 0);
    u->on = !u->why && command(u, (u32)TRANSLATE, true) && command(u, (u32)REMAP, true);
    return u->on;
}

/* What all units can do: they share the tables. */
static void common_form(void) {
    format = npt_format_vtd;
    x2apic = apic_x2;
    for (u32 i = 0; i < ARRAY_SIZE(format.right); i++) format.right[i] |= format.right[i] ? SNOOP : 0;
    FOR_UNITS(u) {
        if (u->why) continue;
        nr_domains = MIN(nr_domains, 1u << (4 + 2 * (u->cap & 7)));
        eager |= u->cap & CAP_CACHING;
        format.small |= !(u->cap & CAP_2M);
        format.write_back |= !(u->ecap & ECAP_COHERENT);
        x2apic &= u->ecap >> 4 & 1;
        for (u32 i = 0; i < ARRAY_SIZE(format.right) && !(u->ecap & ECAP_SNOOPS); i++)
            format.right[i] &= ~SNOOP;
    }
}

/* Those of the unit's segment; NULL: there is no memory. */
static struct tables *tables_of(u32 segment) {
    struct tables *t = segments;
    hpa_t pages;

    while (t && t->segment != segment) t = t->next;
    if (t) return t;
    t = heap_alloc(sizeof(*t));
    pages = t ? frame_alloc_zeroed(1) : HPA_NONE;
    if (pages == HPA_NONE) {
        heap_free(t);
        return NULL;
    }
    *t = (struct tables){ segments, segment, hpa_to_va(pages), hpa_to_va(pages + PAGE_SIZE) };
    publish(t->root, 2 * PAGE_SIZE);
    return segments = t;
}

/* 8.4: in a domain of its own, if nothing else can be there. */
static int map_regions(const struct memmap *ram) {
    struct iommu_domain *m = dmar.nr_regions ? make_domain() : NULL;

    for (u32 i = 0; i < dmar.nr_regions; i++) {
        u64 first = dmar.region[i].first, len = dmar.region[i].last + 1 - first;

        if (!m) return -ENOMEM;
        if (dmar.region[i].odd || dmar.region[i].last >= NPT_LIMIT)
            log_warn("firmware's table wants devices to reach %lx to %lx, which are no pages: they do not",
                     first, dmar.region[i].last);
        else if (memmap_overlaps(ram, first, first + len))
            log_warn("firmware wants devices to reach %lx, which is RAM: they do not", first);
        else if (npt_map(&m->npt, first, first, len, NPT_RW, NPT_WB))
            return -ENOMEM;
        else
            regions_believed |= 1u << i;
    }
    if (!m) return 0;
    FOR_ASSIGNMENTS(a) {
        struct iommu_unit *u = unit_of(a->pci);

        if (!u || u->why || !scope_of(a->pci, true)) continue;
        if (attach(a, u, m)) return -ENOMEM;
        a->iommu = NULL; /* it is nobody's */
    }
    return 0;
}

void iommu_read(const struct acpi_info *a, bool relax_rmrr) {
    relax = relax_rmrr;
    if (a->dmar) dmar_parse(&dmar, a->dmar, a->dmar_len);
}

bool iommu_firmware_uses(const struct pci_device *d) { return scope_of(d, true); }

u64 iommu_faults(const struct pci_device *d) { return assignment_of(d)->faults; }

static const char *init(const struct acpi_info *a) {
    bool usable = false;

    if (a->ivrs) return "this kind of IOMMU is not known";
    if (!a->dmar) return why_off;
    if (dmar.unsure && !dmar.nr_units) return "firmware's table of IOMMUs is malformed";
    if (dmar.lost_regions)
        log_warn("%u of the regions of memory that firmware's table reserves for devices are malformed",
                 dmar.lost_regions);
    FOR_UNITS(u) {
        u->why = dmar.unit[u - unit].odd;
        if (!u->why) u->why = probe(u, dmar.unit[u - unit].base);
        if (u->why) log_warn("%s: the unit at %lx is not used", u->why, dmar.unit[u - unit].base);
        usable |= !u->why;
    }
    if (!usable) return NULL; /* each unit says why */
    common_form();
    FOR_UNITS(u) {
        if (!u->why && !(u->tables = tables_of(dmar.unit[u - unit].segment)))
            return "there is no memory for its tables";
    }
    fault_vector = irq_alloc(on_fault_interrupt, NULL);
    if (fault_vector < 0) return "there is no interrupt left for its faults";
    timer_init(&fault_timer, on_fault_timer);
    return NULL;
}

static const char *switch_on(struct iommu_unit *u) {
    if (!take_over(u) || !start(u)) {
        command(u, (u32)TRANSLATE, false);
        u->on = get(u, REG_STATUS) & TRANSLATE; /* then all is blocked */
        return "its IOMMU cannot be switched on";
    }
    log_info("the IOMMU at %lx: %s pages, %scoherent, %s ids", dmar.unit[u - unit].base,
             u->cap & CAP_2M ? "2 MiB" : "4 KiB", u->ecap & ECAP_COHERENT ? "" : "not ",
             x2apic ? "x2APIC" : "xAPIC");
    return NULL;
}

const char *iommu_init(const struct acpi_info *a, const struct memmap *ram) {
    const char *why = init(a);

    if (!why && map_regions(ram)) why = "there is no memory for its tables";
    FOR_UNITS(u) {
        if (!why && !u->why) u->why = switch_on(u);
        if (!on && u->why) why_off = u->why;
        on |= u->on;
    }
    if (on) irq_remap_pin = remap_pin;
    if (why) why_off = why;
    return on ? NULL : why_off;
}
