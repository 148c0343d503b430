/* The driver of the physical function of Intel's 82576 network card. The card's queues are divided
 * into pools: one for each virtual function, which may be given to a VM, and the last one for the
 * physical function itself, which the driver domain has. A *filter* is an address, and the pools
 * that get frames for it. igb.h has the contracts, and says which manual the numbers of sections
 * belong to. */
#include "drivers/igb.h"

#include <takt/errno.h>

#define CTRL_SLU       BIT(6)
#define CTRL_FORCED    (BIT(11) | BIT(12)) /* speed, duplex */
#define CTRL_EXT_PFRSD BIT(14)             /* virtual functions may go on */
#define CTRL_EXT_LOAD  BIT(28)             /* tells the card that a driver has it */
#define RCTL_EN        BIT(1)
#define RCTL_ALL       (BIT(3) | BIT(4)) /* promiscuous: unicasts, multicasts; pools decide */
#define RCTL_BAM       BIT(15)
#define RCTL_SECRC     BIT(26)
#define TCTL_EN        BIT(1)
#define TCTL_SHAPE     (BIT(3) | 0xf << 4 | 0x40 << 12) /* pad; collisions as 8.12.1 advises */
#define GPIE_MODE      (BIT(0) | BIT(4))                /* reading ICR clears it; MSI-X */
#define MRQC_VMDQ      3u                               /* pools by address and VLAN, no RSS */
#define VT_CTL_DEFAULT 7                                /* the default pool from this bit on */
#define VT_CTL_REPL    BIT(30) /* broadcasts and multicasts go to every pool that wants them */

/* VMOLR: no check sequence; multicasts that no filter names, broadcasts, those by hash, without a
 * VLAN */
#define VMOLR_OWN (BIT(31) | BIT(28) | BIT(27) | BIT(25) | BIT(24))

/* The control register of the PHY (IEEE 802.3, 22.2.4.1): negotiate the speed, and begin that
 * again. */
#define MDIC_WRITE    (BIT(26) | 1u << 21)
#define MDIC_READY    BIT(28)
#define PHY_NEGOTIATE 0x1340u

/* How often a register is read before the device is given up. A device answers within some ms after
 * a reset, and a read takes about a microsecond. */
#define PATIENCE 20000u

/* Returns where a register of our own receive queue is: the queue with the number of our pool. */
static u32 rxq(u32 reg) { return IGB_RXQ + IGB_QUEUE * IGB_OWN + reg; }

/* Returns where a register of our own send queue is. */
static u32 txq(u32 reg) { return IGB_TXQ + IGB_QUEUE * IGB_OWN + reg; }

/* ---- set-up ---- */

/* Resets the card, and then asks for the link. All interrupts are disabled before the reset and
 * once more after it, because a reset gives the registers their first values again. Returns false
 * if the reset does not end or if there is no card. */
static bool igb_reset(struct igb *n) {
    igb_write(n, IGB_IMC, ~0u);
    igb_write(n, IGB_EIMC, ~0u);
    igb_write(n, IGB_RCTL, 0);
    igb_write(n, IGB_TCTL, 0);
    igb_write(n, IGB_CTRL, igb_read(n, IGB_CTRL) | (u32)IGB_CTRL_RST);
    for (u32 i = 0; i < PATIENCE; i++) igb_read(n, IGB_STATUS);
    if (igb_read(n, IGB_CTRL) & IGB_CTRL_RST)
        /* This is also the end if there is no device, because all ones are read then. */
        return false;
    igb_write(n, IGB_IMC, ~0u);
    igb_write(n, IGB_EIMC, ~0u);
    igb_read(n, IGB_ICR);
    igb_write(n, IGB_CTRL, (igb_read(n, IGB_CTRL) | (u32)CTRL_SLU) & ~(u32)CTRL_FORCED);
    return true;
}

/* Reads the card's own address. After a reset it is the first one of its filters. The filter is
 * changed to lead to our pool. */
static bool igb_read_mac(struct igb *n) {
    u32 low = igb_read(n, IGB_RA), high = igb_read(n, IGB_RA + 4);

    nic_mac_of(low, high, n->mac);
    igb_write(n, IGB_RA + 4, (high & 0xffff) | IGB_RAH_AV | 1u << (IGB_RAH_POOL + IGB_OWN));
    return high & IGB_RAH_AV && !(low & 1) && (low || high & 0xffff);
}

/* Tells the PHY (the part of the card that drives the cable) to negotiate speed and duplex with the
 * other end. The link is up only some time later, so this does not wait for it. */
static void negotiate(struct igb *n) {
    igb_write(n, IGB_MDIC, (u32)MDIC_WRITE | PHY_NEGOTIATE);
    for (u32 i = 0; i < PATIENCE && !(igb_read(n, IGB_MDIC) & MDIC_READY);) i++;
}

