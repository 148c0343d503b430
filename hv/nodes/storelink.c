/* Connects VMs to the store, a tree of named values that VMs, the hypervisor and programs on the
 * host share. A VM is a client: it sends requests and takes replies by a ring, a queue in a page of
 * its RAM, and is told by an event that there is something in it. store_lock guards the whole
 * store, so whoever holds it does only a little: the rest is left to a work item, which runs in
 * short steps. The rules are in nodes.h. */
#include <takt/errno.h>
#include "nodes/node.h"
#include "vcpu/hypercall.h"
#include "x86/tsc.h"

static struct spinlock store_lock;

/* VMs for which something waits in the store. The one that has waited longest is first. */
static struct list due = { &due, &due };
static bool store_again; /* the store has something left to do for one that was served */

/* Whether the work item is queued. Changed by atomics. */
enum { IDLE, ASKED, AT_WORK };
static u32 working;

/* ---- handing over ---- */

/* The store calls this (store_client.notify) when something waits for the client. */
static void storelink_due(struct store_client *c) {
    struct storelink *l = container_of(c, struct storelink, client);

    if (l->gone || (!l->port && !l->line)) return;
    if (list_empty(&l->due)) list_add_tail(&due, &l->due);
}

/* Moves requests, replies and events between a VM's ring, or its serial port, and the store, as far
 * as that is possible now. Requests are taken only if `asks`. Returns whether the VM has to be
 * told. */
bool storelink_pump(struct storelink *l, bool asks) {
    unsigned what;

    list_del(&l->due);
    if (l->line && !l->client.page)
        what = storeline_pump(l->line, &l->client, asks);
    else
        what = store_pump(&l->client, asks);
    if (what & STORE_MORE) {
        store_again = true;
        storelink_due(&l->client);
    }
    return what & STORE_TELL;
}

/* Serves the VM that has waited longest, and tells it if its ring has changed. */
static void serve_first(bool asks) {
    struct storelink *l = list_first(&due, struct storelink, due);

    if (!storelink_pump(l, asks)) return;
    if (l->line) storeline_tell(l->line);
    if (l->port) evtchn_raise(&container_of(l, struct vm, store)->events, l->port, now_ns());
}

/* Goes on with what the store has begun, or else serves the VM that has waited longest. Returns
 * whether there is more. */
static bool storelink_serve(bool asks) {
    if (store_work()) return true;
    if (!list_empty(&due)) serve_first(asks);
    return store_again || !list_empty(&due);
}

/* Serves a VM, or else looks for what changed other than through the store. If somebody asks for
 * work at any time after the first line, there will be another step, so that nothing is
 * forgotten. */
static bool work_step(struct work *w) {
    u32 expected = AT_WORK;
    bool more;

    __atomic_store_n(&working, AT_WORK, __ATOMIC_SEQ_CST);
    spin_lock(&store_lock);
    store_again = false;
    more = storelink_serve(true) || changes_step();
    spin_unlock(&store_lock);
    if (more) return true;
    return !__atomic_compare_exchange_n(&working, &expected, IDLE, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST);
}

/* Asks the work item for a step. May be called from anywhere, with any lock held. */
void storelink_work(void) {
    static struct work worker = { .step = work_step };

    if (__atomic_exchange_n(&working, ASKED, __ATOMIC_SEQ_CST) == IDLE) work_add(&worker);
}

/* Takes the lock of the store, before calls of hv/store. */
void storelink_enter(void) { spin_lock(&store_lock); }

/* Gives the lock of the store back, after calls of hv/store. */
void storelink_leave(void) {
    /* The work item serves the requests of other VMs. */
    bool more = store_again || storelink_serve(false);

    spin_unlock(&store_lock);
    if (more) storelink_work();
}

/* ---- VMs ---- */

/* Makes the next node of the VM. The first step opens the VM's connection to the store; from then
 * on vm->job.at is 1 + the group of the next node. */
static int nodes_step(struct vm *vm) {
    struct vm_job *j = &vm->job;
    struct node_walk walk;
    int r;

    if (j->at == 0) {
        list_init(&vm->store.due);
        vm->store.client.notify = storelink_due;
        vm->store.client.observer = vm->config.observer;
        if (vm->config.observer) keeplog_start();
        r = storeline_make(vm);
        if (r) return r;
        r = store_open(&vm->store.client, (u16)vm->id, false);
        if (r == 0 && vm->store.line) r = store_stream(&vm->store.client);
        if (r == 0) j->at = 1;
        return r;
    }
    walk = (struct node_walk){ j->at - 1, (u32)j->offset };
    r = nodes_make_next_of_vm(vm, &walk);
    j->at = walk.group + 1;
    j->offset = walk.item;
    return r;
}

