/* Sockets, for threads. One thread at a time receives on a socket and one sends; the receiving one closes it,
 * when no other uses it any more. Functions wait until `deadline` (net_host.now_ns(); 0: do not wait;
 * NET_FOREVER).
 *
 * With NET_OWNER the model is that of Linux (vTurbo, section 3.2): sock_recv() owns the socket while it
 * copies, also while its vCPU is off its pCPU; what arrives meanwhile goes to the backlog and through TCP
 * when the socket is released.
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

/* -ENOSPC: no socket or no buffers left to reserve; -ENOMEM. *out is the caller's until sock_close(). */
int sock_open(enum sock_type type, const struct sock_options *options, struct sock **out);

int sock_bind(struct sock *s, u16 port); /* 0: any; -NET_EADDRINUSE, -ENOMEM */
/* Makes `most` connections possible, open at the same time, each with the options of `s`; memory is taken
 * now. */
int sock_listen(struct sock *s, unsigned most);
int sock_accept(struct sock *s, struct sock **out, u64 deadline); /* -EAGAIN: the deadline */
int sock_connect(struct sock *s, u32 ip, u16 port, u64 deadline); /* UDP: where sock_send() goes */
void sock_peer(const struct sock *s, u32 *ip, u16 *port);

/* At least one byte unless the peer has closed (0); -EAGAIN: the deadline; -NET_ECONNRESET ... */
i64 sock_recv(struct sock *s, void *to, size_t size, u64 deadline);
/* As sock_recv(), without the copy: take() gets up to `size` bytes, piece by piece where they lie, and works
 * on them while the socket is owned, as an actor of Linux's tcp_read_sock() does. It must not use the socket.
 * TCP alone. */
typedef void (*sock_take_fn)(void *arg, const u8 *data, size_t n);
i64 sock_recv_in_place(struct sock *s, size_t size, sock_take_fn take, void *arg, u64 deadline);
/* How many bytes were taken: all of them unless the deadline came; -EAGAIN: none. */
i64 sock_send(struct sock *s, const void *from, size_t size, u64 deadline);
/* TCP without a buffer of the caller's: the next bytes of the stream are to be written at *at, so many at
 * most, in one piece; -EAGAIN: the deadline; as sock_send(). sock_filled() tells how many were, and they are
 * sent. */
i64 sock_room(struct sock *s, void **at, u64 deadline);
void sock_filled(struct sock *s, u32 n);
/* A datagram; what exceeds `size` is lost. */
i64 sock_recv_from(struct sock *s, void *to, size_t size, u32 *ip, u16 *port, u64 deadline);
int sock_send_to(struct sock *s, const void *from, size_t size, u32 ip, u16 port, u64 deadline);

int sock_shutdown(struct sock *s); /* no more is sent */
/* TCP: waits until the peer has acknowledged all that was taken. -EAGAIN: the deadline; or what ended the
 * connection. */
int sock_flush(struct sock *s, u64 deadline);
/* Sends what was taken; with data unread it resets the connection, as Linux does. Until the peer has
 * acknowledged, or lwIP given up, the socket counts among those that there may be. */
void sock_close(struct sock *s);
void sock_abort(struct sock *s); /* resets the connection: what has not arrived is lost */

/* What sock_recv() brackets its copying with. With NET_PLAIN they do nothing. sock_own() waits while
 * segments are in the backlog that the bottom half has not replayed yet. */
void sock_own(struct sock *s);
void sock_release(struct sock *s);

#endif
