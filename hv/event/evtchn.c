/* Event channels: one-bit messages between VMs, or from the hypervisor to a VM. A port is a VM's
 * end of one; two ports that are joined are a pair. In a page that the hypervisor shares with the
 * guest, each port has a bit "pending" and a bit "mask". A message sets the other end's pending
 * bit, and if that is not masked, tells a vCPU there. evtchn.h says which lock guards what. */
#include "event/evtchn.h"
#include <takt/errno.h>
#include "lib/spinlock.h"
#include "mm/frame.h"

struct spinlock evtchn_lock;
static struct list vms = { &vms, &vms };

/* ---- bits of ports ---- The guest writes the words of the shared page, too. So the hypervisor
 * changes them atomically, and whatever the guest writes there leads at most to an interrupt for
 * that guest itself. */

/* Is the port's bit set? */
static bool port_bit(const u64 *words, u32 port) {
    return __atomic_load_n(&words[port / 64], __ATOMIC_SEQ_CST) >> (port % 64) & 1;
}

/* Sets a port's bit. Returns the bit as it was before. */
static bool port_bit_set(u64 *words, u32 port) {
    return __atomic_fetch_or(&words[port / 64], BIT(port % 64), __ATOMIC_SEQ_CST) & BIT(port % 64);
}

/* Clears a port's bit. Returns the bit as it was before. */
static bool port_bit_clear(u64 *words, u32 port) {
    return __atomic_fetch_and(&words[port / 64], ~BIT(port % 64), __ATOMIC_SEQ_CST) &
           BIT(port % 64);
}

/* ---- ports; the VM's lock is held ---- */

/* Returns 0 if the port is in use, -EINVAL if there is no port of this number, -ENOENT if it is
 * closed. */
static int port_used(struct evtchn_vm *d, u32 port) {
    ASSERT_HELD(&d->lock);
    if (port == 0 || port >= TAKT_MAX_PORTS) return -EINVAL;
    if (!port_bit(d->used, port)) return -ENOENT;
    return 0;
}

/* Takes the VM's lock, and keeps it only if the port is in use. Otherwise returns the error of
 * port_used(), without the lock. */
static int port_lock(struct evtchn_vm *d, u32 port) {
    int error;

    spin_lock(&d->lock);
    error = port_used(d, port);
    if (error) spin_unlock(&d->lock);
    return error;
}

/* Takes the locks of both ends of a pair, which may be the same VM. Nobody takes two without
 * evtchn_lock, so their order does not matter. */
static void lock_ends(struct evtchn_vm *a, struct evtchn_vm *b) {
    ASSERT_HELD(&evtchn_lock);
    spin_lock(&a->lock);
    if (b != a) spin_lock(&b->lock);
}

/* Gives both locks back. */
static void unlock_ends(struct evtchn_vm *a, struct evtchn_vm *b) {
    if (b != a) spin_unlock(&b->lock);
    spin_unlock(&a->lock);
}

/* Returns the lowest port number that is free, with memory for the port. Returns -ENOMEM if there
 * is none, or -ENOSPC if all ports are used. */
static int port_free(struct evtchn_vm *d) {
    ASSERT_HELD(&d->lock);
    for (u32 w = 0; w < ARRAY_SIZE(d->used); w++) {
        u64 taken = d->used[w] | (w == 0);

        if (!~taken) continue;
        if (!d->group[w]) d->group[w] = heap_alloc(EVTCHN_GROUP * sizeof(*d->group[w]));
        if (!d->group[w]) return -ENOMEM;
        return (int)(w * EVTCHN_GROUP) + __builtin_ctzll(~taken);
    }
    return -ENOSPC;
}

/* Puts `p` at a free port. `port` may be an error of port_free(), which is returned. */
static int port_take(struct evtchn_vm *d, int port, struct evtchn_port p) {
    if (port < 0) return port;
    *evtchn_port(d, (u32)port) = p;
    port_bit_set(d->used, (u32)port);
    d->words = MAX(d->words, (u32)port / EVTCHN_GROUP + 1);
    return port;
}

/* Joins a new port of `d` with a port of `r`. If `fixed`, the hypervisor has made the port of `r`;
 * otherwise the guest of `r` has made it for `d`. The caller holds the locks of both. */
