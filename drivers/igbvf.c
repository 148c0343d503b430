/* The driver of a virtual function of Intel's 82576 network card, for the VM that was given the
 * function. The function has rings of its own, but its address and its filters come from the driver
 * of the physical function, which runs in another VM (drivers/igb_vfs.c). Both talk through a
 * *mailbox*: 16 words of memory on the card, and a register with bits that say which of them has
 * the mailbox and whether there is a message. igbvf.h has the contracts. */
#include "drivers/igbvf.h"

#include <takt/errno.h>
#include <takt/io.h>
#include "drivers/igb_mailbox.h"

#define RX    0x2800u /* registers of queue 0 */
#define TX    0x3800u
#define CLEAR (IGB_VF_PFSTS | IGB_VF_PFACK | IGB_VF_RSTD) /* bits that reading clears */

static u32 vf_get(const struct igbvf *n, u32 reg) { return mmio_read32(n->regs + reg); }

static void vf_set(struct igbvf *n, u32 reg, u32 v) { mmio_write32(n->regs + reg, v); }

/* Notes for the operator what is wrong, and returns `error`, so that a caller can do both in one
 * line. */
static int igbvf_broken(struct igbvf *n, int error, const char *why) {
    n->why = why;
    return error;
}

/* ---- the mailbox ---- */

/* Returns the bits of the mailbox. Reading the register clears some of them, so these are kept in
 * n->unused until a caller has used them. */
static u32 mailbox_state(struct igbvf *n) {
    u32 v = vf_get(n, IGB_VF_MAILBOX);

    n->unused |= v & CLEAR;
    return v | n->unused;
}

/* Waits until the bit is set (`on`) or clear, and uses it up. Returns false if it is not so by the
 * time `until`. */
static bool wait_for_bit(struct igbvf *n, u32 bit, bool on, u64 until) {
    while (!(mailbox_state(n) & bit) == on) {
        if (n->env->now() >= until) return false;
        n->env->relax();
    }
    n->unused &= ~bit;
    return true;
}

/* Takes the mailbox, which the physical function and this one use in turn. Returns false if the
 * physical function still holds it at the time `until`. */
static bool take_mailbox(struct igbvf *n, u64 until) {
    for (;;) {
        vf_set(n, IGB_VF_MAILBOX, IGB_VF_VFU);
        if (mailbox_state(n) & IGB_VF_VFU) return true;
        if (n->env->now() >= until) return false;
        n->env->relax();
    }
}

/* Reads the message that has come, all `nr` words of it, and acknowledges it. */
static bool fetch_message(struct igbvf *n, u32 *word, u32 nr, u64 until) {
    if (!take_mailbox(n, until)) return false;
    for (u32 i = 0; i < nr; i++) word[i] = vf_get(n, IGB_VF_MEMORY + 4 * i);
    vf_set(n, IGB_VF_MAILBOX, IGB_VF_ACK);
    return true;
}

/* Sends a request of `nr` words. The answer replaces it in `word`. Returns 0, or
 *   -EPERM      the physical function refuses
 *   -ETIMEDOUT  it does not answer
 *   -EIO        it answers nonsense */
static int pf_request(struct igbvf *n, u32 *word, u32 nr) {
    u64 until = n->env->now() + IGBVF_PATIENCE;
    u32 type = word[0] & IGB_MSG_TYPE;

    if (!take_mailbox(n, until))
        return igbvf_broken(n, -ETIMEDOUT, "the physical function keeps the mailbox");
    /* These bits belong to an earlier message, which is overwritten. */
    n->unused &= ~(u32)(IGB_VF_PFSTS | IGB_VF_PFACK);
    for (u32 i = 0; i < nr; i++) vf_set(n, IGB_VF_MEMORY + 4 * i, word[i]);
    vf_set(n, IGB_VF_MAILBOX, IGB_VF_REQ);
    if (!wait_for_bit(n, IGB_VF_PFACK, true, until))
        return igbvf_broken(n, -ETIMEDOUT, "the physical function's driver does not listen");
    do {
        if (!wait_for_bit(n, IGB_VF_PFSTS, true, until) || !fetch_message(n, word, nr, until))
            return igbvf_broken(n, -ETIMEDOUT, "the physical function's driver does not answer");
    } while ((word[0] & IGB_MSG_TYPE) == IGB_MSG_CONTROL && n->env->now() < until);
    if ((word[0] & IGB_MSG_TYPE) != type || !(word[0] & IGB_MSG_ACK) == !(word[0] & IGB_MSG_NACK))
        return igbvf_broken(n, -EIO, "the physical function's driver answers something else");
    if (!(word[0] & IGB_MSG_ACK)) return -EPERM;
    return 0;
}

