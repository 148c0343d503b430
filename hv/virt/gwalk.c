/* Reads the guest's own page tables, as the CPU does (SDM 3A chapter 4). The hypervisor needs that
 * when it has to emulate an instruction: it knows the guest-virtual address of the instruction or
 * of its operand, and must find the bytes in the VM's RAM. To "walk" is to follow the entries from
 * CR3 down to the one that maps the page, the "leaf". Other vCPUs may change the tables at the same
 * time. Protection keys are ignored. */
#include <takt/errno.h>
#include "common/string.h"
#include "virt/vendor.h"

#define PTE_P  BIT(0)
#define PTE_W  BIT(1)
#define PTE_U  BIT(2)
#define PTE_A  BIT(5)
#define PTE_D  BIT(6)
#define PTE_PS BIT(7)
#define PTE_NX BIT(63)

/* Bits that must be 0: SDM 3A tables 4-8 to 4-11. A PDPTE also has reserved bit 5, but QEMU's CPU
 * sets it. */
#define PDPTE_RESERVED    0xfff00000000001c6ull
#define PAE_RESERVED      0x7ff0000000000000ull
#define LARGE_PAE_IGNORE  0x1fffull /* of an entry for a large page: all below is used */
#define LARGE_32_RESERVED BIT(21)
/* PSE-36: a 4 MiB page's entry has address bits 32 to 39 in bits 13 to 20 (SDM 3A 4.3). */
#define PSE36(e) (((e) >> 13 & 0xff) << 32)

/* Bits of a #PF's error code: SDM 3A 4.7. */
#define PF_P     1u
#define PF_W     2u
#define PF_U     4u
#define PF_RSVD  8u
#define PF_I     16u

#define INSN_MAX 15u /* bytes of the longest instruction */

/* One walk: what it depends on, and what it found. */
struct walk {
    const struct guestmem *mem;
    const struct npt *npt; /* finds tables outside the VM's RAM; NULL: those count as empty */
    u64 cr0, cr3, cr4, efer;
    unsigned levels; /* 0: no paging; 2: entries of 32 bits; 3: PAE; 4: long mode */
    unsigned depth;  /* how many entries it went through */
    void *at[4];     /* where these entries are, and what they were */
    u64 value[4];
    bool read_only[4]; /* the CPU could not set A and D there, so neither does the walk */
    u64 all, any;      /* rights: bits that all entries have, bits that any of them has */
    bool reserved;     /* one of them has a bit that must be 0 */
    gpa_t gpa;
};

/* Prepares a walk for vCPU v: reads the control registers that decide the format of its page
 * tables. */
static struct walk walk_of(struct virt_vcpu *v) {
    struct walk w = {
        .mem = v->vm->mem,
        .npt = &v->vm->npt,
        .cr0 = virt->get_reg(v, VREG_CR0),
        .cr3 = virt->get_reg(v, VREG_CR3),
        .cr4 = virt->get_reg(v, VREG_CR4),
        .efer = virt->get_reg(v, VREG_EFER),
    };

    w.levels = paging_levels(w.cr0, w.cr4, w.efer);
    return w;
}

/* Returns the bits that must be 0 in an entry at `level` (1: of a 4 KiB page). `leaf`: it maps a
 * page. Address bits beyond the guest's physical addresses are not looked at: they lead out of its
 * RAM, and the access fails there. */
static u64 reserved_bits(const struct walk *w, unsigned level, bool leaf) {
    u64 r = 0;

    if (w->levels == 2) {
        if (leaf && level == 2) return LARGE_32_RESERVED;
        return 0;
    }
    if (w->levels == 3 && level == 3) return PDPTE_RESERVED;
    if (!(w->efer & EFER_NXE)) r |= PTE_NX;
    if (w->levels == 3) r |= PAE_RESERVED;
    if (leaf && level > 1) r |= (BIT(12 + 9 * (level - 1)) - 1) & ~LARGE_PAE_IGNORE;
    if (level >= 4) r |= PTE_PS;
    return r;
}

/* Is entry `e` of a table at `level` a leaf, so that it maps a page? At level 1 all are. Above, bit
 * PS tells, for those sizes of large pages that the format has. */
static bool maps_page(const struct walk *w, unsigned level, u64 e) {
    if (level == 1) return true;
    if (!(e & PTE_PS)) return false;
    if (w->levels == 2) return w->cr4 & CR4_PSE;
    return level == 2 || (level == 3 && w->levels > 3);
}

/* Returns where the CPU finds an entry of a table: in the VM's RAM, or in another page that is
 * mapped for it, such as the shared page or a window on another VM's RAM. Returns NULL if it finds
 * it nowhere, so that the entry reads as empty. */
