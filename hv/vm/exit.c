/* What becomes of an exit. Handlers are functions of (vcpu, exit), by table. */
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/smp.h"
#include "trace/trace.h"
#include "vdev/decode.h"
#include "vm/vm.h"
#include "x86/percpu.h"

DEFINE_COUNTER(mmio_emulated);

void vcpu_fault(struct vcpu *v, u8 vector, bool has_code, u32 code) {
    if (!guest_raise(&v->virt, vector, has_code, code)) vm_crash(v->vm, v, "triple fault");
}

static void exit_nothing(struct vcpu *v, const struct vm_exit *e) {}

static void exit_intr(struct vcpu *v, const struct vm_exit *e) { irq_window(); }

static void exit_window(struct vcpu *v, const struct vm_exit *e) {
    __atomic_fetch_or(&v->todo, TODO_EVENT, __ATOMIC_SEQ_CST);
}

/* Asleep until vcpu_prepare(), which comes next, finds something to deliver. */
static void exit_hlt(struct vcpu *v, const struct vm_exit *e) {
    guest_skip(&v->virt, e);
    v->halted = true;
    __atomic_fetch_or(&v->todo, TODO_EVENT, __ATOMIC_SEQ_CST);
}

static void exit_pause(struct vcpu *v, const struct vm_exit *e) {
    guest_skip(&v->virt, e);
    sched_yield(&v->sched);
    this_cpu()->need_resched = true;
}

static void exit_skip(struct vcpu *v, const struct vm_exit *e) { guest_skip(&v->virt, e); }

static void exit_ud(struct vcpu *v, const struct vm_exit *e) { vcpu_fault(v, EXC_UD, false, 0); }

static void exit_gp(struct vcpu *v, const struct vm_exit *e) { vcpu_gp(v); }

/* Those that the vendor intercepts for its own reasons go back to the guest. */
static void exit_exception(struct vcpu *v, const struct vm_exit *e) {
    irq_window();                        /* exceptions that never end would keep interrupts out */
    if (e->exc.vector == EXC_MC) return; /* the host's, whose handler has run */
    if (e->exc.vector == EXC_PF) virt->set_reg(&v->virt, VREG_CR2, e->exc.addr);
    vcpu_fault(v, e->exc.vector, e->exc.has_code, e->exc.code);
}

static void exit_task_switch(struct vcpu *v, const struct vm_exit *e) {
    vm_crash(v->vm, v, "hardware task switch");
}

static void exit_shutdown(struct vcpu *v, const struct vm_exit *e) { vm_crash(v->vm, v, "triple fault"); }

static void exit_misconfig(struct vcpu *v, const struct vm_exit *e) {
    vm_crash(v->vm, v, "malformed second-level entry (a fault of the hypervisor)");
}

static void exit_entry_failed(struct vcpu *v, const struct vm_exit *e) {
    vm_crash(v->vm, v, "the CPU refuses to enter it: %s", virt->why(&v->virt));
}

static void exit_unknown(struct vcpu *v, const struct vm_exit *e) {
    vm_crash(v->vm, v, "exit %x that is not known, qualification %llx %llx", e->raw,
             (unsigned long long)e->info[0], (unsigned long long)e->info[1]);
}

/* ---- MMIO ---- */

static void bad_access(struct vcpu *v, const struct vm_exit *e, const char *what) {
    vm_crash(v->vm, v, "%s of guest-physical %llx: %s",
             e->npf.exec    ? "execution"
             : e->npf.write ? "write"
                            : "read",
             (unsigned long long)e->npf.gpa, what);
}

/* Another vCPU took the second page of an instruction away after the CPU had read it: if byte `n` cannot be
 * fetched
 * any more, the guest gets the fault that a new fetch takes. */
static bool fetch_faults(struct vcpu *v, unsigned n) {
    u64 va = v->virt.regs.rip + n;
    struct guest_seg cs;
    gpa_t gpa;
    u32 code;

    virt->get_seg(&v->virt, SEG_CS, &cs);
    if (vcpu_mode(v) != 64) va = (u32)(va + cs.base);
    if (n == INSN_MAX ||
        !guest_translate(&v->virt, va, GA_EXEC | (virt->cpl(&v->virt) == 3 ? GA_USER : 0), &gpa, &code))
        return false;
    virt->set_reg(&v->virt, VREG_CR2, va);
    vcpu_fault(v, EXC_PF, true, code);
    return true;
}

