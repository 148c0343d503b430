/* How the IOMMUs of VT-d are switched on at boot. VT-d calls an IOMMU a "unit". All units of a
 * segment (a group of PCI buses) share their tables, so first the form of tables is chosen that all
 * units understand. Section numbers are of the VT-d specification. */
#include "passthrough/vtd.h"

#include "lib/printf.h"
#include "passthrough/vtd_shared.h"
#include "passthrough/vtd_unit.h"
#include "platform/apic.h"
#include "platform/hostmap.h"

#define SNOOP BIT(11) /* of a leaf entry: devices cannot bypass the caches, 9.8 */

static struct tables *segments; /* those of each segment that has a unit */

struct vtd vtd = { .why_off = "no IOMMU is in use", .nr_domains = VTD_MAX_DOMAINS };

/* Maps the unit's registers and looks at what it can do. Returns NULL, or why it cannot be used, as
 * words to follow "as". */
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
    if (!(u->ecap & ECAP_REMAPS) || !vtd.dmar.remaps_interrupts)
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

    if (was)
        log_info("firmware left the IOMMU at %lx on (%x)", vtd.dmar.unit[u - vtd.unit].base, was);
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

    if (vtd.x2apic) form |= INTERRUPTS_X2APIC;
    if (pages == HPA_NONE || irq_message(vtd.fault_vector, WORK_CPU, &m)) return false;
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
    vtd_take_faults(u); /* clears old ones: the unit is not on yet */
    vtd_write(u, REG_FAULT_DATA, m.data);
    vtd_write(u, REG_FAULT_ADDR, (u32)m.addr);
    vtd_write(u, REG_FAULT_UPPER, 0);
    vtd_write(u, REG_FAULT_CONTROL, 0);
    u->on = !u->why && vtd_command(u, (u32)TRANSLATE, true) && vtd_command(u, (u32)REMAP, true);
    return u->on;
}

/* Finds the format of tables that all units understand, because they share the tables. A thing that
 * one unit lacks, such as pages of 2 MiB or accesses that respect the CPU's caches (SNOOP), is used
 * for none of them. A thing that one unit needs, such as flushes also after an entry was added
 * (`eager`), is done for all. */
static void find_common_form(void) {
    vtd.format = npt_format_vtd;
    vtd.x2apic = apic_x2;
    for (u32 i = 0; i < ARRAY_SIZE(vtd.format.right); i++)
        if (vtd.format.right[i]) vtd.format.right[i] |= SNOOP;
    FOR_UNITS(u) {
        if (u->why) continue;
        vtd.nr_domains = MIN(vtd.nr_domains, CAP_DOMAINS(u->cap));
        if (u->cap & CAP_CACHING) vtd.eager = true;
        if (!(u->cap & CAP_2M)) vtd.format.small = true;
        if (!(u->ecap & ECAP_COHERENT)) vtd.format.write_back = true;
        if (!(u->ecap & ECAP_X2APIC)) vtd.x2apic = false;
        for (u32 i = 0; i < ARRAY_SIZE(vtd.format.right) && !(u->ecap & ECAP_SNOOPS); i++)
            vtd.format.right[i] &= ~SNOOP;
    }
    vtd_write_back = vtd.format.write_back;
}

/* Returns the tables of a segment, and makes them if there are none yet. Returns NULL if there is
 * no memory. */
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

/* Looks at all units and prepares what they share: their tables, and the interrupt by which they
 * tell of faults. Returns why no unit of this machine can be used, as words to follow "as". Returns
 * NULL if some unit can be used, or if each unit has a reason of its own. The `why` of a unit that
 * cannot be used is that reason. */
static const char *prepare_units(const struct acpi_info *a) {
    bool usable = false;

    if (a->ivrs) return "this kind of IOMMU is not known";
    if (!a->dmar) return vtd.why_off;
    if (vtd.dmar.unsure && !vtd.dmar.nr_units) return "firmware's table of IOMMUs is malformed";
    if (vtd.dmar.lost_regions)
        log_warn(
            "%u of the regions of memory that firmware's table reserves for devices are malformed",
            vtd.dmar.lost_regions);
    FOR_UNITS(u) {
        u->why = vtd.dmar.unit[u - vtd.unit].odd;
        if (!u->why) u->why = probe_unit(u, vtd.dmar.unit[u - vtd.unit].base);
        if (u->why)
            log_warn("%s: the unit at %lx is not used", u->why, vtd.dmar.unit[u - vtd.unit].base);
        if (!u->why) usable = true;
    }
    if (!usable) return NULL; /* each unit says why */
    find_common_form();
    FOR_UNITS(u) {
        if (u->why) continue;
        u->tables = tables_of(vtd.dmar.unit[u - vtd.unit].segment);
        if (!u->tables) return "there is no memory for its tables";
    }
    vtd.fault_vector = vtd_faults_init();
    if (vtd.fault_vector < 0) return "there is no interrupt left for its faults";
    return NULL;
}

/* Writes one line to the log about a unit that was switched on. */
static void log_unit(const struct iommu_unit *u) {
    const char *pages = "4 KiB", *coherent = "not coherent", *ids = "xAPIC";

    if (u->cap & CAP_2M) pages = "2 MiB";
    if (u->ecap & ECAP_COHERENT) coherent = "coherent";
    if (vtd.x2apic) ids = "x2APIC";
    log_info("the IOMMU at %lx: %s pages, %s, %s ids", u->base, pages, coherent, ids);
}

/* Switches a unit on. Returns NULL, or why it is not in use, as words to follow "as". */
static const char *switch_unit_on(struct iommu_unit *u) {
    if (!take_over_unit(u) || !start_unit(u)) {
        vtd_command(u, (u32)TRANSLATE, false);
        u->on = vtd_read(u, REG_STATUS) & TRANSLATE; /* if it stays on, it blocks all its devices */
        return "its IOMMU cannot be switched on";
    }
    log_unit(u);
    return NULL;
}

/* Switches on all units that can be used. First the regions that firmware uses are mapped, as from
 * then on devices reach nothing else. Returns NULL if at least one unit is on, or else why none is.
 * If several units have a reason, the last one counts. */
const char *iommu_init(const struct acpi_info *a, const struct memmap *ram) {
    const char *why = prepare_units(a);

    if (!why && vtd_map_regions(ram)) why = "there is no memory for its tables";
    FOR_UNITS(u) {
        if (!why && !u->why) u->why = switch_unit_on(u);
        if (!vtd.on && u->why) vtd.why_off = u->why;
        if (u->on) vtd.on = true;
    }
    if (vtd.on) irq_remap_pin = vtd_remap_pin;
    if (why) vtd.why_off = why;
    if (vtd.on) return NULL;
    return vtd.why_off;
}
