/* Allocates small objects, for structures of the hypervisor. Objects of about the same size (a
 * class) share slabs: a slab is a piece of memory that is cut into objects of one size. A slab of
 * small objects is one frame (4 KiB). A larger object has a slab of its own, of as many frames as
 * it needs. Each slab begins with a header, and every object begins in the first frame of its slab,
 * so the header is found by rounding an address down. Empty slabs go back to frame.c.
 *
 * Lock: heap_lock, a leaf but for frame_lock. */
#include "lib/list.h"
#include "lib/log.h"
#include "lib/spinlock.h"
#include "common/string.h"
#include "mm/frame.h"

#define HEADER 64u /* so large objects, each of which lies behind one, are aligned to 64 bytes */

struct slab {
    struct list link; /* in partial[kind], while an object in it is free */
    u8 kind, frames;
    u16 used;
    void *free; /* the first free object; each holds the address of the next one */
    size_t size;
};

/* From 224 on they are chosen so that 18, 14, 8, 4 and 2 objects and the header fill a frame. Most
 * objects are nodes of the store (hv/store/tree.h), which fit into 224 bytes. */
static const u16 class_size[] = { 32, 64, 128, 224, 288, 496, 1008, 2016 };
#define LARGE ARRAY_SIZE(class_size)

static struct spinlock heap_lock;
static struct list partial[LARGE + 1];
static u64 in_use;

/* Makes a slab, in which all objects are free. Returns NULL if there is no memory. */
static struct slab *slab_new(unsigned kind, size_t size) {
    u64 frames = ALIGN_UP(size + HEADER, PAGE_SIZE) >> PAGE_SHIFT;
    hpa_t pa = frame_alloc_exact(frames);
    struct slab *s;
    char *p;

    ASSERT_HELD(&heap_lock);
    if (pa == HPA_NONE) return NULL;
    s = hpa_to_va(pa);
    *s = (struct slab){ .kind = (u8)kind, .frames = (u8)frames, .size = size };
    p = (char *)s + HEADER;
    do {
        *(void **)p = s->free;
        s->free = p;
        p += size;
    } while (p + size <= (char *)s + PAGE_SIZE);
    list_add_head(&partial[kind], &s->link);
    return s;
}

/* Allocates an object of `size` bytes, filled with zeros. Returns NULL if there is no memory, or if
 * `size` is 0 or above HEAP_MOST. The object comes from a slab (a block of equal objects) that is
 * partly used, if there is one, so that few slabs are in use. Objects that are larger than the
 * largest class have a slab each. */
void *heap_alloc(size_t size) {
    unsigned kind = 0;
    struct slab *s;
    void *p = NULL;

    if (!size || size > HEAP_MOST) return NULL;
    while (kind < LARGE && class_size[kind] < size) kind++;
    spin_lock(&heap_lock);
    if (!partial[kind].next) list_init(&partial[kind]);
    if (!list_empty(&partial[kind]))
        s = list_first(&partial[kind], struct slab, link);
    else if (kind < LARGE)
        s = slab_new(kind, class_size[kind]);
    else
        s = slab_new(kind, size);
    if (s) {
        p = s->free;
        s->free = *(void **)p;
        s->used++;
        if (!s->free) list_del(&s->link);
        in_use += s->size;
    }
    spin_unlock(&heap_lock);
    if (!p) return NULL;
    return memset(p, 0, size);
}

/* Frees what heap_alloc() has returned. A slab that was full goes back to the list of those with
 * free objects. A slab in which nothing is used any more is given back to the frame allocator. */
void heap_free(void *p) {
    struct slab *s = (struct slab *)((u64)p & ~(PAGE_SIZE - 1));

    if (!p) return;
    spin_lock(&heap_lock);
    ASSERT(s->used); /* otherwise it was freed twice, or is no object of this heap */
    in_use -= s->size;
    if (!s->free) list_add_head(&partial[s->kind], &s->link);
    *(void **)p = s->free;
    s->free = p;
    if (--s->used == 0) {
        list_del(&s->link);
        frame_free_exact(va_to_hpa(s), s->frames);
    }
    spin_unlock(&heap_lock);
}

/* Returns how many bytes the objects in use take, each counted with the size of its class. */
u64 heap_in_use(void) { return in_use; }
