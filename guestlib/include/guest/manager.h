/* The manager of IOrchestra in a driver domain (docs/collab.md). It learns from the store which
 * disks have dirty pages, and has them flushed while their device is idle. It also learns which
 * queues are congested, and releases them when their device is not crowded. It publishes what each
 * device and each disk on it does.
 *
 * It is a thread of vCPU 0, because calls of the store may have to wait, and the loop that serves
 * the devices must not. All functions are called from that loop, on vCPU 0. */
#ifndef GUEST_MANAGER_H
#define GUEST_MANAGER_H

#include "drivers/collab/monitor.h"
#include "drivers/disk_load.h"

#define MANAGER_DISKS   25 /* the store has watches for so many */
#define MANAGER_DEVICES 8

/* What the manager can do. Each can be switched while it runs: docs/collab.md, "Switches". */
enum manager_function {
    MANAGER_FLUSH,
    MANAGER_CONGESTION,
    MANAGER_DIF,
    MANAGER_COSCHEDULE,
    MANAGER_FUNCTIONS
};

struct manager_config {
    u64 period_ns;  /* a device is judged by what it did in the last period */
    u64 monitor_ns; /* what devices and disks did is published so often; whole periods */
    bool on[MANAGER_FUNCTIONS]; /* at the start; keys switch them later */
    u32 busy_pct; /* a device is crowded with so much of its bandwidth in use; 0: never */
    /* or when a request that comes now takes so many per cent of what it takes alone; 0: never */
    u32 slow_pct;
    u64 seed;   /* of the gaps between two releases */
    bool cores; /* disks are served by I/O cores, which tell the monitors what they do */
};

/* Connects to the store and starts the thread. Returns 0, or a negative errno. */
int manager_start(const struct manager_config *c);

/* Tells the manager of disk `number` of VM `vm`. The disk has `pages` pages and is on `device`,
 * which is called `name`; *device and the name must live for ever. Returns the monitor that is to
 * be told of the disk's requests. Returns NULL if there is no manager, or if there are too many
 * disks; then the manager leaves this one alone. */
struct monitor *manager_add(u32 vm, u32 number, u64 pages, const struct disk_load *device,
                            const char *name);
/* The same for a device that has no disk of its own, because it is a member of a set. Returns its
 * monitor, or NULL if there is no manager or no place. */
struct monitor *manager_device(const struct disk_load *device, const char *name);
/* Tells the manager that the disk is gone. Its monitor has no requests under way, and must not be
 * told of any after this. */
void manager_remove(u32 vm, u32 number);

/* Ends the period if it is time; call it in each turn of the loop. Returns when it wants to be
 * called again, ns; ~0 means after the next request has begun. */
u64 manager_run(u64 now);

#endif
