/* A frame allocator for tests of hv/mm. It takes the first place that fits in 64 MiB, can be
 * told to fail, and counts what is in use. It replaces hv/mm/frame.c in the program that
 * includes it. */
#ifndef FRAME_MODEL_H
#define FRAME_MODEL_H

#include <stdlib.h>
#include <string.h>
#include "mm/frame.h"

#define MODEL_FRAMES 16384u

u64 directmap_base;
static u8 *model_arena;
static bool model_used[MODEL_FRAMES];
static unsigned model_in_use;
static unsigned model_fail_after = ~0u; /* allocations that still succeed */
static void (*model_on_free)(hpa_t pa, unsigned order);

static void model_setup(void) {
    if (!model_arena) model_arena = aligned_alloc(BIT(21), MODEL_FRAMES * PAGE_SIZE);
    directmap_base = (u64)model_arena;
    model_fail_after = ~0u;
}

static bool model_is_free(unsigned at, unsigned n) {
    for (unsigned i = at; i < at + n; i++)
        if (model_used[i]) return false;
    return true;
}

/* Allocates n frames below `limit`, aligned to 2^order frames. */
static hpa_t model_alloc(unsigned n, unsigned order, hpa_t limit) {
    if (model_fail_after == 0) return HPA_NONE;
    model_fail_after -= model_fail_after != ~0u;
    for (unsigned at = 0; at + n <= MIN(MODEL_FRAMES, limit / PAGE_SIZE); at += 1u << order)
        if (model_is_free(at, n)) {
            memset(model_used + at, 1, n);
            memset(model_arena + at * PAGE_SIZE, 0xa5, n * PAGE_SIZE);
            model_in_use += n;
            return at * PAGE_SIZE;
        }
    return HPA_NONE;
}

/* Frees n frames, all of which are allocated. */
static void model_free(hpa_t pa, unsigned n) {
    unsigned at = (unsigned)(pa / PAGE_SIZE);

    if (at + n > MODEL_FRAMES) abort();
    for (unsigned i = at; i < at + n; i++)
        if (!model_used[i]) abort();
    memset(model_used + at, 0, n);
    memset(model_arena + pa, 0x5a, n * PAGE_SIZE);
    model_in_use -= n;
}

hpa_t frame_alloc_below(unsigned order, hpa_t limit) {
    return model_alloc(1u << order, order, limit);
}

hpa_t frame_alloc_near(unsigned order, hpa_t limit, u32 node) {
    return frame_alloc_below(order, limit);
}

hpa_t frame_alloc(unsigned order) { return frame_alloc_below(order, ~0ull); }

hpa_t frame_alloc_zeroed(unsigned order) {
    hpa_t pa = frame_alloc(order);

    if (pa != HPA_NONE) memset(hpa_to_va(pa), 0, PAGE_SIZE << order);
    return pa;
}

void frame_free(hpa_t pa, unsigned order) {
    if (pa / PAGE_SIZE % (1u << order)) abort();
    if (model_on_free) model_on_free(pa, order);
    model_free(pa, 1u << order);
}

hpa_t frame_alloc_exact(u64 n) {
    return model_alloc((unsigned)n, frame_order(n * PAGE_SIZE), ~0ull);
}

void frame_free_exact(hpa_t pa, u64 n) { model_free(pa, (unsigned)n); }

#endif
