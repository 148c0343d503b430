/* The web server of a web application (guests/webapp.h). A thread serves each connection. For
 * a page it computes, asks the data base, and perhaps writes what the user has sent to the file
 * server; for an image it reads from the file server.
 *
 *   port=P (80)              the port
 *   connections=N (8)        connections of users, up to 48; it ends when all were made and have
 *                            ended
 *   db=A.B.C.D (10.0.0.4)    the data base (guests/webdb.c), and db_port=P (3306)
 *   to_db=N (4)              connections to the data base, which all threads share. With the other
 *                            ones there may be 62
 *   files=A.B.C.D (10.0.0.5) the file server (guests/nfs.c), and files_port=P (2049). All threads
 *                            share one connection to it, as all processes do in Linux
 *   images=N (256)           how many images the file has
 *   times=N (1)              how many times as much everything costs as guests/webapp.h says, for
 *                            a machine that is slower than the paper's
 *
 * netstack/start.h has more words. It prints how many operations of each kind it answered, and what
 * it asked the others for. The exit code is 0 if all answers were right. */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/workload.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include <takt/seed.h>
#include "guests/nfs.h"
#include "guests/webapp.h"

static u32 done[WEBAPP_OPERATIONS]; /* atomic, as are the next two */
static u32 queries, commits, images, records;
static u32 wrong;
static u8 *page[WEBAPP_OPERATIONS];
static struct webapp_pool db;
static u64 times; /* as on the command line */

/* ---- the data base ---- */

/* Asks the data base, or makes a transaction. `answer` has room for WEBAPP_ANSWER bytes. */
static void query(u64 key, bool commit, u8 *answer) {
    struct webdb_head head = { .key = key, .commits = commit }, got;
    struct sock *s = webapp_pool_take(&db);

    if (!webapp_send(s, &head, sizeof(head)) ||
        !sock_recv_exactly(s, &got, sizeof(got), NET_FOREVER) ||
        !sock_recv_exactly(s, answer, WEBAPP_ANSWER, NET_FOREVER))
        guest_panic("webapp: the data base has gone");
    webapp_pool_give(&db, s);
    if (got.key != key || got.commits != commit || (commit && !got.version))
        __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    if (commit)
        __atomic_fetch_add(&commits, 1, __ATOMIC_RELAXED);
    else
        __atomic_fetch_add(&queries, 1, __ATOMIC_RELAXED);
}

/* ---- the file server ---- */

/* A request that is under way; on the stack of the thread that waits for it. */
struct pending {
    struct nfs_head head;
    u8 *buffer; /* for what is read */
    struct semaphore done;
    struct pending *next;
};

static struct {
    struct sock *s;
    struct mutex sending; /* requests are sent in the order of the list */
    struct mutex lock;    /* guards the list */
    struct pending *first, *last;
    struct semaphore under_way; /* how many are in the list, and 1 more at the end */
    struct thread *receiver;
} files = { .sending = MUTEX, .lock = MUTEX, .under_way = SEMAPHORE(0) };

/* Takes the oldest request from the list. Returns NULL if there is none. */
static struct pending *files_oldest(void) {
    struct pending *p;

    mutex_lock(&files.lock);
    p = files.first;
    if (p) files.first = p->next;
    mutex_unlock(&files.lock);
    return p;
}

/* Receives all answers, as a thread, and wakes the threads that wait for them. Ends when it is
 * woken and no request is under way. */
static void files_receive(void *arg) {
    for (;;) {
        struct pending *p;
        struct nfs_head got;

        sem_down(&files.under_way);
        p = files_oldest();
        if (!p) break;
        if (!sock_recv_exactly(files.s, &got, sizeof(got), NET_FOREVER) || got.status ||
            (got.op == NFS_READ && !sock_recv_exactly(files.s, p->buffer, got.len, NET_FOREVER)))
            guest_panic("webapp: the file server has gone, or its file is too short");
        if (got.op != p->head.op || got.offset != p->head.offset)
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
        sem_up(&p->done);
    }
    sock_close(files.s);
}

/* Sends a request to the file server, and waits for the answer. `buffer` has what is to be written,
 * or room for what is read. */
static void files_ask(enum nfs_op op, u64 offset, u32 len, u8 *buffer) {
    struct pending p = { .head = { op, len, offset, 0 }, .buffer = buffer };

    sem_init(&p.done, 0);
    mutex_lock(&files.sending);
    mutex_lock(&files.lock);
    if (files.first)
        files.last->next = &p;
    else
        files.first = &p;
    files.last = &p;
    mutex_unlock(&files.lock);
    if (!webapp_send(files.s, &p.head, sizeof(p.head)) ||
        (op == NFS_WRITE && !webapp_send(files.s, buffer, len)))
        guest_panic("webapp: the file server has gone");
    mutex_unlock(&files.sending);
    sem_up(&files.under_way);
    sem_down(&p.done);
}

/* Returns how many images the file has: at least 16, because the longest upload takes the place of
 * so many. */
static u64 image_count(void) { return MAX(cmdline_u64("images", 256), 16ull); }

/* Returns where the image that `key` is about begins in the file. */
static u64 image_at(u64 key) { return webapp_choose(key, image_count()) * WEBAPP_IMAGE; }

/* ---- pages ---- */

/* Takes what the user uploads, and writes it to the file server, in the place of the image that the
 * key is about, and of those behind it. Returns false if the user has gone. */
