/* Layouts of rings, network and block devices of "Virtual I/O Device (VIRTIO) Version 1.2", whose
 * sections are in brackets. Everything is little-endian, as x86 is. takt/device.h has the registers
 * and device types. */
#ifndef DRIVERS_VIRTIO_H
#define DRIVERS_VIRTIO_H

#include <takt/device.h>

/* ---- the split ring (2.7) ---- */

#define VRING_DESC_NEXT         1
#define VRING_DESC_WRITE        2 /* the device writes to the buffer */
#define VRING_DESC_INDIRECT     4
#define VRING_AVAIL_NO_IRQ      1
#define VRING_USED_NO_NOTIFY    1

#define VRING_AVAIL_BYTES(size) (6 + 2 * (u64)(size)) /* both count the event index at the end */
#define VRING_USED_BYTES(size)  (6 + 8 * (u64)(size))

struct vring_desc {
    u64 addr;
    u32 len;
    u16 flags, next;
};

struct vring_avail {
    u16 flags, idx;
    /* After the array comes u16 used_event: the used index after which the driver wants an
     * interrupt. */
    u16 ring[];
};

struct vring_used_elem {
    u32 id, len;
};

struct vring_used {
    u16 flags, idx;
    /* After the array comes u16 avail_event, the same for notifications of the device. */
    struct vring_used_elem ring[];
};

/* Returns whether an index has passed `event` on its way from `old` to `now` (2.7.7.2, 2.7.10.1).
 */
static inline bool vring_need_event(u16 event, u16 now, u16 old) {
    return (u16)(now - event - 1) < (u16)(now - old);
}

/* Returns an event index that asks for nothing, when `next` is the next entry to take. It is as far
 * away as an index can be, in both directions. The other side may be late: it shows entries, is
 * interrupted, and compares with the event index only when we have taken them. With an event index
 * of `next` - 1 it would find that it has just passed it. */
static inline u16 vring_no_event(u16 next) { return (u16)(next + 0x8000); }

/* ---- network (5.1) ---- */

#define VIRTIO_NET_F_CSUM       BIT(0) /* the device completes checksums of what is sent */
#define VIRTIO_NET_F_GUEST_CSUM BIT(1) /* the driver takes frames whose checksum is not complete */
#define VIRTIO_NET_F_MTU        BIT(3)
#define VIRTIO_NET_F_MAC        BIT(5)
#define VIRTIO_NET_F_GUEST_TSO4 BIT(7)  /* the driver takes large frames of TCP over IPv4 */
#define VIRTIO_NET_F_HOST_TSO4  BIT(11) /* the device cuts large frames of TCP over IPv4 */
#define VIRTIO_NET_F_MRG_RXBUF  BIT(15)
#define VIRTIO_NET_RX           0 /* queues */
#define VIRTIO_NET_TX           1
/* The checksum of the bytes from csum_start on is not filled in; it belongs at csum_start +
 * csum_offset. */
#define VIRTIO_NET_HDR_F_CSUM    1
#define VIRTIO_NET_HDR_F_CSUM_OK 2 /* checksums were checked */
#define VIRTIO_NET_HDR_GSO_NONE  0 /* in gso_type */
#define VIRTIO_NET_HDR_GSO_TCPV4 1 /* a large frame: `gso_size` bytes of data go into each frame */

struct virtio_net_config {
    u8 mac[6];
    u16 status, max_pairs, mtu;
};

struct virtio_net_hdr {
    u8 flags, gso_type;
    u16 hdr_len, gso_size, csum_start, csum_offset, num_buffers;
};

/* ---- block (5.2) ---- */

#define VIRTIO_BLK_F_SEG_MAX BIT(2)
#define VIRTIO_BLK_F_RO      BIT(5)
#define VIRTIO_BLK_F_FLUSH   BIT(9)
#define VIRTIO_BLK_F_MQ      BIT(12) /* several queues */
#define VIRTIO_BLK_F_DISCARD BIT(13)
#define VIRTIO_BLK_SECTOR    512u
#define VIRTIO_BLK_ID_BYTES  20u

enum virtio_blk_type {
    VIRTIO_BLK_IN = 0, /* from the disk */
    VIRTIO_BLK_OUT = 1,
    VIRTIO_BLK_FLUSH = 4,
    VIRTIO_BLK_GET_ID = 8,
    VIRTIO_BLK_DISCARD = 11,
};

enum virtio_blk_status { VIRTIO_BLK_OK, VIRTIO_BLK_IOERR, VIRTIO_BLK_UNSUPP };

struct virtio_blk_config {
    u64 capacity; /* sectors */
    u32 size_max, seg_max;
    u16 cylinders;
    u8 heads, sectors;
    u32 blk_size;
    u8 physical_exp, alignment;
    u16 min_io;
    u32 opt_io;
    u8 writeback, unused0;
    u16 num_queues;
    u32 max_discard_sectors, max_discard_seg, discard_alignment;
};

struct virtio_blk_hdr {
    u32 type, reserved;
    u64 sector;
};

struct virtio_blk_range { /* of a discard */
    u64 sector;
    u32 sectors, flags;
};

#endif
