/* Credit: the proportional-share scheduler of Xen 3.0 to today, with its history as knobs (credit.h).
 *
 * Each accounting period a pool grants credit for the time of its pCPUs, divided by weight among the VMs
 * that are active (credit_account.c); running burns it. Who has some left is UNDER and goes before those
 * who are OVER; within a class it is first come, first served, a slice each. A wake may lift to BOOST
 * (boost.c).
 *
 * Lock order: only the pool's lock, held by the core around every hook. Each pCPU has a queue of three
 * FIFO lists, one a class. A vCPU whose class changes while it waits keeps its place until the pCPU sorts
 * its queue, at its first tick after an accounting pass.
 *
 * Where variations attach: slice_of() (how long a pick runs), credit_account() (how credit is granted),
 * boost->wake() (what a wake earns), enqueue() (order within a class).
 */
#include <takt/errno.h>
#include "sched/credit.h"

enum { TIMER_TICK, TIMER_ACCOUNT };

static struct credit_cpu *cpu_of(const struct sched_pool *p, u32 cpu) { return sched_cpu_priv(p, cpu); }

static bool is_active(const struct credit_vcpu *cv) { return !list_empty(&cv->active); }

/* ---- weights and the active list ---- */

void credit_weights_changed(struct credit_pool *cp) {
    cp->weight = 0;
    list_for_each(cd, &cp->active, struct credit_dom, link) {
        cp->weight += credit_weight(cp, cd);
    }
}

/* The next multiple of `period` on the pool's clock, shifted a little from pCPU to pCPU so that they do not
 * all want the lock at once. */
static u64 next_beat(u64 period, u32 cpu, u64 now) {
    u64 shift = period / TAKT_MAX_CPUS * cpu;

    return now < shift ? shift : shift + ((now - shift) / period + 1) * period;
}

static void set_accounting(struct sched_pool *p, u64 now) {
    struct credit_pool *cp = p->priv;

    cp->accounting = true;
    sched_timer_set(p, cp->master, TIMER_ACCOUNT, next_beat(cp->period, 0, now));
}

static void activate(struct sched_pool *p, struct credit_vcpu *cv, u64 now) {
    struct credit_pool *cp = p->priv;
    struct credit_dom *cd = credit_dom_of(cv->vcpu);
    u64 before = cd->nr_active ? credit_weight(cp, cd) : 0;

    list_add_head(&cd->active, &cv->active);
    if (cd->nr_active++ == 0) list_add_head(&cp->active, &cd->link);
    cp->weight += credit_weight(cp, cd) - before;
    if (!cp->accounting) set_accounting(p, now);
}

void credit_deactivate(struct credit_pool *cp, struct credit_vcpu *cv) {
    struct credit_dom *cd = credit_dom_of(cv->vcpu);
    u64 before = credit_weight(cp, cd);

    list_del(&cv->active);
    if (--cd->nr_active == 0) list_del(&cd->link);
    cp->weight -= before - (cd->nr_active ? credit_weight(cp, cd) : 0);
}

/* ---- queues ---- */

static struct credit_vcpu *queue_head(struct credit_cpu *cc) {
    if (!cc->nr) return NULL;
    for (int c = CLASS_BOOST; c < CLASS_NR; c++)
        if (!list_empty(&cc->queue[c])) return list_first(&cc->queue[c], struct credit_vcpu, link);
    return NULL;
}

/* Behind its equals; after a yield, behind one of the next class too; before them, if it was preempted
 * and is to finish its slice. */
static void enqueue(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = p->priv;
    struct credit_cpu *cc = cpu_of(p, cv->vcpu->cpu);
    struct list *at = &cc->queue[cv->cls];

    for (int c = cv->cls + 1; cv->yielded && c < CLASS_NR; c++)
        if (!list_empty(&cc->queue[c])) {
            at = cc->queue[c].next->next;
            break;
        }
    if (cv->left && !cv->yielded && cp->knob.requeue == REQUEUE_HEAD) at = at->next;
    list_add_tail(at, &cv->link); /* before `at` */
    if (cc->nr++ == 0) cpumask_set(&cp->waiting, cv->vcpu->cpu);
}

static void dequeue(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = p->priv;

    list_del(&cv->link);
    if (--cpu_of(p, cv->vcpu->cpu)->nr == 0) cpumask_clear(&cp->waiting, cv->vcpu->cpu);
}

