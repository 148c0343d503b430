/* vCPUs, the loop of a pCPU that runs them, and the exits of their guests. */
#ifndef HV_VCPU_VCPU_H
#define HV_VCPU_VCPU_H

#include "vdev/vlapic.h"
#include "vm/vm.h"

/* What a vCPU has to look at before it enters its guest: bits of vcpu.todo. */
#define TODO_EVENT 0x1u /* an interrupt may be deliverable */
#define TODO_NMI   0x2u
#define TODO_INIT  0x4u
#define TODO_SIPI  0x8u  /* with sipi_vector */
#define TODO_TICK  0x10u /* the timer of its LAPIC may be due */
#define TODO_BREAK 0x20u /* for tests: it gets a state that no CPU enters */

struct vcpu {
    struct virt_vcpu virt; /* first: hot */
    u32 todo;              /* TODO_*; anybody sets bits with an atomic or */
    u32 nmis_sent;         /* since TODO_NMI was taken last; anybody adds atomically */
    /* The last event raised here, port << 8 | vector, to time its delivery; 0: none. It is written
     * at once, by anybody, so that no port is told with the vector of another. */
    u32 event;
    u32 id;
    struct vm *vm;
    struct sched_vcpu sched;
    struct vlapic lapic;
    struct takt_vcpu_info *info; /* the page that the guest reads; vcpu_publish() writes it */
    struct kvm_steal *steal;     /* the same for a guest of a PC, in its RAM; NULL: it has none */
    u64 kvmclock[4];             /* its MSRs, as the guest wrote them (kvmclock.c) */
    /* The rest belongs to its own pCPU. */
    bool waiting_sipi; /* since INIT */
    bool halted;       /* in HLT */
    /* to be delivered: at most two, as a CPU keeps one beside the one in progress */
    u8 nmis;
    u8 sipi_vector;
    u32 poll_port; /* TAKT_HC_POLL waits for it, or for TAKT_PORT_ANY; 0: it does not poll */
    /* A hypercall that is to be made again, and the value of `exits` then: while that stays, the
     * guest has not been entered since. 0: none. */
    struct vm_exit again;
    u64 again_exits;
    struct timer poll_timer, lapic_timer;
    u64 paused_at;    /* exit.c: the TSC at the last PAUSE that exited */
    u32 pauses;       /* exit.c: how many there were in a row */
    struct exit_log { /* the last exits, for dumps */
        u64 rip;
        u32 raw;
        u8 reason;
    } last[8];
    u64 exits;       /* all of them; also tells where in `last` the next one goes */
    u64 interrupted; /* of them, those for interrupts and NMIs to come and to be taken */
};
_Static_assert(offsetof(struct vcpu, virt) == 0, "the state that each entry touches comes first");

static inline struct vcpu *vcpu_of_sched(struct sched_vcpu *s) {
    return container_of(s, struct vcpu, sched);
}

/* How traces name a vCPU. */
static inline u32 vcpu_trace_id(const struct vcpu *v) { return v->vm->id << 16 | v->id; }

/* Once at boot, before the first VM and before cpu_loop(): what guests see of the CPU, and the
 * hypercalls of this room. */
void vcpu_init(void);
/* What guests' random numbers follow from (TAKT_CPUID_SEED). Set before the first VM, then
 * constant. */
extern u64 vm_seed;

/* Parts of a VM (vm/vm.h). */
extern const struct vm_part vcpus_part;  /* its vCPUs */
extern const struct vm_part events_part; /* event channels, and how they reach vCPUs */
/* LAPIC page, UART, the ports of debugcon and debug-exit */
extern const struct vm_part board_part;
/* of a VM that is a PC: IOAPIC, ACPI tables, and the ports that switch it off */
extern const struct vm_part pc_part;
extern const struct vm_part image_part; /* its image in RAM, and the registers of vCPU 0 */
extern const struct vm_part run_part;   /* vCPU 0 runs; undone when no vCPU runs any more */

/* A pin of the VM's IOAPIC, if it has one, is asserted if *cause is not 0 (vdev/vioapic.h). */
void vm_line(struct vm *vm, u32 pin, const u32 *cause);
/* Somebody has typed on the VM's console. */
void vm_uart_changed(struct vm *vm);

