/* Physical frames: a buddy allocator over the machine's RAM, and a small heap on top of it. */
#ifndef HV_MM_FRAME_H
#define HV_MM_FRAME_H

#include <takt/types.h>

typedef u64 hpa_t; /* host-physical */
typedef u64 gpa_t; /* guest-physical */

#define FRAME_ORDER_2M  9
#define FRAME_ORDER_MAX 18 /* 1 GiB */
#define HPA_NONE        (~0ull)

/* All RAM is mapped at DIRECTMAP + hpa (boot/layout.h). On the host build, tests set directmap_base. */
extern u64 directmap_base;

static inline void *hpa_to_va(hpa_t pa) { return (void *)(directmap_base + pa); }

static inline hpa_t va_to_hpa(const void *va) { return (u64)va - directmap_base; }

/* Gives the allocator [start, end); partial pages at the ends are dropped. Ranges must not overlap. */
void frame_add(hpa_t start, hpa_t end);
/* Which memory is near which CPUs: [start, end) belongs to `node`; what nobody names belongs to node 0. */
#define FRAME_MAX_NODES       8u
#define FRAME_MAX_NODE_RANGES 32u
struct frame_node {
    hpa_t start, end;
    u32 node;
};
/* Called once, when all frames have been added: sorts the free frames by node. Ranges must not overlap;
 * those beyond FRAME_MAX_NODE_RANGES are left out. Takes the allocator's lock. */
void frame_set_nodes(const struct frame_node *ranges, u32 nr);
u64 frame_node_free(u32 node); /* free frames of that node, of 4 KiB */

/* The order of frames that hold so many bytes. */
static inline unsigned frame_order(u64 bytes) {
    return bytes > PAGE_SIZE ? 52 - (unsigned)__builtin_clzll(bytes - 1) : 0;
}
/* 2^order frames, aligned to their size, contents undefined; HPA_NONE if there are none. Takes a lock. */
hpa_t frame_alloc(unsigned order);
hpa_t frame_alloc_below(unsigned order, hpa_t limit); /* all of them below `limit` */
/* The same, of node `node` if that has them, else of another. */
hpa_t frame_alloc_near(unsigned order, hpa_t limit, u32 node);
hpa_t frame_alloc_zeroed(unsigned order);
void frame_free(hpa_t pa, unsigned order);
u64 frame_free_count(void); /* in 4 KiB frames */
u64 frame_total(void);

/* Small objects, zeroed, aligned to 16 bytes; NULL when memory is out. size <= 64 KiB. */
void *heap_alloc(size_t size);
void heap_free(void *p); /* NULL is harmless */
u64 heap_in_use(void);   /* bytes handed out: for leak tests */

#endif
