/* Tells watches of values that change other than through the store. The store is a tree of named
 * values ("nodes"), and a watch is the wish of a client to be told when a node changes. A parameter
 * may be set by the shell, for example, by code that holds locks which come after the store's. So
 * that code only sets a bit here, and a work item tells the watches later. */
#include <takt/errno.h>
#include "common/string.h"
#include "nodes/node.h"
#include "x86/percpu.h"

struct param_names vm_names = { NO_PARAMS, STORELINK_PARAMS, { "pool", "class" } };
struct param_names pool_names = { NO_PARAMS, 64, { "name", "policy" } };

static struct {
    struct sched_pool *pool; /* NULL if there was no pool of this id yet */
    /* One bit for each name in pool_names, changed by atomics. A node stays once it is made. */
    u64 touched;
} pools[SCHED_MAX_POOLS];

static u32 writer = SCHED_NO_CPU;

/* Notes that pCPU `cpu` sets a parameter on behalf of the store now, or, with SCHED_NO_CPU, that
 * none does any more. storelink_param() reads this. */
void changes_from_store(u32 cpu) { __atomic_store_n(&writer, cpu, __ATOMIC_SEQ_CST); }

/* ---- names ---- */

/* Returns the number of a parameter's name; names->nr if it is not there. */
u32 param_number(const struct param_names *names, const char *name) {
    u32 i = 0;

    while (i < names->nr && strcmp(names->of[i], name) != 0) i++;
    return i;
}

/* Adds a name to those that have nodes, unless it is there. */
static void add_name(struct param_names *names, const char *name) {
    if (param_number(names, name) < names->nr) return; /* of another policy as well */
    if (names->nr < names->max) names->of[names->nr++] = name;
}

/* Finds the names of all parameters of all policies. */
static void collect_names(void) {
    for (u32 i = 0; sched_policies[i]; i++) {
        for (const struct param *p = sched_policies[i]->params; p && p->name; p++)
            add_name(p->scope == PARAM_POOL ? &pool_names : &vm_names, p->name);
    }
}

/* Collects the names of all parameters, and notes that all of the pools there are have no nodes
 * yet. Once at boot. */
void changes_init(void) {
    collect_names();
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p))
        storelink_param(p, NULL, NULL);
}

/* ---- setting the bits: this may be done from anywhere, with any lock held ---- */

/* Sets the bit of a name, or the bits of all names if `name` is NULL. A name that is not known has
 * no bit. */
static void leave_word(u64 *mask, const struct param_names *names, const char *name) {
    u64 all = ~0ull >> (64 - names->nr), bits = all;

    if (name) bits = all & BIT(param_number(names, name));
    __atomic_fetch_or(mask, bits, __ATOMIC_SEQ_CST);
    storelink_work();
}

/* Notes that parameter `name` of a VM or a pool has changed, so that changes_step() tells the
 * watches of its node. A change that came through the store is left out (`writer` is this pCPU),
 * because the store has told the watches of it already. */
void storelink_param(struct sched_pool *p, struct sched_vm *d, const char *name) {
    if (writer == this_cpu()->id) return;
    if (!d) {
        pools[p->id].pool = p;
        leave_word(&pools[p->id].touched, &pool_names, name);
    } else if (!(d->id & SCHED_TURBO)) { /* a turbo vm has no parameters of its own */
        leave_word(&container_of(d, struct vm, sched)->store.touched, &vm_names, name);
    }
}

/* Notes that the state of the VM's device number `index` has changed. */
void storelink_pci(struct vm *vm, u32 index) {
    __atomic_fetch_or(&vm->store.touched, BIT(STORELINK_PARAMS + index), __ATOMIC_SEQ_CST);
    storelink_work();
}
_Static_assert(STORELINK_PARAMS + CONFIG_MAX_PCI <= 63,
               "each has a bit, and STORELINK_IO is the last");

/* ---- telling watches ---- */

/* Clears the lowest bit that is set in *mask and returns its number. Returns -1 if no bit is
 * set. */
static int take_bit(u64 *mask) {
    int n;

    if (!*mask) return -1;
    n = __builtin_ctzll(*mask);
    __atomic_fetch_and(mask, ~BIT(n), __ATOMIC_SEQ_CST);
    return n;
}

/* Returns the binding of the node whose name has number `n` in pool_names. */
static const struct store_binding *pool_binding(u32 n) {
    if (n == 0) return &node_pool_name;
    if (n == 1) return &node_pool_policy;
    return &node_param;
}

/* Tells the clients that watch a node of a pool that the node has changed: one node at each call.
 * The node is made the first time. Returns false if no node has changed. */
static bool touch_pool(u32 id) {
    int n = take_bit(&pools[id].touched);
    const char *node;

    if (n < 0) return false;
    node = node_path(NULL, "/pool/%u/%s", id, pool_names.of[n]);
    if (store_touch(node) == -ENOENT)
        store_bind(node, pool_binding((u32)n), pools[id].pool, &node_operator_only);
    return true;
}

/* Moves the VM to the pool that was written to its node, as soon as no pCPU holds the state of one
 * of its vCPUs. The VM was paused when the node was written, and goes on now. `lost` are the
 * parameters of the VM that the new pool's policy does not have, or refuses. */
static void move_vm(struct vm *vm) {
    struct param_values lost;
    int error = param_move_vm(vm->store.move, &vm->sched, &lost);

    if (error == -EAGAIN) return;
    if (error) {
        log_warn("%s: cannot be moved to pool %s", vm->name, vm->store.move->name);
        lost.nr = 0;
    }
    for (u32 i = 0; i < lost.nr; i++)
        log_warn("%s: pool %s does not keep its %s, which was %ld", vm->name, vm->store.move->name,
                 lost.of[i].param->name, lost.of[i].value);
    vm->store.move = NULL;
    sched_unpause(&vm->sched);
}

/* Tells the watches of one node of a VM that the node has changed, or does a step of moving the VM.
 * Returns false if there was nothing to do. */
static bool touch_vm(struct vm *vm) {
    int n;

    if (vm->store.move) {
        move_vm(vm);
        return true;
    }
    if (vm->store.touched & STORELINK_IO) {
        __atomic_fetch_and(&vm->store.touched, ~STORELINK_IO, __ATOMIC_SEQ_CST);
        nodes_share_io(vm);
        return true;
    }
    n = take_bit(&vm->store.touched);
    if (n < 0) return false;
    if (n < STORELINK_PARAMS)
        store_touch(node_path(vm, "/sched/%s", vm_names.of[n]));
    else
        store_touch(node_path(vm, "/device/pci/%u", (u32)n - STORELINK_PARAMS));
    return true;
}

/* Tells the watches of one changed node, or does one step of moving a VM. Returns false if there
 * was nothing to do. It does one thing only, because the work item calls it again. A VM whose nodes
 * are not all made yet, or are being removed, has no watches to tell. */
bool changes_step(void) {
    for (u32 id = 0; id < SCHED_MAX_POOLS; id++)
        if (touch_pool(id)) return true;
    for (struct vm *vm = vm_next(NULL); vm; vm = vm_next(vm)) {
        if (!vm->store.client.link.next || vm->store.gone) continue;
        if (!touch_vm(vm)) continue;
        vm_put(vm);
        return true;
    }
    return false;
}
