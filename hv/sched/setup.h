/* Brings what the configuration file says of pools and parameters to the scheduler. The image
 * and the simulation make their pools here. So does the check on the host that runs before
 * anything boots (tools/cfgdump.c): it cannot let a setting pass that the image would then
 * refuse. */
#ifndef HV_SCHED_SETUP_H
#define HV_SCHED_SETUP_H

#include "config.h"
#include "sched/policy.h"

/* Makes pool `i` of the file, without pCPUs: its policy, the pool that it is the turbo pool of,
 * its preset and its parameters. To be called for all pools in their order, after sched_init().
 * Each problem is reported with its place in the file. Returns 0, or -EINVAL after a fatal
 * report. *pool is the pool, NULL if not even that could be made. */
int setup_pool(const struct config *c, u32 i, struct sched_pool **pool, config_report report,
               void *ctx);
/* Checks whether the parameters of all VMs of the file can be set in their pools, which have
 * been made, and reports each that cannot. A parameter that the pool's policy does not have is
 * only a warning and is then ignored, so that one file can be run under several policies.
 * Returns 0, or -EINVAL after a fatal report. */
int setup_check_vms(const struct config *c, config_report report, void *ctx);

#endif