/* ---- set-up ---- */

/* Stores the address that the answer gives us. Returns false if it is a group address or consists
 * of zeros; with such an address nobody could answer us. */
static bool mac_given(struct igbvf *n, const u32 *word) {
    for (u32 i = 0; i < 6; i++) n->mac[i] = (u8)(word[1 + i / 4] >> i % 4 * 8);
    return !(n->mac[0] & 1) && (word[1] || word[2] & 0xffff);
}

/* Resets the virtual function, waits for the physical function, and asks it for an address. Returns
 * 0 or an error as igbvf_init() does. */
static int greet(struct igbvf *n) {
    u64 until = n->env->now() + IGBVF_PATIENCE;
    u32 word[3] = { IGB_MSG_RESET };
    int error;

    if (vf_get(n, IGB_STATUS) == ~0u)
        return igbvf_broken(n, -ENODEV, "there is no virtual function");
    vf_set(n, IGB_EIMC, ~0u);
    vf_set(n, IGB_CTRL, (u32)IGB_CTRL_RST);
    if (!wait_for_bit(n, IGB_VF_RSTI, false, until))
        return igbvf_broken(n, -ETIMEDOUT, "the physical function has no driver");
    n->unused = 0;
    error = pf_request(n, word, ARRAY_SIZE(word));
    if (error == -EPERM)
        return igbvf_broken(n, -EIO, "the physical function's driver does not want it");
    if (!error && !mac_given(n, word)) return igbvf_broken(n, -EIO, "it was given no address");
    return error;
}

/* Tells the card where the rings of this virtual function are, and switches on its two queues, one
 * to receive and one to send. The card reports sent frames only once for a quarter of the ring,
 * because each report is a write to memory. */
static void queues(struct igbvf *n, void *memory) {
    static const struct nic_ring_kind kind = { .advanced = true, .report = NIC_RING / 4 };

    nic_ring_init(&n->ring, &kind, n->regs + RX, n->regs + TX, memory, n->env->dma_addr);
    vf_set(n, RX + IGB_SRRCTL, (u32)IGB_SRRCTL_RING);
    vf_set(n, RX + IGB_DCTL, (u32)(IGB_DCTL_ON | IGB_DCTL_WRITEBACK));
    vf_set(n, TX + IGB_DCTL, (u32)IGB_DCTL_ON);
}

/* Resets the virtual function and sets it up, with all interrupts disabled. Returns 0, or an error,
 * and n->why then says what is wrong. The receive queue has to be on before it gets buffers, and it
 * starts some time after it was switched on. So the function waits for it, until IGBVF_PATIENCE is
 * over. */
int igbvf_init(struct igbvf *n, volatile void *regs, void *memory, const struct device_env *env) {
    u64 until = env->now() + IGBVF_PATIENCE;
    int error;

    *n = (struct igbvf){ .regs = regs, .env = env, .counted = env->now() };
    error = greet(n);
    if (error) return error;
    queues(n, memory);
    while (!(vf_get(n, RX + IGB_DCTL) & IGB_DCTL_ON)) {
        if (env->now() >= until) return igbvf_broken(n, -ETIMEDOUT, "its queue does not start");
        env->relax();
    }
    nic_receive_refill(&n->ring); /* the queue has to be on first: 4.5.9 */
    return 0;
}

