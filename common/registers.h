/* Bits of control registers, EFER and RFLAGS (SDM 3A 2.3, 2.5, 2.2.1; APM2 3.1), and the numbers of
 * architectural MSRs that several rooms or guests use (SDM 4, table 2-2; APM2 appendix A). */
#ifndef COMMON_REGISTERS_H
#define COMMON_REGISTERS_H

#include <takt/types.h>

#define CR0_PE              BIT(0)
#define CR0_MP              BIT(1)
#define CR0_EM              BIT(2)
#define CR0_TS              BIT(3)
#define CR0_ET              BIT(4)
#define CR0_NE              BIT(5)
#define CR0_WP              BIT(16)
#define CR0_AM              BIT(18)
#define CR0_NW              BIT(29)
#define CR0_CD              BIT(30)
#define CR0_PG              BIT(31)

#define CR4_TSD             BIT(2)
#define CR4_DE              BIT(3)
#define CR4_PSE             BIT(4)
#define CR4_PAE             BIT(5)
#define CR4_MCE             BIT(6)
#define CR4_PGE             BIT(7)
#define CR4_OSFXSR          BIT(9)
#define CR4_OSXMMEXCPT      BIT(10)
#define CR4_UMIP            BIT(11)
#define CR4_LA57            BIT(12)
#define CR4_VMXE            BIT(13)
#define CR4_FSGSBASE        BIT(16)
#define CR4_PCIDE           BIT(17)
#define CR4_OSXSAVE         BIT(18)
#define CR4_SMEP            BIT(20)
#define CR4_SMAP            BIT(21)

#define EFER_SCE            BIT(0)
#define EFER_LME            BIT(8)
#define EFER_LMA            BIT(10)
#define EFER_NXE            BIT(11)
#define EFER_SVME           BIT(12)

#define RFLAGS_ONE          BIT(1)
#define RFLAGS_TF           BIT(8)
#define RFLAGS_IF           BIT(9)
#define RFLAGS_DF           BIT(10)
#define RFLAGS_RF           BIT(16) /* the next instruction takes no instruction breakpoint */
#define RFLAGS_AC           BIT(18)

#define MSR_TSC             0x010
#define MSR_APIC_BASE       0x01b
#define MSR_FEATURE_CONTROL 0x03a
#define MSR_TSC_ADJUST      0x03b
#define MSR_SYSENTER_CS     0x174
#define MSR_SYSENTER_ESP    0x175
#define MSR_SYSENTER_EIP    0x176
#define MSR_MCG_CAP         0x179
#define MSR_MCG_STATUS      0x17a
#define MSR_PAT             0x277
#define MSR_MC0_STATUS      0x401
#define MSR_TSC_DEADLINE    0x6e0
#define MSR_X2APIC          0x800
#define MSR_EFER            0xc0000080u
#define MSR_STAR            0xc0000081u
#define MSR_LSTAR           0xc0000082u
#define MSR_CSTAR           0xc0000083u
#define MSR_FMASK           0xc0000084u
#define MSR_FS_BASE         0xc0000100u
#define MSR_GS_BASE         0xc0000101u
#define MSR_KERNEL_GS_BASE  0xc0000102u
#define MSR_TSC_AUX         0xc0000103u
#define MSR_VM_CR           0xc0010114u

#endif
