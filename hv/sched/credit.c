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
 * Where variations attach: slice_of() (how long a pick runs), position() (where in the queue one is put
 * back), credit_account() (how credit is granted), boost (what a wake earns).
 */
#include <takt/errno.h>
#include "lib/string.h"
#include "sched/credit.h"

enum { TIMER_TICK, TIMER_ACCOUNT = SCHED_TIMER_BOTH };

static bool is_active(const struct credit_vcpu *cv) { return !list_empty(&cv->active); }

static void boost(struct sched_pool *p, struct credit_vcpu *cv, enum boost_event event) {
    cv->cls = credit_pool(p)->boost(p, cv, event);
}

/* ---- timers ---- */

/* The next multiple of `period` on the pool's clock, shifted a little from pCPU to pCPU so that they do not
 * all want the lock at once. */
static u64 next_beat(u64 period, u32 cpu, u64 now) {
    u64 shift = period / TAKT_MAX_CPUS * cpu;

    return now < shift ? shift : shift + ((now - shift) / period + 1) * period;
}

static void set_accounting(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);

    cp->accounting = true;
    sched_timer_set(cp->master, TIMER_ACCOUNT,
                    cp->this_period < cp->period ? p->now + cp->this_period
                                                 : next_beat(cp->period, 0, p->now));
}

static void start_tick(struct sched_pool *p, u32 cpu) {
    credit_cpu(cpu)->ticking = true;
    sched_timer_set(cpu, TIMER_TICK, next_beat(credit_pool(p)->tick, cpu, p->now));
}

/* ---- the active list ---- */

/* Brings up to date what an active VM counts in W. */
static void count_weight(struct credit_pool *cp, struct credit_dom *cd) {
    u64 w = cp->knob.fault == FAULT_IGNORE_WEIGHT ? CREDIT_DEFAULT_WEIGHT : cd->weight;

    if (cd->share_ns) w = MAX(cd->share_ns / NS_PER_US, 1);
    cp->weight -= cd->counted;
    cd->counted = cp->knob.weight_scope == SCOPE_VCPU ? w * cd->nr_active : cd->nr_active ? w : 0;
    cp->weight += cd->counted;
}

void credit_weights_changed(struct sched_pool *p) {
    list_for_each(cd, &credit_pool(p)->active, struct credit_dom, link) count_weight(credit_pool(p), cd);
}

void credit_set_active(struct sched_pool *p, struct credit_vcpu *cv, bool active) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_dom *cd = credit_dom(cv->vcpu->dom);

    if (active) {
        list_add_head(&cd->active, &cv->active);
        if (cd->nr_active++ == 0) list_add_head(&cp->active, &cd->link);
    } else {
        list_del(&cv->active);
        if (--cd->nr_active == 0) list_del(&cd->link);
    }
    count_weight(cp, cd);
    vslicer_count(p, cv, active);
    if (active && !cp->accounting) set_accounting(p);
}

void credit_set_over(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);

    cp->over_below = cp->nr_ls ? -(i64)cp->tslice : 0;
    if (credit_rounds(p)) cp->over_below = INT64_MIN; /* nobody */
}

/* ---- queues ---- */

static const enum credit_queue queue_of[CLASS_NR] = { Q_BOOST, Q_UNDER, Q_OVER };

/* The first that is not empty, from one on; Q_NR. */
static u32 next_queue(const struct credit_cpu *cc, u32 from) {
    return (u32)__builtin_ctz((cc->queues | 1u << Q_NR) & (~0u << from));
}

static struct credit_vcpu *queue_head(struct credit_cpu *cc) {
    return cc->queues ? list_first(&cc->queue[next_queue(cc, 0)], struct credit_vcpu, link) : NULL;
}

/* Are there ranks by credit within UNDER? Micro-slices have an order of their own. */
static bool ranked(const struct credit_pool *cp) { return cp->knob.order == ORDER_CREDIT && !cp->nr_ls; }

/* The queue for a vCPU of its class, among those of UNDER by its credit. */
static enum credit_queue queue_for(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    u32 missing;

    if (cv->cls != CLASS_UNDER || !ranked(cp)) return queue_of[cv->cls];
    missing =
        (u32)((cp->period - MIN((u64)MAX(cv->credit, 0), cp->period)) * (Q_LATER - Q_UNDER) / cp->period);
    return Q_UNDER + MIN(missing, Q_LATER - Q_UNDER - 1);
}

