/* A bus says which emulated device answers at an address: a VM has one for I/O ports and one for
 * memory. Each range of addresses has a function (bus_fn) that does the access. There are so few
 * ranges that the search is a short walk. Other pCPUs may search while a range is added or removed,
 * so a range counts only while its size is not 0, and the size is written last. */
#include "lib/printf.h"
#include "vdev/bus.h"

/* Adds a device at a range of addresses to a bus of the VM. Takes the place of a range that was
 * removed (its size is 0), or a new one. The size is written last, because another pCPU that
 * searches meanwhile must not call a function that is not complete yet. */
void bus_add(struct bus *b, u64 start, u64 size, bus_fn fn, void *dev) {
    struct bus_range *r = b->range;

    while (r < b->range + b->nr && r->size) r++; /* the place of one that went, or a new one */
    ASSERT(r < b->range + BUS_RANGES);
    *r = (struct bus_range){ start, 0, fn, dev };
    __atomic_store_n(&r->size, size, __ATOMIC_RELEASE);
    if (r == b->range + b->nr) __atomic_store_n(&b->nr, b->nr + 1, __ATOMIC_RELEASE);
}

/* Takes all ranges of a device off the bus. */
void bus_remove(struct bus *b, const void *dev) {
    for (struct bus_range *r = b->range; r < b->range + b->nr; r++)
        if (r->dev == dev) __atomic_store_n(&r->size, 0, __ATOMIC_RELEASE);
}

/* Carries out a guest's access by the device at that address. Returns false if there is none. It
 * searches the ranges from the first one on. An access that begins in a range but goes beyond its
 * end finds no device. */
bool bus_do(const struct bus *b, const struct bus_access *a, u64 *value) {
    const struct bus_range *r = b->range, *end = r + b->nr;

    while (r < end && a->addr - r->start >= r->size) r++;
    if (r == end || a->size > r->size - (a->addr - r->start)) return false;
    if (!a->write) *value = 0;
    r->fn(r->dev, a, value);
    return true;
}
