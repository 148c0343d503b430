/* The scheduling policies that there are, those of labs/ with them; linked in place of the list in
 * hv/sched/pool.c into the simulation, and into an image by make LABS=labs/stride.c. New ones go to the end:
 * recordings tell them by number. */
#include "sched/policy.h"

extern const struct sched_policy stride_policy;

const struct sched_policy *const sched_policies[] = { &credit_policy, &null_policy, &stride_policy, NULL };
