/* The policies that are built in: one line each. */
#include "sched/policy.h"

const struct sched_policy *const sched_policies[] = {
    &credit_policy,
    &null_policy,
    NULL,
};