void igbvf_stop(struct igbvf *n) {
    vf_set(n, IGB_EIMC, ~0u);
    vf_set(n, IGB_CTRL, (u32)IGB_CTRL_RST);
    vf_get(n, IGB_STATUS); /* a read returns only after the writes before it have arrived */
}

/* Sends the interrupts of both rings to vector 0, because the driver has only one handler. */
void igbvf_interrupts(struct igbvf *n, u32 a_second) {
    vf_set(n, IGB_EITR, igb_interval(a_second));
    vf_set(n, IGB_IVAR, IGB_IVAR_VALID | IGB_IVAR_VALID << 8); /* of queue 0, both ways */
    vf_set(n, IGB_EIAC, 1);                                    /* the message clears its cause */
    vf_set(n, IGB_EIMS, 1);
}

/* Counts whether an interrupt was for received frames, and whether it was for sent ones. Both
 * directions share one vector, so the interrupt does not say what it is for. The rings are looked
 * at instead: whether a frame has come, and whether nic_send_buffer() finds frames that were sent.
 * `cleaned` is the number of rings in which interrupts have found work; igbvf_busy() makes a rate
 * of it. */
void igbvf_interrupted(struct igbvf *n) {
    u64 sent = n->ring.sent;
    const void *frame;

    if (nic_receive(&n->ring, &frame)) n->cleaned++;
    nic_send_buffer(&n->ring);
    if (n->ring.sent != sent) n->cleaned++;
}

/* Compares without a division: cleaned / seconds > a_second becomes cleaned * ns a second > ns *
 * a_second. */
bool igbvf_busy(struct igbvf *n, u32 a_second) {
    u64 now = n->env->now();
    bool busy = n->cleaned * NS_PER_S > (now - n->counted) * a_second;

    n->cleaned = 0;
    n->counted = now;
    return busy;
}

/* ---- frames ---- */

/* Leaves out a frame whose source address is ours: it is an echo of a frame that this function has
 * sent. A network stack that received its own frames might believe that another machine has its
 * address. */
u32 igbvf_receive(struct igbvf *n, const void **frame) {
    u32 len;

    while ((len = nic_receive(&n->ring, frame))) {
        if (len < 12 || __builtin_memcmp((const u8 *)*frame + 6, n->mac, 6)) break;
        n->echoes++;
        nic_receive_next(&n->ring);
    }
    return len;
}

/* ---- the physical function ---- */

/* Takes a message of the physical function, if there is one. Returns false if the physical function
 * was reset, and this function with it. A reset of the physical function shows in the mailbox. If
 * that bit was missed, it shows in the queue, which is off after a reset. */
bool igbvf_check(struct igbvf *n) {
    u32 word[1], v = mailbox_state(n);

    if (v & (IGB_VF_RSTI | IGB_VF_RSTD) || !(vf_get(n, RX + IGB_DCTL) & IGB_DCTL_ON)) return false;
    if (v & IGB_VF_PFSTS) {
        n->unused &= ~IGB_VF_PFSTS;
        /* The message only says that the link has changed; its state is in a register of our own.
         */
        fetch_message(n, word, 1, 0);
    }
    return true;
}

bool igbvf_link(struct igbvf *n) { return vf_get(n, IGB_STATUS) & IGB_STATUS_LU; }

/* Frames of a VLAN that was not asked for are dropped by the card. */
int igbvf_vlan(struct igbvf *n, u32 vlan, bool on) {
    u32 word[2] = { IGB_MSG_VLAN | (u32)on << IGB_MSG_INFO, vlan };

    return pf_request(n, word, ARRAY_SIZE(word));
}

/* Asks the physical function to send all multicasts to this function, or none. Returns 0 or an
 * error. The physical function has one switch for all multicasts, so no addresses are sent. */
int igbvf_multicasts(struct igbvf *n, bool on) {
    u32 word[2] = { IGB_MSG_MULTICAST | (u32)on << IGB_MSG_INFO, 0 };

    return pf_request(n, word, ARRAY_SIZE(word));
}
