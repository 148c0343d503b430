/* Large frames of TCP over IPv4, of up to 64 KiB. In virtio this is called segmentation offload: a
 * VM hands over one large frame instead of many, and names the bytes of data that each of them
 * would have (gso_size). Between VMs a large frame passes as it is. For a port that cannot take it,
 * it is cut into frames such as the sender's TCP would have sent. */
#ifndef DRIVERS_GSO_H
#define DRIVERS_GSO_H

#include "drivers/bridge.h"

/* The most bytes of the headers: Ethernet with a VLAN tag, IP and TCP with all their options. */
#define GSO_HEAD_MAX (18 + 60 + 60)
/* The most bytes of a large frame: the length field of IP has 16 bits. */
#define GSO_FRAME_MAX (18 + 65535u)
/* The most frames that a large frame may stand for. Otherwise a sender with one byte of data in
 * each could keep the bridge busy with 65,000 frames at a time, for the price of one. */
#define GSO_CUTS_MAX 1024

/* Reads the headers of a large frame, which was checked by nobody yet, and checks that it can be
 * cut. `head` gets a copy of the headers, and f->gso_head their length. The caller has to use the
 * copy from then on, because the sender may change its memory at any time. Returns false if the
 * frame breaks the rules. */
bool gso_check(struct frame *f, u8 head[GSO_HEAD_MAX]);
/* Returns how many frames the large frame stands for. */
u32 gso_cuts(const struct frame *f);

/* The state of the cutting of a large frame. */
struct gso {
    const struct frame *from;
    u32 done; /* bytes of data that were cut off so far */
    u32 nr;   /* frames so far */
    /* Where the next data are: a segment of the large frame, and the byte in it. */
    u32 seg, at;
    u32 fixed_sum; /* of the pseudo header, without the length */
    u8 flags;      /* of the large frame's TCP header */
    /* The frame that was cut off last. Its headers are in `head`, and its data stay where the large
     * frame has them. */
    struct frame part;
    u8 head[GSO_HEAD_MAX];
    struct vring_seg piece[1 + VRING_MAX_SEGS];
};

/* Begins to cut a large frame, which gso_check() has found to be in order. */
void gso_begin(struct gso *g, const struct frame *f);
/* Cuts off the next frame. Returns it, with a checksum that is not filled in; it is valid until the
 * next call. Returns NULL if there is none left. */
struct frame *gso_next(struct gso *g);

#endif
