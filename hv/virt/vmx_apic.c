/* APIC virtualization of VT-x: SDM 3C chapter 30. The CPU delivers interrupts to a guest without an
 * exit, and carries most of the guest's accesses to its LAPIC out: TPR, EOI and IPIs to itself
 * entirely, reads of registers that hold what was written last, and writes of others as far as
 * storing the value. For these it has the "virtual-APIC page", which looks like a LAPIC's page. The
 * guest's own accesses go to the "APIC-access page", at which the CPU only looks for the address.
 * What the registers mean is known to the LAPIC's own code (hv/vdev/vlapic.c). */
#include "common/insn.h"
#include "common/string.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"
#include "virt/vmx.h"

#define MSR_RANGE_WRITES 2048u /* from here on the bitmap of MSRs is about writes: SDM 3C 25.6.9 */

/* What Takt needs for it. CPUs that have the last have the others: servers since 2013. */
#define SEC_APICV (SEC_APIC_PAGE | SEC_X2APIC | SEC_APIC_REGS | SEC_VIRQ)
/* What the CPU does in APIC_BY_PAGE and APIC_BY_MSRS. */
#define SEC_DELIVERS (SEC_APIC_REGS | SEC_VIRQ)

/* The registers of a LAPIC in x2APIC mode, as their MSRs less MSR_X2APIC: SDM 3A table 11-6. */
enum x2apic {
    X2_ID = 0x02,
    X2_VERSION = 0x03,
    X2_TPR = 0x08,
    X2_PPR = 0x0a,
    X2_EOI = 0x0b,
    X2_LDR = 0x0d,
    X2_SVR = 0x0f, /* ISR, TMR, IRR and ESR follow */
    X2_ESR = 0x28,
    X2_LVT_TIMER = 0x32,
    X2_INITIAL = 0x38, /* the initial count of the timer, behind the last LVT */
    X2_DIVIDE = 0x3e,
    X2_SELF_IPI = 0x3f,
};

u8 *vmx_x2apic_bitmap;

/* Returns whether this CPU has all parts of it. */
bool vmx_has_apicv(void) {
    u64 offer = rdmsr(vmx_control[VMX_SECONDARY].msr) >> 32;

    return (offer & SEC_APICV) == SEC_APICV;
}

/* Lets a guest access some registers of its LAPIC as MSRs without an exit. With virtual-interrupt
 * delivery the CPU knows what to do with three of them when they are written. Those that are read
 * simply hold a value in the page. The current count of the timer does not, and ICR has 64 bits. */
static void free_x2apic(u8 *bitmap) {
    static const struct {
        u8 first, last;
    } reads[] = { { X2_ID, X2_VERSION },   { X2_TPR, X2_TPR }, { X2_PPR, X2_PPR },
                  { X2_LDR, X2_LDR },      { X2_SVR, X2_ESR }, { X2_LVT_TIMER, X2_INITIAL },
                  { X2_DIVIDE, X2_DIVIDE } };
    static const u8 writes[] = { X2_TPR, X2_EOI, X2_SELF_IPI };

    for (unsigned i = 0; i < ARRAY_SIZE(reads); i++)
        for (u32 n = reads[i].first; n <= reads[i].last; n++)
            bitmap[(MSR_X2APIC + n) / 8] &= (u8) ~(1u << (MSR_X2APIC + n) % 8);
    for (unsigned i = 0; i < ARRAY_SIZE(writes); i++) {
        u32 m = MSR_X2APIC + writes[i];

        bitmap[MSR_RANGE_WRITES + m / 8] &= (u8) ~(1u << m % 8);
    }
}

/* Allocates what all VMs share. */
bool vmx_use_apicv(void) {
    hpa_t page, bitmap;

    if (virt != &vmx_ops || !vmx_has_apicv()) return false;
    page = frame_alloc_zeroed(0);
    if (page == HPA_NONE) return false;
    bitmap = frame_alloc(0);
    if (bitmap == HPA_NONE) {
        frame_free(page, 0);
        return false;
    }
    vmx_x2apic_bitmap = memcpy(hpa_to_va(bitmap), vmx_msr_bitmap, PAGE_SIZE);
    free_x2apic(vmx_x2apic_bitmap);
    virt_apic_page = page;
    return true;
}

