/* A learning bridge with emulated links. A *port* is where a device is plugged in. Each port has
 * two links: *up* leads from the device to the bridge, *down* from the bridge to the device. A link
 * that emulates something (drivers/netem.h) holds each frame in a buffer of the bridge until the
 * frame is due. bridge.h has the contracts. */
#include "drivers/bridge.h"
#include <takt/errno.h>
#include "drivers/gso.h"

#define UDP_CHECKSUM 6 /* offset of the checksum in the header */
#define WAYS         4 /* an address can be in this many places of the table */
/* How far in advance a device may give its link frames, in ns. Otherwise the link would run dry
 * while the device's owner sleeps. */
#define AHEAD NS_PER_MS

static bool mac_same(const u8 *a, const u8 *b) { return !__builtin_memcmp(a, b, 6); }

static bool mac_none(const u8 *a) { return mac_same(a, (const u8[6]){ 0 }); }

static bool mac_group(const u8 *a) { return a[0] & 1; }

/* ---- frames ---- */

void frame_copy(void *to, const struct frame *f) {
    __builtin_memcpy(to, f->head, FRAME_HEAD);
    vring_copy_out((u8 *)to + FRAME_HEAD, f->seg, f->nr, 0, f->len - FRAME_HEAD);
}

/* Computes the checksum of a frame's bytes from `start` on (RFC 1071), and stores it at byte start
 * + offset. What stands there before, the sum of the pseudo header, is part of the sum. It adds up
 * 16-bit words in network order, adds the carries back, and stores the complement. */
void frame_checksum(u8 *data, u32 len, u32 start, u32 offset) {
    u8 *at = data + start + offset;
    u32 sum = 0;

    for (u32 i = start; i + 1 < len; i += 2) sum += (u32)data[i] << 8 | data[i + 1];
    if ((len - start) & 1) sum += (u32)data[len - 1] << 8;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    sum = ~sum & 0xffff;
    if (!sum && offset == UDP_CHECKSUM)
        sum = 0xffff; /* in UDP a zero means "no checksum": RFC 768 */
    at[0] = (u8)(sum >> 8);
    at[1] = (u8)sum;
}

/* Returns an unused buffer for a frame. If there is none, makes a page of new ones, until there are
 * max_buffers. The limit is there so that VMs that send over slow links cannot use up the driver
 * domain's memory. Returns NULL if there is no buffer. */
static struct frame_buf *buf_alloc(struct bridge *b) {
    struct frame_buf *f = b->free;
    u8 *page;

    if (f) {
        b->free = f->next;
        return f;
    }
    if (b->buffers + PAGE_SIZE / sizeof(*f) > b->max_buffers) return NULL;
    page = b->env->pages(1);
    if (!page) return NULL;
    for (u32 i = 0; i < PAGE_SIZE / sizeof(*f); i++) {
        f = (struct frame_buf *)(page + i * sizeof(*f));
        f->next = b->free;
        b->free = f;
        b->buffers++;
    }
    return buf_alloc(b);
}

static void buf_free(struct bridge *b, struct frame_buf *f) {
    f->next = b->free;
    b->free = f;
}

/* Puts a frame into a buffer of the bridge, which then belongs to the caller: the buffer in which
 * the frame lies already, or a copy. Returns NULL if there is no memory. */
static struct frame_buf *bridge_buf_of(struct bridge *b, struct frame *f) {
    struct frame_buf *buf = f->buf;

    if (buf) {
        f->buf = NULL;
        return buf;
    }
    buf = buf_alloc(b);
    if (!buf) return NULL;
    buf->len = f->len;
    buf->partial = f->partial;
    buf->csum_start = f->csum_start;
    buf->csum_offset = f->csum_offset;
    frame_copy(buf->data, f);
    return buf;
}

/* Describes the frame that lies in a buffer of the bridge. Its head is copied, because every struct
 * frame has its head apart from its segments. */
static void frame_in(struct frame *f, struct frame_buf *buf) {
    __builtin_memcpy(f->head, buf->data, FRAME_HEAD);
    f->len = buf->len;
    f->own = (struct vring_seg){ buf->data + FRAME_HEAD, buf->len - FRAME_HEAD };
    f->seg = &f->own;
    f->nr = 1;
    f->partial = buf->partial;
    f->csum_start = buf->csum_start;
    f->csum_offset = buf->csum_offset;
    f->gso_size = 0;
    f->buf = buf;
}

/* ---- links ---- */

/* Puts a buffer into the link's list. The list is in the order in which the frames arrive, so
 * link_take() looks only at its first one. Nearly always the new one is the last. Returns whether
 * it overtakes others. */