void exit_mmio(struct vcpu *v, const struct vm_exit *e) {
    struct bus_access a = { .addr = e->npf.gpa, .vcpu = v->id };
    struct mmio_insn in;
    u8 fetched[INSN_MAX];
    const u8 *bytes = e->npf.bytes;
    unsigned n = e->npf.nr_bytes, mode = e->npf.mode;
    u64 *gpr, value;

    if (e->npf.present) return bad_access(v, e, "it has no right to that");
    if (e->npf.exec || e->npf.in_walk)
        return bad_access(v, e, e->npf.exec ? "no RAM there" : "a page table has to be in RAM");
    counter_inc(&mmio_emulated, this_cpu()->id);
    if (!n) {
        n = guest_fetch(&v->virt, fetched, sizeof(fetched));
        bytes = fetched;
        mode = vcpu_mode(v);
    }
    if (mmio_decode(&in, bytes, n, mode)) {
        if (!fetch_faults(v, n)) bad_access(v, e, "not by a MOV that is emulated, or no device there");
        return;
    }
    if (in.write != e->npf.write)
        return; /* another vCPU changed the instruction meanwhile: execute what is there now */
    gpr = &v->virt.regs.gpr[in.reg];
    value = in.write ? mmio_stored(&in, *gpr) : 0;
    a.size = in.size;
    a.write = in.write;
    if ((e->npf.gpa & (PAGE_SIZE - 1)) + in.size > PAGE_SIZE || !bus_do(&v->vm->mmio, &a, &value))
        return bad_access(v, e, "no device there");
    if (!in.write) *gpr = mmio_loaded(&in, *gpr, value);
    guest_skip(&v->virt, &(struct vm_exit){ .reason = EXIT_NPF, .insn_len = in.len });
}

/* ---- dispatch ---- */

static const struct {
    void (*fn)(struct vcpu *, const struct vm_exit *);
    bool insn; /* an instruction exited, and the vendor has to know its length */
} handlers[EXIT_NR] = {
    [EXIT_INTR] = { exit_intr, false },
    [EXIT_TIMER] = { exit_nothing, false },
    [EXIT_NMI] = { exit_nothing, false },
    [EXIT_IRQ_WINDOW] = { exit_window, false },
    [EXIT_NMI_WINDOW] = { exit_window, false },
    [EXIT_CPUID] = { exit_cpuid, true },
    [EXIT_HYPERCALL] = { exit_hypercall, true },
    [EXIT_RDMSR] = { exit_rdmsr, true },
    [EXIT_WRMSR] = { exit_wrmsr, true },
    [EXIT_IO] = { exit_io, true },
    [EXIT_HLT] = { exit_hlt, true },
    [EXIT_PAUSE] = { exit_pause, true },
    [EXIT_NPF] = { exit_mmio, false },
    [EXIT_CR] = { exit_cr, true },
    [EXIT_XSETBV] = { exit_xsetbv, true },
    [EXIT_EXCEPTION] = { exit_exception, false },
    [EXIT_WBINVD] = { exit_skip, true },
    [EXIT_MONITOR] = { exit_ud, false },
    [EXIT_HIDDEN] = { exit_ud, false },
    [EXIT_DR] = { exit_ud, false },
    [EXIT_TASK_SWITCH] = { exit_task_switch, false },
    [EXIT_RDPMC] = { exit_gp, false },
    [EXIT_SHUTDOWN] = { exit_shutdown, false },
    [EXIT_INIT] = { exit_nothing, false },
    [EXIT_NPT_MISCONFIG] = { exit_misconfig, false },
    [EXIT_ENTRY_FAILED] = { exit_entry_failed, false },
    [EXIT_UNKNOWN] = { exit_unknown, false },
};

void vcpu_handle_exit(struct vcpu *v, const struct vm_exit *e) {
    if (__builtin_expect(handlers[e->reason].insn && !e->insn_len, 0)) {
        vm_crash(v->vm, v, "exit %x by an instruction that was not to be read", e->raw);
        return;
    }
    handlers[e->reason].fn(v, e);
}
