/* How many operations a second the store does on this host: called directly, and as a process
 * behind a UNIX socket; beside it, behind such a socket too, an xenstored.
 *
 *   store-bench [SOCKET]      SOCKET: of an xenstored that runs; tools/store-bench.sh tries to
 *                             start one
 *
 * Behind a socket: one request after the other (the kernel's part is in there), and 16 at a
 * time. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "mm/frame.h"
#include "store/store.h"

#define ARENA   (64u << 20)
#define BATCH   16u
#define SECONDS 0.3 /* a figure */

static double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    fprintf(stderr, "store-bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

static struct store_client *open_store(void) {
    static struct store_client c;
    void *arena = aligned_alloc(2u << 20, ARENA);

    directmap_base = (u64)arena;
    frame_add(0, ARENA);
    if (!arena || store_init(1) || store_open(&c, 0, true)) die("no memory");
    return &c;
}

/* ---- the operations, as packets ---- */

enum { READ, WRITE, MAKE_REMOVE, LIST, WATCHED, TRANSACTION, OPS };

static const char *const names[OPS] = { "read 16 bytes",          "write 16 bytes",
                                        "make and remove a node", "list 10 children",
                                        "write, one watch fires", "transaction: read, write" };

/* Who carries out packets: `n` of them are sent, then as many replies fetched. */
struct server {
    struct store_client *direct; /* NULL: behind a socket */
    int fd;
    u32 batch, waiting, tx;
    u64 replies;
    u8 out[BATCH * 256];
    u32 len;
};

static void read_all(int fd, void *buf, size_t n) {
    for (ssize_t got; n; n -= (size_t)got, buf = (char *)buf + got) {
        got = read(fd, buf, n);
        if (got <= 0) die("the server is gone");
    }
}

/* Sends what waits, takes all replies. Events are taken with them and not counted. */
static void flush(struct server *s) {
    struct store_packet p = { 0 };

    if (s->len && write(s->fd, s->out, s->len) != (ssize_t)s->len) die("write");
    s->len = 0;
    while (s->waiting) {
        read_all(s->fd, &p.head, sizeof(p.head));
        read_all(s->fd, p.data, p.head.len);
        if (p.head.type == XS_WATCH_EVENT) continue;
        if (p.head.type == XS_ERROR) fprintf(stderr, "store-bench: %s\n", p.data), exit(1);
        if (p.head.type == XS_TRANSACTION_START) s->tx = (u32)atoi((char *)p.data);
        s->waiting--;
        s->replies++;
    }
}

static void send_packet(struct server *s, u32 type, u32 tx, const void *payload, u32 len) {
    struct xs_header h = { .type = type, .req_id = 1, .tx_id = tx, .len = len };
    static struct store_packet event;
    struct store_client *c = s->direct;

    if (c) {
        c->in.head = h;
        memcpy(c->in.data, payload, len);
        while (!store_request(c))
            ;
        while (store_work())
            ;
        while (store_event(c, event.data))
            ;
        if (c->out.head.type == XS_ERROR)
            fprintf(stderr, "store-bench: %s\n", c->out.data), exit(1);
        if (type == XS_TRANSACTION_START) s->tx = (u32)atoi((char *)c->out.data);
        s->replies++;
        return;
    }
    memcpy(s->out + s->len, &h, sizeof(h));
    memcpy(s->out + s->len + sizeof(h), payload, len);
    s->len += (u32)sizeof(h) + len;
    if (++s->waiting == s->batch) flush(s);
}

static void send_text(struct server *s, u32 type, u32 tx, const char *path, const char *more,
                      u32 more_len) {
    u8 payload[256];
    u32 len = (u32)strlen(path) + 1;

    memcpy(payload, path, len);
    memcpy(payload + len, more, more_len);
    send_packet(s, type, tx, payload, len + more_len);
}

static void one(struct server *s, int op, u32 i, u32 nodes) {
    char path[64];

    snprintf(path, sizeof(path), "/bench/%u/%u", i * 7919 % nodes / 10, i * 7919 % nodes % 10);
    switch (op) {
    case READ: send_text(s, XS_READ, 0, path, "", 0); break;
    case WRITE: send_text(s, XS_WRITE, 0, path, "0123456789abcdef", 16); break;
    case MAKE_REMOVE:
        strcat(path, "/x");
        send_text(s, XS_MKDIR, 0, path, "", 0);
        send_text(s, XS_RM, 0, path, "", 0);
        break;
    case LIST:
        *strrchr(path, '/') = 0;
        send_text(s, XS_DIRECTORY, 0, path, "", 0);
        break;
    case WATCHED: send_text(s, XS_WRITE, 0, "/watched", "0123456789abcdef", 16); break;
    case TRANSACTION:
        send_packet(s, XS_TRANSACTION_START, 0, "", 1);
        if (!s->direct) flush(s);
        send_text(s, XS_READ, s->tx, path, "", 0);
        send_text(s, XS_WRITE, s->tx, path, "0123456789abcdef", 16);
        send_packet(s, XS_TRANSACTION_END, s->tx, "T", 2);
        if (!s->direct) flush(s);
        break;
    }
}

/* Operations a second. */
static double measure(struct server *s, int op, u32 nodes) {
    double start = now(), end;
    u32 n = 0;

    do {
        for (u32 k = 0; k < 64; k++) one(s, op, n++, nodes);
        if (!s->direct) flush(s);
        end = now();
    } while (end - start < SECONDS);
    return n / (end - start);
}

static void populate(struct server *s, u32 nodes) {
    char path[64];

    send_text(s, XS_MKDIR, 0, "/watched", "", 0);
    send_text(s, XS_RM, 0, "/watched", "", 0);
    for (u32 i = 0; i < nodes; i++) {
        snprintf(path, sizeof(path), "/bench/%u/%u", i / 10, i % 10);
        send_text(s, XS_WRITE, 0, path, "0123456789abcdef", 16);
    }
    if (!s->direct) flush(s);
}

/* ---- servers ---- */

static void serve(struct store_client *c, int fd) {
    static u8 in[65536], out[65536];
    u32 given;

    for (ssize_t got; (got = read(fd, in, sizeof(in))) > 0;) {
        for (u32 at = 0; at < got || c->out_len;) {
            at += store_feed(c, in + at, (u32)got - at);
            while ((given = store_drain(c, out, sizeof(out))))
                if (write(fd, out, given) != (ssize_t)given) exit(1);
            while (store_work())
                ;
        }
        while ((given = store_drain(c, out, sizeof(out))))
            if (write(fd, out, given) != (ssize_t)given) exit(1);
    }
    exit(0);
}

static int own_server(void) {
    int fd[2];

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) die("socketpair");
    switch (fork()) {
    case -1: die("fork"); break;
    case 0:
        close(fd[0]);
        serve(open_store(), fd[1]);
        break;
    }
    close(fd[1]);
    return fd[0];
}

