#include "drivers/e1000.h"

#include <takt/errno.h>
#include <takt/io.h>

/* 13.2 */
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

#define CTRL_SLU BIT(6)
#define CTRL_RST BIT(26)
#define CTRL_OFF                                                                                             \
    (BIT(3) | BIT(7) | BIT(30) | BIT(31)) /* link reset, loss of signal inverted, VLANs, PHY reset */
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

/* It answers within some ms after reset; a read of a register takes a microsecond or so. */
#define PATIENCE 20000u

static u32 get(const struct e1000 *n, u32 reg) { return mmio_read32(n->regs + reg); }

static void set(struct e1000 *n, u32 reg, u32 v) { mmio_write32(n->regs + reg, v); }

/* ---- set-up ---- */

static u32 eeprom(struct e1000 *n, u32 word) {
    set(n, EERD, word << 8 | (u32)EERD_START);
    for (u32 i = 0; i < PATIENCE; i++) {
        u32 v = get(n, EERD);

        if (v & EERD_DONE) return v >> 16;
    }
    return 0;
}

/* Its registers have the address after reset; Bochs' only its EEPROM. */
static bool read_mac(struct e1000 *n) {
    u32 low = get(n, RAL), high = get(n, RAH);

    if (!(high & RAH_AV)) {
        low = eeprom(n, 0) | eeprom(n, 1) << 16;
        high = eeprom(n, 2);
    }
    for (u32 i = 0; i < 6; i++) n->mac[i] = (u8)(i < 4 ? low >> 8 * i : high >> 8 * (i - 4));
    set(n, RAL, low);
    set(n, RAH, (high & 0xffff) | (u32)RAH_AV);
    return !(low & 1) && (low || high & 0xffff);
}

static bool reset(struct e1000 *n) {
    set(n, IMC, ~0u);
    set(n, RCTL, 0);
    set(n, TCTL, 0);
    set(n, CTRL, get(n, CTRL) | (u32)CTRL_RST);
    for (u32 i = 0; i < PATIENCE; i++) get(n, STATUS);
    if (get(n, CTRL) & CTRL_RST) return false; /* also when nobody is there, and all ones are read */
    set(n, IMC, ~0u);
    get(n, ICR);
    set(n, CTRL, (get(n, CTRL) | (u32)CTRL_SLU) & ~(u32)CTRL_OFF);
    return true;
}

int e1000_init(struct e1000 *n, volatile void *regs, void *memory, u64 (*dma_addr)(const void *)) {
    static const struct nic_ring_kind legacy = { .advanced = false, .report = 1 };

    *n = (struct e1000){ .regs = regs };
    if (!reset(n) || !read_mac(n)) return -ENODEV;
    for (u32 i = 0; i < 128; i++) set(n, MTA + 4 * i, 0);
    set(n, FCAL, 0); /* no pauses on request of the other end */
    set(n, FCAH, 0);
    set(n, FCT, 0);
    set(n, FCTTV, 0);
    set(n, RDTR, 0);
    nic_ring_init(&n->ring, &legacy, n->regs + RDBAL, n->regs + TDBAL, memory, dma_addr);
    nic_receive_refill(&n->ring);
    set(n, TIPG, TIPG_COPPER);
    set(n, TCTL, (u32)(TCTL_EN | TCTL_SHAPE));
    return 0;
}

void e1000_start(struct e1000 *n, bool all) {
    set(n, RCTL, (u32)(RCTL_EN | RCTL_BAM | RCTL_SECRC | (all ? RCTL_ALL : 0)));
}

void e1000_stop(struct e1000 *n) {
    set(n, IMC, ~0u);
    set(n, RCTL, 0);
    set(n, TCTL, 0);
    get(n, STATUS); /* what was written has arrived */
}

/* ---- interrupts ---- */

void e1000_interrupts(struct e1000 *n, u32 causes, u32 a_second) {
    set(n, ITR, a_second ? (u32)MIN(NS_PER_S / 256 / a_second, 0xffffull) : 0); /* in 256 ns, 13.4.18 */
    set(n, IMC, ~causes);
    set(n, IMS, causes);
}

u32 e1000_causes(struct e1000 *n) {
    u32 causes = get(n, ICR);

    n->overruns += (causes & IRQ_OVERRUN) != 0;
    return causes;
}

bool e1000_link(struct e1000 *n) { return get(n, STATUS) & STATUS_LU; }
