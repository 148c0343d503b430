/* The model TLB: pCPUs that cache every translation that they ever used, and forget only what
 * they are told to. vCPUs of several VMs are loaded, run and moved at random while mappings are
 * taken away and frames are freed by the generation protocol. Whatever a pCPU translates must be
 * right, or be used by a vCPU for which the owner of the frame still waits. The emulators
 * flush at every transition, so only this test can show a missing flush. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "frame_model.h"
#include "npt_model.h"

enum { CPUS = 3, VMS = 3, VCPUS = 3, PAGES = 8, TAGS = 6, STEPS = 400000 };

struct cached {
    bool valid;
    hpa_t hpa;
};

struct model_vcpu {
    struct tlb_user user;
    int on; /* pCPU, -1 */
};

struct model_vm {
    struct npt npt;
    struct model_vcpu vcpu[VCPUS];
    hpa_t frame[PAGES]; /* what is mapped, HPA_NONE */
    hpa_t dying[PAGES]; /* unmapped, not yet freed */
    u64 dying_gen[PAGES];
};

struct model_cpu {
    struct tlb_tags tags;
    struct cached by_tag[TAGS][PAGES]; /* as ASIDs, and Intel's combined mappings */
    /* These are like Intel's guest-physical mappings, which VPIDs do not separate. */
    struct cached by_root[VMS][PAGES];
    int vm, vcpu;  /* loaded; -1 */
    bool in_guest; /* between an entry and an exit: no check happens */
};

static struct model_vm vms[VMS];
static struct model_cpu cpus[CPUS];
static bool ept; /* caches by second-level root, too */
static u64 freed, translated, flushes, flushes_of_all;

struct flush_ctx {
    struct model_cpu *c;
    unsigned vm;
    const struct tlb_user *user;
};

static void flush(enum tlb_flush what, void *ctx) {
    struct flush_ctx *f = ctx;

    flushes++;
    if (what == TLB_FLUSH_TAG) {
        memset(f->c->by_tag[f->user->tag], 0, sizeof(f->c->by_tag[0]));
    } else if (what == TLB_FLUSH_ALL) {
        flushes_of_all++;
        memset(f->c->by_tag, 0, sizeof(f->c->by_tag));
        memset(f->c->by_root, 0, sizeof(f->c->by_root));
    } else if (ept) {
        memset(f->c->by_root[f->vm], 0, sizeof(f->c->by_root[f->vm]));
    }
}

static void load(unsigned cpu) {
    struct model_cpu *c = &cpus[cpu];
    unsigned vm = (unsigned)rand() % VMS, n = (unsigned)rand() % VCPUS;
    struct model_vcpu *v = &vms[vm].vcpu[n];

    if (c->vm >= 0 || v->on >= 0) return;
    c->vm = (int)vm;
    c->vcpu = (int)n;
    v->on = (int)cpu;
    /* Two vCPUs of a VM may be on two pCPUs, but never both on one pCPU. */
    tlb_load(&vms[vm].npt.tlb, &c->tags, &v->user, cpu);
}

static void save(unsigned cpu) {
    struct model_cpu *c = &cpus[cpu];

    if (c->vm < 0) return;
    c->in_guest = false;
    tlb_save(&vms[c->vm].npt.tlb, cpu);
    vms[c->vm].vcpu[c->vcpu].on = -1;
    c->vm = c->vcpu = -1;
}

static void enter(unsigned cpu) {
    struct model_cpu *c = &cpus[cpu];
    struct flush_ctx ctx = { c, (unsigned)c->vm, NULL };
    struct tlb_user *u;

    if (c->vm < 0) return;
    u = &vms[c->vm].vcpu[c->vcpu].user;
    ctx.user = u;
    if (tlb_stale(&vms[c->vm].npt.tlb, u))
        tlb_prepare(&vms[c->vm].npt.tlb, &c->tags, u, cpu, flush, &ctx);
    assert_in_range(u->tag, 1, TAGS - 1);
    c->in_guest = true;
}

