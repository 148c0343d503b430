/* CPU virtualisation: one table of operations, chosen at boot, and decoded exits. Nothing above this room
 * reads a VMCS or VMCB field.
 *
 * A vCPU's hardware state lives in its struct virt_vcpu. On a pCPU it is `load`ed, `run` any number of times,
 * and `save`d before another is loaded there or before it is loaded elsewhere. GPRs, RIP, RSP and RFLAGS are
 * valid in `regs` whenever the vCPU is not inside run(), and may be changed there; everything else goes
 * through the hooks.
 */
#ifndef HV_VIRT_VIRT_H
#define HV_VIRT_VIRT_H

#include "mm/guestmem.h"
#include "mm/npt.h"

/* In the order in which instructions number them; entry.asm knows it. */
struct guest_regs {
    u64 gpr[16]; /* RAX RCX RDX RBX RSP RBP RSI RDI R8..R15 */
    u64 rip, rflags;
};

enum gpr { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8 };

struct guest_seg {
    u16 sel;
    u16 attr; /* as VMCB: bits 0-7 are descriptor bits 40-47, bits 8-11 are descriptor bits 52-55
                 (APM2 15.5.1) */
    u32 limit;
    u64 base;
};

enum seg_name {
    SEG_ES,
    SEG_CS,
    SEG_SS,
    SEG_DS,
    SEG_FS,
    SEG_GS,
    SEG_LDTR,
    SEG_TR,
    SEG_GDTR,
    SEG_IDTR,
    SEG_NR
};

/* Registers beyond the GPRs that get_reg and set_reg know. set_reg does not validate: vm/ does (msr.c, cr.c).
 */
enum virt_reg {
    VREG_CR4, /* from here on as they stand in the VMCB */
    VREG_CR3,
    VREG_CR0,
    VREG_DR7,
    VREG_DR6,
    VREG_STAR, /* and from here on */
    VREG_LSTAR,
    VREG_CSTAR,
    VREG_FMASK,
    VREG_KERNEL_GS_BASE,
    VREG_SYSENTER_CS,
    VREG_SYSENTER_ESP,
    VREG_SYSENTER_EIP,
    VREG_CR2,
    VREG_EFER,
    VREG_PAT,
    VREG_FS_BASE,
    VREG_GS_BASE,
    VREG_DR0,
    VREG_DR1,
    VREG_DR2,
    VREG_DR3,
    VREG_TSC_AUX,
    VREG_XCR0,
    VREG_NR
};

enum exit_reason {
    EXIT_UNKNOWN,    /* .info */
    EXIT_INTR,       /* a physical interrupt is pending; taken when the caller opens irq_window() */
    EXIT_TIMER,      /* the deadline given to run() has passed (VT-x preemption timer) */
    EXIT_NMI,        /* a physical NMI arrived (already handled by its IST handler where the vendor allows) */
    EXIT_IRQ_WINDOW, /* the guest can take an interrupt now */
    EXIT_NMI_WINDOW,
    EXIT_CPUID,
    EXIT_HYPERCALL, /* .hc */
    EXIT_RDMSR,     /* index in ECX */
    EXIT_WRMSR,
    EXIT_IO, /* .io */
    EXIT_HLT,
    EXIT_PAUSE,
    EXIT_NPF,       /* .npf: second-level fault */
    EXIT_CR,        /* .cr: MOV to or from a control register that is not left to the guest */
    EXIT_XSETBV,    /* index in ECX, value in EDX:EAX */
    EXIT_EXCEPTION, /* .exc */
    EXIT_WBINVD,    /* also INVD: vm/ treats both as a no-op */
    EXIT_HIDDEN, /* an instruction of a feature that guests do not see (MWAIT, VMX, SVM, ENCLS, ...): #UD */
    EXIT_TASK_SWITCH,
    EXIT_RDPMC,
    EXIT_SHUTDOWN,      /* triple fault */
    EXIT_INIT,          /* a physical INIT: ignored */
    EXIT_NPT_MISCONFIG, /* a second-level entry that is malformed: a bug of ours */
    EXIT_ENTRY_FAILED,  /* the CPU refused the state; guest_why() has it in words */
    EXIT_NR
};

