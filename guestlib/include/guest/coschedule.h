/* Co-scheduling in a driver domain with I/O cores (IOrchestra, section 3.3; docs/collab.md): which
 * I/O core serves which ring, and with which share. Without it, or while it is off, that is the
 * baseline SDC: all rings of a VM are served by the I/O core of its first socket, and all VMs have
 * equal shares.
 *
 * Functions are called on vCPU 0: the first three by the loop that serves devices, the others by
 * the manager's thread. */
#ifndef GUEST_COSCHEDULE_H
#define GUEST_COSCHEDULE_H

#include <guest/sync.h>
#include <takt/device.h>
#include "drivers/collab/coschedule.h"

#define COSCHEDULE_DISKS 32

struct lane; /* guest/cores.h */
struct disk_core;
struct disk_turns;

/* A disk that I/O cores serve. The owner sets all fields but the last group. */
struct coschedule_disk {
    u32 vm, number;
    u32 share;  /* the administrator's, against those of the other disks: 1 to 1000 */
    u32 socket; /* the first one of its VM */
    u32 nr;     /* sockets of its VM, and lanes */
    struct lane *lane;
    struct disk_turns *turns; /* of its device, and the places that the I/O cores have there */
    struct disk_core *place;
    /* Only coschedule.c uses these. */
    struct coschedule_list weights; /* W of each vCPU of the VM */
    u64 part[TAKT_MAX_QUEUES];      /* S_SKT of each socket */
    bool weights_wanted;            /* the VM has new ones in the store */
    u64 told[TAKT_MAX_QUEUES];      /* weights of its sockets, as published */
    u64 told_at;                    /* ns; 0: never */
};

/* Says that there are `n` I/O cores, and that a request which comes from another socket than the
 * core's takes `remote_ns` longer. Call it once, before all other functions. */
void coschedule_init(u32 n, u64 remote_ns);
/* Places the lanes of a disk, which no core serves yet, at their I/O cores. *d must live until
 * coschedule_remove(). Returns 0, or -ENOSPC if there are too many disks. */
int coschedule_add(struct coschedule_disk *d);
/* Forgets a disk, which no core serves any more. */
void coschedule_remove(struct coschedule_disk *d);

/* Returns whether there are I/O cores. */
bool coschedule_possible(void);
/* Switches between co-scheduling and SDC. */
void coschedule_switch(bool on);
/* Reads the weights that VMs have changed, and publishes those of sockets; call it whenever the
 * manager's thread has been woken. If `shares` is true, the administrator may have changed shares,
 * and these are read as well. */
void coschedule_run(bool shares);
/* Watches the key `weights` of that disk's VM, and writes the disk's share to the store. `wanted`
 * is raised when the weights change. The second function ends that. */
void coschedule_watch(u32 vm, u32 number, struct semaphore *wanted);
void coschedule_unwatch(u32 vm, u32 number);

#endif
