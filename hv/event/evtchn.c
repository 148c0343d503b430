/* Event channels: evtchn.h tells what they are, and which lock guards what. */
#include "event/evtchn.h"
#include <takt/errno.h>
#include "lib/spinlock.h"
#include "mm/frame.h"

struct spinlock evtchn_lock;
static struct list doms = { &doms, &doms };

/* ---- bits of ports ---- The guest writes the words of the shared page, too. So they are
 * changed atomically, and what they say may lead to nothing but an interrupt for that guest. */

static bool port_bit(const u64 *words, u32 port) {
    return __atomic_load_n(&words[port / 64], __ATOMIC_SEQ_CST) >> (port % 64) & 1;
}

/* These two return the bit as it was before. */
static bool port_bit_set(u64 *words, u32 port) {
    return __atomic_fetch_or(&words[port / 64], BIT(port % 64), __ATOMIC_SEQ_CST) & BIT(port % 64);
}

static bool port_bit_clear(u64 *words, u32 port) {
    return __atomic_fetch_and(&words[port / 64], ~BIT(port % 64), __ATOMIC_SEQ_CST) &
           BIT(port % 64);
}

/* ---- ports; the VM's lock is held ---- */

/* Returns 0 if the port is in use, -EINVAL if there is no port of this number, -ENOENT if it is
 * closed. */
static int port_used(struct evtchn_dom *d, u32 port) {
    ASSERT_HELD(&d->lock);
    if (port == 0 || port >= TAKT_MAX_PORTS) return -EINVAL;
    if (!port_bit(d->used, port)) return -ENOENT;
    return 0;
}

/* Takes the VM's lock and does the same. Keeps the lock only if the port is in use. */
static int port_lock(struct evtchn_dom *d, u32 port) {
    int error;

    spin_lock(&d->lock);
    error = port_used(d, port);
    if (error) spin_unlock(&d->lock);
    return error;
}

/* Takes the locks of both ends of a pair, which may be the same VM. Nobody takes two without
 * evtchn_lock, so their order does not matter. */
static void lock_ends(struct evtchn_dom *a, struct evtchn_dom *b) {
    ASSERT_HELD(&evtchn_lock);
    spin_lock(&a->lock);
    if (b != a) spin_lock(&b->lock);
}

static void unlock_ends(struct evtchn_dom *a, struct evtchn_dom *b) {
    if (b != a) spin_unlock(&b->lock);
    spin_unlock(&a->lock);
}

/* Returns the lowest port number that is free, -ENOMEM or -ENOSPC. */
static int port_free(struct evtchn_dom *d) {
    ASSERT_HELD(&d->lock);
    if (!d->port) d->port = heap_alloc(TAKT_MAX_PORTS * sizeof(*d->port));
    if (!d->port) return -ENOMEM;
    for (u32 w = 0; w < ARRAY_SIZE(d->used); w++) {
        u64 taken = d->used[w] | (w == 0);

        if (~taken) return (int)(w * 64) + __builtin_ctzll(~taken);
    }
    return -ENOSPC;
}

/* Puts `p` at a free port. `port` may be an error of port_free(), which is returned. */
static int port_take(struct evtchn_dom *d, int port, struct evtchn_port p) {
    if (port < 0) return port;
    d->port[port] = p;
    port_bit_set(d->used, (u32)port);
    return port;
}

/* Joins a new port of d with one of r. With `fixed` that is a port that the hypervisor has made,
 * without it one that r's guest has made for d. The locks of both are held. */
static int port_join(struct evtchn_dom *d, struct evtchn_dom *r, u32 remote_port, bool fixed) {
    int error = port_used(r, remote_port), port = port_free(d);
    struct evtchn_port *q;

    if (port < 0) return port;
    if (error) return error;
    q = &r->port[remote_port];
    if (q->fixed != fixed || (!fixed && q->remote_vm != d->vm)) return -EPERM;
    if (q->peer) return -EBUSY;
    q->peer = d;
    q->peer_port = (u16)port;
    return port_take(d, port,
                     (struct evtchn_port){ r, .remote_vm = r->vm, .peer_port = (u16)remote_port });
}

/* Tells the VM of d that something is pending at `port`, since the time `sent`, if that is new.
 * Gives up the lock `held`, which is the sender's or that of d; `users` keeps d from being
 * destroyed while its VM is told. */
