/* Pools, and what is in them: creation, destruction, moves of pCPUs and of VMs. A pool is a set of
 * pCPUs with a scheduling policy and its parameters. A turbo pool (vTurbo) is one with very short
 * slices that serves another pool, its regular pool; the two are a pair, and a VM may have one vCPU
 * in the turbo pool. sched_lock lets one of these changes happen at a time. A pool's own lock is
 * taken for every change that scheduling could see. A vCPU that leaves a pool is first taken out of
 * the policy's queue. One that comes is placed first, and then woken if it can run. */
#include <takt/errno.h>
#include <takt/seed.h>
#include "lib/parse.h"
#include "common/string.h"
#include "sched/core.h"
#include "sched/machine.h"

struct sched_pool sched_pools[SCHED_MAX_POOLS];
static u64 seed;

/* Takes sched_lock and the lock of the pool that *where points to, and returns that pool. */
static struct sched_pool *pool_begin(struct sched_pool *const *where) {
    spin_lock(&sched_lock);
    return sched_enter(where);
}

/* Gives back what pool_begin() took. Returns `error`, so that a caller can end with it. */
static int pool_end(struct sched_pool *p, int error) {
    spin_unlock(&p->lock);
    spin_unlock(&sched_lock);
    return error;
}

/* Locks two pools, in the order of their ids, and gives both the same time. */
static void lock_both(struct sched_pool *a, struct sched_pool *b) {
    struct sched_pool *low = MIN(a, b), *high = MAX(a, b);

    ASSERT_HELD(&sched_lock);
    sched_enter(&low);
    sched_enter(&high);
    low->now = high->now = MAX(low->now, high->now);
}

/* Gives both locks back. */
static void unlock_both(struct sched_pool *a, struct sched_pool *b) {
    spin_unlock(&a->lock);
    spin_unlock(&b->lock);
}

/* Sets the seed of the random numbers of pools that are created from now on. */
void sched_set_seed(u64 new_seed) { seed = new_seed; }

/* Returns the next 64 bits of the pool's sequence of random numbers. */
u64 sched_random(struct sched_pool *p) {
    ASSERT_HELD(&p->lock);
    return seed_next(&p->random);
}

/* Returns a random number from 0 to n - 1. */
u64 sched_random_below(struct sched_pool *p, u64 n) { return seed_below(sched_random(p), n); }

/* ---- pools ---- */

/* Returns the pool after `after`, the first one if that is NULL, or NULL at the end. */
struct sched_pool *sched_pool_next(struct sched_pool *after) {
    struct sched_pool *p = sched_pools;

    if (after) p = after + 1;
    for (; p < &sched_pools[SCHED_MAX_POOLS]; p++)
        if (p->policy) return p;
    return NULL;
}

/* Returns the pool of that name, or NULL. */
struct sched_pool *sched_pool_find(const char *name) {
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p))
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

/* Returns the pool that a pCPU is in; NULL if there is no such pCPU, or if it is in no pool. */
struct sched_pool *sched_pool_of_cpu(u32 cpu) {
    if (cpu >= TAKT_MAX_CPUS || !sched_cpus[cpu]) return NULL;
    return sched_cpus[cpu]->pool;
}

/* Gives the pool a name. Returns 0, -EINVAL if the name is not valid, or -EEXIST if another pool
 * has it. */
static int pool_set_name(struct sched_pool *p, const char *name) {
    ASSERT_HELD(&sched_lock);
    if (!valid_name(name)) return -EINVAL;
    if (sched_pool_find(name)) return -EEXIST;
    memcpy(p->name, name, strlen(name) + 1);
    return 0;
}

/* Returns the number of a policy in sched_policies[]. If there is no such policy, returns the
 * number of the NULL at the end. */
static u32 policy_number(const char *name) {
    u32 i = 0;

    while (sched_policies[i] && strcmp(sched_policies[i]->name, name)) i++;
    return i;
}

