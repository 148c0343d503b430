/* How guests run: the operations that hv/virt has for VT-x and AMD-V, for a CPU on which a guest is
 * a coroutine and an exit is a call. whole.h has the contracts, port.h the structures. */
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>
#include "lib/printf.h"
#include "tests/whole/faults.h"
#include "tests/whole/whole.h"
#include "vcpu/vcpu.h"

#define LAUNCH_STACK 4096u /* the guest leaves it in its first instructions */
#define ASIDS        1000u

struct whole_vcpu { /* struct virt_vcpu's priv */
    struct whole_port port;
    struct strand strand;
    /* What the guest has called last. This is a copy, because the guest's RAM is not mapped all the
     * time. */
    struct whole_call call;
    struct tlb_tags *tags;
    u64 reg[VREG_NR];
    struct guest_seg seg[SEG_NR];
    u64 inject;     /* what the event costs that the guest is about to take, ps */
    u64 busy_until; /* the guest only computes until then, ns */
    u64 after_stop; /* what a debugger's stop has cut off the guest's stay, ps */
    bool begun;     /* the strand is in the guest */
    u8 stack[LAUNCH_STACK] __attribute__((aligned(16)));
};

struct whole_costs whole_costs;
struct virt_vcpu *whole_guest;

static struct tlb_tags tags[TAKT_MAX_CPUS];
static const struct virt_vcpu *last[TAKT_MAX_CPUS]; /* that was loaded; it may be gone */

static struct whole_vcpu *priv(const struct virt_vcpu *v) { return v->priv; }

u64 whole_base_of(const struct virt_vcpu *v) { return priv(v)->port.base; }

/* ---- what the guest calls ---- */

/* Stops for a debugger, and gives the guest the rest of its stay. Returns whether one was due. */
static bool stopped(struct whole_vcpu *w, const struct whole_call *c) {
    if (!w->after_stop || c->reason != WHOLE_TIME) return false;
    debug_stop(container_of(whole_guest->vm, struct vm, virt)->name,
               w->port.end - (u64)w->port.left);
    w->port.left += (i64)w->after_stop;
    w->port.end += w->after_stop;
    w->after_stop = 0;
    return true;
}

/* Runs on the guest's stack. Returns when the vCPU is entered again, perhaps on another pCPU. */
static void called(struct whole_call *c) {
    struct whole_vcpu *w = priv(whole_guest);

    if (stopped(w, c)) return;
    w->call = *c;
    whole_guest = NULL;
    strand_switch(&w->strand, engine_pcpu());
    *c = w->call;
}

void memory_fault(u64 gpa, bool write, u64 rip, i64 left) {
    struct whole_call c = {
        .reason = WHOLE_FAULT, .gpa = gpa, .write = write, .rip = rip, .nr_bytes = sizeof(c.bytes)
    };

    priv(whole_guest)->port.left = left;
    memcpy(c.bytes, (const void *)rip, sizeof(c.bytes));
    called(&c);
    panic("a guest went on after a fault at %lx of its RAM", rip - whole_base_of(whole_guest));
}

/* ---- making vCPUs ---- */

/* The address range of each VM, as long as it has vCPUs. */
static struct range { u32 vm, vcpus; } ranges[PORT_VMS];

/* Returns the range of the VM, or a free one if it has none yet. */
static struct range *range_of_vm(u32 id) {
    struct range *free = NULL;

    for (struct range *r = ranges; r < ranges + PORT_VMS; r++) {
        if (r->vcpus && r->vm == id) return r;
        if (!r->vcpus) free = r;
    }
    if (!free) panic("more than %u VMs at a time", PORT_VMS);
    free->vm = id;
    return free;
}

static u64 base_of_vm(const struct virt_vm *vm) {
    struct range *r = range_of_vm(container_of(vm, struct vm, virt)->id);

    if (!r->vcpus++) {
        cache_forget((u32)(r - ranges));
        sockets_forget((u32)(r - ranges));
        debug_place((u32)(r - ranges), vm);
    }
    return PORT_BASE + (u64)(r - ranges) * PORT_SPAN;
}

