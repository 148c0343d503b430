/* The virtual machine control structure (VMCS) of VT-x: the numbers of its fields (SDM 3D appendix
 * B), its controls (SDM 3C chapter 25) and the exit reasons (SDM 3D appendix C). The instructions
 * that read and write it are in virt/hw.h. */
#ifndef HV_VIRT_VMCS_H
#define HV_VIRT_VMCS_H

#include <takt/types.h>

/* SDM 3D appendix B. A field of 64 bits is read or written by one access. */
enum vmcs_field {
    VMCS_VPID = 0x0000,
    VMCS_GUEST_SEL = 0x0800,  /* + 2 * enum seg_name, as are the limits, rights and bases below */
    VMCS_GUEST_APIC = 0x0810, /* "guest interrupt status": GUEST_APIC() */
    VMCS_HOST_ES = 0x0c00,
    VMCS_HOST_CS = 0x0c02,
    VMCS_HOST_SS = 0x0c04,
    VMCS_HOST_DS = 0x0c06,
    VMCS_HOST_FS = 0x0c08,
    VMCS_HOST_GS = 0x0c0a,
    VMCS_HOST_TR = 0x0c0c,
    VMCS_MSR_BITMAP = 0x2004,
    VMCS_TSC_OFFSET = 0x2010,
    VMCS_VAPIC = 0x2012, /* "virtual-APIC address" */
    VMCS_APIC_ACCESS = 0x2014,
    VMCS_EPTP = 0x201a,
    VMCS_EOI_EXITS = 0x201c, /* + 2 * n: a bit for each of the vectors from 64 * n on */
    VMCS_ENCLS_BITMAP = 0x202e,
    VMCS_GPA = 0x2400,
    VMCS_LINK = 0x2800,
    VMCS_GUEST_DEBUGCTL = 0x2802,
    VMCS_GUEST_PAT = 0x2804,
    VMCS_GUEST_EFER = 0x2806,
    VMCS_GUEST_PDPTE = 0x280a, /* + 2 * n */
    VMCS_HOST_PAT = 0x2c00,
    VMCS_HOST_EFER = 0x2c02,
    VMCS_PIN = 0x4000,
    VMCS_PRIMARY = 0x4002,
    VMCS_EXCEPTIONS = 0x4004, /* bit n: exception n exits */
    VMCS_PF_MASK = 0x4006,    /* this and the next choose by error code which #PFs exit */
    VMCS_PF_MATCH = 0x4008,
    VMCS_CR3_TARGETS = 0x400a, /* the number of CR3-target values */
    VMCS_EXIT_CTL = 0x400c,
    VMCS_EXIT_MSR_STORES = 0x400e, /* how many MSRs are stored at an exit; then, how many loaded */
    VMCS_EXIT_MSR_LOADS = 0x4010,
    VMCS_ENTRY_CTL = 0x4012,
    VMCS_ENTRY_MSR_LOADS = 0x4014,
    VMCS_ENTRY_EVENT = 0x4016,
    VMCS_ENTRY_CODE = 0x4018,
    VMCS_ENTRY_INSN_LEN = 0x401a,
    VMCS_TPR_THRESHOLD = 0x401c,
    VMCS_SECONDARY = 0x401e,
    VMCS_PLE_GAP = 0x4020,
    VMCS_PLE_WINDOW = 0x4022,
    VMCS_ERROR = 0x4400,
    VMCS_REASON = 0x4402,
    VMCS_EXIT_EVENT = 0x4404,
    VMCS_EXIT_CODE = 0x4406,
    VMCS_IDT_EVENT = 0x4408,
    VMCS_IDT_CODE = 0x440a,
    VMCS_INSN_LEN = 0x440c,
    VMCS_GUEST_LIMIT = 0x4800,
    VMCS_GUEST_AR = 0x4814,
    VMCS_SHADOW = 0x4824, /* "interruptibility state" */
    VMCS_ACTIVITY = 0x4826,
    VMCS_GUEST_SYSENTER_CS = 0x482a,
    VMCS_PREEMPTION_TIMER = 0x482e,
    VMCS_HOST_SYSENTER_CS = 0x4c00,
    VMCS_CR0_MASK = 0x6000,
    VMCS_CR4_MASK = 0x6002,
    VMCS_CR0_SHADOW = 0x6004,
    VMCS_CR4_SHADOW = 0x6006,
    VMCS_QUALIFICATION = 0x6400,
    VMCS_GUEST_CR0 = 0x6800,
    VMCS_GUEST_CR3 = 0x6802,
    VMCS_GUEST_CR4 = 0x6804,
    VMCS_GUEST_BASE = 0x6806,
    VMCS_GUEST_DR7 = 0x681a,
    VMCS_GUEST_RSP = 0x681c,
    VMCS_GUEST_RIP = 0x681e,
    VMCS_GUEST_RFLAGS = 0x6820,
    VMCS_PENDING_DEBUG = 0x6822,
    VMCS_GUEST_SYSENTER_ESP = 0x6824,
    VMCS_GUEST_SYSENTER_EIP = 0x6826,
    VMCS_HOST_CR0 = 0x6c00,
    VMCS_HOST_CR3 = 0x6c02,
    VMCS_HOST_CR4 = 0x6c04,
    VMCS_HOST_FS_BASE = 0x6c06,
    VMCS_HOST_GS_BASE = 0x6c08,
    VMCS_HOST_TR_BASE = 0x6c0a,
    VMCS_HOST_GDTR = 0x6c0c,
    VMCS_HOST_IDTR = 0x6c0e,
    VMCS_HOST_SYSENTER_ESP = 0x6c10,
    VMCS_HOST_SYSENTER_EIP = 0x6c12,
    VMCS_HOST_RSP = 0x6c14, /* entry.asm writes it */
    VMCS_HOST_RIP = 0x6c16,
};

