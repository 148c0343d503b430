/* CPU virtualisation. VT-x and AMD-V each have a table of operations, one of which is chosen at
 * boot, and both describe exits in the same decoded form. So no room above this one reads a field
 * of a VMCS or VMCB.
 *
 * A vCPU's hardware state lives in its struct virt_vcpu. load() makes a vCPU the current one of a
 * pCPU, run() enters its guest any number of times, and save() ends that. A pCPU has to save() its
 * vCPU before it loads another one, and before another pCPU loads it. Outside run(), GPRs, RIP, RSP
 * and RFLAGS are valid in `regs` and may be changed there. All other state goes through the
 * hooks. */
#ifndef HV_VIRT_VIRT_H
#define HV_VIRT_VIRT_H

#include "mm/guestmem.h"
#include "mm/npt.h"
#include "virt/bits.h"

/* The general-purpose registers are in the order in which instructions number them. entry.asm
 * relies on this layout. */
struct guest_regs {
    u64 gpr[16]; /* RAX RCX RDX RBX RSP RBP RSI RDI R8..R15 */
    u64 rip, rflags;
};

enum gpr { REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8 };

struct guest_seg {
    u16 sel;
    /* The format is that of a VMCB (APM2 15.5.1): bits 0 to 7 are bits 40 to 47 of the descriptor,
     * and bits 8 to 11 are its bits 52 to 55. */
    u16 attr;
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

/* The registers, besides the GPRs, that get_reg and set_reg know. set_reg does not check whether a
 * value is allowed: its callers do (msr.c, cr.c). */
enum virt_reg {
    VREG_CR4,
    VREG_CR3,
    VREG_CR0,
    VREG_DR7,
    VREG_DR6,
    VREG_STAR,
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
    EXIT_UNKNOWN, /* none of the reasons below; .info has the raw details */
    /* A physical interrupt is pending. The CPU takes it when the caller opens irq_window(). */
    EXIT_INTR,
    EXIT_TIMER, /* the deadline given to run() has passed (VT-x preemption timer) */
    /* A physical NMI arrived. On VT-x its handler has run already. On AMD-V the CPU takes it when
     * svm_enter() sets the global interrupt flag. */
    EXIT_NMI,
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
    EXIT_CR,        /* .cr: MOV to or from a control register that Takt has to handle */
    EXIT_XSETBV,    /* index in ECX, value in EDX:EAX */
    EXIT_EXCEPTION, /* .exc */
    EXIT_WBINVD,    /* also INVD: both do nothing in a guest */
    /* an instruction that guests do not have, such as MWAIT or those of VMX and SVM: raises #UD */
    EXIT_HIDDEN,
    EXIT_TASK_SWITCH,
    EXIT_RDPMC,
    EXIT_SHUTDOWN,      /* triple fault */
    EXIT_INIT,          /* a physical INIT: ignored */
    EXIT_NPT_MISCONFIG, /* a second-level entry is malformed: a bug of Takt */
    EXIT_ENTRY_FAILED,  /* the CPU refused to enter the guest; guest_why() says why */
    /* On AMD-V: ICEBP (INT1), with RIP at the instruction. On VT-x it is an EXIT_EXCEPTION. */
    EXIT_ICEBP,
    /* These two come after the instruction: the CPU has carried the guest's write to its LAPIC out,
     * as far as it can (struct virt_apic). */
    EXIT_APIC_EOI,   /* .apic.at: the vector of an EOI about which the IOAPIC has to know */
    EXIT_APIC_WRITE, /* .apic.at: the offset in the page that has the new value */
    EXIT_NR
};

struct vm_exit {
    u8 reason; /* enum exit_reason */
    /* The length of the instruction, if one exited. 0: its bytes in memory are not those of an
     * instruction that causes this exit, so another vCPU has changed them meanwhile. */
    u8 insn_len;
    u32 raw; /* the vendor's exit code, for traces and dumps */
    union {
        struct {
            u16 port;
            u8 size; /* 1, 2, 4 */
            bool in, string, rep;
        } io;
        struct {
            gpa_t gpa;
            bool write, exec;
            bool present; /* there is a mapping, but it lacks a right */
            bool in_walk; /* while walking the guest's own page tables */
            /* The CPU was delivering an event. The instruction at RIP did not cause the fault. */
            bool in_delivery;
            u8 mode; /* the default operand size of CS: 16, 32, 64 */
            /* How many bytes of the instruction are in `bytes`. 0: guest_fetch() reads them. */
            u8 nr_bytes;
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
        struct {
            u16 at;
        } apic;
        u64 info[2]; /* raw qualification, for EXIT_UNKNOWN */
    };
};

/* Events that the hypervisor delivers. INT n, INT3 and INTO are not among them: if an exit cuts
 * their delivery short, RIP still points at the instruction, and the guest executes it again. */
enum event_type { EVENT_NONE, EVENT_IRQ, EVENT_NMI, EVENT_EXCEPTION };

struct virt_event {
    u8 type; /* enum event_type */
    u8 vector;
    /* For a #DB that ICEBP caused, with RIP still at that instruction: its length. Else 0. */
    u8 icebp_len;
    bool has_code;
    u32 code;
};

/* Vectors: SDM 3A table 6-1. */
enum {
    EXC_DE = 0,
    EXC_DB = 1,
    EXC_NMI = 2,
    EXC_BP = 3,
    EXC_OF = 4,
    EXC_UD = 6,
    EXC_DF = 8,
    EXC_TS = 10
};
enum { EXC_NP = 11, EXC_SS = 12, EXC_GP = 13, EXC_PF = 14, EXC_AC = 17, EXC_MC = 18 };

/* What this room keeps for each VM. */
struct virt_vm {
    const struct guestmem *mem;
    gpa_t apic_gpa; /* where guests find the registers of their LAPICs */
    /* There is something at apic_gpa, so that the CPU emulates accesses to it (struct virt_apic).
     * Written under the lock, and read atomically. */
    bool apic_mapped;
    struct spinlock apic_lock;
    /* The bits of CR4 that the guest may change. On VT-x a change of any other bit causes EXIT_CR;
     * on AMD-V each access to CR4 does. */
    u64 cr4_guest;
    struct npt npt; /* in the format virt->npt_format */
};

/* A page of the guest's code that gwalk.c remembers, and the entries of the guest's tables by which
 * it was found. The lowest bits of its number say in which two slots it is looked for first. A page
 * that has to leave them for another one moves to any slot. */
#define CODE_PAGES  16
#define CODE_LEVELS 4
struct code_page {
    u64 page;   /* guest-virtual address / PAGE_SIZE */
    u64 tables; /* as tables_key() says; CODE_NO_TABLES if this slot is empty */
    const u64 *entry[CODE_LEVELS];
    u64 value[CODE_LEVELS];
    const u8 *bytes; /* the whole page, in the VM's RAM */
    u64 pad[5];      /* to a power of two */
};

/* How much of a vCPU's LAPIC the CPU itself emulates while the guest runs. */
enum apic_mode {
    APIC_BY_EXITS, /* nothing but CR8: accesses exit, and interrupts are injected */
    APIC_BY_PAGE,  /* most accesses to the page, and the delivery of interrupts */
    APIC_BY_MSRS   /* the same for a LAPIC in x2APIC mode */
};

/* APIC virtualization (SDM 3C chapter 30). The registers of a LAPIC that the CPU uses and changes
 * while the guest runs are in a page of memory. After an exit they stay there, which is told by
 * virt_vcpu.cr8 == CR8_IN_PAGE, until virt_apic_fetch() copies them from there and sets cr8. At the
 * next entry virt_apic_give() puts them back, with the fields below. */
struct virt_apic {
    u32 *page; /* "virtual-APIC page", as the registers lie in a LAPIC; NULL: not used */
    u8 mode;   /* enum apic_mode */
    /* The highest vector of IRR and of ISR in the page; 0: none. */
    u8 requested, in_service;
    u64 eoi_exits[4]; /* a bit for each vector whose EOI causes EXIT_APIC_EOI */
};
#define CR8_IN_PAGE 0xff

/* What this room keeps for each vCPU. */
struct virt_vcpu {
    struct guest_regs regs; /* must be first, as entry.asm takes the address of the vCPU for it */
    u8 cr8;                 /* like regs, it is valid outside run() and may be changed there;
                             * CR8_IN_PAGE: see struct virt_apic */
    struct virt_vm *vm;
    u64 tsc_offset; /* constant after creation; guest TSC = TSC + offset */
    /* An event to deliver at the next entry. An event whose delivery was cut short by an exit comes
     * back here. */
    struct virt_event pending;
    union {
        u32 wants; /* not 0 if any of the following is set */
        struct {
            bool want_irq_window, want_nmi_window; /* exit as soon as one can be delivered */
            /* A write of CR8 is to exit, because an interrupt waits for a lower CR8. */
            bool want_cr8_exit;
            /* Set by the vendor's code: it has armed something for one of the three above, which it
             * has to disarm at the next entry. */
            bool armed;
        };
    };
    struct tlb_user tlb; /* its ASID or VPID, and the generation that its translations have */
    struct virt_apic apic;
    struct code_page code[CODE_PAGES];
    unsigned code_next; /* modulo CODE_PAGES: where the next page that has to leave goes */
    /* virt.c's: registers that no VMCS or VMCB holds; valid while the vCPU is not loaded */
    u64 reg[VREG_NR];
    void *xsave; /* virt_xsave_size bytes, where virt_vcpu_alloc() has put them */
    void *priv;  /* of the vendor's code: VMCS or VMCB, and what belongs to it */
};
_Static_assert(offsetof(struct virt_vcpu, regs) == 0 && offsetof(struct guest_regs, gpr) == 0,
               "entry.asm");

/* What the machine's CPUs can do. probe() fills it in, and the preflight check shows it. */
struct virt_caps {
    bool present, locked_off, second_level, unrestricted, asid, preemption_timer, apicv;
    bool decode_assists, flush_by_asid;
    const char *reason; /* NULL, or one sentence that says why no guest can run here */
};

struct virt_ops {
    const char *name; /* "vmx" or "svm" */
    void (*probe)(struct virt_caps *caps);
    /* Enables virtualisation on this pCPU. `pages` are two zeroed pages, which the vendor keeps.
     * Returns how many ASIDs or VPIDs there are, or
     *   -EPERM   the firmware has switched virtualisation off on this CPU, and locked that
     *   -ENODEV  the CPU refuses
     *   -ENOMEM  there is no memory for the bitmaps */
    int (*cpu_enable)(u8 *pages);

