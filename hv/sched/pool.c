/* Pools, and what lives in them: creation, destruction, moves of pCPUs and of VMs. All of it is
 * serialised by sched_lock; a pool's own lock is taken where scheduling could look. Whatever leaves a pool is
 * first taken out of the policy's queues; whatever comes is placed, and then woken if it can run. */
#include <takt/errno.h>
#include <takt/seed.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "sched/core.h"
#include "sched/machine.h"

struct sched_pool sched_pools[SCHED_MAX_POOLS];
static u64 seed;

/* Weak: labs/policies.c has a longer list. */
const struct sched_policy *const sched_policies[]
    __attribute__((weak)) = { &credit_policy, &null_policy, NULL };

/* Takes both locks; end() gives them back, and returns what the caller is to. */
static struct sched_pool *begin(struct sched_pool *const *where) {
    spin_lock(&sched_lock);
    return sched_enter(where);
}

static int end(struct sched_pool *p, int error) {
    spin_unlock(&p->lock);
    spin_unlock(&sched_lock);
    return error;
}

/* Two pools, by id, and one time for both. sched_lock is held. */
static void lock_both(struct sched_pool *a, struct sched_pool *b) {
    struct sched_pool *low = MIN(a, b), *high = MAX(a, b);

    sched_enter(&low);
    sched_enter(&high);
    low->now = high->now = MAX(low->now, high->now);
}

static void unlock_both(struct sched_pool *a, struct sched_pool *b) {
    spin_unlock(&a->lock);
    spin_unlock(&b->lock);
}

void sched_set_seed(u64 new_seed) { seed = new_seed; }

u64 sched_random(struct sched_pool *p) { return seed_next(&p->random); }

u64 sched_random_below(struct sched_pool *p, u64 n) { return seed_below(sched_random(p), n); }

/* ---- pools ---- */

struct sched_pool *sched_pool_next(struct sched_pool *after) {
    for (struct sched_pool *p = after ? after + 1 : sched_pools; p < &sched_pools[SCHED_MAX_POOLS]; p++)
        if (p->policy) return p;
    return NULL;
}

struct sched_pool *sched_pool_find(const char *name) {
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p))
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

struct sched_pool *sched_pool_of_cpu(u32 cpu) {
    return cpu < TAKT_MAX_CPUS ? sched_cpus[cpu].pool : NULL;
}

static int set_name(struct sched_pool *p, const char *name) {
    if (!valid_name(name)) return -EINVAL;
    if (sched_pool_find(name)) return -EEXIST;
    memcpy(p->name, name, strlen(name) + 1);
    return 0;
}

int sched_pool_create(const char *name, const char *policy, struct sched_pool **out) {
    struct sched_pool *p = sched_pools;
    u32 i = 0;
    int error;

    while (sched_policies[i] && strcmp(sched_policies[i]->name, policy)) i++;
    if (!sched_policies[i]) return -EINVAL;
    spin_lock(&sched_lock);
    while (p < &sched_pools[SCHED_MAX_POOLS] && p->policy) p++;
    error = p < &sched_pools[SCHED_MAX_POOLS] ? set_name(p, name) : -ENOSPC;
    if (!error) {
        sched_enter(&p);
        p->id = (u32)(p - sched_pools);
        p->rotor = 0;
        p->policy = sched_policies[i];
        list_init(&p->doms);
        sched_monitor_init(p);
        memset(p->priv, 0, sizeof(p->priv));
        p->random = seed_of(seed, p->id);
        record_input(p, IN_POOL_CREATE, TRACE_NOBODY, i, seed);
        if (p->policy->pool_init) p->policy->pool_init(p);
        param_changed(p, NULL, NULL);
        spin_unlock(&p->lock);
        *out = p;
    }
    spin_unlock(&sched_lock);
    return error;
}

int sched_pool_destroy(struct sched_pool *p) {
    begin(&p);
    for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++)
        if (sched_cpus[cpu].pool == p) return end(p, -EBUSY);
    if (p->id == 0 || p->nr_doms || p->turbo || p->regular) return end(p, -EBUSY);
    record_input(p, IN_POOL_DESTROY, TRACE_NOBODY, 0, 0);
    p->policy = NULL;
    param_changed(p, NULL, NULL);
    return end(p, 0);
}

int sched_pool_rename(struct sched_pool *p, const char *name) {
    int error;

    begin(&p);
    error = set_name(p, name);
    if (!error) {
        param_changed(p, NULL, "name");
        list_for_each(d, &p->doms, struct sched_dom, in_pool) param_changed(p, d, "pool");
    }
    return end(p, error);
}

