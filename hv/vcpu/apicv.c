/* LAPICs of which the CPU emulates a part (APIC virtualization, virt.h): when their registers go to
 * the page where the CPU finds them and come back, and what is left to do for their exits. While
 * the guest runs, and until somebody wants the LAPIC after an exit, the registers are in the page.
 * Interrupts that come meanwhile wait in the LAPIC, and are put into the page before the next
 * entry. */
#include "common/string.h"
#include "trace/trace.h"
#include "vcpu/exits.h"
#include "x86/tsc.h"

/* Does the CPU deliver interrupts after the next entry, as apicv_choose() has decided? Without a
 * LAPIC that is on, nobody does. */
static bool delivers(const struct vcpu *v) { return !v->injects && vlapic_on(&v->lapic); }

/* Interrupts are injected in three cases.
 *
 * The handler of one that waits makes no EOI. The CPU puts each vector that it delivers in service,
 * and this one would stay there for ever. All others are injected meanwhile, to keep their order.
 *
 * The guest cannot take the next interrupt at the entry, most often because IF is clear. A CPU
 * waits until it can. But Bochs delivers it with IF clear if a physical interrupt comes meanwhile.
 * So there is one exit, as without APIC virtualization, at the moment at which the guest can take
 * it.
 *
 * Events are traced, and the CPU does not tell when it delivers.
 *
 * vcpu_prepare() calls this before the next entry after something was raised, and acts on the
 * answer. So the answer is kept. To look at IRR once more when the registers go to the page could
 * give another one, because other pCPUs raise interrupts at any time. */
bool apicv_choose(struct vcpu *v) {
    bool waits, later;

    vcpu_lapic_fetch(v);
    waits = vlapic_pending(vcpu_lapic(v)) > 0;
    later = waits && !guest_can_take_irq(&v->virt);
    v->injects = later || trace_mask & TRACE_CLASS_EVENT || vlapic_wants_injection(&v->lapic);
    v->cpu_delivers = waits && delivers(v);
    return delivers(v);
}

/* The vector may wait in the page, from where the CPU would deliver it as it was meant before. So
 * the vCPU has to leave its guest, and fetches its LAPIC. */
void apicv_vector_changed(struct vcpu *v) {
    if (v->virt.apic.page) vcpu_notify(v, TODO_EVENT);
}

/* Is virt_apic_fetch(): fetches the registers from the page. */
static void from_page(struct virt_vcpu *hw) {
    struct vcpu *v = container_of(hw, struct vcpu, virt);

    vlapic_from_page(&v->lapic, hw->apic.page);
    hw->cr8 = (u8)vlapic_cr8(&v->lapic);
}

/* Takes away what the VM has at the address of its LAPICs, if that is no LAPIC's page for this
 * vCPU: its LAPIC is off, or in x2APIC mode. The tables are those of all vCPUs of the VM, so that
 * from now on the accesses of all of them exit. A vCPU that finds `apic_mapped` clear may enter its
 * guest, so it is cleared only when all is done. */
static void unmap_page(struct vcpu *v) {
    struct virt_vm *vm = v->virt.vm;

    if ((v->lapic.base & (APIC_BASE_EN | APIC_BASE_EXTD)) == APIC_BASE_EN) return;
    spin_lock(&vm->apic_lock);
    if (vm->apic_mapped) npt_unmap(&vm->npt, vm->apic_gpa, PAGE_SIZE); /* small: it cannot fail */
    __atomic_store_n(&vm->apic_mapped, false, __ATOMIC_RELEASE);
    spin_unlock(&vm->apic_lock);
}

/* Is virt_apic_give(): puts the registers into the page. */
static void to_page(struct virt_vcpu *hw) {
    struct vcpu *v = container_of(hw, struct vcpu, virt);
    bool gives = delivers(v);
    struct vlapic_in_page in;

    if (__atomic_load_n(&hw->vm->apic_mapped, __ATOMIC_ACQUIRE)) unmap_page(v);
    vlapic_to_page(&v->lapic, hw->apic.page, gives, now_ns(), &in);
    hw->apic.mode = APIC_BY_EXITS;
    if (gives) hw->apic.mode = APIC_BY_PAGE;
    if (gives && vlapic_x2(&v->lapic)) hw->apic.mode = APIC_BY_MSRS;
    hw->apic.requested = in.next_irr;
    hw->apic.in_service = in.next_isr;
    memcpy(hw->apic.eoi_exits, in.eoi, sizeof(in.eoi));
}

/* The guest has written a register of its LAPIC, and the value is in the page. */
void exit_apic_write(struct vcpu *v, const struct vm_exit *e) {
    u32 value = v->virt.apic.page[e->apic.at / sizeof(u32)], at = e->apic.at;
    struct vlapic *l = vcpu_lapic(v);

    if (vlapic_x2(l)) /* only an IPI to itself with an illegal vector: an error that ESR shows */
        vlapic_wrmsr(l, MSR_X2APIC + at / 16, value, now_ns());
    else
        vlapic_write(l, at, value, now_ns());
    vcpu_lapic_written(v);
}

/* Makes something answer at the address of a new VM's LAPICs, without which the CPU would not
 * emulate them. */
int apicv_map(struct vm *vm) {
    vm->virt.apic_gpa = TAKT_LAPIC_GPA;
    if (virt_apic_page == HPA_NONE) return 0;
    vm->virt.apic_mapped = true;
    return npt_map(&vm->virt.npt, TAKT_LAPIC_GPA, virt_apic_page, PAGE_SIZE, NPT_RW, NPT_WB);
}

void apicv_init(void) {
    virt_apic_give = to_page;
    virt_apic_fetch = from_page;
}
