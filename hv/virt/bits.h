/* Bits of XCR0 (SDM 1 13.3) and of struct guest_seg.attr (SDM 3A 3.4.5). Those of the registers
 * that guests use as well are in common/registers.h. */
#ifndef HV_VIRT_BITS_H
#define HV_VIRT_BITS_H

#include "common/registers.h"

#define XCR0_X87           BIT(0)
#define XCR0_SSE           BIT(1)
#define XCR0_AVX           BIT(2)
#define XCR0_AVX512        (BIT(5) | BIT(6) | BIT(7))

#define ATTR_ACCESSED      BIT(0)
#define ATTR_RW            BIT(1) /* data: writable; code: readable */
#define ATTR_DOWN          BIT(2) /* data: grows downwards */
#define ATTR_CODE          BIT(3)
#define ATTR_S             BIT(4) /* code or data; clear: a system segment, of one of these types */
#define ATTR_TYPE_LDT      2u
#define ATTR_TYPE_TSS_BUSY 11u
#define ATTR_DPL(attr)     ((attr) >> 5 & 3u)
#define ATTR_P             BIT(7)
#define ATTR_LONG          BIT(9)  /* CS.L */
#define ATTR_BIG           BIT(10) /* D or B */

#endif
