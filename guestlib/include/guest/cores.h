/* I/O cores of a driver domain (IOrchestra, section 3.3; docs/collab.md): vCPUs that do nothing but
 * poll the rings of VMs. I/O core k is vCPU k + 1 and belongs to socket k. vCPU 0 remains for all
 * other work; all functions here are called there, from one thread. */
#ifndef GUEST_CORES_H
#define GUEST_CORES_H

#include "drivers/back_blk.h"
#include "drivers/disk_ram.h"

#define CORES_MOST TAKT_MAX_QUEUES /* I/O cores */

/* A ring of a disk, which one I/O core polls. */
struct lane {
    struct back_blk blk;
    struct disk_ram ram; /* the disk as this ring sees it; all rings of a disk share the data */
    u32 socket;          /* from where the ring's requests come */
    u32 core;            /* the I/O core that polls it */
    /* Only cores.c uses these. */
    struct lane *next;
    const struct takt_front *front;
};

/* Starts `n` I/O cores, 1 to CORES_MOST. Returns 0, -EINVAL if `n` is wrong or the VM has fewer
 * than n + 1 vCPUs, or -ENOMEM. */
int cores_start(u32 n);
/* Asks for an event when the next request comes to an I/O core; it is raised once, and ends
 * TAKT_HC_POLL on this vCPU. Call this before the last look at whether there is anything to do. */
void cores_wake_me(void);
/* Takes the event of cores_wake_me(), if it has come. An event that stays pending would end each
 * later TAKT_HC_POLL at once. */
void cores_awake(void);
/* Has I/O core l->core begin to serve the lane, as back_blk_start() says. *f is not used after the
 * call. */
void core_begin(struct lane *l, const struct takt_front *f);
/* Has the lane's core stop to serve it. Requests that are under way are given up, and the lane's
 * monitor is told of that. */
void core_end(struct lane *l);
/* Frees the memory of the lane, which no I/O core serves any more. */
void lane_fini(struct lane *l);
/* Returns the sums of the counters of `nr` lanes. I/O cores go on counting meanwhile, so the sums
 * are only nearly right. */
struct back_blk lanes_sum(const struct lane *l, u32 nr);
/* Moves the lane to I/O core `core`, which serves it from now on. No request is lost. `place` is
 * that core's place at the lane's device, and remote_ns is as in disk_ram_set_core(). If that
 * function fails, the lane stays where it is; compare l->ram.core to see that. */
void core_move(struct lane *l, u32 core, struct disk_core *place, u64 remote_ns);

#endif
