/* VMs and the hypervisor as clients of the store (hv/store): who is served when, under which lock
 * (storelink.c); and the nodes that Takt keeps there itself (layout.c; docs/store.md lists them).
 *
 * Lock: one, held over every call into hv/store, for a part of work. Pools' locks and that of
 * event channels are taken inside it, never the other way round: whoever sets a parameter with
 * such a lock held only leaves word (storelink_param()). */
#ifndef HV_NODES_NODES_H
#define HV_NODES_NODES_H

#include "sched/policy.h"
#include "vm/vm.h"

extern const struct vm_part nodes_part; /* the VM's home in the store, and its client */

/* Once at boot, when there are pools and CPUs, and before the first VM. */
void storelink_init(void);

/* Around calls of hv/store: takes the lock, and gives it back. Leaving hands over what waits for
 * VMs, for at most one of them at once. */
void storelink_enter(void);
void storelink_leave(void);

/* Why the last write to a parameter's node was refused, "" if it was not: one sentence, for the
 * shell. The store's protocol has room for an error number only. With the lock. */
extern char storelink_why[PARAM_WHY];

/* param_hook: parameter `name` of `d` (of pool `p` if `d` is NULL) changed. From anywhere, with any
 * lock held. */
void storelink_param(struct sched_pool *p, struct sched_vm *d, const char *name);

/* ---- devices of the machine: a node each in the home of a VM ---- */

/* hv/passthrough sets it at boot, before the first VM; NULL: there are no such nodes. With the
 * lock. */
struct pci_nodes {
    /* Writes into `text` what the node of device `index` says. */
    void (*tell)(const struct vm *vm, u32 index, char *text, u32 size);
    /* The VM says that it has let go of the device. Returns 0, or -EINVAL if nobody has asked. */
    int (*let_go)(struct vm *vm, u32 index);
};
extern const struct pci_nodes *pci_nodes;

/* The node of device `index` says something else now. From any pCPU. */
void storelink_pci(struct vm *vm, u32 index);

#endif
