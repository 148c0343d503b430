/* A heap for tests of code that allocates. It is that of libc, so that sanitizers see each
 * object. It can be told to fail, and counts what is in use. It replaces hv/mm in the program
 * that includes it. */
#ifndef HEAP_MODEL_H
#define HEAP_MODEL_H

#include <stdlib.h>
#include "mm/frame.h"

u64 directmap_base;
static unsigned model_objects, model_allocations;
static unsigned model_fail_at; /* the allocation that fails, counted from 1; 0: none */

void *heap_alloc(size_t size) {
    void *p = ++model_allocations == model_fail_at ? NULL : calloc(1, size);

    model_objects += p != NULL;
    return p;
}

void heap_free(void *p) {
    model_objects -= p != NULL;
    free(p);
}

static unsigned model_blocks; /* of frames */
static bool model_no_frames;

hpa_t frame_alloc_zeroed(unsigned order) {
    if (model_no_frames) return HPA_NONE;
    model_blocks++;
    return (hpa_t)calloc(1, PAGE_SIZE << order);
}

void frame_free(hpa_t pa, unsigned order) {
    model_blocks--;
    free((void *)pa);
}

#endif
