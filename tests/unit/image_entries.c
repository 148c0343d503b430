/* Checks each VMCS and each VMCB in a real boot. The image build/takt-checked.elf is the same
 * hypervisor, but the linker (ld --wrap) leads its calls of vmx_enter() and svm_enter() through
 * this file. */
#include "entry_check.h"
#include "lib/printf.h"
#include "mm/frame.h"
#include "trace/trace.h"
#include "virt/vendor.h"

DEFINE_COUNTER(entries_checked);
DEFINE_COUNTER(entries_broken);

/* The linker's names for what it wraps. */
int __wrap_vmx_enter(struct guest_regs *regs, bool launched);
int __real_vmx_enter(struct guest_regs *regs, bool launched);
void __wrap_svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa);
void __real_svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa);

/* The entry happens in any case: some guests bring states that the CPU refuses, and Takt then
 * stops them. */
static void tell(const char *broken) {
    counter_inc(&entries_checked, this_cpu()->id);
    if (!broken) return;
    counter_inc(&entries_broken, this_cpu()->id);
    log_warn("an entry breaks a rule: %s", broken);
}

int __wrap_vmx_enter(struct guest_regs *regs, bool launched) {
    tell(vmx_broken_rule());
    return __real_vmx_enter(regs, launched);
}

void __wrap_svm_enter(struct guest_regs *regs, u64 vmcb_pa, u64 host_pa) {
    const struct vmcb *b = hpa_to_va(vmcb_pa);
    const char *broken = svm_broken_rule(b);

    if (!broken) broken = svm_broken_clean_bit(b);
    tell(broken);
    __real_svm_enter(regs, vmcb_pa, host_pa);
    svm_note_exit(b);
}
