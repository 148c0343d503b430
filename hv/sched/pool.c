/* Pools, and what lives in them: creation, destruction, moves of pCPUs and of VMs. All of it is
 * serialised by sched_lock; a pool's own lock is taken where scheduling could look. Memory is had before
 * anything is changed and given back after, so that a call either does all or nothing. */
#include <takt/errno.h>
#include "lib/string.h"
#include "sched/machine.h"
#include "sched/record.h"

struct sched_pool sched_pools[SCHED_MAX_POOLS];

/* Private data of size 0 is no data at all. */
static int alloc_priv(u32 size, void **out) {
    *out = size ? machine_alloc(size) : NULL;
    return size && !*out ? -ENOMEM : 0;
}

const struct sched_policy *sched_policy_find(const char *name) {
    for (u32 i = 0; sched_policies[i]; i++)
        if (strcmp(sched_policies[i]->name, name) == 0) return sched_policies[i];
    return NULL;
}

static u32 policy_index(const struct sched_policy *policy) {
    u32 i = 0;

    while (sched_policies[i] != policy) i++;
    return i;
}

static int check_name(const char *name) {
    size_t n = strnlen(name, POOL_NAME);

    if (n == 0 || n == POOL_NAME) return -EINVAL;
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~') return -EINVAL;
    return sched_pool_find(name) ? -EEXIST : 0;
}

/* ---- pools ---- */

int sched_pool_create(const char *name, const char *policy, struct sched_pool **out) {
    const struct sched_policy *pol = sched_policy_find(policy);
    struct sched_pool *p = sched_pools;
    void *priv;
    int error;

    spin_lock(&sched_lock);
    error = check_name(name);
    if (!error && !pol) error = -EINVAL;
    while (p < &sched_pools[SCHED_MAX_POOLS] && p->policy) p++;
    if (!error && p == &sched_pools[SCHED_MAX_POOLS]) error = -ENOSPC;
    if (!error) error = alloc_priv(pol->pool_size, &priv);
    if (error) goto out;
    spin_lock(&p->lock);
    p->id = (u32)(p - sched_pools);
    memcpy(p->name, name, strlen(name) + 1);
    cpumask_zero(&p->cpus);
    cpumask_zero(&p->idlers);
    list_init(&p->doms);
    p->nr_doms = p->rotor = 0;
    p->priv = priv;
    p->policy = pol;
    record_input(p, IN_POOL_CREATE, sched_clock(p), TRACE_NOBODY, policy_index(pol), 0);
    if (pol->pool_init) pol->pool_init(p);
    spin_unlock(&p->lock);
    *out = p;
out:
    spin_unlock(&sched_lock);
    return error;
}

int sched_pool_destroy(struct sched_pool *p) {
    void *priv = NULL;
    int error = 0;

    spin_lock(&sched_lock);
    spin_lock(&p->lock);
    for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++)
        if (sched_cpus[cpu].pool == p) error = -EBUSY;
    if (p->id == 0 || p->nr_doms) error = -EBUSY;
    if (!error) {
        record_input(p, IN_POOL_DESTROY, sched_clock(p), TRACE_NOBODY, 0, 0);
        priv = p->priv;
        p->policy = NULL;
        p->priv = NULL;
    }
    spin_unlock(&p->lock);
    spin_unlock(&sched_lock);
    machine_free(priv);
    return error;
}

int sched_pool_rename(struct sched_pool *p, const char *name) {
    spin_lock(&sched_lock);
    int error = check_name(name);

    if (!error) memcpy(p->name, name, strlen(name) + 1);
    spin_unlock(&sched_lock);
    return error;
}

struct sched_pool *sched_pool_find(const char *name) {
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p))
        if (strcmp(p->name, name) == 0) return p;
    return NULL;
}

struct sched_pool *sched_pool_of_cpu(u32 cpu) {
    return cpu < TAKT_MAX_CPUS ? sched_cpus[cpu].pool : NULL;
}

struct sched_pool *sched_pool_next(struct sched_pool *after) {
    for (struct sched_pool *p = after ? after + 1 : sched_pools; p < &sched_pools[SCHED_MAX_POOLS]; p++)
        if (p->policy) return p;
    return NULL;
}

/* ---- pCPUs ---- */

int sched_pool_add_cpu(struct sched_pool *p, u32 cpu) {
    struct sched_cpu *c = sched_cpus;
    int error = -EBUSY;

    if (cpu >= TAKT_MAX_CPUS || !sched_cpus[cpu].online) return -ENODEV;
    c += cpu;
    spin_lock(&sched_lock);
    if (c->pool) goto out;
    error = alloc_priv(p->policy->cpu_size, &c->priv);
    if (error) goto out;
    spin_lock(&p->lock);
    u64 now = sched_clock(p);

    record_input(p, IN_CPU_ADD, now, TRACE_NOBODY, 0, cpu);
    __atomic_store_n(&c->pool, p, __ATOMIC_RELEASE);
    cpumask_set(&p->cpus, cpu);
    cpumask_set(&p->idlers, cpu);
    if (p->policy->cpu_add) p->policy->cpu_add(p, cpu, now);
    sched_kick(p, cpu, now);
    spin_unlock(&p->lock);
out:
    spin_unlock(&sched_lock);
    return error;
}

