/* The handlers of exits, and what else the files of this room share. Each handler depends only on
 * the vCPU and its exit, so fuzzers can run the handlers on the host. They run on the vCPU's pCPU,
 * with the vCPU loaded and no lock held. */
#ifndef HV_VCPU_EXITS_H
#define HV_VCPU_EXITS_H

#include "vcpu/vcpu.h"
#include "common/insn.h"

void exit_cpuid(struct vcpu *v, const struct vm_exit *e);      /* cpuid.c */
void exit_rdmsr(struct vcpu *v, const struct vm_exit *e);      /* msr.c */
void exit_wrmsr(struct vcpu *v, const struct vm_exit *e);      /* msr.c */
void exit_io(struct vcpu *v, const struct vm_exit *e);         /* io.c */
void exit_string_io(struct vcpu *v, const struct vm_exit *e);  /* string_io.c */
void exit_mmio(struct vcpu *v, const struct vm_exit *e);       /* mmio.c */
void exit_hypercall(struct vcpu *v, const struct vm_exit *e);  /* hypercall.c */
void exit_cr(struct vcpu *v, const struct vm_exit *e);         /* cr.c */
void exit_xsetbv(struct vcpu *v, const struct vm_exit *e);     /* cr.c */
void exit_apic_write(struct vcpu *v, const struct vm_exit *e); /* apicv.c */

/* LAPICs of which the CPU emulates a part (apicv.c). If there are any, v->virt.apic.page is not
 * NULL. vcpu_init() calls apicv_init(). */
void apicv_init(void);
/* Prepares a new VM for that, if it is used. Returns 0 or -ENOMEM. */
int apicv_map(struct vm *vm);
/* Decides whether the CPU delivers the interrupts of v's LAPIC from the next entry on, and returns
 * that. If not, they have to be injected. Fetches the LAPIC. */
bool apicv_choose(struct vcpu *v);
/* To be called after vlapic_set_no_eoi() for a vector of v. From any pCPU. */
void apicv_vector_changed(struct vcpu *v);

/* Returns whether guests see a CPU of AMD or Hygon. To be called after cpuid_policy_init(). */
bool cpuid_is_amd(void);
/* Prepares the table of MSRs that guests have. vcpu_init() calls it once. */
void msr_policy_init(void);
/* Returns the bits of CR4 that guests may set: those of the features that CPUID shows them. To be
 * called after cpuid_policy_init(). */
u64 cr4_guest_mask(void);

/* Does one access of `size` bytes (1, 2 or 4) to an I/O port. `value` is the value that OUT writes.
 * Returns the value that IN reads. */
u64 port_access(struct vcpu *v, u16 port, u8 size, bool in, u64 value);

/* Translates the linear address `gva`, which the current instruction of v uses by segment `seg`.
 * `access` is of GA_*, without GA_USER. Returns false if the access faults; then it has raised that
 * fault in the guest. */
bool insn_translate(struct vcpu *v, enum seg_name seg, u64 gva, unsigned access, gpa_t *gpa);

/* KVM's clock, which VMs that are PCs have (kvmclock.c). kvmclock_cpuid() returns what CPUID says
 * for a leaf from KVMCLOCK_CPUID on; zeros if there is no such leaf. */
#define KVMCLOCK_CPUID 0x40000000u
struct cpuid kvmclock_cpuid(u32 leaf);
/* Read and write the MSRs of that clock. They return false if the access has to raise #GP. */
bool kvmclock_read(struct vcpu *v, u32 msr, u64 *value);
bool kvmclock_write(struct vcpu *v, u32 msr, u64 value);
/* Tells the guest, in the guest's own memory at `s`, for how many ns the vCPU has waited for a pCPU
 * in all, and whether it waits now (`preempted`). Two calls for one vCPU must not overlap. */
void kvmclock_steal(struct kvm_steal *s, u64 ns, bool preempted);

/* Registers the hypercalls of calls.c. vcpu_init() calls it once. */
void calls_init(void);

#endif