/* A stable partition by what the classes are by now. */
static void sort_queue(struct credit_cpu *cc) {
    struct list sorted[CLASS_NR];

    for (int c = 0; c < CLASS_NR; c++) list_init(&sorted[c]);
    for (int c = 0; c < CLASS_NR; c++)
        list_for_each_safe(cv, &cc->queue[c], struct credit_vcpu, link) {
            list_add_tail(&sorted[cv->cls], &cv->link);
        }
    for (int c = 0; c < CLASS_NR; c++) {
        list_init(&cc->queue[c]);
        if (!list_empty(&sorted[c])) list_insert_between(&cc->queue[c], sorted[c].prev, sorted[c].next);
    }
}

/* ---- who is to be kicked ---- */

static struct cpumask idlers_for(const struct sched_pool *p, const struct sched_vcpu *v) {
    const struct credit_pool *cp = p->priv;
    struct cpumask m = cpumask_and(&p->idlers, &v->affinity);

    return cp->knob.balance == BALANCE_FULL ? cpumask_minus(&m, &cp->kicked) : m;
}

static void kick_one(struct sched_pool *p, const struct cpumask *idlers, u64 now) {
    struct credit_pool *cp = p->priv;
    u32 cpu = cpumask_cycle(idlers, cp->rotor);

    cp->rotor = cpu + 1;
    cpumask_set(&cp->kicked, cpu);
    sched_kick(p, cpu, now);
}

/* Somebody new is in a queue: find it a pCPU. */
static void tickle(struct sched_pool *p, struct credit_vcpu *cv, u64 now) {
    struct credit_pool *cp = p->priv;
    struct sched_vcpu *v = cv->vcpu, *current = sched_current_locked(p, v->cpu);
    struct cpumask idlers = idlers_for(p, v);
    bool outranks = !current || cv->cls < ((struct credit_vcpu *)current->priv)->cls;
    bool others = current && !cpumask_empty(&idlers);

    if (cp->knob.tickle == TICKLE_SMART && others) outranks = false; /* leave the current one alone */
    if (outranks) {
        if (!current) cpumask_set(&cp->kicked, v->cpu);
        sched_kick(p, v->cpu, now);
    }
    if (!others) return;
    if (cp->knob.tickle != TICKLE_ALL) {
        kick_one(p, &idlers, now);
        return;
    }
    cpumask_for_each(cpu, &idlers) sched_kick(p, cpu, now);
}

#define HELP_SCAN 16 /* so many waiting vCPUs are offered to idle pCPUs after a pick; the rest later */

/* Xen's balancing is driven by events alone: of several vCPUs that wake on one idle pCPU at once, all but one
 * wait, however many pCPUs idle. */
static void call_for_help(struct sched_pool *p, struct credit_cpu *cc, u64 now) {
    int left = HELP_SCAN;

    for (int c = 0; c < CLASS_NR; c++)
        list_for_each(cv, &cc->queue[c], struct credit_vcpu, link) {
            struct cpumask idlers = idlers_for(p, cv->vcpu);

            if (left-- == 0) return;
            if (cv->vcpu->on_cpu == SCHED_NO_CPU && !cpumask_empty(&idlers)) kick_one(p, &idlers, now);
        }
}

/* This pCPU was called for help and took somebody else: those who still wait need another one, or the
 * pCPU that they were to spare. */
static void pass_on(struct sched_pool *p, u32 cpu, u64 now) {
    struct credit_pool *cp = p->priv;

    cpumask_for_each(peer, &cp->waiting) {
        struct sched_vcpu *current = sched_current_locked(p, peer);
        struct credit_vcpu *head = queue_head(cpu_of(p, peer));
        struct cpumask idlers = idlers_for(p, head->vcpu);

        if (!cpumask_empty(&p->idlers)) call_for_help(p, cpu_of(p, peer), now);
        if (current && cpumask_empty(&idlers) && head->cls < ((struct credit_vcpu *)current->priv)->cls)
            sched_kick(p, peer, now);
    }
}

/* ---- burning ---- */

static void charge(struct sched_pool *p, struct credit_vcpu *cv, u64 ns, u64 now) {
    struct credit_pool *cp = p->priv;

    cv->credit -= (i64)ns;
    cv->used += ns;
    if (cp->knob.activate == ACTIVATE_BURN && !is_active(cv)) activate(p, cv, now);
    if (cp->knob.demote == DEMOTE_BURN && cv->credit < 0) cv->cls = cp->boost->account(cv->cls, CLASS_OVER);
}

