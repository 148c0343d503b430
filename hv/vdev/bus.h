/* The buses of a VM, one for I/O ports and one for MMIO: which device answers at which address. */
#ifndef HV_VDEV_BUS_H
#define HV_VDEV_BUS_H

#include <takt/types.h>

#define BUS_RANGES 16 /* of ports, and as many of MMIO, in a VM */

/* One access, of at most 8 bytes. It never crosses the end of a range. */
struct bus_access {
    u64 addr;
    u8 size;
    bool write;
    u32 vcpu; /* the id of the vCPU that makes it */
};

/* A device's function for accesses. For a write, *value holds the value in its low a->size bytes.
 * For a read, *value is 0 before, and the function sets it. It is called on the pCPU of the vCPU
 * that makes the access. */
typedef void (*bus_fn)(void *dev, const struct bus_access *a, u64 *value);

struct bus {
    u32 nr;
    struct bus_range {
        u64 start, size;
        bus_fn fn;
        void *dev;
    } range[BUS_RANGES];
};

/* Adds the range [start, start + size): fn(dev, ...) answers there. Ranges must not overlap, and
 * there is room for BUS_RANGES. Other pCPUs may use the bus meanwhile, but must not change it. */
void bus_add(struct bus *b, u64 start, u64 size, bus_fn fn, void *dev);
/* Removes all ranges of `dev`. Other pCPUs may use the bus meanwhile, so a call of the device's
 * function may still be under way when this returns. */
void bus_remove(struct bus *b, const void *dev);
/* Carries out an access. Returns false, with nothing done, if no device is there or the access
 * crosses the end of a range. */
bool bus_do(const struct bus *b, const struct bus_access *a, u64 *value);

#endif