/* Does one memory access of the guest. */
static void translate(unsigned cpu) {
    struct model_cpu *c = &cpus[cpu];
    unsigned page = (unsigned)rand() % PAGES;
    struct model_vm *vm;
    struct cached *t, *r;
    hpa_t hpa;

    if (!c->in_guest) return;
    vm = &vms[c->vm];
    t = &c->by_tag[vm->vcpu[c->vcpu].user.tag][page];
    r = &c->by_root[c->vm][page];
    if (t->valid)
        hpa = t->hpa;
    else if (ept && r->valid)
        hpa = r->hpa;
    else
        hpa = npt_lookup(&vm->npt, page * PAGE_SIZE, NULL);
    if (hpa == HPA_NONE) return;
    *t = (struct cached){ true, hpa };
    if (ept) *r = *t;
    translated++;
    /* The translation is right, or the page was unmapped but is not freed yet, because its owner
     * waits for this pCPU. */
    assert_true(hpa == vm->frame[page] || hpa == vm->dying[page]);
}

static void map_or_unmap(struct model_vm *vm) {
    unsigned page = (unsigned)rand() % PAGES;

    if (vm->dying[page] != HPA_NONE) return;
    if (vm->frame[page] == HPA_NONE) {
        vm->frame[page] = frame_alloc(0);
        assert_int_equal(
            npt_map(&vm->npt, page * PAGE_SIZE, vm->frame[page], PAGE_SIZE, NPT_RW, NPT_WB), 0);
        return;
    }
    npt_unmap(&vm->npt, page * PAGE_SIZE, PAGE_SIZE);
    vm->dying[page] = vm->frame[page];
    vm->dying_gen[page] = vm->npt.tlb.current;
    vm->frame[page] = HPA_NONE;
}

static void reap(struct model_vm *vm) {
    for (unsigned page = 0; page < PAGES; page++)
        if (vm->dying[page] != HPA_NONE && tlbgen_passed(&vm->npt.tlb, vm->dying_gen[page])) {
            frame_free(vm->dying[page], 0);
            vm->dying[page] = HPA_NONE;
            freed++;
        }
}

/* When a frame is freed, no vCPU that runs, or that enters next without a check, may have a
 * translation of it. */
static void check_free(hpa_t pa, unsigned order) {
    for (unsigned cpu = 0; cpu < CPUS; cpu++) {
        struct model_cpu *c = &cpus[cpu];
        struct tlb_user *u;

        if (!c->in_guest) continue;
        u = &vms[c->vm].vcpu[c->vcpu].user;
        for (unsigned page = 0; page < PAGES; page++) {
            assert_false(c->by_tag[u->tag][page].valid && c->by_tag[u->tag][page].hpa == pa);
            assert_false(ept && c->by_root[c->vm][page].valid && c->by_root[c->vm][page].hpa == pa);
        }
    }
}

static void vm_start(struct model_vm *vm) {
    assert_int_equal(npt_init(&vm->npt, ept ? &npt_format_ept : &npt_format_amd), 0);
    for (unsigned i = 0; i < PAGES; i++) vm->frame[i] = vm->dying[i] = HPA_NONE;
    for (unsigned i = 0; i < VCPUS; i++) {
        vm->vcpu[i].user = (struct tlb_user){ 0 };
        vm->vcpu[i].on = -1;
    }
}

/* Destroys a VM and makes a new one with the same root. What was cached for the old VM must not be
 * used for the new one. */
static void vm_restart(unsigned n) {
    struct model_vm *vm = &vms[n];

    for (unsigned cpu = 0; cpu < CPUS; cpu++)
        if (cpus[cpu].vm == (int)n) save(cpu);
    reap(vm);
    for (unsigned i = 0; i < PAGES; i++) {
        assert_int_equal(vm->dying[i], HPA_NONE);
        if (vm->frame[i] != HPA_NONE) frame_free(vm->frame[i], 0);
        vm->frame[i] = HPA_NONE;
    }
    npt_fini(&vm->npt);
    vm_start(vm);
}

