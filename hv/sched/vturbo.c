/* vTurbo: a VM has a turbo vCPU, for the interrupt half of its I/O, on a core whose slices are a
 * few hundred times shorter, and gets no more CPU time by that (C. Xu et al., USENIX ATC 2013,
 * section 3.1). A turbo pool is a set of such cores; the regular pool is the one whose VMs it
 * serves. This is a part of the policy Credit (credit.c), which grants CPU time by weight. For VMs
 * i of weights w_i that used rd_i of the regular pool and td_i of the turbo pool in the last
 * accounting period:
 *
 *   C^R = sum rd_i,  C^T = sum td_i,  C = C^R + C^T
 *   FS_i   = C w_i / W          what is fair in both pools; W: the weights of the active VMs
 *   FS^T_i = C^T w_i / W^T      what is fair in the turbo pool; W^T: of the VMs that are active
 *                               there
 *   FS^R_i = max(0, FS_i - td_i)   what is fair in the regular pool
 *
 * Each pool is accounted for by itself and divides its credit by FS^T or FS^R. The engine does
 * that if they take the place of the weights; it normalises them (section 4, Algorithm 2, which
 * confuses the two pools; this is how we read it). FS^T is in proportion to w_i, so in the turbo
 * pool the VMs' own weights do. A cap is for both pools together. A VM that used nothing is
 * given what its weight would have got it, so that it can begin. */
#include "sched/credit.h"

/* Returns how long the VM has run in its pool since the last call, in ns. */
static u64 used_by(const struct sched_vm *d) {
    struct credit_vm *cd = credit_vm(d);
    u64 ns = cd->used - cd->used_before;

    cd->used_before = cd->used;
    return ns;
}

/* Copies weight and cap of a VM to its part in the turbo pool. Called as soon as weight or cap
 * change, and not with the next exchange: exchanges happen only while some vCPU runs in the regular
 * pool, and a VM may work on its turbo vCPU alone. */
void vturbo_copy(const struct sched_vm *regular, struct sched_vm *turbo) {
    credit_vm(turbo)->weight = credit_vm(regular)->weight;
    credit_vm(turbo)->cap = credit_vm(regular)->cap;
}

/* Returns a * b / c for times of a period or two and weights, without an overflow; 0 if c is. */
static u64 scaled(u64 a, u64 b, u64 c) {
    if (!c) return 0;
    return a / c * b + a % c * b / c;
}

/* Is one of the VM's vCPUs granted credit, in the regular pool or in the turbo pool? */
static bool is_active_in_a_pool(const struct sched_vm *d) {
    if (credit_vm(d)->nr_active) return true;
    return d->peer && credit_vm(d->peer)->nr_active;
}

/* Divides CPU time between a regular pool and its turbo pool, once an accounting period. First it
 * adds up what each VM has used in both pools. The VM's fair share of that, less what it has used
 * of the turbo pool, is its share of the regular pool. So time on a turbo core is not given on top.
 * A share is at least 1, because 0 means that the VM's own weight counts. */
void vturbo_exchange(struct sched_pool *r) {
    u64 all = 0, weights = 0;

    ASSERT_HELD(&r->lock);
    ASSERT_HELD(&r->turbo->lock);
    list_for_each(d, &r->vms, struct sched_vm, in_pool) {
        struct credit_vm *cd = credit_vm(d);

        cd->turbo_ns = 0;
        if (d->peer) cd->turbo_ns = used_by(d->peer);
        all += used_by(d) + cd->turbo_ns;
        if (is_active_in_a_pool(d)) weights += cd->weight;
    }
    list_for_each(d, &r->vms, struct sched_vm, in_pool) {
        struct credit_vm *cd = credit_vm(d);
        u64 fair = scaled(all, cd->weight, weights);

        cd->share_ns = 0;
        if (all) cd->share_ns = MAX(fair - MIN(fair, cd->turbo_ns), 1);
        if (!d->peer) continue;
        sched_trace(r, NULL, TRC_TURBO, d->id, (u32)(cd->turbo_ns / NS_PER_US), cd->share_ns);
    }
    credit_weights_changed(r);
}
