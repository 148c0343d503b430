/* Credit: the proportional-share scheduler that Xen has had since 3.0, with its history as knobs
 * (credit.h). A vCPU is a CPU of a VM, a pCPU one of the machine, and a pool a set of pCPUs.
 *
 * Once an accounting period a pool grants credit for the time of its pCPUs, divided by weight among
 * the VMs that are active (credit_account.c). Running burns credit. A vCPU that has some left is of
 * class UNDER and goes before those that have none, which are OVER. Within a class the vCPU that
 * came first goes first, and each runs for a slice. A wake may lift a vCPU to the class BOOST
 * (boost.c). To kick a pCPU is to make it decide anew what it runs. To steal is to take a vCPU that
 * waits for another pCPU; to tickle is to kick a pCPU that should run a vCPU.
 *
 * Locks: only the pool's, which the core holds around every hook. Each pCPU has a queue, made of
 * FIFO lists, one or more a class. A vCPU whose class changes while it waits keeps its place until
 * the pCPU sorts its queue, at its first tick after an accounting pass.
 *
 * Variations attach in four places: slice_of() (how long a vCPU runs), position() (where in a list
 * it is put), credit_account() (how credit is granted) and boost_vcpu() (what a wake earns). */
#include <takt/errno.h>
#include "sched/credit.h"

enum { TIMER_TICK, TIMER_ACCOUNT = SCHED_TIMER_BOTH };

/* Lets the pool's boost policy say which class the vCPU has after `event`. */
static void boost_vcpu(struct sched_pool *p, struct credit_vcpu *cv, enum boost_event event) {
    struct credit_pool *cp = credit_pool(p);
    enum credit_class before = cv->cls;

    cv->cls = cp->boost(p, cv, event);
    if (cv->cls != before) cpumask_set(&cp->news, cv->vcpu->cpu);
}

/* ---- timers ---- */

/* Returns the next multiple of `period` on the pool's clock, shifted for the pCPU. */
static u64 next_beat(u64 period, u32 cpu, u64 now) {
    u64 shift = credit_shift(period, cpu);

    if (now < shift) return shift;
    return shift + ((now - shift) / period + 1) * period;
}

/* Sets the timer for the next accounting pass, which runs on the pCPU cp->master. */
void credit_set_accounting(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);
    u64 when = next_beat(cp->period, 0, p->now);

    if (cp->this_period < cp->period) when = p->now + cp->this_period;
    cp->accounting = true;
    sched_timer_set(cp->master, TIMER_ACCOUNT, when);
}

/* Sets the timer for the pCPU's next tick, at which the vCPU that runs there is charged. */
void credit_start_tick(struct sched_pool *p, u32 cpu) {
    credit_cpu(cpu)->ticking = true;
    sched_timer_set(cpu, TIMER_TICK, next_beat(credit_pool(p)->tick, cpu, p->now));
}

/* ---- the active list: the vCPUs that are granted credit, and their VMs ---- */

/* Returns what one unit of weight_scope (a VM, or a vCPU) of an active VM counts in W. */
static u64 weight_of(const struct credit_pool *cp, const struct credit_vm *cd) {
    if (cd->share_ns) return MAX(cd->share_ns / NS_PER_US, 1);
    if (cp->knob.fault == FAULT_IGNORE_WEIGHT) return CREDIT_DEFAULT_WEIGHT;
    return cd->weight;
}

/* Brings up to date what a VM counts in W, the sum of the weights of active VMs. */
static void count_weight(struct credit_pool *cp, struct credit_vm *cd) {
    cp->weight -= cd->counted;
    cd->counted = 0;
    if (cp->knob.weight_scope == SCOPE_VCPU)
        cd->counted = weight_of(cp, cd) * cd->nr_active;
    else if (cd->nr_active)
        cd->counted = weight_of(cp, cd);
    cp->weight += cd->counted;
}

/* Computes W anew, after weights have changed. */
void credit_weights_changed(struct sched_pool *p) {
    list_for_each(cd, &credit_pool(p)->active, struct credit_vm, link)
        count_weight(credit_pool(p), cd);
}

