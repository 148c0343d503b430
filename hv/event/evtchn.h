/* Event channels: ports of a VM joined in pairs, with pending and mask bits in a page that guest and
 * hypervisor share. */
#ifndef HV_EVENT_EVTCHN_H
#define HV_EVENT_EVTCHN_H

#include <takt/abi.h>
#include "lib/hist.h"
#include "lib/spinlock.h"

enum port_state { PORT_FREE, PORT_UNBOUND, PORT_JOINED, PORT_SYSTEM };

struct evtchn_dom;

struct evtchn_port {
    u8 state;  /* enum port_state */
    u8 vector; /* 0: none; only the pending bit */
    u16 vcpu;
    u32 remote_vm; /* who may bind (unbound), who is bound (joined) */
    u32 remote_port;
    u64 sent_ns; /* when the pending bit was set; 0 after it was seen taken */
};

struct evtchn_dom {
    u32 vm;
    u32 nr_vcpus;
    u32 nr_ports;               /* in use */
    struct takt_shared *shared; /* the page, the hypervisor's address */
    struct evtchn_port *port;   /* TAKT_MAX_PORTS, grown by the page */
    struct spinlock lock;
    struct hist notify_to_handle; /* ns */
    /* Raise `vector` on a vCPU, waking it; vector 0: only wake if it polls. Set by hv/vm. */
    void (*raise)(struct evtchn_dom *d, u32 vcpu, u8 vector, u32 port);
    struct evtchn_dom *(*find)(u32 vm); /* NULL: no such VM; the caller holds whatever keeps it alive */
};

int evtchn_init(struct evtchn_dom *d, u32 vm, u32 nr_vcpus, struct takt_shared *shared);
void evtchn_fini(struct evtchn_dom *d); /* closes all; the other ends become unbound */

/* Each as its hypercall: a port or 0, or -EINVAL, -ENOENT, -EBUSY, -ENOSPC, -EPERM. */
int evtchn_alloc(struct evtchn_dom *d, u32 remote_vm);
int evtchn_bind(struct evtchn_dom *d, u32 remote_vm, u32 remote_port);
int evtchn_send(struct evtchn_dom *d, u32 port, u64 now);
int evtchn_mask(struct evtchn_dom *d, u32 port, bool masked, u64 now);
int evtchn_close(struct evtchn_dom *d, u32 port);
int evtchn_vector(struct evtchn_dom *d, u32 port, u32 vcpu, u32 vector);
/* Sets a port of the hypervisor's own pending (a store or device event). */
int evtchn_raise(struct evtchn_dom *d, u32 port, u64 now);
/* Is `port` (TAKT_PORT_ANY: any of this vCPU's) pending and not masked? */
bool evtchn_pending(const struct evtchn_dom *d, u32 vcpu, u32 port);

#endif
