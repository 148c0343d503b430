/* The driver of a virtio network device, for a guest. It has two rings: rx, to which it gives empty
 * buffers and from which it takes received frames, and tx, for frames to be sent. A *token* is the
 * caller's name for a frame that is being sent. The device is served by another VM, which may write
 * anything; lengths and offsets are checked. virtio_net.h has the contracts. */
#include "drivers/virtio_net.h"
#include <takt/errno.h>

#define FEATURES                                                                                   \
    (BIT(VIRTIO_F_INDIRECT) | BIT(VIRTIO_F_EVENT_IDX) | VIRTIO_NET_F_CSUM |                        \
     VIRTIO_NET_F_GUEST_CSUM | VIRTIO_NET_F_MTU | VIRTIO_NET_F_MAC | VIRTIO_NET_F_MRG_RXBUF)
#define TX_SIZE  256
#define RX_MIN   8
#define SIZE_MIN 64

/* Returns how many pages hold so many bytes. */
static u32 net_pages_of(u64 bytes) { return (u32)((bytes + PAGE_SIZE - 1) / PAGE_SIZE); }

/* Returns the smallest power of two that is at least `at_least`; the size of a ring has to be one.
 */
static u32 virtio_net_power_of_two(u32 at_least) {
    u32 n = 1;

    while (n < at_least) n *= 2;
    return n;
}

/* Gives a receive buffer to the device. The token in the ring is the buffer's address. */
void virtio_net_recycle(struct virtio_net *n, u8 *p) {
    struct vring_sg sg = { n->dev->env->dma_addr(p), n->buffer_size };

    vring_front_add(&n->rx, &sg, 0, 1,
                    /* This cannot fail, because there are no more buffers than places in the ring.
                     */
                    p);
}

/* Frees the rings, the receive buffers and the send slots, as far as there are any. The device must
 * be in reset, because otherwise it could still write to that memory. */
static void release_memory(struct virtio_net *n) {
    const struct driver_env *env = n->dev->env;

    vring_front_fini(&n->rx);
    vring_front_fini(&n->tx);
    if (n->buffers) env->pages_free(n->buffers, net_pages_of((u64)n->nr_buffers * n->buffer_size));
    if (n->slots) env->pages_free(n->slots, n->slot_pages);
    n->buffers = NULL;
    n->slots = NULL;
}

/* Makes both rings, and allocates receive buffers (unless the caller has its own) and send slots.
 * If it fails, the caller frees what was allocated before that. */
static int net_make_queues(struct virtio_net *n) {
    const struct driver_env *env = n->dev->env;
    int error = virtio_queue(n->dev, VIRTIO_NET_RX, &n->rx, virtio_net_power_of_two(n->nr_buffers));

    if (!error) error = virtio_queue(n->dev, VIRTIO_NET_TX, &n->tx, TX_SIZE);
    if (error) return error;
    n->nr_buffers = MIN(n->nr_buffers, n->rx.size);
    n->slot_pages = net_pages_of(n->tx.size * sizeof(*n->slots));
    if (!n->put) n->buffers = env->pages(net_pages_of((u64)n->nr_buffers * n->buffer_size));
    n->slots = env->pages(n->slot_pages);
    if (!n->put && !n->buffers) return -ENOMEM;
    if (!n->slots) return -ENOMEM;
    return 0;
}

/* Returns the features of large frames that the driver may ask for. Each needs another feature
 * (5.1.3.1), and received ones have to fit into VIRTIO_NET_PARTS buffers of `size` bytes. */
static u64 large_features(struct virtio_dev *dev, u32 size) {
    u64 offered = dev->ops->features(dev), wanted = 0;
    u64 needed = VIRTIO_NET_F_GUEST_CSUM | VIRTIO_NET_F_MRG_RXBUF;

    if (offered & VIRTIO_NET_F_CSUM) wanted |= VIRTIO_NET_F_HOST_TSO4;
    if ((offered & needed) == needed &&
        (u64)size * VIRTIO_NET_PARTS >= VIRTIO_NET_LARGE + sizeof(struct virtio_net_hdr))
        wanted |= VIRTIO_NET_F_GUEST_TSO4;
    return wanted;
}

/* Starts the network device with receive buffers that the caller posts. Returns 0 or an error. If
 * the queues cannot be made, the memory is freed only if the device came out of reset. Otherwise
 * the device may still use it. */
