/* The back end of a virtio network device. The *front end* is the device as another VM's driver
 * sees it; the back end, in the driver domain, serves its two rings: rx, whose buffers take frames
 * for that VM, and tx, with the frames that it sends. The device is a port of the bridge
 * (drivers/bridge.h), which joins all VMs' devices and the network card. The rings lie in the front
 * end's memory, so nothing in them is trusted. back_net.h has the contracts. */
#include "drivers/back_net.h"
#include <takt/errno.h>
#include "drivers/gso.h"

#define HDR ((u32)sizeof(struct virtio_net_hdr))
#define MTU 1500
/* The most buffers that a frame may take: 32 buffers of 64 bytes hold the longest usual frame, 64
 * of 1,100 bytes the longest large one. */
#define MAX_MERGE 64
/* A large frame that is passed on whole counts as one more frame of the batch for so many bytes,
 * because it takes about as long to copy these as to pass a frame on. */
#define BYTES_A_FRAME 8192
#define OFFLOAD       (VIRTIO_NET_F_HOST_TSO4 | VIRTIO_NET_F_GUEST_TSO4)
#define FEATURES                                                                                   \
    (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_INDIRECT) | BIT(VIRTIO_F_EVENT_IDX) |                  \
     VIRTIO_NET_F_CSUM | VIRTIO_NET_F_GUEST_CSUM | VIRTIO_NET_F_MTU | VIRTIO_NET_F_MAC |           \
     VIRTIO_NET_F_MRG_RXBUF)

const struct option_kind back_net_options[] = {
    { "rate", OPTION_NUMBER },
    { "delay", OPTION_NS },
    { "jitter", OPTION_NS },
    { "loss", OPTION_SHARE },
    { "queue", OPTION_NUMBER },
    { "seed", OPTION_NUMBER },
    { "mac", OPTION_MAC },
    { "reorder", OPTION_SHARE },
    { "offload", OPTION_YES_NO },
    { "pause", OPTION_NS },
    { NULL, 0 },
};

/* ---- to the driver ---- */

/* How far a frame was copied. Its pieces are the header and the segments behind it. */
struct reader {
    const struct frame *f;
    const u8 *p;
    u32 left; /* bytes at `p` */
    u32 next; /* the segment that follows them */
};

/* Copies the next `len` bytes of the frame into the chain's buffers, from their byte `at` on. */
static void put_bytes(const struct vring_chain *c, u32 at, struct reader *r, u32 len) {
    while (len) {
        u32 n = MIN(r->left, len);

        vring_copy_in(c->seg + c->nr_out, c->nr_in, at, r->p, n);
        at += n;
        len -= n;
        r->p += n;
        r->left -= n;
        if (r->left) continue;
        if (r->next == r->f->nr) return;
        r->p = r->f->seg[r->next].p;
        r->left = r->f->seg[r->next++].len;
    }
}

/* Takes the next receive buffer of the front end. Returns false if there is none. A buffer that the
 * device would have to read instead of write breaks the rules, and so does a malformed ring; the
 * device then needs a reset. */
static bool take_buffer(struct back_net *n, struct vring_chain *c) {
    int r = vring_back_take(&n->rx, c);

    if (r < 0 || (r && c->nr_out)) back_broken(&n->dev);
    return r && n->dev.live;
}

/* The header that stands before a frame in the buffers of the front end. */
static struct virtio_net_hdr header_for(const struct frame *f) {
    struct virtio_net_hdr h = { .num_buffers = 1 };

    if (f->partial) {
        h.flags = VIRTIO_NET_HDR_F_CSUM;
        h.csum_start = f->csum_start;
        h.csum_offset = f->csum_offset;
    }
    if (f->gso_size) {
        h.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        h.gso_size = f->gso_size;
        h.hdr_len = f->gso_head;
    }
    return h;
}

