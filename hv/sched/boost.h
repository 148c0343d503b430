/* What a wake-up earns: a small policy of its own beside the credit engine. The classes of the engine, best
 * first; a vCPU's class by credit is UNDER or OVER. */
#ifndef HV_SCHED_BOOST_H
#define HV_SCHED_BOOST_H

#include <takt/types.h>

enum credit_class { CLASS_BOOST, CLASS_UNDER, CLASS_OVER, CLASS_NR };

struct boost_policy {
    const char *name;
    enum credit_class (*wake)(enum credit_class c); /* woken, unpaused */
    enum credit_class (*tick)(enum credit_class c); /* found running by a tick, before it is charged */
    /* its credit was looked at; it ran for a whole slice */
    enum credit_class (*account)(enum credit_class c, enum credit_class by_credit);
    enum credit_class (*slice_over)(enum credit_class c, enum credit_class by_credit);
};

extern const struct boost_policy boost_policies[]; /* in the order of boost_names */
extern const char *const boost_names[];            /* NULL at the end */
enum { BOOST_OFF, BOOST_STOCK, BOOST_AGGRESSIVE };

#endif
