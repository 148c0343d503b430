/* Stride scheduling: whoever has the lowest pass runs next, and its pass grows by what it ran over its VM's
 * weight (C. Waldspurger and W. Weihl, "Stride scheduling", MIT/LCS/TM-528, 1995, section 2):
 *
 *   pass += ran / weight            after a sleep: pass = max(pass, that of who was picked last)
 *
 * so that CPU time is in proportion to weight, to a slice, whoever comes and goes. The worked example of
 * docs/writing-a-policy.md: one queue for the whole pool, in the order of passes. */
#include "sched/policy.h"

#define SLICE (10 * NS_PER_MS)
#define SCALE 256 /* passes are ns at this weight */

struct stride_pool {
    struct list queue;
    u64 pass; /* of who was picked last */
};

struct stride_vcpu {
    struct list link;
    struct sched_vcpu *vcpu;
    u64 pass, since; /* since: running, charged up to here */
};

static struct stride_pool *pool_of(const struct sched_pool *p) { return (void *)p->priv; }
static u32 *weight_of(const struct sched_dom *d) { return (void *)d->priv; }
static struct stride_vcpu *vcpu_of(const struct sched_vcpu *v) { return (void *)v->priv; }

static void pool_init(struct sched_pool *p) { list_init(&pool_of(p)->queue); }
static void dom_add(struct sched_pool *p, struct sched_dom *d) { *weight_of(d) = 256; }
static void vcpu_add(struct sched_pool *p, struct sched_vcpu *v) { vcpu_of(v)->vcpu = v; }
static void vcpu_remove(struct sched_pool *p, struct sched_vcpu *v) {}

static u64 passes(const struct sched_vcpu *v, u64 ran) { return ran * SCALE / *weight_of(v->dom); }

static void enqueue(struct sched_pool *p, struct stride_vcpu *s) {
    struct list *queue = &pool_of(p)->queue, *at = queue;

    while (at->prev != queue && list_entry(at->prev, struct stride_vcpu, link)->pass > s->pass) at = at->prev;
    list_add_tail(at, &s->link);
}

/* v waits: a pCPU where it may run decides anew, if one idles or its vCPU is two slices ahead. */
static void offer(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    cpumask_for_each(cpu, &allowed) {
        struct sched_vcpu *current = sched_current_locked(cpu);

        if (current && vcpu_of(current)->pass < vcpu_of(v)->pass + passes(current, 2 * SLICE)) continue;
        sched_kick(p, cpu);
        return;
    }
}

static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) {
    vcpu_of(v)->pass = MAX(vcpu_of(v)->pass, pool_of(p)->pass); /* a sleep is no saving */
    enqueue(p, vcpu_of(v));
    offer(p, v);
}

static void sleep(struct sched_pool *p, struct sched_vcpu *v) { list_del(&vcpu_of(v)->link); }

static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    struct stride_vcpu *next = NULL;

    if (current) vcpu_of(current)->pass += passes(current, p->now - vcpu_of(current)->since);
    if (current && sched_runnable(current)) enqueue(p, vcpu_of(current));
    list_for_each(s, &pool_of(p)->queue, struct stride_vcpu, link) {
        if (next) offer(p, s->vcpu); /* several may have woken while one pCPU was kicked */
        if (next) break;
        if (sched_may_run(p, s->vcpu, cpu)) next = s;
    }
    if (!next) return (struct sched_pick){ NULL, SCHED_NEVER };
    list_del(&next->link);
    sched_move(p, next->vcpu, cpu);
    next->since = p->now;
    pool_of(p)->pass = MAX(pool_of(p)->pass, next->pass);
    return (struct sched_pick){ next->vcpu, SLICE };
}

static u32 place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    return cpumask_cycle(&allowed, v->cpu);
}

static const struct param params[] = {
    { "weight", "", "share relative to other VMs", PARAM_DOM, 0, 1, 65535, NULL },
    SCHED_VM_PARAMS,
    SCHED_POOL_PARAMS,
    { 0 },
};

const struct sched_policy stride_policy = {
    .name = "stride",
    .params = params,
    .pool_init = pool_init,
    .dom_add = dom_add,
    .vcpu_add = vcpu_add,
    .vcpu_remove = vcpu_remove,
    .wake = wake,
    .sleep = sleep,
    .pick = pick,
    .place = place,
    .saved = offer,
};