int virtio_net_start_own(struct virtio_net *n, struct virtio_dev *dev, u32 nr, u32 size,
                         void (*put)(void *buffer)) {
    int error;

    *n = (struct virtio_net){ .dev = dev, .mtu = VIRTIO_NET_MTU, .buffer_size = size, .put = put };
    if (size < SIZE_MIN || nr < RX_MIN || nr > TAKT_QUEUE_MAX) return -EINVAL;
    n->nr_buffers = nr;
    error = virtio_begin(dev, FEATURES | large_features(dev, size));
    if (error) return error;
    if (dev->features & VIRTIO_NET_F_MAC) virtio_config(dev, 0, n->mac, sizeof(n->mac));
    if (dev->features & VIRTIO_NET_F_MTU)
        virtio_config(dev, offsetof(struct virtio_net_config, mtu), &n->mtu, sizeof(n->mtu));
    error = net_make_queues(n);
    if (error) {
        if (virtio_reset(dev) == 0) release_memory(n);
        return error;
    }
    for (u32 i = 0; i < n->tx.size; i++) {
        n->slots[i].next = n->free;
        n->free = &n->slots[i];
    }
    for (u32 i = 0; n->buffers && i < n->nr_buffers; i++)
        virtio_net_recycle(n, n->buffers + (u64)i * n->buffer_size);
    vring_front_ignore(&n->tx);
    virtio_go(dev);
    virtio_net_flush(n);
    return 0;
}

int virtio_net_start(struct virtio_net *n, struct virtio_dev *dev, u32 nr, u32 size) {
    return virtio_net_start_own(n, dev, nr, size, NULL);
}

/* Resets the device and frees all memory; the tokens of frames that were not sent come back through
 * `sent`. Returns 0, or -ETIMEDOUT if the back end does not release the memory. The buffers are
 * given back only after the reset, because until then the device may still use them. */
int virtio_net_stop(struct virtio_net *n, void (*sent)(void *token)) {
    struct virtio_net_slot *s;
    void *buffer;
    int error = virtio_reset(n->dev);

    if (error) return error;
    while ((buffer = vring_front_drain(&n->rx)))
        if (n->put) n->put(buffer);
    while ((s = vring_front_drain(&n->tx)))
        if (sent) sent(s->token);
    release_memory(n);
    return 0;
}

/* Takes a buffer that the device has filled. Returns false if there is none. */
static bool take_part(struct virtio_net *n, struct virtio_net_part *part) {
    u8 *p = vring_front_take(&n->rx, &part->len);

    if (!p) return false;
    part->data = part->buffer = p;
    return true;
}

/* Gives the buffers of a frame that broke the rules back to the device, and counts the frame. */
static void drop_frame(struct virtio_net *n, const struct virtio_net_frame *f) {
    for (u32 i = 0; i < f->nr; i++) virtio_net_recycle(n, f->part[i].buffer);
    n->rx_bad++;
}

/* Takes the further buffers of a frame that fills `count` buffers. Returns false if the frame is
 * not in order, or has too many buffers; those that do not fit into *f are given back to the
 * device. */
static bool take_rest(struct virtio_net *n, struct virtio_net_frame *f, u32 count) {
    bool ok = count <= VIRTIO_NET_PARTS;
    struct virtio_net_part extra;

    for (; f->nr < MIN(count, VIRTIO_NET_PARTS); f->nr++) {
        struct virtio_net_part *p = &f->part[f->nr];

        if (!take_part(n, p)) return false;
        ok &= p->len && p->len <= n->buffer_size;
        f->len += p->len;
    }
    for (u32 i = VIRTIO_NET_PARTS; i < count && take_part(n, &extra); i++)
        virtio_net_recycle(n, extra.buffer);
    return ok;
}

/* Reads the header at the front of the first buffer, and fills in *f. The back end may have written
 * anything, so lengths and places of checksums are checked. Returns false if the frame has to be
 * dropped. */
static bool take_frame(struct virtio_net *n, struct virtio_net_frame *f) {
    struct virtio_net_part *first = &f->part[0];
    struct virtio_net_hdr h;

    __builtin_memcpy(&h, first->data, sizeof(h));
    if (first->len <= sizeof(h) || first->len > n->buffer_size) return false;
    first->data += sizeof(h);
    first->len -= (u32)sizeof(h);
    f->len = first->len;
    if (n->dev->features & VIRTIO_NET_F_MRG_RXBUF && !take_rest(n, f, h.num_buffers)) return false;
    f->partial = n->dev->features & VIRTIO_NET_F_GUEST_CSUM && h.flags & VIRTIO_NET_HDR_F_CSUM;
    f->csum_ok = f->partial || h.flags & VIRTIO_NET_HDR_F_CSUM_OK;
    f->csum_start = h.csum_start;
    f->csum_offset = h.csum_offset;
    return !f->partial || (u32)f->csum_start + f->csum_offset + 2 <= f->len;
}

