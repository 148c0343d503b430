/* The walk through the guest's page tables in software. By it the hypervisor finds an
 * instruction that it has to emulate or to skip, and its length. A second fault in a first one
 * becomes a double fault, as in the processor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "frame_model.h"
#include "virt/vendor.h"

#define P  0x1ull
#define W  0x2ull
#define U  0x4ull
#define A  0x20ull
#define D  0x40ull
#define PS 0x80ull
#define NX BIT(63)

enum { PF_P = 1, PF_W = 2, PF_U = 4, PF_RSVD = 8, PF_I = 16 };

enum {
    INSN_CPUID = 0xa20f,
    INSN_RDMSR = 0x320f,
    INSN_HLT = 0xf4,
    INSN_PAUSE = 0x90,
    INSN_VMMCALL = 0xd9010f
};
enum { INSN_MOV_FROM_CR = 0x200f, INSN_MOV_TO_CR = 0x220f };

/* ---- a vCPU whose registers are an array ---- */

static u64 regs[VREG_NR];
static struct guest_seg cs;
static unsigned cpl;
static bool shadow;

static u64 get_reg(struct virt_vcpu *v, enum virt_reg reg) { return regs[reg]; }

static void set_reg(struct virt_vcpu *v, enum virt_reg reg, u64 value) { regs[reg] = value; }

static void get_seg(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *s) { *s = cs; }

static void clear_shadow(struct virt_vcpu *v) { shadow = false; }

static unsigned get_cpl(struct virt_vcpu *v) { return cpl; }

static const struct virt_ops fake = { .get_reg = get_reg,
                                      .set_reg = set_reg,
                                      .get_seg = get_seg,
                                      .clear_shadow = clear_shadow,
                                      .cpl = get_cpl };
static struct guestmem mem;
static struct virt_vm vm = { .mem = &mem };
static struct virt_vcpu v = { .vm = &vm };

enum mode { NO_PAGING, BITS32, PAE, LEVELS4 };

static int setup(void **state) {
    model_setup();
    virt = &fake;
    assert_int_equal(guestmem_init(&mem, 4 * CHUNK_SIZE), 0);
    assert_int_equal(npt_init(&vm.npt, &npt_format_ept), 0);
    while (guestmem_grow(&mem) == 0) memset(hpa_to_va(mem.chunk[mem.grown - 1]), 0, CHUNK_SIZE);
    memset(regs, 0, sizeof(regs));
    memset(&v.regs, 0, sizeof(v.regs));
    v.pending.type = EVENT_NONE;
    code_forget(&v);
    cs = (struct guest_seg){ 8, 0xc9b, 0xffffffff, 0 };
    cpl = 0;
    return 0;
}

static int teardown(void **state) {
    guestmem_fini(&mem);
    npt_fini(&vm.npt);
    assert_int_equal(model_in_use, 0);
    return 0;
}

static void set_mode(enum mode m) {
    regs[VREG_CR0] = m == NO_PAGING ? CR0_PE : CR0_PE | CR0_PG | CR0_WP;
    regs[VREG_CR4] = m == BITS32 ? CR4_PSE : CR4_PAE;
    regs[VREG_EFER] = m == LEVELS4 ? EFER_LME | EFER_LMA | EFER_NXE : 0;
    cs.attr = m == LEVELS4 ? 0xa9b : 0xc9b;
    regs[VREG_CR3] = 0x1000;
}

static void put64(gpa_t at, u64 e) { assert_int_equal(guestmem_write(&mem, at, &e, 8), 0); }

static u64 entry64(gpa_t at) {
    u64 e;

    assert_int_equal(guestmem_read(&mem, at, &e, 8), 0);
    return e;
}

static void put32(gpa_t at, u32 e) { assert_int_equal(guestmem_write(&mem, at, &e, 4), 0); }

/* Linear 0x40201000 + x -> 0x300000 + x by tables at 0x1000, 0x2000, 0x3000, 0x4000, with `leaf`
 * bits at the end. */
#define VA 0x40201000ull

static void map4(u64 leaf) {
    put64(0x1000, 0x2000 | P | W | U);
    put64(0x2000 + 1 * 8, 0x3000 | P | W | U);
    put64(0x3000 + 1 * 8, 0x4000 | P | W | U);
    put64(0x4000 + 1 * 8, 0x300000 | leaf);
}