/* ---- the loop of a pCPU (run.c) ---- */

/* Never returns. The pCPU is online in the scheduler, and its timers and virt_cpu_enable() are
 * done. */
void cpu_loop(void) __attribute__((noreturn));
/* One pass of that loop, for tests. */
void cpu_pass(void);
/* Sets bits of v's `todo`, and sees to it that v looks at them soon. From any pCPU. Takes the
 * lock of v's pool if v sleeps. */
void vcpu_notify(struct vcpu *v, u32 todo);
/* v, which is this pCPU's current one, sleeps until it is notified; not at all if it has
 * something to do. */
void vcpu_block(struct vcpu *v);
/* Kicks the other pCPUs that have a vCPU of that VM loaded, so that they pass its newest
 * generation soon. */
void kick_users(const struct tlbgen *g);

/* ---- vCPUs (vcpu.c, deliver.c) ---- */

/* For sched_state_hook: writes the page that the guest reads. */
void vcpu_publish(struct sched_vcpu *s, u64 now);
static inline u64 vcpu_reg(struct vcpu *v, enum virt_reg r) { return virt->get_reg(&v->virt, r); }
static inline void vcpu_set_reg(struct vcpu *v, enum virt_reg r, u64 value) {
    virt->set_reg(&v->virt, r, value);
}
/* The vCPU's LAPIC, for its own accesses by whatever road. The guest moves CR8 without an exit,
 * and that is the LAPIC's TPR, so TPR is brought up to date here; vcpu_lapic_written() is the
 * way back. */
static inline struct vlapic *vcpu_lapic(struct vcpu *v) {
    if (v->virt.cr8 != vlapic_cr8(&v->lapic)) vlapic_set_cr8(&v->lapic, v->virt.cr8);
    return &v->lapic;
}
/* The vCPU wrote to its own LAPIC: an EOI or a lower TPR may let through what was pending
 * before. */
void vcpu_lapic_written(struct vcpu *v);
/* Does what `todo` asks for. Returns false if the vCPU is not to enter its guest now. */
bool vcpu_prepare(struct vcpu *v);
/* The registers of a vCPU that starts as an image says: 32-bit protected mode, flat, no paging. */
void vcpu_start_state(struct vcpu *v, const struct image_start *start);
/* Raises the other end of a port of v's VM, for v. Returns as evtchn_send(). */
int vcpu_send(struct vcpu *v, u32 port);

/* ---- dumps, to the log (dump.c) ---- */

void vcpu_dump(struct vcpu *v);
void vcpu_dump_exits(const struct vcpu *v);
/* Of the vCPU that this pCPU has loaded, if any. */
void cpu_dump_exits(void);

/* ---- exits (exit.c) ---- */

/* Handles one exit of v, which is loaded on this pCPU. */
void vcpu_handle_exit(struct vcpu *v, const struct vm_exit *e);
/* As vm_crash(), for something that v's guest did just now: the log gets v's state as well. */
void vcpu_crash(struct vcpu *v, const char *fmt, ...) PRINTF(2, 3);
/* Queues an exception. One that cannot be delivered is a triple fault, which stops the VM. */
void vcpu_fault(struct vcpu *v, u8 vector, bool has_code, u32 code);
void vcpu_page_fault(struct vcpu *v, u64 addr, u32 code);
static inline void vcpu_gp(struct vcpu *v) { vcpu_fault(v, EXC_GP, true, 0); }

/* ---- what guests see of the CPU (cpuid.c): constant after vcpu_init() ---- */

void cpuid_policy_init(void);
/* Is this bit set in what guests read? reg: 0 EAX, 1 EBX, 2 ECX, 3 EDX. `leaf` is a basic one or an
 * extended one that guests have. */
bool cpuid_guest_has(u32 leaf, unsigned reg, unsigned bit);
/* The bits of XCR0 that guests may set; 0: they have no XSAVE. */
u64 cpuid_xcr0_allowed(void);
/* How many bits a guest-physical address has. */
unsigned cpuid_physical_bits(void);

#endif
