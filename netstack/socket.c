/* Sockets as threads see them. Nothing here touches lwIP: all of lwIP runs in the *bottom half*, in
 * interrupt handlers of one vCPU. A thread shares with it only the socket's queues and single
 * words; it gives the bottom half a command and waits for the result. Neither side takes a lock
 * that the other may hold, because the other's vCPU may be off its pCPU for tens of milliseconds.
 * socket.h has the contracts. */
#include <netstack/sock.h>
#include <string.h>

/* ---- slots ---- */

/* A segment of any length takes one buffer. For short segments there must be more buffers than
 * bytes / 1,460. */
unsigned net_bufs_for(u32 rcvbuf) { return rcvbuf / 1024 + 64; }

/* Returns the smallest power of two that is at least n, because the indexes of queues wrap around.
 */
static u32 socket_power_of_two(u32 n) {
    u32 p = 1;

    while (p < n) p *= 2;
    return p;
}

/* Makes *mem hold at least `n` elements of `each` bytes, and rounds their number up to a power of
 * two, which it stores in *size. The contents are lost. Returns false if there is no memory. */
static bool resize(void *mem, u32 *size, u32 n, size_t each) {
    void **p = mem;

    n = socket_power_of_two(n);
    if (*p && *size == n) return true;
    if (*p) net.host.free(net.host.arg, *p);
    *p = net.host.alloc(net.host.arg, n * each);
    *size = 0;
    if (!*p) return false;
    *size = n;
    return true;
}

/* Reserves buffers for a socket. Returns false if too few are left. */
static bool socket_reserve(u32 bufs) {
    if (__atomic_add_fetch(&net.reserved, bufs, __ATOMIC_SEQ_CST) <=
        net.bufs - NET_BUFS_KEPT - net.config.posted)
        return true;
    __atomic_fetch_sub(&net.reserved, bufs, __ATOMIC_SEQ_CST);
    return false;
}

/* Opens a socket of that type, with buffers as `options` say (NULL: the defaults), and stores it in
 * *out. Returns 0, -ENOSPC or -ENOMEM. A slot is taken by compare-and-swap, because several threads
 * may open sockets at once. The socket's buffers are reserved now, so that a peer can never fill
 * more than its own connection's share. */
int sock_open(enum sock_type type, const struct sock_options *options, struct sock **out) {
    u32 rcvbuf = 256u << 10, sndbuf = 64u << 10;
    struct sock *s;
    u32 taken;

    if (options && options->rcvbuf) rcvbuf = options->rcvbuf;
    if (options && options->sndbuf) sndbuf = options->sndbuf;
    rcvbuf = MIN(MAX(rcvbuf, NET_RCVBUF_MIN), NET_RCVBUF_MAX);
    sndbuf = MIN(MAX(sndbuf, NET_SNDBUF_MIN), NET_SNDBUF_MAX);
    for (s = net.socks; s < net.socks + NET_SOCKETS; s++) {
        taken = SLOT_FREE;
        if (__atomic_compare_exchange_n(&s->slot, &taken, SLOT_TAKEN, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED))
            break;
    }
    if (s == net.socks + NET_SOCKETS) return -ENOSPC;
    sock_clear(s);
    s->type = type;
    s->rcvbuf = rcvbuf;
    s->quota = net_bufs_for(rcvbuf);
    s->ownable = net.model == NET_OWNER && type == SOCK_TCP;
    s->parent = NULL;
    s->no_delay = false;
    if (!socket_reserve(s->quota)) {
        __atomic_store_n(&s->slot, SLOT_FREE, __ATOMIC_RELEASE);
        return -ENOSPC;
    }
    if (!resize(&s->rx.slot, &s->rx.size, s->quota, sizeof(void *)) ||
        !resize(&s->tx.data, &s->tx.size, sndbuf, 1)) {
        __atomic_fetch_sub(&net.reserved, s->quota, __ATOMIC_SEQ_CST);
        __atomic_store_n(&s->slot, SLOT_FREE, __ATOMIC_RELEASE);
        return -ENOMEM;
    }
    *out = s;
    return 0;
}

/* ---- waiting ---- */

/* Waits until ready(s) is true. Returns false if the deadline came first. `waiting` is set before
 * ready() is asked for the last time, so that sock_wake() cannot miss a thread that is about to
 * wait. */
