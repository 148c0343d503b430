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

/* One walk: what it depends on, and what it found. */
struct walk {
    const struct guestmem *mem;
    const struct npt *npt; /* for tables that are in no RAM of the VM; NULL: those count as empty */
    u64 cr0, cr3, cr4, efer;
    unsigned levels; /* 0: no paging; 2: entries of 32 bits; 3: PAE */
    unsigned depth;  /* how many entries it went through */
    void *at[4];     /* where they are, and what they were */
    u64 value[4];
    bool read_only[4]; /* A and D bits are not written: the CPU could not either */
    u64 all, any;      /* rights: bits that all of them had, bits that any had */
    bool reserved;     /* one of them had a bit that must be 0 */
    gpa_t gpa;
};

static struct walk walk_of(struct virt_vcpu *v) {
    struct walk w = {
        .mem = v->vm->mem,
        .npt = &v->vm->npt,
        .cr0 = virt->get_reg(v, VREG_CR0),
        .cr3 = virt->get_reg(v, VREG_CR3),
        .cr4 = virt->get_reg(v, VREG_CR4),
        .efer = virt->get_reg(v, VREG_EFER),
    };

    if (w.efer & EFER_LMA)
        w.levels = 4;
    else if (w.cr0 & CR0_PG)
        w.levels = w.cr4 & CR4_PAE ? 3 : 2;
    return w;
}

/* Bits that must be 0 in an entry at `level` (1: of a 4 KiB page); `leaf`: it maps a page. Bits above the
 * guest's physical addresses lead out of its RAM and are found out there. */
