/* Small objects in slabs of one frame, by size class; larger ones in frames of their own. Either way a header
 * begins the first frame, and the object lies in that frame, so its header is found by rounding down. Empty
 * slabs go back to the frames.
 *
 * Lock: heap_lock, a leaf but for frame_lock. */
#include "lib/list.h"
#include "lib/printf.h"
#include "lib/spinlock.h"
#include "lib/string.h"
#include "mm/frame.h"

#define HEAP_MAGIC 0x7a6b7374u
#define HEADER     64u
#define LARGE      0xffu

struct slab {
    struct list link; /* in partial[class], while something is free in it */
    u32 magic;
    u8 class; /* or LARGE */
    u8 order; /* of a large one */
    u16 used;
    void *free; /* chain through the first word of free objects */
    size_t size;
};

/* The last ones fill a frame with four, two and one object beside the header. */
static const u16 class_size[] = { 32, 64, 128, 256, 496, 1008, 2016 };
#define CLASSES ARRAY_SIZE(class_size)

static struct spinlock heap_lock;
static struct list partial[CLASSES];
static u64 in_use;

static struct slab *slab_new(unsigned class) {
    hpa_t pa = frame_alloc(0);
    struct slab *s;
    char *p;

    if (pa == HPA_NONE) return NULL;
    s = hpa_to_va(pa);
    *s = (struct slab){ .magic = HEAP_MAGIC, .class = (u8) class, .size = class_size[class] };
    for (p = (char *)s + HEADER; p + s->size <= (char *)s + PAGE_SIZE; p += s->size) {
        *(void **)p = s->free;
        s->free = p;
    }
    list_add_head(&partial[class], &s->link);
    return s;
}

static void *small_alloc(unsigned class) {
    struct slab *s;
    void *p;

    if (!partial[class].next) list_init(&partial[class]);
    s = list_empty(&partial[class]) ? slab_new(class) : list_first(&partial[class], struct slab, link);
    if (!s) return NULL;
    p = s->free;
    s->free = *(void **)p;
    s->used++;
    if (!s->free) list_del(&s->link);
    in_use += s->size;
    return p;
}

static void *large_alloc(size_t size) {
    unsigned order = 0;
    struct slab *s;
    hpa_t pa;

    while (PAGE_SIZE << order < size + HEADER) order++;
    pa = frame_alloc(order);
    if (pa == HPA_NONE) return NULL;
    s = hpa_to_va(pa);
    *s = (struct slab){ .magic = HEAP_MAGIC, .class = LARGE, .order = (u8)order, .size = size };
    in_use += size;
    return (char *)s + HEADER;
}

void *heap_alloc(size_t size) {
    unsigned class = 0;
    void *p;

    if (!size || size > 65536) return NULL;
    while (class < CLASSES && class_size[class] < size) class ++;
    spin_lock(&heap_lock);
    p = class < CLASSES ? small_alloc(class) : large_alloc(size);
    spin_unlock(&heap_lock);
    return p ? memset(p, 0, size) : NULL;
}

void heap_free(void *p) {
    struct slab *s = (struct slab *)((u64)p & ~(PAGE_SIZE - 1));

    if (!p) return;
    spin_lock(&heap_lock);
    ASSERT(s->magic == HEAP_MAGIC);
    in_use -= s->size;
    if (s->class == LARGE) {
        s->magic = 0;
        frame_free(va_to_hpa(s), s->order);
        goto out;
    }
    if (!s->free) list_add_head(&partial[s->class], &s->link);
    *(void **)p = s->free;
    s->free = p;
    if (--s->used == 0) {
        list_del(&s->link);
        s->magic = 0;
        frame_free(va_to_hpa(s), 0);
    }
out:
    spin_unlock(&heap_lock);
}

u64 heap_in_use(void) { return in_use; }