/* The VM's place among PORT_VMS. */
static u32 place_of(const struct virt_vcpu *v) {
    return (u32)((priv(v)->port.base - PORT_BASE) / PORT_SPAN);
}

static int vcpu_init_op(struct virt_vcpu *v) {
    struct whole_vcpu *w = aligned_alloc(64, ALIGN_UP(sizeof(*w), 64));

    memset(w, 0, sizeof(*w));
    w->port.base = base_of_vm(v->vm);
    w->port.per_instruction = (i64)nic_instruction(v->vm);
    w->port.tsc_offset = v->tsc_offset;
    w->port.call = called;
    v->priv = w;
    return 0;
}

static void vcpu_fini_op(struct virt_vcpu *v) {
    memory_forget(v);
    ranges[(priv(v)->port.base - PORT_BASE) / PORT_SPAN].vcpus--;
    free(v->priv);
    v->priv = NULL;
}

/* Also called for an INIT: the vCPU begins anew then. */
static void reset_events_op(struct virt_vcpu *v) { priv(v)->begun = false; }

static void load_op(struct virt_vcpu *v) {
    u32 cpu = this_cpu()->id;

    if (!tags[cpu].nr) tlb_tags_init(&tags[cpu], ASIDS);
    tlb_load(&v->vm->npt.tlb, &tags[cpu], &v->tlb, cpu);
    priv(v)->port.per_element = (i64)sockets_element(place_of(v), cpu);
    if (nic_load(v, cpu)) priv(v)->port.per_element = 0;
    if (v != last[cpu]) whole_charge(whole_costs.switch_);
    last[cpu] = v;
}

static void save_op(struct virt_vcpu *v) { tlb_save(&v->vm->npt.tlb, this_cpu()->id); }

/* ---- entries and exits ---- */

static void flush(enum tlb_flush what, void *ctx) { memory_forget(ctx); }

/* The state of a CPU that executes 64-bit code at CPL 0: what a guest's first instructions set up
 * on a real CPU. */
static void long_mode(struct whole_vcpu *w) {
    w->reg[VREG_CR0] = CR0_PE | CR0_PG;
    w->reg[VREG_CR4] = CR4_PAE;
    w->reg[VREG_EFER] = EFER_LME | EFER_LMA;
    w->seg[SEG_CS] = (struct guest_seg){ .sel = 8, .attr = 0xa9b, .limit = 0xffffffff };
}

/* Makes the coroutine of a vCPU's guest, before the vCPU is entered for the first time. vCPU 0
 * begins where its image says, with the address of its start information in RBX. Each other one
 * begins in real mode at a page that the guest has filled with a struct whole_ap. */
static void begin(struct virt_vcpu *v) {
    struct whole_vcpu *w = priv(v);
    u64 entry = w->port.base + v->regs.rip;

    if (!(w->reg[VREG_CR0] & CR0_PE)) {
        struct whole_ap ap = { 0 };

        guestmem_read(v->vm->mem, w->seg[SEG_CS].base + v->regs.rip, &ap, sizeof(ap));
        if (ap.magic != WHOLE_AP_MAGIC) panic("a vCPU begins where no guest has said how");
        entry = ap.entry;
        w->port.slot = (struct whole_port **)ap.slot;
    }
    strand_init(&w->strand, w->stack + LAUNCH_STACK, (void *)entry, &w->port,
                (void *)v->regs.gpr[REG_RBX]);
    long_mode(w);
    w->begun = true;
    w->call = (struct whole_call){ 0 };
    w->busy_until = 0;
    w->port.irqs = w->port.event = false;
}

/* Has the guest called in place of an instruction? The hypervisor then moves RIP over it. */
static bool is_instruction(const struct whole_call *c) {
    return c->reason != WHOLE_TIME && c->reason != WHOLE_WINDOW && c->reason != WHOLE_COMPUTE;
}

/* Hands the guest the event that the hypervisor wants it to take, and the registers as the
 * hypervisor has left them. */
