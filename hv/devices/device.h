/* Devices and windows, as the files of this room share them. backend_lock guards everything here,
 * unless a comment says otherwise. devices.h has the rules. */
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

/* Brings d's pin of the IOAPIC, if its VM has one, up to date with its interrupt status. */
void device_line(struct device *d);
/* Sends what a change of the registers of `d` asks for. `whom` consists of VIRTIO_TELL_*. */
void device_tell(struct device *d, unsigned whom);

/* ---- windows (window.c): a front VM's RAM in a back end ---- */

/* A window on the RAM of a front VM. If that RAM goes, one chunk of the back end's own, its waste,
 * takes the place of every chunk of it. The waste chunk is allocated before the first window, so
 * that taking RAM away needs no memory. */
struct window {
    struct list link;    /* in backend.windows */
    struct vm *front;    /* NULL: it is gone, and all that is mapped is waste */
    u32 front_id;        /* the front VM's id, which stays when the VM is gone */
    u64 base;            /* where the window begins in the back end */
    struct guestmem ram; /* the layout of the front VM's RAM alone, without chunks */
    u32 chunks;          /* how many chunks are mapped so far, from the first one on */
    u32 waste;           /* how many of them were replaced by waste so far, from the first one on */
    bool unmapping;      /* the back end has begun to unmap it, and has to go on */
    bool kicked;         /* the pCPUs that use it have been told of `generation` */
    /* A generation of the back end's TLBs: when it has passed, no pCPU uses what was taken away. */
    u64 generation;
};

/* Returns the window of a back end on the RAM of `front`, or NULL if there is none. */
struct window *window_of(struct backend *b, const struct vm *front);
/* Returns the window of a back end on the RAM of the VM with this id, or NULL. That VM may be gone
 * already, while its window is still there. */
struct window *window_of_id(struct backend *b, u32 id);

/* The following functions do one step each. They return 1 if they have to be called again, 0 when
 * all is done, or a negative errno. */

/* Maps the RAM of `front` in `vm`, and tells in *out where it is. Errors:
 *   -ENOSPC  `vm` has no room for one more window
 *   -EBUSY   the window is being unmapped at the moment
 *   -ENOMEM  there is no memory for page tables */
int window_map_step(struct vm *vm, struct vm *front, struct takt_window *out);
/* Unmaps the window. Frees it if its front VM is gone. */
int window_unmap_step(struct vm *vm, struct window *w);
/* Call it when `vm` goes, for its role as a front VM: takes its RAM out of all windows. */
int windows_revoke_step(struct vm *vm);
/* Call it when `vm` goes and is off all pCPUs, for its role as a back end: forgets its windows, in
 * one step. */
void windows_forget(struct vm *vm);
/* Call it after that: scrubs and frees the waste, which contains what the VM wrote there. */
int waste_free_step(struct backend *b);

#endif
