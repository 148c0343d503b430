/* Control registers and XCR0: what the CPU would refuse is refused with #GP (SDM 3A 2.5, 4.1; APM2 3.1). */
#include "vm/vm.h"

#define CR0_PE         0x1ull
#define CR0_ET         0x10ull
#define CR0_NW         BIT(29)
#define CR0_CD         BIT(30)
#define CR0_PG         BIT(31)

#define CR4_VME        BIT(0)
#define CR4_PVI        BIT(1)
#define CR4_TSD        BIT(2)
#define CR4_DE         BIT(3)
#define CR4_PSE        BIT(4)
#define CR4_PAE        BIT(5)
#define CR4_MCE        BIT(6)
#define CR4_PGE        BIT(7)
#define CR4_OSFXSR     BIT(9)
#define CR4_OSXMMEXCPT BIT(10)
#define CR4_UMIP       BIT(11)
#define CR4_FSGSBASE   BIT(16)
#define CR4_OSXSAVE    BIT(18)
#define CR4_SMEP       BIT(20)
#define CR4_SMAP       BIT(21)

#define EFER_LME       BIT(8)
#define EFER_LMA       BIT(10)

#define XCR0_X87       BIT(0)
#define XCR0_SSE       BIT(1)
#define XCR0_AVX       BIT(2)
#define XCR0_AVX512    (BIT(5) | BIT(6) | BIT(7))

#define PDPTE_RESERVED 0x1e6ull /* and what is above the physical address bits */

/* With PAE paging outside long mode the CPU reads four entries at once, and refuses reserved bits (SDM 3A
 * 4.4.1). */
static bool pae_entries_valid(struct vcpu *v, u64 cr0, u64 cr4, u64 efer) {
    u64 entry[4], reserved = PDPTE_RESERVED | ~(BIT(cpuid_physical_bits()) - 1);

    if (!(cr0 & CR0_PG) || !(cr4 & CR4_PAE) || efer & EFER_LME) return true;
    if (guestmem_read(&v->vm->mem, virt->get_reg(&v->virt, VREG_CR3) & 0xffffffe0, entry, sizeof(entry)))
        return false;
    for (unsigned i = 0; i < ARRAY_SIZE(entry); i++)
        if (entry[i] & 1 && entry[i] & reserved) return false;
    return true;
}

static bool set_cr0(struct vcpu *v, u64 value) {
    u64 old = virt->get_reg(&v->virt, VREG_CR0), efer = virt->get_reg(&v->virt, VREG_EFER);
    u64 cr4 = virt->get_reg(&v->virt, VREG_CR4);

    value |= CR0_ET;
    if (value >> 32 || (value & CR0_PG && !(value & CR0_PE)) || (value & CR0_NW && !(value & CR0_CD)))
        return false;
    if (!pae_entries_valid(v, value, cr4, efer)) return false;
    if (value & ~old & CR0_PG && efer & EFER_LME) { /* long mode begins */
        struct guest_seg cs;

        virt->get_seg(&v->virt, SEG_CS, &cs);
        if (!(cr4 & CR4_PAE) || cs.attr & BIT(9)) return false;
        virt->set_reg(&v->virt, VREG_EFER, efer | EFER_LMA);
    }
    if (old & ~value & CR0_PG && efer & EFER_LMA) { /* and ends, from compatibility mode only */
        if (vcpu_mode(v) == 64) return false;
        virt->set_reg(&v->virt, VREG_EFER, efer & ~EFER_LMA);
    }
    virt->set_reg(&v->virt, VREG_CR0, value);
    return true;
}

/* The bits of features that guests see. */
u64 cr4_guest_mask(void) {
    u64 allowed = CR4_VME | CR4_PVI | CR4_TSD | CR4_DE | CR4_PSE | CR4_PAE | CR4_MCE | CR4_PGE | CR4_OSFXSR |
                  CR4_OSXMMEXCPT;
    if (cpuid_guest_has(1, 2, 26)) allowed |= CR4_OSXSAVE;
    if (cpuid_guest_has(7, 1, 0)) allowed |= CR4_FSGSBASE;
    if (cpuid_guest_has(7, 1, 7)) allowed |= CR4_SMEP;
    if (cpuid_guest_has(7, 1, 20)) allowed |= CR4_SMAP;
    if (cpuid_guest_has(7, 2, 2)) allowed |= CR4_UMIP;
    return allowed;
}

static bool set_cr4(struct vcpu *v, u64 value) {
    u64 efer = virt->get_reg(&v->virt, VREG_EFER);

    if (value & ~v->virt.vm->cr4_guest) return false;
    if (!(value & CR4_PAE) && efer & EFER_LMA) return false;
    if (!pae_entries_valid(v, virt->get_reg(&v->virt, VREG_CR0), value, efer)) return false;
    virt->set_reg(&v->virt, VREG_CR4, value);
    return true;
}

static bool set_cr8(struct vcpu *v, u64 value) {
    if (value > 15) return false;
    vlapic_set_cr8(&v->lapic, value);
    vcpu_lapic_written(v);
    return true;
}

static bool set_cr(struct vcpu *v, u8 cr, u64 value) {
    switch (cr) {
    case 0: return set_cr0(v, value);
    case 3:
        if (value >> cpuid_physical_bits()) return false;
        virt->set_reg(&v->virt, VREG_CR3, value);
        return true;
    case 4: return set_cr4(v, value);
    case 8: return set_cr8(v, value);
    default: return false;
    }
}

static u64 read_cr(struct vcpu *v, u8 cr) {
    switch (cr) {
    case 0: return virt->get_reg(&v->virt, VREG_CR0);
    case 3: return virt->get_reg(&v->virt, VREG_CR3);
    case 4: return virt->get_reg(&v->virt, VREG_CR4);
    case 8: return v->virt.cr8;
    default: return 0;
    }
}

void exit_cr(struct vcpu *v, const struct vm_exit *e) {
    if (e->cr.write) {
        if (!set_cr(v, e->cr.cr, e->cr.value)) return vcpu_gp(v);
    } else {
        v->virt.regs.gpr[e->cr.gpr & 15] = read_cr(v, e->cr.cr);
    }
    guest_skip(&v->virt, e);
}

static bool xcr0_valid(u64 xcr0) {
    if (!(xcr0 & XCR0_X87) || xcr0 & ~cpuid_xcr0_allowed()) return false;
    if (xcr0 & XCR0_AVX && !(xcr0 & XCR0_SSE)) return false;
    return !(xcr0 & XCR0_AVX512) || ((xcr0 & XCR0_AVX512) == XCR0_AVX512 && xcr0 & XCR0_AVX);
}

void exit_xsetbv(struct vcpu *v, const struct vm_exit *e) {
    const u64 *gpr = v->virt.regs.gpr;
    u64 value = (u64)(u32)gpr[REG_RDX] << 32 | (u32)gpr[REG_RAX];

    if (!(virt->get_reg(&v->virt, VREG_CR4) & CR4_OSXSAVE)) return vcpu_fault(v, EXC_UD, false, 0);
    if (virt->cpl(&v->virt) != 0 || (u32)gpr[REG_RCX] != 0 || !xcr0_valid(value)) return vcpu_gp(v);
    virt->set_reg(&v->virt, VREG_XCR0, value);
    guest_skip(&v->virt, e);
}
