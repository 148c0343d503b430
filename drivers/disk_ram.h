/* A disk in memory, which takes as long as a model of a disk says (drivers/disk_model.h). */
#ifndef DRIVERS_DISK_RAM_H
#define DRIVERS_DISK_RAM_H

#include "drivers/disk.h"
#include "drivers/disk_model.h"
#include "drivers/disk_turns.h"
#include "drivers/options.h"

#define DISK_RAM_SIZE  (1024 * 1024) /* bytes, without the option `size` */
#define DISK_RAM_DEPTH 32            /* requests at a time, without the option `depth` */
#define DISK_RAM_MOST  128           /* the most that `depth` may be */

/* What is stored on a disk in memory, as a table of pages, and one page more. Written data are
 * first copied to the spare page. When the copy is known to be the VM's data, a whole page takes
 * the place of the old page in the table, so that it need not be copied again. */
struct disk_ram_data {
    u8 **page; /* page i has the bytes of the disk from i * PAGE_SIZE on */
    u8 *spare;
    struct driver_lock lock; /* with I/O cores, two of them may move data of the disk at a time */
};

struct disk_ram {
    struct disk disk;
    struct disk_ram_data *data;
    struct disk_model model;   /* the model of this disk alone */
    struct disk_model *device; /* that model, or one that the disk shares */
    struct disk_row begun;     /* requests in the order in which they end */
    u32 nr_begun;
    u32 nr;                   /* requests that have begun, or wait for their turn */
    struct disk_turn turn;    /* on a device with turns */
    struct disk_round *round; /* those with whom it takes turns */
    struct disk_core *core;   /* the I/O core that serves it; NULL: none */
    u64 remote_ns;            /* how much longer requests take, as they come from another socket */
};

/* The options that may follow the back end's name: `size=16M bw=100M lat=100us depth=32`; bw is in
 * bytes a second. */
extern const struct option_kind disk_ram_options[];
/* The same for a disk on a shared device: `on=ssd0 size=16M depth=32 share=2`. `share`
 * is against those of the other disks, where the device has turns (drivers/disk_turns.h). */
extern const struct option_kind disk_ram_shared_options[];

/* Returns how many bytes the disk has by these options. */
u64 disk_ram_bytes(const char *options);
/* Returns how many pages of memory the data of a disk with these options take: those of its bytes,
 * the spare page and the table. */
u64 disk_ram_pages(const char *options);
/* Lays out `memory`, which has disk_ram_pages(options) pages and belongs to the caller. The disk
 * has what is in its pages, which is zeros if the memory was zeroed. */
void disk_ram_data_init(struct disk_ram_data *data, const char *options, u8 *memory);
/* Makes a disk of `data`, which disk_ram_data_init() has laid out with the same size. `data` and
 * `device` belong to the caller and have to live as long as the disk; the next disk that is made of
 * `data` has the same contents. The disk shares `device` with other disks. If `device` is NULL, the
 * disk has a model of its own, as the options say. */
void disk_ram_init(struct disk_ram *d, const char *options, struct disk_model *device,
                   struct disk_ram_data *data);
/* Has I/O core `core` of the shared device serve the disk from now on, and no longer the core
 * before. Requests that wait stay in their order. Each request that begins later takes `remote_ns`
 * longer. Neither core may serve the disk during the call. Returns false, and changes nothing, if
 * the core has no place for another disk. */
bool disk_ram_set_core(struct disk_ram *d, struct disk_core *core, u64 remote_ns);
/* Takes the disk, which has no requests, away from its I/O core. No core serves it any more. */
void disk_ram_leave(struct disk_ram *d);

#endif
