/* The virtual machine control block of AMD-V: APM2 appendix B, and 15.5 on. */
#ifndef HV_VIRT_VMCB_H
#define HV_VIRT_VMCB_H

#include "virt/virt.h"

struct vmcb {
    u32 intercept_cr; /* low half reads, high half writes */
    u32 intercept_dr;
    u32 intercept_exc;
    u32 intercept[3]; /* bit n of the first word is exit code 0x60 + n, and so on */
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
    u8 reserved_0c8[0x400 - 0xc8];
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
    u64 pat;
    u8 reserved_670[0x1000 - 0x670];
};

_Static_assert(offsetof(struct vmcb, iopm) == 0x40, "APM2 table B-1");
_Static_assert(offsetof(struct vmcb, clean) == 0xc0, "APM2 table B-1");
_Static_assert(offsetof(struct vmcb, rip) == 0x578, "APM2 table B-2");
_Static_assert(offsetof(struct vmcb, cr2) == 0x640, "APM2 table B-2");
_Static_assert(sizeof(struct vmcb) == 4096, "APM2 15.5.1");

#define CR_READ(n)       (1u << (n)) /* of intercept_cr */
#define CR_WRITE(n)      (1u << (16 + (n)))

#define INT_CTL_TPR      0xfull /* APM2 15.21.1 to 15.21.4 */
#define INT_CTL_IRQ      BIT(8)
#define INT_CTL_IGN_TPR  BIT(20)
#define INT_CTL_MASKING  BIT(24)
#define INT_CTL_VECTOR   32 /* the vector's lowest bit */

#define INT_SHADOW       1ull

#define CLEAN_INTERCEPTS BIT(0) /* APM2 15.15.3; 1: unchanged since the last VMRUN */
#define CLEAN_TPR        BIT(3)
#define CLEAN_ALL        0x3ffull

#define TLB_CTL_ALL      1

/* Exit codes: APM2 appendix C. */
enum {
    SVM_EXIT_CR_READ = 0x00,
    SVM_EXIT_CR_WRITE = 0x10,
    SVM_EXIT_EXC = 0x40,
    SVM_EXIT_WORD1 = 0x60, /* from here on with a bit each in `intercept` */
    SVM_EXIT_VINTR = 0x64,
    SVM_EXIT_CR0_SELECTIVE = 0x65,
    SVM_EXIT_IRET = 0x74,
    SVM_EXIT_NPF = 0x400,
};

#endif