int sched_pool_pair_why(struct sched_pool *t, struct sched_pool *p, const char **why) {
    struct sched_pool *other = p ? p : t->regular;
    const char *unused;
    int error = 0;

    if (!other) return 0;
    *why = "the turbo pool has to be the newer one of the two";
    if (other >= t) return -EINVAL;
    *why = "both pools have to run credit";
    if (t->policy != other->policy || !t->policy->pairs) return -EINVAL;
    spin_lock(&sched_lock);
    lock_both(t, other);
    *why = t->nr_doms ? "it has VMs" : "one of the two is in a pair already";
    if (t->nr_doms || (p && (p->turbo || p->regular || t->turbo || t->regular))) error = -EBUSY;
    if (!error) {
        record_input(other, IN_PAIR, TRACE_NOBODY, p != NULL, t->id);
        t->regular = p;
        other->turbo = p ? t : NULL;
        *why = p ? t->policy->conflict(t) : NULL;
        if (p && !*why) *why = p->policy->conflict(p);
        if (*why) {
            t->regular = other->turbo = NULL;
            error = -EINVAL;
        }
        if (!error) other->policy->changed(other, NULL, &unused);
    }
    unlock_both(t, other);
    spin_unlock(&sched_lock);
    return error;
}

/* ---- pCPUs ---- */

int sched_pool_add_cpu(struct sched_pool *p, u32 cpu) {
    struct sched_cpu *c = &sched_cpus[cpu];

    if (cpu >= TAKT_MAX_CPUS || !c->online) return -ENODEV;
    begin(&p);
    if (c->pool) return end(p, -EBUSY);
    record_input(p, IN_CPU_ADD, TRACE_NOBODY, 0, cpu);
    memset(c->priv, 0, sizeof(c->priv));
    __atomic_store_n(&c->pool, p, __ATOMIC_RELEASE);
    cpumask_set(&p->cpus, cpu);
    cpumask_set(&p->idlers, cpu);
    if (p->policy->cpu_add) p->policy->cpu_add(p, cpu);
    sched_monitor_start(p, cpu);
    sched_kick(p, cpu);
    return end(p, 0);
}

/* Sends every vCPU that is assigned to `cpu` elsewhere. True if one still has its state there. */
static bool evacuate(struct sched_pool *p, u32 cpu) {
    bool busy = false;

    list_for_each(d, &p->doms, struct sched_dom, in_pool)
        for_each_vcpu(v, d) {
            if (v->cpu == cpu && !v->migrating) sched_migrate(p, v);
            busy |= v->cpu == cpu;
        }
    return busy;
}

int sched_pool_remove_cpu(struct sched_pool *p, u32 cpu) {
    struct sched_cpu *c = &sched_cpus[cpu];

    if (cpu >= TAKT_MAX_CPUS) return -EINVAL;
    begin(&p);
    if (c->pool != p) return end(p, -EINVAL);
    if (p->id == 0 && cpu == 0) return end(p, -EBUSY);
    if (!c->leaving && p->nr_doms && cpumask_weight(&p->cpus) == 1) return end(p, -EBUSY);
    record_input(p, IN_CPU_REMOVE, TRACE_NOBODY, 0, cpu);
    c->leaving = true;
    cpumask_clear(&p->cpus, cpu);
    cpumask_clear(&p->idlers, cpu);
    if (evacuate(p, cpu) || c->current != &c->idle) return end(p, -EAGAIN);
    if (p->policy->cpu_remove) p->policy->cpu_remove(p, cpu);
    for (u32 i = 0; i < SCHED_TIMERS; i++) {
        c->timer[i].armed = false;
        machine_timer_cancel(&c->timer[i].t);
    }
    c->leaving = false;
    __atomic_store_n(&c->pool, NULL, __ATOMIC_RELEASE);
    return end(p, 0);
}

/* ---- VMs ---- */

static void dom_join(struct sched_pool *p, struct sched_dom *d) {
    memset(d->priv, 0, sizeof(d->priv));
    d->route = ROUTE_FIXED;
    list_add_tail(&p->doms, &d->in_pool);
    p->nr_doms++;
    __atomic_store_n(&d->pool, p, __ATOMIC_RELEASE);
    if (p->policy->dom_add) p->policy->dom_add(p, d);
}

/* A first pCPU for v, in turn among those it may use; then what the policy thinks best. */
static void vcpu_join(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    memset(v->priv, 0, sizeof(v->priv));
    if (p->policy->vcpu_add) p->policy->vcpu_add(p, v);
    v->cpu = cpumask_cycle(&allowed, p->rotor);
    p->rotor = v->cpu + 1;
    sched_place(p, v);
}

