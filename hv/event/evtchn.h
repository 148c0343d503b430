/* Event channels: ports of a VM joined in pairs, with pending and mask bits in a page that guest and
 * hypervisor share.
 *
 * Lock: one for all, held for some hundred instructions; a leaf but for the heap's. `raise` is called
 * without it.
 */
#ifndef HV_EVENT_EVTCHN_H
#define HV_EVENT_EVTCHN_H

#include <takt/abi.h>
#include "lib/list.h"
#include "lib/spinlock.h"

struct evtchn_dom;

struct evtchn_port {
    struct evtchn_dom *peer; /* joined with its `peer_port`; NULL: unbound */
    u32 remote_vm;           /* who may bind, or is bound */
    u16 peer_port : 15;
    u16 fixed : 1;   /* made by the hypervisor: the guest can neither close it nor have it bound */
    u8 vcpu, vector; /* vector 0: none; only the pending bit */
    u64 sent_ns;     /* when the pending bit was set; 0 after it was traced as taken, which needs no lock */
};

struct evtchn_dom {
    /* set by evtchn_init, then constant */
    u32 vm, nr_vcpus;
    struct takt_shared *shared; /* the page, the hypervisor's address */
    /* Raise `vector` on a vCPU, waking it; vector 0: only wake it if it polls. `other`: it was not the VM
     * itself. */
    void (*raise)(struct evtchn_dom *d, u32 vcpu, u8 vector, u32 port, bool other);
    u32 users; /* who is just raising here, atomically */
    /* under the lock */
    struct list link;
    u64 used[TAKT_MAX_PORTS / 64]; /* a bit a port */
    struct evtchn_port *port;      /* all of them; allocated with the first */
};

extern struct spinlock evtchn_lock;

/* `d` and the page must be zeroed. Port 0 is never handed out. */
void evtchn_init(struct evtchn_dom *d, u32 vm, u32 nr_vcpus, struct takt_shared *shared,
                 void (*raise)(struct evtchn_dom *, u32, u8, u32, bool));
/* Closes all, a part a call: true if there is more, or somebody is just raising an event here. The other ends
 * become unbound. Afterwards nobody finds this VM or touches its page. */
bool evtchn_fini(struct evtchn_dom *d);

/* Each as its hypercall: a port or 0; -EINVAL: no such port number or argument; -ENOENT: the port, its other
 * end or that VM is not there; -EBUSY: already bound; -EPERM: for somebody else, or the hypervisor's;
 * -ENOSPC: no port left; -ENOMEM. */
int evtchn_alloc(struct evtchn_dom *d, u32 remote_vm);
int evtchn_bind(struct evtchn_dom *d, u32 remote_vm, u32 remote_port);
int evtchn_send(struct evtchn_dom *d, u32 port, u64 now);
/* The hypervisor's own event, as if another VM had sent it. */
int evtchn_raise(struct evtchn_dom *d, u32 port, u64 now);
int evtchn_mask(struct evtchn_dom *d, u32 port, bool masked, u64 now);
int evtchn_close(struct evtchn_dom *d, u32 port);
int evtchn_vector(struct evtchn_dom *d, u32 port, u32 vcpu, u32 vector);
/* For devices. A port that nobody binds and that stays until evtchn_fini(); -ENOSPC, -ENOMEM. */
int evtchn_make(struct evtchn_dom *d);
void evtchn_unmake(struct evtchn_dom *d, u32 port); /* before, if its device goes */
/* A port of d that is joined with `remote_port` of r, one of evtchn_make(): a new one, unless one of d's is
 * joined with it already. Both VMs have their page. -ENOSPC, -ENOMEM; -EBUSY: joined with another VM's. */
int evtchn_connect(struct evtchn_dom *d, struct evtchn_dom *r, u32 remote_port);
/* 1 if `port` (TAKT_PORT_ANY: any of this vCPU's) is pending and not masked, 0 if not, or -EINVAL, -ENOENT.
 */
int evtchn_pending(struct evtchn_dom *d, u32 vcpu, u32 port);
/* For the trace, when the vector of `port`, which is or was in use, reached its vCPU: the time since it was
 * sent in ns, 0 if unknown. */
u64 evtchn_taken(struct evtchn_dom *d, u32 port, u64 now);

#endif
