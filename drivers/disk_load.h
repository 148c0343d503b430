/* How much work a device under several virtual disks has. The manager (docs/collab.md) judges by it
 * whether the device is idle or crowded. The code that runs the device keeps it up to date. */
#ifndef DRIVERS_DISK_LOAD_H
#define DRIVERS_DISK_LOAD_H

#include <takt/types.h>

struct disk_load {
    u64 bandwidth; /* bytes a second that the device can move; 0: no limit, or see by_time */
    u32 queue;     /* requests that it takes at a time; 0: any number */
    u32 in_queue;  /* requests that have begun and whose end was not yet taken */
    u64 bytes;     /* of all requests that have begun so far */
    u64 latency;   /* of a request when there is no other one, without its transfer, ns */
    u64 ends;      /* when all that has begun will have ended, ns; 0: unknown */
    /* Nobody knows how fast the device is. If `bandwidth` is 0 as well, how busy it is follows from
     * the time in which it has requests, as it does for Linux's iostat. */
    bool by_time;
};

#endif
