#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "frame_model.h"
#include "npt_model.h"

#define M2   BIT(21)
#define HEAP 1 /* frames for what a table keeps of each pCPU (tlbgen.h) */

static const struct npt_format *const formats[] = { &npt_format_ept, &npt_format_amd };

static u64 raw(struct npt *t, gpa_t gpa, unsigned level) {
    const u64 *table = hpa_to_va(t->root);

    for (unsigned l = 4; l > level; l--)
        table = hpa_to_va(table[gpa >> (12 + 9 * (l - 1)) & 511] & 0x000ffffffffff000ull);
    return table[gpa >> (12 + 9 * (level - 1)) & 511];
}

static void maps(struct npt *t, gpa_t gpa, hpa_t hpa, unsigned prot) {
    unsigned p = 99;

    assert_int_equal(npt_lookup(t, gpa, &p), hpa);
    assert_int_equal(p, prot);
}

static void test_entries(void **state) {
    struct npt t;

    assert_int_equal(npt_init(&t, &npt_format_ept), 0);
    assert_int_equal(npt_map(&t, 0, M2, M2, NPT_RWX, NPT_WB), 0);
    assert_int_equal(raw(&t, 0, 2), M2 | 0xb7); /* RWX, WB, large: SDM 3C table 29-3 */
    assert_int_equal(raw(&t, 0, 3) & 0xfff, 7);
    assert_int_equal(npt_map(&t, 0xfee00000, 0x5000, PAGE_SIZE, NPT_RW, NPT_UC), 0);
    assert_int_equal(raw(&t, 0xfee00000, 1), 0x5003);
    npt_fini(&t);

    assert_int_equal(npt_init(&t, &npt_format_amd), 0);
    assert_int_equal(npt_map(&t, 0, M2, M2, NPT_RWX, NPT_WB), 0);
    assert_int_equal(raw(&t, 0, 2), M2 | 0x87); /* P W U PS */
    assert_int_equal(npt_map(&t, 0xfee00000, 0x5000, PAGE_SIZE, NPT_R, NPT_UC), 0);
    assert_int_equal(raw(&t, 0xfee00000, 1), BIT(63) | 0x5000 | 0x1d); /* P U PWT PCD, NX */
    npt_fini(&t);
    assert_int_equal(model_in_use, 0);
}

static void test_split_and_generation(void **state) {
    for (unsigned f = 0; f < ARRAY_SIZE(formats); f++) {
        struct npt t;
        u64 g;

        assert_int_equal(npt_init(&t, formats[f]), 0);
        g = t.tlb.current;
        assert_int_equal(npt_map(&t, 0, 8 * M2, 4 * M2, NPT_RWX, NPT_WB), 0);
        assert_int_equal(model_in_use, HEAP + 3); /* root, level 3, level 2: no 4 KiB tables */
        assert_int_equal(t.tlb.current, g);       /* nothing was taken away */

        assert_int_equal(npt_map(&t, M2 + 0x3000, 9 * M2 + 0x3000, PAGE_SIZE, NPT_R, NPT_WB), 0);
        assert_int_equal(model_in_use, HEAP + 4);
        assert_int_equal(t.tlb.current, ++g);
        maps(&t, M2 + 0x2fff, 9 * M2 + 0x2fff, NPT_RWX);
        maps(&t, M2 + 0x3123, 9 * M2 + 0x3123, NPT_R);
        maps(&t, M2 + 0x4000, 9 * M2 + 0x4000, NPT_RWX);
        maps(&t, 2 * M2, 10 * M2, NPT_RWX);

        assert_int_equal(npt_map(&t, M2 + 0x3000, 9 * M2 + 0x3000, PAGE_SIZE, NPT_RW, NPT_WB), 0);
        assert_int_equal(t.tlb.current, ++g); /* whatever is replaced */
        assert_int_equal(npt_map(&t, M2 + 0x3000, 0x7000, PAGE_SIZE, NPT_RW, NPT_WB), 0);
        assert_int_equal(t.tlb.current, ++g); /* another frame */
        assert_int_equal(npt_map(&t, M2 + 0x3000, 0x7000, PAGE_SIZE, NPT_RW, NPT_UC), 0);
        assert_int_equal(t.tlb.current, ++g); /* another memory type */

        assert_int_equal(npt_unmap(&t, 3 * M2 - PAGE_SIZE, 2 * PAGE_SIZE), 0);
        assert_int_equal(t.tlb.current, ++g);
        assert_int_equal(npt_lookup(&t, 3 * M2 - 1, NULL), HPA_NONE);
        assert_int_equal(npt_lookup(&t, 3 * M2, NULL), HPA_NONE);
        maps(&t, 3 * M2 + PAGE_SIZE, 11 * M2 + PAGE_SIZE, NPT_RWX);
        assert_int_equal(npt_unmap(&t, 3 * M2 - PAGE_SIZE, 2 * PAGE_SIZE), 0);
        assert_int_equal(t.tlb.current, g); /* nothing was there */

        /* A 2 MiB mapping over a table keeps the table, because a CPU may be walking it. */
        assert_int_equal(npt_map(&t, M2, 9 * M2, M2, NPT_RWX, NPT_WB), 0);
        maps(&t, M2 + 0x3000, 9 * M2 + 0x3000, NPT_RWX);
        npt_fini(&t);
        assert_int_equal(model_in_use, 0);
    }
}