static void ok(u64 va, unsigned access, gpa_t want) {
    gpa_t gpa = 0;
    u32 fault = 0x77;

    assert_int_equal(guest_translate(&v, va, access, &gpa, &fault), 0);
    assert_int_equal(gpa, want);
}

static void fails(u64 va, unsigned access, u32 want) {
    gpa_t gpa;
    u32 fault = 0x77;

    assert_int_equal(guest_translate(&v, va, access, &gpa, &fault), -EFAULT);
    assert_int_equal(fault, want);
}

/* ---- translation ---- */

static void test_no_paging(void **state) {
    set_mode(NO_PAGING);
    ok(0x12345678, GA_WRITE, 0x12345678);
    ok(0xffffffff00000010, GA_READ, 0x10);
}

static void test_32_bit(void **state) {
    set_mode(BITS32);
    put32(0x1000 + 4 * 0x101, 0x2000 | P | W);
    put32(0x2000 + 4 * 3, 0x300000 | P | W);
    ok(0x40403abc, GA_WRITE, 0x300abc);
    fails(0x40403abc, GA_READ | GA_USER, PF_P | PF_U);
    fails(0x40404000, GA_WRITE, PF_W);
    /* A page of 4 MiB, whose entry has bits 33:32 of the address (PSE-36). */
    put32(0x1000 + 4 * 0x102, 0x00400000 | P | PS | 3 << 13);
    ok(0x40812345, GA_READ, 0x300412345);
    put32(0x1000 + 4 * 0x102, 0x00400000 | P | PS | 1 << 21);
    fails(0x40812345, GA_READ, PF_P | PF_RSVD);
    /* Without PSE the bit PS means nothing. The entry then names a table, which is beyond RAM. */
    regs[VREG_CR4] = 0;
    put32(0x1000 + 4 * 0x102, 0x7fc00000 | P | PS);
    fails(0x40812345, GA_READ, 0);
}

/* Tables may lie where the VM has no RAM but something else is mapped, as its shared page: the
 * CPU finds them there. It cannot set bits in what the VM may not write. */
static void test_tables_in_mapped_pages(void **state) {
    hpa_t page = frame_alloc_zeroed(0);
    u64 *table = hpa_to_va(page);

    set_mode(LEVELS4);
    map4(P | W | A);
    put64(0x3000 + 1 * 8, TAKT_SHARED_GPA | P | W | A);
    table[1] = 0x300000 | P | W;
    fails(VA, GA_READ, 0);
    assert_int_equal(npt_map(&vm.npt, TAKT_SHARED_GPA, page, PAGE_SIZE, NPT_RW, NPT_WB), 0);
    ok(VA + 5, GA_WRITE, 0x300005);
    assert_int_equal(table[1], 0x300000 | P | W | A | D);
    table[1] = 0x300000 | P | W;
    assert_int_equal(npt_map(&vm.npt, TAKT_SHARED_GPA, page, PAGE_SIZE, NPT_R, NPT_WB), 0);
    ok(VA + 5, GA_READ, 0x300005);
    assert_int_equal(table[1], 0x300000 | P | W);
    v.regs.rip = VA;
    put64(0x300000, 0xf4);
    assert_int_equal(guest_fetch(&v, (u8[1]){ 0 }, 1), 1); /* instructions are found, too */
    /* The result of this walk must not be cached, because what is mapped there may change. */
    assert_null(code_find(&v, 0x1000, VA));
    assert_int_equal(npt_unmap(&vm.npt, TAKT_SHARED_GPA, PAGE_SIZE), 0);
    frame_free(page, 0);
}

