/* Checks large frames of TCP over IPv4, and cuts them for ports that take no such frames. The
 * headers of each frame that is cut off are those of the large frame, with its own length and
 * number (IP), and its own sequence number and flags (TCP). The data are not copied. gso.h has the
 * contracts. */
#include "drivers/gso.h"

#define TYPE_AT   12 /* of the Ethernet header */
#define VLAN      0x8100
#define VLAN_TAG  4
#define IPV4      0x0800
#define IP_HEAD   20 /* bytes, without options; TCP's head has as many */
#define IP_LENGTH 2  /* places in the IP header */
#define IP_ID     4
#define IP_OFFSET 6
#define IP_PROTO  9
#define IP_SUM    10
#define IP_FROM   12
#define PROTO_TCP 6
#define TCP_SEQ   4 /* places in the TCP header */
#define TCP_WORDS 12
#define TCP_FLAGS 13
#define TCP_SUM   16
#define FIN       0x01
#define SYN       0x02
#define RST       0x04
#define PSH       0x08
#define URG       0x20
#define CWR       0x80

static u32 get16(const u8 *p) { return (u32)p[0] << 8 | p[1]; }

static u32 get32(const u8 *p) { return get16(p) << 16 | get16(p + 2); }

static void put16(u8 *p, u32 v) {
    p[0] = (u8)(v >> 8);
    p[1] = (u8)v;
}

static void put32(u8 *p, u32 v) {
    put16(p, v >> 16);
    put16(p + 2, v);
}

/* Returns the sum of `len` bytes as 16-bit words (RFC 1071), with the carries added back. `len` is
 * even. */
static u32 sum16(const u8 *p, u32 len) {
    u32 sum = 0;

    for (u32 i = 0; i < len; i += 2) sum += get16(p + i);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* Returns the offset of the IP header, which follows the type of the Ethernet header; 0 if it is
 * not IPv4. */
static u32 ip_at(const u8 *head) {
    if (get16(head + TYPE_AT) == IPV4) return FRAME_HEAD;
    if (get16(head + TYPE_AT) == VLAN && get16(head + TYPE_AT + VLAN_TAG) == IPV4)
        return FRAME_HEAD + VLAN_TAG;
    return 0;
}

u32 gso_cuts(const struct frame *f) {
    return (f->len - f->gso_head + f->gso_size - 1) / f->gso_size;
}

/* Reads the headers of a large frame, and checks that it can be cut. Returns false if it cannot: it
 * is not TCP over IPv4 with data, a length in a header is not that of the frame, its checksum is
 * not the open one of TCP, or the frames would be too long or too many. */
bool gso_check(struct frame *f, u8 head[GSO_HEAD_MAX]) {
    u32 have, ip, tcp;

    __builtin_memcpy(head, f->head, FRAME_HEAD);
    have = FRAME_HEAD + vring_copy_out(head + FRAME_HEAD, f->seg, f->nr, 0,
                                       MIN((u32)GSO_HEAD_MAX, f->len) - FRAME_HEAD);
    if (have < FRAME_HEAD + VLAN_TAG + 2 * IP_HEAD) return false;
    ip = ip_at(head);
    if (!ip || head[ip] >> 4 != 4 || head[ip + IP_PROTO] != PROTO_TCP) return false;
    if (get16(head + ip + IP_OFFSET) & 0x3fff) return false; /* a fragment */
    if (get16(head + ip + IP_LENGTH) != f->len - ip) return false;
    tcp = ip + (head[ip] & 15) * 4u;
    if (tcp < ip + IP_HEAD || tcp + IP_HEAD > have) return false;
    f->gso_head = (u16)(tcp + (head[tcp + TCP_WORDS] >> 4) * 4u);
    if (f->gso_head < tcp + IP_HEAD || f->gso_head > have || f->gso_head >= f->len) return false;
    if (head[tcp + TCP_FLAGS] & (SYN | RST | URG)) return false;
    if (!f->partial || f->csum_start != tcp || f->csum_offset != TCP_SUM) return false;
    return f->gso_size && f->gso_head + f->gso_size <= FRAME_MAX && gso_cuts(f) <= GSO_CUTS_MAX;
}

void gso_begin(struct gso *g, const struct frame *f) {
    u32 ip;

    g->from = f;
    g->done = g->nr = 0;
    g->seg = 0;
    g->at = f->gso_head - FRAME_HEAD;
    __builtin_memcpy(g->head, f->head, FRAME_HEAD);
    vring_copy_out(g->head + FRAME_HEAD, f->seg, f->nr, 0, f->gso_head - FRAME_HEAD);
    ip = ip_at(g->head);
    g->fixed_sum = sum16(g->head + ip + IP_FROM, 8) + PROTO_TCP;
    g->flags = g->head[f->csum_start + TCP_FLAGS];
    g->part = (struct frame){
        .partial = true, .csum_start = f->csum_start, .csum_offset = f->csum_offset, .seg = g->piece
    };
    __builtin_memcpy(g->part.head, f->head, FRAME_HEAD);
    g->piece[0] = (struct vring_seg){ g->head + FRAME_HEAD, f->gso_head - FRAME_HEAD };
}

/* Makes the headers of the next frame, which has `len` bytes of data, from those of the frame
 * before. FIN and PSH belong to the last frame, CWR to the first one. */
static void write_head(struct gso *g, u32 len) {
    u32 tcp = g->from->csum_start, ip = ip_at(g->head), sum;
    bool last = g->done + len == g->from->len - g->from->gso_head;
    u8 *h = g->head;

    h[tcp + TCP_FLAGS] = g->flags;
    if (!last) h[tcp + TCP_FLAGS] &= (u8) ~(FIN | PSH);
    if (g->nr > 0) {
        put16(h + ip + IP_ID, get16(h + ip + IP_ID) + 1);
        put32(h + tcp + TCP_SEQ, get32(h + tcp + TCP_SEQ) + g->from->gso_size);
        h[tcp + TCP_FLAGS] &= (u8)~CWR;
    }
    put16(h + ip + IP_LENGTH, g->from->gso_head - ip + len);
    put16(h + ip + IP_SUM, 0);
    put16(h + ip + IP_SUM, ~sum16(h + ip, tcp - ip));
    sum = g->fixed_sum + g->from->gso_head - tcp + len;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    put16(h + tcp + TCP_SUM, sum);
}

/* Cuts off the next frame. Returns NULL if there is none left. The segments of its data are parts
 * of those of the large frame, so nothing is copied here. */
struct frame *gso_next(struct gso *g) {
    const struct frame *f = g->from;
    u32 left = MIN((u32)f->gso_size, f->len - f->gso_head - g->done), len = left;

    if (!len) return NULL;
    write_head(g, len);
    g->part.len = f->gso_head + len;
    g->part.nr = 1;
    while (left && g->seg < f->nr) {
        const struct vring_seg *s = &f->seg[g->seg];
        u32 n = g->at < s->len ? MIN(s->len - g->at, left) : 0;

        if (n) g->piece[g->part.nr++] = (struct vring_seg){ s->p + g->at, n };
        left -= n;
        g->at += n;
        if (g->at >= s->len) {
            g->at -= s->len;
            g->seg++;
        }
    }
    g->done += len;
    g->nr++;
    return &g->part;
}
