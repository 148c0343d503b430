/* A buddy allocator. Each range carries, in its own first frames, one bit for every block of every order: set
 * while that block is on the free list of its order. Blocks never reach across ranges.
 *
 * Lock: frame_lock, a leaf. */
#include "mm/frame.h"

#include "lib/list.h"
#include "lib/printf.h"
#include "lib/spinlock.h"
#include "lib/string.h"

#define MAX_RANGES 128
#define ORDERS     (FRAME_ORDER_MAX + 1)

struct range {
    u64 first, end; /* frame numbers, the bits' own frames included */
    u64 *bits;
    u64 offset[ORDERS]; /* where the bits of an order start */
};

u64 directmap_base;
static struct spinlock frame_lock;
static struct range range[MAX_RANGES];
static u32 nr_ranges;
static struct list free_list[ORDERS];
static u64 nr_free, nr_total;

static struct list *block_at(u64 frame) { return hpa_to_va(frame << PAGE_SHIFT); }

static u64 frame_of(const struct list *l) { return va_to_hpa(l) >> PAGE_SHIFT; }

static struct range *range_of(u64 frame) {
    for (u32 i = 0; i < nr_ranges; i++)
        if (frame >= range[i].first && frame < range[i].end) return &range[i];
    return NULL;
}

static u64 bit_of(const struct range *r, u64 frame, unsigned order) {
    return r->offset[order] + (frame >> order) - (r->first >> order);
}

static bool is_free(const struct range *r, u64 frame, unsigned order) {
    u64 b = bit_of(r, frame, order);

    return r->bits[b / 64] >> (b % 64) & 1;
}

static void flip(struct range *r, u64 frame, unsigned order) {
    u64 b = bit_of(r, frame, order);

    r->bits[b / 64] ^= BIT(b % 64);
}

static void block_put(struct range *r, u64 frame, unsigned order) {
    flip(r, frame, order);
    list_add_head(&free_list[order], block_at(frame));
}

static void block_take(struct range *r, u64 frame, unsigned order) {
    flip(r, frame, order);
    list_del(block_at(frame));
}

/* Frees a block, joining it with its buddy as often as that is free too. */
static void block_free(struct range *r, u64 frame, unsigned order) {
    ASSERT(!is_free(r, frame, order));
    nr_free += 1ull << order;
    for (; order < FRAME_ORDER_MAX; order++) {
        u64 buddy = frame ^ (1ull << order);

        if (buddy < r->first || buddy + (1ull << order) > r->end || !is_free(r, buddy, order)) break;
        block_take(r, buddy, order);
        frame &= ~(1ull << order);
    }
    block_put(r, frame, order);
}

void frame_add(hpa_t start, hpa_t end) {
    u64 first = ALIGN_UP(start, PAGE_SIZE) >> PAGE_SHIFT, last = end >> PAGE_SHIFT, bits = 0, own;
    struct range *r = &range[nr_ranges];

    if (!free_list[0].next)
        for (unsigned o = 0; o < ORDERS; o++) list_init(&free_list[o]);
    if (first >= last || last - first < 2) return;
    if (nr_ranges == MAX_RANGES) {
        log_warn("memory at %lx left out: more than %u ranges", start, MAX_RANGES);
        return;
    }
    for (unsigned o = 0; o < ORDERS; o++) {
        r->offset[o] = bits;
        bits += ((last - first) >> o) + 2;
    }
    own = (bits / 8 + 8 + PAGE_SIZE - 1) >> PAGE_SHIFT;
    if (own >= last - first) return;
    r->first = first;
    r->end = last;
    r->bits = hpa_to_va(first << PAGE_SHIFT);
    memset(r->bits, 0, own << PAGE_SHIFT);
    spin_lock(&frame_lock);
    nr_ranges++;
    nr_total += last - first - own;
    for (u64 f = first + own; f < last;) {
        unsigned o = f ? (unsigned)__builtin_ctzll(f) : FRAME_ORDER_MAX;

        for (o = MIN(o, FRAME_ORDER_MAX); f + (1ull << o) > last; o--)
            ;
        nr_free += 1ull << o;
        block_put(r, f, o);
        f += 1ull << o;
    }
    spin_unlock(&frame_lock);
}

static struct list *find_below(unsigned order, u64 limit) {
    for (struct list *l = free_list[order].next; l != &free_list[order]; l = l->next)
        if (frame_of(l) < limit) return l;
    return NULL;
}

hpa_t frame_alloc_below(unsigned order, hpa_t limit) {
    u64 last = limit >> PAGE_SHIFT, frame = 0;
    struct list *l = NULL;
    unsigned o = order;
    struct range *r;

    if (order > FRAME_ORDER_MAX || !free_list[0].next || last < 1ull << order) return HPA_NONE;
    spin_lock(&frame_lock);
    for (; o <= FRAME_ORDER_MAX && !l; o++) l = find_below(o, last - (1ull << order) + 1);
    if (!l) goto out;
    o--;
    frame = frame_of(l);
    r = range_of(frame);
    block_take(r, frame, o);
    while (o > order) { /* the lower half stays ours */
        o--;
        block_put(r, frame + (1ull << o), o);
    }
    nr_free -= 1ull << order;
out:
    spin_unlock(&frame_lock);
    return l ? frame << PAGE_SHIFT : HPA_NONE;
}

hpa_t frame_alloc(unsigned order) { return frame_alloc_below(order, ~0ull); }

hpa_t frame_alloc_zeroed(unsigned order) {
    hpa_t pa = frame_alloc(order);

    if (pa != HPA_NONE) memset(hpa_to_va(pa), 0, PAGE_SIZE << order);
    return pa;
}

void frame_free(hpa_t pa, unsigned order) {
    u64 frame = pa >> PAGE_SHIFT;
    struct range *r;

    ASSERT(order <= FRAME_ORDER_MAX && (pa & ((PAGE_SIZE << order) - 1)) == 0);
    spin_lock(&frame_lock);
    r = range_of(frame);
    ASSERT(r && frame + (1ull << order) <= r->end);
    block_free(r, frame, order);
    spin_unlock(&frame_lock);
}

u64 frame_free_count(void) { return nr_free; }

u64 frame_total(void) { return nr_total; }