static void test_pae(void **state) {
    set_mode(PAE);
    regs[VREG_CR3] = 0x1020;
    put64(0x1020 + 1 * 8, 0x3000 | P); /* a PDPTE has no rights */
    put64(0x3000 + 1 * 8, 0x4000 | P | W | U);
    put64(0x4000 + 1 * 8, 0x300000 | P | W | U);
    ok(VA + 5, GA_WRITE | GA_USER, 0x300005);
    assert_int_equal(entry64(0x1028), 0x3000 | P); /* and no accessed bit */
    put64(0x3000 + 2 * 8, 0x400000 | P | W | PS);
    ok(0x40412345, GA_WRITE, 0x412345);
    put64(0x4000 + 1 * 8, 0x300000 | P | W | NX); /* reserved without EFER.NXE */
    fails(VA, GA_READ, PF_P | PF_RSVD);
    regs[VREG_EFER] = EFER_NXE;
    ok(VA, GA_READ, 0x300000);
    fails(VA, GA_EXEC, PF_P | PF_I);
    put64(0x1028, 0x3000 | P | W); /* reserved in a PDPTE */
    fails(VA, GA_READ, PF_P | PF_RSVD);
}

static void test_4_and_5_levels(void **state) {
    set_mode(LEVELS4);
    map4(P | W | U);
    ok(VA + 0xfff, GA_READ, 0x300fff);
    put64(0x2000 + 2 * 8, 0x600000 | P | PS | 1 << 21); /* 1 GiB, misaligned */
    fails(0x80000000, GA_READ, PF_P | PF_RSVD);
    put64(0x2000 + 2 * 8, 0x40000000 | P | PS);
    ok(0x80000000 + 0x123456, GA_READ, 0x40123456);
    put64(0x3000 + 2 * 8, 0x400000 | P | PS | BIT(12)); /* 2 MiB; bit 12 is PAT */
    ok(0x40400000, GA_READ, 0x400000);
    put64(0x1000 + 1 * 8, 0x2000 | P | PS); /* reserved at the top */
    fails(BIT(39), GA_READ, PF_P | PF_RSVD);
    fails(0x0000800000000000, GA_READ, GUEST_NOT_CANONICAL);
    fails(0xffff7fffffffffff, GA_READ, GUEST_NOT_CANONICAL);
    fails(0xffffffffffffffff, GA_READ, 0);
}

static void test_tables_outside_ram(void **state) {
    set_mode(LEVELS4);
    regs[VREG_CR3] = mem.size;
    fails(VA, GA_READ, 0);
    regs[VREG_CR3] = 0x000ffffffffff000;
    fails(VA, GA_READ, 0);
}

static void test_rights(void **state) {
    static const struct {
        u64 leaf;
        unsigned access;
        u32 fault; /* 0: none */
    } t[] = {
        { P, GA_READ, 0 },
        { P, GA_WRITE, PF_P | PF_W },
        { P, GA_READ | GA_USER, PF_P | PF_U },
        { P | U, GA_READ | GA_USER, 0 },
        { P | U, GA_WRITE | GA_USER, PF_P | PF_W | PF_U },
        { P | U | W, GA_WRITE | GA_USER, 0 },
        { P | W, GA_EXEC, 0 },
        { P | W | NX, GA_EXEC, PF_P | PF_I },
        { P | U | NX, GA_EXEC | GA_USER, PF_P | PF_U | PF_I },
        { W | U, GA_WRITE | GA_USER, PF_W | PF_U },
        { W | U, GA_EXEC, PF_I },
    };

    set_mode(LEVELS4);
    for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
        map4(t[i].leaf);
        if (t[i].fault)
            fails(VA, t[i].access, t[i].fault);
        else if (!(t[i].leaf & P))
            fail();
        else
            ok(VA, t[i].access, 0x300000);
    }
    map4(P | W | U); /* the rights of a table above count as well */
    put64(0x2008, 0x3000 | P | U);
    fails(VA, GA_WRITE, PF_P | PF_W);
    regs[VREG_CR0] &= ~CR0_WP;
    ok(VA, GA_WRITE, 0x300000);
    fails(VA, GA_WRITE | GA_USER, PF_P | PF_W | PF_U);
}

static void test_smep_smap(void **state) {
    set_mode(LEVELS4);
    map4(P | W | U);
    ok(VA, GA_EXEC, 0x300000);
    regs[VREG_CR4] |= CR4_SMEP;
    fails(VA, GA_EXEC, PF_P | PF_I);
    ok(VA, GA_EXEC | GA_USER, 0x300000);
    ok(VA, GA_READ, 0x300000);
    regs[VREG_CR4] |= CR4_SMAP;
    fails(VA, GA_READ, PF_P);
    v.regs.rflags = RFLAGS_AC;
    ok(VA, GA_READ, 0x300000);
    fails(VA, GA_EXEC, PF_P | PF_I);
}

