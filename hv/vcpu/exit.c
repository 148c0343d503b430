/* Handles exits, the moments at which the CPU leaves a guest for the hypervisor: chooses the
 * handler for the reason of an exit. Longer handlers are in other files (exits.h). A handler
 * emulates the instruction and skips it by guest_skip(), or gives the guest an exception, or ends
 * the VM. */
#include "platform/smp.h"
#include "trace/trace.h"
#include "vcpu/exits.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(pause_yields);

/* Ends the VM of a vCPU because of what its guest did, and logs the vCPU's state. vm_vcrash()
 * returns true for the first end of a VM only. Another vCPU may have crashed at the same time, and
 * its state is not what explains the end. */
void vcpu_crash(struct vcpu *v, const char *fmt, ...) {
    va_list ap;
    bool first;

    va_start(ap, fmt);
    first = vm_vcrash(v->vm, fmt, ap);
    va_end(ap);
    if (first) vcpu_dump(v);
}

/* Gives the guest an exception. If that is a triple fault, at which a machine would reset, the VM
 * ends. */
void vcpu_fault(struct vcpu *v, u8 vector, bool has_code, u32 code) {
    if (!guest_raise(&v->virt, vector, has_code, code)) vcpu_crash(v, "triple fault");
}

/* Gives the guest a page fault for the address `addr`, with the error code `code`. */
void vcpu_page_fault(struct vcpu *v, u64 addr, u32 code) {
    vcpu_set_reg(v, VREG_CR2, addr);
    vcpu_fault(v, EXC_PF, true, code);
}

/* The exits that are caused by an instruction which Takt emulates. It has to skip the instruction,
 * so it needs the length. */
#define BY_INSN                                                                                    \
    (BIT(EXIT_CPUID) | BIT(EXIT_HYPERCALL) | BIT(EXIT_RDMSR) | BIT(EXIT_WRMSR) | BIT(EXIT_IO) |    \
     BIT(EXIT_HLT) | BIT(EXIT_PAUSE) | BIT(EXIT_CR) | BIT(EXIT_XSETBV) | BIT(EXIT_WBINVD) |        \
     BIT(EXIT_ICEBP))

/* If the CPU cannot tell loops of PAUSEs from single PAUSEs, we take SPIN_PAUSES of them for a loop
 * if no two are more than SPIN_GAP apart. KVM, for example, offers no PAUSE-loop exiting to a
 * hypervisor that runs in a guest. The gap is long because an exit takes some microseconds
 * there. */
#define SPIN_PAUSES 32
#define SPIN_GAP    (100 * NS_PER_US) /* from one PAUSE to the next */

/* Returns whether the vCPU whose PAUSE has exited spins in a loop. If so, it waits for another
 * vCPU, and the pCPU should rather run that one. */
static bool spins(struct vcpu *v) {
    u64 now = rdtsc();

    if (virt_counts_pauses) return true;
    if (now - v->paused_at > ns_to_tsc(SPIN_GAP)) v->pauses = 0;
    v->paused_at = now;
    if (++v->pauses < SPIN_PAUSES) return false;
    v->pauses = 0;
    return true;
}

/* Handles the exit of a PAUSE. PAUSE stands in loops that wait for another CPU. The vCPU gives way
 * if it spins. */
static void handle_pause(struct vcpu *v, const struct vm_exit *e) {
    if (spins(v)) {
        counter_inc(&pause_yields, this_cpu()->id);
        sched_yield(&v->sched);
        this_cpu()->need_resched = true;
    }
    guest_skip(&v->virt, e);
}

/* Handles an exception of the guest that exits (#DB, #AC, #MC: see svm_run.c and vmx_run.c). The
 * guest gets it, unless it is a machine check, which is the host's. */