static bool upload(struct sock *s, const struct webapp_head *head, u8 *buffer) {
    u64 at = MIN(image_at(head->key), image_count() * WEBAPP_IMAGE - head->upload);

    for (u32 n = 0; n < head->upload; n += WEBAPP_RECORD, at += WEBAPP_RECORD) {
        if (!sock_recv_exactly(s, buffer, WEBAPP_RECORD, NET_FOREVER)) return false;
        workload_fill(buffer, 0, at, WEBAPP_RECORD);
        files_ask(NFS_WRITE, at, WEBAPP_RECORD, buffer);
        __atomic_fetch_add(&records, 1, __ATOMIC_RELAXED);
    }
    if (head->upload) files_ask(NFS_COMMIT, 0, 0, NULL);
    return true;
}

/* Makes and sends a page. The server computes before, between and after its queries. Returns false
 * if the user has gone. */
static bool send_page(struct sock *s, struct webapp_head *head, u8 *buffer) {
    const struct webapp_operation *o = &webapp_operation[head->operation];
    u32 turns = o->queries + o->commits;
    u64 rng = head->key;

    if (!upload(s, head, buffer)) return false;
    for (u32 i = 0; i < turns; i++) {
        webapp_compute(times * o->cpu_us / (turns + 1));
        query(seed_next(&rng), i >= o->queries, buffer);
    }
    webapp_compute(times * o->cpu_us / (turns + 1));
    head->bytes = o->page_kib << 10;
    __atomic_fetch_add(&done[head->operation], 1, __ATOMIC_RELAXED);
    return webapp_send(s, head, sizeof(*head)) &&
           webapp_send(s, page[head->operation], head->bytes);
}

static bool send_image(struct sock *s, struct webapp_head *head, u8 *buffer) {
    head->image = image_at(head->key);
    head->bytes = WEBAPP_IMAGE;
    webapp_compute(times * WEBAPP_IMAGE_US);
    files_ask(NFS_READ, head->image, WEBAPP_IMAGE, buffer);
    __atomic_fetch_add(&images, 1, __ATOMIC_RELAXED);
    return webapp_send(s, head, sizeof(*head)) && webapp_send(s, buffer, WEBAPP_IMAGE);
}

/* Returns whether a user may ask for that. */
static bool valid(const struct webapp_head *head) {
    const struct webapp_operation *o = &webapp_operation[head->operation % WEBAPP_OPERATIONS];

    return head->operation < WEBAPP_OPERATIONS && head->part <= o->images &&
           (head->part || head->upload == o->upload_kib << 10);
}

/* Serves one user, as a thread, until the connection ends. */
static void serve(void *arg) {
    struct sock *s = arg;
    u8 *buffer = malloc(WEBAPP_RECORD);
    struct webapp_head head;

    if (!buffer) guest_panic("webapp: there is no memory");
    while (sock_recv_exactly(s, &head, sizeof(head), NET_FOREVER)) {
        bool (*answer)(struct sock *, struct webapp_head *, u8 *) = send_page;

        if (!valid(&head)) {
            __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
            break;
        }
        if (head.part) answer = send_image;
        if (!answer(s, &head, buffer)) break;
    }
    free(buffer);
    sock_close(s);
}

/* ---- start and end ---- */

/* Makes the pages, and connects to the other tiers. */
static void prepare(u32 to_db) {
    times = webapp_times();
    for (u32 i = 0; i < WEBAPP_OPERATIONS; i++) {
        page[i] = malloc(webapp_operation[i].page_kib << 10);
        if (!page[i]) guest_panic("webapp: there is no memory");
        workload_fill(page[i], i, 0, webapp_operation[i].page_kib << 10);
    }
    webapp_pool_open(&db, to_db, net_cmdline_ip("db", 0x0a000004),
                     (u16)cmdline_u64("db_port", 3306));
    files.s = net_connect(net_cmdline_ip("files", 0x0a000005), (u16)cmdline_u64("files_port", 2049),
                          &webapp_options);
    sock_no_delay(files.s);
    files.receiver = thread_start(net_thread_vcpu(), "files", files_receive, NULL);
    if (!files.receiver) guest_panic("webapp: there is no memory");
}

/* Runs the server, and prints what it did. Returns 1 if an answer of another tier was wrong. */
int main(void) {
    u32 connections = webapp_connections("connections", 8), to_db = webapp_connections("to_db", 4);

    if (net_start((connections + to_db + 2) * net_bufs_for(webapp_options.rcvbuf)))
        guest_panic("webapp: there is no network");
    prepare(to_db);
    webapp_serve(connections, (u16)cmdline_u64("port", 80), serve);
    sem_up(&files.under_way);
    thread_join(files.receiver);
    webapp_pool_close(&db);
    printf("webapp:");
    for (u32 i = 0; i < WEBAPP_OPERATIONS; i++) printf(" %s=%u", webapp_operation[i].name, done[i]);
    printf("\nwebapp: queries=%u commits=%u images=%u records=%u wrong=%u\n", queries, commits,
           images, records, wrong);
    for (u32 i = 0; i < vcpu_count(); i++)
        printf("webapp: cpu_us of vCPU %u=%lu\n", i, vcpu_times(i).run_ns / 1000);
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgements to go out */
    return wrong != 0;
}