static void prepare(struct virt_vcpu *v) {
    struct whole_vcpu *w = priv(v);
    u32 cpu = this_cpu()->id;

    if (tlb_stale(&v->vm->npt.tlb, &v->tlb))
        tlb_prepare(&v->vm->npt.tlb, &tags[cpu], &v->tlb, cpu, flush, v);
    if (!w->begun) begin(v);
    memcpy(w->call.gpr, v->regs.gpr, sizeof(v->regs.gpr));
    w->call.again = is_instruction(&w->call) && v->regs.rip == w->call.rip - w->port.base;
    w->port.attention = v->want_irq_window;
    if (v->pending.type == EVENT_NONE) return;
    w->port.event = true;
    w->inject = whole_costs.inject;
    w->port.vector = v->pending.vector;
    w->port.code = v->pending.code;
    v->pending.type = EVENT_NONE;
}

/* Runs the guest until it makes a call of the machine, which is its exit. If it makes none, it is
 * stopped at the time `limit` (ns). When this returns, `whole_now` is the time of the exit. */
static void enter(struct virt_vcpu *v, u64 limit) {
    struct whole_vcpu *w = priv(v);
    u64 left = (limit - whole_now) * PS_PER_NS;

    w->after_stop = debug_after(v->vm, limit) * PS_PER_NS;
    left -= w->after_stop;
    w->port.left += (i64)left;
    w->port.end = (whole_now * PS_PER_NS) + (u64)w->port.left;
    w->port.left -= (i64)w->inject;
    w->inject = 0;
    whole_guest = v; /* from here on a fault is the guest's */
    if (w->port.slot) *w->port.slot = &w->port;
    strand_switch(engine_pcpu(), &w->strand);
    /* What it has used of a ns stays in `left`, so that it is not lost. */
    left = MAX(w->port.end - (u64)w->port.left, whole_now * PS_PER_NS);
    w->port.left = -(i64)(left % PS_PER_NS);
    engine_wait(left / PS_PER_NS, false);
}

/* Describes to the hypervisor, in *e and in the vCPU's registers, why the guest has made its last
 * call, as hv/virt describes an exit. */
static void decode(struct virt_vcpu *v, struct vm_exit *e) {
    static const u8 reasons[] = {
        [WHOLE_TIME] = EXIT_INTR,
        [WHOLE_WINDOW] = EXIT_IRQ_WINDOW,
        [WHOLE_COMPUTE] = EXIT_INTR,
        [WHOLE_CPUID] = EXIT_CPUID,
        [WHOLE_HYPERCALL] = EXIT_HYPERCALL,
        [WHOLE_RDMSR] = EXIT_RDMSR,
        [WHOLE_WRMSR] = EXIT_WRMSR,
        [WHOLE_PORT_IO] = EXIT_IO,
        [WHOLE_MMIO] = EXIT_NPF,
        [WHOLE_FAULT] = EXIT_NPF,
        [WHOLE_HLT] = EXIT_HLT,
    };
    struct whole_vcpu *w = priv(v);
    const struct whole_call *c = &w->call;

    w->busy_until = 0;
    if (c->reason == WHOLE_COMPUTE) w->busy_until = whole_now + MIN(c->gpa, ~0ull - whole_now);
    e->reason = reasons[c->reason];
    e->raw = c->reason;
    e->insn_len = 1;
    memcpy(v->regs.gpr, c->gpr, sizeof(v->regs.gpr));
    v->regs.rip = c->rip - w->port.base;
    v->regs.rflags = RFLAGS_ONE;
    if (w->port.irqs) v->regs.rflags |= RFLAGS_IF;
    if (c->reason == WHOLE_HYPERCALL) e->hc.mode = 64;
    if (c->reason == WHOLE_PORT_IO) {
        e->io.port = c->port;
        e->io.size = c->size;
        e->io.in = c->in;
    }
    if (e->reason != EXIT_NPF) return;
    e->npf.gpa = c->gpa;
    e->npf.write = c->write;
    e->npf.mode = 64;
    e->npf.nr_bytes = c->nr_bytes;
    memcpy(e->npf.bytes, c->bytes, sizeof(c->bytes));
}