static void burn(struct sched_pool *p, struct credit_vcpu *cv, u64 now) {
    struct credit_pool *cp = p->priv;
    u64 ns = now - cv->billed;

    cv->billed = now;
    cv->left = cv->left > ns + cp->tslice / 16 ? cv->left - ns : 0; /* a rest not worth a switch is none */
    if (ns && cp->knob.debit == DEBIT_TIME) charge(p, cv, ns, now);
}

/* ---- tick ---- */

static void start_tick(struct sched_pool *p, struct credit_cpu *cc, u32 cpu, u64 now) {
    struct credit_pool *cp = p->priv;

    cc->ticking = true;
    sched_timer_set(p, cpu, TIMER_TICK, next_beat(cp->tick, cpu, now));
}

static u32 place(struct sched_pool *p, struct sched_vcpu *v);
static struct credit_vcpu *steal(struct sched_pool *p, u32 cpu, enum credit_class limit, u64 now);

/* Somebody who has credit waits, here or where this pCPU could take it from, while one who has not runs. */
static bool better_waits(struct sched_pool *p, struct credit_cpu *cc, const struct credit_vcpu *cv, u32 cpu,
                         u64 now) {
    struct credit_pool *cp = p->priv;

    if (cc->nr && queue_head(cc)->cls < cv->cls) return true;
    return cp->knob.balance == BALANCE_FULL && cv->cls == CLASS_OVER && steal(p, cpu, CLASS_OVER, now);
}

static void tick(struct sched_pool *p, u32 cpu, u64 now) {
    struct credit_pool *cp = p->priv;
    struct credit_cpu *cc = cpu_of(p, cpu);
    struct sched_vcpu *v = sched_current_locked(p, cpu);

    if (v) {
        struct credit_vcpu *cv = v->priv;
        enum credit_class before = cv->cls;

        cv->cls = cp->boost->tick(before);
        if (cv->cls != before) sched_trace(v, now, TRC_BOOST, 0, 0, 0, 0);
        burn(p, cv, now);
        if (cp->knob.debit == DEBIT_TICK) charge(p, cv, cp->tick, now);
        if (!is_active(cv))
            activate(p, cv, now);
        else if (!v->migrating && sched_runnable(v) && place(p, v) != cpu)
            sched_migrate(p, v, now);
    }
    if (cc->epoch != cp->epoch) {
        cc->epoch = cp->epoch;
        sort_queue(cc);
    }
    if (v && cp->knob.demote == DEMOTE_BURN && better_waits(p, cc, v->priv, cpu, now))
        sched_kick(p, cpu, now);
    if (v || cc->nr)
        start_tick(p, cc, cpu, now);
    else
        cc->ticking = false; /* idle: until the next pick */
}

/* ---- timers ---- */

static void accounting_timer(struct sched_pool *p, u64 now) {
    struct credit_pool *cp = p->priv;

    if (cp->weight == 0) { /* until somebody is active again */
        cp->balance = 0;
        cp->accounting = false;
        return;
    }
    if (cp->knob.overflow == OVERFLOW_HAND_ON) /* what is steered is measured up to now */
        cpumask_for_each(cpu, &p->cpus)
            if (sched_current_locked(p, cpu)) burn(p, sched_current_locked(p, cpu)->priv, now);
    credit_account(p, now);
    set_accounting(p, now);
}

static void timer(struct sched_pool *p, u32 cpu, u32 kind, u64 now) {
    if (kind == TIMER_TICK)
        tick(p, cpu, now);
    else
        accounting_timer(p, now);
}

/* ---- the decision ---- */

/* The first vCPU better than `limit` in the queue of `peer` that may run on `cpu`. */
static struct credit_vcpu *steal_from(struct sched_pool *p, u32 peer, u32 cpu, enum credit_class limit,
                                      u64 now) {
    struct credit_pool *cp = p->priv;

    for (int c = 0; c < (int)limit; c++)
        list_for_each(cv, &cpu_of(p, peer)->queue[c], struct credit_vcpu, link) {
            if (cv->cls >= limit) return NULL;
            if (sched_may_run(p, cv->vcpu, cpu) && now - cv->ran_until >= cp->migration_delay) return cv;
        }
    return NULL;
}

static struct credit_vcpu *steal(struct sched_pool *p, u32 cpu, enum credit_class limit, u64 now) {
    struct credit_pool *cp = p->priv;
    struct cpumask peers = cp->waiting;

    if (cp->knob.balance == BALANCE_EVENTS) peers = cpumask_minus(&peers, &p->idlers);
    cpumask_clear(&peers, cpu);
    while (!cpumask_empty(&peers)) {
        u32 peer = cpumask_cycle(&peers, cpu + 1);
        struct credit_vcpu *cv = steal_from(p, peer, cpu, limit, now);

        if (cv) return cv;
        cpumask_clear(&peers, peer);
    }
    return NULL;
}

