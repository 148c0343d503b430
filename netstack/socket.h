/* Sockets, for threads. One thread at a time may receive on a socket, and one may send. The
 * receiving thread closes it, when no other thread uses it any more. A `deadline` is a time of
 * net_host.now_ns(); 0: do not wait; or NET_FOREVER.
 *
 * With NET_OWNER sockets work as in Linux (vTurbo, section 3.2): sock_recv() owns the socket while
 * it copies, also during times when its vCPU does not run. Segments that arrive meanwhile are put
 * into a backlog, and go through TCP when the socket is released.
 */
#ifndef NETSTACK_SOCKET_H
#define NETSTACK_SOCKET_H

#include <takt/errno.h>
#include <takt/types.h>

#define NET_FOREVER      (~0ull)
#define NET_RCVBUF_MIN   (64u << 10)
#define NET_RCVBUF_MAX   (40u << 20)

#define NET_ECONNABORTED 103 /* beyond takt/errno.h; values of Linux */
#define NET_ECONNRESET   104
#define NET_ENOTCONN     107
#define NET_EADDRINUSE   98
#define NET_EPIPE        32

struct sock;

enum sock_type { SOCK_TCP, SOCK_UDP };

struct sock_options {
    u32 rcvbuf; /* bytes of data; 0: 256 KiB. Made NET_RCVBUF_MIN to NET_RCVBUF_MAX */
    u32 sndbuf; /* bytes; 0: 64 KiB. Rounded up to a power of two, at most 1 MiB */
};

/* Buffers for received frames that a socket of that rcvbuf reserves. */
unsigned net_bufs_for(u32 rcvbuf);

/* Opens a socket, which is the caller's until sock_close(). `options` NULL: all defaults. Returns
 * 0, or
 *   -ENOSPC  there is no socket left, or there are too few buffers left to reserve
 *   -ENOMEM */
int sock_open(enum sock_type type, const struct sock_options *options, struct sock **out);

/* Binds to a port (0: any). Returns 0, -NET_EADDRINUSE or -ENOMEM. */
int sock_bind(struct sock *s, u16 port);
/* Lets peers connect: at most `most` connections at the same time, each with the options of `s`.
 * Memory for all of them is taken now. Returns 0, -EINVAL, or as sock_open(). */
int sock_listen(struct sock *s, unsigned most);
/* Takes a new connection. Returns 0, -EINVAL if `s` does not listen, or -EAGAIN if the deadline
 * came. */
int sock_accept(struct sock *s, struct sock **out, u64 deadline);
/* Connects. For UDP: sets the address that sock_send() sends to. */
int sock_connect(struct sock *s, u32 ip, u16 port, u64 deadline);
void sock_peer(const struct sock *s, u32 *ip, u16 *port);

/* Receives up to `size` bytes, at least one. Returns how many; 0 if the peer has closed the
 * connection; -EAGAIN if the deadline came; or what ended the connection, such as
 * -NET_ECONNRESET. */
i64 sock_recv(struct sock *s, void *to, size_t size, u64 deadline);
/* As sock_recv(), but without a copy: take() gets up to `size` bytes, piece by piece where they
 * lie, while the socket is owned, as an actor of Linux's tcp_read_sock() does. It must not use the
 * socket. Only for TCP. */
typedef void (*sock_take_fn)(void *arg, const u8 *data, size_t n);
i64 sock_recv_in_place(struct sock *s, size_t size, sock_take_fn take, void *arg, u64 deadline);
/* Copies `size` bytes to the send buffer. Returns how many were copied: fewer only if the deadline
 * came; -EAGAIN if none were. */
i64 sock_send(struct sock *s, const void *from, size_t size, u64 deadline);
/* Sends without a buffer of the caller: returns how many bytes of the stream may be written at *at,
 * or an error as sock_send(). Then sock_filled() says how many were written, and sends them. Only
 * for TCP. */
i64 sock_room(struct sock *s, void **at, u64 deadline);
void sock_filled(struct sock *s, u32 n);
/* Receives a datagram. What is beyond `size` is lost. */
i64 sock_recv_from(struct sock *s, void *to, size_t size, u32 *ip, u16 *port, u64 deadline);
int sock_send_to(struct sock *s, const void *from, size_t size, u32 ip, u16 port, u64 deadline);

/* Ends the stream to the peer: nothing more can be sent. */
int sock_shutdown(struct sock *s);
/* Waits until the peer has acknowledged all that was sent. Returns 0, -EAGAIN if the deadline came,
 * or what ended the connection. Only for TCP. */
int sock_flush(struct sock *s, u64 deadline);
/* Closes the socket. What is in the send buffer is still sent; but if there is unread data, the
 * connection is reset, as in Linux. The socket is free again when the peer has acknowledged all, or
 * lwIP has given up. */
void sock_close(struct sock *s);
/* Closes the socket and resets the connection: what has not arrived is lost. */
void sock_abort(struct sock *s);

/* sock_recv() calls these before and after it copies. With NET_PLAIN they do nothing. sock_own()
 * waits while the backlog has segments that the bottom half has not passed to TCP yet. */
void sock_own(struct sock *s);
void sock_release(struct sock *s);

#endif