/* The same, for a pool that may have a slicer: a vCPU with micro-slices belongs into one of two lists of its
 * own, also when it has credit again. In the list of the others it would end a T_S when it is picked. */
static enum credit_queue queue_of_vcpu(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);

    if (cv->cls == CLASS_UNDER && cp->nr_ls) return vslicer_queue(p, cv);
    return queue_for(cp, cv);
}

/* Before whom it is put: behind its equals; after a yield, behind one of the next class too; before them, if
 * it was preempted and is to finish its slice. */
static struct list *position(const struct credit_pool *cp, struct credit_cpu *cc, struct credit_vcpu *cv) {
    struct list *equals = &cc->queue[cv->queue], *at = equals;

    if (cv->yielded) {
        u32 worse = next_queue(cc, cv->queue + 1);

        if (worse == Q_NR) return equals;
        cv->queue = worse;
        return cc->queue[cv->queue].next->next;
    }
    if (cv->level)
        while (at->prev != equals && list_entry(at->prev, struct credit_vcpu, link)->level < cv->level)
            at = at->prev;
    if (cv->queue == Q_MICRO && cp->knob.slicer != SLICER_VSLICER)
        while (at->prev != equals && list_entry(at->prev, struct credit_vcpu, link)->key > cv->key)
            at = at->prev;
    if (at != equals) return at;
    return cv->left && cp->knob.requeue == REQUEUE_HEAD ? equals->next : equals;
}

static void enqueue(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);
    u32 cpu = cv->vcpu->cpu;
    struct credit_cpu *cc = credit_cpu(cpu);

    cv->queue = queue_of_vcpu(p, cv);
    list_add_tail(position(cp, cc, cv), &cv->link);
    cc->queues |= BIT(cv->queue);
    cpumask_set(&cp->waiting, cpu);
    if (cv->queue < Q_OVER) cpumask_set(&cp->ahead, cpu);
}

static void dequeue(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);
    u32 cpu = cv->vcpu->cpu;
    struct credit_cpu *cc = credit_cpu(cpu);

    list_del(&cv->link);
    if (!list_empty(&cc->queue[cv->queue])) return;
    cc->queues &= ~(u32)BIT(cv->queue);
    if (!cc->queues) cpumask_clear(&cp->waiting, cpu);
    if (!(cc->queues & QUEUES_AHEAD)) cpumask_clear(&cp->ahead, cpu);
}

/* A stable partition by what classes and credits are by now. */
static void sort_queue(struct sched_pool *p, u32 cpu) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc = credit_cpu(cpu);
    struct list sorted[Q_NR];

    for (int q = 0; q < Q_NR; q++) list_init(&sorted[q]);
    for (u32 q = next_queue(cc, 0); q < Q_NR; q = next_queue(cc, q + 1)) {
        enum credit_class cls = class_of_queue(q);
        bool by_credit = (ranked(cp) && q == Q_UNDER) || (q > Q_UNDER && q < Q_LATER);

        list_for_each_safe(cv, &cc->queue[q], struct credit_vcpu, link) {
            if (cls != cv->cls || by_credit) cv->queue = queue_of_vcpu(p, cv);
            list_add_tail(&sorted[cv->queue], &cv->link);
        }
    }
    cc->queues = 0;
    for (int q = 0; q < Q_NR; q++) {
        list_init(&cc->queue[q]);
        if (!list_empty(&sorted[q])) cc->queues |= BIT(q);
        list_join(&cc->queue[q], &sorted[q]);
    }
    cpumask_clear(&cp->ahead, cpu);
    if (cc->queues & QUEUES_AHEAD) cpumask_set(&cp->ahead, cpu);
}

/* Somebody without micro-slices runs, a T_S is over: those who waited for that come next. */
static void next_round(struct credit_cpu *cc) {
    cc->round++;
    if (!(cc->queues & BIT(Q_LATER))) return;
    list_for_each(cv, &cc->queue[Q_LATER], struct credit_vcpu, link) cv->queue = Q_MICRO;
    list_join(&cc->queue[Q_MICRO], &cc->queue[Q_LATER]);
    cc->queues = (cc->queues & ~(u32)BIT(Q_LATER)) | BIT(Q_MICRO);
}

