/* off:        nobody is boosted.
 * stock:      Xen's. A wake lifts UNDER, and nothing else, to BOOST; a tick while running ends it.
 * aggressive: every wake boosts, also one that has overdrawn its credit, and it computes for a
 *             whole slice before that ends: I/O first at the cost of fairness (vSlicer, figure 3).
 * One with levels that outlive a sleep belongs here too. */
#include "sched/boost.h"

static enum credit_class keep(enum credit_class c) { return c; }

static enum credit_class by_credit(enum credit_class c, enum credit_class by_credit) { return by_credit; }

static enum credit_class keep_any(enum credit_class c, enum credit_class by_credit) { return c; }

static enum credit_class lift_under(enum credit_class c) { return c == CLASS_UNDER ? CLASS_BOOST : c; }

static enum credit_class end_boost(enum credit_class c) { return c == CLASS_BOOST ? CLASS_UNDER : c; }

static enum credit_class lift_all(enum credit_class c) { return CLASS_BOOST; }

static enum credit_class keep_boost(enum credit_class c, enum credit_class by_credit) {
    return c == CLASS_BOOST ? c : by_credit;
}

const struct boost_policy boost_policies[] = {
    [BOOST_OFF] = { "off", keep, keep, by_credit, keep_any },
    [BOOST_STOCK] = { "stock", lift_under, end_boost, by_credit, keep_any },
    [BOOST_AGGRESSIVE] = { "aggressive", lift_all, keep, keep_boost, by_credit },
};

const char *const boost_names[] = { "off", "stock", "aggressive", NULL };
