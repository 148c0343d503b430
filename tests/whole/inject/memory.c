/* A model of the hypervisor's memory: which frames are allocated, and how many together. The linker
 * puts these functions in the place of those of hv/mm, so that allocations can be made to fail, and
 * so that a mistake of the allocator, or of its callers, shows at once. With AddressSanitizer what
 * is free is poisoned: an access of the hypervisor to a freed frame or object ends the program.
 * inject.h has the contracts. */
#include <stdio.h>
#include <string.h>
#include "check.h"
#include "lib/list.h"
#include "tests/whole/inject/inject.h"

/* As in sanitizer/asan_interface.h and common_interface_defs.h, whose functions do nothing in a
 * file that is compiled without the sanitizer, as this one is. */
void __asan_poison_memory_region(const void *p, size_t n);
void __asan_unpoison_memory_region(const void *p, size_t n);
void __sanitizer_symbolize_pc(void *pc, const char *format, char *out, size_t size);

#define FRAMES     (1u << 18) /* of 4 KiB, from physical address 0 on: 1 GiB */
#define LINK       16u        /* bytes at the start of a free block, which the allocator uses */
#define BEHIND     16u        /* poisoned bytes behind an object */
#define QUARANTINE 256u       /* freed objects that are kept, so that late accesses are seen */

static u32 state[FRAMES]; /* 0: free; how many frames a block has, at its start; INSIDE */
#define INSIDE (~0u)
static u64 frames_used, objects;

/* ---- frames ---- */

/* Notes in the model that the hypervisor has allocated a block of `n` frames at `pa`, and lets
 * AddressSanitizer allow accesses to it. A block that is not free in the model, or that is not
 * aligned, is a fault of the allocator. */
static void took(hpa_t pa, u64 n) {
    u64 first = pa >> PAGE_SHIFT;

    if (pa == HPA_NONE) return;
    MUST(first + n <= FRAMES && first % (1ull << frame_order(n << PAGE_SHIFT)) == 0,
         "the allocator gives block %lx of %lu frames", pa, n);
    for (u64 f = first; f < first + n; f++) {
        MUST(!state[f], "frame %lx was allocated twice", f << PAGE_SHIFT);
        state[f] = INSIDE;
    }
    state[first] = (u32)n;
    frames_used += n;
    __asan_unpoison_memory_region(hpa_to_va(pa), n << PAGE_SHIFT);
}

/* Notes that the hypervisor frees the block of `n` frames at `pa`, which has to be one that was
 * allocated as a whole. */
static void gives_back(hpa_t pa, u64 n) {
    u64 first = pa >> PAGE_SHIFT;

    MUST(n && first + n <= FRAMES && state[first] == n, "block %lx of %lu frames is freed", pa, n);
    memset(state + first, 0, n * sizeof(state[0]));
    frames_used -= n;
}

/* Lets AddressSanitizer refuse accesses to `n` frames that the allocator has now. */
static void poison(hpa_t pa, u64 n) {
    __asan_poison_memory_region((char *)hpa_to_va(pa) + LINK, (n << PAGE_SHIFT) - LINK);
}

hpa_t __real_frame_alloc_near(unsigned order, hpa_t limit, u32 node);
hpa_t __wrap_frame_alloc(unsigned order);
hpa_t __wrap_frame_alloc_below(unsigned order, hpa_t limit);
hpa_t __wrap_frame_alloc_near(unsigned order, hpa_t limit, u32 node);
hpa_t __wrap_frame_alloc_zeroed(unsigned order);
hpa_t __real_frame_alloc_exact(u64 n);
hpa_t __wrap_frame_alloc_exact(u64 n);
void __real_frame_free(hpa_t pa, unsigned order);
void __wrap_frame_free(hpa_t pa, unsigned order);
void __real_frame_free_exact(hpa_t pa, u64 n);
void __wrap_frame_free_exact(hpa_t pa, u64 n);

hpa_t __wrap_frame_alloc_near(unsigned order, hpa_t limit, u32 node) {
    hpa_t pa = HPA_NONE;

    if (!inject_no_memory()) pa = __real_frame_alloc_near(order, limit, node);
    took(pa, 1ull << order);
    return pa;
}

hpa_t __wrap_frame_alloc_below(unsigned order, hpa_t limit) {
    return __wrap_frame_alloc_near(order, limit, 0);
}

hpa_t __wrap_frame_alloc(unsigned order) { return __wrap_frame_alloc_near(order, ~0ull, 0); }