static void vcpu_leave(struct sched_pool *p, struct sched_vcpu *v) {
    sched_unqueue(p, v);
    if (p->policy->vcpu_remove) p->policy->vcpu_remove(p, v);
    v->parked = false; /* by the policy that it leaves */
}

int sched_dom_init(struct sched_dom *d, u32 id, const char *name, struct sched_vcpu **vcpus,
                   struct sched_pool *p) {
    *d = (struct sched_dom){ .id = id, .name = name, .vcpu = vcpus, .paused = 1 };
    begin(&p);
    if (!p->policy) return end(p, -EINVAL);
    record_input(p, IN_DOM_INIT, id << 16, 0, 0);
    dom_join(p, d);
    return end(p, 0);
}

int sched_dom_init_turbo(struct sched_dom *t, struct sched_dom *d, struct sched_vcpu **vcpu) {
    struct sched_pool *p, *turbo;

    spin_lock(&sched_lock);
    p = d->pool;
    turbo = p->turbo;
    if (turbo) {
        *t = (struct sched_dom){
            .id = d->id | SCHED_TURBO, .name = d->name, .vcpu = vcpu, .paused = 1, .peer = d
        };
        lock_both(p, turbo);
        record_input(p, IN_TURBO, d->id << 16, 0, 0);
        d->peer = t;
        dom_join(turbo, t);
        unlock_both(p, turbo);
    }
    spin_unlock(&sched_lock);
    return turbo ? 0 : -EINVAL;
}

void sched_dom_fini(struct sched_dom *d) {
    struct sched_dom *peer = d->peer;
    struct sched_pool *p = d->pool, *other = peer ? peer->pool : NULL;

    spin_lock(&sched_lock);
    if (peer)
        lock_both(p, other);
    else
        sched_enter(&p);
    record_input(p, IN_DOM_FINI, d->id << 16, 0, 0);
    if (peer) peer->peer = NULL;
    list_del(&d->in_pool);
    p->nr_doms--;
    __atomic_store_n(&d->pool, NULL, __ATOMIC_RELEASE);
    if (peer)
        unlock_both(p, other);
    else
        spin_unlock(&p->lock);
    spin_unlock(&sched_lock);
}

int sched_vcpu_init(struct sched_vcpu *v, struct sched_dom *d, u32 id, const struct cpumask *affinity) {
    struct sched_pool *p = begin(&d->pool);
    struct cpumask allowed = cpumask_and(affinity, &p->cpus);

    if (cpumask_empty(&allowed)) return end(p, -EINVAL);
    *v = (struct sched_vcpu){ .dom = d, .id = id, .on_cpu = SCHED_NO_CPU, .affinity = *affinity };
    v->state = RS_BLOCKED;
    v->blocked = true;
    v->since = p->now;
    record_input(p, IN_VCPU_INIT, sched_who(v), 0, affinity->bits);
    d->vcpu[id] = v;
    d->nr_vcpus = MAX(d->nr_vcpus, id + 1);
    vcpu_join(p, v);
    return end(p, 0);
}

void sched_vcpu_fini(struct sched_vcpu *v) {
    struct sched_dom *d = v->dom;
    struct sched_pool *p = begin(&d->pool);

    record_input(p, IN_VCPU_FINI, sched_who(v), 0, 0);
    vcpu_leave(p, v);
    d->vcpu[v->id] = NULL;
    while (d->nr_vcpus && !d->vcpu[d->nr_vcpus - 1]) d->nr_vcpus--;
    end(p, 0);
}

/* Both pools are locked. */
static int move(struct sched_pool *to, struct sched_dom *d) {
    struct sched_pool *from = d->pool;

    if (!to->policy || cpumask_empty(&to->cpus)) return -EINVAL;
    for_each_vcpu(v, d)
        if (v->on_cpu != SCHED_NO_CPU) return -EAGAIN;
    record_input(to, IN_DOM_MOVE, d->id << 16, 0, 0);
    from->sequence = to->sequence;
    for_each_vcpu(v, d) vcpu_leave(from, v);
    list_del(&d->in_pool);
    from->nr_doms--;
    dom_join(to, d);
    for_each_vcpu(v, d) {
        cpumask_fill(&v->affinity);
        vcpu_join(to, v);
        sched_update(to, v, SCHED_MIGRATE);
    }
    return 0;
}

int sched_pool_move_dom(struct sched_pool *to, struct sched_dom *d) {
    struct sched_pool *from;
    int error = 0;

    spin_lock(&sched_lock);
    from = d->pool;
    if (from != to) {
        lock_both(from, to);
        error = d->peer ? -EBUSY : move(to, d);
        if (!error) param_changed(to, d, NULL);
        unlock_both(from, to);
    }
    spin_unlock(&sched_lock);
    return error;
}