static bool link_add(struct link *l, struct frame_buf *buf, u64 due) {
    struct frame_buf **at = &l->first;
    bool overtakes = l->first && due < l->last->due;

    if (l->first && !overtakes) at = &l->last->next;
    while (*at && (*at)->due <= due) at = &(*at)->next;
    buf->due = due;
    buf->next = *at;
    *at = buf;
    if (!buf->next) l->last = buf;
    return overtakes;
}

/* Takes the first frame off the link if it is due. Returns NULL if there is none. */
static struct frame_buf *link_take(struct link *l, u64 now) {
    struct frame_buf *buf = l->first;

    if (!buf || buf->due > now) return NULL;
    l->first = buf->next;
    netem_arrived(&l->netem);
    return buf;
}

static void link_empty(struct bridge *b, struct link *l) {
    struct frame_buf *buf;

    while ((buf = link_take(l, ~0ull))) buf_free(b, buf);
}

/* Sends the frame over the link. The link says when the frame arrives, or that it is lost or that
 * the queue is full. Until it arrives, the frame lies in a buffer of the bridge, because the
 * sender's memory is not ours any more after this call. */
static void link_send(struct bridge *b, struct link *l, struct frame *f, u64 now,
                      struct port_counts *counts) {
    u64 due = netem_send(&l->netem, now, f->len);
    struct frame_buf *buf;

    if (due == NETEM_FULL) {
        counts->queue_full++;
        return;
    }
    if (due == NETEM_LOST) {
        counts->lost++;
        return;
    }
    buf = bridge_buf_of(b, f);
    if (!buf) {
        counts->no_memory++;
        netem_arrived(&l->netem);
        return;
    }
    if (link_add(l, buf, due)) counts->reordered++;
}

/* ---- addresses ---- */

/* Returns the first of the WAYS places of the table where the address may be. They follow from a
 * hash of the address, so that a look-up costs the same however many addresses are known. */
static struct bridge_mac *mac_slots(struct bridge *b, const u8 *mac) {
    u64 h = 0;

    __builtin_memcpy(&h, mac, 6);
    h *= 0x9e3779b97f4a7c15; /* 2^64 by the golden ratio: the upper bits depend on all bytes */
    return &b->mac[(h >> 32) % (BRIDGE_MACS / WAYS) * WAYS];
}

/* Empties an entry of the table. The port's number of learned addresses is counted down, so that
 * the port may learn another one. */
static void mac_forget(struct bridge_mac *m) {
    if (m->port) m->port->macs--;
    m->port = NULL;
}

/* Returns the port whose device has this address as its own, or NULL if there is none. */
static struct bridge_port *mac_owner(struct bridge *b, const u8 *mac) {
    for (u32 i = 0; i < b->nr; i++)
        if (b->port[i] && mac_same(b->port[i]->mac, mac)) return b->port[i];
    return NULL;
}

/* Returns the port behind which the address was seen in the last MAC_AGE, or whose own address it
 * is; NULL if neither is known, and then the frame has to go to all ports. */
static struct bridge_port *mac_find(struct bridge *b, const u8 *mac, u64 now) {
    struct bridge_mac *m = mac_slots(b, mac);

    for (u32 i = 0; i < WAYS; i++)
        if (m[i].port && mac_same(m[i].mac, mac) && now - m[i].seen < MAC_AGE) return m[i].port;
    return mac_owner(b, mac);
}

/* Notes that `mac` is behind this port. A port may have PORT_MACS addresses, and a new address
 * replaces only the oldest one of the WAYS places where it may be. So a flood of addresses from one
 * port costs the other ports little: the addresses that they lose are learned again from their next
 * frames. */
static void mac_learn(struct bridge *b, struct bridge_port *p, const u8 *mac, u64 now) {
    struct bridge_mac *m = mac_slots(b, mac), *oldest = m;

    for (u32 i = 0; i < WAYS; i++) {
        if (m[i].port && mac_same(m[i].mac, mac)) {
            oldest = &m[i];
            if (oldest->port == p) {
                oldest->seen = now;
                return;
            }
            break;
        }
        if (!m[i].port || (oldest->port && m[i].seen < oldest->seen)) oldest = &m[i];
    }
    if (p->macs >= PORT_MACS) return;
    mac_forget(oldest);
    *oldest = (struct bridge_mac){ .seen = now, .port = p };
    __builtin_memcpy(oldest->mac, mac, 6);
    p->macs++;
}

/* ---- the bridge ---- */

void bridge_init(struct bridge *b, const struct driver_env *env, u32 max_buffers) {
    *b = (struct bridge){ .env = env, .max_buffers = max_buffers };
}

/* Adds the port to the bridge. Returns 0, -ENOSPC if there are too many ports, or -EEXIST if
 * another port has its address. A port takes the first free number. The counts and the links begin
 * anew. */
