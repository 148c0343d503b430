/* The list of policies that this simulation has: Takt's own two, and yours. */
#include "sched/policy.h"

extern const struct sched_policy simple_policy;

const struct sched_policy *const sched_policies[] = {
    &credit_policy,
    &null_policy,
    &simple_policy,
    NULL,
};