/* Copies what is left of the frame into further receive buffers, of which *first is the first one;
 * the header in it has to say how many there are. Nothing is given back to the front end before all
 * is copied, so a frame for which there are too few buffers has not happened. Returns 0 or
 * -ENOSPC. */
static int fill_more(struct back_net *n, const struct vring_chain *first, struct reader *r,
                     u32 left) {
    struct vring_chain c;
    struct {
        u16 head;
        u32 len;
    } used[MAX_MERGE] = { { first->head, first->in_len } };
    u16 nr = 1;

    while (left && nr < MAX_MERGE && take_buffer(n, &c)) {
        used[nr].head = c.head;
        used[nr].len = MIN(c.in_len, left);
        put_bytes(&c, 0, r, used[nr].len);
        left -= used[nr].len;
        nr++;
    }
    if (left) {
        if (n->dev.live) vring_back_untake(&n->rx, nr);
        return -ENOSPC;
    }
    vring_copy_in(first->seg + first->nr_out, first->nr_in,
                  offsetof(struct virtio_net_hdr, num_buffers), &nr, sizeof(nr));
    for (u32 i = 0; i < nr; i++) vring_back_put(&n->rx, used[i].head, used[i].len);
    return 0;
}

/* Copies a frame into the receive buffers of the front end; the bridge calls it. Returns 0, or
 * -ENOSPC if the device is not up or has too few buffers, or -EINVAL if the front end has broken
 * the rules. In both cases the bridge drops the frame. */
static int back_net_deliver(struct bridge_port *p, const struct frame *f) {
    struct back_net *n = container_of(p, struct back_net, port);
    struct virtio_net_hdr h = header_for(f);
    struct reader r = { f, f->head, FRAME_HEAD, 0 };
    struct vring_chain c;
    u32 room;

    if (!n->dev.live || !take_buffer(n, &c)) return -ENOSPC;
    if (c.in_len < HDR) { /* 5.1.6.3.1: a buffer holds the header at least */
        back_broken(&n->dev);
        return -EINVAL;
    }
    room = c.in_len - HDR;
    if (room < f->len && !(n->dev.features & VIRTIO_NET_F_MRG_RXBUF)) {
        vring_back_untake(&n->rx, 1);
        return -ENOSPC;
    }
    vring_copy_in(c.seg, c.nr_in, 0, &h, HDR);
    put_bytes(&c, HDR, &r, MIN(room, f->len));
    if (room < f->len) return fill_more(n, &c, &r, f->len - room);
    vring_back_put(&n->rx, c.head, HDR + f->len);
    return 0;
}

/* Returns whether the front end has a buffer; the bridge asks before it ends a pause. A device that
 * is not up counts as having one: its frames are dropped, and nobody waits for it. */
static bool back_net_has_room(struct bridge_port *p) {
    struct back_net *n = container_of(p, struct back_net, port);

    return !n->dev.live || vring_back_waiting(&n->rx);
}

/* ---- from the driver ---- */

/* Takes `n` bytes off the front of `nr` segments. Returns the first segment that has bytes left. */
static u32 skip(struct vring_seg *seg, u32 nr, u32 n) {
    u32 i = 0;

    for (; i < nr && n >= seg[i].len; i++) n -= seg[i].len;
    if (i < nr) {
        seg[i].p += n;
        seg[i].len -= n;
    }
    return i;
}

/* Gives a large frame, whose data are in `nr` segments, to the bridge if the front end may send
 * such frames and if it is in order. All its headers are copied, because the bridge may have to cut
 * it by them. */
