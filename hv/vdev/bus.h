/* A VM's port and MMIO ranges, and who answers there. */
#ifndef HV_VDEV_BUS_H
#define HV_VDEV_BUS_H

#include <takt/types.h>

#define BUS_RANGES 16 /* a kind, a VM */

/* One access, at most 8 bytes, never across the end of a range. For reads the device fills *value; what it
 * leaves is zero. */
struct bus_access {
    u64 addr;
    u8 size;
    bool write;
    u32 vcpu; /* who makes it */
};

typedef void (*bus_fn)(void *dev, const struct bus_access *a, u64 *value);

struct bus {
    u32 nr;
    struct bus_range {
        u64 start, size;
        bus_fn fn;
        void *dev;
    } range[BUS_RANGES];
};

/* The devices of a VM are at addresses of their own: ranges do not overlap. */
void bus_add(struct bus *b, u64 start, u64 size, bus_fn fn, void *dev);
/* A device that comes and goes while others use the bus; a call of its fn may still be under way. */
void bus_remove(struct bus *b, const void *dev);
/* False if nobody is there, or if the access crosses the end of a range (then nothing was done). */
bool bus_do(const struct bus *b, const struct bus_access *a, u64 *value);

#endif
