/* Event channels: ports of a VM joined in pairs, with pending and mask bits in a page that guest and
 * hypervisor share.
 *
 * Locks: one a VM (struct evtchn_dom), a leaf. Those of a pair are taken in the order of VM ids; `find`,
 * `put` and `raise` are called with none held.
 */
#ifndef HV_EVENT_EVTCHN_H
#define HV_EVENT_EVTCHN_H

#include <takt/abi.h>
#include "lib/hist.h"
#include "lib/spinlock.h"

/* PORT_RESERVED: being bound, not yet joined. */
enum port_state { PORT_FREE, PORT_UNBOUND, PORT_RESERVED, PORT_JOINED };

#define PORTS_PER_BLOCK 128u

struct evtchn_port {
    u8 state;  /* enum port_state */
    u8 vector; /* 0: none; only the pending bit */
    u16 vcpu;
    u32 remote_vm; /* who may bind (unbound), who is bound (joined) */
    u32 remote_port;
    u64 sent_ns; /* when the pending bit was set; 0 after it was seen taken */
};

struct evtchn_dom {
    /* set by evtchn_init and hv/vm, then constant */
    u32 vm;
    u32 nr_vcpus;
    struct takt_shared *shared; /* the page, the hypervisor's address */
    /* Raise `vector` on a vCPU, waking it; vector 0: only wake it if it polls. */
    void (*raise)(struct evtchn_dom *d, u32 vcpu, u8 vector, u32 port);
    struct evtchn_dom *(*find)(u32 vm); /* pins that VM; NULL: no such VM */
    void (*put)(struct evtchn_dom *d);  /* unpins */
    /* under the lock */
    struct spinlock lock;
    u32 nr_ports;                                                /* in use */
    struct evtchn_port *block[TAKT_MAX_PORTS / PORTS_PER_BLOCK]; /* grown when needed */
    struct hist notify_to_handle;                                /* ns */
};

/* The page must be zeroed. Port 0 is never handed out. */
void evtchn_init(struct evtchn_dom *d, u32 vm, u32 nr_vcpus, struct takt_shared *shared);
/* Closes all, a part a call: true if there is more. The other ends become unbound. Whoever comes later finds
 * no port and does not touch the page. */
bool evtchn_fini(struct evtchn_dom *d);

/* Each as its hypercall: a port or 0; -EINVAL: no such port number or argument; -ENOENT: the port, its other
 * end or that VM is not there; -EBUSY: already bound; -EPERM: for somebody else; -ENOSPC: no port left;
 * -ENOMEM. */
int evtchn_alloc(struct evtchn_dom *d, u32 remote_vm);
int evtchn_bind(struct evtchn_dom *d, u32 remote_vm, u32 remote_port);
int evtchn_send(struct evtchn_dom *d, u32 port, u64 now);
int evtchn_mask(struct evtchn_dom *d, u32 port, bool masked, u64 now);
int evtchn_close(struct evtchn_dom *d, u32 port);
int evtchn_vector(struct evtchn_dom *d, u32 port, u32 vcpu, u32 vector);
/* 1 if `port` (TAKT_PORT_ANY: any of this vCPU's) is pending and not masked, 0 if not, or -EINVAL, -ENOENT.
 */
int evtchn_pending(struct evtchn_dom *d, u32 vcpu, u32 port);
/* The vector of `port` reached its vCPU, or a poll for it ended: the time since it was sent in ns, 0 if
 * unknown. */
u64 evtchn_taken(struct evtchn_dom *d, u32 port, u64 now);

#endif