/* Puts a vCPU on its VM's list of active vCPUs, or takes it off. A VM is on the pool's list of
 * active VMs as long as it has such a vCPU. Accounting stops when no VM is active, so the first one
 * that becomes active starts it again. */
void credit_set_active(struct sched_pool *p, struct credit_vcpu *cv, bool active) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_vm *cd = credit_vm(cv->vcpu->vm);

    if (active) {
        list_add_head(&cd->active, &cv->active);
        if (cd->nr_active++ == 0) list_add_head(&cp->active, &cd->link);
    } else {
        list_del(&cv->active);
        if (--cd->nr_active == 0) list_del(&cd->link);
    }
    count_weight(cp, cd);
    vslicer_count(p, cv, active);
    if (active && !cp->accounting) credit_set_accounting(p);
}

/* Sets cp->over_below: a vCPU with less credit than that is OVER. Normally this is 0. Where some
 * vCPUs have micro-slices, a vCPU may owe a slice before it is OVER. If the vCPUs take turns
 * whatever credit they have (order = round), none is OVER. */
void credit_set_over(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);

    cp->over_below = 0;
    if (cp->nr_ls) cp->over_below = -(i64)cp->tslice;
    if (credit_rounds(p)) cp->over_below = INT64_MIN;
}

/* ---- queues ---- */

static const enum credit_queue queue_of[CLASS_NR] = { Q_BOOST, Q_UNDER, Q_OVER };

/* Returns the first queue from `from` on that is not empty, or Q_NR. */
static u32 next_queue(const struct credit_cpu *cc, u32 from) {
    return (u32)__builtin_ctz((cc->queues | 1u << Q_NR) & (~0u << from));
}

/* Returns the vCPU that is first in the pCPU's queue, or NULL if none waits there. */
static struct credit_vcpu *queue_head(struct credit_cpu *cc) {
    if (!cc->queues) return NULL;
    return list_first(&cc->queue[next_queue(cc, 0)], struct credit_vcpu, link);
}

/* Returns whether UNDER is divided into ranks by credit. With micro-slices it is not, because these
 * have an order of their own. */
static bool ranked(const struct credit_pool *cp) {
    return cp->knob.order == ORDER_CREDIT && !cp->nr_ls;
}

/* Returns the queue for a vCPU by its class. UNDER has as many queues as there are numbers from
 * Q_UNDER to Q_LATER. If these are ranked by credit, a vCPU with a whole period's credit is in the
 * first one, and the more is missing to that, the later its queue. */
static enum credit_queue queue_for(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    u32 missing;

    if (cv->cls != CLASS_UNDER || !ranked(cp)) return queue_of[cv->cls];
    missing = (u32)((cp->period - MIN((u64)MAX(cv->credit, 0), cp->period)) * (Q_LATER - Q_UNDER) /
                    cp->period);
    return Q_UNDER + MIN(missing, Q_LATER - Q_UNDER - 1);
}

/* Returns the queue for a vCPU, in a pool that may have a slicer. A vCPU with micro-slices belongs
 * into one of two lists of its kind, even when it has just got credit again. In the list of the
 * others it would end a T_S when it is picked. */
static enum credit_queue queue_of_vcpu(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);

    if (cv->cls == CLASS_UNDER && cp->nr_ls) return vslicer_queue(p, cv);
    return queue_for(cp, cv);
}

/* Returns the list entry before which the vCPU is put. Normally that is the end of the list of its
 * queue. These go elsewhere: - A vCPU that has yielded also lets one vCPU of the next worse queue
 * go first. - A vCPU with a higher level of boost goes before those with a lower one. - One with
 * micro-slices goes before those with a larger `key`, if the slicer orders them by it. - One that
 * was preempted and is to finish its slice goes before the others of its queue. */
