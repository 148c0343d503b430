/* How the credit engine grants credit, the CPU time that a vCPU may use: in one pass over the
 * active VMs, those with vCPUs that take part in this, every accounting period T.
 *
 *   C        = T * pCPUs - what all vCPUs together have too much (or + what they have overdrawn)
 *   fair(VM) = C * w / W    W: the weights of the active VMs (weight_scope = vcpu: times active
 *                           vCPUs)
 *   peak(VM) = min(T * active vCPUs + its share of what was overdrawn, cap)
 *
 * A VM gets fair or peak, whichever is less. What it cannot use raises C for the VMs after it.
 * All is in ns, rounded up to a ns or to a whole unit of credit (credit_unit_us). After a pass
 * the credit of every active vCPU is at most T and at least lowest_credit().
 *
 * A vCPU whose credit is above T has not used its share. The knob `overflow` says what becomes
 * of it:
 *
 *   inactive (Xen)  The vCPU leaves the active list and keeps half of its credit or nothing. It
 *                   earns no more until it runs again. What it was given is lost to the others;
 *                   only overdrafts are made good.
 *   hand_on         It is granted no more than brings it to T, and the rest goes to the others.
 *                   The sum of the credit of those vCPUs that are below T, or that compete, is
 *                   steered to 0 from both sides. So a light VM takes from the heavy ones only
 *                   what it runs, and after a time in which all had plenty, weights count again. */
#include "sched/credit.h"

#define FLOOR_PERIODS 4 /* a vCPU is not forgiven the credit that it owes for so many periods */

struct pass {
    i64 credit;  /* C, which grows by what VMs cannot use */
    u64 all;     /* the same without steering: T * pCPUs, and what VMs cannot use of that */
    u64 weight;  /* W */
    u64 left;    /* the weights of the VMs that have not been visited yet */
    bool wanted; /* a VM that was visited could have used more */
};

/* Returns how much more credit a vCPU can hold. A vCPU that holds credit for a whole period can run
 * all the time until the next pass, so more would be of no use to it. */
static u64 room_of(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    i64 n = (i64)cp->period - cv->credit;

    if (n < 0) return 0;
    return (u64)n;
}

/* Returns how much more credit the active vCPUs of a VM can hold. */
u64 credit_room(const struct credit_pool *cp, const struct credit_vm *cd) {
    u64 sum = 0;

    list_for_each(cv, &cd->active, struct credit_vcpu, active) {
        sum += room_of(cp, cv);
    }
    return sum;
}

/* Returns the most that a VM of weight w can use, apart from its cap. */
static u64 peak_of(const struct credit_pool *cp, const struct credit_vm *cd, u64 w,
                   const struct pass *s) {
    u64 peak = cp->period * cd->nr_active;

    if (cd->kept) return ~0ull;
    if (cp->knob.overflow == OVERFLOW_HAND_ON) return credit_room(cp, cd);
    if (cp->balance < 0) peak += credit_grant(cp, (u64)-cp->balance, w, s->weight);
    return peak;
}

/* Returns what the VM is entitled to by its weight and by what others leave, before the sum of
 * credit is steered. Sets cd->saturated if its active vCPUs cannot run for more than that.
 * `s->left` no longer counts this VM. */
static u64 entitlement(const struct credit_pool *cp, struct credit_vm *cd, u64 peak,
                       struct pass *s) {
    u64 full = cp->period * cd->nr_active, most = MIN(peak, full);
    u64 fair = credit_grant(cp, s->all, cd->counted, s->weight);

    cd->saturated = fair >= full;
    if (s->left && fair > most) s->all += credit_grant(cp, fair - most, s->weight, s->left);
    return fair;
}

/* Returns how much this VM gets: its fair share by weight, or the most that it can use if that is
 * less. What it cannot use is left to those after it. If one before it could have used that, it
 * moves to the front of the list, so that the next pass visits it first. */