static bool socket_wait_for(struct sock *s, enum sock_event event, u64 deadline,
                            bool (*ready)(const struct sock *s)) {
    bool in_time = true;

    while (!ready(s)) {
        if (!in_time || deadline == 0) return false;
        __atomic_store_n(&s->waiting[event], 1, __ATOMIC_SEQ_CST);
        if (!ready(s)) in_time = net.host.wait(net.host.arg, 2 * sock_index(s) + event, deadline);
        __atomic_store_n(&s->waiting[event], 0, __ATOMIC_SEQ_CST);
    }
    return true;
}

/* Returns whether the socket's command has a result. */
static bool is_done(const struct sock *s) {
    return __atomic_load_n(&s->cmd_result, __ATOMIC_ACQUIRE) != 1;
}

/* Has the bottom half do `cmd` for the socket, and waits for the result. */
static int socket_command(struct sock *s, enum sock_cmd cmd, u64 deadline) {
    if (__atomic_load_n(&s->cmd, __ATOMIC_ACQUIRE) != CMD_NONE) return -EBUSY;
    s->cmd_result = 1;
    __atomic_store_n(&s->cmd, cmd, __ATOMIC_RELEASE);
    sock_notify(s);
    if (!socket_wait_for(s, EVENT_READ, deadline, is_done)) return -EAGAIN;
    return s->cmd_result;
}

/* ---- making connections ---- */

int sock_bind(struct sock *s, u16 port) {
    s->cmd_port = port;
    return socket_command(s, CMD_BIND, NET_FOREVER);
}

void sock_no_delay(struct sock *s) { s->no_delay = true; }

/* Lets up to `most` peers connect to the socket at the same time. Returns 0 or an error. A socket
 * is made for each connection that a peer may make, before any peer connects. */
int sock_listen(struct sock *s, unsigned most) {
    struct sock_options options = { s->rcvbuf, s->tx.size };

    if (s->type != SOCK_TCP || !most) return -EINVAL;
    if (!resize(&s->accepted.slot, &s->accepted.size, MIN(most, NET_SOCKETS), sizeof(void *)))
        return -ENOMEM;
    for (unsigned i = 0; i < most; i++) {
        struct sock *c;
        int err = sock_open(SOCK_TCP, &options, &c);

        if (err) return err; /* closing the listener frees the sockets that were made before */
        c->parent = s;
        __atomic_store_n(&c->slot, SLOT_SPARE, __ATOMIC_RELEASE);
    }
    return socket_command(s, CMD_LISTEN, NET_FOREVER);
}

/* A connection waits to be taken. */
static bool has_accepted(const struct sock *s) { return spsc_peek(&s->accepted) != NULL; }

int sock_accept(struct sock *s, struct sock **out, u64 deadline) {
    if (!s->listening) return -EINVAL;
    if (!socket_wait_for(s, EVENT_READ, deadline, has_accepted)) return -EAGAIN;
    *out = spsc_peek(&s->accepted);
    spsc_pop(&s->accepted);
    return 0;
}

int sock_connect(struct sock *s, u32 ip, u16 port, u64 deadline) {
    s->cmd_ip = ip;
    s->cmd_port = port;
    return socket_command(s, CMD_CONNECT, deadline);
}

void sock_peer(const struct sock *s, u32 *ip, u16 *port) {
    *ip = s->ip;
    *port = s->port;
}

int sock_shutdown(struct sock *s) { return socket_command(s, CMD_SHUTDOWN, NET_FOREVER); }

void sock_abort(struct sock *s) {
    s->abort = true;
    sock_close(s);
}

/* Closes the socket, which the caller must not use any more. No result is waited for: the bottom
 * half frees the socket when it can. */
void sock_close(struct sock *s) {
    __atomic_store_n(&s->cmd, CMD_CLOSE, __ATOMIC_RELEASE);
    sock_notify(s);
}

/* ---- receiving ---- */

/* Returns whether TCP has taken all segments of the backlog. */
static bool backlog_empty(const struct sock *s) {
    return __atomic_load_n(&s->backlog.count, __ATOMIC_SEQ_CST) == 0;
}

/* Makes the calling thread the owner of the socket, so that TCP leaves its receive queue alone
 * meanwhile. The order matters: the backlog must be empty before the thread owns the socket,
 * because otherwise the thread would read data that comes after what is still in the backlog. */
void sock_own(struct sock *s) {
    if (!s->ownable) return;
    socket_wait_for(s, EVENT_READ, NET_FOREVER, backlog_empty);
    __atomic_store_n(&s->owned, 1, __ATOMIC_SEQ_CST);
}

/* Publishes how much was read. Then calls the bottom half if it matters: segments wait in the
 * backlog, something was put off until the release, or a quarter of the buffer has become free
 * since the bottom half was last told. Otherwise the bottom half finds out when the next segment
 * arrives, and the call is saved. */