static struct list *position(const struct credit_pool *cp, struct credit_cpu *cc,
                             struct credit_vcpu *cv) {
    struct list *equals = &cc->queue[cv->queue], *at = equals;

    if (cv->yielded) {
        u32 worse = next_queue(cc, cv->queue + 1);

        if (worse == Q_NR) return equals;
        cv->queue = worse;
        return cc->queue[cv->queue].next->next;
    }
    if (cv->level)
        while (at->prev != equals &&
               list_entry(at->prev, struct credit_vcpu, link)->level < cv->level)
            at = at->prev;
    if (cv->queue == Q_MICRO && cp->knob.slicer != SLICER_VSLICER)
        while (at->prev != equals && list_entry(at->prev, struct credit_vcpu, link)->key > cv->key)
            at = at->prev;
    if (at != equals) return at;
    if (cv->left && cp->knob.requeue == REQUEUE_HEAD) return equals->next;
    return equals;
}

/* Does for offer() what is left to do if it is not noted already. */
static __attribute__((noinline)) void offer_anew(const struct sched_pool *p,
                                                 const struct sched_vcpu *v) {
    struct credit_cpu *cc = credit_cpu(v->cpu);
    struct cpumask more = cpumask_minus(&v->affinity, &cc->offered_to);

    cc->offered_to = cpumask_or(&cc->offered_to, &more);
    more = cpumask_and(&more, &p->cpus);
    cpumask_for_each(cpu, &more) cpumask_set(&credit_cpu(cpu)->offers, v->cpu);
}

/* Notes that v waits on its pCPU: each pCPU that may take it gets that one into its `offers`. A
 * vCPU that wakes finds this noted already, unless a pCPU has looked in vain meanwhile: only
 * steal_from() takes a pCPU out of `offers`. */
static inline void offer(const struct sched_pool *p, const struct sched_vcpu *v) {
    if (!cpumask_within(&v->affinity, &credit_cpu(v->cpu)->offered_to)) offer_anew(p, v);
}

/* Puts a vCPU that can run into the queue of its pCPU, in the list for its class. */
static void enqueue(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);
    u32 cpu = cv->vcpu->cpu;
    struct credit_cpu *cc = credit_cpu(cpu);

    cv->queue = queue_of_vcpu(p, cv);
    list_add_tail(position(cp, cc, cv), &cv->link);
    cc->queues |= BIT(cv->queue);
    cpumask_set(&cp->waiting, cpu);
    cpumask_set(&cp->news, cpu);
    if (cv->queue < Q_OVER) cpumask_set(&cp->ahead, cpu);
    offer(p, cv->vcpu);
}

/* Another vCPU may have become the first one of this pCPU's queue. */
static void first_changed(struct credit_pool *cp, u32 cpu) {
    cpumask_set(&cp->news, cpu);
    if (credit_cpu(cpu)->queues & QUEUES_AHEAD)
        cpumask_set(&cp->ahead, cpu);
    else
        cpumask_clear(&cp->ahead, cpu);
}

/* Takes a vCPU out of its queue. */
static void dequeue(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);
    u32 cpu = cv->vcpu->cpu;
    struct credit_cpu *cc = credit_cpu(cpu);

    list_del(&cv->link);
    if (list_empty(&cc->queue[cv->queue])) cc->queues &= ~(u32)BIT(cv->queue);
    if (!cc->queues) cpumask_clear(&cp->waiting, cpu);
    first_changed(cp, cpu);
}

/* Puts each waiting vCPU into the queue for its class and credit; within it the order stays. The
 * accounting pass changes classes and credits and leaves the queues as they are, so each pCPU does
 * this at its next tick. */
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
    first_changed(cp, cpu);
}

/* A vCPU without micro-slices runs, so a T_S is over: the stretch of time in which each vCPU with
 * micro-slices may run once for its slice (vslicer.c). Those that waited for that come next. */
static void next_round(struct credit_cpu *cc) {
    cc->round++;
    if (!(cc->queues & BIT(Q_LATER))) return;
    list_for_each(cv, &cc->queue[Q_LATER], struct credit_vcpu, link) cv->queue = Q_MICRO;
    list_join(&cc->queue[Q_MICRO], &cc->queue[Q_LATER]);
    cc->queues = (cc->queues & ~(u32)BIT(Q_LATER)) | BIT(Q_MICRO);
}

