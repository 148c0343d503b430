/* Event channels: ports of a VM joined in pairs, with pending and mask bits in a page that guest and
 * hypervisor share.
 *
 * Locks: evtchn_lock (the list of VMs, and which port is joined with which) -> a VM's lock (its
 * ports). The heap's comes behind both. A pair is made and broken under evtchn_lock and the locks
 * of both VMs. So a sender needs only its own VM's lock: while it holds that, the other end stays.
 * What is hot (send, raise, mask, pending) never takes evtchn_lock, and VMs that talk do not wait
 * for others that do. `raise` is called without any of these locks.
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
    u16 fixed : 1; /* made by the hypervisor: the guest can neither close it nor have it bound */
    /* These two are also read, and the second written, under the lock of the other end:
     * atomically. */
    u16 target;  /* vCPU << 8 | vector; vector 0: none, only the pending bit is set */
    u64 sent_ns; /* when the pending bit was set; 0 after it was traced as taken */
};

#define EVTCHN_NO_VCPU (~0u)

struct evtchn_dom {
    /* set by evtchn_init, then constant */
    u32 vm, nr_vcpus;
    struct takt_shared *shared; /* the page, the hypervisor's address */
    /* Raises `vector` on a vCPU, if it is not 0, and wakes those that poll `port`, and the vCPU
     * if it polls any port. EVTCHN_NO_VCPU: there is none, the port is gone. `other`: it was not
     * the VM itself. */
    void (*raise)(struct evtchn_dom *d, u32 vcpu, u8 vector, u32 port, bool other);
    u32 users;        /* who is just raising here, atomically */
    struct list link; /* under evtchn_lock */
    struct spinlock lock;
    /* under `lock` */
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
/* The lowest port from `from` on that is bound to this vCPU, pending and not masked; 0: none. */
u32 evtchn_first_pending(struct evtchn_dom *d, u32 vcpu, u32 from);
/* The vCPU that `port`, which is in use, is bound to. Takes no lock. */
static inline u32 evtchn_vcpu(const struct evtchn_dom *d, u32 port) {
    return __atomic_load_n(&d->port[port].target, __ATOMIC_RELAXED) >> 8;
}
/* For the trace, when the vector of `port`, which is or was in use, reached its vCPU, or a poll for
 * it ended: the time since the event was sent in ns, 0 if unknown. Takes no lock. */
u64 evtchn_taken(struct evtchn_dom *d, u32 port, u64 now);

#endif
