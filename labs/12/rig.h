/* The hardware of this lab: a VT-d unit that walks your tables, caches what it finds, and remembers
 * the last fault; and devices that read and write. */
#ifndef LAB12_RIG_H
#define LAB12_RIG_H

#include <takt/errno.h>
#include "../iommu.h"
#include "check.h"
#include "frame_model.h"

#define CACHED 64u

static struct iommu unit;

/* What the unit has cached: pages, and context entries. */
static struct {
    bool valid;
    u16 domain;
    u64 gpa, hpa;
    unsigned rights;
} tlb[CACHED];
static struct {
    bool valid;
    u64 low, high;
} contexts[65536];
static unsigned next_slot;

static struct {
    bool there, write;
    u16 source;
    u64 address;
} fault;

void hw_flush_domain(u16 id) {
    for (unsigned i = 0; i < CACHED; i++)
        if (tlb[i].domain == id) tlb[i].valid = false;
}

void hw_flush_context(u16 source) { contexts[source].valid = false; }

static inline void begin(void) {
    model_setup();
    expect_result("iommu_init", iommu_init(&unit), 0);
}

static inline u64 hw_word(hpa_t pa) {
    u64 word;

    if (pa >= (u64)MODEL_FRAMES * PAGE_SIZE) {
        char text[20];

        snprintf(text, sizeof(text), "%#llx", (unsigned long long)pa);
        differs("an address in a table", "that it is in memory", text);
    }
    memcpy(&word, hpa_to_va(pa), sizeof(word));
    return word;
}

/* Finds the context entry of a device, in the cache or in the tables. Returns whether it has
 * one. */
static inline bool hw_context(u16 source) {
    u64 bus, at;

    if (contexts[source].valid) return true;
    bus = hw_word(unit.root + (source >> 8) * 16u);
    if (!(bus & 1)) return false;
    at = (bus & ~0xfffull) + (source & 0xff) * 16u;
    if (!(hw_word(at) & 1)) return false;
    contexts[source].low = hw_word(at);
    contexts[source].high = hw_word(at + 8);
    contexts[source].valid = true;
    return true;
}

/* Returns where a request of the device goes, or HPA_NONE; then there is a fault. */
static inline hpa_t dma(u16 source, u64 address, unsigned right) {
    unsigned rights = DMA_READ | DMA_WRITE, width;
    u16 domain;
    hpa_t table;

    fault.there = false;
    if (!hw_context(source)) goto blocked;
    width = contexts[source].high & 7;
    domain = (u16)(contexts[source].high >> 8);
    expect("the width of addresses in the context entry", width, 2);
    for (unsigned i = 0; i < CACHED; i++)
        if (tlb[i].valid && tlb[i].domain == domain && tlb[i].gpa == address / PAGE_SIZE) {
            if (!(tlb[i].rights & right)) goto blocked;
            return tlb[i].hpa + address % PAGE_SIZE;
        }
    table = contexts[source].low & ~0xfffull;
    for (unsigned shift = 39; shift >= 12; shift -= 9) {
        u64 e = hw_word(table + (address >> shift & 511) * 8);

        rights &= e;
        if (!(e & 3)) goto blocked;
        table = e & 0x000ffffffffff000ull;
    }
    tlb[next_slot].valid = true;
    tlb[next_slot].domain = domain;
    tlb[next_slot].gpa = address / PAGE_SIZE;
    tlb[next_slot].hpa = table;
    tlb[next_slot].rights = rights;
    next_slot = (next_slot + 1) % CACHED;
    if (rights & right) return table + address % PAGE_SIZE;

blocked:
    fault.there = true;
    fault.source = source;
    fault.address = address;
    fault.write = right == DMA_WRITE;
    return HPA_NONE;
}

/* Checks where a request goes. */
static inline void goes(const char *what, u16 source, u64 address, unsigned right, hpa_t expected) {
    hpa_t came = dma(source, address, right);
    char text[120];

    snprintf(text, sizeof(text), "where it goes when %s", what);
    expect(text, came, expected);
}

#endif