/* Sends every vCPU that is assigned to `cpu` elsewhere. True if one still has its state there. */
static bool evacuate(struct sched_pool *p, u32 cpu, u64 now) {
    bool busy = false;

    list_for_each(d, &p->doms, struct sched_dom, in_pool) {
        for (u32 i = 0; i < d->nr_vcpus; i++) {
            struct sched_vcpu *v = d->vcpu[i];

            if (!v || v->cpu != cpu) continue;
            if (!v->migrating) sched_send_away(p, v, now);
            busy |= v->cpu == cpu;
        }
    }
    return busy;
}

int sched_pool_remove_cpu(struct sched_pool *p, u32 cpu) {
    struct sched_cpu *c = sched_cpus;
    void *priv = NULL;
    int error = -EINVAL;

    if (cpu >= TAKT_MAX_CPUS) return -EINVAL;
    c += cpu;
    spin_lock(&sched_lock);
    spin_lock(&p->lock);
    if (c->pool != p) goto out;
    error = -EBUSY;
    if (p->id == 0 && cpu == 0) goto out;
    if (!c->leaving && p->nr_doms && cpumask_weight(&p->cpus) == 1) goto out;
    u64 now = sched_clock(p);

    record_input(p, IN_CPU_REMOVE, now, TRACE_NOBODY, 0, cpu);
    error = -EAGAIN;
    if (!c->leaving) {
        c->leaving = true;
        cpumask_clear(&p->cpus, cpu);
        cpumask_clear(&p->idlers, cpu);
    }
    if (evacuate(p, cpu, now) || c->current != &c->idle) goto out;
    if (p->policy->cpu_remove) p->policy->cpu_remove(p, cpu, now);
    for (u32 i = 0; i < SCHED_TIMERS; i++) sched_timer_cancel(p, cpu, i);
    c->leaving = false;
    priv = c->priv;
    c->priv = NULL;
    __atomic_store_n(&c->pool, NULL, __ATOMIC_RELEASE);
    error = 0;
out:
    spin_unlock(&p->lock);
    spin_unlock(&sched_lock);
    machine_free(priv);
    return error;
}

/* ---- VMs ---- */

int sched_dom_init(struct sched_dom *d, u32 id, const char *name, struct sched_vcpu **vcpus,
                   struct sched_pool *p) {
    int error;

    *d = (struct sched_dom){ .id = id, .name = name, .vcpu = vcpus, .paused = 1 };
    spin_lock(&sched_lock);
    error = p->policy ? alloc_priv(p->policy->dom_size, &d->priv) : -EINVAL;
    if (!error) {
        spin_lock(&p->lock);
        record_input(p, IN_DOM_INIT, sched_clock(p), id << 16, 0, 0);
        d->pool = p;
        list_add_tail(&p->doms, &d->in_pool);
        p->nr_doms++;
        if (p->policy->dom_add) p->policy->dom_add(p, d);
        spin_unlock(&p->lock);
    }
    spin_unlock(&sched_lock);
    return error;
}

void sched_dom_fini(struct sched_dom *d) {
    spin_lock(&sched_lock);
    struct sched_pool *p = sched_lock_dom(d);

    record_input(p, IN_DOM_FINI, sched_clock(p), d->id << 16, 0, 0);
    if (p->policy->dom_remove) p->policy->dom_remove(p, d);
    list_del(&d->in_pool);
    p->nr_doms--;
    __atomic_store_n(&d->pool, NULL, __ATOMIC_RELEASE);
    spin_unlock(&p->lock);
    spin_unlock(&sched_lock);
    machine_free(d->priv);
    d->priv = NULL;
}

/* A first pCPU for v, in turn among those it may use; then what the policy thinks best. */
static void place_new(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    struct cpumask allowed = cpumask_and(&v->affinity, &p->cpus);

    v->cpu = cpumask_cycle(&allowed, p->rotor);
    p->rotor = v->cpu + 1;
    sched_place(p, v, now);
    p->policy->vcpu_add(p, v, now);
}

int sched_vcpu_init(struct sched_vcpu *v, struct sched_dom *d, u32 id, const struct cpumask *affinity) {
    int error;

    *v = (struct sched_vcpu){ .dom = d, .id = id, .on_cpu = SCHED_NO_CPU, .affinity = *affinity };
    v->state = RS_BLOCKED;
    v->blocked = true;
    spin_lock(&sched_lock);
    error = alloc_priv(d->pool->policy->vcpu_size, &v->priv);
    if (error) goto out;
    struct sched_pool *p = sched_lock_dom(d);
    struct cpumask allowed = cpumask_and(affinity, &p->cpus);

    error = cpumask_empty(&allowed) ? -EINVAL : 0;
    if (!error) {
        u64 now = sched_clock(p);

        record_input(p, IN_VCPU_INIT, now, sched_who(v), 0, affinity->bits);
        v->since = now;
        d->vcpu[id] = v;
        d->nr_vcpus = MAX(d->nr_vcpus, id + 1);
        place_new(p, v, now);
    }
    spin_unlock(&p->lock);
    if (error) {
        machine_free(v->priv);
        v->priv = NULL;
    }
out:
    spin_unlock(&sched_lock);
    return error;
}

