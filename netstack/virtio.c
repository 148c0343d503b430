/* Connects the network stack of a guest to a virtio network device (drivers/virtio_net.h), which
 * the driver domain serves. Received frames lie in buffers of the stack and are passed on in them
 * without a copy. Of frames to be sent, the device reads the data of TCP where the stack has them;
 * headers and all else are copied into buffers of this file. The functions in
 * `net_virtio`, at the end, are what the stack calls. The device goes away if the driver domain
 * ends; a thread (virtio_nic_watch()) then waits for the next one. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/large.h>
#include <netstack/nic.h>
#include "drivers/bridge.h"
#include "drivers/virtio_net.h"

#define TX_FRAMES 256
#define TX_SIZE   1536u /* a frame may lie across two pages, because these are contiguous */
#define ETH_BYTES 14u
#define TX_DATA   (TX_SIZE - sizeof(struct sock *) - VIRTIO_NET_ROOM)
#define MTU_MOST  (TX_DATA - ETH_BYTES)
#define BATCH     64 /* frames that are taken in one turn, before timers and threads get theirs */

/* A buffer for a frame to be sent, or for its headers. */
struct tx_buf {
    struct sock *keeper; /* the socket in whose memory the rest of the frame lies; NULL: none */
    u8 room[VIRTIO_NET_ROOM];
    u8 data[TX_DATA];
};

static struct virtio_dev dev;
static struct virtio_net nic;
static struct semaphore changed = SEMAPHORE(0); /* raised when the device's configuration changes */
/* Only the bottom half uses these. */
static bool up;
static u32 ring;     /* how many frames the device may hold */
static bool tx_full; /* a frame could not be sent, because no buffer was free */
static struct tx_buf *free_tx[TX_FRAMES];
static u32 nr_free_tx;

/* ---- the bottom half ---- */

/* The device is done with a frame that we have sent: its buffer is free. */
static void virtio_nic_sent(void *token) {
    struct tx_buf *b = token;

    if (b->keeper) net_kept_until_now(b->keeper);
    b->keeper = NULL;
    free_tx[nr_free_tx++] = b;
}

/* The same for a frame that the device had when it was stopped. */
static void virtio_nic_lost(void *token) {
    u64 flags = irq_save();

    virtio_nic_sent(token);
    irq_restore(flags);
}

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

/* Hands a received frame to the stack in the buffers that it lies in. In exchange the device gets
 * as many empty buffers. If there are too few, the frame is dropped and its buffers go back to the
 * device, which must never run out of buffers. */
static void virtio_nic_take(const struct virtio_net_frame *f) {
    /* Too large for a stack that a thread uses as well; the bottom half is one context. */
    static struct net_buf *buf[VIRTIO_NET_PARTS], *fresh[VIRTIO_NET_PARTS];
    static u32 len[VIRTIO_NET_PARTS];
    u32 offset = (u32)(f->part[0].data - f->part[0].buffer), n = 0;

    while (n < f->nr && (fresh[n] = net_buf_get())) n++;
    if (n < f->nr) {
        while (n) net_buf_put(fresh[--n]);
        for (u32 i = 0; i < f->nr; i++) virtio_net_recycle(&nic, f->part[i].buffer);
        return;
    }
    for (u32 i = 0; i < f->nr; i++) {
        virtio_net_recycle(&nic, fresh[i]->data);
        buf[i] = net_buf_of(f->part[i].buffer);
        len[i] = f->part[i].len;
    }
    buf[0]->checked = f->csum_ok;
    if (f->nr == 1)
        net_rx(buf[0], offset, f->len);
    else
        net_rx_parts(buf, len, f->nr, offset);
}

/* Hands what the device has received to the stack, up to BATCH frames, and takes back the buffers
 * of frames that were sent; the bottom half calls it. If TCP had found no free buffer and there is
 * one now, lets it send again. */
static void virtio_nic_poll(void *arg) {
    static struct virtio_net_frame f; /* as in virtio_nic_take() */
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

/* Copies the pieces of a frame together into one buffer, and puts it into the send ring. If the
 * device cannot complete a checksum that was left open, it is computed here. Returns false if that
 * is not possible. */
static bool send_copy(struct tx_buf *b, const struct net_frame *f) {
    struct virtio_net_seg seg = { .p = b->data };
    struct net_open_sum open = f->open;

    for (unsigned i = 0; i < f->n; i++) {
        if (f->piece[i].len > sizeof(b->data) - seg.len) return false;
        memcpy(b->data + seg.len, f->piece[i].data, f->piece[i].len);
        seg.len += f->piece[i].len;
    }
    if (open.start && !virtio_net_can_csum(&nic)) {
        frame_checksum(b->data, seg.len, open.start, open.offset);
        open.start = open.offset = 0;
    }
    return virtio_net_send_out(&nic, &(struct virtio_net_out){ .seg = &seg,
                                                               .nr = 1,
                                                               .csum_start = open.start,
                                                               .csum_offset = open.offset,
                                                               .room = true,
                                                               .token = b }) == 0;
}

/* Copies the first piece of a frame, its headers, and refers to the other pieces where they lie.
 * Returns false if that is not possible. */
static bool send_where_it_lies(struct tx_buf *b, const struct net_frame *f) {
    struct virtio_net_seg seg[VIRTIO_NET_SEGS] = { { b->data, f->piece[0].len } };
    struct virtio_net_out out = { .seg = seg,
                                  .nr = f->n,
                                  .csum_start = f->open.start,
                                  .csum_offset = f->open.offset,
                                  .cut = f->cut,
                                  .room = true,
                                  .token = b };

    if (f->n > ARRAY_SIZE(seg) || f->piece[0].len > sizeof(b->data)) return false;
    memcpy(b->data, f->piece[0].data, f->piece[0].len);
    for (unsigned i = 1; i < f->n; i++)
        seg[i] = (struct virtio_net_seg){ f->piece[i].data, f->piece[i].len };
    if (virtio_net_send_out(&nic, &out)) return false;
    b->keeper = f->keeper;
    net_keep(f->keeper);
    return true;
}

/* Sends a frame. Returns false if the frame could not be sent; TCP then tries again later. */
static bool virtio_nic_tx(void *arg, const struct net_frame *f) {
    struct tx_buf *b;
    void *token;
    bool sent;

    if (!up) return false;
    while (!nr_free_tx && virtio_net_sent(&nic, &token)) virtio_nic_sent(token);
    if (!nr_free_tx) {
        tx_full = true;
        return false;
    }
    b = free_tx[--nr_free_tx];
    if (f->keeper && virtio_net_can_csum(&nic))
        sent = send_where_it_lies(b, f);
    else
        sent = send_copy(b, f);
    if (!sent) virtio_nic_sent(b);
    return sent;
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
    net_set_large(up && virtio_net_can_cut(&nic) ? LARGE_MOST : 0);
    return error;
}

/* Makes the buffers for frames to be sent, and opens the device for the first time, with receive
 * buffers for `frames` frames. Fills in *info for start.c. Returns 0 or a negative errno. */
static int virtio_nic_open(u32 frames, struct net_nic_info *info) {
    struct tx_buf *buffers = guest_env.pages(TX_FRAMES * TX_SIZE / PAGE_SIZE);
    int error;

    if (!buffers) return -ENOMEM;
    while (nr_free_tx < TX_FRAMES) virtio_nic_sent(&buffers[nr_free_tx]);
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
        if (virtio_net_stop(&nic, virtio_nic_lost)) guest_panic("net: the device does not let go");
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
