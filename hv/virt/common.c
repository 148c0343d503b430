/* What VT-x and AMD-V have in common: the state of a CPU after a reset, which events are delivered
 * to a guest, and how an instruction that was emulated is skipped. An "event" is an interrupt, an
 * NMI or an exception. `v->pending` is the one that the next entry delivers. "Vectors" are the
 * numbers of exceptions, such as EXC_PF for a page fault. */
#include "common/string.h"
#include "virt/vendor.h"
#include "common/insn.h"

const struct virt_ops *virt;
u64 virt_xcr0_mask;
u32 virt_xsave_size = 512; /* what FXSAVE writes (SDM 1 10.5.1) */
bool virt_counts_pauses, virt_flushes_tags;
hpa_t virt_apic_page = HPA_NONE;
void (*virt_apic_give)(struct virt_vcpu *v), (*virt_apic_fetch)(struct virt_vcpu *v);

#define DR7_GD BIT(13)

const u32 free_msrs[FREE_MSRS] = { MSR_SYSENTER_CS,   MSR_SYSENTER_ESP, MSR_SYSENTER_EIP,
                                   MSR_STAR,          MSR_LSTAR,        MSR_CSTAR,
                                   MSR_FMASK,         MSR_FS_BASE,      MSR_GS_BASE,
                                   MSR_KERNEL_GS_BASE };

/* Attributes of segments after a reset, as struct guest_seg has them. */
#define RESET_DATA  (ATTR_P | ATTR_S | ATTR_RW | ATTR_ACCESSED)
#define RESET_CODE  (RESET_DATA | ATTR_CODE)
#define RESET_LDT   (ATTR_P | ATTR_TYPE_LDT)
#define RESET_TSS   (ATTR_P | ATTR_TYPE_TSS_BUSY)
#define RESET_LIMIT 0xffffu
/* with this base and RIP the first instruction is 16 bytes below 4 GiB */
#define RESET_CS   0xf000u
#define RESET_BASE 0xffff0000u
#define RESET_RIP  0xfff0u

#define DR6_ONES   0xffff0ff0u /* bits that are always set */
#define DR7_ONES   0x400u
#define FAMILY_6   0x600u
#define PAT_RESET  0x0007040600070406ull /* WB, WT, UC-, UC, and the same again: SDM 3A 12.12.4 */

/* Allocates a vCPU with its XSAVE area, whose address has to be a multiple of 64 (SDM 1 13.4). An
 * object of that size begins at such an address. */
void *virt_vcpu_alloc(size_t size) {
    size_t before = ALIGN_UP(size, 64);
    struct virt_vcpu *v = heap_alloc(before + virt_xsave_size);

    if (!v) return NULL;
    v->xsave = (u8 *)v + before;
    return v;
}

/* Resets the registers of a vCPU. Gives every register the value that SDM 3A table 10-1 lists.
 * Segments and other registers go through the vendor's hooks, because only those know where VMCS or
 * VMCB have them. */
void guest_reset(struct virt_vcpu *v) {
    static const struct guest_seg segs[SEG_NR] = {
        [SEG_ES] = { 0, RESET_DATA, RESET_LIMIT, 0 },
        [SEG_CS] = { RESET_CS, RESET_CODE, RESET_LIMIT, RESET_BASE },
        [SEG_SS] = { 0, RESET_DATA, RESET_LIMIT, 0 },
        [SEG_DS] = { 0, RESET_DATA, RESET_LIMIT, 0 },
        [SEG_FS] = { 0, RESET_DATA, RESET_LIMIT, 0 },
        [SEG_GS] = { 0, RESET_DATA, RESET_LIMIT, 0 },
        [SEG_LDTR] = { 0, RESET_LDT, RESET_LIMIT, 0 },
        [SEG_TR] = { 0, RESET_TSS, RESET_LIMIT, 0 },
        [SEG_GDTR] = { 0, 0, RESET_LIMIT, 0 },
        [SEG_IDTR] = { 0, 0, RESET_LIMIT, 0 },
    };
    static const u64 regs[VREG_NR] = {
        [VREG_CR0] = CR0_ET | CR0_NW | CR0_CD,
        [VREG_DR6] = DR6_ONES,
        [VREG_DR7] = DR7_ONES,
        [VREG_PAT] = PAT_RESET,
        [VREG_XCR0] = XCR0_X87,
    };

    memset(&v->regs, 0, sizeof(v->regs));
    v->regs.gpr[REG_RDX] = FAMILY_6;
    v->regs.rip = RESET_RIP;
    v->regs.rflags = RFLAGS_ONE;
    v->cr8 = 0;
    v->pending.type = EVENT_NONE;
    for (unsigned i = 0; i < SEG_NR; i++) virt->set_seg(v, (enum seg_name)i, &segs[i]);
    for (unsigned i = 0; i < VREG_NR; i++) virt->set_reg(v, (enum virt_reg)i, regs[i]);
    virt->reset_events(v);
}