static void transmit_large(struct back_net *n, struct frame f, struct vring_seg *data, u64 now) {
    struct vring_seg seg[1 + VRING_MAX_SEGS];
    u8 head[GSO_HEAD_MAX];
    u32 i;

    if (!n->offload || !(n->dev.features & VIRTIO_NET_F_HOST_TSO4) || !gso_check(&f, head)) {
        n->port.counts.bad++;
        return;
    }
    if (gso_cuts(&f) == 1) f.gso_size = 0;
    seg[0] = (struct vring_seg){ head + FRAME_HEAD, f.gso_head - FRAME_HEAD };
    i = skip(data, f.nr, f.gso_head - FRAME_HEAD);
    f.nr -= i;
    for (u32 k = 0; k < f.nr; k++) seg[1 + k] = data[i + k];
    f.nr++;
    f.seg = seg;
    bridge_input(n->bridge, &n->port, &f, now);
}

/* Checks a frame that the front end sends, and gives it to the bridge. The header is copied first,
 * because the front end could change it after it was checked. The rest of the frame stays in the
 * front end's memory until the bridge has copied it. */
static void transmit(struct back_net *n, struct vring_chain *c, u64 now) {
    struct virtio_net_hdr h;
    struct frame f = { .buf = NULL };
    u32 first;

    if (c->out_len < HDR + FRAME_HEAD || c->out_len > HDR + GSO_FRAME_MAX) {
        n->port.counts.bad++;
        return;
    }
    vring_copy_header(&h, c, HDR);
    vring_copy_out(f.head, c->seg, c->nr_out, HDR, FRAME_HEAD);
    f.len = c->out_len - HDR;
    first = skip(c->seg, c->nr_out, HDR + FRAME_HEAD);
    f.seg = c->seg + first;
    f.nr = c->nr_out - first;
    f.partial = h.flags & VIRTIO_NET_HDR_F_CSUM;
    f.csum_start = h.csum_start;
    f.csum_offset = h.csum_offset;
    f.gso_size = h.gso_size;
    if (h.gso_type == VIRTIO_NET_HDR_GSO_NONE) f.gso_size = 0;
    if (h.gso_type > VIRTIO_NET_HDR_GSO_TCPV4 ||
        (f.partial && !(n->dev.features & VIRTIO_NET_F_CSUM)))
        n->port.counts.bad++;
    else if (h.gso_type == VIRTIO_NET_HDR_GSO_TCPV4)
        transmit_large(n, f, c->seg + first, now);
    else
        bridge_input(n->bridge, &n->port, &f, now);
}

/* Takes one frame from the front end's send ring and gives it to the bridge. Returns as how many
 * frames of the batch it counts, or 0 if there is no frame or the ring is broken. Each frame that
 * the bridge cuts off a large one counts. So a VM gets no longer turn than others by large frames.
 */
static u32 serve_one(struct back_net *n, u64 now) {
    u64 cut = n->bridge->cut;
    struct vring_chain c;
    int r = vring_back_take(&n->tx, &c);

    if (r < 0 || (r && c.nr_in)) {
        back_broken(&n->dev);
        return 0;
    }
    if (!r) return 0;
    transmit(n, &c, now);
    if (n->dev.live) vring_back_put(&n->tx, c.head, 0);
    return 1 + c.out_len / BYTES_A_FRAME + (u32)(n->bridge->cut - cut);
}

/* Sends frames of the driver on. Returns the time (ns) at which it wants to be called again; 0
 * means at once. An emulated link may be busy. Then the frames stay in the front end's ring, so
 * that its network stack sees that the link is full, and n->wait says when to go on. */
u64 back_net_serve(struct back_net *n, u64 now) {
    for (u32 done = 0, count; done < BACK_NET_BATCH && n->dev.live; done += MAX(count, 1u)) {
        /* Ask for the wire only if there is something to send, because bridge_wait() counts how
         * often a device has to wait. */
        if (netem_active(&n->port.up.netem) && vring_back_waiting(&n->tx)) {
            n->wait = bridge_wait(n->bridge, &n->port, now);
            if (n->wait) return n->wait;
        }
        count = serve_one(n, now);
        if (!count && !(n->dev.live && vring_back_listen(&n->tx))) return ~0ull;
    }
    if (!n->dev.live) return ~0ull;
    return 0;
}

