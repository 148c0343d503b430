/* Sockets for the threads of a guest.
 *
 * At any time one thread may receive on a socket, and one may send. The thread that receives closes
 * the socket, when no other thread uses it any more. A `deadline` is a time of net_host.now_ns(); 0
 * means not to wait at all, and NET_FOREVER to wait without a limit. Addresses and ports are
 * numbers: 10.0.0.1 is 0x0a000001.
 *
 * With NET_OWNER sockets work as in Linux (vTurbo, section 3.2): sock_recv() owns the socket while
 * it copies. The socket stays owned while the vCPU of the thread is off its pCPU. Segments that
 * arrive meanwhile are put into a backlog, and go through TCP when the thread releases the socket.
 */
#ifndef NETSTACK_SOCKET_H
#define NETSTACK_SOCKET_H

#include <takt/errno.h>
#include <takt/types.h>

/* The bytes that a receive buffer may have. */
#define NET_FOREVER    (~0ull)
#define NET_RCVBUF_MIN (64u << 10)
#define NET_RCVBUF_MAX (40u << 20)
#define NET_SNDBUF_MIN 4096u
#define NET_SNDBUF_MAX (40u << 20)

/* Errors that takt/errno.h does not have. The values are those of Linux. */
#define NET_ECONNABORTED 103
#define NET_ECONNRESET   104
#define NET_ENOTCONN     107
#define NET_EADDRINUSE   98
#define NET_EPIPE        32

struct sock;

enum sock_type { SOCK_TCP, SOCK_UDP };

struct sock_options {
    /* Size of the receive buffer in bytes; 0: 256 KiB. Values beyond NET_RCVBUF_MIN and
     * NET_RCVBUF_MAX become these. */
    u32 rcvbuf;
    /* Size of the send buffer in bytes; 0: 64 KiB. Rounded up to a power of two, 4 KiB to 1 MiB. */
    u32 sndbuf;
};

/* Returns how many buffers for received frames a socket with that `rcvbuf` reserves. */
unsigned net_bufs_for(u32 rcvbuf);

/* Opens a socket. The caller owns it until sock_close(). If `options` is NULL, all values are the
 * defaults. Returns 0, or
 *   -ENOSPC  no socket is left, or too few buffers are left to reserve what it needs
 *   -ENOMEM  there is too little memory */
int sock_open(enum sock_type type, const struct sock_options *options, struct sock **out);

/* Binds the socket to a port; 0 means any free one. Returns 0, or
 *   -NET_EADDRINUSE  another socket has the port
 *   -ENOMEM          there is too little memory
 *   -EBUSY           the command before has not ended, because its deadline came first */
int sock_bind(struct sock *s, u16 port);
/* Sends short segments at once from now on, as TCP_NODELAY does. Otherwise they wait until all that
 * was sent before is acknowledged (RFC 1122, 4.2.3.4), and the peer may wait with that for a
 * quarter of a second. For programs whose messages are answered by messages. */
void sock_no_delay(struct sock *s);
/* Lets peers connect: at most `most` connections at the same time, each with the options of `s`.
 * Memory for all of them is taken now, so that a connection is not refused later for lack of it.
 * Bind the socket first. Returns 0, or
 *   -EINVAL  `s` is not a TCP socket, is not bound, or listens already; or `most` is 0
 *   and the errors of sock_open() */
int sock_listen(struct sock *s, unsigned most);
/* Takes the next connection that a peer has made. The caller owns *out until sock_close(). Returns
 * 0, or
 *   -EINVAL  `s` does not listen
 *   -EAGAIN  the deadline came */
int sock_accept(struct sock *s, struct sock **out, u64 deadline);
/* Connects to a peer. A UDP socket sends nothing for that: it only remembers the address for
 * sock_send(). Returns 0, or
 *   -EAGAIN             the deadline came; the attempt goes on
 *   -EINVAL             the socket is connected, or listens
 *   -NET_ECONNRESET     the peer refused
 *   -NET_ECONNABORTED   lwIP gave up
 *   -ENOMEM             there is too little memory */
