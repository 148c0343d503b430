/* What vmx.c and svm.c share with each other and with nobody else. */
#ifndef HV_VIRT_VENDOR_H
#define HV_VIRT_VENDOR_H

#include "virt/bits.h"
#include "virt/virt.h"
#include "x86/percpu.h"

#define DR6_BS  BIT(14)
#define ADDR_52 0x000ffffffffff000ull

/* An event as both vendors write it down: VMCB EVENTINJ and EXITINTINFO (APM2 15.20), VMX interruption
 * information (SDM 3C 25.8.3, 25.9.2) without the latter's software types beyond 4. */
#define EVENT_HAS_CODE BIT(11)
#define EVENT_VALID    BIT(31)
enum { EVENT_TYPE_INTR, EVENT_TYPE_NMI = 2, EVENT_TYPE_EXC, EVENT_TYPE_SOFT, EVENT_TYPE_ICEBP };

/* Real mode delivers no error codes. */
static inline u32 event_encode(const struct virt_event *e, bool protected_mode) {
    static const u8 type[] = {
        [EVENT_IRQ] = EVENT_TYPE_INTR, [EVENT_NMI] = EVENT_TYPE_NMI, [EVENT_EXCEPTION] = EVENT_TYPE_EXC
    };

    return e->vector | (u32)type[e->type] << 8 | (u32)EVENT_VALID |
           (e->has_code && protected_mode ? (u32)EVENT_HAS_CODE : 0);
}

/* What an exit cut short, back into v->pending. INT n, INT3 and INTO are dropped: RIP still points at them,
 * and they are executed again. */
void event_requeue(struct virt_vcpu *v, u32 info, u32 code);

/* virt.c's: struct percpu's virt. */
struct virt_cpu {
    u8 *pages;              /* as given to cpu_enable() */
    struct virt_vcpu *vcpu; /* loaded, or NULL */
    struct tlb_tags tags;
};

/* Of a vendor's table of operations all that is a function of its own, by the name that it has there. */
#define VIRT_OPS(vendor)                                                                                     \
    .name = #vendor, .probe = vendor##_probe, .cpu_enable = vendor##_cpu_enable,                             \
    .vcpu_init = vendor##_vcpu_init, .vcpu_fini = vcpu_free_pages, .reset_events = vendor##_reset_events,    \
    .load = vendor##_load, .run = vendor##_run, .get_reg = vendor##_get_reg, .set_reg = vendor##_set_reg,    \
    .get_seg = vendor##_get_seg, .set_seg = vendor##_set_seg, .blocked = vendor##_blocked,                   \
    .clear_shadow = vendor##_clear_shadow, .cpl = vendor##_cpl

/* entry.asm's */
void svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa);
int vmx_enter(struct guest_regs *regs, bool launched);
void vmx_exit(void);

static inline struct virt_cpu *this_virt(void) { return this_cpu()->virt; }

static inline bool is_loaded(const struct virt_vcpu *v) { return this_virt()->vcpu == v; }

/* Four pages in a row, zeroed: VMCS or VMCB, XSAVE area, two that are the vendor's. NULL: no memory. */
u8 *vcpu_pages(struct virt_vcpu *v);
void vcpu_free_pages(struct virt_vcpu *v);
/* `v` becomes this pCPU's, and leaves it. */
void state_load(struct virt_vcpu *v);
void state_save(struct virt_vcpu *v);
/* Those of v->reg. */
u64 state_get(struct virt_vcpu *v, enum virt_reg reg);
void state_set(struct virt_vcpu *v, enum virt_reg reg, u64 value);

/* The MSRs that are left to guests; each has its register among enum virt_reg (docs/virt.md). */
#define FREE_MSRS 10
extern const u32 free_msrs[FREE_MSRS];

/* gwalk.c: at least 15 bytes at `rip` in 64-bit mode with 4 levels of tables, as the CPU has just fetched
 * them: no rights are checked. NULL if they are not there any more, or go on in the next page. Remembered
 * in v->insn. */
const u8 *insn_find(struct virt_vcpu *v, u64 cr3, u64 rip);
void insn_forget(struct virt_vcpu *v);

/* The same if it was found before; else NULL. Guest RAM never moves, so as long as the entries that led to
 * a page hold what they held then, walking again would end at the same page. */
static inline const u8 *insn_cached(const struct virt_vcpu *v, u64 cr3, u64 rip) {
    const struct insn_at *c = &v->insn[rip & (INSN_CACHE - 1)];
    u64 diff = 0;

    if (c->rip != rip || c->cr3 != cr3) return NULL;
#pragma GCC unroll 4
    for (unsigned i = 0; i < INSN_LEVELS; i++)
        diff |= __atomic_load_n(c->entry[i], __ATOMIC_RELAXED) ^ c->value[i];
    return diff ? NULL : c->bytes;
}

static inline const u8 *insn_bytes(struct virt_vcpu *v, u64 cr3, u64 rip) {
    const u8 *p = insn_cached(v, cr3, rip);

    return __builtin_expect(p != NULL, 1) ? p : insn_find(v, cr3, rip);
}

/* The default operand size of a code segment. */
static inline u8 code_mode(u64 efer, u16 cs_attr) {
    return efer & EFER_LMA && cs_attr & ATTR_LONG ? 64 : cs_attr & ATTR_BIG ? 32 : 16;
}

/* For EXIT_NPF: the bytes of an instruction that may have to be emulated. */
static inline void npf_bytes(struct virt_vcpu *v, struct vm_exit *e, u8 mode, u64 cr3) {
    const u8 *p = mode == 64 ? insn_bytes(v, cr3, v->regs.rip) : NULL;

    e->npf.mode = mode;
    e->npf.nr_bytes = p ? sizeof(e->npf.bytes) : 0;
    if (p) __builtin_memcpy(e->npf.bytes, p, sizeof(e->npf.bytes));
}

/* The length of an instruction that the CPU has just exited on, checked against its bytes; 0 if they are
 * not `insn` after at most 14 legal prefixes. `insn` is the opcode as it stands in memory, first byte in
 * the lowest. `mode` is the default operand size of CS: 16, 32 or 64. `gpr`: NULL, or where the register
 * of the ModRM byte that follows goes. */
unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, u32 insn, u8 *gpr);

#endif