static void *entry_at(struct walk *w, gpa_t gpa) {
    u64 room;
    void *at = guestmem_at(w->mem, gpa, &room);
    bool writable = true;
    hpa_t hpa;

    if (!at && w->npt) {
        hpa = npt_find(w->npt, gpa, &writable);
        if (hpa != HPA_NONE) at = hpa_to_va(hpa);
    }
    w->read_only[w->depth] = !writable;
    return at;
}

/* Walks from w->cr3 to the leaf for `va`, and sets w->gpa, the rights, and what set_accessed()
 * needs. Returns false if an entry is not present or cannot be read; the entries before it are in
 * *w. */
static bool walk_descend(struct walk *w, u64 va) {
    unsigned entry_size = 8, bits = 9; /* a table is a page, so it has 2^bits entries */
    unsigned shift = PAGE_SHIFT;
    u64 table = w->cr3 & ADDR_52;
    bool leaf = false;
    u64 e = 0;

    if (w->levels == 2) {
        entry_size = 4;
        bits = 10;
    }
    if (w->levels == 3) table = w->cr3 & CR3_PAE_TABLE;
    w->depth = 0;
    w->all = PTE_W | PTE_U;
    w->any = w->reserved = 0;
    for (unsigned level = w->levels; !leaf; level--) {
        shift = PAGE_SHIFT + bits * (level - 1);
        void *at = entry_at(w, table + (va >> shift & (BIT(bits) - 1)) * entry_size);

        if (!at) return false;
        if (entry_size == 4)
            e = __atomic_load_n((u32 *)at, __ATOMIC_RELAXED);
        else
            e = __atomic_load_n((u64 *)at, __ATOMIC_RELAXED);
        if (!(e & PTE_P)) return false;
        leaf = maps_page(w, level, e);
        w->at[w->depth] = at;
        w->value[w->depth++] = e;
        if (e & reserved_bits(w, level, leaf)) w->reserved = true;
        /* A PDPTE of PAE has no bits for rights, so it grants all. */
        if (w->levels == 3 && level == 3) e |= PTE_W | PTE_U;
        w->all &= e;
        w->any |= e;
        table = e & ADDR_52;
    }
    w->gpa = (table & ~(BIT(shift) - 1)) | (va & (BIT(shift) - 1));
    if (w->levels == 2 && shift > PAGE_SHIFT) w->gpa |= PSE36(e);
    return true;
}

/* Do the rights that the entries grant allow the access? `access` is of GA_*. The supervisor may
 * write read-only pages unless CR0.WP is set, and is kept from user pages by SMEP (execution) and
 * SMAP (data, unless RFLAGS.AC is set). */
static bool walk_allowed(const struct walk *w, unsigned access, u64 rflags) {
    bool user = access & GA_USER, exec = access & GA_EXEC, user_page = w->all & PTE_U;

    if (user && !user_page) return false;
    if (access & GA_WRITE && !(w->all & PTE_W) && (user || w->cr0 & CR0_WP)) return false;
    if (exec && w->any & PTE_NX && w->efer & EFER_NXE) return false;
    if (user || !user_page) return true;
    if (exec) return !(w->cr4 & CR4_SMEP);
    return !(w->cr4 & CR4_SMAP) || rflags & RFLAGS_AC;
}

/* Sets the bits "accessed" in all entries and "dirty" in the leaf, as the CPU would have done. A
 * guest that swaps pages relies on them. Both bits are in the lower half of an entry. Returns false
 * if an entry has changed since the walk; then the walk has to be repeated. */
static bool set_accessed(const struct walk *w, bool write) {
    for (unsigned i = 0; i < w->depth; i++) {
        u32 old = (u32)w->value[i], new = old | PTE_A;

        if (write && i == w->depth - 1) new |= PTE_D;
        if (new == old || w->read_only[i] || (w->levels == 3 && i == 0)) continue;
        if (!__atomic_compare_exchange_n((u32 *)w->at[i], &old, new, false, __ATOMIC_RELAXED,
                                         __ATOMIC_RELAXED))
            return false;
    }
    return true;
}

/* Returns the error code of the #PF for an access that a walk did not let through. */
static u32 fault_code(const struct walk *w, bool present, unsigned access) {
    u32 code = 0;

    if (w->reserved)
        code = PF_P | PF_RSVD;
    else if (present)
        code = PF_P;
    if (access & GA_WRITE) code |= PF_W;
    if (access & GA_USER) code |= PF_U;
    if (access & GA_EXEC && (w->efer & EFER_NXE || w->cr4 & CR4_SMEP)) code |= PF_I;
    return code;
}

/* Translates a guest-virtual address as the CPU would do it. Returns 0, or -EFAULT with the error
 * code in *fault. It walks the page tables, checks the rights, and sets the accessed and dirty
 * bits. If another vCPU has changed an entry meanwhile, all this begins again. */