/* ---- who is to be kicked ---- */

static struct cpumask idlers_for(const struct sched_pool *p, const struct sched_vcpu *v) {
    const struct credit_pool *cp = credit_pool(p);
    struct cpumask m = cpumask_and(&p->idlers, &v->affinity);

    return cp->knob.balance == BALANCE_FULL ? cpumask_minus(&m, &cp->kicked) : m;
}

static bool outranks(const struct credit_vcpu *cv, const struct sched_vcpu *current) {
    return cv->cls < credit_vcpu(current)->cls;
}

static void kick_one(struct sched_pool *p, const struct cpumask *idlers) {
    struct credit_pool *cp = credit_pool(p);
    u32 cpu = cpumask_cycle(idlers, cp->rotor);

    cp->rotor = cpu + 1;
    cpumask_set(&cp->kicked, cpu);
    sched_kick(p, cpu);
}

/* Somebody new is in a queue: find it a pCPU. */
static void tickle(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);
    u32 own = cv->vcpu->cpu;
    const struct sched_vcpu *current = sched_current_locked(own);
    struct cpumask idlers = idlers_for(p, cv->vcpu);
    bool others = current && !cpumask_empty(&idlers);

    if (!current) cpumask_set(&cp->kicked, own);
    if (!current || (outranks(cv, current) && !(cp->knob.tickle == TICKLE_SMART && others)))
        sched_kick(p, own); /* smart: leave the current one alone if there are others */
    if (!others) return;
    if (cp->knob.tickle != TICKLE_ALL)
        kick_one(p, &idlers);
    else
        cpumask_for_each(cpu, &idlers) sched_kick(p, cpu);
}

#define HELP_SCAN 16 /* so many waiting vCPUs are offered to idle pCPUs after a pick; the rest later */

/* Xen's balancing is driven by events alone: of several vCPUs that wake on one idle pCPU at once, all but one
 * wait, however many pCPUs idle. */
static void call_for_help(struct sched_pool *p, struct credit_cpu *cc) {
    int left = HELP_SCAN;

    for (u32 q = next_queue(cc, 0); q < Q_NR; q = next_queue(cc, q + 1))
        list_for_each(cv, &cc->queue[q], struct credit_vcpu, link) {
            struct cpumask idlers = idlers_for(p, cv->vcpu);

            if (left-- == 0) return;
            if (cv->vcpu->on_cpu == SCHED_NO_CPU && !cpumask_empty(&idlers)) kick_one(p, &idlers);
        }
}

/* This pCPU was called for help and took somebody else: those who still wait need another one, or the
 * pCPU that they were to spare. */
static void pass_on(struct sched_pool *p) {
    cpumask_for_each(peer, &credit_pool(p)->waiting) {
        const struct sched_vcpu *current = sched_current_locked(peer);
        struct credit_vcpu *head = queue_head(credit_cpu(peer));
        struct cpumask idlers = idlers_for(p, head->vcpu);

        if (!cpumask_empty(&p->idlers)) call_for_help(p, credit_cpu(peer));
        if (current && cpumask_empty(&idlers) && outranks(head, current)) sched_kick(p, peer);
    }
}

/* ---- stealing ---- */

/* The first vCPU better than `limit` in the queue of `peer` that may run on `cpu`. */
static struct credit_vcpu *steal_from(struct sched_pool *p, u32 peer, u32 cpu, enum credit_class limit) {
    struct credit_cpu *cc = credit_cpu(peer);
    u64 delay = credit_pool(p)->knob.migration_delay_us * NS_PER_US;

    for (u32 q = next_queue(cc, 0); q < Q_NR && class_of_queue(q) < limit; q = next_queue(cc, q + 1))
        list_for_each(cv, &cc->queue[q], struct credit_vcpu, link) {
            if (cv->cls >= limit) return NULL;
            if (sched_may_run(p, cv->vcpu, cpu) && p->now - cv->ran_until >= delay) return cv;
        }
    return NULL;
}

