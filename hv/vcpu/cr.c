/* Accesses of guests to control registers and XCR0. The CPU checks nothing of such a write when it
 * exits, so a value that a CPU would refuse has to raise #GP here (SDM 3A 2.5, 4.1; APM2 3.1). In
 * CR4 a guest may set only the bits of those features that CPUID shows it. "PAE paging" is the
 * format of page tables whose top table has four entries (PDPTEs). */
#include "vcpu/exits.h"
#include "virt/bits.h"

/* CR4 bits that all guests may set: VME PVI TSD DE PSE PAE MCE PGE OSFXSR OSXMMEXCPT. */
#define CR4_ALWAYS 0x6ffull

/* Bits of a PDPTE: SDM 3A table 4-8. The bits above the physical address are reserved, too. */
#define PDPTE_PRESENT  BIT(0)
#define PDPTE_RESERVED 0x1e6ull    /* bits 2:1 and 8:5 */
#define CR3_PAE_TABLE  0xffffffe0u /* the address of the four entries, SDM 3A table 4-7 */

#define CR8_MAX        15 /* a task priority has four bits */

/* Are the four entries of the top page table valid, if this is PAE paging outside long mode? On
 * VT-x the CPU reads all four at once and refuses reserved bits (SDM 3A 4.4.1). AMD-V with nested
 * paging reads an entry only when it needs it (APM2 15.25.10), so there nothing is checked. It
 * would even be wrong: QEMU's CPU sets bit 5, "accessed", in an entry, and then the guest would get
 * #GP when it switches paging on again. */
static bool pae_entries_valid(struct vcpu *v, u64 cr0, u64 cr4) {
    u64 entry[4], reserved = PDPTE_RESERVED | ~(BIT(cpuid_physical_bits()) - 1);

    if (!virt->reads_pdptes) return true;
    if (!(cr0 & CR0_PG) || !(cr4 & CR4_PAE) || vcpu_reg(v, VREG_EFER) & EFER_LME) return true;
    if (guestmem_read(&v->vm->mem, vcpu_reg(v, VREG_CR3) & CR3_PAE_TABLE, entry, sizeof(entry)))
        return false;
    for (unsigned i = 0; i < ARRAY_SIZE(entry); i++)
        if (entry[i] & PDPTE_PRESENT && entry[i] & reserved) return false;
    return true;
}

/* Writes CR0. Returns false if the guest has to get #GP: for combinations of bits for which a CPU
 * raises it. Together with EFER.LME, the change of paging begins or ends long mode, which EFER.LMA
 * shows. Long mode needs PAE, and a code segment that is not 64-bit yet or any more. */
static bool set_cr0(struct vcpu *v, u64 value) {
    u64 old = vcpu_reg(v, VREG_CR0), efer = vcpu_reg(v, VREG_EFER), cr4 = vcpu_reg(v, VREG_CR4);
    struct guest_seg cs;

    value |= CR0_ET;
    if (value >> 32) return false;
    if (value & CR0_PG && !(value & CR0_PE)) return false;
    if (value & CR0_NW && !(value & CR0_CD)) return false;
    if (!pae_entries_valid(v, value, cr4)) return false;
    virt->get_seg(&v->virt, SEG_CS, &cs);
    if (value & ~old & CR0_PG && efer & EFER_LME) { /* long mode begins */
        if (!(cr4 & CR4_PAE) || cs.attr & ATTR_LONG) return false;
        vcpu_set_reg(v, VREG_EFER, efer | EFER_LMA);
    }
    if (old & ~value & CR0_PG && efer & EFER_LMA) { /* and ends, from compatibility mode only */
        if (cs.attr & ATTR_LONG) return false;
        vcpu_set_reg(v, VREG_EFER, efer & ~EFER_LMA);
    }
    vcpu_set_reg(v, VREG_CR0, value);
    return true;
}

/* Returns the bits of CR4 that guests may set. A guest that sets a bit of a feature which CPUID
 * does not show it gets #GP, as on a CPU without it. */
