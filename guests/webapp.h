/* A web application of three tiers, after Apache Olio, an event calendar: what each kind of
 * operation costs, and what its tiers send each other.
 *
 *   guests/webusers.c   users, who ask for pages, and the images in them
 *   guests/webapp.c     the web server, which makes the pages
 *   guests/webdb.c      the data base
 *   guests/nfs.c        the file server, with the images
 */
#ifndef GUESTS_WEBAPP_H
#define GUESTS_WEBAPP_H

#include <guest/compute.h>
#include <guest/guest.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <netstack/socket.h>
#include <netstack/start.h>

enum { WEBAPP_OPERATIONS = 7 };

/* One kind of operation. Table 2 of vTurbo has the names, and how often each was completed; that
 * is `share`, of its first column. The paper says nothing else about them, so all other columns are
 * assumptions:
 *
 *   cpu_us   what the page costs the web server. To add something costs more than to look at it,
 *            and to log in costs less. With its images an operation costs 5.3 ms on average. The
 *            paper's 400 users ask for 80 operations a second, if they begin one every 5 s as
 *            Olio's do. So they need 43 % of a core, and three other VMs leave 40 % of it. The
 *            server has to be at its limit, because the paper's is: it completes fewer than 80
 *   queries  how often the data base is asked; there is one for each list on a page
 *   commits  1: the operation ends with a transaction, which is safe on the disk when it is
 *            answered
 *   images   which the user fetches from the file server, through the web server, after the page.
 *            Olio's load generator expects three for a home page, with 20,000 bytes in all
 *   upload   KiB that the user sends, and the web server writes to the file server: a photo of a
 *            person, and for an event also a document
 *   page_kib what the page has */
struct webapp_operation {
    const char *name;
    u32 share, cpu_us, queries, commits, images, upload_kib, page_kib;
};

/* clang-format off */
static const struct webapp_operation webapp_operation[WEBAPP_OPERATIONS] = {
    /*                share  cpu_us queries commits images upload page */
    { "HomePage",     4028,  5000,  4,      0,      3,       0,   12 },
    { "Login",        1629,  3000,  2,      0,      0,       0,    4 },
    { "TagSearch",    5183,  5000,  4,      0,      3,       0,   12 },
    { "EventDetail",  3856,  5000,  6,      0,      1,       0,   12 },
    { "PersonDetail",  405,  5000,  5,      0,      1,       0,    8 },
    { "AddPerson",     127,  8000,  2,      1,      0,      32,    4 },
    { "AddEvent",      300, 10000,  2,      1,      0,     128,    4 },
};
/* clang-format on */

/* What the rest costs, all of it assumed. An image is about a third of the 20,000 bytes above, in
 * whole pages of a disk. */
#define WEBAPP_IMAGE    8192u  /* bytes */
#define WEBAPP_IMAGE_US 200    /* what an image costs the web server */
#define WEBAPP_QUERY_US 300    /* what a query or a transaction costs the data base */
#define WEBAPP_ANSWER   2048u  /* bytes that answer a query, after its head */
#define WEBAPP_RECORD   32768u /* bytes that the web server writes to a file at once */

/* The most connections to one server. A guest has 64 sockets. */
#define WEBAPP_POOL_MOST 48u
static const struct sock_options webapp_options = { NET_RCVBUF_MIN, 16384 };

/* A request of a user: part 0 is the page, and the parts after it are images. `upload` bytes follow
 * the head of a page. The answer has the same head, and `bytes` bytes follow it. */
struct webapp_head {
    u32 operation, part;
    u32 upload, bytes;
    u64 key;   /* random; it decides which rows or which image the request is about */
    u64 image; /* of the answer with an image: its place in the file server's file, in bytes */
};

/* A query. The answer has the same head, and WEBAPP_ANSWER bytes follow it. */
struct webdb_head {
    u64 key;     /* random; it decides which row the query is about */
    u32 commits; /* 1: change the row */
    u32 version; /* of an answer: how often the row has been changed */
};