/* Does the hypervisor have to have the pCPU back before the guest executes more? */
static bool back_at_once(struct virt_vcpu *v, u64 deadline, struct vm_exit *e) {
    if (engine_interrupted())
        e->reason = EXIT_INTR;
    else if (whole_now >= deadline)
        e->reason = EXIT_TIMER;
    else if (v->want_irq_window && guest_can_take_irq(v))
        e->reason = EXIT_IRQ_WINDOW;
    else
        return false;
    return true;
}

/* Lets the time pass in which the VM's working set comes into the cache, until `deadline` at most.
 * Returns false if it is there. */
static bool refill(struct virt_vcpu *v, u64 deadline) {
    struct whole_vcpu *w = priv(v);
    u32 vm = place_of(v), cpu = this_cpu()->id;
    u64 ns = cache_missing_ns(vm, cpu), from = whole_now;

    if (!ns) return false;
    engine_wait(MIN(deadline, from + ns), true);
    cache_refilled(vm, cpu, whole_now - from);
    if (w->busy_until > from) w->busy_until += MIN(whole_now - from, ~0ull - w->busy_until);
    return true;
}

/* Enters the guest, and describes its next exit in *e; it takes the place of the function of
 * hv/virt that does so. Before that, virtual time passes for what the hypervisor's code has cost.
 * While the guest only computes, or has to wait for its working set, time passes without any code.
 * At `deadline` (ns) there is an exit for the timer. */
static void run_op(struct virt_vcpu *v, u64 deadline, struct vm_exit *e) {
    struct whole_vcpu *w = priv(v);

    memset(e, 0, sizeof(*e));
    engine_pay();
    /* An event stays in v->pending until the guest is entered, as the hypervisor must not deliver
     * another one before. */
    while (!back_at_once(v, deadline, e)) {
        if (refill(v, deadline)) continue;
        prepare(v);
        if (whole_now < w->busy_until && !w->port.event) {
            /* It touches nothing that others use, so it need not wait for what they do. */
            engine_wait(MIN(deadline, w->busy_until), true);
            continue;
        }
        enter(v, MIN(deadline, engine_horizon()));
        decode(v, e);
        if (w->call.reason == WHOLE_HYPERCALL && nic_holds_interrupt(v)) {
            v->regs.gpr[REG_RAX] = 0;
            v->regs.rip += e->insn_len;
            continue;
        }
        if (w->call.reason != WHOLE_TIME && w->call.reason != WHOLE_COMPUTE) break;
    }
    whole_owe(whole_costs.exit);
    if (!delivery_is_free(v, e) && !nic_is_free(v, e)) return;
    whole_owe(0);
    whole_instruction = 0;
}

/* ---- registers ---- */

static u64 get_reg_op(struct virt_vcpu *v, enum virt_reg r) { return priv(v)->reg[r]; }

static void set_reg_op(struct virt_vcpu *v, enum virt_reg r, u64 value) { priv(v)->reg[r] = value; }

static void get_seg_op(struct virt_vcpu *v, enum seg_name s, struct guest_seg *out) {
    *out = priv(v)->seg[s];
}

static void set_seg_op(struct virt_vcpu *v, enum seg_name s, const struct guest_seg *in) {
    priv(v)->seg[s] = *in;
}

static unsigned blocked_op(struct virt_vcpu *v) { return 0; }

static void clear_shadow_op(struct virt_vcpu *v) {}

static unsigned cpl_op(struct virt_vcpu *v) { return 0; }

static const char *why_op(struct virt_vcpu *v) { return NULL; }

const struct virt_ops whole_ops = {
    .name = "simulation",
    .npt_format = &npt_format_amd,
    .vcpu_init = vcpu_init_op,
    .vcpu_fini = vcpu_fini_op,
    .reset_events = reset_events_op,
    .load = load_op,
    .save = save_op,
    .run = run_op,
    .get_reg = get_reg_op,
    .set_reg = set_reg_op,
    .get_seg = get_seg_op,
    .set_seg = set_seg_op,
    .blocked = blocked_op,
    .clear_shadow = clear_shadow_op,
    .cpl = cpl_op,
    .why = why_op,
};
