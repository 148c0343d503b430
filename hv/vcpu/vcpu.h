/* vCPUs, the loop in which a pCPU runs them, and the handling of their exits. */
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
#define TODO_DEBUG 0x40u /* a debugger lets a vCPU of this VM execute one instruction (debug.c) */
#define TODO_BREAK 0x20u /* for tests: the vCPU gets a state that no CPU accepts at an entry */

struct vcpu {
    struct virt_vcpu virt; /* first, because each entry uses it */
    u32 todo;              /* TODO_* bits; any pCPU sets bits by an atomic OR */
    u32 nmis_sent;         /* NMIs sent since TODO_NMI was handled last; any pCPU adds atomically */
    /* The last event that was raised on this vCPU, as port << 8 | vector, to measure how long its
     * delivery takes; 0: none. Any pCPU writes it. Port and vector are in one word, so that they
     * always belong together. */
    u32 event;
    u32 id;
    struct vm *vm;
    struct sched_vcpu sched;
    struct vlapic lapic;
    struct takt_vcpu_info *info; /* the page that the guest reads; vcpu_publish() writes it */
    struct kvm_steal
        *steal;      /* KVM's form of it, in the RAM of a guest of a PC; NULL: there is none */
    u64 kvmclock[4]; /* the MSRs of KVM's clock, as the guest wrote them (kvmclock.c) */
    /* The pCPU of this vCPU uses the fields below, and where nothing else is said, no other. */
    bool waiting_sipi; /* it got an INIT, and waits for a SIPI */
    bool halted;       /* the guest has executed HLT */
    /* Set by apicv_choose(): the interrupts are injected although the CPU could deliver them; and
     * the CPU will deliver one at once at the next entry. */
    bool injects, cpu_delivers;
    /* NMIs to be delivered. There are at most two, because a CPU keeps one NMI besides the one
     * whose handler is running. */
    u8 nmis;
    u8 sipi_vector; /* of the last SIPI; any pCPU writes it before it sets TODO_SIPI */
    /* The port for which TAKT_HC_POLL waits, or TAKT_PORT_ANY; 0: it does not wait. Read by any
     * pCPU. */
    u32 poll_port;
    /* A hypercall that has to be made again, and the value that `exits` had then; 0: there is none.
     * As long as `exits` has this value, the guest has not been entered since. */
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
    u64 exits;       /* number of all exits; the next one goes to last[exits % 8] */
    u64 interrupted; /* how many of them were for an interrupt or an NMI, or for a window */
};
_Static_assert(offsetof(struct vcpu, virt) == 0, "the state that each entry touches comes first");

static inline struct vcpu *vcpu_of_sched(struct sched_vcpu *s) {
    return container_of(s, struct vcpu, sched);
}

/* How traces name a vCPU. */
static inline u32 vcpu_trace_id(const struct vcpu *v) { return v->vm->id << 16 | v->id; }

/* Decides what guests see of the CPU, and registers the hypercalls of this room. To be called once
 * at boot, before the first VM and before cpu_loop(). */
void vcpu_init(void);
/* The seed of the machine, from which the random numbers of guests follow (TAKT_CPUID_SEED). Set
 * before the first VM, then constant. */
extern u64 vm_seed;

/* Parts of a VM (vm/vm.h). */
extern const struct vm_part vcpus_part;  /* its vCPUs */
extern const struct vm_part events_part; /* event channels, and how they reach vCPUs */
/* LAPIC page, UART, the ports of debugcon and debug-exit */
extern const struct vm_part board_part;
/* of a VM that is a PC: IOAPIC, ACPI tables, and the ports that switch it off */
extern const struct vm_part pc_part;
extern const struct vm_part image_part; /* its image in RAM, and the registers of vCPU 0 */
extern const struct vm_part run_part;   /* starts vCPU 0; to undo it waits until no vCPU runs */

/* Sets the level of a pin of the VM's IOAPIC: asserted if *cause is not 0 (vdev/vioapic.h). Does
 * nothing if the VM has no IOAPIC. From any pCPU. */
