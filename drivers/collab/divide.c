/* Divides a whole into integer parts. divide.h has the contract. */
#include "drivers/collab/divide.h"

/* Returns the part that lost most by rounding down; of equals the first. */
static u32 largest(const u64 *left, u32 n) {
    u32 best = 0;

    for (u32 i = 1; i < n; i++)
        if (left[i] > left[best]) best = i;
    return best;
}

/* Divides `whole` into `n` parts in proportion to the weights. The parts sum to `whole` exactly.
 * First every part is rounded down. What is left over goes to those parts that lost most by that,
 * one unit each. */
void collab_divide(u64 whole, const u64 *weight, u32 n, u64 *part) {
    u64 lost[COLLAB_PARTS], sum = 0, rest = whole;

    for (u32 i = 0; i < n; i++) sum += weight[i];
    for (u32 i = 0; i < n; i++) {
        u64 product = whole * (sum ? weight[i] : 1);
        u64 divisor = sum ? sum : n;

        part[i] = product / divisor;
        lost[i] = product % divisor;
        rest -= part[i];
    }
    /* Fewer than n are left, so that each part gets one more at most. */
    for (; rest; rest--) {
        u32 i = largest(lost, n);

        part[i]++;
        lost[i] = 0;
    }
}