static void test_accessed_and_dirty(void **state) {
    set_mode(LEVELS4);
    map4(P | U);
    fails(VA, GA_WRITE, PF_P | PF_W);
    assert_int_equal(entry64(0x1000), 0x2000 | P | W | U); /* a fault sets nothing */
    ok(VA, GA_READ, 0x300000);
    assert_int_equal(entry64(0x1000), 0x2000 | P | W | U | A);
    assert_int_equal(entry64(0x3008), 0x4000 | P | W | U | A);
    assert_int_equal(entry64(0x4008), 0x300000 | P | U | A);
    map4(P | W);
    ok(VA, GA_WRITE, 0x300000);
    assert_int_equal(entry64(0x4008), 0x300000 | P | W | A | D);
    assert_int_equal(entry64(0x3008), 0x4000 | P | W | U | A); /* dirty is the leaf's alone */
}

/* ---- code ---- */

static void test_fetch(void **state) {
    u8 code[16], buf[15];

    for (unsigned i = 0; i < sizeof(code); i++) code[i] = (u8)(i + 1);
    set_mode(LEVELS4);
    map4(P | U);
    put64(0x4000 + 2 * 8, 0x500000 | P);
    assert_int_equal(guestmem_write(&mem, 0x300ff8, code, 8), 0);
    assert_int_equal(guestmem_write(&mem, 0x500000, code + 8, 8), 0);
    v.regs.rip = VA + 0xff8;
    assert_int_equal(guest_fetch(&v, buf, 15), 15);
    assert_memory_equal(buf, code, 15);
    put64(0x4000 + 2 * 8, 0);
    assert_int_equal(guest_fetch(&v, buf, 15), 8); /* stops at the page that is not there */
    put64(0x4000 + 1 * 8, mem.size | P);
    assert_int_equal(guest_fetch(&v, buf, 15), 0);

    set_mode(NO_PAGING);
    cs.base = 0xfffff000; /* base + EIP wraps at 4 GiB */
    v.regs.rip = 0x1000 + 0x300ff8;
    assert_int_equal(guest_fetch(&v, buf, 4), 4);
    assert_memory_equal(buf, code, 4);
}

/* Is the page of `va` remembered in one of the two slots where it is looked for first? */
static bool remembered(u64 tables, u64 va) { return code_cached(&v, tables, va) != NULL; }

static bool remembered_anywhere(u64 tables, u64 va) {
    for (unsigned i = 0; i < CODE_PAGES; i++)
        if (code_holds(&v.code[i], tables, va >> PAGE_SHIFT)) return true;
    return false;
}

/* What was found once is only used as long as a walk would find it again. */
static void test_found_code_is_checked(void **state) {
    const u8 a = 0xaa, b = 0xbb;
    const u8 *first;

    set_mode(LEVELS4);
    map4(P | U);
    assert_int_equal(guestmem_write(&mem, 0x300010, &a, 1), 0);
    assert_int_equal(guestmem_write(&mem, 0x500010, &b, 1), 0);
    assert_false(remembered(0x1000, VA));
    first = code_at(&v, 0x1000, VA + 0x10);
    assert_int_equal(*first, a);
    assert_true(remembered(0x1000, VA));
    assert_ptr_equal(code_at(&v, 0x1000, VA + 0xfff), first + 0xfef); /* the whole page */
    assert_false(remembered(0x9000, VA));                             /* another CR3 */
    for (unsigned level = 0; level < 4; level++) {
        gpa_t at = (gpa_t[]){ 0x1000, 0x2008, 0x3008, 0x4008 }[level];
        u64 old = entry64(at);

        put64(at, 0);
        assert_false(remembered(0x1000, VA));
        assert_null(code_at(&v, 0x1000, VA + 0x10));
        put64(at, old);
        assert_int_equal(*code_at(&v, 0x1000, VA + 0x10), a);
    }
    put64(0x4008, 0x500000 | P);
    assert_int_equal(*code_at(&v, 0x1000, VA + 0x10), b);
    put64(0x3008, 0x600000 | P | PS); /* a 2 MiB page over it */
    assert_int_equal(guestmem_write(&mem, 0x601010, &a, 1), 0);
    assert_int_equal(*code_at(&v, 0x1000, VA + 0x10), a);
    assert_true(remembered(0x1000, VA));
}

