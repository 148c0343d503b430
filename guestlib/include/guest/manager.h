/* The manager of IOrchestra in a driver domain (docs/collab.md): learns from the store which disks
 * have dirty pages, and has them flushed while their device is idle; and which
 * queues are congested, and has them released when their device is not crowded. It also publishes
 * what each device and each disk on it does.
 *
 * It is a thread of vCPU 0, because calls of the store may have to wait, and the loop that serves
 * the devices must not. All functions are called from that loop, on vCPU 0. */
#ifndef GUEST_MANAGER_H
#define GUEST_MANAGER_H

#include "drivers/collab/monitor.h"
#include "drivers/disk_model.h"

#define MANAGER_DISKS   31 /* as many as the store has watches for, but one */
#define MANAGER_DEVICES 4

/* What the manager can do. Each can be switched while it runs: docs/collab.md, "Switches". */
enum manager_function { MANAGER_FLUSH, MANAGER_CONGESTION, MANAGER_DIF, MANAGER_FUNCTIONS };

struct manager_config {
    u64 period_ns;  /* a device is judged by what it did in the last period */
    u64 monitor_ns; /* what devices and disks did is published so often; whole periods */
    bool on[MANAGER_FUNCTIONS]; /* at the start; keys switch them later */
    u32 busy_pct; /* a device is crowded with so much of its bandwidth in use; 0: never */
    u64 seed;     /* of the gaps between two releases */
};

/* Connects to the store and starts the thread. Returns 0, or a negative errno. */
int manager_start(const struct manager_config *c);

/* Disk `number` of VM `vm`, of `pages` pages, is on `device`, called `name`; the latter two stay
 * until the end. Returns the
 * monitor that is to be told of the disk's requests. NULL: there is no manager, or the disk is one
 * too many and is left alone. */
struct monitor *manager_add(u32 vm, u32 number, u64 pages, struct disk_model *device,
                            const char *name);
/* The disk is gone. Its monitor has no requests under way, and must not be told of any later. */
void manager_remove(u32 vm, u32 number);

/* To be called in each turn: ends the period, if it is time. Returns when it wants to be called
 * again, ns; ~0: when a request has begun. */
u64 manager_run(u64 now);

#endif
