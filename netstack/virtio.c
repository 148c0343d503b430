/* Connects the network stack of a guest to a virtio network device (drivers/virtio_net.h), which
 * the driver domain serves. Received frames lie in buffers of the stack and are passed on in them
 * without a copy; frames to be sent are copied once into buffers of this file. The functions in
 * `net_virtio`, at the end, are what the stack calls. The device goes away if the driver domain
 * ends; a thread (virtio_nic_watch()) then waits for the next one. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/nic.h>
#include "drivers/bridge.h"
#include "drivers/virtio_net.h"

#define TX_FRAMES 256
#define TX_SIZE   1536u /* a frame may lie across two pages, because these are contiguous */
#define ETH_BYTES 14u
#define MTU_MOST  (TX_SIZE - ETH_BYTES)
#define BATCH     64 /* frames that are taken in one turn, before timers and threads get theirs */

static struct virtio_dev dev;
static struct virtio_net nic;
static struct semaphore changed = SEMAPHORE(0); /* raised when the device's configuration changes */
/* Only the bottom half uses these. */
static bool up;
static u32 ring;     /* how many frames the device may hold */
static bool tx_full; /* a frame could not be sent, because no buffer was free */
static u8 *free_tx[TX_FRAMES];
static u32 nr_free_tx;

/* ---- the bottom half ---- */

/* The device is done with a frame that we have sent: its buffer is free. */
static void virtio_nic_sent(void *token) { free_tx[nr_free_tx++] = token; }

/* Returns the buffer whose data begins at `p`. Received frames lie in buffers of the stack and are
 * passed on in them, without a copy. For each buffer that leaves, the device gets another one. */
static struct net_buf *net_buf_of(void *p) {
    return (struct net_buf *)((u8 *)p - offsetof(struct net_buf, data));
}

/* Gives a buffer back to the stack. Called by the thread that stops the device, so interrupts have
 * to be off. */
static void virtio_nic_put(void *p) {
    u64 flags = irq_save();

    net_buf_put(net_buf_of(p));
    irq_restore(flags);
}

/* Gives the device as many empty buffers as it may hold. */
static void virtio_nic_post(void) {
    struct net_buf *nb;

    for (u32 i = 0; i < nic.nr_buffers && (nb = net_buf_get()); i++)
        virtio_net_recycle(&nic, nb->data);
}

/* Hands a received frame to the stack in the buffer that it lies in. In exchange the device gets an
 * empty buffer. If there is none, the frame is dropped and its buffer goes back to the device,
 * which must never run out of buffers. */
static void virtio_nic_take(const struct virtio_net_frame *f) {
    const struct virtio_net_part *part = &f->part[0];
    struct net_buf *fresh = NULL;

    if (f->nr == 1) fresh = net_buf_get(); /* one buffer holds any frame of the MTU */
    if (!fresh) {
        if (f->nr > 1) net_nic_stats.bad++;
        for (u32 i = 0; i < f->nr; i++) virtio_net_recycle(&nic, f->part[i].buffer);
        return;
    }
    virtio_net_recycle(&nic, fresh->data);
    net_buf_of(part->buffer)->checked = f->csum_ok;
    net_rx(net_buf_of(part->buffer), (u32)(part->data - part->buffer), f->len);
}

/* Hands what the device has received to the stack, up to BATCH frames, and takes back the buffers
 * of frames that were sent; the bottom half calls it. If TCP had found no free buffer and there is
 * one now, lets it send again. */
static void virtio_nic_poll(void *arg) {
    struct virtio_net_frame f;
    void *token;
    u32 n = 0;

    if (!up) return;
    while (virtio_net_sent(&nic, &token)) virtio_nic_sent(token);
    if (tx_full && nr_free_tx) {
        tx_full = false;
        tcp_send_again();
    }
    while (n < BATCH && virtio_net_receive(&nic, &f)) {
        virtio_nic_take(&f);
        n++;
    }
    net_nic_stats.polls++;
    net_nic_stats.frames += n;
    net_nic_stats.batch_most = MAX(net_nic_stats.batch_most, n);
}

/* Sends a frame: its pieces are copied together into one buffer. If the device cannot complete a
 * checksum that was left open, it is computed here. Returns false if the frame could not be sent;
 * TCP then tries again later. */
