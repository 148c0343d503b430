/* A buddy allocator. Each range carries, in its own first frames, one byte for every frame: 0, or one more
 * than the order of the free block that begins there. Blocks never reach across ranges.
 *
 * Lock: frame_lock, a leaf. */
#include "mm/frame.h"

#include "lib/list.h"
#include "lib/printf.h"
#include "lib/spinlock.h"
#include "lib/string.h"

#define MAX_RANGES 130 /* a memory map has up to 128, and one may be cut at 4 GiB */
#define ORDERS     (FRAME_ORDER_MAX + 1)

struct range {
    u64 first, end; /* frame numbers, the bytes' own frames included */
    u8 *free;
};

u64 directmap_base;
static struct spinlock frame_lock;
static struct range range[MAX_RANGES];
static u32 nr_ranges;
static struct list free_list[ORDERS]; /* initialised with the first range */
static u64 nr_free, nr_total;

static struct range *range_of(u64 frame) {
    struct range *r = range;

    while (r < range + nr_ranges && (frame < r->first || frame >= r->end)) r++;
    ASSERT(r < range + nr_ranges);
    return r;
}

static struct list *block_at(u64 frame) { return hpa_to_va(frame << PAGE_SHIFT); }

static void block_put(struct range *r, u64 frame, unsigned order) {
    r->free[frame - r->first] = (u8)(order + 1);
    list_add_head(&free_list[order], block_at(frame));
    nr_free += 1ull << order;
}

static void block_take(struct range *r, u64 frame, unsigned order) {
    r->free[frame - r->first] = 0;
    list_del(block_at(frame));
    nr_free -= 1ull << order;
}

static bool is_free(const struct range *r, u64 frame, unsigned order) {
    return frame >= r->first && frame < r->end && r->free[frame - r->first] == order + 1;
}

/* Joins the block with its buddy as often as that is free too. */
void frame_free(hpa_t pa, unsigned order) {
    u64 frame = pa >> PAGE_SHIFT, buddy;
    struct range *r;

    ASSERT(order < ORDERS && (pa & ((PAGE_SIZE << order) - 1)) == 0);
    spin_lock(&frame_lock);
    r = range_of(frame);
    ASSERT(frame + (1ull << order) <= r->end && !r->free[frame - r->first]);
    for (; order < FRAME_ORDER_MAX && is_free(r, buddy = frame ^ (1ull << order), order); order++) {
        block_take(r, buddy, order);
        frame &= buddy;
    }
    block_put(r, frame, order);
    spin_unlock(&frame_lock);
}

void frame_add(hpa_t start, hpa_t end) {
    u64 first = ALIGN_UP(start, PAGE_SIZE) >> PAGE_SHIFT, last = end >> PAGE_SHIFT, own;
    struct range *r = &range[nr_ranges];

    for (unsigned o = 0; o < ORDERS && nr_ranges == 0; o++) list_init(&free_list[o]);
    if (first + 1 >= last) return;
    ASSERT(nr_ranges < MAX_RANGES);
    own = ALIGN_UP(last - first, PAGE_SIZE) >> PAGE_SHIFT;
    *r = (struct range){ first, last, hpa_to_va(first << PAGE_SHIFT) };
    memset(r->free, 0, own << PAGE_SHIFT);
    nr_ranges++;
    nr_total += last - first - own;
    for (u64 f = first + own, o; f < last; f += 1ull << o) {
        for (o = MIN((u64)__builtin_ctzll(f), FRAME_ORDER_MAX); f + (1ull << o) > last;) o--;
        frame_free(f << PAGE_SHIFT, (unsigned)o);
    }
}

/* The smallest block of at least this order whose first part ends at `limit` or before; 0: there is none. */
static u64 find_free(unsigned *order, u64 frames, u64 limit) {
    for (; *order < ORDERS && nr_free; ++*order)
        for (struct list *l = free_list[*order].next; l != &free_list[*order]; l = l->next)
            if ((va_to_hpa(l) >> PAGE_SHIFT) + frames <= limit) return va_to_hpa(l) >> PAGE_SHIFT;
    return 0;
}

hpa_t frame_alloc_below(unsigned order, hpa_t limit) {
    unsigned o = order;
    struct range *r;
    u64 frame;

    spin_lock(&frame_lock);
    frame = find_free(&o, 1ull << order, limit >> PAGE_SHIFT);
    if (frame) {
        r = range_of(frame);
        block_take(r, frame, o);
        while (o-- > order) block_put(r, frame + (1ull << o), o); /* the lower half stays ours */
    }
    spin_unlock(&frame_lock);
    return frame ? frame << PAGE_SHIFT : HPA_NONE;
}

hpa_t frame_alloc(unsigned order) { return frame_alloc_below(order, ~0ull); }

hpa_t frame_alloc_zeroed(unsigned order) {
    hpa_t pa = frame_alloc(order);

    if (pa != HPA_NONE) memset(hpa_to_va(pa), 0, PAGE_SIZE << order);
    return pa;
}

u64 frame_free_count(void) { return nr_free; }

u64 frame_total(void) { return nr_total; }