/* Pages are also remembered for guests that are not in long mode, and an entry of 32 bits that
 * changes is noticed. A neighbour of it that changes does no harm. */
static void test_found_code_of_each_format(void **state) {
    const u8 a = 0xaa, b = 0xbb;
    u64 key;

    assert_int_equal(guestmem_write(&mem, 0x300010, &a, 1), 0);
    assert_int_equal(guestmem_write(&mem, 0x500010, &b, 1), 0);
    key = tables_key(CR0_PE, 0x1000, 0, 0);
    assert_int_equal(*code_at(&v, key, 0x300010), a);
    assert_true(remembered(key, 0x300010));

    /* 0x40201000 by 32-bit entries, of which the last one is an odd and then an even one */
    key = tables_key(CR0_PE | CR0_PG, 0x1000, CR4_PSE, 0);
    put32(0x1000 + 0x100 * 4, 0x2000 | P);
    put32(0x2000 + 0x201 * 4, 0x300000 | P);
    put32(0x2000 + 0x202 * 4, 0x500000 | P);
    assert_int_equal(*code_at(&v, key, VA + 0x10), a);
    assert_int_equal(*code_at(&v, key, VA + 0x1010), b);
    assert_true(remembered(key, VA));
    assert_true(remembered(key, VA + 0x1000));
    put32(0x2000 + 0x200 * 4, 0x700000 | P); /* the neighbour of the first one */
    assert_int_equal(*code_at(&v, key, VA + 0x10), a);
    put32(0x2000 + 0x201 * 4, 0x500000 | P);
    assert_int_equal(*code_at(&v, key, VA + 0x10), b);
    put32(0x1000 + 0x100 * 4, 0x400000 | P | PS); /* a 4 MiB page, if CR4.PSE is set */
    assert_int_equal(guestmem_write(&mem, 0x601010, &a, 1), 0);
    assert_int_equal(*code_at(&v, key, VA + 0x10), a);
    assert_null(code_at(&v, tables_key(CR0_PE | CR0_PG, 0x1000, 0, 0), VA + 0x10));
}

/* Pages that belong into one slot are all kept, as many as there are slots, and are found without a
 * walk. */
static void test_pages_of_one_slot_are_kept(void **state) {
    const u8 *found[CODE_PAGES];

    set_mode(LEVELS4);
    map4(P | U);
    for (u64 i = 0; i < CODE_PAGES; i++) {
        put64(0x4000 + (1 + i * CODE_PAGES) * 8, (0x300000 + i * PAGE_SIZE) | P);
        found[i] = code_at(&v, 0x1000, VA + i * CODE_PAGES * PAGE_SIZE);
        assert_non_null(found[i]);
    }
    for (unsigned round = 0; round < 2; round++)
        for (u64 i = 0; i < CODE_PAGES; i++) {
            u64 va = VA + i * CODE_PAGES * PAGE_SIZE;

            assert_true(remembered_anywhere(0x1000, va));
            assert_ptr_equal(code_at(&v, 0x1000, va), found[i]);
            assert_true(remembered(0x1000, va)); /* it has come into its first slot */
        }
    /* Of any two of them, both are found at once when each has been looked for twice. */
    for (u64 i = 1; i < CODE_PAGES; i++) {
        u64 other = VA + i * CODE_PAGES * PAGE_SIZE;

        for (unsigned round = 0; round < 2; round++) {
            code_at(&v, 0x1000, VA);
            code_at(&v, 0x1000, other);
        }
        assert_true(remembered(0x1000, VA));
        assert_true(remembered(0x1000, other));
    }
}

/* A guest that has jumped to an address that is not canonical exits there when the stack for its
 * #GP is missing; and nothing was ever found yet. */
static void test_no_rip_is_special(void **state) {
    struct virt_vcpu fresh = { .vm = &vm };

    code_forget(&fresh);
    for (unsigned i = 0; i < 64; i++) {
        assert_null(code_at(&fresh, 0, BIT(i)));
        assert_null(code_at(&fresh, 0, BIT(i)));
        assert_null(code_at(&fresh, 0, ~0ull - BIT(i)));
    }
}