void vm_line(struct vm *vm, u32 pin, const u32 *cause);
/* Delivers a device's interrupt message to the LAPICs of a VM that is a PC: `data` as written to
 * `address` (SDM 3A 11.11). Nothing happens if no LAPIC is at that address. The scheduler counts it
 * as an event. From any pCPU. Takes locks of the scheduler. */
void vm_message(struct vm *vm, u64 address, u32 data);
/* Returns the id of the vCPU to which a message to `address` goes; of several, one of them. */
u32 vm_message_vcpu(const struct vm *vm, u64 address);
/* Presses the power button of the VM. What follows is up to the operating system in it: most end
 * their programs and then switch the machine off. On the housekeeping pCPU. Returns 0, or
 *   -ENODEV  the VM is no PC, so it has no button
 *   -EINVAL  the VM does not run
 *   -EAGAIN  its operating system does not look at the button, or not yet */
int vm_press_power(struct vm *vm);
/* To be called when the VM's UART may want an interrupt, or not any more: the operator has typed on
 * the VM's console, or the guest has used the UART. From any pCPU. */
void vm_uart_changed(struct vm *vm);

/* ---- the loop of a pCPU (run.c) ---- */

/* The loop of this pCPU, which never returns. Before it, the pCPU must be online in the scheduler,
 * and its timers and virt_cpu_enable() must be done. */
void cpu_loop(void) __attribute__((noreturn));
/* Makes one pass of that loop. For tests. */
void cpu_pass(void);
/* Sets bits of v->todo, and makes v look at them soon: wakes it if it sleeps, kicks its pCPU if it
 * runs elsewhere. From any pCPU. Takes the lock of v's pool if v sleeps. */
void vcpu_notify(struct vcpu *v, u32 todo);
/* Sends an NMI to a vCPU of a VM that runs. */
void vcpu_send_nmi(struct vcpu *v);
/* Lets v, which is the current vCPU of this pCPU, sleep until it is notified. If bits of v->todo
 * are set, it does not sleep. */
void vcpu_block(struct vcpu *v);
/* Kicks all other pCPUs that have a vCPU of the VM with these page tables loaded, so that they soon
 * flush the translations that the newest generation has taken away. */
void kick_users(const struct tlbgen *g);

/* ---- vCPUs (vcpu.c, deliver.c) ---- */

/* Writes v->info, the page in which the guest reads its times. The scheduler calls it, as
 * sched_state_hook, when the vCPU's state has changed at `now` (ns). */
void vcpu_publish(struct sched_vcpu *s, u64 now);
static inline u64 vcpu_reg(struct vcpu *v, enum virt_reg r) { return virt->get_reg(&v->virt, r); }
static inline void vcpu_set_reg(struct vcpu *v, enum virt_reg r, u64 value) {
    virt->set_reg(&v->virt, r, value);
}
/* Returns the vCPU's LAPIC, for an access by the vCPU itself. CR8 is the same register as the
 * LAPIC's TPR, and the guest can write CR8 without an exit. So TPR is updated here. After a write
 * to the LAPIC, vcpu_lapic_written() updates CR8. With APIC virtualization all registers may be
 * with the CPU. At an exit by which the guest accesses its LAPIC virt->run() has fetched them;
 * in other cases vcpu_lapic_fetch() has to come before this function. */
static inline struct vlapic *vcpu_lapic(struct vcpu *v) {
    if (v->virt.cr8 != vlapic_cr8(&v->lapic)) {
        ASSERT(v->virt.cr8 != CR8_IN_PAGE);
        vlapic_set_cr8(&v->lapic, v->virt.cr8);
    }
    return &v->lapic;
}
/* Fetches the registers of the vCPU's LAPIC if the CPU has them (apicv.c). */
static inline void vcpu_lapic_fetch(struct vcpu *v) {
    if (__builtin_expect(v->virt.cr8 == CR8_IN_PAGE, 0)) virt_apic_fetch(&v->virt);
}
/* To be called after the vCPU has written to its own LAPIC. An EOI, or a lower TPR, may allow an
 * interrupt to be delivered that had to wait before. */
