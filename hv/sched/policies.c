/* The list of policies. It is weak, because labs/policies.c has a longer list that takes its place
 * where it is linked. It is a file of its own, because a compiler that saw this list beside the
 * code that reads it could take it for the one that is used (clang does). */
#include "sched/policy.h"

const struct sched_policy *const sched_policies[]
    __attribute__((weak)) = { &credit_policy, &null_policy, NULL };