/* ---- which pCPUs are kicked ---- */

/* Does for idlers_for() what is left to do if some pCPU is idle. */
static __attribute__((noinline)) bool
idlers_among(const struct sched_pool *p, const struct sched_vcpu *v, struct cpumask *out) {
    const struct credit_pool *cp = credit_pool(p);

    *out = cpumask_and(&p->idlers, &v->affinity);
    if (cp->knob.balance == BALANCE_FULL) *out = cpumask_minus(out, &cp->kicked);
    return !cpumask_empty(out);
}

/* Computes in *out the idle pCPUs that v may use and that were not kicked for another vCPU already.
 * Returns whether there are any. Where pCPUs are busy none is idle, which is found out first and
 * without a call. */
static inline bool idlers_for(const struct sched_pool *p, const struct sched_vcpu *v,
                              struct cpumask *out) {
    return !cpumask_empty(&p->idlers) && idlers_among(p, v, out);
}

/* Is the class of cv better than that of the vCPU that runs? */
static bool outranks(const struct credit_vcpu *cv, const struct sched_vcpu *current) {
    return cv->cls < credit_vcpu(current)->cls;
}

/* Kicks one of the idle pCPUs: each in its turn, so that work is spread over them. */
static void kick_one(struct sched_pool *p, const struct cpumask *idlers) {
    struct credit_pool *cp = credit_pool(p);
    u32 cpu = cpumask_cycle(idlers, cp->rotor);

    cp->rotor = cpu + 1;
    cpumask_set(&cp->kicked, cpu);
    sched_kick(p, cpu);
}

/* A vCPU is new in a queue: kicks the pCPU that should run it, so that this picks again. That is
 * its own pCPU, if that is idle or runs something of a lower rank, and maybe an idle one that can
 * steal it: one or all of them, as the knob `tickle` says. */
static void tickle(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);
    u32 own = cv->vcpu->cpu;
    const struct sched_vcpu *current = sched_current_locked(own);
    struct cpumask idlers;
    bool others;

    if (!current) {
        cpumask_set(&cp->kicked, own);
        sched_kick(p, own);
        return;
    }
    others = idlers_for(p, cv->vcpu, &idlers);
    /* smart: the current vCPU is left alone if an idle pCPU can take the new one. */
    if (outranks(cv, current) && !(cp->knob.tickle == TICKLE_SMART && others)) sched_kick(p, own);
    if (!others) return;
    if (cp->knob.tickle != TICKLE_ALL)
        kick_one(p, &idlers);
    else
        cpumask_for_each(cpu, &idlers) sched_kick(p, cpu);
}

/* After a pick at most this many waiting vCPUs are offered to idle pCPUs. Later picks offer the
 * others. So a decision does not take longer when the queue is long. */
#define HELP_SCAN 16

/* Kicks an idle pCPU for each vCPU that waits in this queue. Xen balances only when an event
 * makes it look: of several vCPUs that wake on one idle pCPU at once, all but one then wait,
 * however many pCPUs idle. */
static void call_for_help(struct sched_pool *p, struct credit_cpu *cc) {
    int left = HELP_SCAN;

    for (u32 q = next_queue(cc, 0); q < Q_NR; q = next_queue(cc, q + 1))
        list_for_each(cv, &cc->queue[q], struct credit_vcpu, link) {
            struct cpumask idlers;

            if (left-- == 0) return;
            if (cv->vcpu->on_cpu == SCHED_NO_CPU && idlers_for(p, cv->vcpu, &idlers))
                kick_one(p, &idlers);
        }
}

/* This pCPU was kicked to run a certain vCPU, but took a better one. For those that still wait,
 * kicks another idle pCPU, or else the pCPU in whose queue they are. A pCPU that runs none of a
 * lower rank than its first one that waits, and has none for an idle pCPU, is not visited again
 * before one of this may have changed. */