static bool virtio_nic_tx(void *arg, const struct net_frag *piece, unsigned n,
                          struct net_open_sum open) {
    struct virtio_net_seg seg = { 0 };
    void *token;
    u8 *p;

    if (!up) return false;
    while (!nr_free_tx && virtio_net_sent(&nic, &token)) virtio_nic_sent(token);
    if (!nr_free_tx) {
        tx_full = true;
        return false;
    }
    p = free_tx[--nr_free_tx];
    for (unsigned i = 0; i < n; i++) {
        if (piece[i].len > TX_SIZE - seg.len) goto drop;
        memcpy(p + seg.len, piece[i].data, piece[i].len);
        seg.len += piece[i].len;
    }
    seg.p = p;
    if (open.start && !virtio_net_can_csum(&nic)) {
        frame_checksum(p, seg.len, open.start, open.offset);
        open.start = open.offset = 0;
    }
    if (virtio_net_send(&nic, &seg, 1, open.start, open.offset, p) == 0) return true;
drop:
    virtio_nic_sent(p);
    return false;
}

/* Tells the device once about all that was sent and recycled. After that the next frame may
 * interrupt. */
static bool virtio_nic_done(void *arg) {
    bool more;

    if (!up) return false;
    virtio_net_flush(&nic);
    more = virtio_net_listen(&nic);
    return (tx_full && virtio_net_listen_sent(&nic)) || more;
}

static void on_nic_used(u32 port, void *arg) { net_guest_run(); }

/* ---- the device, which may lose its back end and get another ---- */

static void on_nic_config(u32 port, void *arg) { sem_up(&changed); }

/* Waits until the device is offered, practically for ever, and starts it. */
static int virtio_nic_reopen(void) {
    int error = device_open(&dev, VIRTIO_ID_NET, 0, FOREVER / 2);

    if (!error) error = virtio_net_start_own(&nic, &dev, ring, NET_BUF_ROOM, virtio_nic_put);
    up = !error;
    return error;
}

/* Makes the buffers for frames to be sent, and opens the device for the first time, with receive
 * buffers for `frames` frames. Fills in *info for start.c. Returns 0 or a negative errno. */
static int virtio_nic_open(u32 frames, struct net_nic_info *info) {
    u8 *buffers = guest_env.pages(TX_FRAMES * TX_SIZE / PAGE_SIZE);
    int error;

    if (!buffers) return -ENOMEM;
    while (nr_free_tx < TX_FRAMES) virtio_nic_sent(buffers + nr_free_tx * TX_SIZE);
    ring = frames;
    error = virtio_nic_reopen();
    info->posted = nic.nr_buffers;
    info->mtu = (u16)MIN((u32)nic.mtu, MTU_MOST); /* a longer frame would fit into no buffer */
    memcpy(info->mac, nic.mac, sizeof(info->mac));
    return error;
}

/* Gives the device buffers and lets it interrupt, when everything is ready. Frames may have come
 * before there was a handler, so the bottom half runs once. */
static void virtio_nic_go(void) {
    u64 flags = irq_save();

    virtio_nic_post();
    device_on_used(&dev, NET_VCPU, on_nic_used, NULL);
    device_on_config(&dev, NET_VCPU, on_nic_config, NULL);
    net_join();
    net_guest_run(); /* frames that arrived before there was a handler */
    irq_restore(flags);
}

/* Waits, as a thread, for the device to go (when the driver domain ends) and to come again. */
static void virtio_nic_watch(void *arg) {
    for (;;) {
        u64 flags;

        sem_down(&changed);
        if (virtio_alive(&dev)) continue;
        printf("net: the device is gone\n");
        flags = irq_save();
        up = false;
        irq_restore(flags);
        if (virtio_net_stop(&nic, virtio_nic_sent)) guest_panic("net: the device does not let go");
        if (virtio_nic_reopen()) guest_panic("net: the device does not come back");
        virtio_nic_go();
        printf("net: the device is back\n");
    }
}

const struct net_nic net_virtio = {
    .name = "virtio",
    .tx_open = true,
    .open = virtio_nic_open,
    .go = virtio_nic_go,
    .watch = virtio_nic_watch,
    .guest = { .vcpu = NET_VCPU,
               .poll = virtio_nic_poll,
               .tx = virtio_nic_tx,
               .done = virtio_nic_done },
};
