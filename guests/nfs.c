/* A file server in the manner of NFS, and a client that measures it as iozone measures a file.
 *
 * The server has one file, its disk. A client asks for ranges of it over TCP, and may have several
 * requests under way, because it reads ahead and writes behind. The server works as Linux's does
 * (vTurbo, section 5.2): a thread of the last vCPU takes the requests, and a thread of vCPU 0, in
 * the kernel and on the turbo core if there is one, sends what is in the file with
 * sock_send_file(). What is written is in the page cache when it is answered; a commit waits until
 * it is on the disk. With `busy` or busy=P, one more thread computes on the last vCPU
 * (guest/background.h). The server ends when its client closes the connection.
 *
 * With to=A.B.C.D the guest is a client of that server. It begins after start_ms=T (0), and uses
 * kib=K (1024) KiB of the file in requests of record_kib=R (32), window=N (8) of them at a time. It
 * runs the tests that tests=LETTERS (wWrR) names, one after the other:
 *
 *   w  writes the file, then commits     W  writes it again
 *   r  lets the server drop its cache, then reads the file     R  reads it again
 *
 * Each test prints MB/s (of 10^6 bytes). What is read is compared with what was written last. The
 * exit code is 0 if all was right. Both take port=P (2049); netstack/start.h and guest/disk.h have
 * more words for the command line. */
#include <guest/background.h>
#include <guest/disk.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/sendfile.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include "guests/nfs.h"

#define QUEUE  64 /* requests that wait for the sender; a power of two */
#define SNDBUF (256u << 10)

static bool send(struct sock *s, const void *from, u64 n) {
    return sock_send(s, from, n, NET_FOREVER) == (i64)n;
}

/* ---- the server ---- */

static struct disk disk;

/* What the thread that takes requests hands to the one that answers them. Each of the two numbers
 * is changed by one of them alone; the semaphores say how many requests and free places there
 * are. */
static struct {
    struct nfs_head head[QUEUE];
    u32 taken, answered;
    struct semaphore waiting, room;
    struct sock *s;
} queue;

/* Queues an answer. */
static void answer_later(const struct nfs_head *head, i64 status) {
    sem_down(&queue.room);
    queue.head[queue.taken % QUEUE] = *head;
    queue.head[queue.taken % QUEUE].status = status;
    queue.taken++;
    sem_up(&queue.waiting);
}

/* Answers requests, as a thread, until NFS_END comes. If the peer has gone, nothing is sent any
 * more. */
static void answer_all(void *arg) {
    struct pagecache_stream at = pagecache_stream(0, disk.cache.blocks * PAGE_SIZE);
    bool there = true;

    for (;;) {
        struct nfs_head head;

        sem_down(&queue.waiting);
        head = queue.head[queue.answered++ % QUEUE];
        sem_up(&queue.room);
        if (head.op == NFS_END) return;
        there = there && send(queue.s, &head, sizeof(head));
        if (there && head.op == NFS_READ && !head.status)
            there = sock_send_file(queue.s, &disk.cache, &at, head.offset, head.len, NET_FOREVER) ==
                    (i64)head.len;
    }
}

/* Does what a request asks for, except for sending what is read. `buffer` has what is to be
 * written. Returns 0, or a negative error. */
static i64 perform(const struct nfs_head *head, const u8 *buffer) {
    u64 end = disk.cache.blocks * PAGE_SIZE;

    switch (head->op) {
    case NFS_READ:
    case NFS_WRITE:
        if (head->offset > end || head->len > end - head->offset) return -EINVAL;
        if (head->op == NFS_READ) return 0;
        return pagecache_write(&disk.cache, head->offset, buffer, head->len);
    case NFS_COMMIT: return pagecache_sync(&disk.cache);
    case NFS_DROP: pagecache_drop(&disk.cache); return 0;
    default: return -ENOSYS;
    }
}

/* Takes requests until the client closes the connection or sends what no client would send: a
 * record that is too long. */
static void take_all(u8 *buffer) {
    struct nfs_head head;

    while (sock_recv_exactly(queue.s, &head, sizeof(head), NET_FOREVER)) {
        if (head.len > NFS_RECORD_MOST) {
            printf("nfs: a record of %u bytes is too long\n", head.len);
            break;
        }
        if (head.op == NFS_WRITE && !sock_recv_exactly(queue.s, buffer, head.len, NET_FOREVER))
            break;
        answer_later(&head, perform(&head, buffer));
    }
    answer_later(&(struct nfs_head){ .op = NFS_END }, 0);
}

/* Serves one client, as a thread of the last vCPU. */
static void serve(void *arg) {
    struct sock_options options = { (u32)cmdline_u64("rcvbuf", 0), SNDBUF };
    const struct pagecache_stats *c = &disk.cache.stats;
    u8 *buffer = malloc(NFS_RECORD_MOST);
    struct thread *sender;
    struct sock *s;

    sem_init(&queue.waiting, 0);
    sem_init(&queue.room, QUEUE);
    if (!buffer || sock_open(SOCK_TCP, &options, &s) ||
        sock_bind(s, (u16)cmdline_u64("port", 2049)) || sock_listen(s, 1) ||
        sock_accept(s, &queue.s, NET_FOREVER))
        guest_panic("nfs: there is no socket or no memory");
    sock_no_delay(queue.s);
    sender = thread_start(0, "sender", answer_all, NULL);
    if (!sender) guest_panic("nfs: there is no memory");
    take_all(buffer);
    thread_join(sender);
    sock_close(queue.s);
    printf("nfs: cache hits=%lu misses=%lu ahead=%lu throttled=%lu pages_read=%lu "
           "pages_written=%lu\n",
           c->hits, c->misses, c->ahead, c->throttled, c->pages_read, c->pages_written);
}

