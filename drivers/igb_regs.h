/* Registers of Intel's 82576 network card that more than one file knows. Numbers of sections are
 * those of the "Intel 82576 Gigabit Ethernet Controller" data sheet (2.63); chapter 8 has all
 * registers, 8.26 those of a virtual function. The card has one *physical function*, which controls
 * it, and *virtual functions*, which can be given to VMs. A register that a virtual function has as
 * well, at the same offset, is marked (VF). A *pool* is the set of queues that belongs to one
 * function. */
#ifndef DRIVERS_IGB_REGS_H
#define DRIVERS_IGB_REGS_H

#include <takt/types.h>

#define IGB_VENDOR    0x8086
#define IGB_DEVICE    0x10c9
#define IGB_VF_DEVICE 0x10ca

enum igb_reg {
    IGB_CTRL = 0x0000,      /* device control, such as reset (VF) */
    IGB_STATUS = 0x0008,    /* device status, such as the link (VF) */
    IGB_CTRL_EXT = 0x0018,  /* further control */
    IGB_MDIC = 0x0020,      /* reads and writes registers of the PHY, which drives the cable */
    IGB_ICR = 0x00c0,       /* causes of interrupts */
    IGB_IMS = 0x00d0,       /* writing 1 enables a cause */
    IGB_IMC = 0x00d8,       /* writing 1 disables a cause */
    IGB_RCTL = 0x0100,      /* control of the receiver */
    IGB_TCTL = 0x0400,      /* control of the transmitter */
    IGB_VFRE = 0x0c8c,      /* bit n: pool n may receive */
    IGB_VFTE = 0x0c90,      /* bit n: pool n may send */
    IGB_GPIE = 0x1514,      /* how interrupts are raised, such as by MSI-X */
    IGB_EIMS = 0x1524,      /* writing 1 enables a vector (VF) */
    IGB_EIMC = 0x1528,      /* writing 1 disables a vector (VF) */
    IGB_EIAC = 0x152c,      /* vectors whose cause clears itself when they are raised (VF) */
    IGB_EITR = 0x1680,      /* + 4 n: the least time between interrupts of vector n (VF) */
    IGB_IVAR = 0x1700,      /* + 4 n: the vectors of queues n and n + 8 (VF) */
    IGB_IVAR_MISC = 0x1740, /* the vector of all other causes (VF) */
    IGB_QDE = 0x2408,       /* bit n: queue n drops frames for which it has no buffer */
    IGB_DTXSWC = 0x3500,    /* what pools may send, and to each other */
    IGB_MTA = 0x5200,       /* the hash table for multicasts, IGB_HASH_WORDS words */
    IGB_RA = 0x5400,        /* + 8 n: filter n for an address */
    IGB_RA2 = 0x54e0,       /* + 8 n: the same for the filters from 16 on */
    IGB_VFTA = 0x5600,      /* bit n: VLAN n is received at all */
    IGB_MRQC = 0x5818,      /* how a received frame finds its queue */
    IGB_VT_CTL = 0x581c,    /* control of pools, such as the default one */
    IGB_VMOLR = 0x5ad0,     /* + 4 n: what pool n receives beside its own addresses */
    IGB_VLVF = 0x5d00,      /* + 4 n: a VLAN and the pools that get its frames */
    IGB_UTA = 0xa000,       /* the hash table for unicasts, IGB_HASH_WORDS words */
    IGB_RXQ = 0xc000,       /* + IGB_QUEUE n: the first register of receive queue n (RDBAL) */
    IGB_TXQ = 0xe000,       /* + IGB_QUEUE n: the first register of send queue n (TDBAL) */
};

#define IGB_HASH_WORDS 128u
#define IGB_QUEUE      0x40u

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

/* SRRCTL: drop frames without a buffer; advanced descriptors with one buffer; the buffer's size in
 * KiB */
#define IGB_SRRCTL_RING    (BIT(31) | BIT(25) | NIC_BUFFER / 1024)
#define IGB_DCTL_ON        BIT(25)
#define IGB_DCTL_WRITEBACK BIT(16) /* RXDCTL: write back one descriptor at a time */

#define IGB_IVAR_VALID     0x80u
#define IGB_EITR_US        2 /* from this bit on EITR has the interval in microseconds (8.8.14) */
#define IGB_EITR_MAX       0x7ffcu

/* Returns the value of EITR for at most `a_second` interrupts a second; 0 means without a limit. */
static inline u32 igb_interval(u32 a_second) {
    if (!a_second) return 0;
    return (u32)MIN(NS_PER_S / 1000 / a_second << IGB_EITR_US, (u64)IGB_EITR_MAX);
}

#endif
