/* The boost policies: which class a vCPU (a CPU of a VM) has after a wake, a tick or a change of
 * its credit. In Credit, BOOST goes before UNDER, the class of those that have CPU time left to
 * use, and UNDER before OVER, those that have used too much. A boost lets a vCPU that was woken,
 * usually by I/O, run before others for a short time.
 *
 *   off:          No vCPU is boosted.
 *   stock:        As in Xen: a wake lifts a vCPU from UNDER to BOOST, but not one from OVER. A tick
 *                 that finds the vCPU running ends the boost.
 *   aggressive:   Every wake boosts, also that of a vCPU which has overdrawn its credit. The boost
 *                 lasts until the vCPU has computed for a whole slice. So I/O goes first, at the
 *                 cost of fairness (vSlicer, figure 3).
 *   anticipatory: BOOST has boost_levels levels, and a vCPU of a higher level goes first. A wake
 *                 raises a vCPU by one level. A tick that finds it running, an accounting pass, and
 *                 each boost_hold_us of sleep lower it by one. So a vCPU that often did I/O is
 *                 expected to do so again ("Coexisting scheduling policies", section 6, names the
 *                 idea and leaves the rules open). With one level that is never lost by sleeping,
 *                 this is the same as stock. */
#include "sched/credit.h"

/* Returns the class that a vCPU has by its credit alone. */
static enum credit_class by_credit(const struct sched_pool *p, const struct credit_vcpu *cv) {
    return credit_class_of(credit_pool(p), cv);
}

/* Returns the class of a vCPU after an event, by the rules for `off`. The functions below do the
 * same for the other rules. */
static enum credit_class boost_off(const struct sched_pool *p, struct credit_vcpu *cv,
                                   enum boost_event event) {
    if (event == BOOST_CREDIT) return by_credit(p, cv);
    return cv->cls;
}

/* Returns the class by the rules for `stock`. */
static enum credit_class boost_stock(const struct sched_pool *p, struct credit_vcpu *cv,
                                     enum boost_event event) {
    if (event == BOOST_CREDIT) return by_credit(p, cv);
    if (event == BOOST_WAKE && cv->cls == CLASS_UNDER) return CLASS_BOOST;
    if (event == BOOST_TICK && cv->cls == CLASS_BOOST) return CLASS_UNDER;
    return cv->cls;
}

/* Returns the class by the rules for `aggressive`. */
static enum credit_class boost_aggressive(const struct sched_pool *p, struct credit_vcpu *cv,
                                          enum boost_event event) {
    if (event == BOOST_WAKE) return CLASS_BOOST;
    if (event == BOOST_CREDIT && cv->cls != CLASS_BOOST) return by_credit(p, cv);
    if (event == BOOST_SLICE_OVER) return by_credit(p, cv);
    return cv->cls;
}

/* Lowers the level of a vCPU, but not below 0. */
static void lower_level(struct credit_vcpu *cv, u64 by) { cv->level -= (u32)MIN(cv->level, by); }

/* Returns the class of a vCPU after an event, by the rules for `anticipatory` above. The level,
 * which is kept in cv->level, rises with each wake-up and falls with time and with each tick while
 * the vCPU runs. A vCPU that is in BOOST stays there as long as its level is above 0. */
static enum credit_class boost_anticipatory(const struct sched_pool *p, struct credit_vcpu *cv,
                                            enum boost_event event) {
    const struct credit_knobs *k = &credit_pool(p)->knob;
    enum credit_class unboosted = by_credit(p, cv);

    switch (event) {
    case BOOST_WAKE:
        if (cv->cls == CLASS_OVER) return CLASS_OVER;
        if (k->boost_hold_us)
            lower_level(cv, (p->now - cv->ran_until) / (k->boost_hold_us * NS_PER_US));
        cv->level = MIN(cv->level + 1, k->boost_levels);
        return CLASS_BOOST;
    case BOOST_CREDIT:
        if (unboosted == CLASS_OVER)
            cv->level = 0;
        else
            lower_level(cv, 1);
        if (cv->level && cv->cls == CLASS_BOOST) return CLASS_BOOST;
        return unboosted;
    case BOOST_TICK:
        lower_level(cv, 1);
        if (cv->cls == CLASS_BOOST && !cv->level) return CLASS_UNDER;
        return cv->cls;
    default: return cv->cls;
    }
}

/* The index is the value of the knob `boost`. */
boost_policy *const boost_policies[] = {
    [BOOST_OFF] = boost_off,
    [BOOST_STOCK] = boost_stock,
    [BOOST_AGGRESSIVE] = boost_aggressive,
    [BOOST_ANTICIPATORY] = boost_anticipatory,
};