static u64 reserved_bits(const struct walk *w, unsigned level, bool leaf) {
    u64 r = 0;

    if (w->levels == 2) return leaf && level == 2 ? BIT(21) : 0;
    /* of a PDPTE: SDM 3A table 4-8; but QEMU's CPU sets bit 5 */
    if (w->levels == 3 && level == 3) return 0xfff00000000001c6ull;
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

/* Where the CPU finds an entry of a table: in RAM, or in a page that was mapped for the VM besides,
 * such as the shared page or a window on another VM's RAM. NULL: nowhere, and so it reads as empty. */
static void *entry_at(struct walk *w, gpa_t gpa) {
    u64 room;
    void *at = guestmem_at(w->mem, gpa, &room);
    bool writable = true;
    hpa_t hpa;

    if (!at && w->npt) {
        hpa = npt_find(w->npt, gpa, &writable);
        at = hpa == HPA_NONE ? NULL : hpa_to_va(hpa);
    }
    w->read_only[w->depth] = !writable;
    return at;
}

/* Goes down the tables to w->gpa. False: an entry is not present. */
static bool descend(struct walk *w, u64 va) {
    unsigned entry_size = w->levels == 2 ? 4 : 8, bits = w->levels == 2 ? 10 : 9, shift;
    u64 table = w->levels == 3 ? w->cr3 & 0xffffffe0u : w->cr3 & ADDR_52;
    bool leaf = false;
    u64 e = 0;

    w->depth = 0;
    w->all = PTE_W | PTE_U;
    w->any = w->reserved = 0;
    for (unsigned level = w->levels; !leaf; level--) {
        shift = PAGE_SHIFT + bits * (level - 1);
        void *at = entry_at(w, table + (va >> shift & (BIT(bits) - 1)) * entry_size);

        if (!at) return false;
        e = entry_size == 4 ? __atomic_load_n((u32 *)at, __ATOMIC_RELAXED)
                            : __atomic_load_n((u64 *)at, __ATOMIC_RELAXED);
        if (!(e & PTE_P)) return false;
        leaf = maps_page(w, level, e);
        w->at[w->depth] = at;
        w->value[w->depth++] = e;
        w->reserved |= (e & reserved_bits(w, level, leaf)) != 0;
        /* PDPTEs of PAE grant nothing and forbid nothing */
        if (w->levels == 3 && level == 3) e |= PTE_W | PTE_U;
        w->all &= e;
        w->any |= e;
        table = e & ADDR_52;
    }
    w->gpa = (table & ~(BIT(shift) - 1)) | (va & (BIT(shift) - 1));
    if (w->levels == 2 && shift > PAGE_SHIFT) w->gpa |= (e >> 13 & 0xff) << 32; /* PSE-36 */
    return true;
}

/* Do the rights gathered on the way allow the access? */
static bool allowed(const struct walk *w, unsigned access, u64 rflags) {
    bool user = access & GA_USER, exec = access & GA_EXEC, user_page = w->all & PTE_U;

    if (user && !user_page) return false;
    if (access & GA_WRITE && !(w->all & PTE_W) && (user || w->cr0 & CR0_WP)) return false;
    if (exec && w->any & PTE_NX && w->efer & EFER_NXE) return false;
    if (user || !user_page) return true;
    return !(exec ? w->cr4 & CR4_SMEP : w->cr4 & CR4_SMAP && !(rflags & RFLAGS_AC));
}

/* Sets A on the way and D in the leaf; both are in the lower half. False: an entry changed under us. */
static bool set_accessed(const struct walk *w, bool write) {
    for (unsigned i = 0; i < w->depth; i++) {
        u32 old = (u32)w->value[i], new = old | PTE_A | (i == w->depth - 1 && write ? PTE_D : 0);

        if (new == old || w->read_only[i] || (w->levels == 3 && i == 0)) continue;
        if (!__atomic_compare_exchange_n((u32 *)w->at[i], &old, new, false, __ATOMIC_RELAXED,
                                         __ATOMIC_RELAXED))
            return false;
    }
    return true;
}

int guest_translate(struct virt_vcpu *v, u64 gva, unsigned access, gpa_t *gpa, u32 *fault) {
    struct walk w = walk_of(v);

    if (w.levels < 4) gva = (u32)gva;
    *gpa = gva;
    if (!w.levels) return 0;
    *fault = GUEST_NOT_CANONICAL;
    if (w.levels > 3 && !is_canonical(gva)) return -EFAULT;
    do {
        bool present = descend(&w, gva);

        *gpa = w.gpa;
        *fault = w.reserved ? PF_P | PF_RSVD : present ? PF_P : 0;
        if (w.reserved || !present || !allowed(&w, access, v->regs.rflags)) {
            *fault |= (access & GA_WRITE ? PF_W : 0) | (access & GA_USER ? PF_U : 0);
            if (access & GA_EXEC && (w.efer & EFER_NXE || w.cr4 & CR4_SMEP)) *fault |= PF_I;
            return -EFAULT;
        }
    } while (!set_accessed(&w, access & GA_WRITE));
    return 0;
}

/* ---- code: the CPU has just fetched it, so rights are not looked at ---- */

void insn_forget(struct virt_vcpu *v) {
    for (unsigned i = 0; i < INSN_CACHE; i++) v->insn[i].cr3 = ~0ull;
}

const u8 *insn_find(struct virt_vcpu *v, u64 cr3, u64 rip) {
    struct walk w = { .mem = v->vm->mem, .cr3 = cr3, .levels = INSN_LEVELS };
    struct insn_at *c = &v->insn[rip & (INSN_CACHE - 1)];
    u64 room;

    c->cr3 = ~0ull;
    if ((rip & (PAGE_SIZE - 1)) > PAGE_SIZE - 15 || !descend(&w, rip)) return NULL;
    c->bytes = guestmem_at(v->vm->mem, w.gpa, &room);
    if (!c->bytes) return NULL;
    for (unsigned i = 0; i < INSN_LEVELS; i++) { /* a large page's missing levels: the last one again */
        c->entry[i] = w.at[MIN(i, w.depth - 1)];
        c->value[i] = w.value[MIN(i, w.depth - 1)];
    }
    c->rip = rip;
    c->cr3 = cr3;
    return c->bytes;
}

unsigned guest_fetch(struct virt_vcpu *v, u8 *buf, unsigned max) {
    struct walk w = walk_of(v);
    struct guest_seg cs;
    unsigned n = 0;

    virt->get_seg(v, SEG_CS, &cs);
    for (unsigned take; n < max; n += take) {
        u64 va = v->regs.rip + n, room;
        const u8 *p;

        if (code_mode(w.efer, cs.attr) != 64) va = (u32)(cs.base + va);
        w.gpa = va;
        if (w.levels && !descend(&w, va)) break;
        p = guestmem_at(w.mem, w.gpa, &room);
        if (!p) break;
        take = (unsigned)MIN(max - n, PAGE_SIZE - (va & (PAGE_SIZE - 1)));
        memcpy(buf + n, p, take);
    }
    return n;
}

/* LOCK faults with all that exit but MOV CR, where AMD reads CR0 as CR8. */
static bool is_prefix(u8 b) { return b && strchr("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3", b); }

unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, u32 insn, u8 *gpr) {
    unsigned n = 0;
    u8 rex = 0;

    for (; n < len; n++) {
        if (mode == 64 && (bytes[n] & 0xf0) == 0x40)
            rex = bytes[n];
        else if (is_prefix(bytes[n]))
            rex = 0; /* counts only right before the opcode */
        else
            break;
    }
    for (; insn; insn >>= 8, n++)
        if (n >= len || bytes[n] != (u8)insn) return 0;
    if (gpr) {
        if (n >= len) return 0;
        *gpr = (u8)((bytes[n++] & 7) | (rex & 1) << 3);
    }
    return n <= 15 ? n : 0;
}