/* Takes the next received frame. Returns false if there is none. A frame may lie in several
 * buffers, and the other VM may have written nonsense into its header. Such a frame is dropped and
 * counted, its buffers go back to the device, and the next frame is tried. */
bool virtio_net_receive(struct virtio_net *n, struct virtio_net_frame *f) {
    for (;;) {
        f->nr = 1;
        if (!take_part(n, &f->part[0])) return false;
        if (take_frame(n, f)) break;
        drop_frame(n, f);
    }
    n->rx_frames++;
    n->rx_bytes += f->len;
    return true;
}

/* Makes the header that stands before a frame to be sent. */
static struct virtio_net_hdr header_of(const struct virtio_net_out *o) {
    struct virtio_net_hdr h = { .csum_start = o->csum_start, .csum_offset = o->csum_offset };

    if (o->csum_start) h.flags = VIRTIO_NET_HDR_F_CSUM;
    if (o->cut) {
        h.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        h.gso_size = o->cut;
        h.hdr_len = (u16)o->seg[0].len;
    }
    return h;
}

/* Puts a frame into the send ring. Returns 0 or an error. Each frame in the ring has a slot, which
 * holds its token until the device is done with it, and its header. If the caller has left room
 * before the frame, the header goes there, because one descriptor is cheaper than two. */
int virtio_net_send_out(struct virtio_net *n, const struct virtio_net_out *o) {
    struct virtio_net_slot *s = n->free;
    struct vring_sg sg[1 + VIRTIO_NET_SEGS];
    struct virtio_net_hdr *h;
    u32 nr = 0;
    int error;

    if (!o->nr || o->nr > VIRTIO_NET_SEGS || (o->csum_start && !virtio_net_can_csum(n)) ||
        (o->cut && (!o->csum_start || !virtio_net_can_cut(n))))
        return -EINVAL;
    if (!s) goto full;
    s->token = o->token;
    h = &s->hdr;
    if (o->room) h = (struct virtio_net_hdr *)((u8 *)o->seg[0].p - sizeof(*h));
    *h = header_of(o);
    sg[nr++] = (struct vring_sg){ n->dev->env->dma_addr(h), sizeof(*h) };
    for (u32 i = 0; i < o->nr; i++) {
        if (i == 0 && o->room)
            sg[0].len += o->seg[0].len;
        else
            sg[nr++] = (struct vring_sg){ n->dev->env->dma_addr(o->seg[i].p), o->seg[i].len };
    }
    error = vring_front_add(&n->tx, sg, nr, 0, s);
    if (error == -ENOSPC) goto full;
    if (error) return error;
    n->free = s->next;
    n->tx_frames++;
    for (u32 i = 0; i < o->nr; i++) n->tx_bytes += o->seg[i].len;
    return 0;

full:
    n->tx_full++;
    return -ENOSPC;
}

int virtio_net_send(struct virtio_net *n, const struct virtio_net_seg *seg, u32 nr, u16 csum_start,
                    u16 csum_offset, void *token) {
    struct virtio_net_out o = {
        .seg = seg, .nr = nr, .csum_start = csum_start, .csum_offset = csum_offset, .token = token
    };

    return virtio_net_send_out(n, &o);
}

/* Takes the token of a frame that the device is done with. Returns false if there is none. The slot
 * of the frame is free again after this. */
bool virtio_net_sent(struct virtio_net *n, void **token) {
    u32 len;
    struct virtio_net_slot *s = vring_front_take(&n->tx, &len);

    if (!s) return false;
    *token = s->token;
    s->next = n->free;
    n->free = s;
    return true;
}

/* Asks for an interrupt when the device is done with half of the frames that it has. Returns true
 * if it is done with them already. An interrupt for half of the frames lets the sender fill the
 * ring again before it runs empty, and costs fewer interrupts than one for each frame. */
bool virtio_net_listen_sent(struct virtio_net *n) {
    u32 out = vring_front_outstanding(&n->tx);

    return out == 0 || vring_front_listen(&n->tx, (u16)MAX(out / 2, 1u));
}

/* Shows the device what was sent and recycled. Returns whether it had to be notified. Both rings
 * are shown in one go: the recycled receive buffers, and the frames to be sent. */
bool virtio_net_flush(struct virtio_net *n) {
    bool rx = virtio_kick(n->dev, VIRTIO_NET_RX, &n->rx),
         tx = virtio_kick(n->dev, VIRTIO_NET_TX, &n->tx);

    n->kicks += (u64)rx + (u64)tx;
    return rx || tx;
}
