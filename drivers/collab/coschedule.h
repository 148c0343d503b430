/* Co-scheduling of VMs and I/O cores (IOrchestra, section 3.3): what the manager decides from the
 * weights that guests publish and from the latencies of the I/O cores. What a guest does with its
 * threads is in place.h. docs/collab.md has the keys. */
#ifndef DRIVERS_COLLAB_COSCHEDULE_H
#define DRIVERS_COLLAB_COSCHEDULE_H

#include "drivers/collab/balance.h"
#include "drivers/collab/share.h"

#define COSCHEDULE_VCPUS  64u        /* of a VM, at most */
#define COSCHEDULE_WEIGHT (1u << 24) /* the largest weight */
#define COSCHEDULE_LEAST  64u        /* no share counts as less than 1/64 of the largest one */

/* Numbers of a key such as `weights`. */
struct coschedule_list {
    u32 nr; /* 0: unknown */
    u32 value[COSCHEDULE_VCPUS];
};

/* Reads decimal numbers that are divided by single spaces: "30 10". Returns false, and leaves *l as
 * it is, if the text is something else, or has a number above COSCHEDULE_WEIGHT or too many. */
bool coschedule_read(struct coschedule_list *l, const char *text, u32 len);

/* Returns the socket of vCPU `vcpu` of `nr_vcpus`, counted from the VM's first one: the vCPUs are
 * divided evenly and in order. */
static inline u32 coschedule_socket(u32 vcpu, u32 nr_vcpus, u32 sockets) {
    return vcpu * sockets / nr_vcpus;
}

/* Computes S_SKT of each of the VM's sockets: part[s] is what falls to socket s of the VM's `share`
 * (in units of 1 / COLLAB_ONE). `w` has W of each vCPU, the weight of its I/O threads. */
void coschedule_parts(u64 share, const struct coschedule_list *w, u32 sockets, u64 *part);

/* Converts `part` into a share for deficit round robin, of which the largest part, `largest`, has
 * 65536. A part of 0 still gets 1024, so that its requests do not wait for ever
 * (drivers/collab/drr.h). */
static inline u32 coschedule_turn(u64 part, u64 largest) {
    u64 share = 65536;

    if (largest) share = part * 65536 / largest;
    return (u32)MAX(share, 65536ull / COSCHEDULE_LEAST);
}

/* The mean latency of an I/O core. */
struct coschedule_latency {
    u64 ended, ns; /* at the last look: requests that had ended, and the sum of their latencies */
    u64 mean;      /* ns; 0: unknown */
    u64 sampled;   /* when there was the last request, ns */
};

/* Brings l->mean up to date. `ended` is how many requests the I/O core has ended so far, and `ns`
 * the sum of their latencies. The mean of those since the last look counts for a quarter, and the
 * mean that was known before for the rest. After a second without requests the mean is unknown. */
void coschedule_look(struct coschedule_latency *l, u64 ended, u64 ns, u64 now);

#endif