int guest_translate(struct virt_vcpu *v, u64 gva, unsigned access, gpa_t *gpa, u32 *fault) {
    struct walk w = walk_of(v);

    if (w.levels < 4) gva = (u32)gva;
    *gpa = gva;
    if (!w.levels) return 0;
    *fault = GUEST_NOT_CANONICAL;
    if (w.levels > 3 && !is_canonical(gva)) return -EFAULT;
    do {
        bool present = walk_descend(&w, gva);

        *gpa = w.gpa;
        *fault = 0;
        if (w.reserved || !present || !walk_allowed(&w, access, v->regs.rflags)) {
            *fault = fault_code(&w, present, access);
            return -EFAULT;
        }
    } while (!set_accessed(&w, access & GA_WRITE));
    return 0;
}

/* ---- code ---- */

/* The CPU has just fetched the instructions that are looked at here. So the guest may execute them,
 * and rights are not checked once more. */

void code_forget(struct virt_vcpu *v) {
    for (unsigned i = 0; i < CODE_PAGES; i++) v->code[i].tables = CODE_NO_TABLES;
}

/* Notes in *c by which entries the walk came to the page. An entry of 32 bits is compared together
 * with its neighbour. Returns false if it has changed since the walk. */
static bool code_note_entries(struct code_page *c, const struct walk *w) {
    static const u64
        none; /* stands for the entries of a guest without paging, which never change */

    for (unsigned i = 0; i < CODE_LEVELS; i++) {
        /* Walks of fewer levels, and those to a large page, have fewer entries. The last one stands
         * for the missing ones. */
        unsigned n = MIN(i, w->depth - 1);
        uintptr_t at;
        u64 seen;

        if (!w->depth) {
            c->entry[i] = &none;
            c->value[i] = 0;
            continue;
        }
        at = (uintptr_t)w->at[n];
        c->entry[i] = (const u64 *)(at & ~(uintptr_t)7);
        c->value[i] = __atomic_load_n(c->entry[i], __ATOMIC_RELAXED);
        seen = c->value[i];
        if (w->levels == 2) seen = (u32)(seen >> 8 * (at & 7));
        if (seen != w->value[n]) return false;
    }
    return true;
}

/* Makes room in the first slot of a page. What is there moves to the second one, and what was in
 * that moves to *free, which may be the second slot itself. */
static struct code_page *code_make_room(struct virt_vcpu *v, u64 page, struct code_page *free) {
    struct code_page *first = &v->code[code_slot(page)], *second = first + CODE_SETS;

    *free = *second;
    *second = *first;
    return first;
}

/* Returns the first slot of a page that is new, empty. The page that has to leave its two slots is
 * not forgotten yet. It moves to any slot, each time to the next one. */
static struct code_page *code_slot_of_new(struct virt_vcpu *v, u64 page) {
    struct code_page *c;

    while (v->code_next % CODE_SETS == code_slot(page)) v->code_next++;
    c = code_make_room(v, page, &v->code[v->code_next++ % CODE_PAGES]);
    c->tables = CODE_NO_TABLES;
    return c;
}

/* Walks to the page of `va` and remembers it. Returns the byte there, or NULL if it is not in the
 * VM's RAM. `tables` is taken apart again: see tables_key(). If an entry of the guest's tables
 * changes meanwhile, the slot stays empty. */
static __attribute__((noinline)) const u8 *code_walk(struct virt_vcpu *v, u64 tables, u64 va) {
    u64 page = va >> PAGE_SHIFT, room;
    struct code_page *c;
    struct walk w = { .mem = v->vm->mem,
                      .cr3 = tables & ~(CODE_PSE | 15ull << CODE_LESS),
                      .levels = CODE_LEVELS - (unsigned)(tables >> CODE_LESS),
                      .gpa = va };

    if (tables & CODE_PSE) w.cr4 = CR4_PSE;
    if (w.levels && !walk_descend(&w, va)) return NULL;
    c = code_slot_of_new(v, page);
    c->bytes = guestmem_at(v->vm->mem, w.gpa & ~(PAGE_SIZE - 1), &room);
    if (!c->bytes) return NULL;
    c->page = page;
    if (code_note_entries(c, &w)) c->tables = tables;
    return c->bytes + (va & (PAGE_SIZE - 1));
}

/* Looks for the page in all slots. A page that is found moves into its first slot, because more
 * instructions are likely to exit in it. If it is in none, code_walk() looks for it. */
const u8 *code_find(struct virt_vcpu *v, u64 tables, u64 va) {
    u64 page = va >> PAGE_SHIFT;

    for (struct code_page *c = v->code; c < v->code + CODE_PAGES; c++) {
        struct code_page found;

        if (c->page != page || !code_holds(c, tables, page)) continue;
        found = *c;
        c = code_make_room(v, page, c);
        *c = found;
        return c->bytes + (va & (PAGE_SIZE - 1));
    }
    return code_walk(v, tables, va);
}