static int port_join(struct evtchn_vm *d, struct evtchn_vm *r, u32 remote_port, bool fixed) {
    int error = port_used(r, remote_port), port = port_free(d);
    struct evtchn_port *q;

    if (port < 0) return port;
    if (error) return error;
    q = evtchn_port(r, remote_port);
    if (q->fixed != fixed || (!fixed && q->remote_vm != d->vm)) return -EPERM;
    if (q->peer) return -EBUSY;
    q->peer = d;
    q->peer_port = (u16)port;
    return port_take(d, port,
                     (struct evtchn_port){ r, .remote_vm = r->vm, .peer_port = (u16)remote_port });
}

/* Tells the VM of `d` that an event is pending at `port` since the time `sent`, if `new` says that
 * it was not pending before. `other` says that the VM itself has not caused it. The port's `target`
 * names the vCPU and the vector for it. Gives up the lock `held`, which is that of the sender or of
 * `d`. From then on `users` keeps `d` from being destroyed. */
static void raise_and_unlock(struct spinlock *held, struct evtchn_vm *d, u32 port, bool new,
                             u64 sent, bool other) {
    bool masked = port_bit(d->shared->mask, port);
    u16 target = __atomic_load_n(&evtchn_port(d, port)->target, __ATOMIC_RELAXED);

    if (!new) {
        spin_unlock(held);
        return;
    }
    __atomic_store_n(&evtchn_port(d, port)->sent_ns, sent, __ATOMIC_RELAXED);
    __atomic_fetch_add(&d->users, 1, __ATOMIC_SEQ_CST);
    spin_unlock(held);
    if (!masked) d->raise(d, target >> 8, (u8)target, port, other);
    __atomic_fetch_sub(&d->users, 1, __ATOMIC_SEQ_CST);
}

/* ---- the calls ---- */

/* Adds a new VM, none of whose ports is in use. From here on other VMs can find it by its id, and
 * bind their ports to it. */
void evtchn_init(struct evtchn_vm *d, u32 vm, u32 nr_vcpus, struct takt_shared *shared,
                 void (*raise)(struct evtchn_vm *, u32, u8, u32, bool)) {
    d->vm = vm;
    d->nr_vcpus = nr_vcpus;
    d->shared = shared;
    d->raise = raise;
    spin_lock(&evtchn_lock);
    list_add_tail(&vms, &d->link);
    spin_unlock(&evtchn_lock);
}

/* Takes the lowest free port for `p`. Returns its number, or an error of port_free(). */
static int port_make(struct evtchn_vm *d, struct evtchn_port p) {
    int port;

    spin_lock(&d->lock);
    port = port_take(d, port_free(d), p);
    spin_unlock(&d->lock);
    return port;
}

/* Makes a port that the VM `remote_vm` may bind to. Returns its number, or a negative errno. */
int evtchn_alloc(struct evtchn_vm *d, u32 remote_vm) {
    return port_make(d, (struct evtchn_port){ .remote_vm = remote_vm });
}

/* Makes a port for a device of the VM, which the guest cannot close. Returns the port or a negative
 * errno. */
int evtchn_make(struct evtchn_vm *d) { return port_make(d, (struct evtchn_port){ .fixed = 1 }); }

/* Joins a new port of `d` with a port that another VM has allocated for it. Returns the new port,
 * or a negative errno. The other VM is found by its id. evtchn_lock is held all the time, so that
 * this VM cannot go before its port is joined. */
int evtchn_bind(struct evtchn_vm *d, u32 remote_vm, u32 remote_port) {
    int port = -ENOENT;

    spin_lock(&evtchn_lock);
    list_for_each(r, &vms, struct evtchn_vm, link) {
        if (r->vm != remote_vm) continue;
        lock_ends(d, r);
        port = port_join(d, r, remote_port, false);
        unlock_ends(d, r);
    }
    spin_unlock(&evtchn_lock);
    return port;
}

/* Sends an event through `port` to the port that it is joined with. Returns 0 or a negative errno.
 * This sets the pending bit of the other port. Only if the bit was clear before does the other VM
 * get an interrupt, so several events that come before it looks become one. */