/* Returns a pool that is not in use; NULL if there is none. */
static struct sched_pool *free_pool(void) {
    for (u32 id = 0; id < SCHED_MAX_POOLS; id++)
        if (!sched_pools[id].policy) return &sched_pools[id];
    return NULL;
}

/* Creates a pool without pCPUs. Returns 0 or a negative errno. Everything is filled in under the
 * pool's lock. `policy` is what makes the pool visible to sched_pool_next(). */
int sched_pool_create(const char *name, const char *policy, struct sched_pool **out) {
    u32 number = policy_number(policy);
    struct sched_pool *p;
    int error = -ENOSPC;

    if (!sched_policies[number]) return -EINVAL;
    spin_lock(&sched_lock);
    p = free_pool();
    if (p) error = pool_set_name(p, name);
    if (!error) {
        sched_enter(&p);
        p->id = (u32)(p - sched_pools);
        p->rotor = 0;
        p->policy = sched_policies[number];
        list_init(&p->vms);
        sched_monitor_init(p);
        memset(p->priv, 0, sizeof(p->priv));
        p->random = seed_of(seed, p->id);
        record_input(p, IN_POOL_CREATE, TRACE_NOBODY, number, seed);
        if (p->policy->pool_init) p->policy->pool_init(p);
        param_changed(p, NULL, NULL);
        spin_unlock(&p->lock);
        *out = p;
    }
    spin_unlock(&sched_lock);
    return error;
}

/* Destroys a pool. Returns 0, or -EBUSY if it is in use. Looks at all pCPUs, and not at p->cpus,
 * because a pCPU that is just leaving is not in p->cpus any more. */
int sched_pool_destroy(struct sched_pool *p) {
    pool_begin(&p);
    for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++)
        if (sched_pool_of_cpu(cpu) == p) return pool_end(p, -EBUSY);
    if (p->id == 0 || p->nr_vms || p->turbo || p->regular) return pool_end(p, -EBUSY);
    record_input(p, IN_POOL_DESTROY, TRACE_NOBODY, 0, 0);
    p->policy = NULL;
    param_changed(p, NULL, NULL);
    return pool_end(p, 0);
}

/* Gives a pool another name. Returns 0, -EINVAL or -EEXIST. Clients of the store that watch a VM of
 * the pool are told as well, because a node of the VM shows the name of its pool. */
int sched_pool_rename(struct sched_pool *p, const char *name) {
    int error;

    pool_begin(&p);
    error = pool_set_name(p, name);
    if (!error) {
        param_changed(p, NULL, "name");
        list_for_each(d, &p->vms, struct sched_vm, in_pool) param_changed(p, d, "pool");
    }
    return pool_end(p, error);
}

/* Returns the sentence that says why `t` cannot become the turbo pool of `p`, or, if `p` is NULL,
 * why its pair cannot end. Returns NULL if that is possible. */
static const char *pair_is_busy(const struct sched_pool *t, const struct sched_pool *p) {
    if (t->nr_vms) return "it has VMs";
    if (p && (p->turbo || p->regular || t->turbo || t->regular))
        return "one of the two is in a pair already";
    return NULL;
}

/* Returns the sentence that says why the settings of the two pools, which have just become a pair,
 * do not allow that. Returns NULL if they do. */
static const char *pair_conflict(const struct sched_pool *t, const struct sched_pool *p) {
    const char *why = t->policy->conflict(t);

    if (why) return why;
    return p->policy->conflict(p);
}

/* Makes `t` the turbo pool of `p`, or ends its pair if `p` is NULL. `other` is the regular pool of
 * the pair that begins or ends. The caller holds the locks of both. Returns 0, or an error with a
 * sentence in *why. */
static int pair_locked(struct sched_pool *t, struct sched_pool *p, struct sched_pool *other,
                       const char **why) {
    const char *unused;

    ASSERT_HELD(&t->lock);
    ASSERT_HELD(&other->lock);
    *why = pair_is_busy(t, p);
    if (*why) return -EBUSY;
    record_input(other, IN_PAIR, TRACE_NOBODY, p != NULL, t->id);
    t->regular = p;
    other->turbo = NULL;
    if (p) {
        p->turbo = t;
        *why = pair_conflict(t, p);
        if (*why) {
            t->regular = p->turbo = NULL;
            return -EINVAL;
        }
    }
    other->policy->changed(other, NULL, &unused);
    return 0;
}

