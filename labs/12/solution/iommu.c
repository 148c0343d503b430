/* Tables of a VT-d unit, by which a device reaches the memory of its domain and nothing else.
 *
 *   root table (VT-d 9.1)        an entry for each bus: present, where the context table is
 *   context table (VT-d 9.3)     an entry for each function of the bus: the domain
 *   second level (VT-d 9.8)      four levels of 512 entries, as those of the processor
 *
 * Entries of the first two are of 16 bytes. The unit caches what it has read, also that an entry of
 * the second level is there; so whoever takes something away has to flush it. */
#include <stdio.h>
#include <takt/errno.h>
#include "iommu.h"

#define PRESENT   1ull
#define ADDR_MASK 0x000ffffffffff000ull
#define LEVELS    4

/* The upper half of a context entry: the width of addresses (2 says: 48 bits, four levels), and the
 * domain's number. */
#define CONTEXT_48_BITS   2ull
#define CONTEXT_DOMAIN(n) ((u64)(n) << 8)

/* A root or a context entry. */
struct entry {
    u64 low, high;
};

int iommu_init(struct iommu *u) {
    u->root = frame_alloc_zeroed(0);
    if (u->root == HPA_NONE) return -ENOMEM;
    return 0;
}

int domain_init(struct domain *d, u16 id) {
    *d = (struct domain){ .id = id, .root = frame_alloc_zeroed(0) };
    if (d->root == HPA_NONE) return -ENOMEM;
    return 0;
}

/* Returns the entry of level 1 for `gpa`. Makes the tables on the way if `make` is set; they have
 * all rights, because the rights of a page are those that all of its entries have. Returns NULL if
 * a table is missing, or cannot be made. */
static u64 *second_level(struct domain *d, gpa_t gpa, bool make) {
    u64 *table = hpa_to_va(d->root);

    for (unsigned level = LEVELS; level > 1; level--) {
        u64 *e = &table[gpa >> (PAGE_SHIFT + 9 * (level - 1)) & 511];

        if (!*e) {
            hpa_t pa = HPA_NONE;

            if (make) pa = frame_alloc_zeroed(0);
            if (pa == HPA_NONE) return NULL;
            *e = pa | DMA_READ | DMA_WRITE;
        }
        table = hpa_to_va(*e & ADDR_MASK);
    }
    return &table[gpa >> PAGE_SHIFT & 511];
}

/* An entry that was not in use needs no flush: the unit does not cache that nothing is there. */
int domain_map(struct domain *d, gpa_t gpa, hpa_t hpa, u64 len, unsigned rights) {
    bool stale = false;
    u64 done = 0;

    for (; done < len; done += PAGE_SIZE) {
        u64 *e = second_level(d, gpa + done, true);

        if (!e) break;
        if (*e) stale = true;
        *e = (hpa + done) | rights;
    }
    if (stale) hw_flush_domain(d->id);
    if (done < len) return -ENOMEM;
    return 0;
}

void domain_unmap(struct domain *d, gpa_t gpa, u64 len) {
    for (u64 done = 0; done < len; done += PAGE_SIZE) {
        u64 *e = second_level(d, gpa + done, false);

        if (e) *e = 0;
    }
    hw_flush_domain(d->id);
}

/* Returns the context entry of a device. Makes the table of its bus if `make` is set. Returns NULL
 * if there is none. */
static struct entry *context_of(struct iommu *u, u16 source, bool make) {
    struct entry *bus = (struct entry *)hpa_to_va(u->root) + (source >> 8);

    if (!(bus->low & PRESENT)) {
        hpa_t pa = HPA_NONE;

        if (make) pa = frame_alloc_zeroed(0);
        if (pa == HPA_NONE) return NULL;
        bus->low = pa | PRESENT;
    }
    return (struct entry *)hpa_to_va(bus->low & ADDR_MASK) + (source & 0xff);
}

/* The unit may look at any time, so the half with PRESENT is written last. */
int iommu_attach(struct iommu *u, u16 source, const struct domain *d) {
    struct entry *e = context_of(u, source, true);

    if (!e) return -ENOMEM;
    e->high = CONTEXT_48_BITS | CONTEXT_DOMAIN(d->id);
    __atomic_store_n(&e->low, d->root | PRESENT, __ATOMIC_RELEASE);
    return 0;
}

void iommu_detach(struct iommu *u, u16 source) {
    struct entry *e = context_of(u, source, false);
    u16 id;

    if (!e) return;
    id = (u16)(e->high >> 8);
    __atomic_store_n(&e->low, 0, __ATOMIC_RELEASE);
    hw_flush_context(source);
    hw_flush_domain(id);
}

/* A function is a device of five bits and a function of three. */
void iommu_describe(char *to, size_t size, u16 source, u64 address, bool write) {
    const char *what = "read";

    if (write) what = "write";
    snprintf(to, size, "device %02x:%02x.%x may not %s %#llx", source >> 8, source >> 3 & 31,
             source & 7, what, (unsigned long long)address);
}