void sock_release(struct sock *s) {
    bool much, put_off;

    __atomic_store_n(&s->consumed, s->consumed + s->read, __ATOMIC_RELEASE);
    s->read = 0;
    much = s->consumed - s->reported >= s->rcvbuf / 4;
    __atomic_store_n(&s->owned, 0, __ATOMIC_SEQ_CST);
    put_off = __atomic_exchange_n(&s->put_off, 0, __ATOMIC_SEQ_CST);
    if (backlog_empty(s) && !put_off && !much) return;
    s->reported = s->consumed;
    sock_notify(s);
}

/* Returns whether there is data to read, or the end of the stream. */
static bool readable(const struct sock *s) {
    return __atomic_load_n(&s->eof, __ATOMIC_ACQUIRE) || spsc_peek(&s->rx);
}

/* Removes the first entry of rx, which was read. */
static void next_received(struct sock *s) {
    s->piece = NULL;
    s->offset = 0;
    spsc_pop(&s->rx);
}

/* Passes up to `size` bytes from the receive queue to take(), which copies them out, and removes
 * the entries that are used up. Their buffers go back to the stack with that. Returns how many
 * bytes it passed. */
static size_t take_out(struct sock *s, size_t size, sock_take_fn take, void *arg) {
    size_t done = 0;
    struct pbuf *p;

    while (done < size && (p = spsc_peek(&s->rx))) {
        size_t n;

        if (!s->piece) s->piece = p;
        n = MIN(size - done, (size_t)s->piece->len - s->offset);
        take(arg, (u8 *)s->piece->payload + s->offset, n);
        done += n;
        s->offset += n;
        if (s->offset < s->piece->len) break;
        s->offset = 0;
        s->piece = s->piece->next;
        if (!s->piece) next_received(s);
    }
    s->read += done;
    return done;
}

/* Receives as sock_recv(), but without a copy: take() gets the data piece by piece where it lies.
 * The socket is owned only while take() runs, and not while this waits for data. */
i64 sock_recv_in_place(struct sock *s, size_t size, sock_take_fn take, void *arg, u64 deadline) {
    bool eof;
    size_t n;

    if (s->type != SOCK_TCP) return -EINVAL;
    if (!s->connected && !s->eof) return -NET_ENOTCONN;
    if (size == 0) return 0;
    for (;;) {
        sock_own(s);
        eof = __atomic_load_n(&s->eof,
                              /* Read `eof` before the queue. When eof is set, all data is in the
                               * queue already; in the other order, the last data could be missed.
                               */
                              __ATOMIC_ACQUIRE);
        n = take_out(s, size, take, arg);
        sock_release(s);
        if (n) return n;
        if (eof) return s->error;
        if (!socket_wait_for(s, EVENT_READ, deadline, readable)) return -EAGAIN;
    }
}

/* Copies the data for sock_recv() (a sock_take_fn), and moves the pointer in `arg` on. */
static void copy_on(void *arg, const u8 *data, size_t n) {
    u8 **to = arg;

    memcpy(*to, data, n);
    *to += n;
}

i64 sock_recv(struct sock *s, void *to, size_t size, u64 deadline) {
    u8 *at = to;

    if (s->type == SOCK_UDP) return sock_recv_from(s, to, size, NULL, NULL, deadline);
    return sock_recv_in_place(s, size, copy_on, &at, deadline);
}

