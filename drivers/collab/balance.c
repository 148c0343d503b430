/* How a VM that spans sockets divides its I/O among their I/O cores (pCPUs that only poll rings).
 * balance.h has the formula and the contracts. All numbers are integers, because guests have no
 * floating point. */
#include "drivers/collab/balance.h"

/* Computes the weights of `n` I/O cores, each in proportion to the inverse of the core's mean
 * latency. They sum to COLLAB_ONE. If a latency is unknown (0), all weights are equal. */
void balance_weights(const u64 *latency_ns, u32 n, u64 *weight) {
    u64 inverse[COLLAB_PARTS] = { 0 }, least = latency_ns[0];

    for (u32 i = 0; i < n; i++) least = MIN(least, latency_ns[i]);
    /* Against the shortest one, so that no inverse is beyond COLLAB_ONE. A latency of more than
     * 16 s would make the product too large; such a core gets the weight of one with 16 s. */
    least = MIN(least, BIT(34) - 1);
    for (u32 i = 0; i < n; i++)
        inverse[i] = least ? (least << 30) / MIN(latency_ns[i], BIT(34) - 1) : 0;
    collab_divide(COLLAB_ONE, inverse, n, weight);
}

/* Returns whether a / b is more than 1.5 times c / d. The products stay below 2^62. */
static bool grown(u64 a, u64 b, u64 c, u64 d) { return 2 * a * d > 3 * b * c; }

/* Returns whether the weights `now` are to be published, if `told` was published `age_ns` ago:
 * after a second, or when the ratio of any two weights has grown by more than half. */
bool balance_due(const u64 *told, const u64 *now, u32 n, u64 age_ns) {
    if (age_ns >= BALANCE_EVERY_NS) return true;
    for (u32 i = 0; i < n; i++)
        for (u32 k = 0; k < n; k++)
            if (grown(now[i], now[k], told[i], told[k])) return true;
    return false;
}
