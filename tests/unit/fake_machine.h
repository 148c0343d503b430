/* The machine under VMs, on the host: two pCPUs (the test says which of them it is at the
 * moment), 64 MiB of RAM, a clock that only the test moves, work items, and a CPU vendor whose
 * guests do what the test says. */
#ifndef FAKE_MACHINE_H
#define FAKE_MACHINE_H

#include "devices/devices.h"
#include "mm/frame.h"
#include "nodes/nodes.h"
#include "vcpu/vcpu.h"
#include "virt/virt.h"
#include "x86/percpu.h"

#define FAKE_CPUS 2u
#define FAKE_RAM  (64u << 20)

struct fake_vcpu { /* struct virt_vcpu's priv */
    u64 reg[VREG_NR];
    struct guest_seg seg[SEG_NR];
    unsigned cpl;
    bool shadow, nmi_masked, loaded;
};

/* Sets up RAM, clock, pCPUs in Pool-0 under `policy`, and the parts of VMs but for those of
 * devices of the machine. Once a program; fuzzers call it again, for nothing. */
void fake_machine(const char *policy);
/* From now on VMs have these parts as well, which hv/passthrough defines. */
void fake_machine_gives(const struct vm_part *claim, const struct vm_part *pci);
void fake_cpu(u32 cpu); /* this_cpu() from now on */
/* What now_ns() returns from now on: it stands still, for a second or so of real time. */
void fake_clock(u64 ns);
/* Runs all work items to their ends, without waiting for their times. */
void fake_work(void);
void fake_work_resume(void); /* after a longjmp out of a step: its item goes on */
void fake_work_due(void);    /* runs those whose time has come, until all wait for theirs */
void fake_pass(u32 cpu);     /* one pass of its loop */

/* What the guest does when it is entered; fills in the exit. NULL: it is interrupted. */
extern void (*fake_run)(struct virt_vcpu *v, struct vm_exit *e);
/* A pCPU may halt or enter a guest although it is kicked. Otherwise the fake machine asserts that
 * it does not. */
extern bool fake_kick_may_stay;
/* What the others do while a pCPU halts. NULL: nothing. */
extern void (*fake_meanwhile)(void);
/* Whether cpu_interrupt_self() was called. A test clears it. */
extern bool fake_interrupted_self;
extern u32 fake_kicks[FAKE_CPUS], fake_halts, fake_steps; /* steps of work items */
static inline struct fake_vcpu *fake_of(struct vcpu *v) { return v->virt.priv; }

/* An image that ends where it starts, for vm_create: ELF64 with a PVH note, at 1 MiB. As boot
 * module "null". */
extern const struct module fake_image;
struct config_vm fake_config(const char *name, u32 vcpus); /* 2 MiB */
/* Makes the VM. The caller has to put the reference. Returns NULL if it fails, and fake_why says
 * why. */
struct vm *fake_vm(const struct config_vm *c);
void fake_destroy(struct vm *vm); /* and the caller's reference */
extern int fake_error;
extern char fake_why[128];

/* Loads v on this pCPU as its current vCPU, 64-bit, CPL 0, IF set, interrupts of its LAPIC on. */
void fake_current(struct vcpu *v);

#endif
