/* Hands out the machine's memory in blocks of 2^order frames; a frame is a page of 4 KiB. It is a
 * buddy allocator: a free block is split into two halves ("buddies") when a smaller one is needed,
 * and joined with its buddy when both are free. There are free lists for each node: on a machine
 * with several sockets, a node is the memory that is near one of them. Each range of memory begins
 * with one byte for each of its frames: 0, or one more than the order of the free block that begins
 * there. A block never reaches from one range or node into another.
 *
 * Lock: frame_lock, a leaf. */
#include "mm/frame.h"

#include "lib/list.h"
#include "lib/log.h"
#include "lib/spinlock.h"
#include "common/string.h"

#define MAX_RANGES 130 /* a memory map has up to 128, and one may be cut at 4 GiB */
#define ORDERS     (FRAME_ORDER_MAX + 1)

struct range {
    u64 first, end; /* frame numbers, with the frames of the bytes themselves */
    u8 *free;
};

u64 directmap_base;
static struct spinlock frame_lock;
static struct range range[MAX_RANGES];
static u32 nr_ranges;
static struct list free_list[FRAME_MAX_NODES][ORDERS]; /* initialised with the first range */
static u64 nr_free, nr_total, node_free[FRAME_MAX_NODES];

static struct frame_node node[FRAME_MAX_NODE_RANGES]; /* all other memory belongs to node 0 */
static u32 nr_node_ranges;
static u32 distance_of[FRAME_MAX_NODES][FRAME_MAX_NODES]; /* from one node to another */

/* Returns the range that contains a frame. There is one; if not, the caller has passed an address
 * that was never allocated. */
static struct range *range_of(u64 frame) {
    struct range *r = range;

    while (r < range + nr_ranges && (frame < r->first || frame >= r->end)) r++;
    ASSERT(r < range + nr_ranges);
    return r;
}

/* Returns the NUMA node that holds this frame; 0 if no range says which. */
static u32 node_of(u64 frame) {
    for (u32 i = 0; i < nr_node_ranges; i++)
        if (frame >= node[i].start >> PAGE_SHIFT && frame < node[i].end >> PAGE_SHIFT)
            return node[i].node;
    return 0;
}

/* Returns where the links of a free block are: in the block itself, at its beginning. */
static struct list *block_at(u64 frame) { return hpa_to_va(frame << PAGE_SHIFT); }

/* Adds a free block to the lists and to the counts. */
static void block_put(struct range *r, u64 frame, unsigned order) {
    ASSERT_HELD(&frame_lock);
    r->free[frame - r->first] = (u8)(order + 1);
    list_add_head(&free_list[node_of(frame)][order], block_at(frame));
    nr_free += 1ull << order;
    node_free[node_of(frame)] += 1ull << order;
}

/* Removes a free block from the lists and from the counts. */
static void block_take(struct range *r, u64 frame, unsigned order) {
    ASSERT_HELD(&frame_lock);
    r->free[frame - r->first] = 0;
    list_del(block_at(frame));
    nr_free -= 1ull << order;
    node_free[node_of(frame)] -= 1ull << order;
}

/* Is there a free block of exactly this order at `frame`? */
static bool is_free(const struct range *r, u64 frame, unsigned order) {
    return frame >= r->first && frame < r->end && r->free[frame - r->first] == order + 1;
}

/* Returns whether the block's buddy is free, so that the two can become one block. */
static bool joins(const struct range *r, u64 frame, unsigned order) {
    u64 buddy = frame ^ (1ull << order);

    return order < FRAME_ORDER_MAX && is_free(r, buddy, order) && node_of(buddy) == node_of(frame);
}

/* Gives back 2^order frames that were allocated together. The block is joined with its buddy, the
 * result with its own buddy, and so on as long as the buddy is free. So free memory does not stay
 * in small pieces. */
void frame_free(hpa_t pa, unsigned order) {
    u64 frame = pa >> PAGE_SHIFT;
    struct range *r;

    ASSERT(order < ORDERS && (pa & ((PAGE_SIZE << order) - 1)) == 0);
    spin_lock(&frame_lock);
    r = range_of(frame);
    ASSERT(frame + (1ull << order) <= r->end && !r->free[frame - r->first]);
    for (; joins(r, frame, order); order++) {
        u64 buddy = frame ^ (1ull << order);

        block_take(r, buddy, order);
        frame &= buddy;
    }
    block_put(r, frame, order);
    spin_unlock(&frame_lock);
}

