/* The nodes that Takt keeps in the store, between the files of this room. All of it with the
 * store's lock (nodes.h), unless it says otherwise. */
#ifndef HV_NODES_NODE_H
#define HV_NODES_NODE_H

#include "nodes/nodes.h"

/* There is something to do for the work item. Also without the lock. */
void storelink_work(void);

/* Moves what can be moved between a VM and the store, as store_pump() does. Returns whether the VM
 * has to be told that something has come. With the lock. */
bool storelink_pump(struct storelink *l, bool asks);

/* ---- the serial port of a PC (storeline.c) ---- */

/* Makes the port of a VM that is a PC, and does nothing for another one, or if it
 * is there already. Returns 0 or -ENOMEM. */
int storeline_make(struct vm *vm);
void storeline_undo(struct vm *vm);
/* The same as store_pump(), for bytes that go over the port. With the lock. */
unsigned storeline_pump(struct storeline *l, struct store_client *c, bool asks);
/* Sets the port's interrupt line as its state wants it. With the lock or without. */
void storeline_tell(struct storeline *l);

/* The hypervisor's own connection. */
extern struct store_client nodes_client;

/* ---- where nodes are (layout.c) ---- */

/* Where a walk over the nodes of a VM, or of the host, is. {0}: at the first. */
struct node_walk {
    u32 group, item;
};

/* Makes the next node. Returns
 *   0               it is made, and *at is at the next one,
 *   STORENODES_END  there are no more,
 *   -EBUSY          the store was busy: the same call once more,
 *   another errno. */
#define STORENODES_END 1
int nodes_make_next_of_vm(struct vm *vm, struct node_walk *at);
int nodes_make_next_of_host(struct node_walk *at);

/* The path of a node in the home of `vm`, or of the host if it is NULL: that, and then `fmt`. There
 * is one buffer: it is valid until the next call. */
const char *node_path(const struct vm *vm, const char *fmt, ...) PRINTF(2, 3);
/* Sets the rights on io/ of `vm`: the VM itself may write there, and so may each VM that serves one
 * of its devices now. Returns 0, or -EBUSY or another errno as nodes_make_next_of_vm() does. */
int nodes_share_io(const struct vm *vm);
/* Writes a value that is not bound. */
int node_put(const char *path, const char *text);

/* The rights on nodes that only the operator may look at. */
extern const struct store_perms node_operator_only;

/* ---- what stands behind bound nodes (values.c): each with its `ctx` ---- */

extern const struct store_binding node_param;     /* struct vm, or struct sched_pool */
extern const struct store_binding node_request;   /* struct vm */
extern const struct store_binding node_ceiling;   /* a u32 of storelink.ceiling */
extern const struct store_binding node_quota;     /* a u32 of struct store_quota */
extern const struct store_binding node_vm_pool;   /* struct vm; writing moves it */
extern const struct store_binding node_vm_class;  /* struct vm */
extern const struct store_binding node_vm_events; /* struct vm */
extern const struct store_binding node_cpu_ms;    /* struct vm */
extern const struct store_binding node_vcpu;      /* struct vcpu */
/* struct vm; the node's name is the device's index */
extern const struct store_binding node_pci;
extern const struct store_binding node_cpu;     /* the number of a pCPU, as a pointer */
extern const struct store_binding node_counter; /* struct counter */
extern const struct store_binding node_uptime;  /* nothing */
extern const struct store_binding node_pool_name, node_pool_policy; /* struct sched_pool */

/* The quotas of the store that can be set. */
struct quota {
    const char *name;
    u32 at;   /* offset in struct store_quota */
    u32 most; /* what a call walks along is bounded by it, so that the call stays short */
};
#define NR_QUOTAS 8
extern const struct quota node_quotas[NR_QUOTAS];

/* ---- parameters and what else changes other than through the store (changes.c) ---- */

/* Names that param_hook may tell. First come two that are no parameters, then the parameters of all
 * policies: nodes are there for all, and are empty where a pool's policy has none of that name. The
 * place of a name in here is its number in masks. */
#define NO_PARAMS 2
struct param_names {
    u32 nr, max;
    const char *of[64];
};
extern struct param_names vm_names;   /* "pool", "class", parameters of VMs */
extern struct param_names pool_names; /* "name", "policy", parameters of pools */

/* The number of a name; names->nr if it is not there. */
u32 param_number(const struct param_names *names, const char *name);
/* Fills in both, and lets the nodes of the pools be made. Once, before the first node. */
void changes_init(void);

/* The pCPU `cpu` sets a parameter on behalf of the store, whose watches hear of it already;
 * SCHED_NO_CPU: none does now. */
void changes_from_store(u32 cpu);
/* Tells watches of one value that was set other than through the store, or moves a VM. Returns
 * false if there was nothing to do. */
bool changes_step(void);

/* ---- the log (keeplog.c) ---- */

/* From now on the log is in the store, for observers. */
void keeplog_start(void);

#endif
