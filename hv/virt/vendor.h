/* What vmx.c and svm.c share with each other and with nobody else. */
#ifndef HV_VIRT_VENDOR_H
#define HV_VIRT_VENDOR_H

#include "virt/bits.h"
#include "virt/virt.h"

#define DR6_BS  BIT(14)
#define ADDR_52 0x000ffffffffff000ull

/* An event as both vendors write it down: VMCB EVENTINJ and EXITINTINFO (APM2 15.20), VMX interruption
 * information (SDM 3C 25.8.3, 25.9.2) without the latter's software types beyond 4. */
#define EVENT_HAS_CODE BIT(11)
#define EVENT_VALID    BIT(31)
enum {
    EVENT_TYPE_INTR,
    EVENT_TYPE_NMI = 2,
    EVENT_TYPE_EXC,
    EVENT_TYPE_SOFT,
    EVENT_TYPE_ICEBP,
    EVENT_TYPE_INT3
};

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

/* virt.c: CR0, CR4 and XCR0 of this pCPU; -ENODEV with a log line. `all`: the vendor's entry and exit
 * leave CR2, DR6, KERNEL_GS_BASE and the MSRs of SYSCALL alone. */
int state_cpu_enable(bool all);
/* Four pages in a row, zeroed: VMCS or VMCB, XSAVE area, two that are the vendor's. NULL: no memory. */
u8 *vcpu_pages(struct virt_vcpu *v);
void vcpu_free_pages(struct virt_vcpu *v);
void state_load(struct virt_vcpu *v);
void state_save(struct virt_vcpu *v);
/* Those of v->reg. `loaded`: they are in this pCPU's registers now. */
u64 state_get(struct virt_vcpu *v, enum virt_reg reg, bool loaded);
void state_set(struct virt_vcpu *v, enum virt_reg reg, u64 value, bool loaded);

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

static inline bool is_canonical(u64 va, u64 cr4) {
    unsigned shift = cr4 & CR4_LA57 ? 7 : 16;

    return (u64)((i64)(va << shift) >> shift) == va;
}

/* The default operand size of a code segment. */
static inline u8 code_mode(u64 efer, u16 cs_attr) {
    return efer & EFER_LMA && cs_attr & ATTR_LONG ? 64 : cs_attr & ATTR_BIG ? 32 : 16;
}

/* For EXIT_NPF: the bytes of an instruction that may have to be emulated. */
static inline void npf_bytes(struct virt_vcpu *v, struct vm_exit *e, u8 mode, u64 cr3, u64 cr4) {
    const u8 *p = mode == 64 && !(cr4 & CR4_LA57) ? insn_bytes(v, cr3, v->regs.rip) : NULL;

    e->npf.mode = mode;
    e->npf.nr_bytes = p ? sizeof(e->npf.bytes) : 0;
    if (p) __builtin_memcpy(e->npf.bytes, p, sizeof(e->npf.bytes));
}

/* Opcodes as they stand in memory after the prefixes, first byte in the lowest. */
enum insn {
    INSN_CPUID = 0xa20f,
    INSN_RDMSR = 0x320f,
    INSN_WRMSR = 0x300f,
    INSN_RDPMC = 0x330f,
    INSN_INVD = 0x080f,
    INSN_WBINVD = 0x090f,
    INSN_HLT = 0xf4,
    INSN_PAUSE = 0x90, /* with F3; without, it may be skipped as well */
    INSN_VMMCALL = 0xd9010f,
    INSN_XSETBV = 0xd1010f,
    INSN_MOV_FROM_CR = 0x200f, /* with ModRM */
    INSN_MOV_TO_CR = 0x220f,
};

/* insn.c: the length of an instruction that the CPU has just exited on, checked against its bytes, for
 * CPUs that do not give the next RIP. 0 if the bytes are not `insn` after at most 14 legal prefixes.
 * `mode` is the default operand size of CS: 16, 32 or 64. For MOV CR, *gpr is the register; else it may be
 * NULL. */
unsigned insn_length(const u8 *bytes, unsigned len, unsigned mode, enum insn insn, u8 *gpr);

#endif