void vcpu_lapic_written(struct vcpu *v);
/* Does what v->todo asks for, before an entry. Returns false if the vCPU must not enter its guest
 * now. On its own pCPU. */
bool vcpu_prepare(struct vcpu *v);
/* Sets the registers with which a VM's image starts: 32-bit protected mode, flat segments, no
 * paging. */
void vcpu_start_state(struct vcpu *v, const struct image_start *start);
/* Sends an event by a port of v's VM, in the name of v. Returns what evtchn_send() returns. */
int vcpu_send(struct vcpu *v, u32 port);

/* ---- debugging a VM from outside (debug.c) ---- */

/* Returns whether the shell may read and change the registers of the VM's vCPUs now: the VM is
 * paused or has crashed, and no pCPU has a vCPU of it loaded. On the housekeeping pCPU. */
bool vm_rests(const struct vm *vm);
/* Switches debugging of the VM, which rests, on or off. While it is on, each debug exception (#DB)
 * stops the VM instead of being delivered. */
void vm_debug_set(struct vm *vm, bool on);
/* Lets vCPU number `vcpu` of the VM, which rests and is debugged, execute one instruction while all
 * other vCPUs wait. Then the VM stops as at a breakpoint. Returns 0, or -EINVAL if the VM is not
 * paused. */
int vm_debug_step(struct vm *vm, u32 vcpu);
/* A vCPU of a VM that is debugged has come to an ICEBP, where RIP stays, or it has had another #DB,
 * whose reason is in its DR6. Stops the VM, if this was a breakpoint or the end of a step. On the
 * vCPU's own pCPU. */
void vcpu_debug_trap(struct vcpu *v, bool icebp);
/* For TODO_DEBUG, before an entry: returns whether v may go on. If not, all bits of `todo` are set
 * again. On the vCPU's own pCPU. */
bool vcpu_debug_enters(struct vcpu *v, u32 todo);

/* ---- dumps, to the log (dump.c) ---- */

/* Logs the registers of v, what is at the addresses that matter, and its last exits. v is loaded on
 * this pCPU. */
void vcpu_dump(struct vcpu *v);
/* Logs only its last exits. */
void vcpu_dump_exits(const struct vcpu *v);
/* Logs the last exits of the vCPU that this pCPU has loaded, if any. */
void cpu_dump_exits(void);

/* ---- exits (exit.c) ---- */

/* Handles one exit of v, which is loaded on this pCPU. */
void vcpu_handle_exit(struct vcpu *v, const struct vm_exit *e);
/* Ends the VM as vm_crash() does, because of something that v's guest has just done. Logs v's
 * state, too. */
void vcpu_crash(struct vcpu *v, const char *fmt, ...) PRINTF(2, 3);
/* Queues an exception for the guest. If it cannot be delivered, that is a triple fault, which ends
 * the VM. */
void vcpu_fault(struct vcpu *v, u8 vector, bool has_code, u32 code);
/* Queues a #PF with this error code for the linear address `addr`. */
void vcpu_page_fault(struct vcpu *v, u64 addr, u32 code);
static inline void vcpu_gp(struct vcpu *v) { vcpu_fault(v, EXC_GP, true, 0); }

/* ---- what guests see of the CPU (cpuid.c): constant after vcpu_init() ---- */

void cpuid_policy_init(void);
/* Is this bit of CPUID set for guests? `reg` is 0 for EAX, 1 for EBX, 2 for ECX, 3 for EDX. `leaf`
 * is a basic or extended leaf that guests have. */
bool cpuid_guest_has(u32 leaf, unsigned reg, unsigned bit);
/* Returns the bits of XCR0 that guests may set; 0 if they have no XSAVE. */
u64 cpuid_xcr0_allowed(void);
/* Returns how many bits a guest-physical address has. */
unsigned cpuid_physical_bits(void);

#endif