int sock_connect(struct sock *s, u32 ip, u16 port, u64 deadline);
/* Tells the address and port of the peer. */
void sock_peer(const struct sock *s, u32 *ip, u16 *port);

/* Receives up to `size` bytes, and waits until there is at least one. Returns how many, or
 *   0                the peer has closed the connection
 *   -EAGAIN          the deadline came
 *   -NET_ENOTCONN    the socket was never connected
 *   other errors     what ended the connection, such as -NET_ECONNRESET */
i64 sock_recv(struct sock *s, void *to, size_t size, u64 deadline);
/* Receives exactly `size` bytes from a TCP connection. Returns false if the connection ends before,
 * or if nothing comes for `silence` nanoseconds (NET_FOREVER: waits without an end). */
bool sock_recv_exactly(struct sock *s, void *to, size_t size, u64 silence);
/* Receives as sock_recv(), but without a copy: take() gets up to `size` bytes, piece by piece,
 * where they lie. The socket is owned meanwhile, as it is while an actor of Linux's tcp_read_sock()
 * runs, so take() must not use the socket. For TCP only. */
typedef void (*sock_take_fn)(void *arg, const u8 *data, size_t n);
i64 sock_recv_in_place(struct sock *s, size_t size, sock_take_fn take, void *arg, u64 deadline);
/* Copies `size` bytes to the send buffer, and waits for room. Returns how many bytes were copied.
 * These are fewer than `size` if the deadline came, or if the connection ended. If none were
 * copied, it returns
 *   -EAGAIN          the deadline came
 *   -NET_ENOTCONN    the socket is not connected
 *   other errors     what ended the connection */
i64 sock_send(struct sock *s, const void *from, size_t size, u64 deadline);
/* Sends without a buffer of the caller. sock_room() returns how many bytes may be written at *at,
 * or an error as sock_send() does. sock_filled() then says how many of them were written, and sends
 * them. For TCP only. */
i64 sock_room(struct sock *s, void **at, u64 deadline);
void sock_filled(struct sock *s, u32 n);
/* Receives one datagram; bytes beyond `size` are lost. `ip` and `port`, if not NULL, get the
 * sender's address. Returns how many bytes were stored, or
 *   -EAGAIN  the deadline came
 *   -EINVAL  `s` is not a UDP socket */
i64 sock_recv_from(struct sock *s, void *to, size_t size, u32 *ip, u16 *port, u64 deadline);
/* Sends one datagram of at most 1,472 bytes. A socket that has no port yet gets one. Returns 0, or
 *   -EAGAIN  the deadline came before there was room
 *   -EINVAL  `s` is not a UDP socket, or the datagram is too long */
int sock_send_to(struct sock *s, const void *from, size_t size, u32 ip, u16 port, u64 deadline);

/* Ends the stream to the peer: after this, nothing can be sent. Data from the peer can still be
 * received. Returns 0, or -NET_ENOTCONN if the socket is not connected. */
int sock_shutdown(struct sock *s);
/* Waits until the peer has acknowledged all that was sent. For TCP only. Returns 0, or
 *   -EAGAIN          the deadline came
 *   -NET_ENOTCONN    the socket is not connected
 *   other errors     what ended the connection */
int sock_flush(struct sock *s, u64 deadline);
/* Closes the socket; the caller must not use it any more. What is in the send buffer is still sent.
 * But if there is data that was not read, the connection is reset, as in Linux. The slot of the
 * socket is free again when the peer has acknowledged everything, or when lwIP has given up. */
void sock_close(struct sock *s);
/* Closes the socket and resets the connection. What has not arrived at the peer is lost. */
void sock_abort(struct sock *s);

/* sock_recv() calls these before and after it copies. With NET_PLAIN they do nothing. sock_own()
 * waits while the backlog has segments that the bottom half has not yet passed to TCP, because the
 * thread would otherwise overtake them. */
void sock_own(struct sock *s);
void sock_release(struct sock *s);

#endif
