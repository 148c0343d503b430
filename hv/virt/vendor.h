/* What the files of hv/virt share with each other and with nobody else. */
#ifndef HV_VIRT_VENDOR_H
#define HV_VIRT_VENDOR_H

#include "virt/bits.h"
#include "virt/virt.h"
#include "x86/percpu.h"

#define DR6_BREAKPOINTS 0xfull /* B0 to B3: SDM 3B 18.2.3 */
#define DR6_BS          BIT(14)

/* Where CR3 and entries hold an address: SDM 3A 4.3 to 4.5. */
#define ADDR_52       0x000ffffffffff000ull
#define CR3_PAE_TABLE 0xffffffe0u /* of the table of four entries under PAE paging */

/* How many bits a physical address has on this machine: SDM 2A CPUID, APM3 E.4. */
#define CPUID_ADDRESSES    0x80000008u
#define PHYSICAL_BITS(eax) ((eax)&0xffu)

/* An event as both vendors write it down: VMCB EVENTINJ and EXITINTINFO (APM2 15.20), VMX
 * interruption information (SDM 3C 25.8.3, 25.9.2). VMX has more types than these. */
#define EVENT_TYPE_SHIFT  8
#define EVENT_TYPE_MASK   (7u << EVENT_TYPE_SHIFT)
#define EVENT_TYPE(event) ((event) >> EVENT_TYPE_SHIFT & 7u)
#define EVENT_HAS_CODE    BIT(11)
#define EVENT_VALID       BIT(31)
enum { EVENT_TYPE_INTR, EVENT_TYPE_NMI = 2, EVENT_TYPE_EXC, EVENT_TYPE_SOFT, EVENT_TYPE_ICEBP };

/* Returns an event in that form. Real mode delivers no error codes. */
static inline u32 event_encode(const struct virt_event *e, bool protected_mode) {
    static const u8 type[] = { [EVENT_IRQ] = EVENT_TYPE_INTR,
                               [EVENT_NMI] = EVENT_TYPE_NMI,
                               [EVENT_EXCEPTION] = EVENT_TYPE_EXC };

    u32 event = e->vector | (u32)type[e->type] << EVENT_TYPE_SHIFT | (u32)EVENT_VALID;

    if (e->has_code && protected_mode) event |= (u32)EVENT_HAS_CODE;
    return event;
}

/* Puts an event whose delivery an exit cut short back into v->pending, to be delivered at the next
 * entry. INT n, INT3 and INTO are dropped: RIP still points at them, and the guest executes them
 * again. `code` is the error code, if there is one. */
void event_requeue(struct virt_vcpu *v, u32 info, u32 code);

/* What virt.c keeps for each pCPU. `virt` in struct percpu points to it. */
struct virt_cpu {
    u8 *pages;              /* as given to cpu_enable() */
    struct virt_vcpu *vcpu; /* loaded, or NULL */
    struct tlb_tags tags;
};

/* entry.asm. vmx_enter() returns 0 after an exit, and 1 if VMLAUNCH or VMRESUME failed. */
void svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa);
int vmx_enter(struct guest_regs *regs, bool launched);
void vmx_exit(void);

static inline struct virt_cpu *this_virt(void) { return this_cpu()->virt; }

static inline bool is_loaded(const struct virt_vcpu *v) { return this_virt()->vcpu == v; }

/* Allocates what a vendor needs for a vCPU: 2^order zeroed pages in a row, which the CPU demands,
 * and v->priv with `size` zeroed bytes. Fills in the XSAVE area as it is after a reset. Returns the
 * first page, or NULL if there is no memory. vcpu_free_pages() frees the pages and v->priv. */
u8 *vcpu_pages(struct virt_vcpu *v, unsigned order, size_t size);
void vcpu_free_pages(struct virt_vcpu *v, void *pages, unsigned order);
/* state_load() writes to the CPU what no VMCS or VMCB holds of the state of `v`, and makes `v` the
 * current vCPU of this pCPU. state_save() copies that state back to memory; afterwards this pCPU
 * has no current vCPU. */
void state_load(struct virt_vcpu *v);
void state_save(struct virt_vcpu *v);
/* Read and write registers of v->reg, whether the vCPU is loaded or not. */
u64 state_get(struct virt_vcpu *v, enum virt_reg reg);
void state_set(struct virt_vcpu *v, enum virt_reg reg, u64 value);

/* The MSRs that guests read and write without an exit; each has its register in enum virt_reg
 * (docs/virt.md). */
#define FREE_MSRS 10
extern const u32 free_msrs[FREE_MSRS];

/* Where a vCPU's page tables are and how they are read, in one word: CR3; from bit 60 on, how many
 * levels fewer than 4 there are; and CODE_PSE, which tells 4 MiB pages. So it is CR3 alone in long
 * mode. */
#define CODE_NO_TABLES ~0ull
#define CODE_PSE       BIT(59)
#define CODE_LESS      60

static inline unsigned paging_levels(u64 cr0, u64 cr4, u64 efer) {
    if (efer & EFER_LMA) return 4;
    if (!(cr0 & CR0_PG)) return 0;
    if (cr4 & CR4_PAE) return 3;
    return 2;
}

