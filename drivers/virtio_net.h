/* The driver of a virtio network device (virtio 1.2, 5.1). One caller at a time.
 *
 * A received frame stays in the driver's buffers until they are recycled. The memory of a frame
 * that is sent must not change until its token comes back. The device sees nothing before
 * virtio_net_flush(), so that a batch costs one notification.
 */
#ifndef DRIVERS_VIRTIO_NET_H
#define DRIVERS_VIRTIO_NET_H

#include "drivers/virtio_dev.h"

#define VIRTIO_NET_PARTS 48 /* the most buffers of a received frame; a large one may need them */
#define VIRTIO_NET_SEGS  6  /* the most segments of a frame to send */
#define VIRTIO_NET_MTU   1500
/* A large frame takes this many bytes at most, and so many buffers have to hold it. A driver whose
 * buffers are too small for that takes no large frames. */
#define VIRTIO_NET_LARGE 65549

/* Bytes of the header that the driver puts before a frame. */
#define VIRTIO_NET_ROOM ((u32)sizeof(struct virtio_net_hdr))

struct virtio_net_part {
    u8 *data;
    u32 len;
    u8 *buffer; /* give it back by virtio_net_recycle() */
};

struct virtio_net_frame {
    u32 nr, len; /* how many parts; bytes of all of them */
    struct virtio_net_part part[VIRTIO_NET_PARTS];
    /* The back end says that the data is whole: the transport checksum need not be checked. */
    bool csum_ok;
    /* The transport checksum is not even filled in, except for the pseudo header, as is usual
     * between VMs of one machine. If the frame is to leave the machine, the sum of the bytes from
     * csum_start on has to be stored at csum_start + csum_offset. */
    bool partial;
    u16 csum_start, csum_offset;
};

struct virtio_net_seg {
    const void *p;
    u32 len;
};

struct virtio_net_out { /* a frame to be sent */
    const struct virtio_net_seg *seg;
    u32 nr;
    u16 csum_start, csum_offset; /* as for virtio_net_send() */
    /* Not 0: a large frame of TCP over IPv4, whose first segment has its headers and whose checksum
     * is left to the device. The device passes it on as it is, or cuts it into frames with so many
     * bytes of data each. Only if virtio_net_can_cut(). */
    u16 cut;
    bool room; /* the VIRTIO_NET_ROOM bytes before the first segment are the driver's to use */
    void *token;
};

struct virtio_net_slot { /* what the driver keeps of a frame that is being sent */
    struct virtio_net_hdr hdr;
    struct virtio_net_slot *next;
    void *token;
};

struct virtio_net {
    /* set at start, then constant */
    struct virtio_dev *dev;
    u8 mac[6];
    u16 mtu;
    u32 nr_buffers, buffer_size;
    u8 *buffers;               /* receive buffers; NULL: the caller has them */
    void (*put)(void *buffer); /* the function that virtio_net_start_own() was given */
    struct virtio_net_slot *slots;
    u32 slot_pages;
    /* changed by the calls below */
    struct vring_front rx, tx;
    struct virtio_net_slot *free;
    u64 rx_frames, rx_bytes, rx_bad, tx_frames, tx_bytes, tx_full, kicks;
};

/* Brings the device up with `nr` receive buffers of `size` bytes each, of which the header takes
 * 12; a frame that does not fit into one takes several. Returns 0, or
 *   -EINVAL  nr or size is too small or too large
 *   an error of virtio_begin() or virtio_queue() */
int virtio_net_start(struct virtio_net *n, struct virtio_dev *dev, u32 nr, u32 size);
/* The same with buffers of the caller, which posts up to n->nr_buffers by virtio_net_recycle(). It
 * may keep buffers that come back with frames, as long as it posts others. The buffers that the
 * device has when it is stopped come back through `put`. */
int virtio_net_start_own(struct virtio_net *n, struct virtio_dev *dev, u32 nr, u32 size,
                         void (*put)(void *buffer));
/* Resets the device and frees all memory. Tokens of frames that were not sent yet come back through
 * `sent`, if it is not NULL. Returns 0, or -ETIMEDOUT if the back end does not release the memory:
 * nothing was freed then. */
int virtio_net_stop(struct virtio_net *n, void (*sent)(void *token));

/* Takes the next frame that was received. Returns false if there is none. Its buffers are the
 * caller's until it recycles them. */
bool virtio_net_receive(struct virtio_net *n, struct virtio_net_frame *f);
/* Gives a receive buffer to the device. The device sees it after virtio_net_flush(). */
void virtio_net_recycle(struct virtio_net *n, u8 *buffer);
/* Asks for an interrupt for the next frame. Returns true if there is a frame already; then there
 * may be no interrupt. */
static inline bool virtio_net_listen(struct virtio_net *n) { return vring_front_listen(&n->rx, 1); }
/* Asks for no interrupts for frames. */
static inline void virtio_net_ignore(struct virtio_net *n) { vring_front_ignore(&n->rx); }

/* Sends a frame of 1 to VIRTIO_NET_SEGS segments. If csum_start is 0, its checksums are complete.
 * If not, the device completes the checksum at csum_start + csum_offset; only if
 * virtio_net_can_csum(). Returns 0, or
 *   -ENOSPC  the ring is full
 *   -EINVAL  there are too many segments, or the device cannot complete checksums */
int virtio_net_send(struct virtio_net *n, const struct virtio_net_seg *seg, u32 nr, u16 csum_start,
                    u16 csum_offset, void *token);
/* The same, with all that may be said of a frame. */
int virtio_net_send_out(struct virtio_net *n, const struct virtio_net_out *o);
/* Returns whether the device cuts large frames. */
static inline bool virtio_net_can_cut(const struct virtio_net *n) {
    return n->dev->features & VIRTIO_NET_F_HOST_TSO4;
}
/* Returns whether the device completes checksums of frames that are sent. */
static inline bool virtio_net_can_csum(const struct virtio_net *n) {
    return n->dev->features & VIRTIO_NET_F_CSUM;
}
/* Takes the token of a frame that the device is done with. Returns false if there is none. */
bool virtio_net_sent(struct virtio_net *n, void **token);
/* After -ENOSPC: asks for an interrupt when the device is done with half of the frames that it has.
 * Returns true if it is done with them already; then there may be no interrupt. */
bool virtio_net_listen_sent(struct virtio_net *n);

/* Shows the device what was sent and recycled. Returns whether that took a notification. */
bool virtio_net_flush(struct virtio_net *n);

#endif