static void raise_and_unlock(struct spinlock *held, struct evtchn_dom *d, u32 port, bool new,
                             u64 sent, bool other) {
    bool masked = port_bit(d->shared->mask, port);
    u16 target = __atomic_load_n(&d->port[port].target, __ATOMIC_RELAXED);

    if (!new) {
        spin_unlock(held);
        return;
    }
    __atomic_store_n(&d->port[port].sent_ns, sent, __ATOMIC_RELAXED);
    __atomic_fetch_add(&d->users, 1, __ATOMIC_SEQ_CST);
    spin_unlock(held);
    if (!masked) d->raise(d, target >> 8, (u8)target, port, other);
    __atomic_fetch_sub(&d->users, 1, __ATOMIC_SEQ_CST);
}

/* ---- the calls ---- */

void evtchn_init(struct evtchn_dom *d, u32 vm, u32 nr_vcpus, struct takt_shared *shared,
                 void (*raise)(struct evtchn_dom *, u32, u8, u32, bool)) {
    d->vm = vm;
    d->nr_vcpus = nr_vcpus;
    d->shared = shared;
    d->raise = raise;
    spin_lock(&evtchn_lock);
    list_add_tail(&doms, &d->link);
    spin_unlock(&evtchn_lock);
}

static int port_make(struct evtchn_dom *d, struct evtchn_port p) {
    int port;

    spin_lock(&d->lock);
    port = port_take(d, port_free(d), p);
    spin_unlock(&d->lock);
    return port;
}

int evtchn_alloc(struct evtchn_dom *d, u32 remote_vm) {
    return port_make(d, (struct evtchn_port){ .remote_vm = remote_vm });
}

int evtchn_make(struct evtchn_dom *d) { return port_make(d, (struct evtchn_port){ .fixed = 1 }); }

int evtchn_bind(struct evtchn_dom *d, u32 remote_vm, u32 remote_port) {
    int port = -ENOENT;

    spin_lock(&evtchn_lock);
    list_for_each(r, &doms, struct evtchn_dom, link) {
        if (r->vm != remote_vm) continue;
        lock_ends(d, r);
        port = port_join(d, r, remote_port, false);
        unlock_ends(d, r);
    }
    spin_unlock(&evtchn_lock);
    return port;
}

int evtchn_send(struct evtchn_dom *d, u32 port, u64 now) {
    int error = port_lock(d, port);
    struct evtchn_dom *peer;
    struct evtchn_port *p;
    bool new;

    if (error) return error;
    p = &d->port[port];
    peer = p->peer;
    if (!peer) {
        spin_unlock(&d->lock);
        return -ENOENT;
    }
    /* The pair is broken under both locks, so the peer and its port stay as long as ours is
     * held. */
    new = !port_bit_set(peer->shared->pending, p->peer_port);
    raise_and_unlock(&d->lock, peer, p->peer_port, new, now, peer != d);
    return 0;
}

int evtchn_raise(struct evtchn_dom *d, u32 port, u64 now) {
    int error = port_lock(d, port);

    if (!error)
        raise_and_unlock(&d->lock, d, port, !port_bit_set(d->shared->pending, port), now, true);
    return error;
}

int evtchn_mask(struct evtchn_dom *d, u32 port, bool masked, u64 now) {
    int error = port_lock(d, port);
    bool pending;
    u64 sent;

    if (error) return error;
    if (masked)
        port_bit_set(d->shared->mask, port);
    else
        port_bit_clear(d->shared->mask, port);
    pending = port_bit(d->shared->pending, port);
    sent = __atomic_load_n(&d->port[port].sent_ns, __ATOMIC_RELAXED);
    if (!sent) sent = now;
    raise_and_unlock(&d->lock, d, port, pending && !masked, sent, false);
    return 0;
}

/* Unbinds the other end of a port. evtchn_lock and the lock of d are held. */
static void break_pair(struct evtchn_dom *d, struct evtchn_port *p) {
    struct evtchn_dom *peer = p->peer;

    ASSERT_HELD(&evtchn_lock);
    ASSERT_HELD(&d->lock);
    if (!peer) return;
    if (peer != d) spin_lock(&peer->lock);
    peer->port[p->peer_port].peer = NULL;
    if (peer != d) spin_unlock(&peer->lock);
}

