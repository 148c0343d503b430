/* vTurbo: a VM has a turbo vCPU on a core whose slices are a few hundred times shorter, for the interrupt
 * half of its I/O, and gets no more CPU by it (C. Xu et al., USENIX ATC 2013, section 3.1). For VMs i of
 * weights w_i that used rd_i of the regular pool and td_i of the turbo pool in the last accounting period:
 *
 *   C^R = sum rd_i,  C^T = sum td_i,  C = C^R + C^T
 *   FS_i   = C w_i / W          what is fair in all; W: of the VMs that are active
 *   FS^T_i = C^T w_i / W^T      of the turbo pool; W^T: of the VMs that are active there
 *   FS^R_i = max(0, FS_i - td_i)   of the regular pool
 *
 * Each pool is an accounting group of its own and divides its credit by FS^T and FS^R; the engine does so
 * if they are the weights, and normalises them (section 4, Algorithm 2, which mixes the two up; our
 * reading). FS^T is in proportion to w_i, so the turbo pool's weights are the VMs' own. A cap is of both
 * together. A VM that used nothing is given what its weight would have got it, so that it can start.
 */
#include "sched/credit.h"

static u64 used_by(const struct sched_dom *d) {
    struct credit_dom *cd = credit_dom(d);
    u64 ns = cd->used - cd->used_before;

    cd->used_before = cd->used;
    return ns;
}

/* At once when they change, and not with the exchange: that comes only while somebody runs in the
 * regular pool, and a VM may work on its turbo vCPU alone. */
void vturbo_copy(const struct sched_dom *regular, struct sched_dom *turbo) {
    credit_dom(turbo)->weight = credit_dom(regular)->weight;
    credit_dom(turbo)->cap = credit_dom(regular)->cap;
}

/* a b / c, of times of a period or two and weights. */
static u64 scaled(u64 a, u64 b, u64 c) { return c ? a / c * b + a % c * b / c : 0; }

/* Both pools are locked, and charged up to now. */
void vturbo_exchange(struct sched_pool *r) {
    u64 all = 0, weights = 0;

    list_for_each(d, &r->doms, struct sched_dom, in_pool) {
        struct credit_dom *cd = credit_dom(d);
        u64 ran = used_by(d), turbo = d->peer ? used_by(d->peer) : 0;

        all += ran + turbo;
        cd->turbo_ns = turbo;
        if (cd->nr_active || (d->peer && credit_dom(d->peer)->nr_active)) weights += cd->weight;
    }
    list_for_each(d, &r->doms, struct sched_dom, in_pool) {
        struct credit_dom *cd = credit_dom(d);
        u64 fair = scaled(all, cd->weight, weights);

        cd->share_ns = all ? MAX(fair - MIN(fair, cd->turbo_ns), 1) : 0;
        if (!d->peer) continue;
        sched_trace(r, NULL, TRC_TURBO, d->id, (u32)(cd->turbo_ns / NS_PER_US), cd->share_ns);
    }
    credit_weights_changed(r);
}
