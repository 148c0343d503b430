/* How the credit engine grants credit: one pass over the active VMs, every accounting period T.
 *
 *   C        = T * pCPUs - what all together have too much (if they overdrew: + what is missing)
 *   fair(VM) = C * w / W    W: weights of the active VMs (weight_scope = vcpu: times active vCPUs)
 *   peak(VM) = min(T * active vCPUs + its share of what was overdrawn, cap)
 *
 * A VM gets fair or peak, whichever is less; what it cannot use raises C for those after it. All in ns,
 * rounded up to a ns, or to a whole unit of credit (credit_unit_us). After a pass the credit of every
 * active vCPU is at most T and at least lowest().
 *
 * A vCPU whose credit is above T has not used its share. With overflow = inactive (Xen) it leaves the list,
 * keeps half of its credit or nothing, and earns no more until it runs again; what it was given is lost to
 * the others, and only overdrafts are made good. With overflow = hand_on it is granted no more than brings
 * it to T, and the rest goes to the others. The sum of the credit of those that are below T or compete is
 * steered to 0 from both sides: so a light VM takes nothing from the heavy ones but what it runs, and after
 * a time in which everybody was rich weights count again.
 */
#include "sched/credit.h"

#define FLOOR_PERIODS 4 /* of debt are remembered, see lowest() */

struct pass {
    i64 credit;  /* C: what is still to be divided, as if among all */
    u64 all;     /* the same without steering: T * pCPUs, and what is handed on of that */
    u64 weight;  /* W */
    u64 left;    /* weight of the VMs not yet visited */
    bool wanted; /* an earlier VM could have used more */
};

static u64 room(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    i64 n = (i64)cp->period - cv->credit;

    return n > 0 ? (u64)n : 0;
}

u64 credit_room(const struct credit_pool *cp, const struct credit_dom *cd) {
    u64 sum = 0;

    list_for_each(cv, &cd->active, struct credit_vcpu, active) {
        sum += room(cp, cv);
    }
    return sum;
}

static u64 peak_of(const struct credit_pool *cp, const struct credit_dom *cd, u64 w, const struct pass *s) {
    if (cd->kept) return ~0ull;
    if (cp->knob.overflow != OVERFLOW_HAND_ON)
        return cp->period * cd->nr_active +
               (cp->balance < 0 ? credit_grant(cp, (u64)-cp->balance, w, s->weight) : 0);
    return credit_room(cp, cd);
}

/* What the VM is entitled to by weight, and by what others leave, before the sum of credit is
 * steered. Says whether that is as much as its active vCPUs can run. `s->left` no longer counts
 * this VM. */
static u64 entitlement(const struct credit_pool *cp, struct credit_dom *cd, u64 peak, struct pass *s) {
    u64 full = cp->period * cd->nr_active, most = MIN(peak, full);
    u64 fair = credit_grant(cp, s->all, cd->counted, s->weight);

    cd->saturated = fair >= full;
    if (s->left && fair > most) s->all += credit_grant(cp, fair - most, s->weight, s->left);
    return fair;
}

/* How much this VM gets. What it cannot use is handed on; a VM with such a surplus moves to the front if
 * it came too late for those before it. */
static u64 grant(struct credit_pool *cp, struct credit_dom *cd, struct pass *s) {
    u64 w = cd->counted, peak = peak_of(cp, cd, w, s), fair = credit_grant(cp, (u64)s->credit, w, s->weight);

    s->left -= w;
    if (cd->cap) peak = MIN(peak, credit_cap(cp, cd));
    if (cp->knob.overflow == OVERFLOW_HAND_ON && entitlement(cp, cd, peak, s) >= peak && cd->cap)
        fair = MAX(fair, peak); /* Steering must not take away what the cap allows. */
    if (fair < peak) {
        s->wanted = true;
        return fair;
    }
    if (s->left) s->credit += (i64)credit_grant(cp, fair - peak, s->weight, s->left);
    if (s->wanted) {
        list_del(&cd->link);
        list_add_head(&cp->active, &cd->link);
    }
    return peak;
}

/* What each of the VM's active vCPUs gets of that: equal parts, but what one has no room for goes to the
 * others. */
static u64 divide(const struct credit_pool *cp, const struct credit_dom *cd, u64 given) {
    u64 n = cd->nr_active, level;

    if (n == 1) return given;
    level = given / n;
    if (cp->knob.overflow == OVERFLOW_HAND_ON)
        list_for_each(cv, &cd->active, struct credit_vcpu, active) {
            u64 r = room(cp, cv);

            given -= r <= level ? r : 0;
            n -= r <= level;
        }
    return credit_round_up(cp, n ? (given + n - 1) / n : level);
}

/* May the vCPU run on every pCPU of the pool? Only then does credit, which is granted to the pool
 * as a whole, say who of two vCPUs has run too much. */
