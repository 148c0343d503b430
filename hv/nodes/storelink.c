/* The store's clients: the rules are in storelink.h. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "platform/timer.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

static struct spinlock store_lock;
static struct list due = { &due, &due };
static u32 working; /* atomically: the work item is queued */
static bool again;  /* the store has something left to do */

/* ---- handing over ---- */

static void told(struct store_client *c) {
    struct storelink *l = container_of(c, struct storelink, client);

    if (l->port && list_empty(&l->due)) list_add_tail(&due, &l->due);
}

/* Moves what can be moved on its ring (store_pump()). Is the VM to look? */
static bool pump(struct storelink *l, bool asks) {
    unsigned what;

    list_del(&l->due);
    what = store_pump(&l->client, asks);
    if (what & STORE_MORE) {
        again = true;
        told(&l->client);
    }
    return what & STORE_TELL;
}

/* What the store has begun, else who has waited longest: is there more? */
static bool serve(bool asks) {
    struct storelink *l;

    if (store_work()) return true;
    if (!list_empty(&due)) {
        l = list_first(&due, struct storelink, due);
        if (pump(l, asks)) evtchn_raise(&container_of(l, struct vm, store)->events, l->port, now_ns());
    }
    return again || !list_empty(&due);
}

/* A part: one of those, else what changed by another road. */
static bool work_step(struct work *w) {
    u32 expected = 2;
    bool more;

    __atomic_store_n(&working, expected, __ATOMIC_SEQ_CST); /* who asks from now on gets another step */
    spin_lock(&store_lock);
    again = false;
    more = serve(true) || storenodes_step();
    spin_unlock(&store_lock);
    return more ||
           !__atomic_compare_exchange_n(&working, &expected, 0, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

void storelink_work(void) {
    static struct work worker = { .step = work_step };

    if (__atomic_exchange_n(&working, 1, __ATOMIC_SEQ_CST) == 0) work_add(&worker);
}

void storelink_enter(void) { spin_lock(&store_lock); }

void storelink_leave(void) {
    bool more = again || serve(false); /* what others ask for is not this one's to do */

    spin_unlock(&store_lock);
    if (more) storelink_work();
}

void storelink_init(void) {
    int r = store_init(rdtsc());

    spin_lock(&store_lock);
    for (u32 at = 0; r == 0 && (r = storenodes_host(at)) == 0; at++)
        while (store_work())
            ;
    while (r == STORENODES_END && (store_work() || storenodes_step()))
        ;
    spin_unlock(&store_lock);
    if (r < 0) log_err("the store lacks nodes of the host: error %d", -r);
    param_hook = storelink_param;
}

/* ---- VMs ---- */

int vm_make_store(struct vm *vm) {
    int r;

    storelink_enter();
    if (vm->job.at == 0) {
        list_init(&vm->store.due);
        vm->store.client.notify = told;
        vm->store.client.observer = vm->config.observer;
        if (vm->config.observer) storenodes_keep_log();
        r = store_open(&vm->store.client, (u16)vm->id, false);
    } else {
        r = storenodes_vm(vm, vm->job.at - 1);
    }
    if (r == 0) vm->job.at++;
    storelink_leave();
    return r == 0 || r == -EBUSY ? 1 : r == STORENODES_END ? 0 : r;
}

int vm_undo_store(struct vm *vm) {
    bool more;

    if (!vm->store.client.link.next) return 0;
    storelink_enter();
    list_del(&vm->store.due);
    vm->store.port = 0;
    vm->store.move = NULL;
    vm->store.gone = true;
    more = store_close(&vm->store.client);
    storelink_leave();
    return more;
}

/* ---- hypercalls ---- */

i64 hc_store_connect(struct vcpu *v, const u64 *a) {
    struct storelink *l = &v->vm->store;
    int port = -EAGAIN;
    u64 room;

    if (a[0] % PAGE_SIZE) return -EINVAL;
    if (!guestmem_has(&v->vm->mem, a[0], PAGE_SIZE)) return -EFAULT;
    if (l->gone) return -ENODEV;
    storelink_enter();
    if (!l->client.page || store_reset(&l->client) == 0)
        port = l->port ? (int)l->port : evtchn_make(&v->vm->events);
    if (port > 0) {
        l->port = (u32)port;
        store_connect(&l->client, guestmem_at(&v->vm->mem, a[0], &room));
    }
    storelink_leave();
    return port;
}

i64 hc_store_notify(struct vcpu *v, const u64 *a) {
    struct storelink *l = &v->vm->store;
    bool look;

    if (!l->port) return -ENOENT;
    storelink_enter();
    look = pump(l, true);
    storelink_leave();
    return look;
}