/* ---- events ---- */

/* Queues an event again whose delivery an exit has cut short. `info` is how the CPU reports the
 * event (EVENT_* of vendor.h). Without this, an interrupt that was on its way when an exit happened
 * would be lost, and the guest's driver would wait for ever. */
void event_requeue(struct virt_vcpu *v, u32 info, u32 code) {
    static const u8 types[8] = { [EVENT_TYPE_INTR] = EVENT_IRQ,
                                 [EVENT_TYPE_NMI] = EVENT_NMI,
                                 [EVENT_TYPE_EXC] = EVENT_EXCEPTION };
    struct virt_event e = { types[EVENT_TYPE(info)], (u8)info, 0, info & EVENT_HAS_CODE, code };

    /* AMD-V reports INT3 and INTO as exceptions. No fault has these vectors, so they can be told
     * apart. */
    if (e.type == EVENT_EXCEPTION && (e.vector == EXC_BP || e.vector == EXC_OF)) return;
    if (e.type != EVENT_NONE) v->pending = e;
}

enum exc_class { BENIGN, CONTRIBUTORY, PAGE_FAULT, DOUBLE_FAULT };

/* Returns the class of an exception, by which the CPU decides what two exceptions together become
 * (SDM 3A table 6-4). */
static enum exc_class class_of(u8 vector) {
    static const u8 classes[32] = {
        [EXC_DE] = CONTRIBUTORY, [EXC_TS] = CONTRIBUTORY, [EXC_NP] = CONTRIBUTORY,
        [EXC_SS] = CONTRIBUTORY, [EXC_GP] = CONTRIBUTORY, [EXC_PF] = PAGE_FAULT,
        [EXC_DF] = DOUBLE_FAULT
    };

    return (enum exc_class)classes[vector & 31];
}

/* Is it a fault that pushes RFLAGS with RF set? The others are traps or aborts. Instruction
 * breakpoints (#DB) are faults, but push RF as it is. */
static bool is_fault(u8 vector) {
    return vector != EXC_DB && vector != EXC_NMI && vector != EXC_BP && vector != EXC_OF &&
           vector != EXC_DF && vector != EXC_MC;
}

/* Queues an exception for the next entry. Returns false if the result is a triple fault. Two
 * exceptions become #DF, or a triple fault, by SDM 3A table 6-5. Where that says that the two are
 * delivered one after the other, the pending one is lost. As on hardware, the CPU finds that fault
 * again when it executes the instruction again. */
bool guest_raise(struct virt_vcpu *v, u8 vector, bool has_code, u32 code) {
    enum exc_class first = BENIGN, second = class_of(vector);

    if (v->pending.type == EVENT_EXCEPTION) first = class_of(v->pending.vector);
    if (first == DOUBLE_FAULT && second != BENIGN) return false;
    v->pending = (struct virt_event){ EVENT_EXCEPTION, vector, 0, has_code, code };
    if ((first == CONTRIBUTORY && second == CONTRIBUTORY) ||
        (first == PAGE_FAULT && (second == CONTRIBUTORY || second == PAGE_FAULT)))
        v->pending = (struct virt_event){ EVENT_EXCEPTION, EXC_DF, 0, true, 0 };
    /* Two things the CPU does for its own exceptions, but not for those that we inject. It pushes
     * RFLAGS with RF for a fault, so that an instruction breakpoint there is not hit twice (SDM 3B
     * 18.3.1.1). And it clears DR7.GD for a #DB (SDM 3B 18.2.4). */
    if (is_fault(v->pending.vector)) v->regs.rflags |= RFLAGS_RF;
    if (vector == EXC_DB) virt->set_reg(v, VREG_DR7, virt->get_reg(v, VREG_DR7) & ~DR7_GD);
    return true;
}

