/* The virtual machine control block of AMD-V: APM2 appendix B, and 15.5 on. */
#ifndef HV_VIRT_VMCB_H
#define HV_VIRT_VMCB_H

#include "virt/virt.h"

struct vmcb {
    u32 intercept_cr; /* low half reads, high half writes */
    u32 intercept_dr;
    u32 intercept_exc;
    u32 intercept_1, intercept_2, intercept_3;
    u8 reserved_018[0x3c - 0x18];
    u16 pause_threshold, pause_count;
    u64 iopm, msrpm;
    u64 tsc_offset;
    u32 asid;
    u8 tlb_control, reserved_05d[3];
    u64 int_ctl;
    u64 int_shadow;
    u64 exit_code, exit_info1, exit_info2, exit_int_info;
    u64 np_enable;
    u64 reserved_098[2];
    u64 event_inj;
    u64 n_cr3;
    u64 lbr_ctl;
    u64 clean;
    u64 next_rip;
    u8 reserved_0d0[0x400 - 0xd0];
    /* 0x400: the state save area */
    struct guest_seg es, cs, ss, ds, fs, gs, gdtr, ldtr, idtr, tr;
    u8 reserved_4a0[0x4cb - 0x4a0];
    u8 cpl;
    u32 reserved_4cc;
    u64 efer;
    u8 reserved_4d8[0x548 - 0x4d8];
    u64 cr4, cr3, cr0, dr7, dr6, rflags, rip;
    u8 reserved_580[0x5d8 - 0x580];
    u64 rsp;
    u64 reserved_5e0[3];
    u64 rax;
    u64 star, lstar, cstar, fmask, kernel_gs_base;
    u64 sysenter_cs, sysenter_esp, sysenter_eip;
    u64 cr2;
    u8 reserved_648[0x668 - 0x648];
    u64 pat, debugctl;
    u8 reserved_678[0x1000 - 0x678];
};

_Static_assert(offsetof(struct vmcb, iopm) == 0x40, "APM2 table B-1");
_Static_assert(offsetof(struct vmcb, exit_code) == 0x70, "APM2 table B-1");
_Static_assert(offsetof(struct vmcb, next_rip) == 0xc8, "APM2 table B-1");
_Static_assert(offsetof(struct vmcb, efer) == 0x4d0, "APM2 table B-2");
_Static_assert(offsetof(struct vmcb, rip) == 0x578, "APM2 table B-2");
_Static_assert(offsetof(struct vmcb, rax) == 0x5f8, "APM2 table B-2");
_Static_assert(offsetof(struct vmcb, pat) == 0x668, "APM2 table B-2");
_Static_assert(sizeof(struct vmcb) == 4096, "APM2 15.5.1");

/* intercept_1, and intercept_2 */
#define I1_INTR        BIT(0)
#define I1_NMI         BIT(1)
#define I1_INIT        BIT(3)
#define I1_VINTR       BIT(4)
#define I1_RDPMC       BIT(15)
#define I1_CPUID       BIT(18)
#define I1_RSM         BIT(19)
#define I1_IRET        BIT(20)
#define I1_INVD        BIT(22)
#define I1_PAUSE       BIT(23)
#define I1_HLT         BIT(24)
#define I1_INVLPGA     BIT(26)
#define I1_IO          BIT(27)
#define I1_MSR         BIT(28)
#define I1_TASK_SWITCH BIT(29)
#define I1_FERR_FREEZE BIT(30)
#define I1_SHUTDOWN    BIT(31)
/* VMRUN VMMCALL VMLOAD VMSAVE STGI CLGI SKINIT, WBINVD MONITOR MWAIT MWAIT-armed XSETBV RDPRU */
#define I2_ALL 0x7e7fu
/* INVLPGB, MCOMMIT, TLBSYNC */
#define I3_ALL           0x1bu

#define INT_CTL_TPR      0xfull
#define INT_CTL_IRQ      BIT(8)
#define INT_CTL_IGN_TPR  BIT(20)
#define INT_CTL_MASKING  BIT(24)

#define INT_SHADOW       1ull

#define CLEAN_INTERCEPTS BIT(0) /* APM2 15.15.3; 1: unchanged since the last VMRUN */
#define CLEAN_TPR        BIT(3)
#define CLEAN_ALL        0x3ffull

#define TLB_CTL_ALL      1

enum {
    SVM_EXIT_CR_READ = 0x00,
    SVM_EXIT_CR_WRITE = 0x10,
    SVM_EXIT_DR_READ = 0x20,
    SVM_EXIT_DR_WRITE = 0x30,
    SVM_EXIT_EXC = 0x40,
    SVM_EXIT_INTR = 0x60,
    SVM_EXIT_NMI,
    SVM_EXIT_SMI,
    SVM_EXIT_INIT,
    SVM_EXIT_VINTR,
    SVM_EXIT_RDPMC = 0x6f,
    SVM_EXIT_CPUID = 0x72,
    SVM_EXIT_RSM,
    SVM_EXIT_IRET,
    SVM_EXIT_INVD = 0x76,
    SVM_EXIT_PAUSE,
    SVM_EXIT_HLT,
    SVM_EXIT_INVLPGA = 0x7a,
    SVM_EXIT_IO,
    SVM_EXIT_MSR,
    SVM_EXIT_TASK_SWITCH,
    SVM_EXIT_FERR_FREEZE,
    SVM_EXIT_SHUTDOWN,
    SVM_EXIT_VMRUN,
    SVM_EXIT_VMMCALL,
    SVM_EXIT_VMLOAD,
    SVM_EXIT_VMSAVE,
    SVM_EXIT_STGI,
    SVM_EXIT_CLGI,
    SVM_EXIT_SKINIT,
    SVM_EXIT_WBINVD = 0x89,
    SVM_EXIT_MONITOR,
    SVM_EXIT_MWAIT,
    SVM_EXIT_MWAIT_ARMED,
    SVM_EXIT_XSETBV,
    SVM_EXIT_RDPRU,
    SVM_EXIT_INVLPGB = 0xa0,
    SVM_EXIT_INVLPGB_ILLEGAL,
    SVM_EXIT_INVPCID,
    SVM_EXIT_MCOMMIT,
    SVM_EXIT_TLBSYNC,
    SVM_EXIT_NPF = 0x400,
};

#endif
