#include <takt/errno.h>
#include "event/evtchn.h"
#include "lib/string.h"
#include "mm/frame.h"

struct target { /* who has to hear of an event, once the lock is gone */
    bool raise;
    u8 vector;
    u32 vcpu;
};

static struct evtchn_port *port_at(struct evtchn_dom *d, u32 port) {
    if (port >= TAKT_MAX_PORTS || !d->block[port / PORTS_PER_BLOCK]) return NULL;
    return &d->block[port / PORTS_PER_BLOCK][port % PORTS_PER_BLOCK];
}

/* The port if it is in use; otherwise NULL and *error. */
static struct evtchn_port *port_used(struct evtchn_dom *d, u32 port, int *error) {
    struct evtchn_port *p = port_at(d, port);

    if (p && p->state != PORT_FREE && p->state != PORT_RESERVED) return p;
    *error = port == 0 || port >= TAKT_MAX_PORTS ? -EINVAL : -ENOENT;
    return NULL;
}

static void lock_pair(struct evtchn_dom *a, struct evtchn_dom *b) {
    if (a->vm > b->vm) {
        struct evtchn_dom *t = a;

        a = b;
        b = t;
    }
    spin_lock(&a->lock);
    if (a != b) spin_lock(&b->lock);
}

static void unlock_pair(struct evtchn_dom *a, struct evtchn_dom *b) {
    spin_unlock(&a->lock);
    if (a != b) spin_unlock(&b->lock);
}

static bool shared_bit(const u64 *words, u32 port) {
    return __atomic_load_n(&words[port / 64], __ATOMIC_SEQ_CST) >> (port % 64) & 1;
}

/* The words are the guest's as well: atomic, and nothing follows from what they say but an interrupt of its
 * own. */
static bool shared_set(u64 *words, u32 port) {
    return __atomic_fetch_or(&words[port / 64], BIT(port % 64), __ATOMIC_SEQ_CST) >> (port % 64) & 1;
}

static void shared_clear(u64 *words, u32 port) {
    __atomic_fetch_and(&words[port / 64], ~BIT(port % 64), __ATOMIC_SEQ_CST);
}

void evtchn_init(struct evtchn_dom *d, u32 vm, u32 nr_vcpus, struct takt_shared *shared) {
    memset(d, 0, sizeof(*d));
    d->vm = vm;
    d->nr_vcpus = nr_vcpus;
    d->shared = shared;
}

static void port_release(struct evtchn_dom *d, u32 port, struct evtchn_port *p) {
    memset(p, 0, sizeof(*p));
    shared_clear(d->shared->pending, port);
    shared_clear(d->shared->mask, port);
    d->nr_ports--;
}

/* A free port, now reserved. Blocks come from the heap, so not under the lock. */
static int port_take(struct evtchn_dom *d) {
    struct evtchn_port *fresh = NULL;
    int port = -ENOSPC;

    spin_lock(&d->lock);
    for (u32 i = 1; i < TAKT_MAX_PORTS; i++) {
        struct evtchn_port **block = &d->block[i / PORTS_PER_BLOCK];

        if (!*block && !fresh) {
            spin_unlock(&d->lock);
            fresh = heap_alloc(PORTS_PER_BLOCK * sizeof(struct evtchn_port));
            if (!fresh) return -ENOMEM;
            spin_lock(&d->lock);
        }
        if (!*block) {
            *block = fresh;
            fresh = NULL;
        }
        if (port_at(d, i)->state == PORT_FREE) {
            port_at(d, i)->state = PORT_RESERVED;
            d->nr_ports++;
            port = (int)i;
            break;
        }
    }
    spin_unlock(&d->lock);
    heap_free(fresh);
    return port;
}

int evtchn_alloc(struct evtchn_dom *d, u32 remote_vm) {
    int port = port_take(d);

    if (port < 0) return port;
    spin_lock(&d->lock);
    port_at(d, (u32)port)->remote_vm = remote_vm;
    port_at(d, (u32)port)->state = PORT_UNBOUND;
    spin_unlock(&d->lock);
    return port;
}

static int join(struct evtchn_dom *d, u32 port, struct evtchn_dom *r, u32 remote_port) {
    int error = 0;
    struct evtchn_port *q = port_used(r, remote_port, &error), *p = port_at(d, port);

    if (!q) return error;
    if (q->remote_vm != d->vm) return -EPERM;
    if (q->state != PORT_UNBOUND) return -EBUSY;
    q->state = p->state = PORT_JOINED;
    q->remote_port = port;
    p->remote_vm = r->vm;
    p->remote_port = remote_port;
    return 0;
}

int evtchn_bind(struct evtchn_dom *d, u32 remote_vm, u32 remote_port) {
    int port = port_take(d), error = -ENOENT;
    struct evtchn_dom *r;

    if (port < 0) return port;
    r = d->find(remote_vm);
    if (r) {
        lock_pair(d, r);
        error = join(d, (u32)port, r, remote_port);
        unlock_pair(d, r);
        d->put(r);
    }
    if (error) {
        spin_lock(&d->lock);
        port_release(d, (u32)port, port_at(d, (u32)port));
        spin_unlock(&d->lock);
        return error;
    }
    return port;
}

/* What `port` is joined to, pinned; NULL and *error if it is not. */
static struct evtchn_dom *other_end(struct evtchn_dom *d, u32 port, u32 *remote_port, int *error) {
    struct evtchn_port *p;
    struct evtchn_dom *r;
    u32 vm = 0;