struct vm_exit {
    u8 reason;   /* enum exit_reason */
    u8 insn_len; /* length of the instruction, if one exited; 0 if its bytes were not what was expected */
    u32 raw;     /* the vendor's code, for traces and dumps */
    union {
        struct {
            u16 port;
            u8 size; /* 1, 2, 4 */
            bool in, string, rep;
        } io;
        struct {
            gpa_t gpa;
            bool write, exec;
            bool present;     /* a right was missing, not the mapping */
            bool in_walk;     /* while walking the guest's own page tables */
            bool in_delivery; /* while delivering an event: the instruction at RIP did not do it */
            u8 mode;          /* the default operand size of CS: 16, 32, 64 */
            u8 nr_bytes;      /* of the instruction, if the vendor had them at hand; 0: guest_fetch() */
            u8 bytes[15];
        } npf;
        struct {
            u8 mode; /* the default operand size of CS: 16, 32, 64 */
            u8 cpl;
            bool real; /* CR0.PE is clear */
        } hc;
        struct {
            u8 vector;
            u8 icebp_len; /* as in struct virt_event */
            bool has_code;
            u32 code;
        } exc;
        struct {
            u8 cr;
            u8 gpr;
            bool write;
            u64 value; /* if write */
        } cr;
        u64 info[2]; /* raw qualification, for EXIT_UNKNOWN */
    };
};

/* INT n, INT3 and INTO that an exit cut short are executed again instead. */
enum event_type { EVENT_NONE, EVENT_IRQ, EVENT_NMI, EVENT_EXCEPTION };

struct virt_event {
    u8 type; /* enum event_type */
    u8 vector;
    u8 icebp_len; /* a #DB by ICEBP: that instruction's length; RIP is still at it. 0: not by ICEBP */
    bool has_code;
    u32 code;
};

/* Vectors: SDM 3A table 6-1. */
enum { EXC_DE = 0, EXC_DB = 1, EXC_NMI = 2, EXC_BP = 3, EXC_OF = 4, EXC_UD = 6, EXC_DF = 8, EXC_TS = 10 };
enum { EXC_NP = 11, EXC_SS = 12, EXC_GP = 13, EXC_PF = 14, EXC_AC = 17, EXC_MC = 18 };

/* Per VM. */
struct virt_vm {
    const struct guestmem *mem;
    u64 cr4_guest;  /* CR4 bits that this guest sees; setting others is EXIT_CR (SVM: every access is) */
    struct npt npt; /* of virt->npt_format */
};

/* gwalk.c's: where an instruction that exited was found, and by which entries of the 4 levels of the
 * guest's tables. */
#define INSN_CACHE  8
#define INSN_LEVELS 4
struct insn_at {
    u64 rip, cr3; /* cr3: ~0 if nothing is here; a RIP can be anything, even one that is not canonical */
    const u64 *entry[INSN_LEVELS];
    u64 value[INSN_LEVELS];
    const u8 *bytes;
    u64 pad[5]; /* to a power of two */
};

/* Per vCPU. */
struct virt_vcpu {
    struct guest_regs regs; /* first: the entry code indexes it */
    u8 cr8;                 /* as regs: valid and changeable outside run() */
    struct virt_vm *vm;
    u64 tsc_offset;            /* constant after creation; guest TSC = TSC + offset */
    struct virt_event pending; /* to deliver at the next entry; an event whose delivery an exit cut short is
                                  put back here */
    union {
        u32 wants; /* any of: */
        struct {
            bool want_irq_window, want_nmi_window;
            bool want_cr8_exit; /* an interrupt waits for a lower CR8: writing it is EXIT_CR */
            bool armed;         /* the vendor's: one of them was set at the last entry */
        };
    };
    struct tlb_user tlb; /* ASID or VPID */
    struct insn_at insn[INSN_CACHE];
    u64 reg[VREG_NR]; /* virt.c's: those that are in the CPU while it is loaded, and else here */
    void *xsave;      /* a page */
    void *priv;       /* VMCS or VMCB and what belongs to it */
};
_Static_assert(offsetof(struct virt_vcpu, regs) == 0 && offsetof(struct guest_regs, gpr) == 0, "entry.asm");

/* What the machine's CPUs can do: filled by probe(), read by the pre-flight table. */
struct virt_caps {
    bool present, locked_off, second_level, unrestricted, asid, preemption_timer;
    const char *reason; /* NULL, or why guests cannot run here, one sentence */
};

struct virt_ops {
    const char *name; /* "vmx" or "svm" */
    void (*probe)(struct virt_caps *caps);
    /* On each pCPU. `pages`: two, zeroed, for its own use. Returns how many ASIDs or VPIDs there are;
     * -EPERM if the firmware has switched virtualisation off on this CPU and locked that; -ENODEV;
     * -ENOMEM. */
    int (*cpu_enable)(u8 *pages);

    const struct npt_format *npt_format;
    bool reads_pdptes; /* MOV to CR0, CR3 and CR4 reads and checks all four entries under PAE paging */
    int (*vcpu_init)(struct virt_vcpu *v); /* -ENOMEM; guest_reset() comes next */
    void (*vcpu_fini)(struct virt_vcpu *v);
    void (*reset_events)(struct virt_vcpu *v); /* ends shadows, blocking of NMIs and the like */

