/* The tests of lab 3. npt_lookup() in npt_model.h plays the processor: it finds what you mapped. */
#include "rig.h"

static void map(void) {
    struct npt t;

    npt_begin(&t);
    expect_result("npt_map of a page", npt_map(&t, 0x5000, 0x9000, PAGE_SIZE, NPT_RW, NPT_WB), 0);
    maps(&t, 0x5123, 0x9123, NPT_RW);
    maps(&t, 0x4fff, HPA_NONE, 0);
    maps(&t, 0x6000, HPA_NONE, 0);
    expect("frames of tables: one for each level", model_in_use, 4);
    expect_result("npt_map of three pages elsewhere",
                  npt_map(&t, 0x7ffffff000, 0x20000, 3 * PAGE_SIZE, NPT_RWX, NPT_WB), 0);
    maps(&t, 0x7ffffff000, 0x20000, NPT_RWX);
    maps(&t, 0x8000000fff, 0x21fff, NPT_RWX);
    maps(&t, 0x8000001000, 0x22000, NPT_RWX);
    maps(&t, 0x5123, 0x9123, NPT_RW);
    expect_result("npt_map of a page again", npt_map(&t, 0x5000, 0xa000, PAGE_SIZE, NPT_R, NPT_WB),
                  0);
    maps(&t, 0x5123, 0xa123, NPT_R);
    npt_fini(&t);
    expect("frames that are left after npt_fini", model_in_use, 0);
}

static void large(void) {
    struct npt t;

    npt_begin(&t);
    expect_result("npt_map of 8 MiB", npt_map(&t, 4 * M2, 8 * M2, 4 * M2, NPT_RWX, NPT_WB), 0);
    expect("frames of tables: large pages need no level 1", model_in_use, 3);
    maps(&t, 5 * M2 + 0x12345, 9 * M2 + 0x12345, NPT_RWX);
    expect_result(
        "npt_map of 2 MiB and two pages",
        npt_map(&t, 16 * M2 - PAGE_SIZE, 20 * M2 - PAGE_SIZE, M2 + 2 * PAGE_SIZE, NPT_RW, NPT_WB),
        0);
    maps(&t, 16 * M2 - 1, 20 * M2 - 1, NPT_RW);
    maps(&t, 16 * M2 + 0x777, 20 * M2 + 0x777, NPT_RW);
    maps(&t, 17 * M2 + 0xfff, 21 * M2 + 0xfff, NPT_RW);
    maps(&t, 17 * M2 + 0x1000, HPA_NONE, 0);
    expect("frames of tables: one large page between two tables of level 1", model_in_use, 5);
    expect_result("npt_map where only one address is aligned",
                  npt_map(&t, 32 * M2, 40 * M2 + PAGE_SIZE, M2, NPT_R, NPT_WB), 0);
    maps(&t, 32 * M2 + 0x5000, 40 * M2 + 0x6000, NPT_R);
    npt_fini(&t);
}

static void split(void) {
    struct npt t;

    npt_begin(&t);
    npt_map(&t, 0, 8 * M2, 2 * M2, NPT_RWX, NPT_WB);
    expect_result("npt_map of one page of a large one",
                  npt_map(&t, M2 + 0x3000, 0x7000, PAGE_SIZE, NPT_R, NPT_WB), 0);
    maps(&t, M2 + 0x3123, 0x7123, NPT_R);
    maps(&t, M2 + 0x2fff, 9 * M2 + 0x2fff, NPT_RWX);
    maps(&t, M2 + 0x4000, 9 * M2 + 0x4000, NPT_RWX);
    maps(&t, 2 * M2 - 1, 10 * M2 - 1, NPT_RWX);
    maps(&t, 0x5000, 8 * M2 + 0x5000, NPT_RWX);
    expect_result("npt_unmap of one page of a large one", npt_unmap(&t, 0x5000, PAGE_SIZE), 0);
    maps(&t, 0x5000, HPA_NONE, 0);
    maps(&t, 0x6000, 8 * M2 + 0x6000, NPT_RWX);
    expect_result("npt_map of a large page over a table",
                  npt_map(&t, M2, 9 * M2, M2, NPT_RW, NPT_WB), 0);
    maps(&t, M2 + 0x3000, 9 * M2 + 0x3000, NPT_RW);
    npt_fini(&t);
    expect("frames that are left after npt_fini", model_in_use, 0);
}

static void generation(void) {
    struct npt t;
    u64 g;

    npt_begin(&t);
    g = t.tlb.current;
    npt_map(&t, 0x5000, 0x9000, 2 * PAGE_SIZE, NPT_RWX, NPT_WB);
    expect("the generation after a mapping where nothing was", t.tlb.current, g);
    npt_map(&t, 0x6000, 0xb000, PAGE_SIZE, NPT_RWX, NPT_WB);
    expect("the generation after a mapping was replaced", t.tlb.current, g + 1);
    npt_unmap(&t, 0x5000, PAGE_SIZE);
    expect("the generation after a mapping was taken away", t.tlb.current, g + 2);
    npt_unmap(&t, 0x5000, PAGE_SIZE);
    expect("the generation after nothing was taken away", t.tlb.current, g + 2);
    expect_result("npt_unmap of all", npt_unmap(&t, 0, NPT_LIMIT), 0);
    expect("frames of tables after npt_unmap of what was not mapped", model_in_use, 4);
    maps(&t, 0x6000, HPA_NONE, 0);
    npt_fini(&t);
}

