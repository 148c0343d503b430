/* Weighted max-min by water-filling: in a group that shares CPUs, everybody whose limit is below the fair
 * share gets the limit; what that leaves is divided among the others, until none is below. One round of one
 * group is a step. */
#include "shell/entitle.h"

static bool overlap(const struct cpumask *a, const struct cpumask *b) {
    struct cpumask both = cpumask_and(a, b);

    return !cpumask_empty(&both);
}

/* The CPUs of everybody who competes with claim `i`, directly or through others. */
static struct cpumask group_of(const struct claim *claims, u32 n, u32 i) {
    struct cpumask g = claims[i].cpus;

    for (u32 k = 0; k < n; k++) {
        struct cpumask more = cpumask_minus(&claims[k].cpus, &g);

        if (cpumask_empty(&more) || !overlap(&g, &claims[k].cpus)) continue;
        g.bits |= more.bits;
        k = ~0u; /* those before may now compete as well */
    }
    return g;
}

bool entitle_step(struct claim *claims, u32 n) {
    struct cpumask g;
    u64 left, weights = 0;
    u32 first = 0;
    bool some = false;

    while (first < n && claims[first].settled) first++;
    if (first == n) return false;
    g = group_of(claims, n, first);
    left = (u64)cpumask_weight(&g) * SHARE_ONE;
    for (u32 i = 0; i < n; i++) {
        if (!overlap(&g, &claims[i].cpus)) continue;
        if (claims[i].settled)
            left -= claims[i].share;
        else
            weights += claims[i].weight;
    }
    if (!weights) { /* an empty set of CPUs */
        claims[first].share = 0;
        claims[first].settled = true;
        return true;
    }
    for (int pass = 0; pass < 2 && !some; pass++) {
        for (u32 i = 0; i < n; i++) {
            struct claim *c = &claims[i];
            u64 fair;

            if (c->settled || !overlap(&g, &c->cpus)) continue;
            fair = left * c->weight / weights;
            if (pass == 0 && c->limit > fair) continue;
            c->share = (u32)(pass ? fair : c->limit);
            c->settled = some = true;
        }
    }
    return true;
}