static void pass_on(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);
    struct cpumask peers = cpumask_and(&cp->waiting, &cp->news);

    cpumask_for_each(peer, &peers) {
        const struct sched_vcpu *current = sched_current_locked(peer);
        struct credit_cpu *cc = credit_cpu(peer);
        struct credit_vcpu *head = queue_head(cc);
        struct cpumask idlers, takers = cpumask_and(&cc->offered_to, &p->idlers);
        bool helped = idlers_for(p, head->vcpu, &idlers);
        bool lower = current && outranks(head, current);

        if (!cpumask_empty(&takers)) call_for_help(p, cc);
        if (lower && !helped) sched_kick(p, peer);
        if (current && !lower && cpumask_empty(&takers)) cpumask_clear(&cp->news, peer);
    }
}

/* ---- stealing ---- */

/* Returns the first vCPU better than `limit` in `peer`'s queue that may run on `cpu`, or NULL. What
 * makes it look in vain is remembered: that the first vCPU is OVER, until another one is the first,
 * or that none may use `cpu`, until one waits there that may. */
static struct credit_vcpu *steal_from(struct sched_pool *p, u32 peer, u32 cpu,
                                      enum credit_class limit) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc = credit_cpu(peer);
    u64 delay = cp->knob.migration_delay_us * NS_PER_US;
    bool beyond = false, offered = false;

    if (queue_head(cc)->cls >= limit) {
        cpumask_clear(&cp->ahead, peer);
        return NULL;
    }
    for (u32 q = next_queue(cc, 0); q < Q_NR; q = next_queue(cc, q + 1))
        list_for_each(cv, &cc->queue[q], struct credit_vcpu, link) {
            if (cv->cls >= limit || class_of_queue(q) >= limit) beyond = true;
            if (!cpumask_test(&cv->vcpu->affinity, cpu)) continue;
            if (beyond) return NULL;
            if (sched_may_run(p, cv->vcpu, cpu) && p->now - cv->ran_until >= delay) return cv;
            offered = true;
        }
    if (offered) return NULL;
    cpumask_clear(&credit_cpu(cpu)->offers, peer);
    cpumask_clear(&cc->offered_to, cpu);
    return NULL;
}

/* Looks in the queues of the other pCPUs for a vCPU better than `limit` that may run on `cpu`;
 * NULL if there is none. */