/* ---- instructions ---- */

/* Returns the default operand size of the guest's code: 16, 32 or 64. */
unsigned guest_mode(struct virt_vcpu *v) {
    struct guest_seg cs;

    virt->get_seg(v, SEG_CS, &cs);
    return code_mode(virt->get_reg(v, VREG_EFER), cs.attr);
}

/* guest_skip() for the rare cases: RIP may wrap, TF (single step) or RF is set, or there is no
 * instruction to skip. RIP may become an address that is not canonical. That is left to the CPU,
 * which faults when it fetches from there, after the instruction that has been executed. VM entries
 * allow such a RIP (SDM 3C 27.3.1.4). */
static __attribute__((noinline)) void skip_carefully(struct virt_vcpu *v,
                                                     const struct vm_exit *exit) {
    u64 next = v->regs.rip + exit->insn_len;

    if (!exit->insn_len) return;
    v->regs.rip = next;
    if (guest_mode(v) != 64) v->regs.rip = (u32)next;
    v->regs.rflags &= ~RFLAGS_RF;
    virt->clear_shadow(v);
    if (v->regs.rflags & RFLAGS_TF) {
        virt->set_reg(v, VREG_DR6, virt->get_reg(v, VREG_DR6) | DR6_BS);
        guest_raise(v, EXC_DB, false, 0);
    }
}

/* Moves the guest to the instruction after the one that exited. Almost every exit ends here, so the
 * usual case is a few instructions. The rest is a function of its own that is not inlined. */
void guest_skip(struct virt_vcpu *v, const struct vm_exit *exit) {
    u64 next = v->regs.rip + exit->insn_len, flags = v->regs.rflags & (RFLAGS_TF | RFLAGS_RF);
    u64 crosses_2g = (v->regs.rip ^ next) >> 31;

    if (__builtin_expect(crosses_2g | flags, 0) || !exit->insn_len) {
        skip_carefully(v, exit);
        return;
    }
    v->regs.rip = next;
    virt->clear_shadow(v);
}

/* ---- why an entry failed ---- */

#define RFLAGS_RESERVED 0xffffffffffc08028ull /* bits that must be 0 */

/* Returns the sentence that says why the CPU refused to enter the guest, or NULL if that is not
 * known. It checks the rules of SDM 3C 27.3.1 and APM2 15.5.1 that registers can break, as the CPU
 * does not say which one was broken. */
const char *guest_why(struct virt_vcpu *v) {
    u64 cr0 = virt->get_reg(v, VREG_CR0), cr4 = virt->get_reg(v, VREG_CR4),
        efer = virt->get_reg(v, VREG_EFER);
    u64 rip = v->regs.rip, flags = v->regs.rflags;
    bool long_mode = cr0 & CR0_PG && efer & EFER_LME;
    unsigned physical_bits = PHYSICAL_BITS(cpuid_or_zero(CPUID_ADDRESSES, 0).eax);
    const struct {
        bool broken;
        const char *rule;
    } rules[] = {
        { cr0 & CR0_PG && !(cr0 & CR0_PE), "CR0.PG is set without CR0.PE" },
        { cr0 & CR0_NW && !(cr0 & CR0_CD), "CR0.NW is set without CR0.CD" },
        { (cr0 | cr4 | virt->get_reg(v, VREG_DR7)) >> 32, "CR0, CR4 or DR7 has a bit above 31" },
        { virt->get_reg(v, VREG_CR3) >> physical_bits, "CR3 is beyond the physical addresses" },
        { long_mode && !(cr4 & CR4_PAE), "long mode with paging but without CR4.PAE" },
        { long_mode != !!(efer & EFER_LMA), "EFER.LMA is not EFER.LME under paging" },
        { rip >> 32 && guest_mode(v) != 64, "RIP is above 4 GiB outside 64-bit mode" },
        { !(flags & RFLAGS_ONE) || flags & RFLAGS_RESERVED, "RFLAGS has a reserved bit" },
    };
    const char *why = NULL;

    if (virt->why) why = virt->why(v);
    if (why) return why;
    for (unsigned i = 0; i < ARRAY_SIZE(rules); i++)
        if (rules[i].broken) return rules[i].rule;
    return "a rule that is not among those checked here";
}