static void run_model(bool is_ept, bool flushes_one) {
    ept = is_ept;
    freed = translated = flushes = flushes_of_all = 0;
    srand(7);
    memset(cpus, 0, sizeof(cpus));
    model_on_free = check_free;
    for (unsigned i = 0; i < CPUS; i++) {
        cpus[i].vm = cpus[i].vcpu = -1;
        tlb_tags_init(&cpus[i].tags, TAGS);
        cpus[i].tags.flushes_one = flushes_one;
    }
    for (unsigned i = 0; i < VMS; i++) vm_start(&vms[i]);

    for (unsigned n = 0; n < STEPS; n++) {
        unsigned cpu = (unsigned)rand() % CPUS, vm = (unsigned)rand() % VMS;

        switch (rand() % 16) {
        case 0:
            save(cpu);
            load(cpu);
            break;
        case 1: map_or_unmap(&vms[vm]); break;
        case 2: reap(&vms[vm]); break;
        case 3:
        case 4:
            enter(cpu); /* an exit, and the next entry */
            break;
        case 5:
            if (rand() % 64 == 0)
                vm_restart(vm);
            else if (cpus[cpu].vm >= 0)
                tlb_forget(&vms[cpus[cpu].vm].vcpu[cpus[cpu].vcpu].user);
            break;
        default: translate(cpu);
        }
    }
    assert_true(freed > 1000 && translated > 50000 && flushes > 100);
    for (unsigned i = 0; i < VMS; i++) {
        vm_restart(i);
        npt_fini(&vms[i].npt);
    }
    assert_int_equal(model_in_use, 0);
}

static void test_tagged_only(void **state) { run_model(false, false); }

static void test_cached_by_root_too(void **state) { run_model(true, false); }

/* A CPU that can flush a single tag uses up fewer of them. New tags are needed only for vCPUs that
 * move, so everything is flushed less often. */
static void test_flush_of_one_tag(void **state) {
    u64 before;

    run_model(false, false);
    before = flushes_of_all;
    run_model(false, true);
    assert_true(flushes_of_all > 0 && flushes_of_all < before);
}

/* A guest that causes any number of flushes never makes others lose their translations. */
static void test_flushes_of_one_vcpu(void **state) {
    struct tlbgen g;
    struct tlb_tags tags;
    struct tlb_user u = { 0 };
    struct flush_ctx ctx = { &cpus[0], 0, &u };

    tlb_tags_init(&tags, TAGS);
    tags.flushes_one = true;
    assert_int_equal(tlbgen_init(&g), 0);
    flushes = flushes_of_all = 0;
    tlb_load(&g, &tags, &u, 0);
    tlb_prepare(&g, &tags, &u, 0, flush, &ctx);
    for (u32 i = 1; i < 3 * TAGS; i++) {
        tlb_forget(&u);
        tlb_prepare(&g, &tags, &u, 0, flush, &ctx);
        assert_int_equal(u.tag, 1);
        assert_int_equal(flushes, i + 1); /* the first entry flushes as well, as nobody has yet */
    }
    assert_int_equal(flushes_of_all, 0);
    tlb_save(&g, 0);
    tlbgen_fini(&g);
}

/* The waiting itself: a frame is held back exactly as long as a pCPU has not passed. */
static void test_passing(void **state) {
    struct tlbgen g;
    struct tlb_tags tags;
    struct tlb_user u = { 0 };
    struct flush_ctx ctx = { &cpus[0], 0, &u };
    u64 gen;

    tlb_tags_init(&tags, TAGS);
    assert_int_equal(tlbgen_init(&g), 0);
    assert_true(tlbgen_passed(&g, tlbgen_bump(&g)));
    tlb_load(&g, &tags, &u, 0);
    gen = tlbgen_bump(&g);
    assert_false(tlbgen_passed(&g, gen));
    assert_true(tlb_stale(&g, &u));
    tlb_prepare(&g, &tags, &u, 0, flush, &ctx);
    assert_false(tlb_stale(&g, &u));
    assert_true(tlbgen_passed(&g, gen));
    gen = tlbgen_bump(&g);
    assert_false(tlbgen_passed(&g, gen));
    tlb_save(&g, 0);
    assert_true(tlbgen_passed(&g, gen));
    tlb_load(&g, &tags, &u, 0);
    assert_true(tlb_stale(&g, &u));
    tlb_save(&g, 0);
    tlb_load(&g, &tags, &u, TAKT_MAX_CPUS - 1); /* the last pCPU counts as well */
    assert_false(tlbgen_passed(&g, tlbgen_bump(&g)));
    tlbgen_fini(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passing),
        cmocka_unit_test(test_tagged_only),
        cmocka_unit_test(test_cached_by_root_too),
        cmocka_unit_test(test_flush_of_one_tag),
        cmocka_unit_test(test_flushes_of_one_vcpu),
    };

    model_setup();
    return cmocka_run_group_tests_name("tlbgen", tests, NULL, NULL);
}