static bool roams(const struct sched_pool *p, const struct sched_vcpu *v) {
    struct cpumask forbidden = cpumask_minus(&p->cpus, &v->affinity);

    return cpumask_empty(&forbidden);
}

/* The least credit that a vCPU has after a pass. With overflow = hand_on nothing is forgiven to a
 * vCPU before it owes FLOOR_PERIODS periods, because on several pCPUs one of a small weight often
 * runs while it is OVER. */
static i64 lowest(const struct sched_pool *p, const struct sched_vcpu *v) {
    const struct credit_pool *cp = credit_pool(p);
    bool remember = cp->knob.overflow == OVERFLOW_HAND_ON && roams(p, v);
    i64 first = cp->nr_ls ? -(i64)cp->tslice : 0;

    return first - (i64)cp->period * (remember ? FLOOR_PERIODS : 1);
}

/* Does a vCPU that has a period's credit left compete with others for a pCPU? Then its credit is
 * part of the sum that is steered to 0. If it does not, it would push all the others below 0,
 * where weights do not count: a vCPU that sleeps, and one that is entitled to a whole pCPU, and
 * so keeps this credit although it runs all the time. */
static bool competes(const struct sched_pool *p, const struct sched_vcpu *v) {
    return sched_runnable(v) && !(credit_dom(v->dom)->saturated && roams(p, v));
}

/* Gives an active vCPU its part and draws the consequences; it is parked below `park`. Returns what counts
 * in the balance. */
static i64 settle(struct sched_pool *p, struct credit_vcpu *cv, u64 part, i64 park) {
    struct credit_pool *cp = credit_pool(p);
    struct sched_vcpu *v = cv->vcpu;
    i64 limit = (i64)cp->period, had = cv->credit;
    bool hand_on = cp->knob.overflow == OVERFLOW_HAND_ON, boosted = cv->cls == CLASS_BOOST;

    cv->credit += (i64)part;
    if (hand_on && cv->credit > limit) cv->credit = MAX(had, limit);
    v->grants += cv->credit > had;
    v->granted_ns += (u64)(cv->credit - had);
    cv->cls = boosted ? cp->boost(p, cv, BOOST_CREDIT) : credit_class_of(cp, cv);
    if (cv->credit < 0) {
        if (cv->credit < park && !v->parked) sched_park(p, v, true);
        cv->credit = MAX(cv->credit, lowest(p, v));
        return cv->credit;
    }
    if (v->parked) sched_park(p, v, false);
    if (cv->credit < limit) return cv->credit;
    if (credit_dom(v->dom)->kept) return cv->credit = limit;
    if (cv->credit > limit || (had >= limit && !sched_runnable(v))) credit_set_active(p, cv, false);
    if (cv->credit > limit)
        cv->credit = cp->knob.inactive_reset == RESET_HALF ? (i64)credit_cut_off(cp, (u64)cv->credit / 2) : 0;
    return !hand_on || cv->credit < limit || (!boosted && competes(p, v)) ? cv->credit : 0;
}

/* aca_shorten: the part of a period in which those that take part do not sleep. */
static u64 shortened(const struct credit_pool *cp) {
    u64 all = 0, asleep = 0;

    list_for_each(cd, &cp->active, struct credit_dom, link) {
        list_for_each(cv, &cd->active, struct credit_vcpu, active) {
            all++;
            asleep += cd->kept && !sched_runnable(cv->vcpu);
        }
    }
    return all ? MAX(cp->period * (all - asleep) / all, cp->tick) : cp->period;
}

void credit_account(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);
    i64 all = (i64)(cp->this_period * cpumask_weight(&p->cpus)), balance = 0;
    struct pass s = { .all = (u64)all, .weight = cp->weight, .left = cp->weight };

    s.credit = cp->knob.overflow == OVERFLOW_HAND_ON ? MAX(all - cp->balance, 0) : all - MIN(cp->balance, 0);
    cp->heaviest = 0;
    list_for_each_safe(cd, &cp->active, struct credit_dom, link) {
        cp->heaviest = MAX(cp->heaviest, cd->counted / cd->nr_active);
        cd->given = grant(cp, cd, &s);
    }
    if (cp->knob.share) shared_credit(p);
    list_for_each_safe(cd, &cp->active, struct credit_dom, link) {
        u64 each = divide(cp, cd, cd->given), a = cd->nr_active;
        i64 park = INT64_MIN;

        if (cd->cap) park = -(i64)credit_round_up(cp, (credit_cap(cp, cd) + a - 1) / a);
        list_for_each_safe(cv, &cd->active, struct credit_vcpu, active) {
            balance += settle(p, cv, each, park);
        }
    }
    cp->balance = balance;
    if (cp->knob.aca_shorten) cp->this_period = shortened(cp);
    cp->epoch++;
    sched_trace(p, NULL, TRC_ACCOUNT, p->id, (u32)(s.credit / CREDIT_XEN_UNIT),
                (u32)(balance / CREDIT_XEN_UNIT));
}