/* Makes `t` the turbo pool of `p`, or ends the pair if `p` is NULL. Returns 0, or an error with a
 * sentence in *why. The two are locked in the order of their ids, so the turbo pool has to be the
 * newer one. */
int sched_pool_pair_why(struct sched_pool *t, struct sched_pool *p, const char **why) {
    struct sched_pool *other = p;
    int error;

    if (!other) other = t->regular;
    if (!other) return 0;
    *why = "the turbo pool has to be the newer one of the two";
    if (other >= t) return -EINVAL;
    *why = "both pools have to run credit";
    if (t->policy != other->policy || !t->policy->pairs) return -EINVAL;
    spin_lock(&sched_lock);
    lock_both(t, other);
    error = pair_locked(t, p, other, why);
    unlock_both(t, other);
    spin_unlock(&sched_lock);
    return error;
}

/* ---- pCPUs ---- */

/* Adds a pCPU that is in no pool to this pool. Returns 0, -ENODEV or -EBUSY. The pCPU is kicked, so
 * that it looks at once whether there is a vCPU for it. */
int sched_pool_add_cpu(struct sched_pool *p, u32 cpu) {
    struct sched_cpu *c;

    if (cpu >= TAKT_MAX_CPUS || !sched_cpus[cpu]) return -ENODEV;
    c = sched_cpus[cpu];
    pool_begin(&p);
    if (c->pool) return pool_end(p, -EBUSY);
    record_input(p, IN_CPU_ADD, TRACE_NOBODY, 0, cpu);
    memset(c->priv, 0, sizeof(c->priv));
    __atomic_store_n(&c->pool, p, __ATOMIC_RELEASE);
    cpumask_set(&p->cpus, cpu);
    p->nr_cpus = cpumask_weight(&p->cpus);
    cpumask_set(&p->idlers, cpu);
    if (p->policy->cpu_add) p->policy->cpu_add(p, cpu);
    sched_monitor_start(p, cpu);
    sched_kick(p, cpu);
    return pool_end(p, 0);
}

/* Sends every vCPU that is assigned to `cpu` elsewhere. Returns whether one is still there
 * because the pCPU holds its state; that one leaves as soon as its state has been saved. */
static bool evacuate(struct sched_pool *p, u32 cpu) {
    bool busy = false;

    list_for_each(d, &p->vms, struct sched_vm, in_pool)
        for_each_vcpu(v, d) {
            if (v->cpu == cpu && !v->migrating) sched_migrate(p, v);
            if (v->cpu == cpu) busy = true;
        }
    return busy;
}

/* Takes a pCPU out of its pool. Returns 0, -EAGAIN if it is to be called again, or another error.
 * `leaving` keeps the pCPU from getting vCPUs while it still has one. It is cleared at the last
 * call, when the pCPU is out of the pool. */
int sched_pool_remove_cpu(struct sched_pool *p, u32 cpu) {
    struct sched_cpu *c;

    if (cpu >= TAKT_MAX_CPUS || !sched_cpus[cpu]) return -EINVAL;
    c = sched_cpus[cpu];
    pool_begin(&p);
    if (c->pool != p) return pool_end(p, -EINVAL);
    if (p->id == 0 && cpu == 0) return pool_end(p, -EBUSY);
    if (!c->leaving && p->nr_vms && p->nr_cpus == 1) return pool_end(p, -EBUSY);
    record_input(p, IN_CPU_REMOVE, TRACE_NOBODY, 0, cpu);
    c->leaving = true;
    cpumask_clear(&p->cpus, cpu);
    p->nr_cpus = cpumask_weight(&p->cpus);
    cpumask_clear(&p->idlers, cpu);
    if (evacuate(p, cpu) || c->current != &c->idle) return pool_end(p, -EAGAIN);
    if (p->policy->cpu_remove) p->policy->cpu_remove(p, cpu);
    for (u32 i = 0; i < SCHED_TIMERS; i++) {
        c->timer[i].armed = false;
        machine_timer_cancel(&c->timer[i].t);
    }
    c->leaving = false;
    __atomic_store_n(&c->pool, NULL, __ATOMIC_RELEASE);
    return pool_end(p, 0);
}

