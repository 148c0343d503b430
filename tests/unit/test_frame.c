/* The allocators of frames and of the heap, over an arena of memory of the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "mm/frame.h"

#define ARENA (64ull << 20)

/* The arena plays physical [1 MiB, 65 MiB), with a hole. */
static int group_setup(void **state) {
    u8 *arena = aligned_alloc(1 << 21, ARENA + (2 << 20));

    memset(arena, 0xa5, ARENA + (2 << 20));
    directmap_base = (u64)arena;
    assert_int_equal(frame_alloc(0), HPA_NONE);
    frame_add(0x100000, 0x1000000);
    frame_add(0x1100800, ARENA + 0x100000 + 0x800); /* partial pages at both ends */
    return 0;
}

static void test_all_of_it(void **state) {
    static hpa_t got[32768];
    u64 total = frame_total(), n = 0;

    assert_true(total > (ARENA >> PAGE_SHIFT) - 300);
    assert_int_equal(frame_free_count(), total);
    while (n < ARRAY_SIZE(got) && (got[n] = frame_alloc(0)) != HPA_NONE) {
        assert_true(got[n] >= 0x100000 && got[n] + PAGE_SIZE <= ARENA + 0x100000);
        assert_false(got[n] >= 0x1000000 && got[n] < 0x1101000);
        /* If a frame were given out twice, or the bits of the allocator were, it would show
         * here. */
        memset(hpa_to_va(got[n]), 0x11, PAGE_SIZE);
        *(u64 *)hpa_to_va(got[n]) = n;
        n++;
    }
    assert_int_equal(n, total);
    assert_int_equal(frame_free_count(), 0);
    for (u64 i = 0; i < n; i++) assert_int_equal(*(u64 *)hpa_to_va(got[i]), i);
    /* 7919 is prime and does not divide n, so this frees each frame once, in a mixed order. */
    for (u64 i = 0; i < n; i++) frame_free(got[(i * 7919) % n], 0);
    assert_int_equal(frame_free_count(), total);
    assert_int_equal(frame_alloc(FRAME_ORDER_MAX + 1), HPA_NONE);
}

static void test_merge(void **state) {
    hpa_t big = frame_alloc(12), small[4096];

    assert_int_not_equal(big, HPA_NONE);
    assert_int_equal(big % (PAGE_SIZE << 12), 0);
    frame_free(big, 12);
    for (unsigned i = 0; i < 4096; i++) small[i] = frame_alloc(0);
    for (unsigned i = 0; i < 4096; i += 2) frame_free(small[i], 0);
    for (unsigned i = 1; i < 4096; i += 2) frame_free(small[i], 0);
    assert_int_not_equal(big = frame_alloc(12), HPA_NONE);
    frame_free(big, 12);
}

static void test_below(void **state) {
    u64 before = frame_free_count(), n = 0;
    static hpa_t got[4096];
    hpa_t high;

    while (n < ARRAY_SIZE(got) && (got[n] = frame_alloc_below(0, 0x1000000)) != HPA_NONE) {
        assert_true(got[n] + PAGE_SIZE <= 0x1000000);
        n++;
    }
    /* All memory below 16 MiB was free, except what the ranges need for their own bytes. */
    assert_true(n > 3500 && n < 3840);
    assert_int_equal(frame_alloc_below(3, 0x1000000), HPA_NONE);
    high = frame_alloc(3);
    assert_true(high != HPA_NONE && high >= 0x1000000);
    frame_free(high, 3);
    while (n) frame_free(got[--n], 0);
    assert_int_equal(frame_free_count(), before);
    assert_int_equal(frame_alloc_below(0, 0x100000), HPA_NONE);
    /* A free block that reaches over the limit is used if the part below the limit is enough. */
    got[0] = frame_alloc_below(9, 0x1400000);
    assert_true(got[0] != HPA_NONE && got[0] + (2 << 20) <= 0x1400000);
    frame_free(got[0], 9);
    assert_int_equal(frame_free_count(), before);
}

