/* The invariants of the hypervisor's rooms between two events. inject.h has the contracts. */
#include "check.h"
#include "devices/device.h"
#include "store/tree.h"
#include "tests/whole/inject/inject.h"
#include "vcpu/vcpu.h"

/* ---- event channels ---- */

/* The VMs that exist now. A pointer to any other one is wrong. */
static struct vm *vms[PORT_VMS];
static u32 nr_vms;

/* The references are given back at once: between two events no VM can go. */
static void find_vms(void) {
    nr_vms = 0;
    for (struct vm *vm = vm_next(NULL); vm; vm = vm_next(vm)) {
        MUST(nr_vms < PORT_VMS, "there are %u VMs", nr_vms);
        vms[nr_vms++] = vm;
    }
}

static bool exists(const struct vm *vm) {
    for (u32 i = 0; i < nr_vms; i++)
        if (vms[i] == vm) return true;
    return false;
}

static bool port_is_used(const struct evtchn_vm *d, u32 port) {
    return port && port < TAKT_MAX_PORTS && d->used[port / 64] >> port % 64 & 1;
}

/* Checks a port of the VM that is in use: its vCPU exists and, if it is joined with a port of
 * another VM, that VM exists and the two ports name each other. */
static void check_port(const struct vm *vm, u32 port) {
    const struct evtchn_vm *d = &vm->events;
    const struct evtchn_port *p = evtchn_port(d, port), *q;

    MUST((u32)(p->target >> 8) < vm->nr_vcpus, "%s: port %u is for vCPU %u", vm->name, port,
         p->target >> 8);
    if (!p->peer) return;
    MUST(exists(container_of(p->peer, struct vm, events)), "%s: port %u has the peer %p", vm->name,
         port, p->peer);
    MUST(port_is_used(p->peer, p->peer_port), "%s: port %u is joined with %u, which is closed",
         vm->name, port, p->peer_port);
    q = evtchn_port(p->peer, p->peer_port);
    MUST(q->peer == d && q->peer_port == port, "%s: port %u is joined with %u, which has %u",
         vm->name, port, p->peer_port, q->peer_port);
}

/* Checks the event channels of all VMs: no lock is held, no pCPU raises an event at this moment,
 * and every port that is in use is in order. */
void check_events(void) {
    find_vms();
    MUST(!spin_is_locked(&evtchn_lock), "the lock of event channels");
    for (u32 i = 0; i < nr_vms; i++) {
        const struct evtchn_vm *d = &vms[i]->events;

        MUST(!spin_is_locked(&d->lock), "%s: the lock of its ports", vms[i]->name);
        MUST(d->users == 0, "%s: %u pCPUs raise events", vms[i]->name, d->users);
        for (u32 w = 0; w < d->words; w++)
            for (u64 bits = d->used[w]; bits; bits &= bits - 1)
                check_port(vms[i], w * 64 + (u32)__builtin_ctzll(bits));
    }
}

/* ---- devices and windows ---- */

/* Checks a window of `vm`: every chunk of it shows the front VM's RAM or, where that VM has gone,
 * the waste memory that takes its place, and all of it is allocated. */
static void check_window(const struct vm *vm, const struct window *w) {
    MUST(!w->front || exists(w->front), "%s: the front VM of a window", vm->name);
    MUST(w->waste <= w->chunks, "%s: %u of %u chunks are waste", vm->name, w->waste, w->chunks);
    if (w->unmapping) return;
    for (u32 n = 0; n < w->chunks; n++) {
        gpa_t gpa = w->base + guestmem_chunk_gpa(&w->ram, n);
        hpa_t pa, want = vm->back.waste;
        bool writable;

        if (n >= w->waste) want = w->front ? w->front->mem.chunk[n] : HPA_NONE;
        pa = npt_find(&vm->virt.npt, gpa, &writable);
        MUST(pa == want, "%s: chunk %u of the window on VM %u is %lx, not %lx", vm->name, n,
             w->front_id, pa, want);
        MUST(model_allocated(pa), "%s: chunk %u of the window on VM %u is free", vm->name, n,
             w->front_id);
    }
}

