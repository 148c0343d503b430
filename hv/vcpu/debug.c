/* Debugging a VM from outside, for the shell and for gdb (tools/gdbstub.py). Takt only stops the VM
 * at a debug exception, and lets one vCPU execute one instruction. All else is done by whoever
 * reads and writes registers and memory through the shell: a breakpoint is the instruction ICEBP
 * (0xf1), which the debugger writes into the guest's code. It has one byte, raises #DB whatever the
 * guest's privilege level and its IDT are, and #DB exits always (svm_run.c, vmx_run.c). So a VM
 * that is not debugged pays nothing. A step sets TF, by which the CPU raises #DB behind the
 * instruction. */
#include <takt/errno.h>
#include "trace/trace.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"

DEFINE_COUNTER(debug_stops);

/* Bits of DR6: SDM 3B 18.2.3. */
#define DR6_BREAKPOINTS 0xfull
#define DR6_BS          BIT(14)

/* Does no pCPU hold the state of a vCPU of this VM, and will none run one, until somebody lets the
 * VM go on? Only then do its registers and memory stay as they are. */
bool vm_rests(const struct vm *vm) {
    if (vm->state != VM_PAUSED && vm->state != VM_CRASHED) return false;
    for (u32 i = 0; i < vm->nr_vcpus; i++) {
        if (__atomic_load_n(&vm->vcpu[i]->sched.on_cpu, __ATOMIC_SEQ_CST) != SCHED_NO_CPU)
            return false;
    }
    return true;
}

/* Begins or ends the debugging of a VM. */
void vm_debug_set(struct vm *vm, bool on) {
    vm->debug = (struct vm_debug){ .on = on };
    if (on) return;
    /* A step may be under way, which has set TF. */
    for (u32 i = 0; i < vm->nr_vcpus; i++) vm->vcpu[i]->virt.regs.rflags &= ~RFLAGS_TF;
}

/* Lets one vCPU of a VM that is paused execute one instruction. TF makes it trap behind that. All
 * vCPUs get TODO_DEBUG, so that the others do not enter their guest meanwhile. */
int vm_debug_step(struct vm *vm, u32 vcpu) {
    struct vcpu *v = vm->vcpu[vcpu];

    if (vm->state != VM_PAUSED) return -EINVAL;
    vm->debug.step = vcpu + 1;
    vm->debug.stopped = 0;
    v->virt.regs.rflags |= RFLAGS_TF;
    for (u32 i = 0; i < vm->nr_vcpus; i++)
        __atomic_fetch_or(&vm->vcpu[i]->todo, TODO_DEBUG, __ATOMIC_SEQ_CST);
    return vm_unpause(vm);
}

/* Stops the VM, because of a debug exception of this vCPU. If two vCPUs stop it at the same time,
 * the first one is reported. */
static void debug_stop(struct vcpu *v, u64 dr6) {
    struct vm_debug *d = &v->vm->debug;
    u32 none = 0;

    if (__atomic_compare_exchange_n(&d->stopped, &none, v->id + 1, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        d->dr6 = dr6;
    counter_inc(&debug_stops, this_cpu()->id);
    vm_pause(v->vm);
    d->step = 0;
    this_cpu()->need_resched = true; /* so that the vCPU is not entered again */
}

/* Takes a debug exception of a VM that is debugged: stops the VM, or lets the vCPU go on if the
 * trap is not of a step of this vCPU. A TF that is set without a step was kept in memory by an
 * instruction such as PUSHF that was stepped over. The vCPU goes on without it. */
void vcpu_debug_trap(struct vcpu *v, bool icebp) {
    u64 dr6 = vcpu_reg(v, VREG_DR6) & (DR6_BREAKPOINTS | DR6_BS);

    vcpu_set_reg(v, VREG_DR6, vcpu_reg(v, VREG_DR6) & ~(DR6_BREAKPOINTS | DR6_BS));
    v->virt.regs.rflags &= ~RFLAGS_TF;
    if (icebp) dr6 = 0;
    if (dr6 == DR6_BS && v->vm->debug.step != v->id + 1) return;
    debug_stop(v, dr6);
}

/* Says whether the vCPU may enter its guest, for a VM that is debugged. During a step only the vCPU
 * of the step may, and only until its trap. `todo` holds what the vCPU would do before the entry,
 * which is kept for later if it may not.
 *
 * An instruction that Takt emulates leaves its single-step trap pending (guest_skip()), and so the
 * trap is found here. TODO_DEBUG stays set until the step ends.
 *
 * If TF were set in the shadow of STI (the one instruction after it, before which no interrupt is
 * taken), VT-x would demand that BS is pending, too (SDM 3C 27.3.1.5). So the shadow ends here.
 * All that is lost is that an interrupt would have waited for one more
 * instruction. */
bool vcpu_debug_enters(struct vcpu *v, u32 todo) {
    struct virt_event *e = &v->virt.pending;
    u32 step = v->vm->debug.step;

    if (!step) return true;
    __atomic_fetch_or(&v->todo, TODO_DEBUG, __ATOMIC_SEQ_CST);
    if (step == v->id + 1 && !(e->type == EVENT_EXCEPTION && e->vector == EXC_DB)) {
        virt->clear_shadow(&v->virt);
        return true;
    }
    __atomic_fetch_or(&v->todo, todo, __ATOMIC_SEQ_CST);
    if (step == v->id + 1) {
        e->type = EVENT_NONE;
        vcpu_debug_trap(v, false);
    } else {
        sched_yield(&v->sched);
        this_cpu()->need_resched = true;
    }
    return false;
}
