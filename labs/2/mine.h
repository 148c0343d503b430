/* What your hypervisor has more than Takt: a CPUID leaf and a hypercall. */
#ifndef TAKT_MINE_H
#define TAKT_MINE_H

#include <takt/abi.h>

/* eax: MINE_SIGN
 * ebx: how many exits this vCPU has made so far, this one not counted
 * ecx: how many vCPUs the VM has
 * edx: 0
 * It is the highest of the leaves from TAKT_CPUID_BASE on. */
#define MINE_CPUID 0x40000005u
#define MINE_SIGN  0x656e696du /* "mine" */

/* (gpa, length <= 4096) -> the sum of the bytes there. The errors are those of other hypercalls
 * that take a buffer: -EINVAL if it is too long, -EFAULT if it is not wholly in RAM. */
#define MINE_HC_SUM 60

#endif