/* Returns which of `n` things a random key is about: the smaller one of two, so that some things
 * are asked for more often than others. */
static inline u64 webapp_choose(u64 key, u64 n) {
    u64 one = (key >> 32) * n >> 32, two = (key & 0xffffffff) * n >> 32;

    return MIN(one, two);
}

/* Sends n bytes. Returns false if the connection has ended. */
static inline bool webapp_send(struct sock *s, const void *from, u64 n) {
    return sock_send(s, from, n, NET_FOREVER) == (i64)n;
}

/* Connections to a server that several threads share: each takes one for as long as it uses it.
 * Threads that wait for one get it in the order in which they came. */
struct webapp_pool {
    struct sock *idle[WEBAPP_POOL_MOST];
    u32 nr;            /* of `idle` */
    struct mutex lock; /* guards the two */
    struct semaphore there;
};

static inline void webapp_pool_give(struct webapp_pool *p, struct sock *s) {
    mutex_lock(&p->lock);
    p->idle[p->nr++] = s;
    mutex_unlock(&p->lock);
    sem_up(&p->there);
}

/* Waits until a connection is idle, and takes it. */
static inline struct sock *webapp_pool_take(struct webapp_pool *p) {
    struct sock *s;

    sem_down(&p->there);
    mutex_lock(&p->lock);
    s = p->idle[--p->nr];
    mutex_unlock(&p->lock);
    return s;
}

/* Makes n connections to a server. */
static inline void webapp_pool_open(struct webapp_pool *p, u32 n, u32 ip, u16 port) {
    mutex_init(&p->lock);
    sem_init(&p->there, 0);
    for (u32 i = 0; i < n; i++) {
        struct sock *s = net_connect(ip, port, &webapp_options);

        sock_no_delay(s);
        webapp_pool_give(p, s);
    }
}

/* Closes all connections, which no thread uses any more. */
static inline void webapp_pool_close(struct webapp_pool *p) {
    while (p->nr) sock_close(p->idle[--p->nr]);
}

/* Accepts `n` connections at a port, at most WEBAPP_POOL_MOST, and runs serve() with each as a
 * thread. Waits until all of them have ended. */
static inline void webapp_serve(u32 n, u16 port, void (*serve)(void *sock)) {
    struct thread *t[WEBAPP_POOL_MOST];
    struct sock *listener, *s;

    if (sock_open(SOCK_TCP, &webapp_options, &listener) || sock_bind(listener, port) ||
        sock_listen(listener, n))
        guest_panic("port %u: there is no network", port);
    for (u32 i = 0; i < n; i++) {
        if (sock_accept(listener, &s, NET_FOREVER)) guest_panic("port %u is closed", port);
        sock_no_delay(s);
        t[i] = thread_start(net_thread_vcpu(), "connection", serve, s);
        if (!t[i]) guest_panic("port %u: there is no memory for a connection", port);
    }
    for (u32 i = 0; i < n; i++) thread_join(t[i]);
}

/* Returns the number that follows `key=` on the command line: connections, at least one, and at
 * most WEBAPP_POOL_MOST. */
static inline u32 webapp_connections(const char *key, u32 otherwise) {
    return (u32)MIN(MAX(cmdline_u64(key, otherwise), 1ull), (u64)WEBAPP_POOL_MOST);
}

/* Returns how many times as much everything costs as the table says. */
static inline u64 webapp_times(void) { return MAX(cmdline_u64("times", 1), 1ull); }

/* Computes for `us` of this thread's CPU time. Takt counts the CPU time of a vCPU and not that of
 * its threads, so no more than one step counts at a time: what other threads had meanwhile does
 * not count. */
static inline void webapp_compute(u64 us) {
    const u64 step = 20 * NS_PER_US;
    u32 vcpu = this_vcpu()->id;

    for (u64 left = us * NS_PER_US, ran; left; left -= MIN(ran, MIN(step, left))) {
        u64 before = vcpu_times(vcpu).run_ns;

        compute_some(MIN(left, step));
        ran = vcpu_times(vcpu).run_ns - before;
    }
}

#endif
