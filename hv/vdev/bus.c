/* Who answers at an address: so few ranges that the search is a short walk. */
#include "lib/printf.h"
#include "vdev/bus.h"

void bus_add(struct bus *b, u64 start, u64 size, bus_fn fn, void *dev) {
    ASSERT(b->nr < BUS_RANGES);
    b->range[b->nr++] = (struct bus_range){ start, size, fn, dev };
}

bool bus_do(const struct bus *b, const struct bus_access *a, u64 *value) {
    const struct bus_range *r = b->range, *end = r + b->nr;

    while (r < end && a->addr - r->start >= r->size) r++;
    if (r == end || a->size > r->size - (a->addr - r->start)) return false;
    if (!a->write) *value = 0;
    r->fn(r->dev, a, value);
    return true;
}