static void run_server(void) {
    struct thread *t;
    int error = disk_open(&disk, 0);

    if (error) guest_panic("nfs: there is no disk (error %d)", error);
    t = thread_start(net_thread_vcpu(), "nfsd", serve, NULL);
    if (!t) guest_panic("nfs: there is no memory");
    background_start(net_thread_vcpu());
    thread_join(t);
}

/* ---- the client ---- */

static u64 size, record, window;
static u64 round; /* how many times the file has been written */
static u32 wrong;
static u64 *buffer;

/* The word at byte `at` of the file, a multiple of 8, when it was written for the round-th time. */
static u64 word_of(u64 at) { return (at << 8 | round) * 0x9e3779b97f4a7c15ull; }

static void ask(struct sock *s, u32 op, u64 offset, u32 len) {
    struct nfs_head head = { op, len, offset, 0 };

    if (op == NFS_WRITE)
        for (u64 i = 0; i < len; i += 8) buffer[i / 8] = word_of(offset + i);
    if (!send(s, &head, sizeof(head)) || (op == NFS_WRITE && !send(s, buffer, len)))
        guest_panic("nfs: the server has gone");
}

/* Receives the answer to the oldest request, which asked for `op` at `offset`, and compares what
 * was read. */
static void hear(struct sock *s, u32 op, u64 offset) {
    struct nfs_head head;
    bool right = true;

    if (!sock_recv_exactly(s, &head, sizeof(head), NET_FOREVER))
        guest_panic("nfs: the server has gone");
    if (head.op != op || head.offset != offset || head.status)
        guest_panic("nfs: request %u at %lu was answered with %u at %lu, error %ld", op, offset,
                    head.op, head.offset, head.status);
    if (op != NFS_READ) return;
    if (!sock_recv_exactly(s, buffer, head.len, NET_FOREVER))
        guest_panic("nfs: the server has gone");
    for (u64 i = 0; i < head.len; i += 8) right = right && buffer[i / 8] == word_of(offset + i);
    wrong += !right;
}

/* Reads or writes the file, `window` requests at a time, and prints how fast that was. */
static void run(struct sock *s, const char *name, u32 op) {
    u64 asked = 0, start = time_ns(), ns, rate;

    if (op == NFS_WRITE) round++;
    for (u64 heard = 0; heard < size; heard += record) {
        for (; asked < size && asked < heard + window * record; asked += record)
            ask(s, op, asked, (u32)record);
        hear(s, op, heard);
    }
    if (op == NFS_WRITE) {
        ask(s, NFS_COMMIT, 0, 0);
        hear(s, NFS_COMMIT, 0);
    }
    ns = MAX(time_ns() - start, 1ull);
    rate = size * 100000 / ns; /* MB/s, in hundredths */
    printf("nfs: %s %lu KiB in records of %lu KiB: %lu.%02lu MB/s\n", name, size >> 10,
           record >> 10, rate / 100, rate % 100);
}

static void run_client(u32 to) {
    struct sock_options options = { (u32)cmdline_u64("rcvbuf", 0), SNDBUF };
    struct sock *s;
    char tests[16];

    size = cmdline_u64("kib", 1024) << 10;
    record = MIN(MAX(cmdline_u64("record_kib", 32), 1ull) << 10, (u64)NFS_RECORD_MOST);
    size -= size % record;
    /* The server queues no more, and would stop to take requests. */
    window = MIN(MAX(cmdline_u64("window", 8), 1ull), (u64)QUEUE);
    buffer = malloc(record);
    if (!buffer) guest_panic("nfs: there is no memory");
    if (!cmdline_str("tests", tests, sizeof(tests))) memcpy(tests, "wWrR", 5);
    sleep_ns(cmdline_u64("start_ms", 0) * NS_PER_MS + 1);
    s = net_connect(to, (u16)cmdline_u64("port", 2049), &options);
    sock_no_delay(s);
    for (const char *t = tests; *t; t++) {
        if (*t == 'r') {
            ask(s, NFS_DROP, 0, 0);
            hear(s, NFS_DROP, 0);
        }
        switch (*t) {
        case 'w': run(s, "write", NFS_WRITE); break;
        case 'W': run(s, "rewrite", NFS_WRITE); break;
        case 'r': run(s, "read", NFS_READ); break;
        case 'R': run(s, "reread", NFS_READ); break;
        default: guest_panic("nfs: no test is called %c", *t);
        }
    }
    sock_close(s);
    printf("nfs: %u records were wrong\n", wrong);
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgement to go out */
}

/* Runs the server, or the client of the server at `to`. Returns 1 if what the client read was
 * wrong. */
int main(void) {
    u32 to = net_cmdline_ip("to", 0);
    /* The socket that listens, the connection, and the one that it keeps in reserve. */
    int error = net_start(3 * net_bufs_for((u32)cmdline_u64("rcvbuf", 256 << 10)));

    if (error) guest_panic("nfs: there is no network (error %d)", error);
    if (to)
        run_client(to);
    else
        run_server();
    return wrong != 0;
}
