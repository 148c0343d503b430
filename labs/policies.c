/* The list of scheduling policies with those of labs/. The simulation always has this list instead
 * of the one in hv/sched/policies.c. An image has it if it was made with LABS=labs/NAME.c. New
 * policies are added at the end, because recordings name a policy by its number. */
#include "sched/policy.h"

extern const struct sched_policy stride_policy, lottery_policy;

const struct sched_policy *const sched_policies[] = {
    &credit_policy, &null_policy, &stride_policy, &lottery_policy, NULL,
};
