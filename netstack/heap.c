/* The heap of lwIP, in an arena of its own, because lwIP runs in interrupt handlers and must not
 * call the guest's malloc(). Blocks have a power of two of bytes, 64 to 2,048, and each size has a
 * free list. A block that was freed is only used again for its own size: the heap never splits
 * blocks and never joins them, so every call takes the same short time. */
#include <netstack/heap.h>
#include <string.h>
#include "lwip/mem.h"

#define CLASSES 6
#define SMALL   64u

struct block {
    struct block *next; /* in the list of free blocks */
    u32 class;
    u32 pad;
};

static struct {
    u8 *at, *end;
    struct block *free[CLASSES];
    size_t used;
} heap;

void net_heap_init(void *arena, size_t size) {
    memset(&heap, 0, sizeof(heap));
    heap.at = arena;
    heap.end = heap.at + size;
}

/* Returns memory for `size` bytes, or NULL if there is none; it is lwIP's malloc(). Sizes are
 * rounded up to a power of two, a *class*, and each class has a list of free blocks. If that is
 * empty, a new block is cut off the arena. */
void *mem_malloc(mem_size_t size) {
    struct block *b;
    u32 class = 0;

    if (size > (SMALL << (CLASSES - 1)) - sizeof(*b)) return NULL;
    while (size + sizeof(*b) > SMALL << class) class ++;
    b = heap.free[class];
    if (b) {
        heap.free[class] = b->next;
    } else {
        if ((size_t)(heap.end - heap.at) < SMALL << class) return NULL;
        b = (struct block *)heap.at;
        heap.at += SMALL << class;
        b->class = class;
    }
    heap.used += SMALL << class;
    return b + 1;
}

/* lwIP's free(): puts the block into the free list of its size. */
void mem_free(void *p) {
    struct block *b = p;

    if (!p) return;
    b--;
    heap.used -= SMALL << b->class;
    b->next = heap.free[b->class];
    heap.free[b->class] = b;
}

/* lwIP wants to give back the end of a block. The end stays with the block, because all blocks of
 * one class have the same size. */
void *mem_trim(void *p, mem_size_t size) { return p; }

/* lwip_init() calls it. There is nothing left to do, because net_heap_init() was called before. */
void mem_init(void) {}

size_t net_heap_used(void) { return heap.used; }