hpa_t __wrap_frame_alloc_zeroed(unsigned order) {
    hpa_t pa = __wrap_frame_alloc(order);

    if (pa != HPA_NONE) memset(hpa_to_va(pa), 0, PAGE_SIZE << order);
    return pa;
}

void __wrap_frame_free(hpa_t pa, unsigned order) {
    gives_back(pa, 1ull << order);
    __real_frame_free(pa, order);
    poison(pa, 1ull << order);
}

hpa_t __wrap_frame_alloc_exact(u64 n) {
    hpa_t pa = HPA_NONE;

    if (!inject_no_memory()) pa = __real_frame_alloc_exact(n);
    took(pa, n);
    return pa;
}

void __wrap_frame_free_exact(hpa_t pa, u64 n) {
    gives_back(pa, n);
    __real_frame_free_exact(pa, n);
    poison(pa, n);
}

bool model_allocated(hpa_t pa) {
    MUST(pa >> PAGE_SHIFT < FRAMES, "there is no frame %lx", pa);
    return state[pa >> PAGE_SHIFT];
}

void check_memory(void) {
    MUST(frame_total() - frame_free_count() == frames_used, "%lu frames are free of %lu, %lu used",
         frame_free_count(), frame_total(), frames_used);
    MUST(frame_node_free(0) == frame_free_count(), "node 0 has %lu free frames",
         frame_node_free(0));
}

/* ---- objects: each has this in front of it, and poisoned bytes on both sides ---- */

struct front {
    size_t size;
    u64 mark;         /* IN_USE, or FREED */
    u64 number;       /* in the order of allocations */
    void *where;      /* who allocated it */
    struct list link; /* in `live` */
    u64 pad[2];
};
_Static_assert(sizeof(struct front) == 64, "a large object is aligned to 64 bytes");
#define IN_USE 0x6465746163746174ull
#define FREED  0x6465657266656572ull

/* Objects that were freed and wait, so that a late access to them is seen. */
static struct front *kept[QUARANTINE];
static u32 next_kept;
static struct list live = { &live, &live };
static u64 allocations;

void *__real_heap_alloc(size_t size);
void __real_heap_free(void *p);
void *__wrap_heap_alloc(size_t size);
void __wrap_heap_free(void *p);

/* Takes the place of heap_alloc(): allocates an object with a head before it and a gap behind it,
 * which must not be touched, and notes it. Returns NULL if memory is to fail now, or if there is
 * none. */
void *__wrap_heap_alloc(size_t size) {
    struct front *o;

    if (!size || inject_no_memory()) return NULL;
    o = __real_heap_alloc(sizeof(*o) + size + BEHIND);
    if (!o) return NULL;
    objects++;
    *o = (struct front){ size, IN_USE, allocations++, __builtin_return_address(0), { 0 }, { 0 } };
    list_add_tail(&live, &o->link);
    __asan_poison_memory_region(o, sizeof(*o));
    __asan_poison_memory_region((char *)(o + 1) + size, BEHIND);
    return o + 1;
}

/* Gives an object to the heap that was freed a while ago. */
static void give_back(struct front *o) {
    if (!o) return;
    __asan_unpoison_memory_region(o, sizeof(*o) + o->size + BEHIND);
    __real_heap_free(o);
}

/* Takes the place of heap_free(): checks that the object is allocated, and makes it untouchable. It
 * goes back to the heap only after QUARANTINE further objects were freed, so that a use after the
 * free is found. */
void __wrap_heap_free(void *p) {
    struct front *o = (struct front *)p - 1;

    if (!p) return;
    MUST(o->mark == IN_USE, "object %p is freed", p);
    objects--;
    o->mark = FREED;
    list_del(&o->link);
    __asan_poison_memory_region(o, sizeof(*o) + o->size + BEHIND);
    give_back(kept[next_kept]);
    kept[next_kept] = o;
    next_kept = (next_kept + 1) % QUARANTINE;
}

/* What was freed a while ago would keep its slab. */
struct model_count model_count(void) {
    for (u32 i = 0; i < QUARANTINE; i++) {
        give_back(kept[i]);
        kept[i] = NULL;
    }
    return (struct model_count){ frames_used, objects, allocations };
}

void model_tell_objects(u64 since) {
    char text[256];

    list_for_each(o, &live, struct front, link) {
        if (o->number < since) continue;
        __sanitizer_symbolize_pc(o->where, "%f %s:%l", text, sizeof(text));
        fprintf(stderr, "still allocated: %lu bytes at %p, by %s\n", o->size, (void *)(o + 1),
                text);
    }
}