/* Pin-based controls: SDM 3C 25.6.1. With the first two, interrupts and NMIs exit. */
#define PIN_INTR             (1u << 0)
#define PIN_NMI              (1u << 3)
#define PIN_VIRTUAL_NMIS     (1u << 5)
#define PIN_PREEMPTION_TIMER (1u << 6)
/* Primary processor-based controls: 25.6.2. A control with the name of an instruction makes this
 * instruction exit. */
#define PRI_IRQ_WINDOW (1u << 2)
#define PRI_TSC_OFFSET (1u << 3)
#define PRI_HLT        (1u << 7)
#define PRI_MWAIT      (1u << 10)
#define PRI_RDPMC      (1u << 11)
#define PRI_CR3        (3u << 15)
#define PRI_CR8_LOAD   (1u << 19)
#define PRI_TPR_SHADOW (1u << 21)
#define PRI_NMI_WINDOW (1u << 22)
#define PRI_IO         (1u << 24) /* all ports */
#define PRI_MSR_BITMAP (1u << 28)
#define PRI_MONITOR    (1u << 29)
#define PRI_PAUSE      (1u << 30)
#define PRI_SECONDARY  (1u << 31)
/* Secondary processor-based controls: table 25-7 */
#define SEC_APIC_PAGE    (1u << 0) /* "virtualize APIC accesses" */
#define SEC_EPT          (1u << 1)
#define SEC_RDTSCP       (1u << 3) /* the guest can use RDTSCP; without it RDTSCP raises #UD */
#define SEC_X2APIC       (1u << 4) /* "virtualize x2APIC mode" */
#define SEC_VPID         (1u << 5)
#define SEC_WBINVD       (1u << 6)
#define SEC_UNRESTRICTED (1u << 7)
#define SEC_APIC_REGS    (1u << 8) /* "APIC-register virtualization" */
#define SEC_VIRQ         (1u << 9) /* "virtual-interrupt delivery" */
#define SEC_PLE          (1u << 10)
#define SEC_ENCLS        (1u << 15)
/* Exit controls: 25.7.1 */
#define EXIT_DEBUG     (1u << 2) /* DR7 and DEBUGCTL are saved */
#define EXIT_HOST_64   (1u << 9)
#define EXIT_SAVE_PAT  (1u << 18)
#define EXIT_LOAD_PAT  (1u << 19)
#define EXIT_SAVE_EFER (1u << 20)
#define EXIT_LOAD_EFER (1u << 21)
/* Entry controls: 25.8.1 */
#define ENTRY_DEBUG     (1u << 2) /* DR7 and DEBUGCTL are loaded */
#define ENTRY_IA32E     (1u << 9)
#define ENTRY_LOAD_PAT  (1u << 14)
#define ENTRY_LOAD_EFER (1u << 15)

#define SHADOW_STI      BIT(0)
#define SHADOW_MOV_SS   BIT(1)
#define SHADOW_NMI      BIT(3)

/* Access rights: SDM 3C table 25-2. They have the same bits as struct guest_seg.attr, but with a
 * gap of four reserved bits in the middle. */
#define AR_LOW      0xffu
#define AR_HIGH     0xf000u
#define AR_GAP      4
#define AR_UNUSABLE BIT(16)

/* Bit of VMCS_EXIT_EVENT, and of the qualification of an EPT violation: the instruction that exited
 * was an IRET, which had already ended the blocking of NMIs (SDM 3C 28.2.3). */
