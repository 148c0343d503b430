/* The guest's own page tables, walked in software: SDM 3A chapter 4. Protection keys are not looked at. */
#include <takt/errno.h>
#include "lib/string.h"
#include "virt/vendor.h"

#define PTE_P   BIT(0)
#define PTE_W   BIT(1)
#define PTE_U   BIT(2)
#define PTE_A   BIT(5)
#define PTE_D   BIT(6)
#define PTE_PS  BIT(7)
#define PTE_NX  BIT(63)

#define PF_P    1u
#define PF_W    2u
#define PF_U    4u
#define PF_RSVD 8u
#define PF_I    16u

void insn_forget(struct virt_vcpu *v) {
    for (unsigned i = 0; i < INSN_CACHE; i++) v->insn[i].cr3 = ~0ull;
}

/* The byte at `va` in long mode, without a look at rights; NULL if it is not in RAM. The entries on the way
 * go to *c, with 4 levels; those of a large page's missing levels are copies of the last. */
static const u8 *code_byte(const struct guestmem *m, u64 cr3, unsigned levels, u64 va, struct insn_at *c) {
    unsigned shift = PAGE_SHIFT + 9 * levels, n = 0;
    u64 e = cr3, size, room;
    const u64 *table, *at;

    do {
        table = guestmem_at(m, e & ADDR_52, &room);
        if (!table) return NULL;
        shift -= 9;
        at = &table[va >> shift & 511];
        e = __atomic_load_n(at, __ATOMIC_RELAXED);
        if (!(e & PTE_P)) return NULL;
        c->entry[n & (INSN_LEVELS - 1)] = at;
        c->value[n++ & (INSN_LEVELS - 1)] = e;
    } while (shift > PAGE_SHIFT && !(e & PTE_PS));
    for (; n < INSN_LEVELS; n++) {
        c->entry[n] = at;
        c->value[n] = e;
    }
    size = BIT(shift);
    return guestmem_at(m, (e & ADDR_52 & ~(size - 1)) | (va & (size - 1)), &room);
}

const u8 *insn_find(struct virt_vcpu *v, u64 cr3, u64 rip) {
    struct insn_at *c = &v->insn[rip & (INSN_CACHE - 1)];

    c->cr3 = ~0ull;
    if ((rip & (PAGE_SIZE - 1)) > PAGE_SIZE - 15) return NULL;
    c->bytes = code_byte(v->vm->mem, cr3, INSN_LEVELS, rip, c);
    if (c->bytes) {
        c->rip = rip;
        c->cr3 = cr3;
    }
    return c->bytes;
}

/* One walk: what it depends on, and the entries that it went through. */
struct walk {
    const struct guestmem *mem;
    u64 cr0, cr3, cr4, efer, rflags;
    unsigned access;
    unsigned levels; /* 0: no paging; 2: entries of 32 bits */
    unsigned depth;
    struct {
        void *at;
        u64 value;
    } entry[5];
    unsigned page_shift;
};

static void walk_init(struct walk *w, struct virt_vcpu *v, unsigned access) {
    *w = (struct walk){
        .mem = v->vm->mem,
        .cr0 = virt->get_reg(v, VREG_CR0),
        .cr3 = virt->get_reg(v, VREG_CR3),
        .cr4 = virt->get_reg(v, VREG_CR4),
        .efer = virt->get_reg(v, VREG_EFER),
        .rflags = v->regs.rflags,
        .access = access,
    };
    if (!(w->cr0 & CR0_PG))
        w->levels = 0;
    else if (w->efer & EFER_LMA)
        w->levels = w->cr4 & CR4_LA57 ? 5 : 4;
    else
        w->levels = w->cr4 & CR4_PAE ? 3 : 2;
}

static u64 load_entry(const struct walk *w, const void *at) {
    return w->levels == 2 ? __atomic_load_n((const u32 *)at, __ATOMIC_RELAXED)
                          : __atomic_load_n((const u64 *)at, __ATOMIC_RELAXED);
}

/* Bits that must be 0 in an entry at `level` (1: of a 4 KiB page); `leaf`: it maps a page. Bits above the
 * guest's physical addresses lead out of its RAM and are found out there. */
static u64 reserved_bits(const struct walk *w, unsigned level, bool leaf) {
    u64 r = 0;

    if (w->levels == 2) return leaf && level == 2 ? BIT(21) : 0;
    if (w->levels == 3 && level == 3)
        return 0xfff00000000001c6ull; /* of a PDPTE: SDM 3A table 4-8; but QEMU's CPU sets bit 5 */
    if (!(w->efer & EFER_NXE)) r |= PTE_NX;
    if (w->levels == 3) r |= 0x7ff0000000000000ull;
    if (leaf && level > 1) r |= (BIT(12 + 9 * (level - 1)) - 1) & ~0x1fffull;
    if (level >= 4) r |= PTE_PS;
    return r;
}

static bool maps_page(const struct walk *w, unsigned level, u64 e) {
    if (level == 1) return true;
    if (!(e & PTE_PS)) return false;
    if (w->levels == 2) return w->cr4 & CR4_PSE;
    return level == 2 || (level == 3 && w->levels > 3);
}

/* The #PF error code of the access against the rights gathered on the way, 0 if it is allowed. */
static u32 check_rights(const struct walk *w, u64 all, u64 any) {
    bool user = w->access & GA_USER, write = w->access & GA_WRITE, exec = w->access & GA_EXEC;
    bool user_page = all & PTE_U;

    if (user && !user_page) return PF_P;
    if (write && !(all & PTE_W) && (user || w->cr0 & CR0_WP)) return PF_P;
    if (exec && any & PTE_NX && w->efer & EFER_NXE) return PF_P;
    if (!user && user_page && exec && w->cr4 & CR4_SMEP) return PF_P;
    if (!user && user_page && !exec && w->cr4 & CR4_SMAP && !(w->rflags & RFLAGS_AC)) return PF_P;
    return 0;
}

