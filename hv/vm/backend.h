/* Devices that one VM serves for another: the hypervisor's part between front end and back end.
 *
 * A device exists as long as its front VM is more than half made: from vm_make_virtio() to
 * vm_undo_virtio(), rows of life.c's table. All of them, the VMs that may serve them (every VM), and the
 * windows that these have, hang in lists under backend_lock; nobody keeps a pointer to a device, a window or
 * the VM at its other end without that lock, so that no reference counts are needed: what is in a list is
 * there, with its VM, its event channels and its tables.
 *
 * The rules of an end:
 * - A front VM that goes takes its devices off the list first, then puts the waste chunk of the back end in
 *   the place of its RAM, chunk by chunk, in every window; then waits until each pCPU that runs a vCPU of
 *   that back end has passed the TLB generation of the last change. Only then its RAM is scrubbed and freed.
 *   The window stays, of waste, until the back end unmaps it or goes.
 * - A back end that goes is off all pCPUs by then. Its windows are forgotten, its devices withdrawn.
 * - Each does so in steps of its own destruction, under the lock, and finds what the other has left. So both
 *   may go at once, and either while a call of the other is half done: a call is done in parts as well, and
 *   each part looks the device up again.
 *
 * Lock order: backend_lock is below vm_lock and above all others (it is held while an event is raised). Not
 * taken: by QueueNotify, and by TAKT_HC_BACK_IRQ while it raises the event.
 */
#ifndef HV_VM_BACKEND_H
#define HV_VM_BACKEND_H

#include "lib/list.h"
#include "lib/spinlock.h"
#include "mm/tlbgen.h"
#include "vdev/bus.h"
#include "vdev/virtio_mmio.h"

struct vm;
struct vcpu;

/* What a VM has as a back end. Under backend_lock. */
struct backend {
    struct list in_all;  /* from vm_make_virtio() on */
    struct list windows; /* by address */
    u32 nr_windows;      /* in the list */
    u32 port;            /* TAKT_HC_BACK_PORT's; 0: not asked for */
    hpa_t waste;         /* a chunk; 0: no window so far */
    u64 scrubbed;        /* bytes of it */
};

extern struct spinlock backend_lock;

/* Rows of life.c's table: `job` says how far. */
int vm_make_virtio(struct vm *vm);
int vm_undo_virtio(struct vm *vm);

/* Others on which a vCPU of that VM is loaded pass its newest generation soon. */
void kick_users(const struct tlbgen *g);

/* The registers of a VM's devices: for its bus. */
void device_access(void *vm, const struct bus_access *a, u64 *value);

/* TAKT_HC_BACK_*. The arguments that have to fit into 32 bits do. */
i64 hc_back_port(struct vcpu *v, const u64 *a);
i64 hc_back_list(struct vcpu *v, const u64 *a);
i64 hc_back_offer(struct vcpu *v, const u64 *a);
i64 hc_back_state(struct vcpu *v, const u64 *a);
i64 hc_back_map(struct vcpu *v, const u64 *a);
i64 hc_back_unmap(struct vcpu *v, const u64 *a);
i64 hc_back_irq(struct vcpu *v, const u64 *a);
i64 hc_back_broken(struct vcpu *v, const u64 *a);

/* For reports. */
struct device_info {
    const char *type, *back; /* of the configuration, whose life is the VM's */
    const char *state;
    u32 status, queues, resets;
    u64 notifies, interrupts, dropped;
};
bool device_info(struct vm *vm, u32 number, struct device_info *out); /* false: there is no such device */

#endif
