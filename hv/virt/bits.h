/* Bits of registers: SDM 3A 2.3, 2.5, 2.2.1; of struct guest_seg.attr: SDM 3A 3.4.5. */
#ifndef HV_VIRT_BITS_H
#define HV_VIRT_BITS_H

#include <takt/types.h>

#define CR0_PE       BIT(0)
#define CR0_ET       BIT(4)
#define CR0_NE       BIT(5)
#define CR0_WP       BIT(16)
#define CR0_NW       BIT(29)
#define CR0_CD       BIT(30)
#define CR0_PG       BIT(31)
#define CR4_PSE      BIT(4)
#define CR4_PAE      BIT(5)
#define CR4_MCE      BIT(6)
#define CR4_UMIP     BIT(11)
#define CR4_FSGSBASE BIT(16)
#define CR4_OSXSAVE  BIT(18)
#define CR4_SMEP     BIT(20)
#define CR4_SMAP     BIT(21)
#define EFER_SCE     BIT(0)
#define EFER_LME     BIT(8)
#define EFER_LMA     BIT(10)
#define EFER_NXE     BIT(11)
#define EFER_SVME    BIT(12)
#define XCR0_X87     BIT(0)
#define XCR0_SSE     BIT(1)
#define XCR0_AVX     BIT(2)
#define XCR0_AVX512  (BIT(5) | BIT(6) | BIT(7))
#define RFLAGS_ONE   BIT(1)
#define RFLAGS_TF    BIT(8)
#define RFLAGS_IF    BIT(9)
#define RFLAGS_DF    BIT(10)
#define RFLAGS_RF    BIT(16) /* the next instruction takes no instruction breakpoint */
#define RFLAGS_AC    BIT(18)

#define ATTR_RW      BIT(1) /* data: writable; code: readable */
#define ATTR_DOWN    BIT(2) /* data: grows downwards */
#define ATTR_CODE    BIT(3)
#define ATTR_P       BIT(7)
#define ATTR_LONG    BIT(9)  /* CS.L */
#define ATTR_BIG     BIT(10) /* D or B */

#endif
