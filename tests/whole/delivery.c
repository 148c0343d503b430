/* How interrupts reach a guest that runs. Without this model an interrupt for it is an exit, after
 * which the hypervisor injects the interrupt, and the guest's EOI is an exit, too. With posted
 * interrupts (SDM 3C, "Virtualizing Interrupts"; AVIC on AMD-V) the CPU does both without an exit.
 * The hypervisor's code runs all the same here, because it keeps the virtual LAPIC, but it costs
 * nothing then. What the CPU needs for an interrupt is `inject` of [model]. whole.h has the
 * contracts. */
#include "tests/whole/whole.h"
#include "vcpu/vcpu.h"

#define MSR_X2_EOI 0x80bu /* SDM 3A 11.12.1.2 */
#define LAPIC_EOI  0xb0u  /* SDM 3A table 11-1 */

static bool posted;

void delivery_start(const struct config_model *m) { posted = m->posted; }

bool delivery_is_free(const struct virt_vcpu *v, const struct vm_exit *e) {
    const struct vcpu *vcpu = container_of(v, struct vcpu, virt);

    if (!posted) return false;
    switch (e->reason) {
    case EXIT_INTR: return vcpu->todo == TODO_EVENT && !this_cpu()->need_resched;
    case EXIT_IRQ_WINDOW: return true;
    case EXIT_WRMSR: return (u32)v->regs.gpr[REG_RCX] == MSR_X2_EOI;
    case EXIT_NPF: return e->npf.write && e->npf.gpa == TAKT_LAPIC_GPA + LAPIC_EOI;
    default: return false;
    }
}
