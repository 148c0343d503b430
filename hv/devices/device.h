/* Devices and windows, between the files of this room. Everything here is under backend_lock,
 * unless it says otherwise; devices.h has the rules. */
#ifndef HV_DEVICES_DEVICE_H
#define HV_DEVICES_DEVICE_H

#include "devices/devices.h"
#include "vdev/virtio_mmio.h"

/* ---- devices (front.c) ---- */

struct device {
    struct virtio_mmio regs;
    struct list link;                   /* in `devices` */
    struct vm *vm;                      /* the front VM */
    u32 number;                         /* below TAKT_MAX_DEVICES */
    const struct config_device *config; /* in vm->config */
    struct vm *back;                    /* the VM that has offered it; NULL: none has */
    u32 back_port;                      /* of `back`, joined with regs.port */
};

extern struct list devices;   /* all of them */
extern struct list back_ends; /* struct backend.in_all: every VM */

static inline struct vm *vm_of_backend(struct backend *b) {
    return container_of(b, struct vm, back);
}

/* Sends what a change of d's registers asks for: `whom` is of VIRTIO_TELL_*. */
void device_tell(struct device *d, unsigned whom);

/* ---- windows (window.c): a front VM's RAM in a back end ---- */

/* What a window shows in the place of RAM that is gone is one chunk for each back end, its
 * waste. The chunk is there before the first window, so that taking RAM away needs no memory. */
struct window {
    struct list link;    /* in backend.windows */
    struct vm *front;    /* NULL: it is gone, and all that is mapped is waste */
    u32 front_id;        /* stays when the front VM is gone */
    u64 base;            /* where the window begins in the back end */
    struct guestmem ram; /* the layout of the front VM's RAM alone, without chunks */
    u32 chunks;          /* mapped so far, from the first */
    u32 waste;           /* replaced by waste so far, from the first */
    bool unmapping;      /* the back end has begun to unmap it, and has to go on */
    bool kicked;         /* the pCPUs that use it have been told of `generation` */
    u64 generation;      /* of the back end's TLBs: once passed, no pCPU uses what was taken away */
};

/* The window of a back end on the RAM of `front`; NULL: it has none. */
struct window *window_of(struct backend *b, const struct vm *front);
/* The same by the id of the front VM, which may be gone. */
struct window *window_of_id(struct backend *b, u32 id);

/* The following do a step each. They return 1 if they have to be called again, and 0 when all is
 * done. */

/* Maps the RAM of `front` in `vm`, and tells where in *out. -ENOSPC: `vm` has no room for one more
 * window; -EBUSY: the window is just being unmapped; -ENOMEM. */
int window_map_step(struct vm *vm, struct vm *front, struct takt_window *out);
/* Unmaps the window; frees it if its front VM is gone. */
int window_unmap_step(struct vm *vm, struct window *w);
/* `vm` goes as a front VM: its RAM is taken out of all windows. */
int windows_revoke_step(struct vm *vm);
/* `vm` goes as a back end, and is off all pCPUs: its windows are forgotten, in one step. */
void windows_forget(struct vm *vm);
/* Then its waste, which has what the VM wrote there, is scrubbed and freed. */
int waste_free_step(struct backend *b);

#endif
