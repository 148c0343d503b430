/* Chooses pCPUs for a pool that does not name them. It may want all of a NUMA node. Or it says how
 * many it wants: at random, or spread over the last-level caches. In that last form the pool gets
 * as large a part of the pCPUs of each cache as of the others, so that its pCPUs do not crowd one
 * cache while another one is free of them. */
#include "lib/choose.h"

/* One CPU left for each one chosen has this score. Scores are whole numbers. */
#define SCORE_UNIT 64u

/* Returns a random member of `left`, and moves *seed on. Chooses by the upper bits of a linear
 * congruential generator (Knuth's MMIX), because the lower bits repeat soon. */
static u32 random_one(const struct cpumask *left, u64 *seed) {
    u32 cpu = cpumask_next(left, 0);

    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    for (u64 skip = (*seed >> 33) % cpumask_weight(left); skip; skip--)
        cpu = cpumask_next(left, cpu + 1);
    return cpu;
}

/* Returns how many members of `m` share that cache. */
static u32 sharing(u32 cache, const struct cpumask *m, u32 (*cache_of)(u32 cpu)) {
    u32 n = 0;

    cpumask_for_each(cpu, m) {
        if (cache_of(cpu) == cache) n++;
    }
    return n;
}

/* Picks from the cache with the highest ratio of CPUs left to CPUs already chosen. */
static u32 next_by_cache(const struct cpumask *left, const struct cpumask *chosen,
                         u32 (*cache_of)(u32 cpu)) {
    u32 best = TAKT_MAX_CPUS, most = 0;

    cpumask_for_each(cpu, left) {
        u32 cache = cache_of(cpu), taken = sharing(cache, chosen, cache_of);
        u32 score = sharing(cache, left, cache_of) * SCORE_UNIT / (taken + 1);

        if (score >= most) best = cpu;
        most = MAX(most, score);
    }
    return best;
}

/* Returns the members of `from` that are in that node. */
static struct cpumask cpus_of_node(u32 node, const struct cpumask *from, u32 (*node_of)(u32 cpu)) {
    struct cpumask m = { 0 };

    cpumask_for_each(cpu, from) {
        if (node_of(cpu) == node) cpumask_set(&m, cpu);
    }
    return m;
}

/* Returns the CPUs of `from` for which the choice `c` asks. If it asks for a number, and there are
 * fewer, it gets all. */
struct cpumask cpus_choose(const struct cpu_choice *c, const struct cpumask *from, u64 seed,
                           const struct cpu_places *places) {
    struct cpumask left = *from, chosen = { 0 };

    if (c->how == CHOOSE_NODE) return cpus_of_node(c->node, from, places->node_of);
    for (u32 n = 0; n < c->nr && !cpumask_empty(&left); n++) {
        u32 cpu;

        if (c->how == CHOOSE_RANDOM)
            cpu = random_one(&left, &seed);
        else
            cpu = next_by_cache(&left, &chosen, places->cache_of);
        cpumask_set(&chosen, cpu);
        cpumask_clear(&left, cpu);
    }
    return chosen;
}