unsigned code_copy(struct virt_vcpu *v, u64 tables, u64 va, bool wraps, u8 *buf, unsigned max) {
    unsigned n = 0;

    for (unsigned take; n < max; n += take) {
        u64 at = va + n;
        const u8 *p;

        if (wraps) at = (u32)at;
        p = code_at(v, tables, at);
        if (!p) break;
        take = (unsigned)MIN(max - n, PAGE_SIZE - (at & (PAGE_SIZE - 1)));
        memcpy(buf + n, p, take);
    }
    return n;
}

/* Copies the bytes of the guest's instruction to `buf`. Returns how many could be read. It copies
 * page by page, because the pages of an instruction need not follow each other in RAM. Code outside
 * 64-bit mode is relative to the base of CS. What code_copy() does not find is looked for by walks
 * that also go through tables outside the VM's RAM. */
unsigned guest_fetch(struct virt_vcpu *v, u8 *buf, unsigned max) {
    struct walk w = walk_of(v);
    struct guest_seg cs;
    u64 start = v->regs.rip;
    unsigned n;
    bool wraps;

    virt->get_seg(v, SEG_CS, &cs);
    wraps = code_mode(w.efer, cs.attr) != 64;
    if (wraps) start = (u32)(cs.base + start);
    n = code_copy(v, tables_key(w.cr0, w.cr3, w.cr4, w.efer), start, wraps, buf, max);
    for (unsigned take; n < max; n += take) {
        u64 va = start + n, room;
        const u8 *p;

        if (wraps) va = (u32)va;
        w.gpa = va;
        if (w.levels && !walk_descend(&w, va)) break;
        p = guestmem_at(w.mem, w.gpa, &room);
        if (!p) break;
        take = (unsigned)MIN(max - n, PAGE_SIZE - (va & (PAGE_SIZE - 1)));
        memcpy(buf + n, p, take);
    }
    return n;
}

/* Prefixes: APM3 table 1-1. */
enum {
    PREFIX_ES = 0x26,
    PREFIX_CS = 0x2e,
    PREFIX_SS = 0x36,
    PREFIX_DS = 0x3e,
    PREFIX_FS = 0x64,
    PREFIX_GS = 0x65,
    PREFIX_OPERAND_SIZE = 0x66,
    PREFIX_ADDRESS_SIZE = 0x67,
    PREFIX_LOCK = 0xf0,
    PREFIX_REPNE = 0xf2,
    PREFIX_REP = 0xf3,
};

/* Is this byte a legacy prefix, which may stand before the opcode (APM3 1.2)? REX is none: it must
 * be the last byte before the opcode. LOCK is in the list because of one instruction: AMD's CPUs
 * take MOV CR0 with LOCK as MOV CR8 (APM3, MOV CRn), and the caller looks for that. */
static bool is_prefix(u8 b) {
    switch (b) {
    case PREFIX_ES:
    case PREFIX_CS:
    case PREFIX_SS:
    case PREFIX_DS:
    case PREFIX_FS:
    case PREFIX_GS:
    case PREFIX_OPERAND_SIZE:
    case PREFIX_ADDRESS_SIZE:
    case PREFIX_LOCK:
    case PREFIX_REPNE:
    case PREFIX_REP: return true;
    default: return false;
    }
}

/* REX: 40 to 4F, in 64-bit mode. Its bit B is the highest one of the register number in ModRM.rm:
 * APM3 1.2.7. */
#define REX_MASK     0xf0
#define REX          0x40
#define REX_B        1u
#define REX_R        4u
#define MODRM_RM(b)  ((b)&7u)
#define MODRM_REG(b) ((b) >> 3 & 7u)

static bool is_rex(u8 b) { return (b & REX_MASK) == REX; }

/* Returns the length of the instruction in `bytes`, or 0 if it is not `insn`. It takes prefixes off
 * first, then compares the opcode byte by byte. */
unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, u32 insn,
                     struct insn_regs *regs) {
    unsigned n = 0;
    u8 rex = 0;

    for (; n < len; n++) {
        if (mode == 64 && is_rex(bytes[n]))
            rex = bytes[n];
        else if (is_prefix(bytes[n]))
            rex = 0; /* a REX prefix counts only right before the opcode */
        else
            break;
    }
    for (; insn; insn >>= 8, n++)
        if (n >= len || bytes[n] != (u8)insn) return 0;
    if (regs) {
        if (n >= len) return 0;
        regs->rm = (u8)(MODRM_RM(bytes[n]) | (rex & REX_B) << 3);
        regs->reg = (u8)(MODRM_REG(bytes[n]) | (rex & REX_R) << 1);
        n++;
    }
    if (n > INSN_MAX) return 0;
    return n;
}