static struct credit_vcpu *steal(struct sched_pool *p, u32 cpu, enum credit_class limit) {
    const struct credit_pool *cp = credit_pool(p);
    struct cpumask peers =
        cpumask_and(&credit_cpu(cpu)->offers, limit > CLASS_OVER ? &cp->waiting : &cp->ahead);
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

/* What is left of a slice counts as nothing if it is at most this part of a slice. It would not be
 * worth the switch back to the vCPU. */
#define REST_PART 16

/* Takes from a vCPU's credit the `ns` that it has used. That may make it active, or lower its
 * class. */
static void charge(struct sched_pool *p, struct credit_vcpu *cv, u64 ns) {
    const struct credit_pool *cp = credit_pool(p);

    cv->credit -= (i64)ns;
    if (cp->knob.activate == ACTIVATE_BURN && !credit_is_active(cv)) credit_set_active(p, cv, true);
    if (cp->knob.demote == DEMOTE_BURN && cv->credit < cp->over_below)
        boost_vcpu(p, cv, BOOST_CREDIT);
}

/* Returns for how much a vCPU that ran for `ns` is charged: the nearest number of whole units of
 * credit. The difference is remembered for the next time, also while the vCPU does not run. */
static u64 whole_units(const struct credit_pool *cp, struct credit_vcpu *cv, u64 ns) {
    i64 unit = (i64)cp->unit, total = (i64)ns + cv->unbilled,
        billed = (total + unit / 2) / unit * unit;

    cv->unbilled = total - billed;
    return (u64)billed;
}

/* Accounts for the time that the current vCPU has run since this was last done: the time counts
 * against its slice, its micro-slice, its VM's use of the pool, and its credit. */
static void burn(struct sched_pool *p, struct credit_vcpu *cv) {
    const struct credit_pool *cp = credit_pool(p);
    u64 ns = p->now - cv->billed;

    cv->billed = p->now;
    if (cv->left > ns + cp->tslice / REST_PART)
        cv->left -= ns;
    else
        cv->left = 0;
    cv->micro -= MIN(cv->micro, ns);
    credit_vm(cv->vcpu->vm)->used += ns;
    if (!ns || cp->knob.debit != DEBIT_TIME) return;
    if (cp->unit) ns = whole_units(cp, cv, ns);
    charge(p, cv, ns);
}

/* ---- tick and accounting ---- */

/* Returns the pCPU that v is to be assigned to: the one where it is, or the next one that it may
 * use. If v would have to wait there and an idle pCPU can take it, it is the next idle one. */
static u32 credit_place(struct sched_pool *p, struct sched_vcpu *v) {
    struct sched_vcpu *current;
    struct cpumask idle;
    u32 cpu = v->cpu;

    if (!cpumask_test(&v->affinity, cpu) || !cpumask_test(&p->cpus, cpu)) {
        struct cpumask allowed = sched_allowed(p, v);

        cpu = cpumask_cycle(&allowed, cpu);
    }
    if (!idlers_for(p, v, &idle)) return cpu;
    current = sched_current_locked(cpu);
    if (!credit_cpu(cpu)->queues && (!current || current == v)) return cpu;
    return cpumask_cycle(&idle, cpu + 1);
}

/* Returns whether a vCPU of a better class than v, which runs, waits on this pCPU, or on another
 * one from which this pCPU could take it. */
static bool better_waits(struct sched_pool *p, u32 cpu, const struct sched_vcpu *v) {
    struct credit_vcpu *head = queue_head(credit_cpu(cpu));

    if (head && outranks(head, v)) return true;
    return credit_pool(p)->knob.balance == BALANCE_FULL && credit_vcpu(v)->cls == CLASS_OVER &&
           steal(p, cpu, CLASS_OVER);
}

/* Does for v, which runs, what a tick does. It ends v's boost and charges v. An inactive vCPU that
 * a tick finds running becomes active. One that would find a better pCPU now is sent there. */
static void tick_current(struct sched_pool *p, u32 cpu, struct sched_vcpu *v) {
    const struct credit_pool *cp = credit_pool(p);
    struct credit_vcpu *cv = credit_vcpu(v);
    enum credit_class before = cv->cls;

    boost_vcpu(p, cv, BOOST_TICK);
    if (cv->cls != before) sched_trace(p, v, TRC_BOOST, 0, 0, 0);
    burn(p, cv);
    if (cp->knob.debit == DEBIT_TICK) charge(p, cv, credit_cut_off(cp, cp->tick));
    if (!credit_is_active(cv))
        credit_set_active(p, cv, true);
    else if (!v->migrating && sched_runnable(v) && credit_place(p, v) != cpu)
        sched_migrate(p, v);
}

/* Each pCPU has its own tick. After an accounting pass it also sorts the pCPU's queue. */
static void credit_tick(struct sched_pool *p, u32 cpu) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc = credit_cpu(cpu);
    struct sched_vcpu *v = sched_current_locked(cpu);

    if (v) tick_current(p, cpu, v);
    if (cc->epoch != cp->epoch) {
        cc->epoch = cp->epoch;
        sort_queue(p, cpu);
    }
    if (v && cp->knob.demote == DEMOTE_BURN && better_waits(p, cpu, v)) sched_kick(p, cpu);
    cc->ticking = false; /* an idle pCPU has no tick until its next pick */
    if (v || cc->queues) credit_start_tick(p, cpu);
}

/* Charges all vCPUs that run now for their time up to now. */
static void burn_all(struct sched_pool *p) {
    cpumask_for_each(cpu, &p->cpus)
        if (sched_current_locked(cpu)) burn(p, credit_vcpu(sched_current_locked(cpu)));
}

/* Does an accounting pass: gives all vCPUs their credit for the next period. With a turbo pool,
 * first divides CPU time between the two pools. */
