/* The virtual machine control block (VMCB) of AMD-V: its fields, the bits in them, and the exit
 * codes. APM2 appendix B, and section 15.5 and those behind it. */
#ifndef HV_VIRT_VMCB_H
#define HV_VIRT_VMCB_H

#include "virt/virt.h"

struct vmcb {
    u32 intercept_cr; /* bits 0 to 15: reads of CR0 to CR15 exit; bits 16 to 31: writes exit */
    u32 intercept_dr;
    u32 intercept_exc; /* bit n: exception n exits */
    u32 intercept[3];  /* bit n of the first word is for exit code SVM_EXIT_WORD1 + n, and so on */
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
    u64 next_rip; /* of the instruction behind the one that exited, on CPUs that tell it */
    /* Decode assists (APM2 15.8.4): after a nested page fault by an access to data, how many bytes
     * of the instruction the CPU has fetched, and these bytes. */
    u8 nr_insn_bytes, insn_bytes[15];
    u8 reserved_0e0[0x400 - 0xe0];
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
_Static_assert(offsetof(struct vmcb, insn_bytes) == 0xd1, "APM2 table B-1");
_Static_assert(offsetof(struct vmcb, rip) == 0x578, "APM2 table B-2");
_Static_assert(offsetof(struct vmcb, cr2) == 0x640, "APM2 table B-2");
_Static_assert(sizeof(struct vmcb) == 4096, "APM2 15.5.1");

_Static_assert(sizeof(struct guest_seg) == 16, "APM2 table B-2");

#define CR_READ(n)  (1u << (n)) /* bits of intercept_cr */
#define CR_WRITE(n) (1u << (16 + (n)))

/* Bits of int_ctl: APM2 15.21.1 to 15.21.4 */
#define INT_CTL_TPR     0xfull  /* the guest's CR8 */
#define INT_CTL_IRQ     BIT(8)  /* a virtual interrupt is pending */
#define INT_CTL_IGN_TPR BIT(20) /* the virtual interrupt is delivered whatever value CR8 has */
#define INT_CTL_MASKING BIT(24) /* the guest's IF and CR8 mask only virtual interrupts */
#define INT_CTL_VECTOR  32      /* the lowest bit of the virtual interrupt's vector */

#define INT_SHADOW      1ull /* bit of int_shadow: APM2 15.21.5 */

/* Bits of clean: APM2 15.15.3. A bit that is set tells the CPU that the fields of this group have
 * not changed since the last VMRUN. */
#define CLEAN_INTERCEPTS BIT(0)
#define CLEAN_ASID       BIT(2)
#define CLEAN_TPR        BIT(3)
#define CLEAN_ALL        0x3ffull

/* Values of tlb_control: the CPU forgets the translations of all ASIDs, the host's among them, or
 * those of the guest's ASID (APM2 15.16.2). The second one needs flush by ASID. */
#define TLB_CTL_ALL  1
#define TLB_CTL_ASID 3

#define NP_ENABLE    1 /* bit of np_enable: APM2 15.25.3 */

/* exit_info1 after an access to a control register, on CPUs with decode assists: whether it was by
 * a MOV, and which general register that names (APM2 15.8.1). */
#define CR_EXIT_IS_MOV    BIT(63)
#define CR_EXIT_GPR(info) ((info)&15u)

/* The number in nr_insn_bytes; the upper bits are reserved (APM2 15.8.4). */
#define NR_INSN_BYTES(n) ((n)&15u)

/* Bits of exit_info1 after SVM_EXIT_NPF: APM2 15.25.6 */
#define NPF_PRESENT  BIT(0)
#define NPF_WRITE    BIT(1)
#define NPF_RESERVED BIT(3)
#define NPF_EXEC     BIT(4)
#define NPF_IN_WALK  BIT(33)

/* Bits of exit_info1 after SVM_EXIT_IOIO: APM2 15.10.2 */
#define IOIO_IN         BIT(0)
#define IOIO_STRING     BIT(2)
#define IOIO_REP        BIT(3)
#define IOIO_SIZE(info) ((info) >> 4 & 7u) /* bytes: 1, 2 or 4 */
#define IOIO_PORT(info) ((u16)((info) >> 16))

/* Bit of exit_info1 after SVM_EXIT_MSR: the MSR was written, not read (APM2 15.11). */
#define MSR_EXIT_WRITE 1u

/* Exit codes: APM2 appendix C. Each code from SVM_EXIT_WORD1 to SVM_EXIT_TLBSYNC has a bit in
 * vmcb.intercept, which switches that exit on. */
enum {
    SVM_EXIT_CR_READ = 0x00,
    SVM_EXIT_CR_WRITE = 0x10,
    SVM_EXIT_CR_WRITE15 = 0x1f,
    SVM_EXIT_EXC = 0x40,
    SVM_EXIT_EXC31 = 0x5f,
    SVM_EXIT_WORD1 = 0x60,
    SVM_EXIT_INTR = 0x60,
    SVM_EXIT_NMI = 0x61,
    SVM_EXIT_INIT = 0x63,
    SVM_EXIT_VINTR = 0x64,
    SVM_EXIT_CR0_SELECTIVE = 0x65,
    SVM_EXIT_RDPMC = 0x6f,
    SVM_EXIT_CPUID = 0x72,
    SVM_EXIT_RSM = 0x73,
    SVM_EXIT_IRET = 0x74,
    SVM_EXIT_INVD = 0x76,
    SVM_EXIT_PAUSE = 0x77,
    SVM_EXIT_HLT = 0x78,
    SVM_EXIT_INVLPGA = 0x7a,
    SVM_EXIT_IOIO = 0x7b,
    SVM_EXIT_MSR = 0x7c,
    SVM_EXIT_TASK_SWITCH = 0x7d,
    SVM_EXIT_SHUTDOWN = 0x7f,
    SVM_EXIT_VMRUN = 0x80,
    SVM_EXIT_VMMCALL = 0x81,
    SVM_EXIT_VMLOAD = 0x82,
    SVM_EXIT_VMSAVE = 0x83,
    SVM_EXIT_STGI = 0x84,
    SVM_EXIT_CLGI = 0x85,
    SVM_EXIT_SKINIT = 0x86,
    SVM_EXIT_ICEBP = 0x88,
    SVM_EXIT_WBINVD = 0x89,
    SVM_EXIT_MONITOR = 0x8a,
    SVM_EXIT_MWAIT = 0x8b,
    SVM_EXIT_MWAIT_ARMED = 0x8c,
    SVM_EXIT_XSETBV = 0x8d,
    SVM_EXIT_RDPRU = 0x8e,
    SVM_EXIT_INVLPGB = 0xa0,
    SVM_EXIT_INVLPGB_ILLEGAL = 0xa1,
    SVM_EXIT_INVPCID = 0xa2,
    SVM_EXIT_MCOMMIT = 0xa3,
    SVM_EXIT_TLBSYNC = 0xa4,
    SVM_EXIT_NPF = 0x400,
};

/* The bit of an exit code within its word of vmcb.intercept. */
#define SVM_INTERCEPT(code) (1u << ((code)-SVM_EXIT_WORD1) % 32)

#endif
