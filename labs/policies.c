/* The scheduling policies that there are, those of labs/ with them. The simulation always has
 * this list in place of that in hv/sched/pool.c; an image has it if it was made with
 * LABS=labs/NAME.c. New policies go to the end, because recordings name a policy by its number. */
#include "sched/policy.h"

extern const struct sched_policy stride_policy, lottery_policy;

const struct sched_policy *const sched_policies[] = {
    &credit_policy, &null_policy, &stride_policy, &lottery_policy, NULL,
};
