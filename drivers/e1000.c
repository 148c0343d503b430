/* The driver of Intel's 8254x network cards, as QEMU and Bochs emulate one. It sets the card up and
 * handles its interrupts; frames go through two rings (drivers/nic_ring.h). e1000.h has the
 * contracts, and says which manual the numbers of sections belong to. */
#include "drivers/e1000.h"

#include <takt/errno.h>
#include <takt/io.h>

/* Offsets of registers: 317453 13.2. */
enum {
    CTRL = 0x0000,
    STATUS = 0x0008,
    EERD = 0x0014,
    FCAL = 0x0028,
    FCAH = 0x002c,
    FCT = 0x0030,
    ICR = 0x00c0,
    ITR = 0x00c4,
    IMS = 0x00d0,
    IMC = 0x00d8,
    RCTL = 0x0100,
    FCTTV = 0x0170,
    TCTL = 0x0400,
    TIPG = 0x0410,
    RDBAL = 0x2800,
    RDTR = 0x2820,
    TDBAL = 0x3800,
    MTA = 0x5200,
    RAL = 0x5400,
    RAH = 0x5404,
};

#define MTA_WORDS 128u /* the table of multicasts */
#define CTRL_SLU  BIT(6)
#define CTRL_RST  BIT(26)
#define CTRL_OFF                                                                                   \
    (BIT(3) | BIT(7) | BIT(30) |                                                                   \
     BIT(31)) /* link reset, loss of signal inverted, VLANs, PHY reset */
#define STATUS_LU   BIT(1)
#define EERD_START  BIT(0)
#define EERD_DONE   BIT(4)
#define RAH_AV      BIT(31)
#define RCTL_EN     BIT(1)
#define RCTL_ALL    (BIT(3) | BIT(4)) /* promiscuous: unicasts, multicasts */
#define RCTL_BAM    BIT(15)
#define RCTL_SECRC  BIT(26)
#define TCTL_EN     BIT(1)
#define TCTL_SHAPE  (BIT(3) | 0x10 << 4 | 0x40 << 12) /* pad; collisions as 13.4.33 advises */
#define TIPG_COPPER 0x0060200au                       /* 13.4.34 */

#define IRQ_OVERRUN BIT(6)

/* How often a register is read before the device is given up. A device answers within some ms after
 * a reset, and a read takes about a microsecond. */
#define PATIENCE 20000u

static u32 e1000_get(const struct e1000 *n, u32 reg) { return mmio_read32(n->regs + reg); }

static void e1000_set(struct e1000 *n, u32 reg, u32 v) { mmio_write32(n->regs + reg, v); }

/* ---- set-up ---- */

/* Reads a 16-bit word of the card's EEPROM. Returns 0 if the card does not answer; e1000_read_mac()
 * refuses an address that consists of zeros. */
static u32 e1000_eeprom(struct e1000 *n, u32 word) {
    e1000_set(n, EERD, word << 8 | (u32)EERD_START);
    for (u32 i = 0; i < PATIENCE; i++) {
        u32 v = e1000_get(n, EERD);

        if (v & EERD_DONE) return v >> 16;
    }
    return 0;
}

/* Reads the card's own address. After a reset it is in a register; on Bochs it is only in the
 * EEPROM. */
static bool e1000_read_mac(struct e1000 *n) {
    u32 low = e1000_get(n, RAL), high = e1000_get(n, RAH);

    if (!(high & RAH_AV)) {
        low = e1000_eeprom(n, 0) | e1000_eeprom(n, 1) << 16;
        high = e1000_eeprom(n, 2);
    }
    nic_mac_of(low, high, n->mac);
    e1000_set(n, RAL, low);
    e1000_set(n, RAH, (high & 0xffff) | (u32)RAH_AV);
    return !(low & 1) && (low || high & 0xffff);
}

/* Resets the card, and then asks for the link. All interrupts are disabled before the reset and
 * once more after it, because a reset gives the registers their first values again. Returns false
 * if the reset does not end or if there is no card. */
static bool e1000_reset(struct e1000 *n) {
    e1000_set(n, IMC, ~0u);
    e1000_set(n, RCTL, 0);
    e1000_set(n, TCTL, 0);
    e1000_set(n, CTRL, e1000_get(n, CTRL) | (u32)CTRL_RST);
    /* Wait for the reset: each read takes about a microsecond. */
    for (u32 i = 0; i < PATIENCE; i++) e1000_get(n, STATUS);
    /* This is also the end if there is no device, because all ones are read then. */
    if (e1000_get(n, CTRL) & CTRL_RST) return false;
    e1000_set(n, IMC, ~0u);
    e1000_get(n, ICR);
    e1000_set(n, CTRL, (e1000_get(n, CTRL) | (u32)CTRL_SLU) & ~(u32)CTRL_OFF);
    return true;
}

/* Resets the device and sets it up, with its receiver off and all interrupts disabled. Returns 0,
 * or -ENODEV if it does not answer. Every register that matters is written, because a reset leaves
 * some of them as the firmware or the last VM has set them. The receiver stays off until
 * e1000_start(), so that no frame comes before the caller is ready. */
int e1000_init(struct e1000 *n, volatile void *regs, void *memory, u64 (*dma_addr)(const void *)) {
    static const struct nic_ring_kind legacy = { .advanced = false, .report = 1 };

    *n = (struct e1000){ .regs = regs };
    if (!e1000_reset(n) || !e1000_read_mac(n)) return -ENODEV;
    for (u32 i = 0; i < MTA_WORDS; i++) e1000_set(n, MTA + 4 * i, 0);
    /* This and the next three switch off pauses that the other end may ask for. */
    e1000_set(n, FCAL, 0);
    e1000_set(n, FCAH, 0);
    e1000_set(n, FCT, 0);
    e1000_set(n, FCTTV, 0);
    e1000_set(n, RDTR, 0);
    nic_ring_init(&n->ring, &legacy, n->regs + RDBAL, n->regs + TDBAL, memory, dma_addr);
    nic_receive_refill(&n->ring);
    e1000_set(n, TIPG, TIPG_COPPER);
    e1000_set(n, TCTL, (u32)(TCTL_EN | TCTL_SHAPE));
    return 0;
}

void e1000_start(struct e1000 *n, bool all) {
    u64 control = RCTL_EN | RCTL_BAM | RCTL_SECRC;

    if (all) control |= RCTL_ALL;
    e1000_set(n, RCTL, (u32)control);
}

void e1000_stop(struct e1000 *n) {
    e1000_set(n, IMC, ~0u);
    e1000_set(n, RCTL, 0);
    e1000_set(n, TCTL, 0);
    e1000_get(n, STATUS); /* a read returns only after the writes before it have arrived */
}

/* ---- interrupts ---- */

/* Enables interrupts for `causes` (E1000_IRQ_*), at most `a_second` of them; 0 means no limit. The
 * limit is an interval between two interrupts. All other causes are masked. */
void e1000_interrupts(struct e1000 *n, u32 causes, u32 a_second) {
    u64 interval = 0; /* in units of 256 ns: 13.4.18 */

    if (a_second) interval = MIN(NS_PER_S / 256 / a_second, 0xffffull);
    e1000_set(n, ITR, (u32)interval);
    e1000_set(n, IMC, ~causes);
    e1000_set(n, IMS, causes);
}

u32 e1000_causes(struct e1000 *n) {
    u32 causes = e1000_get(n, ICR);

    if (causes & IRQ_OVERRUN) n->overruns++;
    return causes;
}

bool e1000_link(struct e1000 *n) { return e1000_get(n, STATUS) & STATUS_LU; }