static inline u64 tables_key(u64 cr0, u64 cr3, u64 cr4, u64 efer) {
    unsigned levels = paging_levels(cr0, cr4, efer);
    u64 key = cr3 | (u64)(CODE_LEVELS - levels) << CODE_LESS;

    if (levels == 2 && cr4 & CR4_PSE) key |= CODE_PSE;
    return key;
}

/* gwalk.c remembers in v->code where the pages are in which instructions exited, because a walk
 * through the guest's tables at each exit would be slow. Rights are not checked, as the CPU has
 * just fetched the instruction.
 * code_find() returns a pointer to the byte of code at guest-virtual address `va`, and remembers
 * its page. All bytes up to the end of the page can be read there. NULL: it is not in the VM's RAM.
 * code_copy() copies up to `max` bytes from there on, over the end of the page too, and returns how
 * many could be read. Outside 64-bit mode addresses wrap at 4 GiB (`wraps`).
 * code_forget() forgets all pages. */
const u8 *code_find(struct virt_vcpu *v, u64 tables, u64 va);
unsigned code_copy(struct virt_vcpu *v, u64 tables, u64 va, bool wraps, u8 *buf, unsigned max);
void code_forget(struct virt_vcpu *v);

/* Would a walk that found this page end there again? Guest RAM never moves, so that is so as long
 * as the entries hold what they held then. */
static inline bool code_holds(const struct code_page *c, u64 tables, u64 page) {
    u64 diff = 0;

    if (c->page != page || c->tables != tables) return false;
#pragma GCC unroll 4
    for (unsigned i = 0; i < CODE_LEVELS; i++)
        diff |= __atomic_load_n(c->entry[i], __ATOMIC_RELAXED) ^ c->value[i];
    return !diff;
}

/* A page is looked for in two slots first: number code_slot() and the one that is CODE_SETS behind
 * it. So two pages in which instructions exit in turn are found at once, whatever their numbers
 * are. The first of both slots has the page that came there last. */
#define CODE_SETS (CODE_PAGES / 2)
static inline unsigned code_slot(u64 page) { return page & (CODE_SETS - 1); }

/* Returns what code_find() would, but only if the page is in one of its two slots; otherwise
 * NULL. */
static inline const u8 *code_cached(const struct virt_vcpu *v, u64 tables, u64 va) {
    u64 page = va >> PAGE_SHIFT;
    const struct code_page *c = &v->code[code_slot(page)];

    if (__builtin_expect(c->page != page, 0)) c += CODE_SETS;
    if (__builtin_expect(!code_holds(c, tables, page), 0)) return NULL;
    return c->bytes + (va & (PAGE_SIZE - 1));
}

/* Does what code_find() does, and is faster if the page is in one of its two slots. */
static inline const u8 *code_at(struct virt_vcpu *v, u64 tables, u64 va) {
    const u8 *p = code_cached(v, tables, va);

    if (__builtin_expect(p != NULL, 1)) return p;
    return code_find(v, tables, va);
}

/* Are there `len` bytes from this address to the end of its page? */
static inline bool room_in_page(u64 va, unsigned len) {
    return (va & (PAGE_SIZE - 1)) <= PAGE_SIZE - len;
}

/* Returns the default operand size of a code segment, whose attributes are as in struct
 * guest_seg. */
static inline u8 code_mode(u64 efer, u16 cs_attr) {
    if (efer & EFER_LMA && cs_attr & ATTR_LONG) return 64;
    if (cs_attr & ATTR_BIG) return 32;
    return 16;
}

/* For EXIT_NPF: fills in the bytes of the instruction, which may have to be emulated. Outside
 * 64-bit mode and near the end of a page nr_bytes is 0, and guest_fetch() reads them later. */
static inline void npf_bytes(struct virt_vcpu *v, struct vm_exit *e, u8 mode, u64 cr3) {
    const u8 *p;

    e->npf.mode = mode;
    e->npf.nr_bytes = 0;
    if (mode != 64 || !room_in_page(v->regs.rip, sizeof(e->npf.bytes))) return;
    p = code_at(v, cr3, v->regs.rip);
    if (!p) return;
    e->npf.nr_bytes = sizeof(e->npf.bytes);
    __builtin_memcpy(e->npf.bytes, p, sizeof(e->npf.bytes));
}

/* Returns the length of an instruction that the CPU has just exited on, or 0 if `bytes` are not
 * `insn` after at most 14 legal prefixes.
 *   bytes, len  what is in memory there
 *   mode        the default operand size of CS: 16, 32 or 64
 *   insn        the opcode as it stands in memory, its first byte in the lowest 8 bits
 *   regs        NULL if there is no ModRM byte behind the opcode; otherwise *regs becomes the two
 *               registers that it names */
struct insn_regs {
    u8 rm, reg; /* 0 to 15, as field rm or reg with its bit of the REX prefix says */
};
unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, u32 insn,
                     struct insn_regs *regs);

#endif