static void take_out(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    if (v->queued) {
        v->queued = false;
        p->policy->sleep(p, v, now);
    }
    p->policy->vcpu_remove(p, v, now);
    v->parked = false; /* by the policy that it leaves */
}

void sched_vcpu_fini(struct sched_vcpu *v) {
    struct sched_dom *d = v->dom;

    spin_lock(&sched_lock);
    struct sched_pool *p = sched_lock_dom(d);
    u64 now = sched_clock(p);

    record_input(p, IN_VCPU_FINI, now, sched_who(v), 0, 0);
    take_out(p, v, now);
    d->vcpu[v->id] = NULL;
    while (d->nr_vcpus && !d->vcpu[d->nr_vcpus - 1]) d->nr_vcpus--;
    spin_unlock(&p->lock);
    spin_unlock(&sched_lock);
    machine_free(v->priv);
    v->priv = NULL;
}

/* ---- moving a VM to another pool ---- */

/* The private data that `d` needs in another pool, and later what it leaves behind. */
struct dom_privs {
    void *dom;
    void **vcpu; /* d->nr_vcpus of them */
};

static void privs_free(struct dom_privs *x, u32 n) {
    for (u32 i = 0; x->vcpu && i < n; i++) machine_free(x->vcpu[i]);
    machine_free(x->vcpu);
    machine_free(x->dom);
}

static int privs_alloc(struct dom_privs *x, const struct sched_policy *policy, u32 n) {
    *x = (struct dom_privs){ 0 };
    if (alloc_priv(policy->dom_size, &x->dom)) return -ENOMEM;
    x->vcpu = machine_alloc(MAX(n, 1) * sizeof(void *));
    if (!x->vcpu) return -ENOMEM;
    for (u32 i = 0; i < n; i++)
        if (alloc_priv(policy->vcpu_size, &x->vcpu[i])) return -ENOMEM;
    return 0;
}

/* Both pools locked, no vCPU of d on a pCPU. Leaves the old private data in `x`. */
static void switch_pools(struct sched_dom *d, struct sched_pool *from, struct sched_pool *to,
                         struct dom_privs *x, u64 now) {
    for (u32 i = 0; i < d->nr_vcpus; i++)
        if (d->vcpu[i]) take_out(from, d->vcpu[i], now);
    if (from->policy->dom_remove) from->policy->dom_remove(from, d);
    list_del(&d->in_pool);
    from->nr_doms--;

    void *old = d->priv;

    d->priv = x->dom;
    x->dom = old;
    list_add_tail(&to->doms, &d->in_pool);
    to->nr_doms++;
    __atomic_store_n(&d->pool, to, __ATOMIC_RELEASE);
    if (to->policy->dom_add) to->policy->dom_add(to, d);
    for (u32 i = 0; i < d->nr_vcpus; i++) {
        struct sched_vcpu *v = d->vcpu[i];

        if (!v) continue;
        old = v->priv;
        v->priv = x->vcpu[i];
        x->vcpu[i] = old;
        cpumask_fill(&v->affinity);
        place_new(to, v, now);
        sched_update(to, v, SCHED_MIGRATE, now);
    }
}

int sched_pool_move_dom(struct sched_pool *to, struct sched_dom *d) {
    struct dom_privs x = { 0 };
    int error = 0;

    spin_lock(&sched_lock);
    struct sched_pool *from = d->pool, *first = from->id < to->id ? from : to;
    u32 n = d->nr_vcpus;

    if (from == to) goto out;
    error = !to->policy || cpumask_empty(&to->cpus) ? -EINVAL : privs_alloc(&x, to->policy, n);
    if (error) goto out;
    spin_lock(&first->lock);
    spin_lock(first == from ? &to->lock : &from->lock);
    for (u32 i = 0; i < n; i++)
        if (d->vcpu[i] && d->vcpu[i]->on_cpu != SCHED_NO_CPU) error = -EAGAIN;
    if (!error) {
        from->clock = to->clock = MAX(sched_clock(from), sched_clock(to));
        record_input(to, IN_DOM_MOVE, to->clock, d->id << 16, 0, 0);
        from->sequence = to->sequence;
        switch_pools(d, from, to, &x, to->clock);
    }
    spin_unlock(&from->lock);
    spin_unlock(&to->lock);
out:
    spin_unlock(&sched_lock);
    privs_free(&x, n);
    return error;
}
