/* off:        nobody is boosted.
 * stock:      Xen's. A wake lifts UNDER, and nothing else, to BOOST; a tick while running ends it.
 * aggressive: every wake boosts, also one that has overdrawn its credit, and it computes for a
 *             whole slice before that ends: I/O first at the cost of fairness (vSlicer, figure 3).
 * One with levels that outlive a sleep belongs here too. */
#include "sched/credit.h"

static enum credit_class by_credit(const struct credit_vcpu *cv) {
    return cv->credit < 0 ? CLASS_OVER : CLASS_UNDER;
}

static enum credit_class off(struct credit_vcpu *cv, enum boost_event event, u64 now) {
    return event == BOOST_CREDIT ? by_credit(cv) : cv->cls;
}

static enum credit_class stock(struct credit_vcpu *cv, enum boost_event event, u64 now) {
    switch (event) {
    case BOOST_CREDIT: return by_credit(cv);
    case BOOST_WAKE: return cv->cls == CLASS_UNDER ? CLASS_BOOST : cv->cls;
    case BOOST_TICK: return cv->cls == CLASS_BOOST ? CLASS_UNDER : cv->cls;
    default: return cv->cls;
    }
}

static enum credit_class aggressive(struct credit_vcpu *cv, enum boost_event event, u64 now) {
    switch (event) {
    case BOOST_WAKE: return CLASS_BOOST;
    case BOOST_CREDIT: return cv->cls == CLASS_BOOST ? CLASS_BOOST : by_credit(cv);
    case BOOST_SLICE_OVER: return by_credit(cv);
    default: return cv->cls;
    }
}

boost_policy *const boost_policies[] = { off, stock, aggressive }; /* as the words of the knob */
