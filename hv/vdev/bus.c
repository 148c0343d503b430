/* Who answers at an address: at most 16 ranges, in order, so the search is a short walk. */
#include <takt/errno.h>
#include "vdev/bus.h"

int bus_add(struct bus *b, u64 start, u64 end, void (*fn)(void *, const struct bus_access *, u64 *),
            void *dev) {
    u32 at = 0;

    if (start >= end) return -EINVAL;
    if (b->nr == BUS_RANGES) return -ENOSPC;
    while (at < b->nr && b->range[at].end <= start) at++;
    if (at < b->nr && b->range[at].start < end) return -EBUSY;
    for (u32 i = b->nr++; i > at; i--) b->range[i] = b->range[i - 1];
    b->range[at] = (struct bus_range){ start, end, fn, dev };
    return 0;
}

void bus_remove(struct bus *b, u64 start) {
    u32 at = 0;

    while (at < b->nr && b->range[at].start != start) at++;
    if (at == b->nr) return;
    for (b->nr--; at < b->nr; at++) b->range[at] = b->range[at + 1];
}

bool bus_do(const struct bus *b, const struct bus_access *a, u64 *value) {
    const struct bus_range *r = b->range, *end = b->range + b->nr;

    while (r < end && r->end <= a->addr) r++;
    if (r == end || a->addr < r->start || a->size > r->end - a->addr) return false;
    if (!a->write) *value = 0;
    r->fn(r->dev, a, value);
    return true;
}
