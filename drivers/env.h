/* What a driver needs from the program that it is linked into: a guest, or a test on the host. */
#ifndef DRIVERS_ENV_H
#define DRIVERS_ENV_H

#include <takt/types.h>

/* For drivers of virtual devices. */
struct driver_env {
    /* Returns n zeroed pages in a row, which belong to the caller, or NULL if there is no memory.
     */
    void *(*pages)(size_t n);
    void (*pages_free)(void *p, size_t n);
    /* Returns the guest-physical address of what is at `p`. A virtual device finds it there. */
    u64 (*dma_addr)(const void *p);
    /* Lets other threads and VMs run, while the driver waits for a register. */
    void (*relax)(void);
};

/* For drivers of devices of the machine. */
struct device_env {
    /* Returns the address at which the device finds what is at `p`. */
    u64 (*dma_addr)(const void *p);
    u64 (*now)(void); /* ns */
    /* Lets other threads and VMs run, while the driver waits for the device. */
    void (*relax)(void);
};

#endif