/* ---- VMs ---- */

/* Puts a VM into a pool. The policy's part of the VM begins with zeros. */
static void vm_join(struct sched_pool *p, struct sched_vm *d) {
    memset(d->priv, 0, sizeof(d->priv));
    d->route = ROUTE_FIXED;
    list_add_tail(&p->vms, &d->in_pool);
    p->nr_vms++;
    __atomic_store_n(&d->pool, p, __ATOMIC_RELEASE);
    if (p->policy->vm_add) p->policy->vm_add(p, d);
}

/* Gives v a first pCPU: the next one in turn among those that it may use, so that new vCPUs are
 * spread; then the policy may choose a better one. */
static void vcpu_join(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    memset(v->priv, 0, sizeof(v->priv));
    if (p->policy->vcpu_add) p->policy->vcpu_add(p, v);
    v->cpu = cpumask_cycle(&allowed, p->rotor);
    p->rotor = v->cpu + 1;
    sched_place(p, v);
}

/* Takes v out of all that the policy keeps. */
static void vcpu_leave(struct sched_pool *p, struct sched_vcpu *v) {
    sched_unqueue(p, v);
    if (p->policy->vcpu_remove) p->policy->vcpu_remove(p, v);
    v->parked = false; /* only the policy that it leaves could unpark it */
}

/* Adds a VM without vCPUs to a pool. The VM begins paused, so that none of its vCPUs runs before it
 * is complete. */
int sched_vm_init(struct sched_vm *d, u32 id, const char *name, struct sched_vcpu **vcpus,
                  struct sched_pool *p) {
    *d = (struct sched_vm){ .id = id, .name = name, .vcpu = vcpus, .paused = 1 };
    pool_begin(&p);
    if (!p->policy) return pool_end(p, -EINVAL);
    record_input(p, IN_DOM_INIT, id << 16, 0, 0);
    vm_join(p, d);
    return pool_end(p, 0);
}

/* Adds the second part of a VM, which holds its turbo vCPU, to the turbo pool. Returns 0 or
 * -EINVAL. Both pools are locked, because the policy copies the VM's values from one to the
 * other. */
int sched_vm_init_turbo(struct sched_vm *t, struct sched_vm *d, struct sched_vcpu **vcpu) {
    struct sched_pool *p, *turbo;

    spin_lock(&sched_lock);
    p = d->pool;
    turbo = p->turbo;
    if (turbo) {
        *t = (struct sched_vm){
            .id = d->id | SCHED_TURBO, .name = d->name, .vcpu = vcpu, .paused = 1, .peer = d
        };
        lock_both(p, turbo);
        record_input(p, IN_TURBO, d->id << 16, 0, 0);
        d->peer = t;
        vm_join(turbo, t);
        unlock_both(p, turbo);
    }
    spin_unlock(&sched_lock);
    if (!turbo) return -EINVAL;
    return 0;
}

/* Takes a VM whose vCPUs are gone out of its pool. If the VM has a part in a turbo pool, both pools
 * are locked, because each part points to the other. */
void sched_vm_fini(struct sched_vm *d) {
    struct sched_vm *peer = d->peer;
    struct sched_pool *p = d->pool, *other = NULL;

    spin_lock(&sched_lock);
    if (peer) {
        other = peer->pool;
        lock_both(p, other);
    } else {
        sched_enter(&p);
    }
    record_input(p, IN_DOM_FINI, d->id << 16, 0, 0);
    if (peer) peer->peer = NULL;
    list_del(&d->in_pool);
    p->nr_vms--;
    __atomic_store_n(&d->pool, NULL, __ATOMIC_RELEASE);
    if (peer)
        unlock_both(p, other);
    else
        spin_unlock(&p->lock);
    spin_unlock(&sched_lock);
}