/* No two VMs have the same chunk, and all of them are allocated. */
static void check_ram(const struct vm *vm) {
    for (u32 n = 0; vm->mem.chunk && n < vm->mem.grown; n++) {
        bool writable;
        hpa_t pa = npt_find(&vm->virt.npt, guestmem_chunk_gpa(&vm->mem, n), &writable);

        MUST(model_allocated(vm->mem.chunk[n]), "%s: chunk %u of its RAM is free", vm->name, n);
        MUST(pa == HPA_NONE || vm->state == VM_DYING || pa == vm->mem.chunk[n],
             "%s: chunk %u of its RAM is %lx, not %lx", vm->name, n, pa, vm->mem.chunk[n]);
    }
}

/* Checks all devices, back ends and windows: the VMs at both of their ends exist, and each is in
 * the lists in which it belongs. */
void check_devices(void) {
    find_vms();
    MUST(!spin_is_locked(&backend_lock), "the lock of back ends");
    list_for_each(d, &devices, struct device, link) {
        MUST(exists(d->vm), "a device of a VM that has gone");
        MUST(d->vm->device[d->number] == d, "%s: device %u", d->vm->name, d->number);
        MUST(!d->back || exists(d->back), "%s: the back end of device %u", d->vm->name, d->number);
    }
    list_for_each(b, &back_ends, struct backend, in_all) {
        u32 windows = 0;

        MUST(exists(vm_of_backend(b)), "a back end that has gone");
        list_for_each(w, &b->windows, struct window, link) {
            check_window(vm_of_backend(b), w);
            windows++;
        }
        MUST(windows == b->nr_windows, "%s: %u windows", vm_of_backend(b)->name, windows);
    }
    for (u32 i = 0; i < nr_vms; i++) check_ram(vms[i]);
}

/* ---- the store ---- */

/* What a client has, as counted here. */
static struct account {
    const struct store_client *client;
    u32 nodes;
    u64 bytes;
} accounts[PORT_VMS];
static u32 nr_accounts;

static struct account *account_of(const struct store_client *c) {
    for (u32 i = 0; i < nr_accounts; i++)
        if (accounts[i].client == c) return &accounts[i];
    return NULL;
}

/* Adds what is paid for the nodes from `n` on downwards. */
static void add_nodes(const struct node *n) {
    struct account *a = account_of(n->payer);

    MUST(!n->payer || a, "the node %s is paid by a client that has gone", n->name);
    if (a) {
        a->bytes += node_size(n) + n->len;
        a->nodes++;
    }
    list_for_each(child, &n->children, struct node, sibling) {
        MUST(child->parent == n && child->exists, "%s is below %s", child->name, n->name);
        add_nodes(child);
    }
}

/* Adds what the client has beside nodes, and compares the sums with what it is charged. */
static void check_client(struct account *a) {
    const struct store_client *c = a->client;
    u32 watches = 0, events = 0, transactions = 0;

    list_for_each(w, &c->watches, struct watch, link) {
        MUST(w->client == c, "a watch of client %u", c->id);
        a->bytes += w->cost;
        watches++;
    }
    list_for_each(e, &c->events, struct event, link) {
        a->bytes += e->cost;
        events++;
    }
    list_for_each(tx, &c->transactions, struct transaction, link) {
        a->bytes += sizeof(*tx);
        transactions++;
        list_for_each(s, &tx->shadows, struct node, in_tx) {
            a->bytes += 2 * node_size(s) + s->len;
            a->nodes += s->counted;
        }
    }
    MUST(watches == c->nr_watches && events == c->nr_events && transactions == c->nr_transactions,
         "client %u has %u watches, %u events and %u transactions", c->id, watches, events,
         transactions);
    MUST(a->nodes == c->nodes, "client %u has %u nodes, and is charged %u", c->id, a->nodes,
         c->nodes);
    MUST((u32)a->bytes == c->memory, "client %u has %lu bytes, and is charged %u", c->id, a->bytes,
         c->memory);
}

/* While something long is in progress, what is charged is not yet what is there. */
void check_store(void) {
    if (store_busy()) return;
    nr_accounts = 0;
    list_for_each(c, &store.clients, struct store_client, link) {
        MUST(nr_accounts < PORT_VMS, "there are %u clients", nr_accounts);
        accounts[nr_accounts++] = (struct account){ .client = c };
    }
    add_nodes(store.root);
    add_nodes(store.special);
    for (u32 i = 0; i < nr_accounts; i++) check_client(&accounts[i]);
}