/* Frees the frames from `frame` to before `end`, as the largest blocks that their alignment
 * allows. */
static void free_frames(u64 frame, u64 end) {
    for (u64 o; frame < end; frame += 1ull << o) {
        o = MIN((u64)__builtin_ctzll(frame), FRAME_ORDER_MAX); /* a block is aligned to its size */
        while (frame + (1ull << o) > end) o--;
        frame_free(frame << PAGE_SHIFT, (unsigned)o);
    }
}

/* Makes all free lists empty. */
static void lists_init(void) {
    for (unsigned n = 0; n < FRAME_MAX_NODES; n++)
        for (unsigned o = 0; o < ORDERS; o++) list_init(&free_list[n][o]);
}

/* Gives the memory [start, end) to the allocator. The first frames of the range hold one byte for
 * each frame, in which the allocator notes the state of that frame. The other frames are freed as
 * the largest blocks that their alignment allows. */
void frame_add(hpa_t start, hpa_t end) {
    u64 first = ALIGN_UP(start, PAGE_SIZE) >> PAGE_SHIFT, last = end >> PAGE_SHIFT, own;
    struct range *r = &range[nr_ranges];

    if (nr_ranges == 0) lists_init();
    if (first + 1 >= last) return;
    ASSERT(nr_ranges < MAX_RANGES);
    own = ALIGN_UP(last - first, PAGE_SIZE) >> PAGE_SHIFT;
    *r = (struct range){ first, last, hpa_to_va(first << PAGE_SHIFT) };
    memset(r->free, 0, own << PAGE_SHIFT);
    nr_ranges++;
    nr_total += last - first - own;
    free_frames(first + own, last);
}

/* Finds a free block of node `of_node` that has at least order *order and whose first `frames`
 * frames end at `limit` or before it. Takes the smallest order that has one. Returns its first
 * frame, and its order in *order. Returns 0 if there is none. */
static u64 find_free(u32 of_node, unsigned *order, u64 frames, u64 limit) {
    for (; *order < ORDERS && nr_free; ++*order) {
        struct list *head = &free_list[of_node][*order];

        for (struct list *l = head->next; l != head; l = l->next)
            if ((va_to_hpa(l) >> PAGE_SHIFT) + frames <= limit) return va_to_hpa(l) >> PAGE_SHIFT;
    }
    return 0;
}

/* Returns the node that is nearest to `from`, of those whose bit in `tried` is 0; if several are,
 * the one with the lowest number. At least one bit has to be 0. */
static u32 nearest_node(u32 from, u32 tried) {
    u32 best = FRAME_MAX_NODES;

    for (u32 n = 0; n < FRAME_MAX_NODES; n++) {
        if (tried & BIT(n)) continue;
        if (best == FRAME_MAX_NODES || distance_of[from][n] < distance_of[from][best]) best = n;
    }
    return best;
}

/* Finds a free block of node `wanted`, as find_free() does. If that node has no such block, takes
 * one of the nearest node that has: memory that is further away is better than none. */
static u64 find_near(u32 wanted, unsigned *order, u64 frames, u64 limit) {
    u32 n = wanted, tried = 0; /* a bit for each node */
    unsigned o;
    u64 frame;

    for (;;) {
        o = *order;
        frame = find_free(n, &o, frames, limit);
        tried |= BIT(n);
        if (frame || tried == BIT(FRAME_MAX_NODES) - 1) break;
        n = nearest_node(wanted, tried);
    }
    *order = o;
    return frame;
}

/* Allocates 2^order frames below `limit`, of node `node` if possible. Returns the address of the
 * first one, or HPA_NONE. The free block that it takes may be too large; the parts that are not
 * needed are given back. */
hpa_t frame_alloc_near(unsigned order, hpa_t limit, u32 wanted) {
    unsigned o = order;
    struct range *r;
    u64 frame;

    spin_lock(&frame_lock);
    frame = find_near(MIN(wanted, FRAME_MAX_NODES - 1), &o, 1ull << order, limit >> PAGE_SHIFT);
    if (frame) {
        r = range_of(frame);
        block_take(r, frame, o);
        /* As long as the block is too large, its upper half goes back. */
        while (o > order) {
            o--;
            block_put(r, frame + (1ull << o), o);
        }
    }
    spin_unlock(&frame_lock);
    if (!frame) return HPA_NONE;
    return frame << PAGE_SHIFT;
}

