/* A learning bridge (IEEE 802.1D, without spanning tree) with a limited number of ports. Each port
 * is at the end of an emulated link.
 *
 *     device --[up: its rate holds the device back, then delay, loss]--> bridge
 *     bridge --[down: a queue that drops, or holds back the senders]--> device
 *
 * A frame is copied once, from the sender's memory to the receiver's, unless a link has to hold it
 * for a while. One caller at a time may use a bridge. The caller passes the time, in ns. */
#ifndef DRIVERS_BRIDGE_H
#define DRIVERS_BRIDGE_H

#include "drivers/env.h"
#include "drivers/netem.h"
#include "drivers/vring_back.h"

#define FRAME_HEAD   14
#define FRAME_MAX    1518 /* with a VLAN tag, without the check sequence */
#define BRIDGE_PORTS 64
#define BRIDGE_MACS  256 /* addresses that the bridge knows at a time */
#define PORT_MACS    64  /* how many of these may be behind one port */
/* An address is forgotten when no frame has come from it for so long, in ns. */
#define MAC_AGE (300 * NS_PER_S)

/* A buffer of the bridge, for a frame that has to wait on a link. */
struct frame_buf {
    struct frame_buf *next;
    u64 due; /* when the frame arrives, ns */
    u32 len;
    bool partial;
    u16 csum_start, csum_offset;
    u8 data[FRAME_MAX];
};

/* A frame, wherever it lies. Its Ethernet header is a copy, so that its sender cannot change the
 * addresses after they were checked. */
struct frame {
    u8 head[FRAME_HEAD];
    u32 len;                     /* bytes of the whole frame */
    const struct vring_seg *seg; /* `nr` segments, which hold what follows the header */
    u32 nr;
    bool partial;                /* a checksum is not filled in: virtio_net.h */
    u16 csum_start, csum_offset; /* if `partial`: which one */
    /* Not 0: this is a large frame (drivers/gso.h), which stands for frames with so many bytes of
     * data; its headers have `gso_head` bytes. */
    u16 gso_size, gso_head;
    /* The buffer of the bridge in which the frame lies; NULL: it lies elsewhere. */
    struct frame_buf *buf;
    struct vring_seg own; /* room for one segment, to which `seg` may point */
};

struct port_counts {
    u64 in_frames, in_bytes, out_frames, out_bytes;
    u64 in_large, out_large; /* those of the frames above that were large */
    u64 bad;                 /* malformed, too long, too short */
    u64 spoofed;             /* dropped: sent from the address of another port's device */
    u64 lost;                /* lost by the emulated link on purpose */
    u64 reordered;           /* overtook another one on the emulated link */
    u64 queue_full;          /* dropped because the link's queue was full */
    u64 ring_full;           /* dropped because the device had no buffer */
    u64 no_memory;           /* dropped because the bridge had no memory */
    u64 backpressure;        /* times that the device had to wait for the link up */
    u32 queue_most;          /* the most frames that were held for the device at a time */
};

struct link {
    struct netem netem;
    struct frame_buf *first, *last;
    u64 pause; /* how long (ns) its first frame waits, although it is due; 0: it does not wait */
};

struct bridge_port {
    /* set before bridge_add(), then constant */
    const char *name;
    /* The address of the device, which no other port may use; all zeros: it has none. */
    u8 mac[6];
    bool takes_partial; /* the device takes frames whose checksum is not filled in */
    bool takes_large;   /* it takes large frames; then it takes such checksums, too */
    /* Flow control (IEEE 802.3x): while the device has no room, frames for it wait on its link, and
     * the bridge looks again after so long (ns). When that link holds as many as its queue takes,
     * frames wait on the links of their senders, and when these are full, the senders wait. 0:
     * frames without room are dropped. */
    u64 pause;
    bool (*has_room)(struct bridge_port *p); /* for one frame more; needed with `pause` */
    /* Copies the frame into the device. Returns 0, or
     *   -ENOSPC  the device has no room
     *   -EINVAL  the device is not in order */
    int (*deliver)(struct bridge_port *p, const struct frame *f);
    /* Only the bridge uses these. */
    struct link up, down;
    u32 macs;   /* how many addresses were learned to be behind this port */
    u32 number; /* its index in bridge.port[] */
    struct port_counts counts;
};

struct bridge_mac {
    u8 mac[6];
    u16 used;
    u64 seen;
    struct bridge_port *port;
};

struct bridge {
    const struct driver_env *env;
    struct bridge_port *port[BRIDGE_PORTS];
    u32 nr; /* the highest index of a port, plus 1; entries before it may be NULL */
    struct bridge_mac mac[BRIDGE_MACS];
    struct frame_buf *free;
    u32 buffers, max_buffers; /* how many were allocated so far, and how many may be */
    u64 cut;                  /* frames that were cut off large ones */
};

/* Makes an empty bridge. It allocates buffers of 1.5 KiB when it needs them, at most max_buffers.
 */
void bridge_init(struct bridge *b, const struct driver_env *env, u32 max_buffers);
/* Adds the port, with links as `up` and `down` describe them. Returns 0, or
 *   -ENOSPC  there are too many ports
 *   -EEXIST  another port has the address */
int bridge_add(struct bridge *b, struct bridge_port *p, const struct netem_params *up,
               const struct netem_params *down);
/* Removes the port. Frames on their way to it or from it are dropped. */
void bridge_remove(struct bridge *b, struct bridge_port *p);

/* Returns when the device behind the port may send: 0 means at once, else it is a time. Call it
 * only if the device wants to send, because it counts how often a device has to wait. */
u64 bridge_wait(struct bridge *b, struct bridge_port *p, u64 now);
/* Takes a frame that the device sends. The frame's memory has to stay valid only during the call. A
 * large frame must have passed gso_check(), and must not come from a port with an emulated link. */
void bridge_input(struct bridge *b, struct bridge_port *p, struct frame *f, u64 now);
/* Passes on the frames that are due at `now`. Returns the time at which it has to be called again,
 * because the next one is due or the pause of a port ends; ~0 means that there is none. */
u64 bridge_run(struct bridge *b, u64 now);

/* Copies all f->len bytes of a frame. */
void frame_copy(void *to, const struct frame *f);
/* Computes the checksum (RFC 1071) of the bytes from `start` to the end of the frame, and stores it
 * at byte start + offset. Both must be within the frame. */
void frame_checksum(u8 *data, u32 len, u32 start, u32 offset);

#endif