static void accounting_pass(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);

    if (p->turbo || cp->knob.overflow == OVERFLOW_HAND_ON)
        burn_all(p); /* these compare credits, so the time that was used up to now has to count */
    if (p->turbo) {
        burn_all(p->turbo);
        vturbo_exchange(p);
    }
    credit_account(p);
    cpumask_for_each(cpu, &cp->waiting) first_changed(cp, cpu); /* it has another class, maybe */
    if (cp->nr_ls) vslicer_recount(p);
    credit_set_accounting(p);
}

/* A timer of the policy is due: the tick of a pCPU, or the pool's accounting. */
static void credit_timer(struct sched_pool *p, u32 cpu, u32 kind) {
    struct credit_pool *cp = credit_pool(p);

    if (kind == TIMER_TICK) {
        credit_tick(p, cpu);
    } else if (cp->weight) {
        accounting_pass(p);
    } else { /* no VM is active; credit_set_active() sets the timer again */
        cp->balance = 0;
        cp->accounting = false;
    }
}

/* ---- the decision ---- */

/* With order = round, no slice is shorter than this part of a whole one. A shorter one would not be
 * worth the switch. */
#define ROUND_LEAST_PART 8

/* Returns the slice of a vCPU with order = round, where vCPUs take turns: the heaviest one runs for
 * a whole slice, and the others for less, in proportion to their weights. */
static u64 slice_by_weight(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    const struct credit_vm *cd = credit_vm(cv->vcpu->vm);
    u64 weight = cp->heaviest;

    if (cd->nr_active) weight = cd->counted / cd->nr_active;
    if (weight >= cp->heaviest) return cp->tslice;
    return MAX(cp->tslice * weight / cp->heaviest, cp->tslice / ROUND_LEAST_PART);
}

/* Returns for how long a vCPU that was picked may run, in ns. */
static u64 slice_of(const struct sched_pool *p, const struct credit_vcpu *cv) {
    const struct credit_pool *cp = credit_pool(p);

    if (cp->nr_ls) return vslicer_slice(cp, credit_cpu(cv->vcpu->cpu), cv);
    if (credit_rounds(p)) return slice_by_weight(cp, cv);
    return cp->tslice;
}

/* Returns for how many ns more the parameter ratelimit_us keeps the current vCPU running, although
 * the pCPU was told to decide anew: a vCPU is not preempted before it has run for so long. Returns
 * 0 if it may be preempted now. Xen then lets it run for the whole time again; with ratelimit_exact
 * it runs only for what is left. */
static u64 rate_limited(const struct credit_pool *cp, const struct credit_vcpu *cv, u64 now) {
    u64 ran = now - cv->picked_at;

    if (ran >= cp->ratelimit) return 0;
    if (cp->nr_ls && !cv->left) return 0; /* a micro-slice may be shorter than the limit */
    if (!cp->knob.ratelimit_exact) return cp->ratelimit;
    if (cv->yielded) return 0;
    return cp->ratelimit - ran;
}

/* Takes the best vCPU for `cpu` off its queue: the first one of its own, unless that is OVER and
 * one that waits elsewhere is not. Returns NULL if there is none. */
static struct credit_vcpu *take_best(struct sched_pool *p, u32 cpu) {
    struct credit_vcpu *head = queue_head(credit_cpu(cpu)), *stolen = NULL;
    enum credit_class limit = CLASS_NR;

    if (head) limit = head->cls;
    if (limit >= CLASS_OVER) stolen = steal(p, cpu, limit);
    if (stolen) {
        dequeue(p, stolen);
        sched_move(p, stolen->vcpu, cpu);
        return stolen;
    }
    if (!head) return NULL;
    dequeue(p, head);
    if (head->queue >= Q_UNDER) next_round(credit_cpu(cpu));
    return head;
}

/* Decides what `cpu` runs next, and for how long. Charges the current vCPU, and queues it again
 * unless ratelimit_us lets it run on. Then takes the best vCPU for this pCPU. An idle pCPU may have
 * been kicked for the sake of another vCPU than the one that it takes (`helping`); with balance =
 * full it then looks after those that still wait. */