#define NMI_UNBLOCKED BIT(12)

/* Exit qualifications. Debug exceptions: SDM 3C table 28-1. */
#define QUAL_DEBUG_DR6 0xe00full /* the same bits as in DR6: B0 to B3, BD, BS and BT */
/* Control registers: table 28-3. */
#define QUAL_CR(q)        ((q)&15)
#define QUAL_CR_ACCESS(q) ((q) >> 4 & 3)
#define QUAL_CR_GPR(q)    ((q) >> 8 & 15)
enum { CR_ACCESS_TO, CR_ACCESS_FROM, CR_ACCESS_CLTS, CR_ACCESS_LMSW };
/* Ports: table 28-5. */
#define QUAL_IO_SIZE(q) (((q)&7) + 1)
#define QUAL_IO_IN      BIT(3)
#define QUAL_IO_STRING  BIT(4)
#define QUAL_IO_REP     BIT(5)
#define QUAL_IO_PORT(q) ((u16)((q) >> 16))
/* APIC accesses: table 28-6. Kinds of access that are not named here are those to a guest-physical
 * address: of a walk through page tables, for one. */
#define QUAL_APIC_OFFSET(q) ((q)&0xfff)
#define QUAL_APIC_KIND(q)   ((q) >> 12 & 15)
enum {
    APIC_ACCESS_READ,
    APIC_ACCESS_WRITE,
    APIC_ACCESS_FETCH,
    APIC_ACCESS_DELIVERY,
    APIC_ACCESS_PHYSICAL_DELIVERY = 10
};
/* EPT violations: table 28-7. */
#define QUAL_EPT_WRITE  BIT(1)
#define QUAL_EPT_FETCH  BIT(2)
#define QUAL_EPT_RIGHTS (7u << 3) /* if any of these is set, there is a translation */
#define QUAL_EPT_LINEAR BIT(7)    /* the access was caused by the use of a linear address */
#define QUAL_EPT_FINAL  BIT(8)    /* it was to that address itself, not to one of the page tables */

/* The guest interrupt status (SDM 3C 25.4.2): the highest vector that is requested (RVI), and the
 * highest one that is in service (SVI); 0: none. */
#define GUEST_APIC(rvi, svi) ((u64)(svi) << 8 | (rvi))

/* VM-instruction errors: SDM 3C 31.4. VMX_ERROR_NONE means here that the CPU refused the guest's
 * state, which is told by an exit reason and not by such an error. */
enum { VMX_ERROR_NONE = 0, VMX_ERROR_CONTROLS = 7, VMX_ERROR_HOST = 8, VMX_ERROR_MOV_SS = 26 };

/* Basic exit reasons: SDM 3D appendix C. */
enum {
    VMX_EXCEPTION = 0,
    VMX_INTR = 1,
    VMX_TRIPLE_FAULT = 2,
    VMX_INIT = 3,
    VMX_IRQ_WINDOW = 7,
    VMX_NMI_WINDOW = 8,
    VMX_TASK_SWITCH = 9,
    VMX_CPUID = 10,
    VMX_GETSEC = 11,
    VMX_HLT = 12,
    VMX_INVD = 13,
    VMX_RDPMC = 15,
    VMX_RSM = 17,
    VMX_VMCALL = 18,
    VMX_VMCLEAR = 19, /* the reasons from here to VMX_VMXON are for the instructions of VMX */
    VMX_VMXON = 27,
    VMX_CR = 28,
    VMX_IO = 30,
    VMX_RDMSR = 31,
    VMX_WRMSR = 32,
    VMX_BAD_STATE =
        33, /* this and the next one: the entry failed by the guest's state, or an MSR */
    VMX_BAD_MSR = 34,
    VMX_MWAIT = 36,
    VMX_MONITOR = 39,
    VMX_PAUSE = 40,
    VMX_MC_ENTRY = 41,
    VMX_TPR_BELOW = 43,
    VMX_APIC_ACCESS = 44,
    VMX_VIRTUAL_EOI = 45,
    VMX_EPT_VIOLATION = 48,
    VMX_EPT_MISCONFIG = 49,
    VMX_INVEPT = 50,
    VMX_PREEMPTION_TIMER = 52,
    VMX_INVVPID = 53,
    VMX_WBINVD = 54,
    VMX_XSETBV = 55,
    VMX_APIC_WRITE = 56,
    VMX_INVPCID = 58,
    VMX_VMFUNC = 59,
    VMX_ENCLS = 60,
    VMX_XSAVES = 63,
    VMX_XRSTORS = 64,
    VMX_PCONFIG = 65,
    VMX_UMWAIT = 67,
    VMX_TPAUSE = 68,
};

#endif
