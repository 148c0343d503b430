/* The simulation of the whole machine (docs/simulation.md): the hypervisor above hv/virt and
 * hv/platform, guestlib, drivers and guests, all compiled for this computer, in virtual time.
 *
 * Everything runs in one thread. Each pCPU is a coroutine that executes the hypervisor's
 * cpu_loop(), and each vCPU is one that executes its guest. Code runs at once, and its costs are
 * noted; then the pCPU lets that much virtual time pass, while others run. What happens at the same
 * virtual time happens in the order in which it was asked for. So the same input gives the same
 * output. */
#ifndef TESTS_WHOLE_WHOLE_H
#define TESTS_WHOLE_WHOLE_H

#include <stdio.h>
#include "config.h"
#include "lib/timerq.h"
#include "tests/whole/port.h"
#include "virt/virt.h"
#include "x86/percpu.h"

/* What things cost. Times are in ps or, where the name says so, in ns. */
struct whole_costs {
    u64 guest;    /* an instruction of a guest */
    u64 hv;       /* an instruction of the hypervisor */
    u64 element;  /* what a string instruction copies or fills in a step */
    u64 exit;     /* the way from the guest to the hypervisor and back */
    u64 kick_ns;  /* from a kick until its pCPU notices */
    u64 switch_;  /* of vCPUs on a pCPU */
    u64 inject;   /* an interrupt that a guest takes, besides the code on both sides */
    u64 ahead_ns; /* how far a guest may compute ahead of what other pCPUs do */
};
extern struct whole_costs whole_costs;

/* ---- engine.c: time, coroutines, pCPUs ---- */

/* A coroutine that does not run: where its registers are. */
struct strand {
    void *sp;
};
/* Makes a coroutine. When it is first switched to, it calls fn(a, b) on the stack that ends at
 * `top`; fn must not return. */
void strand_init(struct strand *s, void *top, void *fn, void *a, void *b);
void strand_switch(struct strand *from, struct strand *to);

extern u64 whole_now; /* ns */
/* Return and set what the hypervisor's code on this pCPU has cost and not yet paid, in ps. */
u64 whole_owed(void);
void whole_owe(u64 ps);
/* What is owed, less what may be owed until a debugger's stop, in ps. So one addition counts a
 * basic block, and its sign tells whether the stop has come (count.awk). */
extern i64 whole_due;
static inline void whole_charge(u64 ps) { whole_due += (i64)ps; }
/* What an instruction of the hypervisor costs now, in ps: whole_costs.hv or, until the next
 * engine_pay(), 0 for what the CPU itself does on the machine that is modelled. */
extern u64 whole_instruction;

/* Makes that many pCPUs, which begin with `entry`. */
void engine_start(u32 cpus, void (*entry)(void));
/* Lets virtual time pass until `ns`, or until engine_stop() was called. */
void engine_run_until(u64 ns);
void engine_stop(void);
/* Calls the timer's function at `ns`, outside any pCPU. It may be set already. */
void engine_timer(struct timer *t, u64 ns);
/* Returns the coroutine of the pCPU that executes. */
struct strand *engine_pcpu(void);
/* Lets time pass until `ns`. If `interruptible`, a kick ends the wait. */
void engine_wait(u64 ns, bool interruptible);
/* Lets the time pass that the hypervisor's code has cost. */
void engine_pay(void);
/* Returns whether this pCPU was kicked since the last call. */
bool engine_interrupted(void);
/* Returns how long the pCPU has been halted up to now, ns. */
u64 engine_idle(u32 cpu);
/* Returns up to what time this pCPU's guest may compute now, ns: until something else is due, or
 * for whole_costs.ahead_ns. */
u64 engine_horizon(void);

/* ---- memory.c: the machine's RAM, and where guests see theirs ---- */

/* Makes `bytes` of RAM, at a place that is the same each time, and gives it to the frame
 * allocator. */
void memory_start(u64 bytes);
/* Forgets what was mapped for a VM, because its second-level tables have changed. */
void memory_forget(const struct virt_vcpu *v);
/* Gives pages of the machine's RAM back to this computer, so that they are zeros. Returns false if
 * these are no whole pages of it. */
bool memory_drop(void *at, u64 bytes);

/* ---- cpu.c: guests ---- */

extern const struct virt_ops whole_ops;
/* The vCPU whose guest runs on this pCPU; NULL: none. */
extern struct virt_vcpu *whole_guest;
u64 whole_base_of(const struct virt_vcpu *v);

/* ---- platform.c: consoles, and what the machine does not have ---- */

extern bool whole_json; /* the shell answers in JSON */
/* Standard output shows all that the shell writes, as a serial line would, and the simulation does
 * not end with an answer. */
extern bool whole_serial;
extern FILE *whole_log; /* where the hypervisor's log goes, with what the guests print */

/* ---- boot.c ---- */

/* A number is 0 if its option was not given. */
struct whole_options {
    const char *file, *cmdline;
    const char *json_file; /* of --json; NULL: none */
    const char *trace;     /* of --trace; NULL: none */
    bool faults;           /* faults are injected, as `seed` says */
    u64 seed;
    const char *script;    /* a file with commands for the shell, in place of `top`; NULL: none */
    const char *guests;    /* the directory of their images */
    u64 cpus, mhz, memory; /* mhz: million instructions a second; memory in bytes */
    u64 warm_up_ns, run_ns;
    bool json;
};
int whole_run(const struct whole_options *o);