int bridge_add(struct bridge *b, struct bridge_port *p, const struct netem_params *up,
               const struct netem_params *down) {
    u32 i = 0;

    if (!mac_none(p->mac) && mac_owner(b, p->mac)) return -EEXIST;
    while (i < BRIDGE_PORTS && b->port[i]) i++;
    if (i == BRIDGE_PORTS) return -ENOSPC;
    p->up = p->down = (struct link){ .first = NULL };
    netem_init(&p->up.netem, up);
    netem_init(&p->down.netem, down);
    p->macs = 0;
    p->number = i;
    p->counts = (struct port_counts){ 0 };
    b->port[i] = p;
    b->nr = MAX(b->nr, i + 1);
    for (i = 0; i < BRIDGE_MACS; i++) /* another port may have used the address before */
        if (mac_same(b->mac[i].mac, p->mac)) mac_forget(&b->mac[i]);
    return 0;
}

/* Forgets all addresses behind the port. Otherwise frames to them would be sent to a port that is
 * gone. */
void bridge_remove(struct bridge *b, struct bridge_port *p) {
    for (u32 i = 0; i < BRIDGE_MACS; i++)
        if (b->mac[i].port == p) mac_forget(&b->mac[i]);
    link_empty(b, &p->up);
    link_empty(b, &p->down);
    b->port[p->number] = NULL;
    while (b->nr && !b->port[b->nr - 1]) b->nr--;
}

/* Cuts a large frame, and passes each of the frames to `use`. */
static void cut(struct bridge *b, struct bridge_port *p, const struct frame *f, u64 now,
                void (*use)(struct bridge *b, struct bridge_port *p, struct frame *f, u64 now)) {
    struct frame *part;
    struct gso g;

    gso_begin(&g, f);
    while ((part = gso_next(&g))) {
        b->cut++;
        use(b, p, part, now);
    }
}

/* Delivers a frame that has come to the end of the link to the port's device. A checksum may still
 * be open, because between VMs nobody computes it. If the device cannot take such a frame (a
 * network card), the frame is copied and the checksum filled in first; the original belongs to the
 * sender and stays as it is. */
static void arrive(struct bridge *b, struct bridge_port *p, struct frame *f, u64 now) {
    struct frame_buf *own = NULL;
    struct frame whole;
    int error;

    if (f->partial && !p->takes_partial) {
        own = buf_alloc(b);
        if (!own) {
            p->counts.no_memory++;
            return;
        }
        own->len = f->len;
        own->partial = false;
        frame_copy(own->data, f);
        frame_checksum(own->data, f->len, f->csum_start, f->csum_offset);
        frame_in(&whole, own);
        f = &whole;
    }
    error = p->deliver(p, f);
    if (error == -ENOSPC && f->gso_size) {
        /* There may be room for a part of it. A device whose ring has fewer bytes than a large
         * frame would never get one otherwise, however often it is sent again. */
        cut(b, p, f, now, arrive);
    } else if (error) {
        p->counts.ring_full++;
    } else {
        p->counts.out_frames++;
        p->counts.out_bytes += f->len;
        p->counts.out_large += f->gso_size != 0;
    }
    if (own) buf_free(b, own);
}

/* Sends a frame to the device of port `p`: over the link down if the link emulates something or if
 * frames wait there while the device has no room, and directly otherwise. A link carries single
 * frames, as a wire does, because its rate, its queue and its losses are meant for these. */
static void output(struct bridge *b, struct bridge_port *p, struct frame *f, u64 now) {
    bool link = netem_active(&p->down.netem) || p->pause;

    if (f->gso_size && (link || !p->takes_large)) {
        cut(b, p, f, now, output);
        return;
    }
    if (!link) {
        arrive(b, p, f, now);
        return;
    }
    link_send(b, &p->down, f, now, &p->counts);
    p->counts.queue_most = MAX(p->counts.queue_most, p->down.netem.held);
}

/* Passes on a frame that has come to the end of the link up: to the port that has its address, or
 * to all ports. A large frame is dropped instead of being passed to all ports, because it would
 * have to be cut for each of them. TCP sends it again in small ones, whose answers tell where the
 * address is. */
static void forward(struct bridge *b, struct bridge_port *from, struct frame *f, u64 now) {
    struct bridge_port *to = NULL;

    mac_learn(b, from, f->head + 6, now);
    if (!mac_group(f->head)) to = mac_find(b, f->head, now);
    if (to) {
        if (to != from) output(b, to, f, now);
        return;
    }
    if (f->gso_size) {
        from->counts.bad++;
        return;
    }
    for (u32 i = 0; i < b->nr; i++)
        if (b->port[i] && b->port[i] != from) output(b, b->port[i], f, now);
}

/* Returns whether the bridge takes a frame that the device of port `p` sends. It refuses frames of
 * a wrong length, frames from a group address, and checksums that lie beyond the end of the frame.
 * It also refuses frames from the address of another port's device. With these, one VM could
 * receive what is meant for another one. */