/* Goes down the tables. True and *gpa, or false and the P and RSVD bits of the error code. */
static bool descend(struct walk *w, u64 gva, gpa_t *gpa, u32 *fault) {
    unsigned bits = w->levels == 2 ? 10 : 9;
    u64 table = w->levels == 3 ? w->cr3 & 0xffffffe0u : w->cr3 & ADDR_52;
    u64 all = PTE_W | PTE_U, any = 0, room, e = 0, size;
    unsigned level;

    *fault = 0;
    for (level = w->levels;; level--) {
        unsigned index = gva >> (12 + bits * (level - 1)) & ((1u << bits) - 1);
        void *at = guestmem_at(w->mem, table + index * (w->levels == 2 ? 4 : 8), &room);

        if (!at) return false; /* a table that is not in RAM reads as empty */
        e = load_entry(w, at);
        if (!(e & PTE_P)) return false;
        w->entry[w->depth].at = at;
        w->entry[w->depth++].value = e;
        if (e & reserved_bits(w, level, maps_page(w, level, e))) {
            *fault = PF_P | PF_RSVD;
            return false;
        }
        if (!(w->levels == 3 && level == 3)) { /* PDPTEs of PAE grant nothing and forbid nothing */
            all &= e;
            any |= e;
        }
        if (maps_page(w, level, e)) break;
        table = e & ADDR_52;
    }
    *fault = check_rights(w, all, any);
    w->page_shift = 12 + bits * (level - 1);
    size = BIT(w->page_shift);
    *gpa = (e & ADDR_52 & ~(size - 1)) | (gva & (size - 1));
    if (w->levels == 2 && level == 2) *gpa |= (e >> 13 & 0xff) << 32; /* PSE-36 */
    return !*fault;
}

/* Sets A on the way and D in the leaf. False: an entry changed under us. */
static bool set_accessed(struct walk *w) {
    for (unsigned i = 0; i < w->depth; i++) {
        bool leaf = i == w->depth - 1;
        u64 old = w->entry[i].value, new = old | PTE_A | (leaf && w->access & GA_WRITE ? PTE_D : 0);
        u32 old32 = (u32)old;

        if (new == old || (w->levels == 3 && i == 0)) continue;
        if (w->levels == 2 ? !__atomic_compare_exchange_n((u32 *)w->entry[i].at, &old32, (u32) new, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)
                           : !__atomic_compare_exchange_n((u64 *)w->entry[i].at, &old, new, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return false;
    }
    return true;
}

int guest_translate(struct virt_vcpu *v, u64 gva, unsigned access, gpa_t *gpa, u32 *fault) {
    struct walk w;

    walk_init(&w, v, access);
    if (w.levels < 4) gva = (u32)gva;
    if (!w.levels) {
        *gpa = gva;
        return 0;
    }
    if (w.levels > 3 && (u64)((i64)(gva << (w.levels == 5 ? 7 : 16)) >> (w.levels == 5 ? 7 : 16)) != gva) {
        *fault = GUEST_NOT_CANONICAL;
        return -EFAULT;
    }
    do {
        w.depth = 0;
        if (!descend(&w, gva, gpa, fault)) goto fault;
    } while (!set_accessed(&w));
    return 0;

fault:
    *fault |= (access & GA_WRITE ? PF_W : 0) | (access & GA_USER ? PF_U : 0);
    if (access & GA_EXEC && (w.efer & EFER_NXE || w.cr4 & CR4_SMEP)) *fault |= PF_I;
    return -EFAULT;
}

/* Some bytes at `va`, as far as the page goes. */
static unsigned fetch_page(struct virt_vcpu *v, u64 va, u8 *buf, unsigned max) {
    gpa_t gpa;
    u32 fault;
    u64 room;
    const u8 *p;

    if (guest_translate(v, va, GA_EXEC | (virt->cpl(v) == 3 ? GA_USER : 0), &gpa, &fault)) return 0;
    p = guestmem_at(v->vm->mem, gpa, &room);
    if (!p) return 0;
    max = (unsigned)MIN(max, PAGE_SIZE - (va & (PAGE_SIZE - 1)));
    memcpy(buf, p, max);
    return max;
}

unsigned guest_fetch(struct virt_vcpu *v, u8 *buf, unsigned max) {
    struct insn_at unused;
    struct guest_seg cs;
    u64 va = v->regs.rip, cr3;
    unsigned levels, n = 0;

    max = MIN(max, 15u);
    virt->get_seg(v, SEG_CS, &cs);
    if (!(virt->get_reg(v, VREG_EFER) & EFER_LMA)) {
        va = (u32)(cs.base + va);
        n = fetch_page(v, va, buf, max);
        return n && n < max ? n + fetch_page(v, va + n, buf + n, max - n) : n;
    }
    if (!(cs.attr & ATTR_LONG)) va = (u32)(cs.base + va);
    cr3 = virt->get_reg(v, VREG_CR3);
    levels = virt->get_reg(v, VREG_CR4) & CR4_LA57 ? 5 : 4;
    while (n < max) {
        const u8 *p = code_byte(v->vm->mem, cr3, levels, va + n, &unused);
        unsigned end = MIN(max, n + (unsigned)(PAGE_SIZE - ((va + n) & (PAGE_SIZE - 1))));

        if (!p) break;
        while (n < end) buf[n++] = *p++;
    }
    return n;
}
