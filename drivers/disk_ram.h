/* A disk in memory, which takes as long as a model of a disk says (drivers/disk_model.h). */
#ifndef DRIVERS_DISK_RAM_H
#define DRIVERS_DISK_RAM_H

#include "drivers/disk.h"
#include "drivers/disk_model.h"
#include "drivers/disk_turns.h"
#include "drivers/options.h"

#define DISK_RAM_SIZE   (1024 * 1024) /* bytes, without the option `size` */
#define DISK_RAM_DEPTH  32            /* requests at a time, without the option `depth` */
#define DISK_RAM_MOST   128           /* the most that `depth` may be */
#define DISK_RAM_BOUNCE 4096          /* bytes */

struct disk_ram {
    struct disk disk;
    u8 *data;
    struct disk_model model;   /* the model of this disk alone */
    struct disk_model *device; /* that model, or one that the disk shares */
    struct disk_row begun;     /* requests in the order in which they end */
    u32 nr_begun;
    u32 nr;                     /* requests that have begun, or wait for their turn */
    struct disk_turn turn;      /* on a device with turns */
    u8 bounce[DISK_RAM_BOUNCE]; /* what is written goes through it, so that it can be looked at */
};

/* The options that may follow the back end's name: `size=16M bw=100M lat=100us depth=32`; bw is in
 * bytes a second. */
extern const struct option_kind disk_ram_options[];
/* The same for a disk on a shared device: `on=ssd0 size=16M depth=32 share=2`. `share`
 * is against those of the other disks, where the device has turns (drivers/disk_turns.h). */
extern const struct option_kind disk_ram_shared_options[];

/* Returns how many bytes the disk has by these options. */
u64 disk_ram_bytes(const char *options);
/* Makes a disk of `data`, which has disk_ram_bytes(options) bytes. `data` and `device` belong to
 * the caller and have to live as long as the disk. The disk shares `device` with other disks. If
 * `device` is NULL, the disk has a model of its own, as the options say. */
void disk_ram_init(struct disk_ram *d, const char *options, struct disk_model *device, u8 *data);

#endif
