/* Connects the network stack of a guest to a virtual function of an Intel 82576 network card
 * (drivers/igbvf.h), which the VM was given. Frames are copied in both directions, because the card
 * reaches only the memory of its own rings. The functions in `net_igbvf`, at the end, are what the
 * stack calls. The card's physical function belongs to another VM and may be reset at any time,
 * which resets this function too; a thread (vf_watch()) notices that and begins again. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/nic.h>
#include <takt/errno.h>
#include "drivers/igbvf.h"

/* Bytes of the shortest frame on a wire, without its check sequence (IEEE 802.3). */
#define SHORTEST 60
#define RETRY    (100 * NS_PER_MS)
#define LOOK     NS_PER_S /* how often we look whether the physical function is alive */

static struct takt_pci pci;
static struct igbvf nic;
static void *memory;
/* Only the bottom half uses these. */
static bool up;
static bool tx_full; /* a frame could not be sent, because the ring was full */

static u64 vf_dma_addr(const void *p) { return (u64)p + pci.dma_offset; }

static void vf_nap(void) { sleep_ns(50 * NS_PER_US); }

/* Returns whether the VM was given a virtual function of the kind that the driver knows. */
static bool vf_present(void) {
    for (u32 i = 0; pci_get(i, &pci) == 0; i++)
        if (pci.id == (IGB_VENDOR | IGB_VF_DEVICE << 16) && pci.bar[0].size >= IGBVF_BYTES)
            return true;
    return false;
}

/* ---- the bottom half ---- */

_Static_assert(NIC_FRAME <= NET_BUF_ROOM,
               "a buffer of the stack holds any frame that the ring lets pass");

/* Hands a frame to the stack. It is copied, because the buffers of the device are larger than those
 * of the stack. */
static void vf_take(const void *frame, u32 len) {
    struct net_buf *nb = net_buf_get();

    if (!nb) return;
    memcpy(nb->data, frame, len);
    net_rx(nb, 0, len);
}

/* Hands the frames that the card has received to the stack; the bottom half calls it. If TCP had
 * found the send ring full and there is room now, lets it send again. */
static void vf_poll(void *arg) {
    const void *frame;
    u32 n = 0, len;

    if (!up) return;
    if (tx_full && nic_send_buffer(&nic.ring)) {
        tx_full = false;
        tcp_send_again();
    }
    /* This takes no more than one ring of frames, because the ring is refilled only in vf_done().
     * So timers and threads get their turn. */
    for (; (len = igbvf_receive(&nic, &frame)); n++) {
        vf_take(frame, len);
        nic_receive_next(&nic.ring);
    }
    net_nic_stats.bad += nic.ring.bad;
    nic.ring.bad = 0;
    net_nic_stats.polls++;
    net_nic_stats.frames += n;
    net_nic_stats.batch_most = MAX(net_nic_stats.batch_most, n);
}

/* Copies the pieces of a frame into the next buffer of the send ring. Short frames are filled up
 * with zeros, so that nothing of an earlier frame gets out. Returns false if the ring is full; TCP
 * then tries again later. */
static bool vf_tx(void *arg, const struct net_frame *f) {
    const struct net_frag *piece = f->piece;
    u8 *p = NULL;
    u32 len = 0;

    if (up) p = nic_send_buffer(&nic.ring);
    if (!p) {
        tx_full = up;
        return false;
    }
    for (unsigned i = 0; i < f->n; i++) {
        if (piece[i].len > NIC_FRAME - len) return false;
        memcpy(p + len, piece[i].data, piece[i].len);
        len += piece[i].len;
    }
    if (len < SHORTEST) memset(p + len, 0, SHORTEST - len);
    nic_send_put(&nic.ring, MAX(len, (u32)SHORTEST));
    return true;
}

/* Tells the card which buffers are free again and what has to be sent. It is called once at the end
 * of a run of the bottom half, because each write to a register of the card costs time. */
static bool vf_done(void *arg) {
    if (!up) return false;
    nic_receive_refill(&nic.ring);
    nic_send_kick(&nic.ring);
    return false;
}

/* Counts what the interrupt was for, by which the scheduler is told whether the VM is
 * I/O-intensive, and runs the bottom half. */
static void on_vf_interrupt(u32 port, void *arg) {
    if (up) igbvf_interrupted(&nic);
    net_guest_run();
}

/* ---- the device, whose physical function may be reset ---- */

/* Opens the device, and tries again until the physical function has a driver that answers. Prints
 * each new reason once. */
static void vf_wait_and_init(void) {
    static const struct device_env env = { vf_dma_addr, time_ns, vf_nap };
    const char *told = NULL;

    while (igbvf_init(&nic, (volatile void *)pci.bar[0].addr, memory, &env)) {
        if (told != nic.why) printf("net: %s\n", nic.why);
        told = nic.why;
        sleep_ns(RETRY);
    }
}

/* Opens the device for the first time. */
static int vf_open(u32 ring, struct net_nic_info *info) {
    memory = guest_env.pages(NIC_RING_MEMORY / PAGE_SIZE);
    if (!memory) return -ENOMEM;
    vf_wait_and_init();
    up = true;
    memcpy(info->mac, nic.mac, sizeof(info->mac));
    return 0;
}

/* Lets the device interrupt, when everything is ready. */
static void vf_go(void) {
    u64 flags = irq_save();

    event_set_handler(pci.port, NET_VCPU, on_vf_interrupt, NULL);
    igbvf_interrupts(&nic, (u32)cmdline_u64("itr", 8000));
    net_join();
    net_guest_run(); /* frames that arrived before there was a handler */
    irq_restore(flags);
}

/* Looks whether the physical function still works, by its mailbox. Returns whether the device can
 * be used. It also measures how much I/O this VM does: when the VM becomes I/O-intensive, or is no
 * longer so, the scheduler is told. */
static bool vf_look(void) {
    static bool told;
    u64 flags = irq_save();
    bool busy = igbvf_busy(&nic, (u32)cmdline_u64("io_busy", TAKT_IO_BUSY));

    up = igbvf_check(&nic);
    irq_restore(flags);
    if (busy != told) {
        hypercall1(TAKT_HC_IO_CLASS, busy);
        if (busy)
            printf("net: the VM is now I/O-intensive\n");
        else
            printf("net: the VM is no longer I/O-intensive\n");
    }
    told = busy;
    return up;
}

/* Looks once a second, as a thread, whether the link and the physical function are alive. After a
 * reset the device must have the same address, because the stack and its peers know the VM by
 * it. */
static void vf_watch(void *arg) {
    bool link = true;
    u8 mac[6];

    for (;; sleep_ns(LOOK)) {
        if (vf_look() && igbvf_link(&nic) != link) {
            link = !link;
            printf("net: link is %s\n", link ? "up" : "down");
        }
        if (up) continue;
        printf("net: the physical function was reset\n");
        memcpy(mac, nic.mac, sizeof(mac));
        vf_wait_and_init();
        if (memcmp(mac, nic.mac, sizeof(mac))) guest_panic("net: the device has another address");
        up = true;
        vf_go();
        printf("net: the device is back\n");
    }
}

const struct net_nic net_igbvf = {
    .name = "igbvf",
    .present = vf_present,
    .open = vf_open,
    .go = vf_go,
    .watch = vf_watch,
    .guest = { .vcpu = NET_VCPU, .poll = vf_poll, .tx = vf_tx, .done = vf_done },
};
