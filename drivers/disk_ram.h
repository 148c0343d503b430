/* A disk in memory, as fast as a model says. */
#ifndef DRIVERS_DISK_RAM_H
#define DRIVERS_DISK_RAM_H

#include "drivers/disk.h"
#include "drivers/disk_model.h"
#include "drivers/options.h"

#define DISK_RAM_SIZE  (1024 * 1024)
#define DISK_RAM_DEPTH 32
#define DISK_RAM_MOST  128 /* depth */

struct disk_ram {
    struct disk disk;
    u8 *data;
    struct disk_model model;   /* its own */
    struct disk_model *device; /* that, or one that it shares */
    struct disk_row begun;     /* in the order in which they end */
    u32 nr;
};

/* What the words behind the back end's name may be: `size=16M bw=100M lat=100us depth=32`; bw in bytes a
 * second. */
extern const struct option_kind disk_ram_options[];
/* The same for a disk on a shared device: `on=ssd0 size=16M depth=32`. */
extern const struct option_kind disk_ram_shared_options[];

u64 disk_ram_bytes(const char *options);
/* `data` has those bytes and stays the caller's, as does `device`, which the disk shares with others;
 * NULL: the disk has a model of its own, as the options say. */
void disk_ram_init(struct disk_ram *d, const char *options, struct disk_model *device, u8 *data);

#endif