static u64 slice_of(const struct credit_pool *cp, const struct credit_vcpu *cv) { return cp->tslice; }

/* How much longer the current vCPU is not to be disturbed, 0 if it may be. */
static u64 rate_limited(const struct credit_pool *cp, const struct credit_vcpu *cv, u64 now) {
    u64 ran = now - cv->picked_at;

    if (ran >= cp->ratelimit) return 0;
    if (!cp->knob.ratelimit_exact) return cp->ratelimit;
    return cv->yielded ? 0 : cp->ratelimit - ran;
}

static struct credit_vcpu *take_best(struct sched_pool *p, struct credit_cpu *cc, u32 cpu, u64 now) {
    struct credit_pool *cp = p->priv;
    struct credit_vcpu *head = queue_head(cc), *stolen = NULL;

    if ((!head || head->cls >= CLASS_OVER) && !cpumask_empty(&cp->waiting))
        stolen = steal(p, cpu, head ? head->cls : CLASS_NR, now);
    if (stolen) {
        dequeue(p, stolen);
        sched_move(p, stolen->vcpu, cpu, now);
        return stolen;
    }
    if (head) dequeue(p, head);
    return head;
}

static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current, u64 now) {
    struct credit_pool *cp = p->priv;
    struct credit_cpu *cc = cpu_of(p, cpu);
    struct credit_vcpu *cv = NULL, *next;
    bool helping;

    helping = !current && cpumask_test(&cp->kicked, cpu);
    cpumask_clear(&cp->kicked, cpu);
    if (current) {
        cv = current->priv;
        burn(p, cv, now);
        if (sched_runnable(current)) {
            u64 rest = rate_limited(cp, cv, now);

            if (!cv->left)
                cv->cls = cp->boost->slice_over(cv->cls, cv->credit < 0 ? CLASS_OVER : CLASS_UNDER);
            if (!rest) enqueue(p, cv);
            cv->yielded = false;
            if (rest) return (struct sched_pick){ current, rest };
        }
        cv->ran_until = now;
    }
    next = take_best(p, cc, cpu, now);
    if (cc->nr && cp->knob.balance == BALANCE_FULL && !cpumask_empty(&p->idlers)) call_for_help(p, cc, now);
    if (helping && next && cp->knob.balance == BALANCE_FULL) pass_on(p, cpu, now);
    if (!next) return (struct sched_pick){ NULL, SCHED_NEVER };
    if (next != cv) next->picked_at = next->billed = now;
    if (!next->left || cp->knob.requeue == REQUEUE_TAIL) next->left = slice_of(cp, next);
    if (!cc->ticking) start_tick(p, cc, cpu, now);
    return (struct sched_pick){ next->vcpu, next->left };
}

/* The pCPU where it is, or the next that it may use; an idle one if it would have to wait there. */
static u32 place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = cpumask_and(&v->affinity, &p->cpus), idle = idlers_for(p, v);
    u32 cpu = cpumask_cycle(&allowed, v->cpu);
    struct sched_vcpu *current = sched_current_locked(p, cpu);

    if (cpu_of(p, cpu)->nr == 0 && (!current || current == v)) return cpu;
    idle = cpumask_and(&idle, &p->cpus);
    return cpumask_empty(&idle) ? cpu : cpumask_cycle(&idle, cpu + 1);
}

/* ---- what happens to vCPUs ---- */

static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why, u64 now) {
    struct credit_pool *cp = p->priv;
    struct credit_vcpu *cv = v->priv;
    bool earns =
        why == SCHED_WAKE || why == SCHED_UNPAUSE || (why == SCHED_MIGRATE && cp->knob.boost_on_migrate);

    if (earns) {
        enum credit_class before = cv->cls;

        cv->cls = cp->boost->wake(before);
        if (cv->cls != before) sched_trace(v, now, TRC_BOOST, 1, 0, 0, 0);
    }
    cv->left = 0;
    enqueue(p, cv);
    tickle(p, cv, now);
}

static void sleep(struct sched_pool *p, struct sched_vcpu *v, u64 now) { dequeue(p, v->priv); }

static void yield(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    struct credit_pool *cp = p->priv;

    ((struct credit_vcpu *)v->priv)->yielded = cp->knob.yield_hint;
}

