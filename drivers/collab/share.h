/* The share of a VM's I/O that belongs to each socket (IOrchestra, section 3.3):
 *
 *   S_SKT = (weight of the VM's processes on that socket / weight of all of them) * S_i
 *
 * S_i is the VM's own share; those of all VMs sum to 1. A guest publishes W(vCPU), the sum of the
 * weights of its threads on each vCPU, and the manager knows which socket each vCPU is on. */
#ifndef DRIVERS_COLLAB_SHARE_H
#define DRIVERS_COLLAB_SHARE_H

#include "drivers/collab/divide.h"

/* Divides the VM's share `of` (at most COLLAB_ONE) among `nr_sockets`: share[s] is in the same
 * unit, and all of them sum to `of`. weight[k] is W of vCPU k, at most 2^24, of which 256 are the
 * most, and socket[k] its socket. A VM without any weights has equal shares on all sockets. */
static inline void share_by_socket(u64 of, const u32 *weight, const u32 *socket, u32 nr_vcpus,
                                   u32 nr_sockets, u64 *share) {
    u64 on_socket[COLLAB_PARTS] = { 0 };

    for (u32 k = 0; k < nr_vcpus; k++) on_socket[socket[k]] += weight[k];
    collab_divide(of, on_socket, nr_sockets, share);
}

#endif