static void test_ends(void **state) {
    struct npt t;

    assert_int_equal(npt_init(&t, &npt_format_ept), 0);
    assert_int_equal(npt_lookup(&t, NPT_LIMIT, NULL), HPA_NONE);
    assert_int_equal(npt_lookup(&t, ~0ull, NULL), HPA_NONE);
    /* A call for pages that are not mapped makes no tables, and is quick. */
    assert_int_equal(npt_unmap(&t, 0, NPT_LIMIT), 0);
    assert_int_equal(model_in_use, HEAP + 1);
    npt_fini(&t);
}

static void test_out_of_memory(void **state) {
    for (unsigned n = 0; n < HEAP + 5; n++) {
        struct npt t;

        model_fail_after = n;
        if (npt_init(&t, &npt_format_ept) == 0) {
            assert_int_equal(npt_map(&t, PAGE_SIZE, 0, 2 * M2, NPT_R, NPT_WB), -ENOMEM);
            assert_int_equal(npt_lookup(&t, 2 * M2, NULL), HPA_NONE);
        }
        npt_fini(&t);
        assert_int_equal(model_in_use, 0);
    }
    model_fail_after = ~0u;
}

/* Compares random calls of map and unmap with a flat array. */
static void test_random(void **state) {
    enum { PAGES = 4 * 512 };
    static struct {
        hpa_t hpa;
        unsigned prot;
    } want[PAGES];
    static const unsigned prots[] = { NPT_R, NPT_RW, NPT_R | NPT_X, NPT_RWX };
    struct npt t;

    srand(1);
    for (unsigned i = 0; i < PAGES; i++) want[i].hpa = HPA_NONE;
    assert_int_equal(npt_init(&t, &npt_format_amd), 0);
    for (unsigned n = 0; n < 2000; n++) {
        unsigned at = (unsigned)rand() % PAGES, len = (unsigned)rand() % 1200,
                 prot = prots[rand() % 4];
        hpa_t hpa = (u64)(rand() % 4096) * PAGE_SIZE;
        u64 before = t.tlb.current;
        bool loss = false, set = rand() % 3;

        if (n % 3 == 0) {
            at &= ~511u;
            len = (len + 511) & ~511u;
            hpa &= ~(M2 - 1);
        }
        len = MIN(len, PAGES - at);
        if (set)
            assert_int_equal(npt_map(&t, at * PAGE_SIZE, hpa, len * PAGE_SIZE, prot, NPT_WB), 0);
        else
            assert_int_equal(npt_unmap(&t, at * PAGE_SIZE, len * PAGE_SIZE), 0);
        for (unsigned i = at; i < at + len; i++) {
            hpa_t to = set ? hpa + (i - at) * PAGE_SIZE : HPA_NONE;

            loss |= want[i].hpa != HPA_NONE && (want[i].hpa != to || want[i].prot & ~prot);
            want[i].hpa = to;
            want[i].prot = prot;
        }
        if (loss) assert_true(t.tlb.current > before);
        for (unsigned i = 0; i < PAGES; i++) {
            unsigned p = want[i].prot;

            assert_int_equal(npt_lookup(&t, i * PAGE_SIZE, &p), want[i].hpa);
            assert_int_equal(p, want[i].prot);
        }
    }
    npt_fini(&t);
    assert_int_equal(model_in_use, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries), cmocka_unit_test(test_split_and_generation),
        cmocka_unit_test(test_ends),    cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_random),
    };

    model_setup();
    tlbgen_cpus = 2;
    return cmocka_run_group_tests_name("npt", tests, NULL, NULL);
}