static void skip_over(u64 rip, u8 len) {
    struct vm_exit e = { .insn_len = len };

    v.regs.rip = rip;
    shadow = true;
    guest_skip(&v, &e);
}

static void test_skip(void **state) {
    set_mode(LEVELS4);
    skip_over(0x1000, 2);
    assert_int_equal(v.regs.rip, 0x1002);
    assert_false(shadow);
    skip_over(0x1000, 0); /* not what was expected: again */
    assert_int_equal(v.regs.rip, 0x1000);
    assert_true(shadow);
    skip_over(0xfffffffe, 2);
    assert_int_equal(v.regs.rip, 0x100000000);
    assert_int_equal(v.pending.type, EVENT_NONE);
    /* The instruction itself was executed. Only the fetch of the next one faults, in the CPU. */
    skip_over(0x7ffffffffffe, 2);
    assert_int_equal(v.pending.type, EVENT_NONE);
    assert_int_equal(v.regs.rip, 0x800000000000);
    /* RF is set, as the IRET of a fault handler leaves it. The next instruction uses it up. */
    v.regs.rflags = RFLAGS_ONE | RFLAGS_RF;
    skip_over(0x1000, 2);
    assert_int_equal(v.regs.rflags, RFLAGS_ONE);

    set_mode(NO_PAGING);
    skip_over(0xfffffffe, 2);
    assert_int_equal(v.regs.rip, 0);
    v.regs.rflags = RFLAGS_TF;
    skip_over(0x1000, 2);
    assert_int_equal(v.regs.rip, 0x1002);
    assert_int_equal(v.pending.type, EVENT_EXCEPTION);
    assert_int_equal(v.pending.vector, EXC_DB);
    assert_int_equal(regs[VREG_DR6], BIT(14));
}

/* SDM 3A table 6-5. */
static void test_double_faults(void **state) {
    static const u8 vec[] = { EXC_DB, EXC_AC, EXC_GP, EXC_TS, EXC_PF };
    /* The row is the exception that is pending, and the column the one that is raised. The value is
     * the exception that is pending then. */
    static const u8 want[5][5] = {
        { EXC_DB, EXC_AC, EXC_GP, EXC_TS, EXC_PF }, { EXC_DB, EXC_AC, EXC_GP, EXC_TS, EXC_PF },
        { EXC_DB, EXC_AC, EXC_DF, EXC_DF, EXC_PF }, { EXC_DB, EXC_AC, EXC_DF, EXC_DF, EXC_PF },
        { EXC_DB, EXC_AC, EXC_DF, EXC_DF, EXC_DF },
    };

    for (unsigned i = 0; i < 5; i++)
        for (unsigned j = 0; j < 5; j++) {
            v.pending = (struct virt_event){ .type = EVENT_EXCEPTION, .vector = vec[i] };
            assert_true(guest_raise(&v, vec[j], true, 4));
            assert_int_equal(v.pending.vector, want[i][j]);
            assert_int_equal(v.pending.code, want[i][j] == EXC_DF ? 0 : 4);
        }
    for (unsigned j = 0; j < 5; j++) { /* a third one leads to a shutdown */
        v.pending = (struct virt_event){ .type = EVENT_EXCEPTION, .vector = EXC_DF };
        assert_int_equal(guest_raise(&v, vec[j], true, 0), vec[j] == EXC_DB || vec[j] == EXC_AC);
    }
    /* A pending interrupt does not count as an exception. */
    v.pending = (struct virt_event){ .type = EVENT_IRQ, .vector = EXC_GP };
    assert_true(guest_raise(&v, EXC_GP, true, 0));
    assert_int_equal(v.pending.vector, EXC_GP);
}

