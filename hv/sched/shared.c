/* Shared credit: VMs that compute lend credit to VMs labelled I/O-intensive, as far as they
 * consent ("Workload-aware credit scheduler", section 4.2). Credit is the CPU time that the policy
 * Credit (credit.c) grants each VM for an accounting period. The loan is made right after these
 * grants, C_i, have been computed. For I/O-intensive VMs j and computing VMs i:
 *
 *   need   = sum max(0, C_c V_j - C_j)     C_c: a pCPU's credit of a period; V_j: queues (of
 *                                          virtual functions; else the number of vCPUs)
 *   S_i    = P_i C_i                       what i offers; P_i: share_pct
 *   moved  = min(need, sum S_i)            taken from all in proportion, or from one VM after
 *                                          the other; given in proportion to what each lacks
 *
 * How we read the paper where it leaves something open: no need is below 0, and none is above
 * what a vCPU may hold.
 *
 * Agile credit allocation (ACA, section 4.3): an I/O-intensive VM takes part in the grants also
 * while it sleeps, so that it has credit when it wakes. C is the credit of all pCPUs. With equal
 * weights, and with the numbers of vCPUs that are active, and of those of I/O-intensive VMs that
 * sleep (the inactive ones):
 *
 *   mu = active / (active + inactive I/O)  the active ones share mu C; the rest is kept for the
 *                                          inactive
 *
 * The code needs no division for it: it leaves the vCPUs of a VM that sleeps on the list of active
 * ones, and never lets them hold more than the credit of one period. The shares above follow from
 * that. The parameter aca_shorten also makes the period mu times as long. */
#include "sched/credit.h"

/* Returns how much credit an I/O-intensive VM lacks in this period. Returns 0 for all other VMs,
 * and for one that has enough. */
static u64 need_of(const struct credit_pool *cp, const struct credit_vm *cd) {
    u64 queues = cd->nr_active, want;

    if (cd->queues) queues = cd->queues;
    want = MIN(cp->period * queues, credit_cap(cp, cd));
    if (cp->knob.overflow == OVERFLOW_HAND_ON) want = MIN(want, credit_room(cp, cd));
    if (!cd->io || want <= cd->given) return 0;
    return want - cd->given;
}

/* Returns how much credit a VM that computes lends in this period. */
static u64 offer_of(const struct credit_pool *cp, const struct credit_vm *cd) {
    if (cd->io) return 0;
    return credit_cut_off(cp, cd->given * cd->share_pct / 100);
}

/* Divides `all` into parts in proportion to numbers that come one after the other. Together the
 * parts are exactly `all`: each is the difference between what is due up to its number and what
 * has been given. */
struct split {
    u64 all;
    u64 total; /* the sum of all numbers, in us, so that products fit */
    u64 seen;  /* the sum of those that have come, likewise */
    u64 out;   /* the sum of the parts that have been given */
};

/* Returns the part for the next number, which is `ns`. */
static u64 shared_next_part(const struct credit_pool *cp, struct split *x, u64 ns) {
    u64 before = x->out;

    x->seen += ns / NS_PER_US;
    if (!x->total) return 0;
    x->out = MIN(credit_grant(cp, x->all, x->seen, x->total), x->all);
    return x->out - before;
}

/* Moves credit from VMs that compute to I/O-intensive VMs that lack some. First it sums up what is
 * needed and what is offered. Then it takes the credit from those that offer (a part of each, or
 * all of one VM after the other), and at last it gives out exactly what was taken, in proportion to
 * the needs. So no credit is made or lost. Credit is in nanoseconds of CPU time. Only the sums in
 * `total` are in microseconds, because a product of two of them in nanoseconds would not fit into
 * 64 bits. */
void shared_credit(struct sched_pool *p) {
    const struct credit_pool *cp = credit_pool(p);
    struct split take = { 0 }, give = { 0 };
    u64 need = 0, offer = 0, taken = 0;

    list_for_each(cd, &cp->active, struct credit_vm, link) {
        cd->need = need_of(cp, cd);
        need += cd->need;
        offer += offer_of(cp, cd);
        give.total += cd->need / NS_PER_US;
        take.total += offer_of(cp, cd) / NS_PER_US;
    }
    take.all = MIN(need, offer);
    list_for_each(cd, &cp->active, struct credit_vm, link) {
        u64 offered = offer_of(cp, cd), mine = take.all - taken;

        if (cp->knob.share == SHARE_PRORATA) mine = shared_next_part(cp, &take, offered);
        mine = MIN(mine, offered);
        cd->given -= mine;
        cd->moved = -(i64)mine;
        taken += mine;
    }
    give.all = taken;
    list_for_each(cd, &cp->active, struct credit_vm, link) {
        u64 mine = 0;

        if (cd->need) mine = shared_next_part(cp, &give, cd->need);
        cd->given += mine;
        cd->moved += (i64)mine;
        if (cd->moved)
            sched_trace(p, list_first(&cd->active, struct credit_vcpu, active)->vcpu, TRC_SHARE, 0,
                        0, (u64)cd->moved);
    }
}
