#include "virt/vendor.h"

const struct virt_ops *virt;
u64 virt_xcr0_mask;

#define DR6_BS BIT(14)
#define DR7_GD BIT(13)

const struct reset_seg reset_segs[SEG_NR] = {
    { SEG_ES, { 0, 0x93, 0xffff, 0 } },   { SEG_CS, { 0xf000, 0x9b, 0xffff, 0xffff0000 } },
    { SEG_SS, { 0, 0x93, 0xffff, 0 } },   { SEG_DS, { 0, 0x93, 0xffff, 0 } },
    { SEG_FS, { 0, 0x93, 0xffff, 0 } },   { SEG_GS, { 0, 0x93, 0xffff, 0 } },
    { SEG_LDTR, { 0, 0x82, 0xffff, 0 } }, { SEG_TR, { 0, 0x8b, 0xffff, 0 } },
    { SEG_GDTR, { 0, 0, 0xffff, 0 } },    { SEG_IDTR, { 0, 0, 0xffff, 0 } },
};

void event_requeue(struct virt_vcpu *v, u32 info, u32 code) {
    struct virt_event e = { .vector = (u8)info, .has_code = info & EVENT_HAS_CODE, .code = code };

    switch (info >> 8 & 7) {
    case EVENT_TYPE_INTR: e.type = EVENT_IRQ; break;
    case EVENT_TYPE_NMI: e.type = EVENT_NMI; break;
    case EVENT_TYPE_EXC:
        /* AMD-V reports INT3 and INTO like this; as faults they do not exist. */
        if (e.vector == EXC_BP || e.vector == EXC_OF) return;
        e.type = EVENT_EXCEPTION;
        break;
    default: return;
    }
    v->pending = e;
}

static bool is_64bit(struct virt_vcpu *v) {
    struct guest_seg cs;

    if (!(virt->get_reg(v, VREG_EFER) & EFER_LMA)) return false;
    virt->get_seg(v, SEG_CS, &cs);
    return cs.attr & ATTR_LONG;
}

static bool is_canonical(struct virt_vcpu *v, u64 va) {
    unsigned shift = virt->get_reg(v, VREG_CR4) & CR4_LA57 ? 7 : 16;

    return (u64)((i64)(va << shift) >> shift) == va;
}

/* Across a border beyond which RIP wraps or is refused, or with the trap flag set. */
static __attribute__((noinline)) void skip_carefully(struct virt_vcpu *v, const struct vm_exit *exit) {
    u64 next = v->regs.rip + exit->insn_len;

    if (!exit->insn_len) return;
    if (!is_64bit(v))
        next = (u32)next;
    else if (!is_canonical(v, next)) {
        guest_raise(v, EXC_GP, true, 0);
        return;
    }
    v->regs.rip = next;
    virt->clear_shadow(v);
    if (v->regs.rflags & RFLAGS_TF) {
        virt->set_reg(v, VREG_DR6, virt->get_reg(v, VREG_DR6) | DR6_BS);
        guest_raise(v, EXC_DB, false, 0);
    }
}

void guest_skip(struct virt_vcpu *v, const struct vm_exit *exit) {
    u64 next = v->regs.rip + exit->insn_len;

    if (__builtin_expect((v->regs.rip ^ next) >> 31 | (v->regs.rflags & RFLAGS_TF), 0) || !exit->insn_len) {
        skip_carefully(v, exit);
        return;
    }
    v->regs.rip = next;
    virt->clear_shadow(v);
}

enum exc_class { BENIGN, CONTRIBUTORY, PAGE_FAULT, DOUBLE_FAULT };

static enum exc_class class_of(u8 vector) {
    switch (vector) {
    case EXC_DE:
    case EXC_TS:
    case EXC_NP:
    case EXC_SS:
    case EXC_GP: return CONTRIBUTORY;
    case EXC_PF: return PAGE_FAULT;
    case EXC_DF: return DOUBLE_FAULT;
    default: return BENIGN;
    }
}

/* SDM 3A table 6-5. What was pending is lost where the two are delivered one after the other: as on
 * hardware, a fault is found again when its instruction is executed again. */
bool guest_raise(struct virt_vcpu *v, u8 vector, bool has_code, u32 code) {
    enum exc_class first = v->pending.type == EVENT_EXCEPTION ? class_of(v->pending.vector) : BENIGN;
    enum exc_class second = class_of(vector);

    if (first == DOUBLE_FAULT && second != BENIGN) return false;
    if ((first == CONTRIBUTORY && second == CONTRIBUTORY) ||
        (first == PAGE_FAULT && (second == CONTRIBUTORY || second == PAGE_FAULT))) {
        vector = EXC_DF;
        has_code = true;
        code = 0;
    }
    if (vector ==
        EXC_DB) /* the CPU does so when it delivers one, but not one that we inject: SDM 3B 18.2.4 */
        virt->set_reg(v, VREG_DR7, virt->get_reg(v, VREG_DR7) & ~DR7_GD);
    v->pending =
        (struct virt_event){ .type = EVENT_EXCEPTION, .vector = vector, .has_code = has_code, .code = code };
    return true;
}