    spin_lock(&d->lock);
    p = port_used(d, port, error);
    if (p && p->state == PORT_JOINED) {
        vm = p->remote_vm;
        *remote_port = p->remote_port;
    } else if (p) {
        *error = -ENOENT;
        p = NULL;
    }
    spin_unlock(&d->lock);
    if (!p) return NULL;
    r = d->find(vm);
    if (!r) *error = -ENOENT;
    return r;
}

/* Under r's lock: is `rp` still joined to (vm, port)? It was looked up without. */
static struct evtchn_port *still_joined(struct evtchn_dom *r, u32 rp, u32 vm, u32 port) {
    struct evtchn_port *q = port_at(r, rp);

    return q && q->state == PORT_JOINED && q->remote_vm == vm && q->remote_port == port ? q : NULL;
}

static void set_pending(struct evtchn_dom *r, u32 port, struct evtchn_port *q, u64 now, struct target *t) {
    if (shared_set(r->shared->pending, port)) return;
    q->sent_ns = now;
    if (shared_bit(r->shared->mask, port)) return;
    *t = (struct target){ true, q->vector, q->vcpu };
}

int evtchn_send(struct evtchn_dom *d, u32 port, u64 now) {
    struct target t = { 0 };
    struct evtchn_port *q;
    u32 rp;
    int error = 0;
    struct evtchn_dom *r = other_end(d, port, &rp, &error);

    if (!r) return error;
    spin_lock(&r->lock);
    q = still_joined(r, rp, d->vm, port);
    if (q) set_pending(r, rp, q, now, &t);
    spin_unlock(&r->lock);
    if (t.raise) r->raise(r, t.vcpu, t.vector, rp);
    d->put(r);
    return q ? 0 : -ENOENT;
}

int evtchn_mask(struct evtchn_dom *d, u32 port, bool masked, u64 now) {
    struct target t = { 0 };
    struct evtchn_port *p;
    int error = 0;

    spin_lock(&d->lock);
    p = port_used(d, port, &error);
    if (p && masked) {
        shared_set(d->shared->mask, port);
    } else if (p) {
        shared_clear(d->shared->mask, port);
        if (shared_bit(d->shared->pending, port)) {
            p->sent_ns = p->sent_ns ? p->sent_ns : now;
            t = (struct target){ true, p->vector, p->vcpu };
        }
    }
    spin_unlock(&d->lock);
    if (t.raise) d->raise(d, t.vcpu, t.vector, port);
    return error;
}

int evtchn_close(struct evtchn_dom *d, u32 port) {
    u32 rp = 0;
    int error = 0;
    struct evtchn_dom *r = other_end(d, port, &rp, &error);
    struct evtchn_dom *held = r ? r : d;
    struct evtchn_port *p, *q;

    if (error == -EINVAL) return error;
    error = 0;
    lock_pair(d, held);
    p = port_used(d, port, &error);
    if (p && r && p->state == PORT_JOINED) {
        q = still_joined(r, rp, d->vm, port);
        if (q) {
            q->state = PORT_UNBOUND;
            q->remote_port = 0;
        }
    }
    if (p) port_release(d, port, p);
    unlock_pair(d, held);
    if (r) d->put(r);
    return error;
}

int evtchn_vector(struct evtchn_dom *d, u32 port, u32 vcpu, u32 vector) {
    struct evtchn_port *p;
    int error = 0;

    if (vcpu >= d->nr_vcpus || vector > 255 || (vector && vector < 32)) return -EINVAL;
    spin_lock(&d->lock);
    p = port_used(d, port, &error);
    if (p) {
        p->vcpu = (u16)vcpu;
        p->vector = (u8)vector;
    }
    spin_unlock(&d->lock);
    return error;
}

static bool any_pending(struct evtchn_dom *d, u32 vcpu) {
    for (u32 w = 0; w < TAKT_MAX_PORTS / 64; w++) {
        u64 bits = __atomic_load_n(&d->shared->pending[w], __ATOMIC_SEQ_CST) &
                   ~__atomic_load_n(&d->shared->mask[w], __ATOMIC_RELAXED);

        for (; bits; bits &= bits - 1) {
            int error;
            struct evtchn_port *p = port_used(d, w * 64 + (u32)__builtin_ctzll(bits), &error);

            if (p && p->vcpu == vcpu) return true;
        }
    }
    return false;
}

int evtchn_pending(struct evtchn_dom *d, u32 vcpu, u32 port) {
    int r = 0;

    spin_lock(&d->lock);
    if (port == TAKT_PORT_ANY)
        r = any_pending(d, vcpu);
    else if (port_used(d, port, &r))
        r = shared_bit(d->shared->pending, port) && !shared_bit(d->shared->mask, port);
    spin_unlock(&d->lock);
    return r;
}

u64 evtchn_taken(struct evtchn_dom *d, u32 port, u64 now) {
    struct evtchn_port *p;
    u64 ns = 0;

    spin_lock(&d->lock);
    p = port_at(d, port);
    if (p && p->sent_ns && p->sent_ns <= now) {
        ns = now - p->sent_ns;
        hist_add(&d->notify_to_handle, ns);
    }
    if (p) p->sent_ns = 0;
    spin_unlock(&d->lock);
    return ns;
}

bool evtchn_fini(struct evtchn_dom *d) {
    struct evtchn_port *block = NULL;
    u32 at = 0;

    while (at < ARRAY_SIZE(d->block) && !d->block[at]) at++;
    if (at == ARRAY_SIZE(d->block)) return false;
    for (u32 i = at * PORTS_PER_BLOCK; i < (at + 1) * PORTS_PER_BLOCK; i++)
        if (port_at(d, i)->state != PORT_FREE) evtchn_close(d, i);
    spin_lock(&d->lock);
    block = d->block[at];
    d->block[at] = NULL;
    spin_unlock(&d->lock);
    heap_free(block);
    return true;
}