/* Sets the filters. Frames whose address is in no filter come to our pool. Multicasts are filtered
 * by a hash table, in which all bits are set, so a pool that wants any multicast gets all of them.
 * The hash table for unicasts stays empty: on QEMU it would show unicasts to every pool that has
 * asked for multicasts. */
static void set_filters(struct igb *n) {
    for (u32 i = 0; i < IGB_HASH_WORDS; i++) {
        igb_write(n, IGB_MTA + 4 * i, ~0u);
        igb_write(n, IGB_UTA + 4 * i, 0);
    }
    for (u32 i = 0; i < IGB_OWN; i++) igb_write(n, IGB_VMOLR + 4 * i, 0);
    igb_write(n, IGB_VMOLR + 4 * IGB_OWN, (u32)VMOLR_OWN);
    igb_write(n, IGB_MRQC, MRQC_VMDQ);
    igb_write(n, IGB_VT_CTL, (u32)(VT_CTL_REPL | IGB_OWN << VT_CTL_DEFAULT));
    igb_write(n, IGB_VFRE, 1u << IGB_OWN);
    igb_write(n, IGB_VFTE, 1u << IGB_OWN);
    /* A queue without buffers drops frames. Otherwise it would hold up the other queues. */
    igb_write(n, IGB_QDE, 0xffff);
}

/* Resets the device and sets it up, with its receiver off and all interrupts disabled. Returns 0,
 * or -ENODEV if it does not answer. The rings are set up while the receiver is off, and their
 * buffers are given to the card last. So the card never sees a ring that is half made. */
int igb_init(struct igb *n, volatile void *regs, void *memory, u64 (*dma_addr)(const void *)) {
    static const struct nic_ring_kind kind = { .advanced = true, .report = NIC_RING / 4 };

    *n = (struct igb){ .regs = regs };
    if (!igb_reset(n) || !igb_read_mac(n)) return -ENODEV;
    set_filters(n);
    nic_ring_init(&n->ring, &kind, n->regs + rxq(0), n->regs + txq(0), memory, dma_addr);
    igb_write(n, rxq(IGB_SRRCTL), (u32)IGB_SRRCTL_RING);
    igb_write(n, rxq(IGB_DCTL), (u32)(IGB_DCTL_ON | IGB_DCTL_WRITEBACK));
    igb_write(n, txq(IGB_DCTL), (u32)IGB_DCTL_ON);
    for (u32 i = 0; i < PATIENCE && !(igb_read(n, rxq(IGB_DCTL)) & IGB_DCTL_ON);) i++;
    nic_receive_refill(&n->ring); /* the queue has to be on first: 4.5.9 */
    igb_write(n, IGB_TCTL, (u32)(TCTL_EN | TCTL_SHAPE));
    igb_write(n, IGB_CTRL_EXT, igb_read(n, IGB_CTRL_EXT) | (u32)(CTRL_EXT_LOAD | CTRL_EXT_PFRSD));
    negotiate(n);
    return 0;
}

void igb_start(struct igb *n) {
    igb_write(n, IGB_RCTL, (u32)(RCTL_EN | RCTL_ALL | RCTL_BAM | RCTL_SECRC));
}

void igb_stop(struct igb *n) {
    igb_write(n, IGB_IMC, ~0u); /* a bit in IMC or EIMC disables a cause of interrupts */
    igb_write(n, IGB_EIMC, ~0u);
    igb_write(n, IGB_RCTL, 0);
    igb_write(n, IGB_TCTL, 0);
    igb_read(n, IGB_STATUS); /* a read returns only after the writes before it have arrived */
}

/* ---- interrupts ---- */

/* Sends all interrupts to vector 0 of the MSI-X table, because the driver has only one handler.
 * Frames that were sent raise none: nic_send_buffer() frees them when a buffer is needed. */
void igb_interrupts(struct igb *n, u32 a_second) {
    igb_write(n, IGB_GPIE, (u32)GPIE_MODE);
    igb_write(n, IGB_EITR, igb_interval(a_second));
    igb_write(n, IGB_IVAR + 4 * IGB_OWN, IGB_IVAR_VALID); /* what was sent does not interrupt */
    igb_write(n, IGB_IVAR_MISC, IGB_IVAR_VALID << 8);
    igb_write(n, IGB_EIAC, 1); /* the message clears its cause */
    igb_write(n, IGB_IMS, IGB_IRQ_LINK | IGB_IRQ_VF);
    igb_write(n, IGB_EIMS, 1);
}

u32 igb_causes(struct igb *n) { return igb_read(n, IGB_ICR) & (IGB_IRQ_LINK | IGB_IRQ_VF); }

bool igb_link(struct igb *n) { return igb_read(n, IGB_STATUS) & IGB_STATUS_LU; }

void igb_count(struct igb *n) { n->missed += igb_read(n, rxq(IGB_DROPPED)); }