    const struct npt_format *npt_format;
    /* Under PAE paging a MOV to CR0, CR3 or CR4 reads and checks all four PDPTEs at once. */
    bool reads_pdptes;
    /* Allocates and fills in what the hardware keeps of a vCPU. guest_reset() must follow. Returns
     * 0, or -ENOMEM. */
    int (*vcpu_init)(struct virt_vcpu *v);
    void (*vcpu_fini)(struct virt_vcpu *v); /* frees it; v is not loaded anywhere */
    /* Ends interrupt shadows and the blocking of NMIs. */
    void (*reset_events)(struct virt_vcpu *v);

    void (*load)(struct virt_vcpu *v); /* makes it the current vCPU of this pCPU */
    void (*save)(struct virt_vcpu *v); /* writes all its state to memory */
    /* Enters the guest, returns after the first exit, and decodes that into *exit. This pCPU is
     * needed again at `deadline_ns` at the latest (~0: never), so the vendor arms the cheapest
     * timer that ends the stay in the guest by then. */
    void (*run)(struct virt_vcpu *v, u64 deadline_ns, struct vm_exit *exit);

    /* These four may be called only while v is loaded on this pCPU, or before it was loaded for the
     * first time. */
    u64 (*get_reg)(struct virt_vcpu *v, enum virt_reg reg);
    void (*set_reg)(struct virt_vcpu *v, enum virt_reg reg, u64 value);
    void (*get_seg)(struct virt_vcpu *v, enum seg_name seg, struct guest_seg *s);
    void (*set_seg)(struct virt_vcpu *v, enum seg_name seg, const struct guest_seg *s);

