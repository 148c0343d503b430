/* A VM's port and MMIO ranges, and the devices that answer there. */
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

/* Carries out an access. *value is what is written, in its low bytes; before a read it is 0, and
 * the device sets what is read. */
typedef void (*bus_fn)(void *dev, const struct bus_access *a, u64 *value);

struct bus {
    u32 nr;
    struct bus_range {
        u64 start, size;
        bus_fn fn;
        void *dev;
    } range[BUS_RANGES];
};

/* `fn` answers for `dev` from `start` on. Ranges must not overlap, and there are BUS_RANGES at
 * most. Others may use the bus meanwhile, but only one at a time may change it. */
void bus_add(struct bus *b, u64 start, u64 size, bus_fn fn, void *dev);
/* Takes all ranges of `dev` away, while others may use the bus: a call of its fn may still be
 * under way. */
void bus_remove(struct bus *b, const void *dev);
/* Carries out an access. Returns false, with nothing done, if no device is there or the access
 * crosses the end of a range. */
bool bus_do(const struct bus *b, const struct bus_access *a, u64 *value);

#endif
