/* A model of CPUs with VT-x or AMD-V, over which vmx.c, svm.c and virt.c run on the host: it
 * defines the functions of virt/hw.h, and those of entry.asm. It is as unkind as the manuals
 * allow: fields of a VMCS hold garbage until they are written, and each entry is checked by the
 * rules of SDM 3C chapter 27 or APM2 15.5.1 and by those of KVM for a hypervisor that runs in
 * one of its guests. What a guest does between entry and exit is the test's.
 *
 * Use: fake_machine(), then hw_start() with the kind of CPU, then VMs as ever (fake_vm());
 * cpu_pass() enters them. What a hypervisor must not do (an MSR that is not there, a field that
 * is not offered, an entry that breaks a rule) fails the test with a sentence, unless
 * hw_expect_broken is set. */
#ifndef FAKE_HW_H
#define FAKE_HW_H

#include "entry_check.h"

enum hw_kind {
    HW_INTEL,     /* a server of 2017: all that Takt can use, with APIC virtualization */
    HW_KVM_INTEL, /* what KVM offers to a hypervisor in its guest: nested_vmx_setup_ctls_msrs() */
    HW_AMD,       /* with pause filter and threshold */
    HW_KVM_AMD,   /* as QEMU's TCG and old KVMs: nested paging alone */
};

#define HW_IDT      0xffffffff80200000ull
#define HW_PHYSBITS 39

/* One pCPU. */
struct hw_cpu {
    u64 xcr0, dr[4], dr6;
    u64 x87[20]; /* the x87 unit, as XSAVE stores it: the first 160 bytes */
    u64 loaded;  /* XSTATE_BV of the last XRSTOR: what it loaded; all else became initial */
    struct {
        u32 msr;
        u64 value;
    } msrs[64];
    u32 nr_msrs;
    bool vmx_on;
    struct hw_vmcs *current;
    u32 invept_all, invvpids, nmis, machine_checks;
    u64 invept_single[8]; /* the EPTPs of the last of them, by invept_singles % 8 */
    u32 invept_singles;
    u32 entries;
};

/* One VMCS, found by the address of its page. */
#define HW_FIELDS 0x7000u
struct hw_vmcs {
    hpa_t pa;
    bool launched;
    struct hw_cpu *on; /* the CPU that it is active on: VMPTRLD to VMCLEAR */
    u64 value[HW_FIELDS];
    bool written[HW_FIELDS];
};

/* Further bits of CPUID 8000_000A EDX that the AMD CPUs have; 0 at first. */
#define HW_NEXT_RIP      (1u << 3)
#define HW_FLUSH_BY_ASID (1u << 6)
#define HW_DECODE        (1u << 7) /* decode assists */
extern u32 hw_svm_features;
/* How many bytes of an instruction a CPU with decode assists tells at most; 15 at first. */
extern u8 hw_bytes_told;

/* All CPUs become such ones, as firmware leaves them. */
void hw_power_on(enum hw_kind kind);
void hw_enable(void); /* hv/virt is set up on them */
/* Both. */
void hw_start(enum hw_kind kind);
struct hw_cpu *hw_cpu_nr(u32 cpu);
struct hw_cpu *hw_cpu(void);            /* this_cpu()'s */
u64 *hw_msr(struct hw_cpu *c, u32 msr); /* to be changed; a new one reads 0 */

/* What the guest does. `regs` are those that the entry code loads and stores. On VT-x the exit's
 * fields are 0 before the call and are set by hw_set(); on AMD-V they are the VMCB's. NULL: an
 * interrupt ends its stay. */
extern void (*hw_guest)(struct guest_regs *regs);
/* Unless NULL: what other CPUs do after each exit, before the hypervisor looks at it. */
extern void (*hw_meanwhile)(void);
/* The guest does this at the next entry, once; after that, an interrupt ends each of its stays. */
void hw_once(void (*guest)(struct guest_regs *regs));
/* Runs passes of this pCPU's loop until a vCPU is entered, whose guest does `guest`, once. */
void hw_enter(void (*guest)(struct guest_regs *regs));
struct hw_vmcs *hw_vmcs_of(const struct virt_vcpu *v);
struct vmcb *hw_vmcb_of(const struct virt_vcpu *v);
u64 hw_get(u32 field); /* of the current VMCS */
void hw_set(u32 field, u64 value);
struct vmcb *hw_vmcb(void); /* the one that VMRUN has entered */

/* The rule that the last entry broke, or NULL. */
extern const char *hw_broken;
extern bool hw_expect_broken;

#endif