/* Adds a vCPU to its VM. Returns 0, or -EINVAL if its affinity has no pCPU of the pool. A new vCPU
 * is blocked, so that it does not run before the VM is complete. It begins when it is woken. */
int sched_vcpu_init(struct sched_vcpu *v, struct sched_vm *d, u32 id,
                    const struct cpumask *affinity) {
    struct sched_pool *p = pool_begin(&d->pool);
    struct cpumask allowed = cpumask_and(affinity, &p->cpus);

    if (cpumask_empty(&allowed)) return pool_end(p, -EINVAL);
    *v = (struct sched_vcpu){ .vm = d, .id = id, .on_cpu = SCHED_NO_CPU, .affinity = *affinity };
    v->state = RS_BLOCKED;
    v->blocked = true;
    v->since = p->now;
    if (RECORDING) sched_record_set(p, IN_VCPU_INIT, sched_who(v), affinity);
    d->vcpu[id] = v;
    d->nr_vcpus = MAX(d->nr_vcpus, id + 1);
    vcpu_join(p, v);
    return pool_end(p, 0);
}

/* Removes a vCPU, whose state no pCPU may hold any more. nr_vcpus becomes smaller if this was the
 * last one. */
void sched_vcpu_fini(struct sched_vcpu *v) {
    struct sched_vm *d = v->vm;
    struct sched_pool *p = pool_begin(&d->pool);

    record_input(p, IN_VCPU_FINI, sched_who(v), 0, 0);
    vcpu_leave(p, v);
    d->vcpu[v->id] = NULL;
    while (d->nr_vcpus && !d->vcpu[d->nr_vcpus - 1]) d->nr_vcpus--;
    pool_end(p, 0);
}

/* Moves a VM to the pool `to`, with the locks of both pools held by the caller. Nothing is changed
 * before all checks are done: a VM with a turbo vCPU stays (-EBUSY), and so does a VM while some
 * pCPU holds the state of a vCPU (-EAGAIN). Afterwards its vCPUs may run on all pCPUs of the new
 * pool. What the trace shows of both pools has the number of the same input, `sequence`. */
static int move_vm_locked(struct sched_pool *to, struct sched_vm *d) {
    struct sched_pool *from = d->pool;

    ASSERT_HELD(&from->lock);
    ASSERT_HELD(&to->lock);
    if (d->peer) return -EBUSY;
    if (!to->policy || cpumask_empty(&to->cpus)) return -EINVAL;
    for_each_vcpu(v, d)
        if (v->on_cpu != SCHED_NO_CPU) return -EAGAIN;
    record_input(to, IN_DOM_MOVE, d->id << 16, 0, 0);
    from->sequence = to->sequence;
    for_each_vcpu(v, d) vcpu_leave(from, v);
    list_del(&d->in_pool);
    from->nr_vms--;
    vm_join(to, d);
    for_each_vcpu(v, d) {
        cpumask_fill(&v->affinity);
        vcpu_join(to, v);
        sched_update(to, v, SCHED_MIGRATE);
    }
    return 0;
}

/* Moves a VM and its vCPUs to another pool. Returns 0, or an error with nothing changed. Both pools
 * are locked meanwhile; otherwise another pCPU could look between the two steps and find the VM in
 * no pool. */
int sched_pool_move_vm(struct sched_pool *to, struct sched_vm *d) {
    struct sched_pool *from;
    int error = 0;

    spin_lock(&sched_lock);
    from = d->pool;
    if (from != to) {
        lock_both(from, to);
        error = move_vm_locked(to, d);
        if (!error) param_changed(to, d, NULL);
        unlock_both(from, to);
    }
    spin_unlock(&sched_lock);
    return error;
}