    /* Returns BLOCKED_* bits, which say what keeps events from being delivered. RFLAGS.IF is not
     * among them. */
    unsigned (*blocked)(struct virt_vcpu *v);
    /* Ends the shadow of STI or MOV SS, because an instruction was emulated. */
    void (*clear_shadow)(struct virt_vcpu *v);
    unsigned (*cpl)(struct virt_vcpu *v);
    /* After EXIT_ENTRY_FAILED: what the CPU said in words, or NULL. The hook itself may be NULL. */
    const char *(*why)(struct virt_vcpu *v);
};

#define BLOCKED_SHADOW 1u /* of STI or MOV SS */
#define BLOCKED_NMI    2u /* an NMI was delivered, and its handler has not come to its IRET */

extern const struct virt_ops vmx_ops, svm_ops;

/* On AMD-V: says which abilities of the CPU may be used, if it has them. To be called before
 * virt_probe(); at first all may be used. They change what an exit costs, and nothing that a guest
 * can see. */
void svm_allow(bool decode_assists, bool flush_by_asid);
/* On AMD-V: from now on interrupts are delivered to guests as virtual interrupts (APM2 15.21.4),
 * and not by injection. This is for QEMU with -icount, which delivers an injected interrupt twice
 * (docs/virt.md). To be called before any guest runs. */
void svm_use_virtual_irqs(bool on);
/* On VT-x: from now on CPUs deliver interrupts to guests by themselves (struct virt_apic). Returns
 * false if they cannot, or if there is no memory. To be called before any guest is made. */
bool vmx_use_apicv(void);
/* The owner of the LAPICs sets these two. virt_apic_give() puts the registers of the LAPIC of `v`
 * into v->apic.page, and sets the other fields there. If it chooses APIC_BY_MSRS, nothing is mapped
 * at apic_gpa any more. virt_apic_fetch() copies the registers back. vmx_run() calls the first
 * before an entry, with interrupts off, and the second after an exit by which the guest may access
 * its LAPIC: one by an MSR, a control register, or the page at apic_gpa. */
extern void (*virt_apic_give)(struct virt_vcpu *v), (*virt_apic_fetch)(struct virt_vcpu *v);
/* The page to which apic_gpa has to lead in tables of VMs for APIC_BY_PAGE. The guest never reads
 * or writes it. HPA_NONE: APIC virtualization is not used. */
extern hpa_t virt_apic_page;
extern const struct virt_ops *virt; /* the chosen vendor; tests put a fake here */

/* Chooses the vendor by CPUID and sets `virt`; once at boot. Returns 0, or -ENODEV if no guest can
 * run here; caps->reason then says why. */
int virt_probe(struct virt_caps *caps);

/* Enables virtualisation on this pCPU. To be called once on each pCPU, after virt_probe(). Returns
 * 0, or an error as cpu_enable() does. -ENODEV and -EPERM are logged. */
int virt_cpu_enable(void);

/* True if the CPU counts PAUSEs, so that only loops of PAUSEs cause EXIT_PAUSE. Otherwise each
 * single PAUSE may cause it. Set by virt_probe(), then constant. */
extern bool virt_counts_pauses;

/* True if a flush of a vCPU's translations is one of its ASID. Otherwise it gets a new ASID or
 * VPID. Set by virt_probe(), then constant. */
extern bool virt_flushes_tags;

/* The bits of XCR0 that guests may set. load() and save() switch the state that belongs to these
 * bits. 0 if the CPUs have no XSAVE. Set by virt_cpu_enable(), then constant. */
extern u64 virt_xcr0_mask;

/* How many bytes load() and save() use at virt_vcpu.xsave. Set by virt_cpu_enable(), then
 * constant. */
extern u32 virt_xsave_size;

/* Allocates a zeroed structure of `size` bytes that begins with a struct virt_vcpu. Its XSAVE area
 * is behind it in the same object, because a page for it would be empty for the most part.
 * heap_free() frees both. NULL: there is no memory. */
void *virt_vcpu_alloc(size_t size);

/* ---- shared by both vendors: gwalk.c, common.c ---- */

#define GUEST_NOT_CANONICAL (~0u) /* in *fault: the access causes no #PF, but #GP or #SS */

enum guest_access { GA_READ = 0, GA_WRITE = 1, GA_USER = 2, GA_EXEC = 4 };

/* Translates `gva` by the guest's page tables (none, 32-bit, PAE or 4-level) as the CPU would, and
 * sets accessed and dirty bits. `access` is of GA_*. v is loaded. Returns 0, with the address in
 * *gpa, or -EFAULT, with the error code of the #PF, or GUEST_NOT_CANONICAL, in *fault. */
int guest_translate(struct virt_vcpu *v, u64 gva, unsigned access, gpa_t *gpa, u32 *fault);
/* Copies at most `max` bytes of code at CS:RIP to `buf`. Returns how many it has copied; they are
 * fewer if a page is not mapped or is no RAM. */
unsigned guest_fetch(struct virt_vcpu *v, u8 *buf, unsigned max);
/* Moves RIP over the instruction of `exit`, and does what the CPU does after an instruction: ends
 * shadows and RF, raises the single-step trap if TF was set. RIP wraps at 4 GiB outside 64-bit
 * mode. If it leaves the canonical range, the CPU raises #GP there. If insn_len is 0, nothing is
 * done, and the guest executes the instruction again. */
void guest_skip(struct virt_vcpu *v, const struct vm_exit *exit);
/* The architectural state after INIT (SDM 3A 10.1.1); FPU state is kept. */
void guest_reset(struct virt_vcpu *v);
/* After EXIT_ENTRY_FAILED: returns the rule that the state breaks, in words; never NULL. */
const char *guest_why(struct virt_vcpu *v);
/* Returns the default operand size of the guest's code: 16, 32 or 64. */
unsigned guest_mode(struct virt_vcpu *v);
/* For 48 bits: guests do not have CR4.LA57. */
static inline bool is_canonical(u64 va) { return (u64)((i64)(va << 16) >> 16) == va; }

static inline bool guest_can_take_irq(struct virt_vcpu *v) {
    return v->regs.rflags & RFLAGS_IF && v->pending.type == EVENT_NONE &&
           !(virt->blocked(v) & BLOCKED_SHADOW);
}

static inline bool guest_can_take_nmi(struct virt_vcpu *v) {
    return v->pending.type == EVENT_NONE && !virt->blocked(v);
}

/* Queues an exception for the next entry. Together with one that is pending already it may become
 * #DF. For a fault, RF is set in the RFLAGS that will be pushed. Returns false if a #DF was
 * pending, and the two make a triple fault; then nothing is queued. */
bool guest_raise(struct virt_vcpu *v, u8 vector, bool has_code, u32 code);

#endif