/* Does one step of making the VM's nodes in the store. Returns 1 if there is more to do, 0 at the
 * end, or a negative errno. */
static int nodes_make(struct vm *vm) {
    int r;

    storelink_enter();
    r = nodes_step(vm);
    storelink_leave();
    if (r == 0 || r == -EBUSY) return 1;
    if (r == STORENODES_END) return 0;
    return r;
}

/* Does one step of removing the VM from the store. `gone` stops those that would otherwise use its
 * client. Returns 1 if there is more to do. If the VM's client was never opened, there is nothing
 * to remove but perhaps the serial port. */
static int nodes_undo(struct vm *vm) {
    bool more = false;

    if (vm->store.client.link.next) {
        storelink_enter();
        list_del(&vm->store.due);
        vm->store.port = 0;
        vm->store.move = NULL;
        vm->store.gone = true;
        more = store_close(&vm->store.client);
        storelink_leave();
    }
    if (!more) storeline_undo(vm);
    return more;
}

const struct vm_part nodes_part = { "store", nodes_make, nodes_undo };

/* ---- hypercalls: include/takt/abi.h ---- */

/* Connects the VM's page. Returns the port, or a negative errno. The caller holds the lock of the
 * store. */
static int connect_page(struct vm *vm, gpa_t page) {
    struct storelink *l = &vm->store;
    int port = (int)l->port;
    u64 room;

    if (l->client.page && store_reset(&l->client) != 0) return -EAGAIN;
    if (store_stream(&l->client) != 0) return -ENOMEM;
    if (!port) port = evtchn_make(&vm->events);
    if (port <= 0) return port;
    l->port = (u32)port;
    store_connect(&l->client, guestmem_at(&vm->mem, page, &room));
    return port;
}

/* Connects the ring in the page at the guest-physical address a[0]. Returns the port, or a negative
 * errno. */
static i64 hc_store_connect(struct vcpu *v, const u64 *a) {
    int port;

    if (a[0] % PAGE_SIZE) return -EINVAL;
    if (!guestmem_has(&v->vm->mem, a[0], PAGE_SIZE)) return -EFAULT;
    if (v->vm->store.gone) return -ENODEV;
    storelink_enter();
    port = connect_page(v->vm, a[0]);
    storelink_leave();
    return port;
}

/* The guest has put something into its ring, or has made room there. Returns 1 if something was
 * moved, so that the guest has to look at the ring again, 0 if not, or -ENOENT if no ring is
 * connected. */
static i64 hc_store_notify(struct vcpu *v, const u64 *a) {
    struct storelink *l = &v->vm->store;
    bool look;

    if (!l->port) return -ENOENT;
    storelink_enter();
    look = storelink_pump(l, true);
    storelink_leave();
    return look;
}

/* ---- boot ---- */

/* Makes all nodes of the host. No VM is there yet, so this may take as long as it takes. */
static int make_host_nodes(void) {
    struct node_walk at = { 0 };
    int r;

    while ((r = nodes_make_next_of_host(&at)) == 0)
        while (store_work())
            ;
    if (r != STORENODES_END) return r;
    while (store_work() || changes_step())
        ;
    return 0;
}

/* Makes the store and the host's nodes in it, and registers its hypercalls. A host without some of
 * its nodes can still run VMs, so an error is only logged. */
void storelink_init(void) {
    static const struct hypercall calls[] = {
        { .nr = TAKT_HC_STORE_CONNECT, .fn = hc_store_connect },
        { .nr = TAKT_HC_STORE_NOTIFY, .fn = hc_store_notify },
    };
    int r = store_init(rdtsc());

    hypercalls_add(calls, ARRAY_SIZE(calls));
    if (r == 0) {
        spin_lock(&store_lock);
        r = make_host_nodes();
        spin_unlock(&store_lock);
    }
    if (r < 0) log_err("not all nodes of the host could be made in the store: error %d", -r);
    param_hook = storelink_param;
}
