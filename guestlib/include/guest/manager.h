/* The manager of IOrchestra in a driver domain (docs/collab.md): learns from the store which disks
 * have dirty pages, and has them flushed while their device is idle. It also tells the store how
 * busy each device is.
 *
 * It is a thread of vCPU 0, because calls of the store may have to wait, and the loop that serves
 * the devices must not. All functions are called from that loop, on vCPU 0. */
#ifndef GUEST_MANAGER_H
#define GUEST_MANAGER_H

#include "drivers/disk_model.h"

#define MANAGER_DISKS   32 /* as many as the store has watches for */
#define MANAGER_DEVICES 4

/* Connects to the store and starts the thread. Devices are judged by what they did in the last
 * `period_ns`. Negative errno. */
int manager_start(u64 period_ns);

/* Disk `number` of that VM is on `device`, called `name`, which both stay until the end. A disk
 * that is one too many is left alone. */
void manager_add(u32 vm, u32 number, struct disk_model *device, const char *name);
void manager_remove(u32 vm, u32 number);

/* To be called in each turn: ends the period, if it is time. Returns when it wants to be called
 * again, ~0: when something has moved. */
u64 manager_run(u64 now);

#endif
