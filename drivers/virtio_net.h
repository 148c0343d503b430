/* The driver of a virtio network device (virtio 1.2, 5.1). One context at a time.
 *
 * Received frames stay in the driver's buffers until they are recycled; frames that are sent stay the
 * caller's until their token comes back. Nothing is shown to the device before virtio_net_flush(), so that a
 * batch costs one notification.
 */
#ifndef DRIVERS_VIRTIO_NET_H
#define DRIVERS_VIRTIO_NET_H

#include "drivers/virtio_dev.h"

#define VIRTIO_NET_PARTS 6 /* buffers that a received frame may take */
#define VIRTIO_NET_SEGS  6 /* segments that a frame to send may have */
#define VIRTIO_NET_MTU   1500

struct virtio_net_part {
    u8 *data;
    u32 len;
    u8 *buffer; /* to be given back by virtio_net_recycle() */
};

struct virtio_net_frame {
    u32 nr, len; /* of parts; bytes of all */
    struct virtio_net_part part[VIRTIO_NET_PARTS];
    /* The sender's word for it that data is whole: transport checksums need no look. `partial`: they are not
     * even filled in, but for the pseudo header, as among VMs of one machine: the sum from byte csum_start on
     * belongs at csum_start + csum_offset, should the frame travel on. */
    bool csum_ok, partial;
    u16 csum_start, csum_offset;
};

struct virtio_net_seg {
    const void *p;
    u32 len;
};

struct virtio_net_slot { /* of a frame that is being sent */
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
    u8 *buffers; /* NULL: they are the caller's */
    void (*put)(void *buffer);
    struct virtio_net_slot *slots;
    u32 slot_pages;
    /* the caller's context */
    struct vring_front rx, tx;
    struct virtio_net_slot *free;
    u64 rx_frames, rx_bytes, rx_bad, tx_frames, tx_bytes, tx_full, kicks;
};

/* Brings the device up with `nr` receive buffers of `size` bytes each, 12 of which are the header; frames
 * that do not fit into one take several. Sizes of rings follow. Negative errno. */
int virtio_net_start(struct virtio_net *n, struct virtio_dev *dev, u32 nr, u32 size);
/* The same with buffers of the caller's, who posts up to n->nr_buffers by virtio_net_recycle() and may
 * keep those that come back with frames as long as it posts others. What the device has when it is stopped
 * comes back through `put`. */
int virtio_net_start_own(struct virtio_net *n, struct virtio_dev *dev, u32 nr, u32 size,
                         void (*put)(void *buffer));
/* Resets the device and frees all. Tokens that are out come back through `sent`, if it is not NULL.
 * -ETIMEDOUT: the back end does not let go; nothing was freed. */
int virtio_net_stop(struct virtio_net *n, void (*sent)(void *token));

/* The next frame that has come; false: none. Its buffers are the caller's. */
bool virtio_net_receive(struct virtio_net *n, struct virtio_net_frame *f);
void virtio_net_recycle(struct virtio_net *n, u8 *buffer);
/* Asks for an interrupt for the next frame. True: one is there already. */
static inline bool virtio_net_listen(struct virtio_net *n) { return vring_front_listen(&n->rx, 1); }
static inline void virtio_net_ignore(struct virtio_net *n) { vring_front_ignore(&n->rx); }

/* A frame of up to VIRTIO_NET_SEGS segments. csum_start 0: its checksums are complete; else the device
 * completes the one at csum_start + csum_offset, if virtio_net_can_csum(). -ENOSPC: the ring is full. */
int virtio_net_send(struct virtio_net *n, const struct virtio_net_seg *seg, u32 nr, u16 csum_start,
                    u16 csum_offset, void *token);
static inline bool virtio_net_can_csum(const struct virtio_net *n) {
    return n->dev->features & VIRTIO_NET_F_CSUM;
}
/* Whether a frame that was sent is done with; *token is what came with it. */
bool virtio_net_sent(struct virtio_net *n, void **token);
/* After -ENOSPC: asks for an interrupt when half of what is out is done with. True: it is already. */
bool virtio_net_listen_sent(struct virtio_net *n);

/* Shows the device what was sent and recycled. True: a notification was due. */
bool virtio_net_flush(struct virtio_net *n);

#endif
