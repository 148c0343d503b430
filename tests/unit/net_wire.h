/* A wire for the network stack, and at its other end a TCP peer that does what the test tells it
 * to. The test sets the time. */
#ifndef NET_WIRE_H
#define NET_WIRE_H

#include <netstack/net.h>
#include <netstack/socket.h>

#define WIRE_US   0x0a000001u /* 10.0.0.1: the stack */
#define WIRE_PEER 0x0a000002u

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32 };

/* A segment as the peer saw it, numbers in host order, window unscaled. */
struct seen {
    u32 seq, ack, window, len;
    u16 from, to;
    u8 flags;
    bool bad; /* a checksum or a length that is wrong */
    u8 data[1500];
};

extern u64 wire_now;        /* ns */
extern bool wire_tx_full;   /* the driver takes no frame */
extern bool wire_tx_open;   /* before the first wire_start(): the device completes checksums */
extern unsigned wire_bufs;  /* before the first wire_start(): buffers for received frames */
extern bool wire_checked;   /* the driver's word for what arrives */
extern unsigned wire_opens; /* frames whose checksum the device has completed */
extern void (*wire_spy)(const struct seen *s); /* sees each TCP segment that goes out */
extern unsigned wire_arps;
extern bool wire_cuts;       /* the device cuts large frames; otherwise it refuses them */
extern unsigned wire_larges; /* how many it has cut, so that `seen` are single ones */
/* The driver refers to data in a send buffer until the test calls net_kept_until_now() for each
 * that is counted here. */
extern bool wire_keeps;
extern unsigned wire_kept;

void wire_start(enum net_model model, bool early_ack); /* also again; ARP is resolved afterwards */
u64 wire_poll(void);                                   /* net_poll() until nothing is due */
/* Lets time pass, and calls net_poll() meanwhile. */
void wire_pass(u64 ms);

/* What has gone out since: oldest first; false if there is no more. Wrong ones fail in here. */
bool wire_seen(struct seen *out);
void wire_forget(void);

/* The sums of an IP packet with TCP or UDP behind an Ethernet header, where they have a place. */
void wire_fix_sums(u8 *frame, size_t len);

/* Threads of the machine's: who waits sleeps, instead of running the bottom half itself. */
void wire_threads(bool on);

/* One frame, as it is. */
void wire_frame(const void *frame, size_t len);

/* The peer of one connection. */
struct peer {
    u16 port, to;
    u32 iss, nxt;   /* its own first number, and the next to send by peer_send() */
    u32 irs, ack;   /* the stack's first number, and what the peer acknowledges */
    u32 una;        /* highest acknowledgement it has had */
    u32 edge;       /* highest right edge of a window that it was promised */
    u32 window;     /* that it offers, bytes */
    unsigned scale; /* of the stack's windows: what it offered in SYN */
    bool scaled;
    u8 break_sum; /* what the next segment's TCP checksum is off by */
    u32 acks;     /* segments without data that it has had */
    u32 data;     /* bytes that it has had */
    u8 flags;     /* of all that it has had */
};

void peer_segment(struct peer *p, u8 flags, u32 seq, const void *data, size_t len);
/* Opens a connection to the stack's port `to`, which must listen. */
void peer_connect(struct peer *p, u16 port, u16 to, bool scaled);
void peer_hear(struct peer *p); /* takes in what has gone out, without acknowledging */
void peer_acknowledge(struct peer *p);

/* The stream that tests send: byte number n. */
u8 stream_byte(u32 n);
void stream_fill(u8 *to, u32 from, size_t len);
/* From stream position `from`, which is at sequence number iss + 1 + from. */
void peer_data(struct peer *p, u32 from, size_t len);

/* The same in one large frame of up to 64 KiB, which lies in several buffers. */
void peer_large(struct peer *p, u32 from, size_t len);

/* How many bytes of the stack's heap and how many of its buffers are in use. */
size_t wire_heap(void);
unsigned wire_buffers(void);
/* Ends all connections without a word, so that the next test finds the stack as new. */
void wire_end(void);

#endif
