/* Devices that one VM serves for another: the hypervisor's part between front end and back end.
 *
 * A device exists from when its front VM's devices part is made until that is undone. All
 * devices, all VMs that may serve them (every VM), and the windows that these have, hang in
 * lists under backend_lock. Nobody keeps a pointer to a device, a window or the VM at its other
 * end without that lock, so no reference counts are needed: what is in a list is there, with its
 * VM, its event channels and its tables.
 *
 * The rules when an end goes:
 * - A front VM that goes takes its devices off the list first. Then it puts the waste chunk of
 *   the back end in the place of its RAM, chunk by chunk, in every window. Then it waits until
 *   each pCPU that runs a vCPU of that back end has passed the TLB generation of the last
 *   change. Only then its RAM is scrubbed and freed. The window stays, full of waste, until the
 *   back end unmaps it or goes.
 * - A back end that goes is off all pCPUs by then. Its windows are forgotten, its devices
 *   withdrawn.
 * - Each does so in steps of its own destruction, under the lock, and copes with what the other
 *   has left. So both may go at once, and either may go while a call of the other is half done:
 *   calls are done in steps as well, and each step looks the device up again.
 *
 * Lock order: vm_lock, then backend_lock, then all others (it is held while an event is raised).
 * QueueNotify does not take it, nor does TAKT_HC_BACK_IRQ while it raises the event. */
#ifndef HV_DEVICES_DEVICES_H
#define HV_DEVICES_DEVICES_H

#include "vm/vm.h"

extern struct spinlock backend_lock;

/* its virtio devices, and its place among the back ends */
extern const struct vm_part devices_part;

/* Once at boot, before the first VM: the hypercalls of back ends. */
void back_ends_init(void);

/* hv/passthrough sets it at boot, before the first VM; NULL: no VM has devices of the machine.
 * Lets the devices of the machine that `vm`, which has vm->dma, has reach [hpa, hpa + len) at
 * `gpa`, and no longer what was there before; HPA_NONE: they reach nothing there. From any pCPU,
 * with backend_lock. Returns 0 or -ENOMEM; taking away cannot fail. */
extern int (*devices_dma_map)(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len);

/* For reports. */
struct device_info {
    const char *type, *back; /* of the configuration, which lives as long as the VM */
    const char *state;       /* one word */
    u32 status, queues, resets;
    u64 notifies, interrupts, dropped; /* counts */
};
/* Fills in *out. Returns false if there is no such device. */
bool device_info(struct vm *vm, u32 number, struct device_info *out);

#endif