static void handle_exception(struct vcpu *v, const struct vm_exit *e) {
    irq_window(); /* otherwise a guest with endless exceptions would keep interrupts out */
    if (e->exc.vector == EXC_MC) return; /* the host's own, whose handler has run */
    if (e->exc.vector == EXC_DB && v->vm->debug.on) return vcpu_debug_trap(v, e->exc.icebp_len > 0);
    vcpu_fault(v, e->exc.vector, e->exc.has_code, e->exc.code);
    v->virt.pending.icebp_len = e->exc.icebp_len;
}

/* ICEBP raises #DB as a trap, with RIP behind the instruction. Debuggers have it as a
 * breakpoint. */
static void handle_icebp(struct vcpu *v, const struct vm_exit *e) {
    if (v->vm->debug.on) return vcpu_debug_trap(v, true);
    v->virt.regs.rip += e->insn_len;
    vcpu_fault(v, EXC_DB, false, 0);
}

/* Handles the rare exits. It is a function of its own so that the frequent exits need no stack
 * frame. Those by the timer, an NMI or an INIT are the host's, and need nothing more. An exit that
 * Takt cannot handle for the guest, such as a triple fault, crashes the VM. */
static __attribute__((noinline)) void handle_rare(struct vcpu *v, const struct vm_exit *e) {
    if (!e->insn_len && BY_INSN & BIT(e->reason))
        return vcpu_crash(v, "exit %x by an instruction that was not to be read", e->raw);
    switch (e->reason) {
    case EXIT_TIMER:
    case EXIT_NMI:
    case EXIT_INIT: return;
    case EXIT_IRQ_WINDOW:
    case EXIT_NMI_WINDOW: break;
    /* The vCPU will sleep, unless vcpu_prepare(), which comes next, finds something to deliver. */
    case EXIT_HLT:
        v->halted = true;
        guest_skip(&v->virt, e);
        break;
    case EXIT_PAUSE: return handle_pause(v, e);
    case EXIT_WBINVD: return guest_skip(&v->virt, e);
    case EXIT_XSETBV: return exit_xsetbv(v, e);
    case EXIT_HIDDEN: return vcpu_fault(v, EXC_UD, false, 0);
    case EXIT_RDPMC: return vcpu_gp(v);
    case EXIT_ICEBP: return handle_icebp(v, e);
    case EXIT_EXCEPTION: return handle_exception(v, e);
    case EXIT_APIC_EOI: return vlapic_eoi_done(&v->lapic, (u8)e->apic.at);
    case EXIT_APIC_WRITE: return exit_apic_write(v, e);
    case EXIT_TASK_SWITCH: return vcpu_crash(v, "hardware task switch");
    case EXIT_SHUTDOWN: return vcpu_crash(v, "triple fault");
    case EXIT_NPT_MISCONFIG:
        return vcpu_crash(v, "malformed second-level entry (a fault of the hypervisor)");
    case EXIT_ENTRY_FAILED:
        return vcpu_crash(v, "the CPU refuses to enter it: %s", guest_why(&v->virt));
    default:
        return vcpu_crash(v, "exit %x that is not known, qualification %lx %lx", e->raw, e->info[0],
                          e->info[1]);
    }
    /* An interrupt or NMI may be deliverable now, so vcpu_prepare() has to check. */
    __atomic_fetch_or(&v->todo, TODO_EVENT, __ATOMIC_SEQ_CST);
}

/* Handles an exit of the vCPU's guest. Frequent exits go through a table, without further
 * checks. */
void vcpu_handle_exit(struct vcpu *v, const struct vm_exit *e) {
    static void (*const frequent[EXIT_NR])(struct vcpu *, const struct vm_exit *) = {
        [EXIT_CPUID] = exit_cpuid, [EXIT_HYPERCALL] = exit_hypercall,
        [EXIT_RDMSR] = exit_rdmsr, [EXIT_WRMSR] = exit_wrmsr,
        [EXIT_IO] = exit_io,       [EXIT_CR] = exit_cr,
    };

    if (e->insn_len && frequent[e->reason]) return frequent[e->reason](v, e);
    if (e->reason == EXIT_NPF) return exit_mmio(v, e);
    if (e->reason == EXIT_INTR) return irq_window();
    handle_rare(v, e);
}
