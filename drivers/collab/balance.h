/* How a VM that spans sockets divides its I/O among their I/O cores (IOrchestra, section 3.3): in
 * inverse proportion to the latency that each core has. The formula printed in the paper is
 * garbled; we read weight_i = (1 / L_i) / sum over k of (1 / L_k). */
#ifndef DRIVERS_COLLAB_BALANCE_H
#define DRIVERS_COLLAB_BALANCE_H

#include "drivers/collab/divide.h"

#define BALANCE_EVERY_NS NS_PER_S /* weights are published again after so long */

/* Computes the weights of `n` I/O cores (1 to COLLAB_PARTS) with the mean latencies `latency_ns`.
 * They sum to COLLAB_ONE. If any latency is 0, which means unknown, nothing can be compared and all
 * weights are equal. */
void balance_weights(const u64 *latency_ns, u32 n, u64 *weight);

/* Returns whether the `n` weights `now` are to be published, if `told` was published `age_ns` ago.
 * That is so after a second, or when the ratio of any two weights has grown by more than 50 %. */
bool balance_due(const u64 *told, const u64 *now, u32 n, u64 age_ns);

#endif