/* ---- model.c: what the machine is, and what things cost on it ---- */

struct whole_machine {
    u32 cpus;
    u64 memory;  /* bytes */
    double mips; /* million instructions a second */
};

/* Takes NAME=INSTRUCTIONS of --cost. Returns an error if there is no such cost. */
int model_cost(const char *text);
/* Sets whole_costs, and returns what the machine is: as the options say, else as the VM file's
 * [model] says, else as Bochs is. */
struct whole_machine model_machine(const struct whole_options *o, const struct config_model *m);

/* ---- cache.c, delivery.c, nic.c, sockets.c: models, off unless [model] has their keys ----
 *
 * `vm` is a VM's place among PORT_VMS. */

void cache_start(const struct config_model *m);
/* Returns how long the VM has to wait on this pCPU until its working set is in the cache, ns. */
u64 cache_missing_ns(u32 vm, u32 cpu);
/* Notes that the VM has waited on this pCPU for `ns`, so that so much of its working set has come
 * in. */
void cache_refilled(u32 vm, u32 cpu, u64 ns);

/* Forgets what the caches have of the VM at this place, because another VM has the place from now
 * on. */
void cache_forget(u32 vm);

void delivery_start(const struct config_model *m);
/* Returns whether the CPU of the modelled machine does by itself what the hypervisor is about to do
 * after this exit, so that it costs nothing. */
bool delivery_is_free(const struct virt_vcpu *v, const struct vm_exit *e);

void nic_start(const struct config_model *m);
/* What an instruction of the VM's guest costs, in ps. */
u64 nic_instruction(const struct virt_vm *vm);
/* The vCPU is loaded on this pCPU. Returns whether it plays the card, whose copies cost nothing. */
bool nic_load(const struct virt_vcpu *v, u32 cpu);
/* Is this exit none on a machine, because the card does the work, or is told to by a doorbell? */
bool nic_is_free(const struct virt_vcpu *v, const struct vm_exit *e);
/* The vCPU makes a hypercall. Returns true if it is the card's, for an interrupt that is to come
 * later by the card's own limit. The hypercall has succeeded then. */
bool nic_holds_interrupt(const struct virt_vcpu *v);
/* Raises interrupts whose time has come. To be called while no pCPU executes a handler. */
void nic_step(void);

void sockets_start(const struct config_model *m);
/* Returns the socket of a pCPU; 0 without the model. */
u32 sockets_of(u32 cpu);
void sockets_forget(u32 vm);
/* Returns what an element of memcpy() costs the VM on this pCPU, in ps. */
u64 sockets_element(u32 vm, u32 cpu);

/* ---- debug.c: stops for a debugger at a virtual time (make sim GDB=1) ---- */

/* The debugger is to have a stop at this virtual time (ns), in the first code of `in` that executes
 * then: of the VM with this name, of the "hypervisor" or, if it is empty, of any of them. */
struct whole_stop {
    u64 at; /* ~0: none */
    char in[32];
};
extern struct whole_stop whole_stop;
extern const char *whole_guests; /* the directory of guests' images, for their symbols */

/* A VM has this place from now on. */
void debug_place(u32 place, const struct virt_vm *vm);
/* Returns how much of the VM's stay in its guest until `limit` (ns) comes after the stop, in ns: 0
 * if no stop falls into this stay. */
u64 debug_after(const struct virt_vm *vm, u64 limit);
/* Stops here: `in` executes. */
void debug_stop(const char *in, u64 ps);

/* ---- record.c: the file of --json ---- */

/* Begins the file. Ends the program with a sentence if it cannot be written. */
void record_begin(const struct whole_options *o, const struct config *c,
                  const struct whole_machine *m);
/* Adds a line of the log. A line of a guest is "NAME: text". Does nothing without --json. */
void record_line(u64 us, bool of_guest, const char *text);
/* Adds a character of the shell's answer. Returns false without --json. */
bool record_answer(char c);
/* Ends the file. Does nothing without --json, or when it was called before. */
void record_end(void);

/* ---- trace.c: the file of --trace ---- */

/* Switches all classes of trace records on, and begins the file, unless `path` is NULL. To be
 * called when the pCPUs are there, and before anything is recorded. Ends the program with a
 * sentence if it cannot. */
void whole_trace_begin(const char *path);
/* Writes from time to time what was recorded. To be called while no pCPU executes a handler. */
void whole_trace_step(void);
/* Ends the file. Does nothing without --trace, or when it was called before. */
void whole_trace_end(void);
/* As whole_trace_end(), for a simulation that ends because something is wrong in it. */
void whole_trace_panic(void);

/* ---- inject/inject.c: faults. Only build/sim-faults has these functions ---- */

#define ONLY_THERE __attribute__((weak))

/* Begins to inject faults, which follow from the seed. */
void whole_inject_begin(u64 seed) ONLY_THERE;
/* Tells the injection of faults what the VM file says. Faults come from now on, which is before the
 * first VM is made. */
void whole_inject_boot(const struct config *c) ONLY_THERE;
/* Notes that a VM of the file could not be made, and is to be made later. */
void whole_inject_again(const struct config_vm *c) ONLY_THERE;
/* Called after each event: checks all invariants, and may inject faults. */
void whole_inject_step(void) ONLY_THERE;
/* Returns for how many ns longer a kick takes than usual. */
u64 whole_kick_late(void) ONLY_THERE;
/* Destroys all VMs, and checks that nothing of them is left. */
void whole_inject_end(void) ONLY_THERE;

#endif