static int connect_to(const char *path) {
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a))) die(path);
    return fd;
}

static void figures(double f[2][OPS], struct server *s) {
    static const u32 nodes[2] = { 10, 10000 };

    for (u32 i = 0; i < 2; i++) {
        populate(s, nodes[i]);
        if (!i) send_text(s, XS_WATCH, 0, "/watched", "t\0", 2);
        if (!s->direct) flush(s);
        for (int op = 0; op < OPS; op++) f[i][op] = measure(s, op, nodes[i]);
    }
}

int main(int argc, char **argv) {
    static double direct[2][OPS], own[2][OPS], own_many[2][OPS], xen[2][OPS], xen_many[2][OPS];
    static struct server s;

    s = (struct server){ .fd = own_server(), .batch = 1 };
    figures(own, &s);
    close(s.fd);
    s = (struct server){ .fd = own_server(), .batch = BATCH };
    figures(own_many, &s);
    close(s.fd);
    if (argc > 1) {
        s = (struct server){ .fd = connect_to(argv[1]), .batch = 1 };
        figures(xen, &s);
        send_text(&s, XS_UNWATCH, 0, "/watched", "t\0", 2);
        send_text(&s, XS_RM, 0, "/bench", "", 0);
        close(s.fd);
        s = (struct server){ .fd = connect_to(argv[1]), .batch = BATCH };
        figures(xen_many, &s);
        close(s.fd);
    }
    s = (struct server){ .direct = open_store() };
    figures(direct, &s);
    printf("%-26s %7s %9s | %10s %9s", "operations a second", "nodes", "called", "by one", "by 16");
    puts(argc > 1 ? " |  xenstored     by 16" : "");
    for (int op = 0; op < OPS; op++)
        for (u32 i = 0; i < 2; i++) {
            const char *name = "";
            int nodes = 10000;

            if (i == 0) {
                name = names[op];
                nodes = 10;
            }
            printf("%-26s %7d %9.0f | %10.0f %9.0f", name, nodes, direct[i][op], own[i][op],
                   own_many[i][op]);
            if (argc > 1) printf(" | %10.0f %9.0f", xen[i][op], xen_many[i][op]);
            putchar('\n');
        }
    if (argc == 1) puts("xenstored: not measured");
    return 0;
}