/* Fills frames with a number, and returns whether they still have it. */
static void fill(hpa_t pa, u64 n, u64 number) {
    u64 *p = hpa_to_va(pa);

    for (u64 i = 0; i < n * PAGE_SIZE / sizeof(*p); i++) p[i] = number;
}

static bool has_kept(hpa_t pa, u64 n, u64 number) {
    const u64 *p = hpa_to_va(pa);

    for (u64 i = 0; i < n * PAGE_SIZE / sizeof(*p); i++)
        if (p[i] != number) return false;
    return true;
}

/* Blocks of every number of frames: they take no more than that, they are aligned, nobody else has
 * their frames, and all of them become large blocks again. */
static void test_exact(void **state) {
    u64 before = frame_free_count(), left, sum = 0;
    hpa_t got[70];

    assert_int_equal(frame_alloc_exact(0), HPA_NONE);
    assert_int_equal(frame_alloc_exact(before), HPA_NONE);
    assert_int_equal(frame_alloc_exact(BIT(40)), HPA_NONE);
    for (u64 n = 1; n < ARRAY_SIZE(got); n++) {
        left = frame_free_count();
        got[n] = frame_alloc_exact(n);
        assert_int_not_equal(got[n], HPA_NONE);
        assert_int_equal(left - frame_free_count(), n);
        assert_int_equal(got[n] % (PAGE_SIZE << frame_order(n * PAGE_SIZE)), 0);
        fill(got[n], n, n);
        sum += n;
    }
    assert_int_equal(before - frame_free_count(), sum);
    for (u64 n = 1; n < ARRAY_SIZE(got); n += 2) {
        assert_true(has_kept(got[n], n, n));
        frame_free_exact(got[n], n);
    }
    for (u64 n = 2; n < ARRAY_SIZE(got); n += 2) {
        assert_true(has_kept(got[n], n, n));
        frame_free_exact(got[n], n);
    }
    assert_int_equal(frame_free_count(), before);
    test_merge(state);
}

static void test_random(void **state) {
    static struct {
        hpa_t pa;
        unsigned order;
    } held[500];
    u64 before = frame_free_count();

    srand(7);
    for (int step = 0; step < 50000; step++) {
        unsigned i = (unsigned)rand() % ARRAY_SIZE(held);
        u64 *p;

        if (held[i].pa) {
            p = hpa_to_va(held[i].pa);
            assert_int_equal(*p, held[i].pa ^ i);
            frame_free(held[i].pa, held[i].order);
            held[i].pa = 0;
            continue;
        }
        held[i].order = (unsigned)rand() % 6;
        held[i].pa = frame_alloc(held[i].order);
        assert_int_not_equal(held[i].pa, HPA_NONE);
        p = hpa_to_va(held[i].pa);
        *p = held[i].pa ^ i;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(held); i++)
        if (held[i].pa) frame_free(held[i].pa, held[i].order);
    assert_int_equal(frame_free_count(), before);
}

static void test_heap(void **state) {
    static struct {
        u8 *p;
        size_t size;
    } held[300];
    u64 before = frame_free_count();

    assert_null(heap_alloc(0));
    assert_null(heap_alloc(HEAP_MOST + 1));
    heap_free(NULL);
    srand(3);
    for (int step = 0; step < 40000; step++) {
        unsigned i = (unsigned)rand() % ARRAY_SIZE(held);

        if (held[i].p) {
            for (size_t b = 0; b < held[i].size; b++)
                if (held[i].p[b] != (u8)i) fail();
            heap_free(held[i].p);
            held[i].p = NULL;
            continue;
        }
        held[i].size = 1 + (size_t)rand() % (rand() % 10 ? 600 : 65536);
        held[i].p = heap_alloc(held[i].size);
        assert_non_null(held[i].p);
        assert_int_equal((u64)held[i].p % (held[i].size > 2048 ? 64 : 16), 0);
        for (size_t b = 0; b < held[i].size; b++)
            if (held[i].p[b]) fail();
        memset(held[i].p, (int)(u8)i, held[i].size);
    }
    assert_true(heap_in_use() > 0);
    for (unsigned i = 0; i < ARRAY_SIZE(held); i++) heap_free(held[i].p);
    assert_int_equal(heap_in_use(), 0);
    assert_int_equal(frame_free_count(), before); /* empty slabs went back */
}

