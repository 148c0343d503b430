/* off:          nobody is boosted.
 * stock:        Xen's. A wake lifts UNDER, and nothing else, to BOOST; a tick while running ends it.
 * aggressive:   every wake boosts, also one that has overdrawn its credit, and it computes for a whole
 *               slice before that ends: I/O first at the cost of fairness (vSlicer, figure 3).
 * anticipatory: BOOST has boost_levels levels, and a higher one goes first. A wake raises by one, a tick
 *               while running and an accounting pass lower by one, and so does each boost_hold_us of
 *               sleep: who did I/O often is expected to do so again ("Coexisting scheduling policies",
 *               section 6, which names the idea and leaves the rules open). One level that is held for
 *               ever is stock. */
#include "sched/credit.h"

static enum credit_class by_credit(const struct sched_pool *p, const struct credit_vcpu *cv) {
    return credit_class_of(credit_pool(p), cv);
}

static enum credit_class off(const struct sched_pool *p, struct credit_vcpu *cv, enum boost_event event) {
    return event == BOOST_CREDIT ? by_credit(p, cv) : cv->cls;
}

static enum credit_class stock(const struct sched_pool *p, struct credit_vcpu *cv, enum boost_event event) {
    switch (event) {
    case BOOST_CREDIT: return by_credit(p, cv);
    case BOOST_WAKE: return cv->cls == CLASS_UNDER ? CLASS_BOOST : cv->cls;
    case BOOST_TICK: return cv->cls == CLASS_BOOST ? CLASS_UNDER : cv->cls;
    default: return cv->cls;
    }
}

static enum credit_class aggressive(const struct sched_pool *p, struct credit_vcpu *cv,
                                    enum boost_event event) {
    switch (event) {
    case BOOST_WAKE: return CLASS_BOOST;
    case BOOST_CREDIT: return cv->cls == CLASS_BOOST ? CLASS_BOOST : by_credit(p, cv);
    case BOOST_SLICE_OVER: return by_credit(p, cv);
    default: return cv->cls;
    }
}

static void lower(struct credit_vcpu *cv, u64 by) { cv->level -= (u32)MIN(cv->level, by); }

static enum credit_class anticipatory(const struct sched_pool *p, struct credit_vcpu *cv,
                                      enum boost_event event) {
    const struct credit_knobs *k = &credit_pool(p)->knob;

    switch (event) {
    case BOOST_WAKE:
        if (cv->cls == CLASS_OVER) return CLASS_OVER;
        if (k->boost_hold_us) lower(cv, (p->now - cv->ran_until) / (k->boost_hold_us * NS_PER_US));
        cv->level = MIN(cv->level + 1, k->boost_levels);
        return CLASS_BOOST;
    case BOOST_CREDIT:
        lower(cv, by_credit(p, cv) == CLASS_OVER ? cv->level : 1);
        return cv->level && cv->cls == CLASS_BOOST ? CLASS_BOOST : by_credit(p, cv);
    case BOOST_TICK: lower(cv, 1); return cv->cls == CLASS_BOOST && !cv->level ? CLASS_UNDER : cv->cls;
    default: return cv->cls;
    }
}

boost_policy *const boost_policies[] = { off, stock, aggressive, anticipatory };