bool sock_recv_exactly(struct sock *s, void *to, size_t size, u64 silence) {
    for (size_t done = 0; done < size;) {
        u64 deadline = silence == NET_FOREVER ? NET_FOREVER : net_now() + silence;
        i64 got = sock_recv(s, (u8 *)to + done, size - done, deadline);

        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* Receives one datagram. Returns how many bytes were stored, or a negative error. The datagram is
 * copied and its buffer given back; bytes for which the caller has no room are lost, as in every
 * socket interface. */
i64 sock_recv_from(struct sock *s, void *to, size_t size, u32 *ip, u16 *port, u64 deadline) {
    struct pbuf *p;
    struct net_buf *nb;
    size_t n;
    u32 len;

    if (s->type != SOCK_UDP) return -EINVAL;
    if (!socket_wait_for(s, EVENT_READ, deadline, readable)) return -EAGAIN;
    p = spsc_peek(&s->rx);
    nb = container_of(p, struct net_buf, pc.pbuf);
    len = p->len;
    n = MIN(size, len);
    memcpy(to, p->payload, n);
    if (ip) *ip = nb->ip;
    if (port) *port = nb->port;
    next_received(s);
    s->read += len;
    sock_release(s);
    return n;
}

/* ---- sending ---- */

/* Returns whether the connection has ended with an error. */
static bool lost(const struct sock *s) {
    return __atomic_load_n(&s->eof, __ATOMIC_ACQUIRE) && s->error;
}

/* Returns how many bytes the send buffer has room for, as far as it may be used. */
static u32 send_room(const struct sock *s) {
    u32 most = MIN(s->tx.size, __atomic_load_n(&net.sndbuf, __ATOMIC_RELAXED));

    return most - MIN(byte_ring_count(&s->tx), most);
}

/* The send buffer has room, or the connection has ended, so that waiting would be in vain. */
static bool writable(const struct sock *s) { return send_room(s) || lost(s); }

/* The peer has acknowledged all, or the connection has ended. */
static bool socket_flushed(const struct sock *s) { return byte_ring_count(&s->tx) == 0 || lost(s); }

int sock_flush(struct sock *s, u64 deadline) {
    if (!s->connected || s->type != SOCK_TCP) return -NET_ENOTCONN;
    if (!socket_wait_for(s, EVENT_WRITE, deadline, socket_flushed)) return -EAGAIN;
    if (!byte_ring_count(&s->tx)) return 0;
    return s->error;
}

/* Waits until there is room in the send buffer. Returns how many bytes may be written at *at, or a
 * negative error. If the send buffer is full, the bottom half is called, because it may have bytes
 * to take that it was not told of. */
i64 sock_room(struct sock *s, void **at, u64 deadline) {
    u32 n;

    if (s->type != SOCK_TCP) return -EINVAL;
    if (!s->connected) return -NET_ENOTCONN;
    for (;;) {
        if (s->error) return s->error;
        n = MIN(byte_ring_room(&s->tx, (u8 **)at), send_room(s));
        if (n) return n;
        sock_notify(s);
        if (!socket_wait_for(s, EVENT_WRITE, deadline, writable)) return -EAGAIN;
    }
}

void sock_filled(struct sock *s, u32 n) {
    byte_ring_written(&s->tx, n);
    sock_notify(s);
}

/* Sends `size` bytes: copies them into the send buffer, and waits whenever that is full. Returns
 * how many bytes were copied, or a negative error. The bottom half is called once at the end, so
 * that it sends full segments. */
i64 sock_send(struct sock *s, const void *from, size_t size, u64 deadline) {
    const u8 *data = from;
    size_t done = 0;

    if (!s->connected) return -NET_ENOTCONN;
    if (s->type == SOCK_UDP) {
        int err = sock_send_to(s, from, size, s->ip, s->port, deadline);

        if (err) return err;
        return (i64)size;
    }
    while (done < size) {
        void *at;
        i64 n = sock_room(s, &at, deadline);

        if (n < 0 && done) return (i64)done; /* the error comes again at the next call */
        if (n < 0) return n;
        n = MIN((u64)n, size - done);
        memcpy(at, data + done, n);
        byte_ring_written(&s->tx, n);
        done += n;
    }
    sock_notify(s);
    return done;
}

/* Returns whether there is room for the largest datagram. */
static bool sendable(const struct sock *s) {
    return send_room(s) >= sizeof(struct udp_head) + 1472;
}

/* Sends one datagram. Returns 0 or a negative error. A datagram lies in the send buffer behind a
 * head with its address and its length. */
int sock_send_to(struct sock *s, const void *from, size_t size, u32 ip, u16 port, u64 deadline) {
    struct udp_head head = { ip, port, size };
    const u8 *part[2] = { (const u8 *)&head, from };
    size_t len[2] = { sizeof(head), size };

    if (s->type != SOCK_UDP || size > 1472) return -EINVAL;
    if (!s->connected) { /* a socket that is not bound gets any free port */
        int err = sock_connect(s, 0, 0, NET_FOREVER);

        if (err) return err;
    }
    if (!socket_wait_for(s, EVENT_WRITE, deadline, sendable)) return -EAGAIN;
    /* Head and data become visible together, because the bottom half may look between the two
     * copies. */
    for (u32 tail = s->tx.tail, i = 0; i < 2; i++) {
        for (size_t n, done = 0; done < len[i]; done += n, tail += n) {
            u32 at = tail & (s->tx.size - 1);

            n = MIN(len[i] - done, s->tx.size - at);
            memcpy(s->tx.data + at, part[i] + done, n);
        }
        if (i == 1) byte_ring_written(&s->tx, sizeof(head) + size);
    }
    sock_notify(s);
    return 0;
}
