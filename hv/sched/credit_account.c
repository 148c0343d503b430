/* How the credit engine grants credit: one pass over the active VMs, every accounting period T.
 *
 *   C          = T * pCPUs - what all together have too much (if they overdrew: + what is missing)
 *   fair(VM)   = C * w / W        W: weights of the active VMs (weight_scope = vcpu: times active vCPUs)
 *   peak(VM)   = min(T * active vCPUs + its share of what was overdrawn, cap)
 *
 * A VM gets fair or peak, whichever is less; what it cannot use raises C for those after it. All in ns,
 * rounded up. After a pass the credit of every active vCPU is in [-T, T].
 *
 * Above T a vCPU has not used its share. overflow = inactive (Xen): it leaves the list, keeps half or
 * nothing, and earns no more until it runs again; what it was given is lost to the others, and only
 * overdrafts are made good. overflow = hand_on: it is granted no more than brings it to T, the rest goes
 * to the others, and the sum of the credit of those who are below T or compete is steered to 0 from both
 * sides: a light VM takes nothing from the heavy ones but what it runs, and after a time in which
 * everybody was rich weights count again.
 */
#include "sched/credit.h"

struct pass {
    i64 credit;  /* C: what is still to be divided, as if among all */
    u64 all;     /* T * pCPUs */
    u64 weight;  /* W */
    u64 left;    /* weight of the VMs not yet visited */
    i64 balance; /* the new one */
    bool wanted; /* an earlier VM could have used more */
    /* of the VM whose turn it is */
    u64 given;   /* to it in all */
    u64 level;   /* a vCPU with room for no more than this gets that room, */
    u64 more;    /* the others this */
    u64 park_at; /* a vCPU is parked so far below 0 */
};

static u64 room(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    i64 n = (i64)cp->period - cv->credit;

    return n > 0 ? (u64)n : 0;
}

static u64 peak_of(const struct credit_pool *cp, const struct credit_dom *cd, u64 w, const struct pass *s) {
    u64 peak = 0;

    if (cp->knob.overflow == OVERFLOW_HAND_ON) {
        if (cd->nr_active == 1) return room(cp, list_first(&cd->active, struct credit_vcpu, active));
        list_for_each(cv, &cd->active, struct credit_vcpu, active) {
            peak += room(cp, cv);
        }
        return peak;
    }
    peak = cp->period * cd->nr_active;
    return cp->balance < 0 ? peak + credit_share((u64)-cp->balance, w, s->weight) : peak;
}

/* How much this VM gets. What it cannot use is handed on; a VM with such a surplus moves to the front if
 * it came too late for those before it. */
static void grant(struct credit_pool *cp, struct credit_dom *cd, struct pass *s) {
    u64 w = credit_weight(cp, cd), a = cd->nr_active, peak = peak_of(cp, cd, w, s), fair;

    s->left -= w;
    s->park_at = ~0ull >> 1;
    if (cd->cap) {
        u64 cap = (cd->cap * cp->period + 99) / 100;

        peak = MIN(peak, cap);
        s->park_at = (cap + a - 1) / a;
    }
    fair = credit_share((u64)s->credit, w, s->weight);
    if (cp->knob.overflow == OVERFLOW_HAND_ON && cd->cap && credit_share(s->all, w, s->weight) >= peak)
        fair = MAX(fair, peak); /* steering is not to cut into what the cap leaves */
    s->given = MIN(fair, peak);
    if (fair < peak) {
        s->wanted = true;
        return;
    }
    if (s->left) s->credit += (i64)credit_share(fair - peak, s->weight, s->left);
    if (s->wanted) {
        list_del(&cd->link);
        list_add_head(&cp->active, &cd->link);
    }
}

/* How it is divided among the VM's active vCPUs: equally, but what one has no room for goes to the others. */
static void divide(const struct credit_pool *cp, const struct credit_dom *cd, struct pass *s) {
    u64 n = cd->nr_active, rest = s->given;

    s->level = 0;
    s->more = n == 1 ? rest : (rest + n - 1) / n;
    if (n == 1 || cp->knob.overflow != OVERFLOW_HAND_ON) return;
    s->level = rest / n;
    list_for_each(cv, &cd->active, struct credit_vcpu, active) {
        if (room(cp, cv) > s->level) continue;
        rest -= room(cp, cv);
        n--;
    }
    s->more = n ? (rest + n - 1) / n : 0;
}

static u64 part_of(const struct credit_pool *cp, const struct credit_vcpu *cv, const struct pass *s) {
    if (cp->knob.overflow != OVERFLOW_HAND_ON) return s->more;
    return MIN(room(cp, cv), MAX(s->level, s->more));
}

/* Gives an active vCPU its part and draws the consequences. */
static void settle(struct sched_pool *p, struct credit_vcpu *cv, struct pass *s, u64 now) {
    struct credit_pool *cp = p->priv;
    struct sched_vcpu *v = cv->vcpu;
    i64 limit = (i64)cp->period;
    bool unused = cv->credit >= limit, boosted = cv->cls == CLASS_BOOST;

    cv->credit += (i64)part_of(cp, cv, s);
    if (cv->credit < 0) {
        cv->cls = cp->boost->account(cv->cls, CLASS_OVER);
        if (cv->credit < -(i64)s->park_at && !v->parked) sched_park(p, v, true, now);
        cv->credit = MAX(cv->credit, -limit);
    } else {
        cv->cls = cp->boost->account(cv->cls, CLASS_UNDER);
        if (v->parked) sched_park(p, v, false, now);
        if (cv->credit > limit) {
            credit_deactivate(cp, cv);
            cv->credit = cp->knob.inactive_reset == RESET_HALF ? cv->credit / 2 : 0;
        } else if (unused && !sched_runnable(v)) {
            credit_deactivate(cp, cv);
        }
    }
    if (cp->knob.overflow != OVERFLOW_HAND_ON || cv->credit < limit || (sched_runnable(v) && !boosted))
        s->balance += cv->credit;
}

/* C for this pass. */
static i64 to_divide(const struct credit_pool *cp, i64 all) {
    if (cp->knob.overflow == OVERFLOW_HAND_ON) return MAX(all - cp->balance, 0);
    return all - MIN(cp->balance, 0);
}

void credit_account(struct sched_pool *p, u64 now) {
    struct credit_pool *cp = p->priv;
    struct pass s = { .weight = cp->weight, .left = cp->weight };

    s.all = cp->period * cpumask_weight(&p->cpus);
    s.credit = to_divide(cp, (i64)s.all);
    list_for_each_safe(cd, &cp->active, struct credit_dom, link) {
        grant(cp, cd, &s);
        divide(cp, cd, &s);
        list_for_each_safe(cv, &cd->active, struct credit_vcpu, active) {
            settle(p, cv, &s, now);
        }
    }
    cp->balance = s.balance;
    cp->epoch++;
    sched_trace(NULL, now, TRC_ACCOUNT, p->id, (u32)(s.credit / CREDIT_XEN_UNIT),
                (u32)(s.balance / CREDIT_XEN_UNIT), 0);
}
