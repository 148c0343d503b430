/* What a driver needs of the program that it is linked into: a guest, or a test on the host. */
#ifndef DRIVERS_ENV_H
#define DRIVERS_ENV_H

#include <takt/types.h>

struct driver_env {
    void *(*pages)(size_t n); /* n zeroed pages in a row; NULL: none left */
    void (*pages_free)(void *p, size_t n);
    u64 (*dma_addr)(
        const void *p);  /* where a virtual device finds what is at p: the guest-physical address */
    void (*relax)(void); /* lets others run, while a register is waited for */
};

/* And a driver of a device of the machine. */
struct device_env {
    u64 (*dma_addr)(const void *p); /* where the device finds what is at p */
    u64 (*now)(void);               /* ns */
    void (*relax)(void);            /* lets others run, while the device is waited for */
};

#endif
