/* What the configuration file says of pools and parameters, brought to the scheduler. The image and the
 * simulation make their pools here. So does the check on the host before anything boots (tools/cfgdump.c), so
 * that nothing is refused by the image that the check let pass. */
#ifndef HV_SCHED_SETUP_H
#define HV_SCHED_SETUP_H

#include "config.h"
#include "sched/policy.h"

/* Makes pool `i` of the file, without CPUs: its policy, what it is the turbo pool of, preset, parameters.
 * Call it for all pools in their order, after sched_init(). Each problem is reported with its place in the
 * file. Returns 0 with *pool; -EINVAL after a fatal report, with *pool NULL if there is no pool at all. */
int setup_pool(const struct config *c, u32 i, struct sched_pool **pool, config_report report, void *ctx);
/* Can the parameters of all VMs of the file be set in their pools, which have been made? Reports each that
 * cannot. One that the pool's policy does not have is a warning: it is ignored, so that one file can be run
 * under several policies. Returns 0, or -EINVAL after a fatal report. */
int setup_check_vms(const struct config *c, config_report report, void *ctx);

#endif
