/* A small driver of an Intel VT-d unit ("VT-d" below is Intel's "Virtualization Technology for
 * Directed I/O, Architecture Specification", legacy mode). A device has a bus and a number on it,
 * the function; its requests carry both, as bus << 8 | function. A domain is what a set of devices
 * may reach: a second-level table of four levels. */
#ifndef LAB12_IOMMU_H
#define LAB12_IOMMU_H

#include "mm/frame.h"

#define DMA_READ  1u
#define DMA_WRITE 2u

struct domain {
    u16 id;     /* not 0 */
    hpa_t root; /* of its second-level table */
};

struct iommu {
    hpa_t root; /* the root table: 256 entries of 16 bytes, one for each bus */
};

/* Make a unit, or a domain, whose tables are empty. Return 0 or -ENOMEM. */
int iommu_init(struct iommu *u);
int domain_init(struct domain *d, u16 id);

/* Lets the devices of the domain reach [hpa, hpa + len) at [gpa, gpa + len), which are multiples of
 * a page, with the rights `rights` (DMA_READ, DMA_WRITE). What is there already is replaced, and
 * the unit forgets it. Returns 0, or -ENOMEM if only a first part was mapped. */
int domain_map(struct domain *d, gpa_t gpa, hpa_t hpa, u64 len, unsigned rights);
/* Takes [gpa, gpa + len) away. When this returns, no device of the domain reaches it any more. */
void domain_unmap(struct domain *d, gpa_t gpa, u64 len);

/* From now on the requests of device `source` go through the domain's table. The device is in no
 * domain before. Returns 0 or -ENOMEM. */
int iommu_attach(struct iommu *u, u16 source, const struct domain *d);
/* From now on the device reaches nothing. */
void iommu_detach(struct iommu *u, u16 source);

/* Writes a sentence about a fault, such as "device 03:02.1 may not write 0x5000". */
void iommu_describe(char *to, size_t size, u16 source, u64 address, bool write);

/* ---- the hardware, which the tests play ---- */

/* Forgets what the unit has cached of the domain's second-level table. */
void hw_flush_domain(u16 id);
/* Forgets what the unit has cached of the context entry of this device. */
void hw_flush_context(u16 source);

#endif