static void test_requeue(void **state) {
    event_requeue(&v, (u32)EVENT_VALID | 0x41, 0);
    assert_int_equal(v.pending.type, EVENT_IRQ);
    assert_int_equal(v.pending.vector, 0x41);
    assert_int_equal(event_encode(&v.pending, true), EVENT_VALID | 0x41);
    event_requeue(&v, (u32)(EVENT_VALID | EVENT_HAS_CODE) | 3 << 8 | EXC_PF, 6);
    assert_int_equal(v.pending.code, 6);
    assert_int_equal(event_encode(&v.pending, true),
                     EVENT_VALID | EVENT_HAS_CODE | 3 << 8 | EXC_PF);
    assert_int_equal(event_encode(&v.pending, false), EVENT_VALID | 3 << 8 | EXC_PF);
    v.pending.type = EVENT_NONE;
    event_requeue(&v, (u32)EVENT_VALID | 4 << 8 | 0x80, 0); /* INT 0x80 is executed again */
    event_requeue(&v, (u32)EVENT_VALID | 3 << 8 | EXC_BP, 0);
    assert_int_equal(v.pending.type, EVENT_NONE);
}

static void test_lengths(void **state) {
    static const struct {
        u8 bytes[17];
        u8 n, mode, want;
        u32 insn;
    } t[] = {
        { { 0x0f, 0xa2 }, 15, 64, 2, INSN_CPUID },
        { { 0x0f, 0xa2 }, 2, 16, 2, INSN_CPUID },
        { { 0x0f, 0xa2 }, 1, 64, 0, INSN_CPUID },
        { { 0x0f, 0xa3 }, 15, 64, 0, INSN_CPUID },
        { { 0x48, 0x0f, 0xa2 }, 15, 64, 3, INSN_CPUID },
        { { 0x48, 0x0f, 0xa2 }, 15, 32, 0, INSN_CPUID }, /* DEC EAX */
        { { 0x48, 0x66, 0x0f, 0xa2 }, 15, 64, 4, INSN_CPUID },
        { { 0x66, 0x2e, 0x3e, 0x67, 0xf2, 0x4f, 0x0f, 0x32 }, 15, 64, 8, INSN_RDMSR },
        { { 0xf4 }, 1, 64, 1, INSN_HLT },
        { { 0x90 }, 15, 64, 1, INSN_PAUSE }, /* a NOP by now: to skip it is to execute it */
        { { 0xf3, 0x90 }, 15, 64, 2, INSN_PAUSE },
        { { 0x0f, 0x01, 0xd9 }, 15, 64, 3, INSN_VMMCALL },
        { { 0x0f, 0x01, 0xc1 }, 15, 64, 0, INSN_VMMCALL },
        { { 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x0f,
            0xa2 },
          15,
          64,
          15,
          INSN_CPUID },
        { { 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66,
            0x0f, 0xa2 },
          16,
          64,
          0,
          INSN_CPUID }, /* too long: #GP, not an exit */
    };
    struct insn_regs regs = { 0 };

    for (unsigned i = 0; i < ARRAY_SIZE(t); i++)
        assert_int_equal(insn_length(t[i].bytes, t[i].n, t[i].mode, t[i].insn, NULL), t[i].want);
    assert_int_equal(
        insn_length((const u8[]){ 0x41, 0x0f, 0x22, 0xe3 }, 4, 64, INSN_MOV_TO_CR, &regs), 4);
    assert_int_equal(regs.rm, 11);
    assert_int_equal(regs.reg, 4);
    insn_length((const u8[]){ 0x44, 0x0f, 0x20, 0xc0 }, 4, 64, INSN_MOV_FROM_CR, &regs);
    assert_int_equal(regs.rm, 0);
    assert_int_equal(regs.reg, 8);
    assert_int_equal(insn_length((const u8[]){ 0x0f, 0x22, 0xe3 }, 2, 64, INSN_MOV_TO_CR, &regs),
                     0);
}

int main(void) {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_no_paging),
        T(test_32_bit),
        T(test_pae),
        T(test_4_and_5_levels),
        T(test_tables_outside_ram),
        T(test_tables_in_mapped_pages),
        T(test_rights),
        T(test_smep_smap),
        T(test_accessed_and_dirty),
        T(test_fetch),
        T(test_found_code_is_checked),
        T(test_found_code_of_each_format),
        T(test_pages_of_one_slot_are_kept),
        T(test_no_rip_is_special),
        T(test_skip),
        T(test_double_faults),
        T(test_requeue),
        T(test_lengths),
    };

    return cmocka_run_group_tests_name("gwalk", tests, NULL, NULL);
}