static u64 grant(struct credit_pool *cp, struct credit_vm *cd, struct pass *s) {
    u64 w = cd->counted, peak = peak_of(cp, cd, w, s),
        fair = credit_grant(cp, (u64)s->credit, w, s->weight);

    s->left -= w;
    if (cd->cap) peak = MIN(peak, credit_cap(cp, cd));
    if (cp->knob.overflow == OVERFLOW_HAND_ON) {
        u64 entitled = entitlement(cp, cd, peak, s);

        /* Steering must not take away what the cap allows. */
        if (cd->cap && entitled >= peak) fair = MAX(fair, peak);
    }
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

/* Returns what each active vCPU of a VM gets of the VM's grant: equal parts. With overflow =
 * hand_on a vCPU that has no room for its part only takes what it has room for, so the others'
 * parts are larger. This is done once, not until nothing changes, so a part may still be too large;
 * add_credit() cuts it off. */
static u64 divide(const struct credit_pool *cp, const struct credit_vm *cd, u64 given) {
    u64 n = cd->nr_active, level;

    if (n <= 1) return given;
    level = given / n;
    if (cp->knob.overflow == OVERFLOW_HAND_ON)
        list_for_each(cv, &cd->active, struct credit_vcpu, active) {
            u64 room = room_of(cp, cv);

            if (room <= level) {
                given -= room;
                n--;
            }
        }
    if (n) level = (given + n - 1) / n;
    return credit_round_up(cp, level);
}

/* Returns whether the vCPU may run on every pCPU of the pool. Credit is granted for the pool as a
 * whole. So a comparison of two vCPUs by credit says which one has run too much only if both may
 * run everywhere. */
static bool roams(const struct sched_pool *p, const struct sched_vcpu *v) {
    struct cpumask forbidden = cpumask_minus(&p->cpus, &v->affinity);

    return cpumask_empty(&forbidden);
}

/* Returns the least credit that a vCPU has after a pass; debts beyond that are forgiven. With
 * overflow = hand_on nothing is forgiven to a vCPU before it owes FLOOR_PERIODS periods, because
 * on several pCPUs one of a small weight often runs while it is OVER. The result is
 * never above -period. */
static i64 lowest_credit(const struct sched_pool *p, const struct sched_vcpu *v) {
    const struct credit_pool *cp = credit_pool(p);
    i64 lowest = -(i64)cp->period;

    if (cp->knob.overflow == OVERFLOW_HAND_ON && roams(p, v)) lowest *= FLOOR_PERIODS;
    if (cp->nr_ls) lowest -= (i64)cp->tslice; /* where OVER begins with micro-slices */
    return lowest;
}

/* Returns whether a vCPU that has a period's credit left competes with others for a pCPU. If it
 * does, its credit is part of the sum that is steered to 0. A vCPU that sleeps does not compete.
 * Neither does one that is entitled to a whole pCPU, which keeps this credit although it runs all
 * the time. If the credit of these were part of the sum, it would push all the others below 0,
 * where weights do not count. */
static bool competes(const struct sched_pool *p, const struct sched_vcpu *v) {
    return sched_runnable(v) && !(credit_vm(v->vm)->saturated && roams(p, v));
}

/* Called for a vCPU whose credit is above the limit. The part above the limit is not the vCPU's
 * own. The vCPU leaves the active list, and keeps half of its credit or nothing. It leaves the list
 * also if it was at the limit all the time because it does not run. */
static void overflow(struct sched_pool *p, struct credit_vcpu *cv, i64 had) {
    struct credit_pool *cp = credit_pool(p);
    i64 limit = (i64)cp->period;
    bool above = cv->credit > limit;

    if (above || (had >= limit && !sched_runnable(cv->vcpu))) credit_set_active(p, cv, false);
    if (!above) return;
    if (cp->knob.inactive_reset == RESET_HALF)
        cv->credit = (i64)credit_cut_off(cp, (u64)cv->credit / 2);
    else
        cv->credit = 0;
}

/* Adds a part to the credit of a vCPU. Returns what it had before. */
static i64 add_credit(struct credit_pool *cp, struct credit_vcpu *cv, u64 part) {
    i64 limit = (i64)cp->period, had = cv->credit;
    struct sched_vcpu *v = cv->vcpu;

    cv->credit += (i64)part;
    if (cp->knob.overflow == OVERFLOW_HAND_ON && cv->credit > limit) cv->credit = MAX(had, limit);
    if (cv->credit > had) v->grants++;
    v->granted_ns += (u64)(cv->credit - had);
    return had;
}

/* Gives an active vCPU its part and draws the consequences: its priority follows from its credit.
 * It is parked (it may not run) if it then has less than `park`, until it has no debt any more. If
 * it has a full period's credit, it keeps that in a VM whose accounting is `kept`, or else
 * overflow() decides. Returns how much of its credit counts in the balance, the sum of what all
 * have too much or have overdrawn. */
static i64 settle(struct sched_pool *p, struct credit_vcpu *cv, u64 part, i64 park) {
    struct credit_pool *cp = credit_pool(p);
    struct sched_vcpu *v = cv->vcpu;
    i64 limit = (i64)cp->period, had = add_credit(cp, cv, part);
    bool boosted = cv->cls == CLASS_BOOST;

    if (boosted)
        cv->cls = cp->boost(p, cv, BOOST_CREDIT);
    else
        cv->cls = credit_class_of(cp, cv);
    if (cv->credit < 0) {
        if (cv->credit < park && !v->parked) sched_park(p, v, true);
        if (cv->credit < -limit) cv->credit = MAX(cv->credit, lowest_credit(p, v));
        return cv->credit;
    }
    if (v->parked) sched_park(p, v, false);
    if (cv->credit < limit) return cv->credit;
    if (credit_vm(v->vm)->kept) {
        cv->credit = limit;
        return limit;
    }
    overflow(p, cv, had);
    /* With hand_on, credit at the limit counts only if the vCPU competes (see competes()). One that
     * was boosted has only just been woken, and is treated like one that sleeps. */
    if (cp->knob.overflow != OVERFLOW_HAND_ON || cv->credit < limit) return cv->credit;
    if (!boosted && competes(p, v)) return cv->credit;
    return 0;
}

/* Returns how long the next period is with aca_shorten: the shorter, the more of the vCPUs that
 * are granted credit sleep. */
static u64 shortened(const struct credit_pool *cp) {
    u64 all = 0, asleep = 0;

    list_for_each(cd, &cp->active, struct credit_vm, link) {
        list_for_each(cv, &cd->active, struct credit_vcpu, active) {
            all++;
            if (cd->kept && !sched_runnable(cv->vcpu)) asleep++;
        }
    }
    if (!all) return cp->period;
    return MAX(cp->period * (all - asleep) / all, cp->tick);
}

/* Does one accounting pass: gives each active VM the credit of a period. First all grants are
 * computed, because what one VM cannot use goes to those after it. Then shared credit may move some
 * of them. Only then do the vCPUs get their parts. */
void credit_account(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);
    i64 all = (i64)(cp->this_period * p->nr_cpus), balance = 0;
    struct pass s = { .all = (u64)all, .weight = cp->weight, .left = cp->weight };

    if (cp->knob.overflow == OVERFLOW_HAND_ON)
        s.credit = MAX(all - cp->balance, 0);
    else
        s.credit = all - MIN(cp->balance, 0);
    cp->heaviest = 0;
    list_for_each_safe(cd, &cp->active, struct credit_vm, link) {
        cp->heaviest = MAX(cp->heaviest, cd->counted / cd->nr_active);
        cd->given = grant(cp, cd, &s);
    }
    if (cp->knob.share) shared_credit(p);
    list_for_each_safe(cd, &cp->active, struct credit_vm, link) {
        u64 each = divide(cp, cd, cd->given), a = cd->nr_active;
        i64 park = INT64_MIN;

        /* With a cap, a vCPU that owes more than its part of it must not run for now. */
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
