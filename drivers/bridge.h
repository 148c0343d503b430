/* A learning bridge (IEEE 802.1D, without spanning tree) with finite ports, each of them at the end of an
 * emulated link.
 *
 *     device --[up: its rate holds the device back, then delay, loss]--> bridge --[down: a queue that
 * drops]--> device
 *
 * A frame is copied once, from the sender's memory into the receiver's, unless a link has to hold it
 * meanwhile. One context; time is the caller's, in ns.
 */
#ifndef DRIVERS_BRIDGE_H
#define DRIVERS_BRIDGE_H

#include "drivers/env.h"
#include "drivers/netem.h"
#include "drivers/vring_back.h"

#define FRAME_HEAD   14
#define FRAME_MAX    1518 /* with a VLAN tag, without the check sequence */
#define BRIDGE_PORTS 64
#define BRIDGE_MACS  256 /* addresses that are known at a time */
#define PORT_MACS    64  /* of these behind one port */
#define MAC_AGE      (300 * NS_PER_S)

/* A buffer of the bridge's own, for a frame that has to wait. */
struct frame_buf {
    struct frame_buf *next;
    u64 due;
    u32 len;
    bool partial;
    u16 csum_start, csum_offset;
    u8 data[FRAME_MAX];
};

/* A frame wherever it lies. Its Ethernet header is in memory of our own: what was judged is what travels. */
struct frame {
    u8 head[FRAME_HEAD];
    u32 len;                     /* of it all */
    const struct vring_seg *seg; /* of what follows the header */
    u32 nr;
    bool partial; /* a checksum is not filled in: virtio_net.h */
    u16 csum_start, csum_offset;
    struct frame_buf *buf; /* that it lies in, if it does */
    struct vring_seg own;  /* seg may be this one */
};

struct port_counts {
    u64 in_frames, in_bytes, out_frames, out_bytes;
    u64 bad;          /* malformed, too long, too short */
    u64 spoofed;      /* from an address that is another port's */
    u64 lost;         /* by the link, as it was asked to */
    u64 queue_full;   /* dropped at the link down */
    u64 ring_full;    /* dropped, as the device had no buffer */
    u64 no_memory;    /* dropped, as the bridge had none */
    u64 backpressure; /* times that the device had to wait for the link up */
    u32 queue_most;   /* frames held for the device, at most */
};

struct link {
    struct netem netem;
    struct frame_buf *first, *last;
};

struct bridge_port {
    /* set before bridge_add(), then constant */
    const char *name;
    u8 mac[6]; /* of the device, all zeros if it has none of its own; nobody else may use it */
    bool takes_partial;
    /* Copies the frame into the device. -ENOSPC: it has no room, -EINVAL: it is not in order. */
    int (*deliver)(struct bridge_port *p, const struct frame *f);
    /* the bridge's */
    struct link up, down;
    u32 macs; /* learned */
    u32 number;
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
    u32 nr; /* of ports, with gaps */
    struct bridge_mac mac[BRIDGE_MACS];
    struct frame_buf *free;
    u32 buffers, max_buffers; /* made so far */
};

/* `max_buffers`: of 1.5 KiB each, made when they are needed. */
void bridge_init(struct bridge *b, const struct driver_env *env, u32 max_buffers);
/* `up` and `down` as the links are to be. -ENOSPC: too many ports; -EEXIST: the address is another port's. */
int bridge_add(struct bridge *b, struct bridge_port *p, const struct netem_params *up,
               const struct netem_params *down);
/* What is on its way to it or from it is gone. */
void bridge_remove(struct bridge *b, struct bridge_port *p);

/* May the device behind the port send at `now`? 0, or when it may. Ask only if it wants to: that is counted.
 */
u64 bridge_wait(struct bridge *b, struct bridge_port *p, u64 now);
/* The device sends a frame. */
void bridge_input(struct bridge *b, struct bridge_port *p, struct frame *f, u64 now);
/* Frames that are due at `now` go on. When the next one is due; ~0: none. */
u64 bridge_run(struct bridge *b, u64 now);

/* All f->len bytes of it. */
void frame_copy(void *to, const struct frame *f);
/* Fills in the checksum from byte `start` on at start + offset (RFC 1071), both within the frame. */
void frame_checksum(u8 *data, u32 len, u32 start, u32 offset);

#endif
