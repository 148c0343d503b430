/* The hypercall exit: finds the call that the guest wants, checks its arguments, makes it. A
 * hypercall is a call of a guest to the hypervisor, by VMCALL or VMMCALL. RAX holds its number and
 * becomes its result; RBX, RCX, RDX and RSI hold the arguments. */
#include "vcpu/hypercall.h"
#include <takt/errno.h>
#include "lib/printf.h"
#include "trace/trace.h"
#include "vcpu/exits.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

DEFINE_COUNTER(hypercalls);

#define MAX_CALLS TAKT_HC_CONTROL /* no hypercall has this number or a higher one */

static struct hypercall calls[MAX_CALLS]; /* by number; constant after the boot */

/* Adds `n` hypercalls to the table. Each room of the hypervisor that has hypercalls calls this at
 * boot. */
void hypercalls_add(const struct hypercall *c, u32 n) {
    for (u32 i = 0; i < n; i++) {
        ASSERT(c[i].nr < MAX_CALLS);
        calls[c[i].nr] = c[i];
    }
}

/* Refuses a hypercall that only a privileged VM may make, since no VM is privileged yet. The log
 * gets one line a second at most, whichever VM asks. */
static i64 refuse_control(const struct vcpu *v, u64 nr) {
    static u64 quiet_until;
    u64 now = now_ns();

    if (now >= quiet_until) {
        quiet_until = now + NS_PER_S;
        log_warn("%s: is not privileged for hypercall %u", v->vm->name, (unsigned)nr);
    }
    return -EPERM;
}

/* Checks the arguments of a hypercall and makes it. Returns its result, or a negative errno. */
static i64 call(struct vcpu *v, u64 nr, const u64 *a) {
    const struct hypercall *c;

    if (nr >= TAKT_HC_CONTROL && nr <= TAKT_HC_CONTROL_LAST) return refuse_control(v, nr);
    if (nr >= ARRAY_SIZE(calls)) return -ENOSYS;
    c = &calls[nr];
    if (!c->fn) return -ENOSYS;
    for (unsigned i = 0; i < c->words; i++)
        if (a[i] >> 32) return -EINVAL;
    if (c->buffer && a[1] > HC_BUFFER_MAX) return -EINVAL;
    if (c->buffer && a[1] && !guestmem_has(&v->vm->mem, a[0], a[1])) return -EFAULT;
    return c->fn(v, a);
}

/* Handles the exit of a hypercall. Only the guest's kernel (CPL 0) may make hypercalls; its
 * programs get -EPERM. A call that has to wait returns HC_AGAIN: the instruction is not skipped,
 * and the call is made again later. */
void exit_hypercall(struct vcpu *v, const struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr, nr = gpr[REG_RAX];
    u64 a[4] = { gpr[REG_RBX], gpr[REG_RCX], gpr[REG_RDX], gpr[REG_RSI] };
    bool wide = e->hc.mode == 64;
    i64 result = -EPERM;

    if (e->hc.real) return vcpu_fault(v, EXC_UD, false, 0); /* real mode has no hypercalls */
    if (!wide) {
        nr = (u32)nr;
        for (unsigned i = 0; i < ARRAY_SIZE(a); i++) a[i] = (u32)a[i];
    }
    counter_inc(&hypercalls, this_cpu()->id);
    if (e->hc.cpl == 0) result = call(v, nr, a);
    if (result == HC_AGAIN) { /* vcpu_prepare() makes the call again when the vCPU is woken */
        v->again = *e;
        v->again_exits = v->exits;
        return;
    }
    if (__builtin_expect(trace_mask & TRACE_CLASS_EXIT, 0))
        trace(this_cpu()->id, now_ns(), TRC_HYPERCALL, vcpu_trace_id(v), (u32)nr, (u32)a[0],
              (u32)result, 0);
    gpr[REG_RAX] = wide ? (u64)result : (u32)result;
    guest_skip(&v->virt, e);
}