void back_net_flush(struct back_net *n) {
    if (!n->dev.live) return;
    n->dev.irq |= vring_back_flush(&n->rx);
    n->dev.irq |= vring_back_flush(&n->tx);
    back_interrupt(&n->dev);
}

/* ---- life ---- */

/* Fills in what this back end offers to the driver in the front VM, and the hypervisor shows there:
 * the features, two queues, the MTU and the address. */
static void offer_for(struct back_net *n, struct takt_offer *offer) {
    struct virtio_net_config c = { .mtu = MTU };

    __builtin_memcpy(c.mac, n->port.mac, sizeof(c.mac));
    *offer = (struct takt_offer){
        .features = FEATURES, .nr_queues = 2, .queue_max = TAKT_QUEUE_MAX, .config_len = sizeof(c)
    };
    if (n->offload) offer->features |= OFFLOAD;
    __builtin_memcpy(offer->config, &c, sizeof(c));
}

/* Plugs the device into the bridge, and fills in *offer, which is what the front end will see.
 * Returns 0, or an error of bridge_add(). The two directions of the link get different seeds. With
 * the same seed they would lose the same frames. */
int back_net_init(struct back_net *n, struct bridge *b, const struct back_calls *calls,
                  const struct takt_back *info, struct takt_offer *offer) {
    const char *o = info->options;
    struct netem_params up = { .rate = option_number(o, "rate", 0),
                               .delay = option_ns(o, "delay", 0),
                               .jitter = option_ns(o, "jitter", 0),
                               .loss = option_share(o, "loss", 0),
                               .reorder = option_share(o, "reorder", 0),
                               .queue =
                                   (u32)MIN(option_number(o, "queue", BACK_NET_QUEUE), 65536ull),
                               .seed = 2 * option_number(o, "seed", info->handle) };
    struct netem_params down = up;

    *n = (struct back_net){ .bridge = b, .dev = { .handle = info->handle, .calls = calls } };
    n->port.name = info->name;
    n->port.deliver = back_net_deliver;
    n->port.has_room = back_net_has_room;
    n->port.pause = option_ns(o, "pause", 0);
    n->offload = option_is(o, "offload", "yes") && !netem_emulates(&up) && !n->port.pause;
    if (!option_mac(o, "mac", n->port.mac)) {
        /* Bit 1 of the first byte says that the address is not a manufacturer's (IEEE 802, 8.4). */
        u8 mac[6] = { 0x02, 'T', 'k', (u8)(info->vm >> 8), (u8)info->vm, (u8)info->number };

        __builtin_memcpy(n->port.mac, mac, sizeof(mac));
    }
    offer_for(n, offer);
    down.seed++;
    return bridge_add(b, &n->port, &up, &down);
}

void back_net_fini(struct back_net *n) { bridge_remove(n->bridge, &n->port); }

/* Begins to serve the front end, whose driver has become ready. What it has negotiated decides
 * whether it takes frames whose checksum is not filled in. If a ring is not in order, the device
 * needs a reset at once. */
void back_net_start(struct back_net *n, const struct takt_front *f) {
    back_begin(&n->dev, f);
    n->port.takes_partial = f->features & VIRTIO_NET_F_GUEST_CSUM;
    n->port.takes_large =
        n->offload && n->port.takes_partial && f->features & VIRTIO_NET_F_GUEST_TSO4;
    if (!back_ring(&n->dev, &n->rx, f, VIRTIO_NET_RX) ||
        !back_ring(&n->dev, &n->tx, f, VIRTIO_NET_TX)) {
        back_broken(&n->dev);
        return;
    }
    /* Frames that find no buffer are dropped. So nobody waits for buffers, and new buffers need no
     * notification. */
    vring_back_ignore(&n->rx);
}

void back_net_stop(struct back_net *n) { n->dev.live = false; }