u64 cr4_guest_mask(void) {
    static const struct {
        u8 leaf, reg, bit; /* as cpuid_guest_has() takes them */
        u64 cr4;
    } feature[] = {
        { 1, 2, 26, CR4_OSXSAVE }, { 7, 1, 0, CR4_FSGSBASE }, { 7, 1, 7, CR4_SMEP },
        { 7, 1, 20, CR4_SMAP },    { 7, 2, 2, CR4_UMIP },
    };
    u64 mask = CR4_ALWAYS;

    for (unsigned i = 0; i < ARRAY_SIZE(feature); i++)
        if (cpuid_guest_has(feature[i].leaf, feature[i].reg, feature[i].bit))
            mask |= feature[i].cr4;
    return mask;
}

/* Writes CR4. Returns false if the guest has to get #GP. */
static bool set_cr4(struct vcpu *v, u64 value) {
    if (value & ~v->virt.vm->cr4_guest) return false;
    if (!(value & CR4_PAE) && vcpu_reg(v, VREG_EFER) & EFER_LMA) return false;
    if (!pae_entries_valid(v, vcpu_reg(v, VREG_CR0), value)) return false;
    vcpu_set_reg(v, VREG_CR4, value);
    return true;
}

/* Writes control register `cr`. Returns false if the guest has to get #GP. CR8 is the priority of
 * the LAPIC: if it becomes lower, an interrupt that waits may be delivered. */
static bool set_cr(struct vcpu *v, u8 cr, u64 value) {
    switch (cr) {
    case 0: return set_cr0(v, value);
    case 3:
        if (value >> cpuid_physical_bits()) return false;
        vcpu_set_reg(v, VREG_CR3, value);
        return true;
    case 4: return set_cr4(v, value);
    case 8:
        if (value > CR8_MAX) return false;
        vlapic_set_cr8(&v->lapic, value);
        vcpu_lapic_written(v);
        return true;
    default: return false;
    }
}

/* Returns control register `cr` as the guest has set it. */
static u64 read_cr(struct vcpu *v, u8 cr) {
    switch (cr) {
    case 0: return vcpu_reg(v, VREG_CR0);
    case 2: return vcpu_reg(v, VREG_CR2);
    case 3: return vcpu_reg(v, VREG_CR3);
    case 4: return vcpu_reg(v, VREG_CR4);
    default: return v->virt.cr8;
    }
}

/* The handler of the exit of a MOV to or from a control register. */
void exit_cr(struct vcpu *v, const struct vm_exit *e) {
    if (!e->cr.write)
        v->virt.regs.gpr[e->cr.gpr & 15] = read_cr(v, e->cr.cr);
    else if (!set_cr(v, e->cr.cr, e->cr.value))
        return vcpu_gp(v);
    guest_skip(&v->virt, e);
}

/* May the guest set XCR0 to this value? Some parts of the FPU's state need others (SDM 1 13.3). */
static bool xcr0_valid(u64 xcr0) {
    if (!(xcr0 & XCR0_X87) || xcr0 & ~cpuid_xcr0_allowed()) return false;
    if (xcr0 & XCR0_AVX && !(xcr0 & XCR0_SSE)) return false;
    return !(xcr0 & XCR0_AVX512) || ((xcr0 & XCR0_AVX512) == XCR0_AVX512 && xcr0 & XCR0_AVX);
}

/* The handler of the exit of XSETBV, which writes XCR0. */
void exit_xsetbv(struct vcpu *v, const struct vm_exit *e) {
    const u64 *gpr = v->virt.regs.gpr;
    u64 value = (u64)(u32)gpr[REG_RDX] << 32 | (u32)gpr[REG_RAX];

    if (!(vcpu_reg(v, VREG_CR4) & CR4_OSXSAVE)) return vcpu_fault(v, EXC_UD, false, 0);
    if (virt->cpl(&v->virt) != 0 || (u32)gpr[REG_RCX] != 0 || !xcr0_valid(value)) return vcpu_gp(v);
    vcpu_set_reg(v, VREG_XCR0, value);
    guest_skip(&v->virt, e);
}