int evtchn_send(struct evtchn_vm *d, u32 port, u64 now) {
    int error = port_lock(d, port);
    struct evtchn_vm *peer;
    struct evtchn_port *p;
    bool new;

    if (error) return error;
    p = evtchn_port(d, port);
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

/* Raises an event of the hypervisor at a port, as if another VM had sent it. */
int evtchn_raise(struct evtchn_vm *d, u32 port, u64 now) {
    int error = port_lock(d, port);

    if (!error)
        raise_and_unlock(&d->lock, d, port, !port_bit_set(d->shared->pending, port), now, true);
    return error;
}

/* Masks or unmasks a port of `d`. Returns 0 or a negative errno. When a port is unmasked and an
 * event is pending, its interrupt comes now, because it was not sent while the port was masked. */
int evtchn_mask(struct evtchn_vm *d, u32 port, bool masked, u64 now) {
    int error = port_lock(d, port);
    bool pending;
    u64 sent;

    if (error) return error;
    if (masked)
        port_bit_set(d->shared->mask, port);
    else
        port_bit_clear(d->shared->mask, port);
    pending = port_bit(d->shared->pending, port);
    sent = __atomic_load_n(&evtchn_port(d, port)->sent_ns, __ATOMIC_RELAXED);
    if (!sent) sent = now;
    raise_and_unlock(&d->lock, d, port, pending && !masked, sent, false);
    return 0;
}

/* Unbinds the other end of a port. The caller holds evtchn_lock and the lock of `d`. */
static void break_pair(struct evtchn_vm *d, struct evtchn_port *p) {
    struct evtchn_vm *peer = p->peer;

    ASSERT_HELD(&evtchn_lock);
    ASSERT_HELD(&d->lock);
    if (!peer) return;
    if (peer != d) spin_lock(&peer->lock);
    evtchn_port(peer, p->peer_port)->peer = NULL;
    if (peer != d) spin_unlock(&peer->lock);
}

/* Closes a port, and unbinds its other end. A guest (`guest`) must not close the ports that the
 * hypervisor has made for it, because devices use them. Returns 0 or a negative errno. */
static int close_port(struct evtchn_vm *d, u32 port, bool guest) {
    int error;

    spin_lock(&evtchn_lock);
    spin_lock(&d->lock);
    error = port_used(d, port);
    if (!error && guest && evtchn_port(d, port)->fixed) error = -EPERM;
    if (!error) {
        break_pair(d, evtchn_port(d, port));
        port_bit_clear(d->used, port);
        port_bit_clear(d->shared->pending, port);
        port_bit_clear(d->shared->mask, port);
    }
    spin_unlock(&d->lock);
    spin_unlock(&evtchn_lock);
    return error;
}

/* Wakes the vCPUs that poll a port that is closed now, so that they look again. Otherwise they
 * would wait for ever. */
static void wake_pollers(struct evtchn_vm *d, u32 port) {
    __atomic_fetch_add(&d->users, 1, __ATOMIC_SEQ_CST);
    d->raise(d, EVTCHN_NO_VCPU, 0, port, false);
    __atomic_fetch_sub(&d->users, 1, __ATOMIC_SEQ_CST);
}

/* Closes a port for the guest. Returns 0 or a negative errno. */
int evtchn_close(struct evtchn_vm *d, u32 port) {
    int error = close_port(d, port, true);

    if (!error) wake_pollers(d, port);
    return error;
}

/* Closes a port that evtchn_make() has made. */
void evtchn_unmake(struct evtchn_vm *d, u32 port) {
    if (close_port(d, port, false) == 0) wake_pollers(d, port);
}

/* Sets which vector of which vCPU an event at `port` raises. Returns 0 or a negative errno. The
 * vCPU and the vector are stored as one word. So evtchn_send(), which may read them without this
 * lock, never sees one of the old and one of the new. */
int evtchn_vector(struct evtchn_vm *d, u32 port, u32 vcpu, u32 vector) {
    int error;

    if (vcpu >= d->nr_vcpus || vector > 255 || (vector && vector < 32)) return -EINVAL;
    error = port_lock(d, port);
    if (error) return error;
    __atomic_store_n(&evtchn_port(d, port)->target, (u16)(vcpu << 8 | vector), __ATOMIC_RELAXED);
    spin_unlock(&d->lock);
    return 0;
}

/* Joins a port of `d`, the VM of a back end, with the port `remote_port` of `r`, the VM that has
 * the device. The hypervisor has made that port, so its number is valid. Returns the port of `d`,
 * or a negative errno. A back end may offer the same device again. It then gets the port that it
 * has already, instead of a second one. */
int evtchn_connect(struct evtchn_vm *d, struct evtchn_vm *r, u32 remote_port) {
    int port;

    spin_lock(&evtchn_lock);
    lock_ends(d, r);
    if (evtchn_port(r, remote_port)->peer == d)
        port = evtchn_port(r, remote_port)->peer_port;
    else
        port = port_join(d, r, remote_port, true); /* only a port that the hypervisor made */
    unlock_ends(d, r);
    spin_unlock(&evtchn_lock);
    return port;
}

/* Returns the lowest port from `from` on that is bound to this vCPU, pending and not masked; 0 if
 * there is none. Looks at 64 ports at a time. The caller holds the lock of `d`. */
static u32 first_pending_locked(struct evtchn_vm *d, u32 vcpu, u32 from) {
    ASSERT_HELD(&d->lock);
    for (u32 w = from / 64; w < d->words; w++) {
        u64 bits = __atomic_load_n(&d->shared->pending[w], __ATOMIC_SEQ_CST) & d->used[w] &
                   ~__atomic_load_n(&d->shared->mask[w], __ATOMIC_RELAXED);

        for (; bits; bits &= bits - 1) {
            u32 port = w * 64 + (u32)__builtin_ctzll(bits);

            if (port >= from && evtchn_vcpu(d, port) == vcpu) return port;
        }
    }
    return 0;
}

/* Returns the lowest port from `from` on that is pending for this vCPU, or 0. */
u32 evtchn_first_pending(struct evtchn_vm *d, u32 vcpu, u32 from) {
    u32 port;

    spin_lock(&d->lock);
    port = first_pending_locked(d, vcpu, from);
    spin_unlock(&d->lock);
    return port;
}

/* Returns whether an event is pending at `port` (or at any port of this vCPU) and is not masked, or
 * a negative errno. A poll, a hypercall by which a guest sleeps until an event comes, asks this
 * each time that its vCPU is woken. */
int evtchn_pending(struct evtchn_vm *d, u32 vcpu, u32 port) {
    int r;

    if (port == TAKT_PORT_ANY) return evtchn_first_pending(d, vcpu, 0) != 0;
    r = port_lock(d, port);
    if (r) return r;
    r = port_bit(d->shared->pending, port) && !port_bit(d->shared->mask, port);
    spin_unlock(&d->lock);
    return r;
}

/* Returns how long ago the event at `port` was sent, in ns, or 0 if that is not known, and forgets
 * it. */
u64 evtchn_taken(struct evtchn_vm *d, u32 port, u64 now) {
    u64 sent = __atomic_exchange_n(&evtchn_port(d, port)->sent_ns, 0, __ATOMIC_RELAXED);

    return sent && sent <= now ? now - sent : 0;
}

/* Does a part of closing all ports of a VM that ends. Returns true if there is more to do. Closes
 * the ports of one word (64 of them) at each call, which keeps each call short. While `users` is
 * not 0, a pCPU that found this VM before it left the list is still raising an event in it. */
bool evtchn_fini(struct evtchn_vm *d) {
    for (u32 w = 0; w < ARRAY_SIZE(d->used); w++) {
        if (!d->used[w]) continue;
        for (u64 bits = d->used[w]; bits; bits &= bits - 1)
            close_port(d, w * 64 + (u32)__builtin_ctzll(bits), false);
        return true;
    }
    spin_lock(&evtchn_lock);
    list_del(&d->link);
    spin_unlock(&evtchn_lock);
    for (u32 w = 0; w < ARRAY_SIZE(d->group); w++) {
        heap_free(d->group[w]);
        d->group[w] = NULL;
    }
    return __atomic_load_n(&d->users, __ATOMIC_SEQ_CST);
}
