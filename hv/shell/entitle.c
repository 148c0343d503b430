/* Computes which share of the CPUs each vCPU is entitled to, by weighted max-min fairness: nobody
 * gets more than its limit, and what is left over is divided by weight among those that can use it.
 * A "claim" is what one vCPU may ask for: which CPUs, its weight and its limit. Claims that compete
 * for the same CPUs are a group. In a group each claim has a fair share of what is left, by its
 * weight. A claim whose limit is below its fair share gets the limit and is settled. That leaves
 * more to the others, so their fair shares are computed again, until no limit is below a fair
 * share; then each of them gets its fair share. entitle_step() does one such round of one group. */
#include "shell/entitle.h"

/* Do two sets of CPUs have one in common? */
static bool masks_overlap(const struct cpumask *a, const struct cpumask *b) {
    struct cpumask both = cpumask_and(a, b);

    return !cpumask_empty(&both);
}

/* Returns the CPUs of all claims (wishes of vCPUs for CPU time) that compete with claim `i` for the
 * same CPUs, directly or through others. */
static struct cpumask claim_group(const struct claim *claims, u32 n, u32 i) {
    struct cpumask g = claims[i].cpus;

    for (u32 k = 0; k < n; k++) {
        struct cpumask more = cpumask_minus(&claims[k].cpus, &g);

        if (cpumask_empty(&more) || !masks_overlap(&g, &claims[k].cpus)) continue;
        g = cpumask_or(&g, &more);
        k = ~0u; /* start again from claim 0: an earlier claim may compete with the larger set */
    }
    return g;
}

/* Computes a part of the fair shares of CPU time. A claim is what one vCPU may ask for. Returns
 * false when all shares are final. Does one round for the group of the first claim that is not
 * settled. Settles the claims whose limit is not above their fair share. If there is none, settles
 * all others with their fair share. */
bool entitle_step(struct claim *claims, u32 n) {
    struct cpumask g;
    u64 left, weights = 0;
    u32 first = 0;
    bool some_settled = false;

    while (first < n && claims[first].settled) first++;
    if (first == n) return false;
    g = claim_group(claims, n, first);
    left = (u64)cpumask_weight(&g) * SHARE_ONE;
    for (u32 i = 0; i < n; i++) {
        if (!masks_overlap(&g, &claims[i].cpus)) continue;
        if (claims[i].settled)
            left -= claims[i].share;
        else
            weights += claims[i].weight;
    }
    if (!weights) { /* claims[first] may run on no CPU, so that it overlaps with nothing */
        claims[first].share = 0;
        claims[first].settled = true;
        return true;
    }
    for (u32 i = 0; i < n; i++) {
        struct claim *c = &claims[i];
        u64 fair = left * c->weight / weights;

        if (c->settled || !masks_overlap(&g, &c->cpus)) continue;
        if (c->limit > fair) continue;
        c->share = c->limit;
        c->settled = some_settled = true;
    }
    if (some_settled) return true;
    for (u32 i = 0; i < n; i++) {
        struct claim *c = &claims[i];

        if (c->settled || !masks_overlap(&g, &c->cpus)) continue;
        c->share = (u32)(left * c->weight / weights);
        c->settled = true;
    }
    return true;
}