static bool acceptable(struct bridge *b, struct bridge_port *p, const struct frame *f) {
    const u8 *source = f->head + 6;
    struct bridge_port *owner = NULL;
    u32 most = FRAME_MAX;

    if (f->gso_size) most = GSO_FRAME_MAX;
    if (f->len < FRAME_HEAD || f->len > most || mac_group(source) ||
        (f->gso_size && netem_active(&p->up.netem)) ||
        (f->partial && (u32)f->csum_start + f->csum_offset + 2 > f->len)) {
        p->counts.bad++;
        return false;
    }
    if (mac_same(source, p->mac)) return true;
    if (!mac_none(source)) owner = mac_owner(b, source);
    if (owner) p->counts.spoofed++;
    return !owner;
}

/* Returns when the device behind the port may send: 0 means at once, else it is a time (ns). A
 * device has to wait while its link has frames for more than AHEAD, or while the link holds as many
 * frames as its queue takes. It is woken before the link runs dry. */
u64 bridge_wait(struct bridge *b, struct bridge_port *p, u64 now) {
    const struct netem *n = &p->up.netem;
    u64 until = 0;

    if (n->wire_free > now + AHEAD) until = n->wire_free - AHEAD / 2;
    if (netem_active(n) && n->held >= n->p.queue) {
        u64 due = p->up.first->due;

        if (due <= now) due = now + MAX(p->up.pause, 1ull); /* it waits for another port */
        until = MAX(until, due);
    }
    if (until) p->counts.backpressure++;
    return until;
}

/* Frames that break the rules are dropped and counted. Others go through the emulated link up, or
 * straight to the port where they belong if that link emulates nothing. */
void bridge_input(struct bridge *b, struct bridge_port *p, struct frame *f, u64 now) {
    if (!acceptable(b, p, f)) return;
    p->counts.in_frames++;
    p->counts.in_bytes += f->len;
    p->counts.in_large += f->gso_size != 0;
    f->buf = NULL;
    if (netem_active(&p->up.netem))
        link_send(b, &p->up, f, now, &p->counts);
    else
        forward(b, p, f, now);
}

/* Returns how long (ns) the first frame of the link up has to wait because the port where it goes
 * has told its senders to pause; 0: it need not wait. A frame that goes to all ports never waits,
 * because one device without room would then keep it from all others. */
static u64 paused_for(struct bridge *b, const struct link *up, u64 now) {
    const struct bridge_port *to;

    if (!up->first) return 0;
    to = mac_find(b, up->first->data, now);
    if (!to || !to->pause || to->down.netem.held < to->down.netem.p.queue) return 0;
    return to->pause;
}

/* Takes the frames that are due off the link up, and sends them on to where they belong. A frame
 * that has to wait keeps those behind it waiting, too, as in a switch. */
static void link_up_run(struct bridge *b, struct bridge_port *p, u64 now) {
    struct frame_buf *buf;

    while (!(p->up.pause = paused_for(b, &p->up, now)) && (buf = link_take(&p->up, now))) {
        struct frame f;

        frame_in(&f, buf);
        forward(b, p, &f, buf->due);
        if (f.buf) buf_free(b, f.buf); /* if it is NULL, another link has taken the buffer */
    }
}

/* Takes the frames that are due off the link down, and gives them to the device. With flow control
 * they wait while the device has no room. */
static void link_down_run(struct bridge *b, struct bridge_port *p, u64 now) {
    struct frame_buf *buf;

    p->down.pause = 0;
    for (;;) {
        struct frame f;

        if (p->pause && !p->has_room(p)) {
            p->down.pause = p->pause;
            return;
        }
        buf = link_take(&p->down, now);
        if (!buf) return;

        frame_in(&f, buf);
        arrive(b, p, &f, now);
        buf_free(b, buf);
    }
}

/* Returns when to look at the link again: when its first frame is due, or when its pause ends; ~0
 * if it holds no frame. */
static u64 link_next(const struct link *l, u64 now) {
    if (!l->first) return ~0ull;
    return MAX(l->first->due, now + l->pause);
}

/* Passes on the frames that are due at `now` on the emulated links. Returns when the next frame is
 * due; ~0 means that there is none. Frames on their way to the bridge (`up`) come first, because a
 * frame that arrives there may be due at another port (`down`) at the same time. */
u64 bridge_run(struct bridge *b, u64 now) {
    u64 next = ~0ull;

    for (u32 i = 0; i < b->nr; i++)
        if (b->port[i]) link_up_run(b, b->port[i], now);
    for (u32 i = 0; i < b->nr; i++) {
        struct bridge_port *p = b->port[i];

        if (!p) continue;
        link_down_run(b, p, now);
        next = MIN(next, MIN(link_next(&p->down, now), link_next(&p->up, now)));
    }
    return next;
}
