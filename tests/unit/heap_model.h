/* A heap for tests of what allocates: libc's, so that sanitizers see every object; allocations
 * can be made to fail, and what is in use is counted. Stands in for hv/mm in the program that
 * includes it. */
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

hpa_t frame_alloc_zeroed(unsigned order) { return (hpa_t)calloc(1, PAGE_SIZE << order); }

#endif
