/* Tests of lab 3 that students do not have. */
#include "rig.h"

enum { PAGES = 4 * 512 };

/* Compares random calls of npt_map and npt_unmap with a flat array. */
static void random_calls(void) {
    static hpa_t where[PAGES];
    static unsigned prot[PAGES];
    u64 rng = 12345;
    struct npt t;

    npt_begin(&t);
    for (u32 i = 0; i < PAGES; i++) where[i] = HPA_NONE;
    for (u32 step = 0; step < 400; step++) {
        u64 first, len, to;
        bool unmap;

        rng = rng * 6364136223846793005ull + 1442695040888963407ull;
        first = (rng >> 33) % PAGES;
        len = 1 + (rng >> 20) % 1024;
        if (rng >> 60 & 1) first &= ~511ull;
        len = MIN(len, PAGES - first);
        to = first * PAGE_SIZE + 16 * M2;
        if (rng >> 61 & 1) to += PAGE_SIZE;
        unmap = rng >> 62 & 1;
        if (unmap)
            npt_unmap(&t, first * PAGE_SIZE, len * PAGE_SIZE);
        else
            npt_map(&t, first * PAGE_SIZE, to, len * PAGE_SIZE, NPT_RW, NPT_WB);
        for (u64 i = first; i < first + len; i++) {
            where[i] = to + (i - first) * PAGE_SIZE;
            if (unmap) where[i] = HPA_NONE;
            prot[i] = NPT_RW;
        }
        for (u32 i = 0; i < PAGES; i += 7) maps(&t, i * PAGE_SIZE, where[i], prot[i]);
    }
    npt_fini(&t);
    expect("frames that are left after npt_fini", model_in_use, 0);
}

static void no_memory(void) {
    for (unsigned n = 1; n < 4; n++) {
        struct npt t;

        npt_begin(&t);
        model_fail_after = n - 1;
        expect("npt_map without memory",
               npt_map(&t, PAGE_SIZE, 0x9000, PAGE_SIZE, NPT_R, NPT_WB) == -ENOMEM, true);
        maps(&t, PAGE_SIZE, HPA_NONE, 0);
        model_fail_after = ~0u;
        expect_result("npt_map with memory",
                      npt_map(&t, PAGE_SIZE, 0x9000, PAGE_SIZE, NPT_R, NPT_WB), 0);
        maps(&t, PAGE_SIZE, 0x9000, NPT_R);
        npt_fini(&t);
        expect("frames that are left after npt_fini", model_in_use, 0);
    }
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "random", random_calls },
        { "no_memory", no_memory },
        { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