static struct credit_vcpu *steal(struct sched_pool *p, u32 cpu, enum credit_class limit) {
    const struct credit_pool *cp = credit_pool(p);
    struct cpumask peers = limit > CLASS_OVER ? cp->waiting : cp->ahead;
    struct credit_vcpu *cv = NULL;

    if (cp->knob.balance == BALANCE_EVENTS) peers = cpumask_minus(&peers, &p->idlers);
    cpumask_clear(&peers, cpu);
    while (!cv && !cpumask_empty(&peers)) {
        u32 peer = cpumask_cycle(&peers, cpu + 1);

        cv = steal_from(p, peer, cpu, limit);
        cpumask_clear(&peers, peer);
    }
    return cv;
}

/* ---- burning ---- */

/* Takes `ns` of credit, which a vCPU used, from it. */
static void charge(struct sched_pool *p, struct credit_vcpu *cv, u64 ns) {
    const struct credit_pool *cp = credit_pool(p);

    cv->credit -= (i64)ns;
    if (cp->knob.activate == ACTIVATE_BURN && !is_active(cv)) credit_set_active(p, cv, true);
    if (cp->knob.demote == DEMOTE_BURN && cv->credit < cp->over_below) boost(p, cv, BOOST_CREDIT);
}

/* Of `ns` that a vCPU ran, what it is charged for: the nearest number of whole units of credit.
 * What is over, or too much, is remembered for the next time, also while the vCPU does not run. */
static u64 whole_units(const struct credit_pool *cp, struct credit_vcpu *cv, u64 ns) {
    i64 unit = (i64)cp->unit, total = (i64)ns + cv->unbilled, billed = (total + unit / 2) / unit * unit;

    cv->unbilled = total - billed;
    return (u64)billed;
}

static void burn(struct sched_pool *p, struct credit_vcpu *cv) {
    const struct credit_pool *cp = credit_pool(p);
    u64 ns = p->now - cv->billed;

    cv->billed = p->now;
    cv->left = cv->left > ns + cp->tslice / 16 ? cv->left - ns : 0; /* a rest not worth a switch is none */
    cv->micro -= MIN(cv->micro, ns);
    credit_dom(cv->vcpu->dom)->used += ns;
    if (ns && cp->knob.debit == DEBIT_TIME) charge(p, cv, cp->unit ? whole_units(cp, cv, ns) : ns);
}

/* ---- tick and accounting ---- */

/* The pCPU where it is, or the next that it may use; an idle one if it would have to wait there. */
static u32 place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v), idle = idlers_for(p, v);
    u32 cpu = cpumask_cycle(&allowed, v->cpu);
    struct sched_vcpu *current = sched_current_locked(cpu);

    if (cpumask_empty(&idle) || (!credit_cpu(cpu)->queues && (!current || current == v))) return cpu;
    return cpumask_cycle(&idle, cpu + 1);
}

/* Somebody who has credit waits, here or where this pCPU could take it from, while one who has not runs. */
static bool better_waits(struct sched_pool *p, u32 cpu, const struct sched_vcpu *v) {
    struct credit_vcpu *head = queue_head(credit_cpu(cpu));

    if (head && outranks(head, v)) return true;
    return credit_pool(p)->knob.balance == BALANCE_FULL && credit_vcpu(v)->cls == CLASS_OVER &&
           steal(p, cpu, CLASS_OVER);
}

static void tick_current(struct sched_pool *p, u32 cpu, struct sched_vcpu *v) {
    const struct credit_pool *cp = credit_pool(p);
    struct credit_vcpu *cv = credit_vcpu(v);
    enum credit_class before = cv->cls;

    boost(p, cv, BOOST_TICK);
    if (cv->cls != before) sched_trace(p, v, TRC_BOOST, 0, 0, 0);
    burn(p, cv);
    if (cp->knob.debit == DEBIT_TICK) charge(p, cv, credit_cut_off(cp, cp->tick));
    if (!is_active(cv))
        credit_set_active(p, cv, true);
    else if (!v->migrating && sched_runnable(v) && place(p, v) != cpu)
        sched_migrate(p, v);
}