static void find(void) {
    struct npt t;
    bool writable = false;

    npt_begin(&t);
    npt_map(&t, 4 * M2, 8 * M2, M2, NPT_RW, NPT_WB);
    npt_map(&t, 0x5000, 0x9000, PAGE_SIZE, NPT_R, NPT_WB);
    expect("npt_find in a large page", npt_find(&t, 4 * M2 + 0x12345, &writable), 8 * M2 + 0x12345);
    expect("writable of that page", writable, true);
    expect("npt_find in a small page", npt_find(&t, 0x5678, &writable), 0x9678);
    expect("writable of that page", writable, false);
    expect("npt_find where nothing is", npt_find(&t, 0x6000, &writable), HPA_NONE);
    expect("npt_find beyond the limit", npt_find(&t, NPT_LIMIT, &writable), HPA_NONE);
    npt_fini(&t);
}

static void walk(void) {
    walk_begin();
    map4(P | W | U);
    reaches("a page of 4 KiB", VA + 0xfff, GA_READ, 0x300fff);
    faults("an entry that is not present", VA + 0x1000, GA_READ, 0);
    faults("a table that is not present", BIT(39), GA_READ, 0);
    put(0x3000 + 2 * 8, 0x400000 | P | W | U | PS);
    reaches("a page of 2 MiB", 0x40412345, GA_READ, 0x412345);
    put(0x2000 + 2 * 8, 0x40000000 | P | W | U | PS);
    reaches("a page of 1 GiB", 0x80123456, GA_READ, 0x40123456);
    put(0x2000 + 3 * 8, 0x600000 | P | PS | BIT(21));
    faults("a page of 1 GiB with a bit that must be 0", 0xc0000000, GA_READ, PF_P | PF_RSVD);
    put(0x3000 + 3 * 8, mem.size | P);
    faults("a table outside the VM's RAM", 0x40600000, GA_READ, 0);
}

static void rights(void) {
    static const struct {
        const char *what;
        u64 leaf;
        unsigned access;
        u32 fault; /* 0: none */
    } t[] = {
        { "the supervisor reads", P, GA_READ, 0 },
        { "the supervisor writes what is read-only", P, GA_WRITE, PF_P | PF_W },
        { "the user reads a page of the supervisor", P, GA_READ | GA_USER, PF_P | PF_U },
        { "the user reads", P | U, GA_READ | GA_USER, 0 },
        { "the user writes what is read-only", P | U, GA_WRITE | GA_USER, PF_P | PF_W | PF_U },
        { "the user writes", P | U | W, GA_WRITE | GA_USER, 0 },
        { "the supervisor executes", P | W, GA_EXEC, 0 },
        { "the supervisor executes what is not executable", P | NX, GA_EXEC, PF_P | PF_I },
        { "the user writes what is not present", W | U, GA_WRITE | GA_USER, PF_W | PF_U },
    };

    walk_begin();
    for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
        map4(t[i].leaf);
        if (t[i].fault)
            faults(t[i].what, VA, t[i].access, t[i].fault);
        else
            reaches(t[i].what, VA, t[i].access, 0x300000);
    }
    map4(P | W | U);
    put(0x2008, 0x3000 | P | U);
    faults("the supervisor writes, and a table above is read-only", VA, GA_WRITE, PF_P | PF_W);
    regs[VREG_CR0] &= ~CR0_WP;
    reaches("the supervisor writes what is read-only, without CR0.WP", VA, GA_WRITE, 0x300000);
    regs[VREG_CR4] |= CR4_SMEP;
    faults("the supervisor executes a page of the user, with SMEP", VA, GA_EXEC, PF_P | PF_I);
    regs[VREG_CR4] |= CR4_SMAP;
    faults("the supervisor reads a page of the user, with SMAP", VA, GA_READ, PF_P);
    vcpu.regs.rflags = RFLAGS_AC;
    reaches("the supervisor reads a page of the user, with RFLAGS.AC", VA, GA_READ, 0x300000);
}

static void accessed(void) {
    walk_begin();
    map4(P | U);
    faults("a write to a read-only page", VA, GA_WRITE, PF_P | PF_W);
    expect("the top entry after a fault", entry(0x1000), 0x2000 | P | W | U);
    reaches("a read", VA, GA_READ, 0x300000);
    expect("the top entry after a read", entry(0x1000), 0x2000 | P | W | U | A);
    expect("the leaf after a read", entry(0x4008), 0x300000 | P | U | A);
    map4(P | W);
    reaches("a write", VA, GA_WRITE, 0x300000);
    expect("the leaf after a write", entry(0x4008), 0x300000 | P | W | A | D);
    expect("the entry above the leaf after a write", entry(0x3008), 0x4000 | P | W | U | A);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "map", map },   { "large", large }, { "split", split },   { "generation", generation },
        { "find", find }, { "walk", walk },   { "rights", rights }, { "accessed", accessed },
        { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