    void (*load)(struct virt_vcpu *v); /* make it this pCPU's */
    void (*save)(struct virt_vcpu *v); /* all its state is in memory again */
    /* Enters the guest and returns after the first exit, decoded. `deadline_ns`: when the pCPU is next needed
     * (~0: never); the vendor arms the cheapest timer that ends the stay. */
    void (*run)(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *exit);

    u64 (*get_reg)(struct virt_vcpu *v, enum virt_reg reg); /* only while loaded, or never yet loaded */
    void (*set_reg)(struct virt_vcpu *v, enum virt_reg reg, u64 value);
    void (*get_seg)(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *s);
    void (*set_seg)(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *s);

    unsigned (*blocked)(struct virt_vcpu *v);  /* BLOCKED_*, whatever IF is */
    void (*clear_shadow)(struct virt_vcpu *v); /* STI and MOV SS shadow end with the emulated instruction */
    unsigned (*cpl)(struct virt_vcpu *v);
    /* After EXIT_ENTRY_FAILED: what the CPU told, or NULL. May be NULL itself. */
    const char *(*why)(struct virt_vcpu *v);
};

#define BLOCKED_SHADOW 1u /* of STI or MOV SS */
#define BLOCKED_NMI    2u /* by an NMI whose handler has not come to its IRET */

extern const struct virt_ops vmx_ops, svm_ops;

/* AMD-V: from now on interrupts reach guests as virtual ones (APM2 15.21.4) and are not injected.
 * Meant for QEMU with -icount, which delivers an injected one twice (docs/virt.md). */
void svm_use_virtual_irqs(bool on);
extern const struct virt_ops *virt; /* the chosen one; tests put a fake here */

/* Chooses by CPUID. Returns 0, or -ENODEV with caps->reason set. */
int virt_probe(struct virt_caps *caps);

/* On every pCPU, once: -ENODEV, -EPERM or -ENOMEM with a log line. */
int virt_cpu_enable(void);

/* EXIT_PAUSE comes of loops alone: the CPU counts. Else each PAUSE may exit. Set by virt_probe(). */
extern bool virt_counts_pauses;

/* The XCR0 bits that guests may set: those whose state load() and save() switch. Set by
 * virt_cpu_enable. */
extern u64 virt_xcr0_mask; /* what guests may set in XCR0; 0: there is no XSAVE */

/* ---- shared by both vendors: gwalk.c, common.c ---- */

#define GUEST_NOT_CANONICAL (~0u) /* as *fault: no #PF, but #GP or #SS */

enum guest_access { GA_READ = 0, GA_WRITE = 1, GA_USER = 2, GA_EXEC = 4 };

/* Walks the guest's page tables (none, 32-bit, PAE, 4-level) as the CPU would. 0 and *gpa; or
 * -EFAULT and *fault = the #PF error code with the address in `gva`. Sets accessed and dirty bits as hardware
 * does. */
int guest_translate(struct virt_vcpu *v, u64 gva, unsigned access, gpa_t *gpa, u32 *fault);
/* Copies instruction bytes at CS:RIP, at most 15, stopping at a page that cannot be read. Returns how many.
 */
unsigned guest_fetch(struct virt_vcpu *v, u8 *buf, unsigned max);
/* Moves RIP over the instruction of `exit` (wrapping at 4 GiB outside 64-bit mode; if it leaves the canonical
 * range the CPU raises #GP there), ends shadows and RF, raises the single-step trap if TF was set. Does
 * nothing if insn_len is 0: the instruction is executed again. */
void guest_skip(struct virt_vcpu *v, const struct vm_exit *exit);
/* The architectural state after INIT (SDM 3A 10.1.1); FPU state is kept. */
void guest_reset(struct virt_vcpu *v);
/* After EXIT_ENTRY_FAILED: the rule that is broken, in words. */
const char *guest_why(struct virt_vcpu *v);
/* The default operand size of its code: 16, 32 or 64. */
unsigned guest_mode(struct virt_vcpu *v);
/* Guests have no CR4.LA57. */
static inline bool is_canonical(u64 va) { return (u64)((i64)(va << 16) >> 16) == va; }

static inline bool guest_can_take_irq(struct virt_vcpu *v) {
    return v->regs.rflags & BIT(9) && v->pending.type == EVENT_NONE && !(virt->blocked(v) & BLOCKED_SHADOW);
}

static inline bool guest_can_take_nmi(struct virt_vcpu *v) {
    return v->pending.type == EVENT_NONE && !virt->blocked(v);
}

/* Queues an exception for the next entry; folds a second contributory fault into #DF and a third into a
 * shutdown (returns false then). A fault's RFLAGS has RF set when it is pushed. */
bool guest_raise(struct virt_vcpu *v, u8 vector, bool has_code, u32 code);

#endif
