/* What the files for VT-d share with each other and with nobody else: what is known of all units
 * together, and the functions by which one file uses another. vtd_unit.h is about a single unit. */
#ifndef HV_PASSTHROUGH_VTD_SHARED_H
#define HV_PASSTHROUGH_VTD_SHARED_H

#include "mm/npt.h"
#include "passthrough/vtd.h"
#include "passthrough/vtd_unit.h"

#define VTD_MAX_DOMAINS 64u

/* A domain: the memory that the devices of one VM reach. */
struct iommu_domain {
    u32 id, chunks;    /* its number for the units; how many chunks of the VM's RAM are mapped */
    u32 regions;       /* a bit for each region reserved by firmware that is mapped as a whole */
    u64 region_mapped; /* how many bytes of the next region are mapped */
    struct npt npt;    /* the page tables that the units walk */
};

/* All units. Set at boot, then constant, except for what changes in a unit. */
extern struct vtd {
    struct dmar_info dmar;                  /* what the firmware's table of IOMMUs says */
    struct iommu_unit unit[DMAR_MAX_UNITS]; /* in the order of dmar.unit */
    u32 good_regions;         /* a bit for each region of dmar.region that is plausible */
    bool relax;               /* devices that firmware goes on using may be given to VMs */
    bool on;                  /* at least one unit is switched on */
    bool x2apic;              /* ids of APICs have 32 bits in the entries of interrupts */
    bool eager;               /* a unit also caches absent entries: flush after adding one, too */
    const char *why_off;      /* while `on` is false: why, as words to follow "as" */
    struct npt_format format; /* the format of page tables that all units understand */
    u32 nr_domains;           /* how many ids for domains all units understand */
    int fault_vector;         /* the vector by which the units tell of faults */
} vtd;

#define FOR_UNITS(u) for (struct iommu_unit *u = vtd.unit; u < vtd.unit + vtd.dmar.nr_units; u++)

/* ---- vtd_scope.c: what the firmware's table says ---- */

#define NOWHERE (~0u) /* not a bdf */

/* Returns the bdf to which the path of a scope leads; NOWHERE if a bridge on the path is
 * missing. */
u32 vtd_scope_bdf(const struct dmar_scope *s);
/* Returns a scope that names the device `d`: of a region if `region` is set, or else of a unit.
 * NULL if there is none. */
const struct dmar_scope *vtd_scope_of(const struct pci_device *d, bool region);
/* Returns the unit that has a device, or NULL if the table names none for it. */
struct iommu_unit *vtd_unit_of(const struct pci_device *d);
/* Does firmware reserve region n for this device? */
bool vtd_has_region(const struct pci_device *d, u32 n);
/* Was region n mapped at boot? If not, its entry is malformed, or the machine has RAM there. */
bool vtd_region_is_good(u32 n);
/* Returns the length of region n in bytes. */
u64 vtd_region_len(u32 n);

/* ---- vtd.c ---- */

/* Once at boot: lets devices reach the regions that firmware reserves for them, until a VM gets
 * them. `ram` is all RAM of the machine. Returns 0, or -ENOMEM. */
int vtd_map_regions(const struct memmap *ram);
/* The function behind irq_remap_pin (platform/irq.h). */
int vtd_remap_pin(u32 id, u32 vector, bool level);

/* ---- vtd_fault.c ---- */

/* Prepares the interrupt about faults. Returns its vector, or a negative number if none is left. */
int vtd_faults_init(void);
/* Handles the faults that a unit has noted, and clears them. Of a unit that is not on yet, it only
 * clears them. */
void vtd_take_faults(struct iommu_unit *u);

#endif
