/* Shared credit: VMs that compute lend credit to VMs labelled I/O-intensive, as far as they consent
 * ("Workload-aware credit scheduler", section 4.2). Right after the grants C_i of an accounting pass, for
 * I/O VMs j and CPU VMs i:
 *
 *   need   = sum max(0, C_c V_j - C_j)     C_c: a pCPU's credit of a period, V_j: queues (VFs; else vCPUs)
 *   S_i    = P_i C_i                       what i offers; P_i: share_pct
 *   moved  = min(need, sum S_i)            taken prorata, or from one after the other; given by shortfall
 *
 * Our reading where the paper leaves it open: no need is below 0, and none is above what a vCPU may hold.
 *
 * ACA (section 4.3): an I/O VM takes part in the grants though it sleeps, so that it has credit when it
 * wakes:
 *
 *   mu = active / (active + inactive I/O)  the active share mu C, the rest is kept for the inactive
 *
 * which is what comes of leaving its vCPUs on the active list, clipped at a period's credit. aca_shorten
 * also makes the period mu times as long.
 */
#include "sched/credit.h"

static u64 need_of(const struct credit_pool *cp, const struct credit_dom *cd) {
    u64 want = cp->period * (cd->queues ? cd->queues : cd->nr_active);

    want = MIN(want, credit_cap(cp, cd));
    if (cp->knob.overflow == OVERFLOW_HAND_ON) want = MIN(want, credit_room(cp, cd));
    return cd->io && want > cd->given ? want - cd->given : 0;
}

static u64 offer_of(const struct credit_pool *cp, const struct credit_dom *cd) {
    return cd->io ? 0 : credit_cut_off(cp, cd->given * cd->share_pct / 100);
}

/* Parts of `all` in proportion, one after the other, which together are exactly `all`. */
struct split {
    u64 all, total, seen, out; /* total, seen: us, so that products fit */
};

static u64 next_part(const struct credit_pool *cp, struct split *x, u64 ns) {
    u64 before = x->out;

    x->seen += ns / NS_PER_US;
    x->out = x->total ? MIN(credit_grant(cp, x->all, x->seen, x->total), x->all) : 0;
    return x->out - before;
}

void shared_credit(struct sched_pool *p) {
    const struct credit_pool *cp = credit_pool(p);
    struct split take = { 0 }, give = { 0 };
    u64 need = 0, offer = 0, taken = 0;

    list_for_each(cd, &cp->active, struct credit_dom, link) {
        cd->need = need_of(cp, cd);
        need += cd->need;
        offer += offer_of(cp, cd);
        give.total += cd->need / NS_PER_US;
        take.total += offer_of(cp, cd) / NS_PER_US;
    }
    take.all = MIN(need, offer);
    list_for_each(cd, &cp->active, struct credit_dom, link) {
        u64 mine =
            cp->knob.share == SHARE_PRORATA ? next_part(cp, &take, offer_of(cp, cd)) : take.all - taken;

        mine = MIN(mine, offer_of(cp, cd));
        cd->given -= mine;
        cd->moved = -(i64)mine;
        taken += mine;
    }
    give.all = taken;
    list_for_each(cd, &cp->active, struct credit_dom, link) {
        u64 mine = cd->need ? next_part(cp, &give, cd->need) : 0;

        cd->given += mine;
        cd->moved += (i64)mine;
        if (cd->moved)
            sched_trace(p, list_first(&cd->active, struct credit_vcpu, active)->vcpu, TRC_SHARE, 0, 0,
                        (u64)cd->moved);
    }
}