/* A large object takes as many frames as it and its header need. */
static void test_heap_rounds_little(void **state) {
    static const struct {
        size_t size;
        u64 frames;
    } of[] = {
        { 2017, 1 }, { 4032, 1 }, { 4033, 2 }, { 8129, 3 }, { 20000, 5 }, { HEAP_MOST, 17 }
    };
    u64 before = frame_free_count();
    u8 *p, *q;

    for (unsigned i = 0; i < ARRAY_SIZE(of); i++) {
        p = heap_alloc(of[i].size);
        assert_int_equal(before - frame_free_count(), of[i].frames);
        q = heap_alloc(of[i].size); /* which may lie behind it */
        memset(p, 1, of[i].size);
        for (size_t b = 0; b < of[i].size; b++)
            if (q[b]) fail();
        heap_free(p);
        heap_free(q);
        assert_int_equal(frame_free_count(), before);
    }
}

static void test_out_of_memory(void **state) {
    void *list = NULL, *p;
    u64 before = frame_free_count();

    while ((p = heap_alloc(60000))) {
        *(void **)p = list;
        list = p;
    }
    while ((p = heap_alloc(100))) {
        *(void **)p = list;
        list = p;
    }
    assert_int_equal(frame_free_count(), 0);
    while (list) {
        p = *(void **)list;
        heap_free(list);
        list = p;
    }
    assert_int_equal(frame_free_count(), before);
}

/* Node 1 has no free frame. Then the nearest node counts. */
static void nearest(void) {
    u64 first = frame_node_free(0), far = frame_node_free(2);
    hpa_t pa;

    frame_set_distance(1, 0, 30);
    frame_set_distance(1, 2, 20);
    pa = frame_alloc_near(0, HPA_NONE, 1);
    assert_int_equal(frame_node_free(2), far - 1);
    frame_free(pa, 0);
    frame_set_distance(1, 2, 40);
    pa = frame_alloc_near(0, HPA_NONE, 1);
    assert_int_equal(frame_node_free(0), first - 1);
    frame_free(pa, 0);
}

/* Node 1 is [16.5, 33.5) MiB, which no block of 2 MiB begins or ends with. Node 2 is behind it. */
static void test_nodes(void **state) {
    const struct frame_node nodes[] = { { 0, 0x1080000, 0 },
                                        { 0x1080000, 0x2180000, 1 },
                                        { 0x2180000, BIT(40), 2 } };
    u64 before = frame_free_count(), there, n = 0;
    static hpa_t got[8192];
    hpa_t pa;

    frame_set_nodes(nodes, ARRAY_SIZE(nodes));
    assert_int_equal(frame_free_count(), before);
    there = frame_node_free(1);
    /* Some frames of the node hold the bytes of its own range. */
    assert_int_equal(there, (0x2180000 - 0x1101000) / PAGE_SIZE - 3);
    assert_int_equal(frame_node_free(0) + there + frame_node_free(2), before);
    while (frame_node_free(1)) {
        pa = got[n++] = frame_alloc_near(0, HPA_NONE, 1);
        assert_true(pa >= 0x1080000 && pa < 0x2180000);
    }
    pa = frame_alloc_near(0, HPA_NONE, 1); /* it has none left: another's */
    assert_true(pa < 0x1080000 || pa >= 0x2180000);
    frame_free(pa, 0);
    nearest();
    while (n) frame_free(got[--n], 0);
    assert_int_equal(frame_node_free(1), there);
    for (unsigned i = 0; i < 4; i++) { /* joined again, and not across the border */
        got[i] = frame_alloc_near(9, HPA_NONE, 1);
        assert_true(got[i] >= 0x1080000 && got[i] + BIT(21) <= 0x2180000);
    }
    for (unsigned i = 0; i < 4; i++) frame_free(got[i], 9);
    assert_int_equal(frame_free_count(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_of_it),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_heap_rounds_little),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_nodes),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
