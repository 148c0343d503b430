/* Divides a whole into integer parts that are in given proportions and sum to it exactly. Shares
 * and weights of IOrchestra are such parts, because neither the hypervisor nor guests have
 * floating point. */
#ifndef DRIVERS_COLLAB_DIVIDE_H
#define DRIVERS_COLLAB_DIVIDE_H

#include <takt/types.h>

#define COLLAB_ONE   BIT(30) /* a share of 1 */
#define COLLAB_PARTS 64u     /* at most */

/* Divides `whole` into parts: part[i] becomes whole * weight[i] / (sum of the weights), rounded
 * down. What rounding leaves goes to the parts that lost most by it, one unit each. If all weights
 * are 0, the parts are equal. `n` is from 1 to COLLAB_PARTS, `whole` at most COLLAB_ONE, each
 * weight at most 2^32. */
void collab_divide(u64 whole, const u64 *weight, u32 n, u64 *part);

#endif