/* Writes what belongs to a mode. The bitmap has to change together with the control, because
 * without that an access which does not exit would be one to the LAPIC of the machine itself. In
 * APIC_BY_EXITS the CPU also looks for accesses to the page, as another vCPU of the VM may be in
 * APIC_BY_PAGE, for which the page is mapped: SDM 3C 30.4.1. In APIC_BY_MSRS it does not, so that
 * translations of that address could get into its TLB, and have to be flushed afterwards (29.4.3).
 * There are none, because nothing is mapped there any more (virt_apic_give). */
static void set_mode(struct vmx_vcpu *s, enum apic_mode mode) {
    static const u32 controls[] = { [APIC_BY_EXITS] = SEC_APIC_PAGE,
                                    [APIC_BY_PAGE] = SEC_APIC_PAGE | SEC_DELIVERS,
                                    [APIC_BY_MSRS] = SEC_X2APIC | SEC_DELIVERS };
    u32 want = vmx_control[VMX_SECONDARY].value | controls[mode];
    const u8 *bitmap = vmx_msr_bitmap;

    if (want == s->secondary) return;
    if (mode == APIC_BY_MSRS) bitmap = vmx_x2apic_bitmap;
    s->secondary = want;
    vmwrite(VMCS_SECONDARY, want);
    vmwrite(VMCS_MSR_BITMAP, va_to_hpa(bitmap));
}

/* An interrupt that waits for a lower priority, and that is to be injected, wants an exit when the
 * guest lowers its TPR. Writes of CR8 exit (set_primary()), and other writes of TPR exit because of
 * the threshold: TPR is not below it now. With virtual-interrupt delivery there is no threshold. */
static void set_threshold(const struct virt_vcpu *v) {
    u32 threshold = 0;

    if (v->want_cr8_exit && v->apic.mode == APIC_BY_EXITS) threshold = v->cr8;
    vmwrite(VMCS_TPR_THRESHOLD, threshold);
}

/* Brings the registers of the LAPIC to the page, where they stay after the next exit. The guest
 * interrupt status is written each time, because the CPU changes it while the guest runs. */
void vmx_apic_enter(struct virt_vcpu *v) {
    struct vmx_vcpu *s = v->priv;

    virt_apic_give(v);
    set_mode(s, v->apic.mode);
    set_threshold(v);
    vmwrite(VMCS_GUEST_APIC, GUEST_APIC(v->apic.requested, v->apic.in_service));
    for (unsigned i = 0; i < ARRAY_SIZE(s->eoi_exits); i++) {
        if (s->eoi_exits[i] == v->apic.eoi_exits[i]) continue;
        s->eoi_exits[i] = v->apic.eoi_exits[i];
        vmwrite(VMCS_EOI_EXITS + 2 * i, s->eoi_exits[i]);
    }
    v->cr8 = CR8_IN_PAGE;
}

/* All handlers of exits by MSRs and control registers find the registers in the LAPIC, because most
 * of these exits are accesses to it. Those of second-level faults find them there only if the fault
 * is at the address of the LAPICs. */
void vmx_apic_exit(struct virt_vcpu *v, const struct vm_exit *e) {
    bool wanted = e->reason == EXIT_RDMSR || e->reason == EXIT_WRMSR || e->reason == EXIT_CR ||
                  e->reason == EXIT_APIC_WRITE;

    if (e->reason == EXIT_NPF) wanted = e->npf.gpa - v->vm->apic_gpa < PAGE_SIZE;
    if (wanted) virt_apic_fetch(v);
}

/* An access to the page that the CPU does not carry out. It is a second-level fault for those who
 * emulate it, as if the page were not there. */
void vmx_decode_apic_access(struct virt_vcpu *v, struct vm_exit *e) {
    u64 q = vmread(VMCS_QUALIFICATION), kind = QUAL_APIC_KIND(q);

    e->reason = EXIT_NPF;
    e->npf.gpa = v->vm->apic_gpa + QUAL_APIC_OFFSET(q);
    e->npf.write = kind == APIC_ACCESS_WRITE;
    e->npf.exec = kind == APIC_ACCESS_FETCH;
    e->npf.present = false;
    e->npf.in_delivery = kind == APIC_ACCESS_DELIVERY || kind == APIC_ACCESS_PHYSICAL_DELIVERY;
    e->npf.in_walk = kind > APIC_ACCESS_PHYSICAL_DELIVERY;
}

/* The qualification is the vector of an EOI, or the offset of a write. */
void vmx_decode_apic_write(struct vm_exit *e, enum exit_reason reason) {
    e->reason = (u8)reason;
    e->apic.at = (u16)vmread(VMCS_QUALIFICATION);
}
