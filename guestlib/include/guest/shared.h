/* Devices of a driver domain that several virtual disks share (docs/io.md, "A device under several
 * disks"). They are modelled: the driver domain's command line says how fast each one is, and which
 * of them make up a set (drivers/disk_set.h). All functions are called on vCPU 0. */
#ifndef GUEST_SHARED_H
#define GUEST_SHARED_H

#include <guest/cores.h>
#include "drivers/disk_model.h"
#include "drivers/disk_set.h"
#include "drivers/disk_turns.h"

#define SHARED_MOST 8  /* devices, sets and their members among them */
#define SHARED_NAME 16 /* bytes of a name, with its terminator */

struct shared_device {
    char name[SHARED_NAME]; /* empty: free */
    struct disk_model model;
    struct disk_turns turns;           /* with sched=drr, or with I/O cores */
    struct disk_core core[CORES_MOST]; /* places of the I/O cores at the device */
    /* Only shared.c uses these. */
    struct disk_set *set;                /* what it is made of; NULL: it is one device */
    const struct shared_device *part_of; /* the set that it is a member of; NULL: none */
    bool drr;                            /* its words have sched=drr */
    bool used;                           /* there are disks on it, or were */
};

/* Returns the device that a disk with the option on=NAME is on. The first disk makes it by what the
 * command line says, for `nr_cores` I/O cores, and it stays. Returns NULL if it cannot be had; then
 * the console says why. */
struct shared_device *shared_device(const char *options, u32 nr_cores);
/* Tells the monitors of the members of sets what these have done until `now`. Call it before
 * manager_run(). */
void shared_settle(u64 now);

#endif
