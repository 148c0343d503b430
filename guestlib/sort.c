/* Sorts the samples of a measurement, in place. Shell's sort needs no further memory and no
 * recursion, and is fast enough for some thousands of numbers. */
#include <guest/sort.h>

/* Shell's sort with halved gaps, for numbers of either size: `at` reads number i, and `put` writes
 * it. */
static void shell_sort(void *a, u64 n, u64 (*at)(const void *a, u64 i),
                       void (*put)(void *a, u64 i, u64 v)) {
    for (u64 gap = n / 2; gap; gap /= 2)
        for (u64 i = gap; i < n; i++) {
            u64 v = at(a, i), j = i;

            for (; j >= gap && at(a, j - gap) > v; j -= gap) put(a, j, at(a, j - gap));
            put(a, j, v);
        }
}

static u64 at_u32(const void *a, u64 i) { return ((const u32 *)a)[i]; }

static void put_u32(void *a, u64 i, u64 v) { ((u32 *)a)[i] = (u32)v; }

static u64 at_u64(const void *a, u64 i) { return ((const u64 *)a)[i]; }

static void put_u64(void *a, u64 i, u64 v) { ((u64 *)a)[i] = v; }

void sort_u32(u32 *a, u64 n) { shell_sort(a, n, at_u32, put_u32); }

void sort_u64(u64 *a, u64 n) { shell_sort(a, n, at_u64, put_u64); }
