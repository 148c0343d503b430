/* Registers of Intel's 82576 network card that more than one file knows. Numbers of sections are
 * those of the "Intel 82576 Gigabit Ethernet Controller" data sheet (2.63); chapter 8 has all
 * registers, 8.26 those of a virtual function. The card has one *physical function*, which controls
 * it, and *virtual functions*, which can be given to VMs. A register that a virtual function has as
 * well, at the same offset, is marked VF. A *pool* is the set of queues that belongs to one
 * function. */
#ifndef DRIVERS_IGB_REGS_H
#define DRIVERS_IGB_REGS_H

#include <takt/types.h>

#define IGB_VENDOR    0x8086
#define IGB_DEVICE    0x10c9
#define IGB_VF_DEVICE 0x10ca

enum igb_reg {
    IGB_CTRL = 0x0000,   /* VF: a virtual function has this register as well */
    IGB_STATUS = 0x0008, /* VF */
    IGB_CTRL_EXT = 0x0018,
    IGB_MDIC = 0x0020,
    IGB_ICR = 0x00c0,
    IGB_IMS = 0x00d0,
    IGB_IMC = 0x00d8,
    IGB_RCTL = 0x0100,
    IGB_TCTL = 0x0400,
    IGB_VFRE = 0x0c8c,
    IGB_VFTE = 0x0c90,
    IGB_GPIE = 0x1514,
    IGB_EIMS = 0x1524,      /* VF */
    IGB_EIMC = 0x1528,      /* VF */
    IGB_EIAC = 0x152c,      /* VF */
    IGB_EITR = 0x1680,      /* VF; + 4 n: of vector n */
    IGB_IVAR = 0x1700,      /* VF; + 4 n: of queues n and n + 8 */
    IGB_IVAR_MISC = 0x1740, /* VF */
    IGB_QDE = 0x2408,
    IGB_DTXSWC = 0x3500,
    IGB_MTA = 0x5200,
    IGB_RA = 0x5400,  /* + 8 n */
    IGB_RA2 = 0x54e0, /* + 8 n: the same from 16 on */
    IGB_VFTA = 0x5600,
    IGB_MRQC = 0x5818,
    IGB_VT_CTL = 0x581c,
    IGB_VMOLR = 0x5ad0, /* + 4 n: of pool n */
    IGB_VLVF = 0x5d00,  /* + 4 n */
    IGB_UTA = 0xa000,
    IGB_RXQ = 0xc000, /* + 0x40 n: RDBAL of queue n */
    IGB_TXQ = 0xe000, /* + 0x40 n: TDBAL of queue n */
};

/* Offsets from the first register of a queue. IGB_DCTL is RXDCTL or TXDCTL. */
#define IGB_SRRCTL 0x0cu
#define IGB_DCTL   0x28u
/* address where the device writes the head to, if bit 0 is set; 64 bits */
#define IGB_TDWBAL 0x38u
/* RQDPC: frames for which there was no descriptor; reading clears it */
#define IGB_DROPPED 0x30u

/* in the upper half of a filter's address: the filter is valid */
#define IGB_RAH_AV 0x80000000u
/* likewise: from this bit on, one bit for each pool that gets its frames */
#define IGB_RAH_POOL  18
#define IGB_CTRL_RST  BIT(26)
#define IGB_STATUS_LU BIT(1)

/* drop; advanced, one buffer a frame */
#define IGB_SRRCTL_RING    (BIT(31) | BIT(25) | NIC_BUFFER / 1024)
#define IGB_DCTL_ON        BIT(25)
#define IGB_DCTL_WRITEBACK BIT(16) /* one descriptor at a time */

#define IGB_IVAR_VALID     0x80u
#define IGB_EITR_US        2 /* from this bit on EITR has the interval in microseconds (8.8.14) */
#define IGB_EITR_MAX       0x7ffcu

/* The value of EITR for at most so many interrupts a second; 0: without a limit. */
static inline u32 igb_interval(u32 a_second) {
    if (!a_second) return 0;
    return (u32)MIN(NS_PER_S / 1000 / a_second << IGB_EITR_US, (u64)IGB_EITR_MAX);
}

#endif
