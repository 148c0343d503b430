/* The handlers of exits, between the files of this room. Each is a function of the vCPU and its
 * exit; fuzzers run them on the host. */
#ifndef HV_VCPU_EXITS_H
#define HV_VCPU_EXITS_H

#include "vcpu/vcpu.h"
#include "x86/insn.h"

void exit_cpuid(struct vcpu *v, const struct vm_exit *e);     /* cpuid.c */
void exit_rdmsr(struct vcpu *v, const struct vm_exit *e);     /* msr.c */
void exit_wrmsr(struct vcpu *v, const struct vm_exit *e);     /* msr.c */
void exit_io(struct vcpu *v, const struct vm_exit *e);        /* io.c */
void exit_string_io(struct vcpu *v, const struct vm_exit *e); /* string_io.c */
void exit_mmio(struct vcpu *v, const struct vm_exit *e);      /* mmio.c */
void exit_hypercall(struct vcpu *v, const struct vm_exit *e); /* hypercall.c */
void exit_cr(struct vcpu *v, const struct vm_exit *e);        /* cr.c */
void exit_xsetbv(struct vcpu *v, const struct vm_exit *e);    /* cr.c */

/* What guests see of the CPU: each once, by vcpu_init(). */
void msr_policy_init(void);
/* CR4 bits that guests may set: those of features that they see. After cpuid_policy_init(). */
u64 cr4_guest_mask(void);

/* One access to a port. `value` is what OUT writes; returns what IN reads. `size` is 1, 2 or 4. */
u64 port_access(struct vcpu *v, u16 port, u8 size, bool in, u64 value);

/* Translates an address that v's instruction uses in `seg`. Returns false if the access faults: the
 * fault is raised then. `access` is of GA_*, without GA_USER. */
bool insn_translate(struct vcpu *v, enum seg_name seg, u64 gva, unsigned access, gpa_t *gpa);

/* KVM's clock, of VMs that are PCs (kvmclock.c). Leaves from KVMCLOCK_CPUID on; 0 where there is
 * none. */
#define KVMCLOCK_CPUID 0x40000100u
struct cpuid kvmclock_cpuid(u32 leaf);
/* Its MSRs. They return false if the access is #GP. */
bool kvmclock_read(struct vcpu *v, u32 msr, u64 *value);
bool kvmclock_write(struct vcpu *v, u32 msr, u64 value);
/* Writes how long the vCPU has waited for a pCPU, and whether it waits now, where its guest reads
 * it. One caller at a time. */
void kvmclock_steal(struct kvm_steal *s, u64 ns, bool preempted);

/* The hypercalls of this room (calls.c), for vcpu_init(). */
void calls_init(void);

#endif
