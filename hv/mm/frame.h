/* Physical frames: a buddy allocator over the machine's RAM, and a small heap on top of it. */
#ifndef HV_MM_FRAME_H
#define HV_MM_FRAME_H

#include <takt/types.h>

typedef u64 hpa_t; /* host-physical */
typedef u64 gpa_t; /* guest-physical */

#define FRAME_ORDER_2M  9
#define FRAME_ORDER_MAX 18 /* 1 GiB */
#define HPA_NONE        (~0ull)

/* All RAM is mapped at DIRECTMAP + hpa (boot/layout.h). On the host build, tests set
 * directmap_base. */
extern u64 directmap_base;

/* These turn a physical address of RAM into the one by which the hypervisor reads it, and back. */
static inline void *hpa_to_va(hpa_t pa) { return (void *)(directmap_base + pa); }

static inline hpa_t va_to_hpa(const void *va) { return (u64)va - directmap_base; }

/* Gives the memory [start, end) to the allocator, without the parts of pages at its ends. Ranges
 * must not overlap. */
void frame_add(hpa_t start, hpa_t end);
/* Which memory is near which CPUs: [start, end) belongs to `node`. Memory that is in no range
 * belongs to node 0. */
#define FRAME_MAX_NODES       8u
#define FRAME_MAX_NODE_RANGES 32u
struct frame_node {
    hpa_t start, end;
    u32 node;
};
/* Sorts the free frames by node. To be called once, after all frames have been added. Ranges
 * must not overlap; those beyond FRAME_MAX_NODE_RANGES are left out. */
void frame_set_nodes(const struct frame_node *ranges, u32 nr);
/* Says how far node `to` is from node `from`. Without it all other nodes are equally far. Both must
 * be below FRAME_MAX_NODES. Call it before other CPUs allocate. */
void frame_set_distance(u32 from, u32 to, u32 distance);
/* Returns how many frames of 4 KiB are free in that node. */
u64 frame_node_free(u32 node);

/* Returns the smallest order of frames that hold so many bytes. */
static inline unsigned frame_order(u64 bytes) {
    if (bytes <= PAGE_SIZE) return 0;
    return 64 - PAGE_SHIFT - (unsigned)__builtin_clzll(bytes - 1);
}
/* These allocate 2^order frames, aligned to their size, with undefined contents. They return
 * HPA_NONE if there are none, and take frame_lock. */
hpa_t frame_alloc(unsigned order);
/* As frame_alloc(), but all of the frames are below `limit`. */
hpa_t frame_alloc_below(unsigned order, hpa_t limit);
/* As frame_alloc_below(), from node `node` if that has such frames, else from the nearest node that
 * has. */
hpa_t frame_alloc_near(unsigned order, hpa_t limit, u32 node);
hpa_t frame_alloc_zeroed(unsigned order);
/* Takes back what was allocated with the same order. */
void frame_free(hpa_t pa, unsigned order);
/* Allocates `n` frames in a row, with undefined contents. They are aligned as 2^order frames would
 * be that are at least as many. Returns HPA_NONE if there are none, or if `n` is 0. They go back
 * together, by frame_free_exact() with the same `n`. Takes frame_lock. */
hpa_t frame_alloc_exact(u64 n);
void frame_free_exact(hpa_t pa, u64 n);
/* Return how many frames of 4 KiB are free, and how many there are. */
u64 frame_free_count(void);
u64 frame_total(void);

#define HEAP_MOST 65536u /* bytes of an object; who needs more takes frames */
/* Allocates a small object of at most HEAP_MOST bytes, zeroed and aligned to 16 bytes, or to 64 if
 * it has more than 2 KiB. NULL: there is no memory. Takes heap_lock, which is a leaf but for
 * frame_lock. */
void *heap_alloc(size_t size);
/* Frees what heap_alloc() returned, which may be NULL. */
void heap_free(void *p);
/* Returns how many bytes are allocated, for tests that look for leaks. */
u64 heap_in_use(void);

#endif