/* It was put back into a queue before its state was saved, and could not be taken by anybody until now. */
static void saved(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    struct credit_pool *cp = p->priv;

    if (cp->knob.balance != BALANCE_FULL || cpumask_empty(&p->idlers)) return;
    struct cpumask idlers = idlers_for(p, v);

    if (!cpumask_empty(&idlers)) kick_one(p, &idlers, now);
}

static void affinity(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    if (v->queued) tickle(p, v->priv, now);
}

/* ---- membership ---- */

static void pool_init(struct sched_pool *p) {
    struct credit_pool *cp = p->priv;
    const char *why;

    list_init(&cp->active);
    credit_apply(p, &credit_defaults, &why);
}

static void cpu_add(struct sched_pool *p, u32 cpu, u64 now) {
    struct credit_pool *cp = p->priv;
    struct credit_cpu *cc = cpu_of(p, cpu);

    for (int c = 0; c < CLASS_NR; c++) list_init(&cc->queue[c]);
    cc->epoch = cp->epoch;
    if (cpumask_weight(&p->cpus) == 1) cp->master = cpu;
}

static void cpu_remove(struct sched_pool *p, u32 cpu, u64 now) {
    struct credit_pool *cp = p->priv;

    cpumask_clear(&cp->kicked, cpu);
    if (cp->master != cpu) return;
    if (cp->accounting) sched_timer_cancel(p, cpu, TIMER_ACCOUNT);
    if (cpumask_empty(&p->cpus)) {
        cp->accounting = false;
        return;
    }
    cp->master = cpumask_next(&p->cpus, 0);
    if (cp->accounting) set_accounting(p, now);
}

static void dom_add(struct sched_pool *p, struct sched_dom *d) {
    struct credit_dom *cd = d->priv;

    cd->weight = CREDIT_DEFAULT_WEIGHT;
    list_init(&cd->active);
    list_init(&cd->link);
}

static void vcpu_add(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    struct credit_vcpu *cv = v->priv;

    cv->vcpu = v;
    cv->cls = CLASS_UNDER;
    list_init(&cv->link);
    list_init(&cv->active);
}

static void vcpu_remove(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    struct credit_vcpu *cv = v->priv;

    if (is_active(cv)) credit_deactivate(p->priv, cv);
}

int credit_apply(struct sched_pool *p, const struct credit_knobs *k, const char **why) {
    struct credit_pool *cp = p->priv;
    i64 slice = k->tslice_us, tick = k->tick_us, period = k->period_us;

    if (!tick) /* three a slice, one if the slice is short, but not more than a thousand a second */
        tick = MAX(slice >= 3000 ? slice / 3 : slice, 1000);
    if (!period) period = MAX(slice, tick);
    *why = "tick_us is longer than period_us";
    if (tick > period) return -EINVAL;
    *why = "ratelimit_us is longer than tslice_us";
    if (k->ratelimit_us > slice) return -EINVAL;
    *why = "ratelimit_us is 0 or at least 100";
    if (k->ratelimit_us && k->ratelimit_us < 100) return -EINVAL;

    cp->knob = *k;
    cp->tslice = (u64)slice * NS_PER_US;
    cp->tick = (u64)tick * NS_PER_US;
    cp->period = (u64)period * NS_PER_US;
    cp->ratelimit = (u64)k->ratelimit_us * NS_PER_US;
    cp->migration_delay = (u64)k->migration_delay_us * NS_PER_US;
    cp->boost = &boost_policies[k->boost];
    credit_weights_changed(cp);
    cpumask_for_each(cpu, &p->cpus) {
        if (cpu_of(p, cpu)->ticking) start_tick(p, cpu_of(p, cpu), cpu, p->clock);
        sched_kick(p, cpu, p->clock); /* the slice that runs now is an old one */
    }
    if (cp->accounting) set_accounting(p, p->clock);
    return 0;
}

const struct sched_policy credit_policy = {
    .name = "credit",
    .params = credit_params,
    .presets = credit_presets,
    .pool_size = sizeof(struct credit_pool),
    .cpu_size = sizeof(struct credit_cpu),
    .dom_size = sizeof(struct credit_dom),
    .vcpu_size = sizeof(struct credit_vcpu),
    .pool_init = pool_init,
    .cpu_add = cpu_add,
    .cpu_remove = cpu_remove,
    .dom_add = dom_add,
    .vcpu_add = vcpu_add,
    .vcpu_remove = vcpu_remove,
    .wake = wake,
    .sleep = sleep,
    .yield = yield,
    .pick = pick,
    .place = place,
    .saved = saved,
    .affinity = affinity,
    .timer = timer,
};