static void tick(struct sched_pool *p, u32 cpu) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc = credit_cpu(cpu);
    struct sched_vcpu *v = sched_current_locked(cpu);

    if (v) tick_current(p, cpu, v);
    if (cc->epoch != cp->epoch) {
        cc->epoch = cp->epoch;
        sort_queue(p, cpu);
    }
    if (v && cp->knob.demote == DEMOTE_BURN && better_waits(p, cpu, v)) sched_kick(p, cpu);
    cc->ticking = false; /* idle: until the next pick */
    if (v || cc->queues) start_tick(p, cpu);
}

static void burn_all(struct sched_pool *p) {
    cpumask_for_each(cpu, &p->cpus)
        if (sched_current_locked(cpu)) burn(p, credit_vcpu(sched_current_locked(cpu)));
}

static void account(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);

    if (p->turbo || cp->knob.overflow == OVERFLOW_HAND_ON)
        burn_all(p); /* what is steered is measured up to now */
    if (p->turbo) {
        burn_all(p->turbo);
        vturbo_exchange(p);
    }
    credit_account(p);
    if (cp->nr_ls) vslicer_recount(p);
    set_accounting(p);
}

static void timer(struct sched_pool *p, u32 cpu, u32 kind) {
    struct credit_pool *cp = credit_pool(p);

    if (kind == TIMER_TICK) {
        tick(p, cpu);
    } else if (cp->weight) {
        account(p);
    } else { /* until somebody is active again */
        cp->balance = 0;
        cp->accounting = false;
    }
}

/* ---- the decision ---- */

/* In a round the heaviest runs for a whole slice, the others for less, but not for too little to
 * be worth a switch. */
static u64 slice_by_weight(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    const struct credit_dom *cd = credit_dom(cv->vcpu->dom);
    u64 weight = cd->nr_active ? cd->counted / cd->nr_active : cp->heaviest;

    if (weight >= cp->heaviest) return cp->tslice;
    return MAX(cp->tslice * weight / cp->heaviest, cp->tslice / 8);
}

static u64 slice_of(const struct sched_pool *p, const struct credit_vcpu *cv) {
    const struct credit_pool *cp = credit_pool(p);

    if (cp->nr_ls) return vslicer_slice(cp, credit_cpu(cv->vcpu->cpu), cv);
    return credit_rounds(p) ? slice_by_weight(cp, cv) : cp->tslice;
}

/* How much longer the current vCPU is not to be disturbed, 0 if it may be. */
static u64 rate_limited(const struct credit_pool *cp, const struct credit_vcpu *cv, u64 now) {
    u64 ran = now - cv->picked_at;

    if (ran >= cp->ratelimit || (cp->nr_ls && !cv->left))
        return 0; /* a micro-slice may be shorter than the limit */
    if (!cp->knob.ratelimit_exact) return cp->ratelimit;
    return cv->yielded ? 0 : cp->ratelimit - ran;
}

static struct credit_vcpu *take_best(struct sched_pool *p, u32 cpu) {
    struct credit_vcpu *head = queue_head(credit_cpu(cpu)), *stolen = NULL;

    if ((!head || head->cls >= CLASS_OVER) && !cpumask_empty(&credit_pool(p)->waiting))
        stolen = steal(p, cpu, head ? head->cls : CLASS_NR);
    if (stolen) head = stolen;
    if (head) dequeue(p, head);
    if (head && !stolen && head->queue >= Q_UNDER) next_round(credit_cpu(cpu));
    if (stolen) sched_move(p, stolen->vcpu, cpu);
    return head;
}

static struct sched_pick pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc = credit_cpu(cpu);
    struct credit_vcpu *cv = NULL, *next;
    bool full = cp->knob.balance == BALANCE_FULL, helping = !current && cpumask_test(&cp->kicked, cpu);

    cpumask_clear(&cp->kicked, cpu);
    if (current) {
        cv = credit_vcpu(current);
        burn(p, cv);
        if (sched_runnable(current)) {
            u64 rest = rate_limited(cp, cv, p->now);

            if (!cv->left) boost(p, cv, BOOST_SLICE_OVER);
            if (!rest) enqueue(p, cv);
            cv->yielded = false;
            if (rest) return (struct sched_pick){ current, rest };
        }
        cv->ran_until = p->now;
    }
    next = take_best(p, cpu);
    if (cc->queues && full && !cpumask_empty(&p->idlers)) call_for_help(p, cc);
    if (helping && next && full) pass_on(p);
    if (!next) return (struct sched_pick){ NULL, SCHED_NEVER };
    if (next != cv) next->picked_at = next->billed = p->now;
    if (!next->left || cp->knob.requeue == REQUEUE_TAIL) next->left = slice_of(p, next);
    if (!cc->ticking) start_tick(p, cpu);
    return (struct sched_pick){ next->vcpu, next->left };
}