static int close_port(struct evtchn_dom *d, u32 port, bool guest) {
    int error;

    spin_lock(&evtchn_lock);
    spin_lock(&d->lock);
    error = port_used(d, port);
    if (!error && guest && d->port[port].fixed) error = -EPERM;
    if (!error) {
        break_pair(d, &d->port[port]);
        port_bit_clear(d->used, port);
        port_bit_clear(d->shared->pending, port);
        port_bit_clear(d->shared->mask, port);
    }
    spin_unlock(&d->lock);
    spin_unlock(&evtchn_lock);
    return error;
}

/* Wakes the vCPUs that poll a port which is gone, so that they look again. They would wait for
 * ever. */
static void wake_pollers(struct evtchn_dom *d, u32 port) {
    __atomic_fetch_add(&d->users, 1, __ATOMIC_SEQ_CST);
    d->raise(d, EVTCHN_NO_VCPU, 0, port, false);
    __atomic_fetch_sub(&d->users, 1, __ATOMIC_SEQ_CST);
}

int evtchn_close(struct evtchn_dom *d, u32 port) {
    int error = close_port(d, port, true);

    if (!error) wake_pollers(d, port);
    return error;
}

void evtchn_unmake(struct evtchn_dom *d, u32 port) {
    if (close_port(d, port, false) == 0) wake_pollers(d, port);
}

int evtchn_vector(struct evtchn_dom *d, u32 port, u32 vcpu, u32 vector) {
    int error;

    if (vcpu >= d->nr_vcpus || vector > 255 || (vector && vector < 32)) return -EINVAL;
    error = port_lock(d, port);
    if (error) return error;
    __atomic_store_n(&d->port[port].target, (u16)(vcpu << 8 | vector), __ATOMIC_RELAXED);
    spin_unlock(&d->lock);
    return 0;
}

int evtchn_connect(struct evtchn_dom *d, struct evtchn_dom *r, u32 remote_port) {
    int port;

    spin_lock(&evtchn_lock);
    lock_ends(d, r);
    if (r->port[remote_port].peer == d)
        port = r->port[remote_port].peer_port;
    else
        port = port_join(d, r, remote_port, true);
    unlock_ends(d, r);
    spin_unlock(&evtchn_lock);
    return port;
}

static u32 first_pending_locked(struct evtchn_dom *d, u32 vcpu, u32 from) {
    ASSERT_HELD(&d->lock);
    for (u32 w = from / 64; w < ARRAY_SIZE(d->used); w++) {
        u64 bits = __atomic_load_n(&d->shared->pending[w], __ATOMIC_SEQ_CST) & d->used[w] &
                   ~__atomic_load_n(&d->shared->mask[w], __ATOMIC_RELAXED);

        for (; bits; bits &= bits - 1) {
            u32 port = w * 64 + (u32)__builtin_ctzll(bits);

            if (port >= from && evtchn_vcpu(d, port) == vcpu) return port;
        }
    }
    return 0;
}

u32 evtchn_first_pending(struct evtchn_dom *d, u32 vcpu, u32 from) {
    u32 port;

    spin_lock(&d->lock);
    port = first_pending_locked(d, vcpu, from);
    spin_unlock(&d->lock);
    return port;
}

int evtchn_pending(struct evtchn_dom *d, u32 vcpu, u32 port) {
    int r;

    if (port == TAKT_PORT_ANY) return evtchn_first_pending(d, vcpu, 0) != 0;
    r = port_lock(d, port);
    if (r) return r;
    r = port_bit(d->shared->pending, port) && !port_bit(d->shared->mask, port);
    spin_unlock(&d->lock);
    return r;
}

u64 evtchn_taken(struct evtchn_dom *d, u32 port, u64 now) {
    u64 sent = __atomic_exchange_n(&d->port[port].sent_ns, 0, __ATOMIC_RELAXED);

    return sent && sent <= now ? now - sent : 0;
}

bool evtchn_fini(struct evtchn_dom *d) {
    for (u32 w = 0; w < ARRAY_SIZE(d->used); w++) {
        if (!d->used[w]) continue;
        for (u64 bits = d->used[w]; bits; bits &= bits - 1)
            close_port(d, w * 64 + (u32)__builtin_ctzll(bits), false);
        return true;
    }
    spin_lock(&evtchn_lock);
    list_del(&d->link);
    spin_unlock(&evtchn_lock);
    heap_free(d->port);
    d->port = NULL;
    return __atomic_load_n(&d->users, __ATOMIC_SEQ_CST);
}
