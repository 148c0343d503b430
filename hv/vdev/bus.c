/* Which device answers at an address. There are so few ranges that the search is a short walk. */
#include "lib/printf.h"
#include "vdev/bus.h"

void bus_add(struct bus *b, u64 start, u64 size, bus_fn fn, void *dev) {
    struct bus_range *r = b->range;

    while (r < b->range + b->nr && r->size) r++; /* the place of one that went, or a new one */
    ASSERT(r < b->range + BUS_RANGES);
    *r = (struct bus_range){ start, 0, fn, dev };
    __atomic_store_n(&r->size, size, __ATOMIC_RELEASE);
    if (r == b->range + b->nr) __atomic_store_n(&b->nr, b->nr + 1, __ATOMIC_RELEASE);
}

void bus_remove(struct bus *b, const void *dev) {
    for (struct bus_range *r = b->range; r < b->range + b->nr; r++)
        if (r->dev == dev) __atomic_store_n(&r->size, 0, __ATOMIC_RELEASE);
}

bool bus_do(const struct bus *b, const struct bus_access *a, u64 *value) {
    const struct bus_range *r = b->range, *end = r + b->nr;

    while (r < end && a->addr - r->start >= r->size) r++;
    if (r == end || a->size > r->size - (a->addr - r->start)) return false;
    if (!a->write) *value = 0;
    r->fn(r->dev, a, value);
    return true;
}