/* ---- what happens to vCPUs ---- */

static void wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) {
    struct credit_vcpu *cv = credit_vcpu(v);
    enum credit_class before = cv->cls;

    if (why != SCHED_UNPARK && (why != SCHED_MIGRATE || credit_pool(p)->knob.boost_on_migrate))
        boost(p, cv, BOOST_WAKE);
    if (cv->cls != before) sched_trace(p, v, TRC_BOOST, 1, 0, 0);
    if (why == SCHED_WAKE && cv->cls == CLASS_BOOST) v->boosts++;
    cv->left = 0;
    enqueue(p, cv);
    tickle(p, cv);
}

static void sleep(struct sched_pool *p, struct sched_vcpu *v) { dequeue(p, credit_vcpu(v)); }

static void yield(struct sched_pool *p, struct sched_vcpu *v) {
    credit_vcpu(v)->yielded = credit_pool(p)->knob.yield_hint;
}

/* It was put back into a queue before its state was saved, and could not be taken by anybody until now. */
static void saved(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask idlers = idlers_for(p, v);

    if (credit_pool(p)->knob.balance == BALANCE_FULL && !cpumask_empty(&idlers)) kick_one(p, &idlers);
}

static void affinity(struct sched_pool *p, struct sched_vcpu *v) {
    if (v->queued) tickle(p, credit_vcpu(v));
}

/* ---- membership and knobs ---- */

static void cpu_add(struct sched_pool *p, u32 cpu) {
    for (int q = 0; q < Q_NR; q++) list_init(&credit_cpu(cpu)->queue[q]);
    credit_cpu(cpu)->epoch = credit_pool(p)->epoch;
    if (cpumask_weight(&p->cpus) == 1) credit_pool(p)->master = cpu;
    credit_set_over(p);
}

static void cpu_remove(struct sched_pool *p, u32 cpu) {
    struct credit_pool *cp = credit_pool(p);

    cpumask_clear(&cp->kicked, cpu);
    credit_set_over(p);
    if (cp->master != cpu) return;
    cp->master = cpumask_next(&p->cpus, 0);
    cp->accounting &= !cpumask_empty(&p->cpus);
    if (cp->accounting) set_accounting(p);
}

static void dom_add(struct sched_pool *p, struct sched_dom *d) {
    struct credit_dom *cd = credit_dom(d);

    cd->weight = CREDIT_DEFAULT_WEIGHT;
    if (d->id & SCHED_TURBO) vturbo_copy(d->peer, d);
    cd->io = d->io;
    list_init(&cd->active);
    list_init(&cd->link);
}

static void vcpu_add(struct sched_pool *p, struct sched_vcpu *v) {
    struct credit_vcpu *cv = credit_vcpu(v);

    cv->vcpu = v;
    cv->cls = CLASS_UNDER;
    list_init(&cv->link);
    list_init(&cv->active);
}

static void vcpu_remove(struct sched_pool *p, struct sched_vcpu *v) {
    if (is_active(credit_vcpu(v))) credit_set_active(p, credit_vcpu(v), false);
}

/* What a VM's label, or what is said instead, means; with aca it then has all its vCPUs on the active list.
 */
static void classify(struct sched_pool *p, struct sched_dom *d) {
    struct credit_dom *cd = credit_dom(d);

    if (!p->turbo) cd->share_ns = cd->turbo_ns = 0;
    cd->io = cd->io_setting == IO_AUTO ? d->io : cd->io_setting == IO_YES;
    cd->kept = credit_pool(p)->knob.aca && cd->io;
    for (u32 i = 0; i < d->nr_vcpus && cd->kept; i++)
        if (d->vcpu[i] && !is_active(credit_vcpu(d->vcpu[i])))
            credit_set_active(p, credit_vcpu(d->vcpu[i]), true);
}

