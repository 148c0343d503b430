/* VMs and the hypervisor as clients of the store (hv/store): who is served when, under which lock; and the
 * nodes that Takt keeps there itself (storenodes.c; docs/store.md lists them).
 *
 * Lock: one, held over every call into hv/store, for a part of work. Pools' locks and that of event channels
 * are taken inside it, never the other way round: who sets a parameter only leaves word (storelink_param()).
 */
#ifndef HV_VM_STORELINK_H
#define HV_VM_STORELINK_H

#include "sched/policy.h"
#include "store/store.h"

struct vcpu;
struct vm;

#define STORELINK_PARAMS 32 /* parameters of VMs, of all policies, that have nodes */

struct storelink {
    struct store_client client;
    struct list due; /* among those for whom something waits */
    u32 port;        /* of the VM, which hears of it; 0: it has given no page yet */
    u64 touched;     /* atomically: a bit for each parameter that was set by another road, and from
                                      STORELINK_PARAMS on for each device of the machine */
    u32 ceiling[STORELINK_PARAMS]; /* the most that the VM may ask for */
    struct sched_pool *move;       /* it is on its way there, and paused for it */
    bool gone;                     /* it is being destroyed */
};

/* Why the last write to a parameter's node was refused, "" if it was not: one sentence, for the shell. The
 * store's protocol has room for an error number only. With the lock. */
extern char storelink_why[PARAM_WHY];

/* Rows of life.c's table. */
int vm_make_store(struct vm *vm);
int vm_undo_store(struct vm *vm);

void storelink_init(void); /* once, when there are pools and CPUs */

/* Around calls of hv/store. Leaving hands over what waits for others, at most one of them at once. */
void storelink_enter(void);
void storelink_leave(void);
/* param_hook. From anywhere, with any lock. */
void storelink_param(struct sched_pool *p, struct sched_dom *d, const char *name);

/* The node of its device `index` has another value. */
void storelink_pci(struct vm *vm, u32 index);

/* Hypercalls: include/takt/abi.h. */
i64 hc_store_connect(struct vcpu *v, const u64 *a);
i64 hc_store_notify(struct vcpu *v, const u64 *a);

/* ---- between storelink.c and storenodes.c; with the lock ---- */
void storelink_work(void); /* there is something to do; also without the lock */
/* Makes node `at` of a VM's home, or of the host's: 0; -EBUSY: again; another errno; or there are no more. */
#define STORENODES_END 1
int storenodes_vm(struct vm *vm, u32 at);
int storenodes_host(u32 at);
/* From now on the log is in the store, for observers. With the lock. */
void storenodes_keep_log(void);
/* Tells watches of one value that was set by another road, or moves a VM: false if there was nothing. */
bool storenodes_step(void);

#endif
