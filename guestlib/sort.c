#include <guest/sort.h>

/* Both are Shell's sort, with halved gaps. */

void sort_u32(u32 *a, u64 n) {
    for (u64 gap = n / 2; gap; gap /= 2)
        for (u64 i = gap; i < n; i++)
            for (u64 j = i; j >= gap && a[j - gap] > a[j]; j -= gap) {
                u32 t = a[j];

                a[j] = a[j - gap];
                a[j - gap] = t;
            }
}

void sort_u64(u64 *a, u64 n) {
    for (u64 gap = n / 2; gap; gap /= 2)
        for (u64 i = gap; i < n; i++)
            for (u64 j = i; j >= gap && a[j - gap] > a[j]; j -= gap) {
                u64 t = a[j];

                a[j] = a[j - gap];
                a[j - gap] = t;
            }
}