static void label(struct sched_pool *p, struct sched_dom *d) {
    classify(p, d);
    vslicer_recount(p);
}

/* A parameter of a VM was set: param_set() has locked both pools. */
static void copy_to_turbo(struct sched_pool *p) {
    list_for_each(d, &p->doms, struct sched_dom, in_pool) {
        if (d->peer) vturbo_copy(d, d->peer);
    }
    credit_weights_changed(p->turbo);
}

/* Why the times do not go together, a sentence; NULL: they do. `tick` and `period` are those in
 * use, in us. */
static const char *times_conflict(const struct credit_knobs *k, u32 tick, u32 period) {
    if (tick > period) return "tick_us is longer than period_us";
    if (k->ratelimit_us > k->tslice_us) return "ratelimit_us is longer than tslice_us";
    if (k->ratelimit_us && k->ratelimit_us < 100) return "ratelimit_us is 0 or at least 100";
    if (k->credit_unit_us && period % k->credit_unit_us)
        return "the accounting period is not a multiple of credit_unit_us";
    return NULL;
}

static int changed(struct sched_pool *p, const struct param *e, const char **why) {
    struct credit_pool *cp = credit_pool(p);
    const struct credit_knobs *k = &cp->knob;
    u32 slice = k->tslice_us, tick = k->tick_us, period = k->period_us;

    if (!tick) /* three a slice, one if the slice is short, but not more than a thousand a second */
        tick = MAX(slice >= 3000 ? slice / 3 : slice, 1000);
    if (!period) period = MAX(slice, tick);
    *why = times_conflict(k, tick, period);
    if (!*why) *why = credit_conflict(p);
    if (!*why) *why = vslicer_refuses(p);
    if (*why) return -EINVAL;
    list_for_each(d, &p->doms, struct sched_dom, in_pool) classify(p, d);
    credit_weights_changed(p);
    vslicer_recount(p);
    if (e && e->scope != PARAM_POOL) {
        if (p->turbo) copy_to_turbo(p);
        return 0;
    }
    cp->tslice = slice * NS_PER_US;
    cp->tick = tick * NS_PER_US;
    cp->period = cp->this_period = period * NS_PER_US;
    cp->ratelimit = k->ratelimit_us * NS_PER_US;
    cp->unit = k->credit_unit_us * NS_PER_US;
    cp->boost = boost_policies[k->boost];
    credit_set_over(p);
    cpumask_for_each(cpu, &p->cpus) {
        if (credit_cpu(cpu)->ticking) start_tick(p, cpu);
        sched_kick(p, cpu); /* the slice that runs now is an old one */
    }
    if (cp->accounting) set_accounting(p);
    return 0;
}

static void view(struct sched_pool *p, struct sched_vcpu *v, struct sched_times *out) {
    const struct credit_pool *cp = credit_pool(p);
    const struct credit_vcpu *cv = credit_vcpu(v);
    const struct sched_dom *regular = v->dom->id & SCHED_TURBO ? v->dom->peer : v->dom;
    const struct credit_dom *cd = credit_dom(regular);

    out->micro_ns = vslicer_micro(cp, cv);
    if (regular != v->dom)
        out->kind = "turbo";
    else if (out->micro_ns)
        out->kind = cd->io ? "LS+io" : "LS";
    else
        out->kind = cd->io ? "io" : cp->nr_ls ? "NL" : "";
    out->turbo_pct =
        cd->turbo_ns / NS_PER_US * 10000 / MAX(credit_pool(regular->pool)->period / NS_PER_US, 1);
    out->moved_ns = cp->knob.share ? cd->moved : 0;
    out->boost = cv->cls == CLASS_BOOST ? MAX(cv->level, 1) : 0;
}

static void pool_init(struct sched_pool *p) {
    const char *why;

    list_init(&credit_pool(p)->active);
    memcpy(p->priv, credit_presets[0].values, sizeof(struct credit_knobs));
    changed(p, NULL, &why);
}

const struct sched_policy credit_policy = {
    .name = "credit",
    .params = credit_params,
    .presets = credit_presets,
    .preset_size = sizeof(struct credit_knobs),
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
    .changed = changed,
    .label = label,
    .view = view,
    .pairs = true,
    .conflict = credit_conflict,
};