static struct sched_pick credit_pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc = credit_cpu(cpu);
    struct credit_vcpu *cv = NULL, *next;
    bool full = cp->knob.balance == BALANCE_FULL, helping = false;

    if (!current) {
        helping = cpumask_test(&cp->kicked, cpu);
        cpumask_clear(&cp->kicked, cpu);
    } else {
        cv = credit_vcpu(current);
        burn(p, cv);
        if (sched_runnable(current)) {
            u64 rest = rate_limited(cp, cv, p->now);

            if (!cv->left) boost_vcpu(p, cv, BOOST_SLICE_OVER);
            if (!rest) enqueue(p, cv);
            cv->yielded = false;
            if (rest) return (struct sched_pick){ current, rest };
        }
        cv->ran_until = p->now;
    }
    next = take_best(p, cpu);
    if (cc->queues && full && !cpumask_empty(&p->idlers)) call_for_help(p, cc);
    if (helping && next && full) pass_on(p);
    if (!next) { /* from now on this pCPU idles, so those that wait for it are news */
        cp->news = cpumask_or(&cp->news, &cc->offers);
        return (struct sched_pick){ NULL, SCHED_NEVER };
    }
    if (next != cv) next->picked_at = next->billed = p->now;
    if (!next->left || cp->knob.requeue == REQUEUE_TAIL) next->left = slice_of(p, next);
    if (!cc->ticking) credit_start_tick(p, cpu);
    return (struct sched_pick){ next->vcpu, next->left };
}

/* ---- what happens to vCPUs ---- */

/* v can run again, for the reason `why`. It may be boosted, it is queued, and a pCPU that should
 * run it is kicked. */
static void credit_wake(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) {
    struct credit_vcpu *cv = credit_vcpu(v);
    enum credit_class before = cv->cls;

    if (why != SCHED_UNPARK && (why != SCHED_MIGRATE || credit_pool(p)->knob.boost_on_migrate))
        boost_vcpu(p, cv, BOOST_WAKE);
    if (cv->cls != before) sched_trace(p, v, TRC_BOOST, 1, 0, 0);
    if (why == SCHED_WAKE && cv->cls == CLASS_BOOST) v->boosts++;
    cv->left = 0;
    enqueue(p, cv);
    tickle(p, cv);
}

static void credit_sleep(struct sched_pool *p, struct sched_vcpu *v) { dequeue(p, credit_vcpu(v)); }

static void credit_yield(struct sched_pool *p, struct sched_vcpu *v) {
    credit_vcpu(v)->yielded = credit_pool(p)->knob.yield_hint;
}

/* v was queued before its state was saved. Only from now on can another pCPU take it. */
static void credit_saved(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask idlers;

    if (credit_pool(p)->knob.balance == BALANCE_FULL && idlers_for(p, v, &idlers))
        kick_one(p, &idlers);
}

/* v may use other pCPUs than before. If it waits, one of these may be able to run it now. */
static void credit_affinity(struct sched_pool *p, struct sched_vcpu *v) {
    if (!v->queued) return;
    cpumask_set(&credit_pool(p)->news, v->cpu);
    offer(p, v);
    tickle(p, credit_vcpu(v));
}

/* The hooks above, and those of credit_members.c. */
const struct sched_policy credit_policy = {
    .name = "credit",
    .params = credit_params,
    .presets = credit_presets,
    .preset_size = sizeof(struct credit_knobs),
    .pool_init = credit_pool_init,
    .cpu_add = credit_cpu_add,
    .cpu_remove = credit_cpu_remove,
    .vm_add = credit_vm_add,
    .vcpu_add = credit_vcpu_add,
    .vcpu_remove = credit_vcpu_remove,
    .wake = credit_wake,
    .sleep = credit_sleep,
    .yield = credit_yield,
    .pick = credit_pick,
    .place = credit_place,
    .saved = credit_saved,
    .affinity = credit_affinity,
    .timer = credit_timer,
    .changed = credit_changed,
    .label = credit_label,
    .is_io = credit_is_io,
    .wishes = credit_wishes,
    .view = credit_view,
    .pairs = true,
    .conflict = credit_conflict,
};
