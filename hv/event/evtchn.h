/* Event channels: ports of VMs that are joined in pairs. The pending and mask bits of a VM's
 * ports are in a page that the guest and the hypervisor share.
 *
 * Locks: evtchn_lock (the list of VMs, and which port is joined with which) -> a VM's lock (its
 * ports). The heap's lock comes behind both. A pair is made and broken under evtchn_lock and the
 * locks of both VMs. So a sender needs only its own VM's lock: while it holds that, the other
 * end stays. The calls that are frequent (send, raise, mask, pending) never take evtchn_lock, so
 * VMs that talk do not wait for others that do. `raise` is called without any of these locks. */
#ifndef HV_EVENT_EVTCHN_H
#define HV_EVENT_EVTCHN_H

#include <takt/abi.h>
#include "lib/list.h"
#include "lib/spinlock.h"

struct evtchn_vm;

struct evtchn_port {
    struct evtchn_vm *peer; /* the VM that it is joined with; NULL: none, it is unbound */
    u32 remote_vm;          /* the VM that may bind it, or has done so */
    u16 peer_port : 15;     /* the port of `peer` */
    /* the hypervisor made it: the guest can neither close it nor have it bound */
    u16 fixed : 1;
    /* A sender reads these two, and writes the second, under the lock of its own end. So they
     * are accessed atomically. */
    u16 target;  /* vCPU << 8 | vector; with vector 0 only the pending bit is set */
    u64 sent_ns; /* when the pending bit was set; 0 once the event has been traced as taken */
};

/* Ports are allocated in groups, one for each word of `used`. */
#define EVTCHN_GROUP   64u

#define EVTCHN_NO_VCPU (~0u)

struct evtchn_vm {
    /* set by evtchn_init, then constant */
    u32 vm, nr_vcpus;
    struct takt_shared *shared; /* the shared page, as the hypervisor sees it */
    /* Raises `vector` on a vCPU, unless it is 0. Wakes the vCPUs that poll `port`, and that vCPU
     * if it polls any port. With EVTCHN_NO_VCPU the port is gone, and there is no vCPU. `other`:
     * the event is not from the VM itself. */
    void (*raise)(struct evtchn_vm *d, u32 vcpu, u8 vector, u32 port, bool other);
    u32 users;        /* pCPUs that are raising an event here now; changed atomically */
    struct list link; /* under evtchn_lock */
    struct spinlock lock;
    /* under `lock` */
    u64 used[TAKT_MAX_PORTS / EVTCHN_GROUP]; /* a bit a port */
    u32 words;                               /* words of `used` from here on have always been 0 */
    /* The ports of each word of `used`. A group is allocated with the first port in it, and stays
     * until evtchn_fini(). */
    struct evtchn_port *group[TAKT_MAX_PORTS / EVTCHN_GROUP];
};

/* Returns the entry of a port that is or was in use. */
static inline struct evtchn_port *evtchn_port(const struct evtchn_vm *d, u32 port) {
    return &d->group[port / EVTCHN_GROUP][port % EVTCHN_GROUP];
}

extern struct spinlock evtchn_lock;

/* Adds a VM. `d` and the page must be zeroed. Port 0 is never handed out. */
void evtchn_init(struct evtchn_vm *d, u32 vm, u32 nr_vcpus, struct takt_shared *shared,
                 void (*raise)(struct evtchn_vm *, u32, u8, u32, bool));
/* Does a part of closing all ports of a VM. Returns true if there is more to do, or if a pCPU is
 * raising an event here now. The other ends become unbound. Afterwards nobody finds this VM or
 * touches its page. */
bool evtchn_fini(struct evtchn_vm *d);

/* These are hypercalls. They return a port or 0, or
 *   -EINVAL  there is no port of that number, or an argument is not valid
 *   -ENOENT  the port is closed, or its other end or that VM is not there
 *   -EBUSY   the port is bound already
 *   -EPERM   the port is for another VM, or the hypervisor's
 *   -ENOSPC  no port is left
 *   -ENOMEM  there is no memory */
int evtchn_alloc(struct evtchn_vm *d, u32 remote_vm);
int evtchn_bind(struct evtchn_vm *d, u32 remote_vm, u32 remote_port);
int evtchn_send(struct evtchn_vm *d, u32 port, u64 now);
int evtchn_mask(struct evtchn_vm *d, u32 port, bool masked, u64 now);
int evtchn_close(struct evtchn_vm *d, u32 port);
int evtchn_vector(struct evtchn_vm *d, u32 port, u32 vcpu, u32 vector);
/* Raises an event of the hypervisor, as if another VM had sent it. */
int evtchn_raise(struct evtchn_vm *d, u32 port, u64 now);
/* Makes a port for a device. No VM can bind it, and it stays until evtchn_fini() or
 * evtchn_unmake(). Returns the port, -ENOSPC or -ENOMEM. */
int evtchn_make(struct evtchn_vm *d);
/* Closes such a port, when its device goes. */
void evtchn_unmake(struct evtchn_vm *d, u32 port);
/* Returns a port of d that is joined with `remote_port` of r, which evtchn_make() made: the one
 * that is already, or a new one. Both VMs have their page. -ENOSPC, -ENOMEM, or -EBUSY if
 * another VM's port is joined with it. */
int evtchn_connect(struct evtchn_vm *d, struct evtchn_vm *r, u32 remote_port);
/* Returns 1 if `port` (TAKT_PORT_ANY: any port of this vCPU) is pending and not masked, 0 if
 * not, -EINVAL or -ENOENT. */
int evtchn_pending(struct evtchn_vm *d, u32 vcpu, u32 port);
/* Returns the lowest port from `from` on that is bound to this vCPU, pending and not masked; 0:
 * there is none. */
u32 evtchn_first_pending(struct evtchn_vm *d, u32 vcpu, u32 from);
/* Returns the vCPU that `port`, which is in use, is bound to. Takes no lock. */
static inline u32 evtchn_vcpu(const struct evtchn_vm *d, u32 port) {
    return __atomic_load_n(&evtchn_port(d, port)->target, __ATOMIC_RELAXED) >> 8;
}
/* For the trace: to be called when the vector of `port`, which is or was in use, reached its
 * vCPU, or a poll for it ended. Returns the time since the event was sent in ns, 0 if that is
 * not known. Takes no lock. */
u64 evtchn_taken(struct evtchn_vm *d, u32 port, u64 now);

#endif
