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

/* Allocates four zeroed pages in a row: VMCS or VMCB, XSAVE area, and two for the vendor. Fills in
 * the XSAVE area as it is after a reset, and sets v->xsave. Returns the first page, or NULL if
 * there is no memory. vcpu_free_pages() frees all four, which it finds by v->xsave. */
u8 *vcpu_pages(struct virt_vcpu *v);
void vcpu_free_pages(struct virt_vcpu *v);
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

/* gwalk.c. insn_find() returns a pointer to the instruction at `rip`, of which at least 15 bytes
 * can be read, and remembers it in v->insn. Only for a guest in 64-bit mode with 4 levels of
 * tables. Rights are not checked, as the CPU has just fetched the instruction. Returns NULL if it
 * is not there any more, or may cross into the next page. insn_forget() empties v->insn. */
const u8 *insn_find(struct virt_vcpu *v, u64 cr3, u64 rip);
void insn_forget(struct virt_vcpu *v);

/* Returns the same, but only if insn_find() remembers it; otherwise NULL. Guest RAM never moves, so
 * as long as the entries that led to a page hold what they held then, a walk would end at the same
 * page again. */
static inline const u8 *insn_cached(const struct virt_vcpu *v, u64 cr3, u64 rip) {
    const struct insn_at *c = &v->insn[rip & (INSN_CACHE - 1)];
    u64 diff = 0;

    if (c->rip != rip || c->cr3 != cr3) return NULL;
#pragma GCC unroll 4
    for (unsigned i = 0; i < INSN_LEVELS; i++)
        diff |= __atomic_load_n(c->entry[i], __ATOMIC_RELAXED) ^ c->value[i];
    if (diff) return NULL;
    return c->bytes;
}

static inline const u8 *insn_bytes(struct virt_vcpu *v, u64 cr3, u64 rip) {
    const u8 *p = insn_cached(v, cr3, rip);

    if (__builtin_expect(p != NULL, 1)) return p;
    return insn_find(v, cr3, rip);
}

/* Returns the default operand size of a code segment, whose attributes are as in struct
 * guest_seg. */
static inline u8 code_mode(u64 efer, u16 cs_attr) {
    if (efer & EFER_LMA && cs_attr & ATTR_LONG) return 64;
    if (cs_attr & ATTR_BIG) return 32;
    return 16;
}

/* For EXIT_NPF: fills in the bytes of the instruction, which may have to be emulated. Outside
 * 64-bit mode nr_bytes is 0, and guest_fetch() reads them later. */
static inline void npf_bytes(struct virt_vcpu *v, struct vm_exit *e, u8 mode, u64 cr3) {
    const u8 *p;

    e->npf.mode = mode;
    e->npf.nr_bytes = 0;
    if (mode != 64) return;
    p = insn_bytes(v, cr3, v->regs.rip);
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
