/* Devices that one VM serves for another: the hypervisor's part between front end and back end.
 *
 * A device exists from the time when the devices part of its front VM is made until that part is
 * undone. All devices, all VMs that may serve them (every VM), and the windows of these VMs are in
 * lists that backend_lock guards. Nobody keeps a pointer to a device, to a window or to the VM at
 * its other end without that lock. So no reference counts are needed: what is in a list exists,
 * together with its VM, its event channels and its tables.
 *
 * The rules when one end goes:
 *
 * A front VM that goes first takes its devices off the list. Then it puts the waste chunk of the
 * back end in the place of its RAM, chunk by chunk, in every window. Then it waits until each pCPU
 * that runs a vCPU of that back end has passed the TLB generation of the last change. Only after
 * that its RAM is scrubbed and freed. The window stays, full of waste, until the back end unmaps it
 * or goes.
 *
 * A back end that goes is off all pCPUs by then. Its windows are forgotten, and its devices are
 * withdrawn.
 *
 * Each end does this in steps of its own destruction, under the lock, and copes with what the other
 * end has left. So both may go at once, and either may go while a call of the other is half done.
 * Such calls are done in steps as well, and each step looks the device up again.
 *
 * Lock order: vm_lock, then backend_lock, then all others, because backend_lock is held while an
 * event is raised. QueueNotify does not take backend_lock, nor does TAKT_HC_BACK_IRQ while it
 * raises the event. */
#ifndef HV_DEVICES_DEVICES_H
#define HV_DEVICES_DEVICES_H

#include "vm/vm.h"

extern struct spinlock backend_lock;

/* The part of a VM that consists of its virtio devices, and of its place among the back ends. */
extern const struct vm_part devices_part;
/* Makes a VM with `kernel` wait, for at most 10 s, until each of its devices is offered. It comes
 * after all parts that take long, because the back ends have that time, too. */
extern const struct vm_part offers_part;

/* Registers the hypercalls of back ends. Call it once at boot, before the first VM. */
void back_ends_init(void);

/* hv/passthrough sets this at boot, before the first VM. If it is NULL, no VM has devices of the
 * machine. The function lets the devices of the machine that `vm` has reach [hpa, hpa + len) at
 * `gpa`, and no longer what was there before. With HPA_NONE they reach nothing there. `vm` has
 * vm->dma. It may be called on any pCPU, with backend_lock. Returns 0 or -ENOMEM; taking away
 * cannot fail. */
extern int (*devices_dma_map)(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len);

/* What reports say about a device. */
struct device_info {
    const char *type, *back; /* from the configuration, which lives as long as the VM */
    const char *state;       /* one word */
    u32 status, queues, resets;
    u64 notifies, interrupts, dropped; /* counts */
};
/* Fills in *out. Returns false if there is no such device. */
bool device_info(struct vm *vm, u32 number, struct device_info *out);

#endif