/* Allocates 2^order frames below `limit`, of whichever node has them. Returns HPA_NONE if there are
 * none. */
hpa_t frame_alloc_below(unsigned order, hpa_t limit) { return frame_alloc_near(order, limit, 0); }

/* Allocates 2^order frames. Returns the address of the first one, or HPA_NONE. */
hpa_t frame_alloc(unsigned order) { return frame_alloc_below(order, ~0ull); }

/* Allocates 2^order frames and fills them with zeros. Returns HPA_NONE if there are none. */
hpa_t frame_alloc_zeroed(unsigned order) {
    hpa_t pa = frame_alloc(order);

    if (pa != HPA_NONE) memset(hpa_to_va(pa), 0, PAGE_SIZE << order);
    return pa;
}

/* Allocates `n` frames in a row. Takes the smallest block that has so many, and gives back what of
 * it is behind them. Returns HPA_NONE if there is no such block. */
hpa_t frame_alloc_exact(u64 n) {
    unsigned order = frame_order(n << PAGE_SHIFT);
    hpa_t pa = HPA_NONE;
    u64 frame;

    if (n) pa = frame_alloc(order);
    if (pa == HPA_NONE) return HPA_NONE;
    frame = pa >> PAGE_SHIFT;
    free_frames(frame + n, frame + (1ull << order));
    return pa;
}

/* Frees what frame_alloc_exact() has allocated. */
void frame_free_exact(hpa_t pa, u64 n) { free_frames(pa >> PAGE_SHIFT, (pa >> PAGE_SHIFT) + n); }

/* Returns whether the whole block lies in one node. */
static bool in_one_node(u64 frame, unsigned order) {
    u64 end = frame + (1ull << order);

    for (u32 i = 0; i < nr_node_ranges; i++) {
        u64 first = node[i].start >> PAGE_SHIFT, last = node[i].end >> PAGE_SHIFT;

        if (first > frame && first < end) return false;
        if (last > frame && last < end) return false;
    }
    return true;
}

/* Frees a block in parts, each of which lies in one node. */
static void put_by_node(struct range *r, u64 frame, unsigned order) {
    if (order == 0 || in_one_node(frame, order)) {
        block_put(r, frame, order);
        return;
    }
    put_by_node(r, frame, order - 1);
    put_by_node(r, frame + (1ull << (order - 1)), order - 1);
}

/* Sorts all free frames by NUMA node. First it takes out all free blocks, and then it puts each
 * back into the list of its node. One pass would not do: node_of() has to know all ranges first,
 * and blocks that cross the border of a node have to be split. */
void frame_set_nodes(const struct frame_node *ranges, u32 nr) {
    struct list old[ORDERS];

    spin_lock(&frame_lock);
    ASSERT(nr_node_ranges == 0); /* all blocks are in the lists of node 0 */
    for (unsigned o = 0; o < ORDERS; o++) {
        list_init(&old[o]);
        while (!list_empty(&free_list[0][o])) {
            struct list *block = free_list[0][o].next;
            u64 frame = va_to_hpa(block) >> PAGE_SHIFT;

            block_take(range_of(frame), frame, o);
            list_add_head(&old[o], block);
        }
    }
    for (u32 i = 0; i < nr && nr_node_ranges < FRAME_MAX_NODE_RANGES; i++)
        if (ranges[i].node < FRAME_MAX_NODES) node[nr_node_ranges++] = ranges[i];
    for (unsigned o = 0; o < ORDERS; o++) {
        while (!list_empty(&old[o])) {
            struct list *block = old[o].next;
            u64 frame = va_to_hpa(block) >> PAGE_SHIFT;

            list_del(block);
            put_by_node(range_of(frame), frame, o);
        }
    }
    spin_unlock(&frame_lock);
}

/* Notes the distance between two nodes, for find_near(). */
void frame_set_distance(u32 from, u32 to, u32 distance) { distance_of[from][to] = distance; }

/* Returns how many frames of a node are free. */
u64 frame_node_free(u32 of_node) {
    if (of_node >= FRAME_MAX_NODES) return 0;
    return node_free[of_node];
}

/* Returns how many frames are free. */
u64 frame_free_count(void) { return nr_free; }

/* Returns how many frames there are, free and in use. */
u64 frame_total(void) { return nr_total; }
