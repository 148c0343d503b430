/* Ranks of a parallel program that exchange messages over TCP, as the Intel MPI benchmarks do. Each
 * VM is one rank, and has one connection to each other rank.
 *
 *   ranks=N (4)  rank=R      this VM is rank R of N, from 0
 *   first=A.B.C.D (10.0.0.10)  the address of rank 0; that of rank R is R higher (ip=)
 *   test=alltoall            (if none is named) each rank sends a message to each other rank, and
 *                            receives one from each of them
 *   test=sendrecv            each rank sends to the next one, and receives from the one before it;
 *                            the last one sends to rank 0
 *   size=BYTES (1024)        of a message, at least 8
 *   count=C (100)            turns. A rank begins its next turn when it has received what belongs
 *                            to the last one, and when its own messages are in the socket
 *   start_ms=T (0)           when the ranks begin to connect
 *
 * guest/background.h and netstack/start.h have more words. The exit code is 0 if each message was
 * the one that was due. */
#include <guest/background.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define MAX_RANKS 8
#define PORT      7100
#define PIECE     16384
#define PATIENCE  (20 * NS_PER_S)

/* The first bytes of a message. */
struct head {
    u32 rank, turn;
};

static struct peer {
    struct sock *s;
    struct semaphore go, sent; /* a turn begins; its message is in the socket */
    u64 size;
    u32 turn;
    bool ended; /* nothing can be sent to it any more */
    u8 out[PIECE];
} peers[MAX_RANKS];

/* So little that the peers' segments together find room in the ring of the device. */
static const struct sock_options options = { NET_RCVBUF_MIN, 65536 };
static u32 nr, self, wrong;

/* ---- messages ---- */

/* Sends the message of each turn that begins. There is one such thread for each peer, because a
 * socket may have no room while the peer waits for somebody else. */
static void sender(void *arg) {
    struct peer *p = arg;

    for (;;) {
        struct head *head = (struct head *)p->out;

        sem_down(&p->go);
        *head = (struct head){ self, p->turn };
        for (u64 done = 0, n; done < p->size && !p->ended; done += n) {
            n = MIN(p->size - done, (u64)PIECE);
            if (sock_send(p->s, p->out, n, time_ns() + PATIENCE) != (i64)n) p->ended = true;
            memset(head, 0, sizeof(*head)); /* only the first piece has a head */
        }
        sem_up(&p->sent);
    }
}

/* Receives a message of `size` bytes from the peer. Returns whether it is the peer's message of
 * that turn. */
static bool receive(struct peer *p, u64 size, u32 turn) {
    static u8 in[PIECE];
    struct head head = { 0 };

    for (u64 done = 0; done < size;) {
        i64 got = sock_recv(p->s, in, MIN(size - done, (u64)PIECE), time_ns() + PATIENCE);

        if (got <= 0) guest_panic("rank %u: a message has not arrived (%ld)", self, got);
        for (u64 i = 0; i < (u64)got && done + i < sizeof(head); i++)
            ((u8 *)&head)[done + i] = in[i];
        done += (u64)got;
    }
    return head.rank == (u32)(p - peers) && head.turn == turn;
}

static void begin_send(struct peer *p, u64 size, u32 turn) {
    p->size = size;
    p->turn = turn;
    sem_up(&p->go);
}

/* Exchanges one message with each other rank, and waits until all of them were sent and
 * received. */
static void all_to_all(u64 size, u32 turn) {
    for (u32 i = 0; i < nr; i++)
        if (i != self) begin_send(&peers[i], size, turn);
    for (u32 i = 0; i < nr; i++)
        if (i != self) wrong += !receive(&peers[i], size, turn);
    for (u32 i = 0; i < nr; i++)
        if (i != self) sem_down(&peers[i].sent);
}

static void send_and_receive(u64 size, u32 turn) {
    struct peer *right = &peers[(self + 1) % nr], *left = &peers[(self + nr - 1) % nr];

    begin_send(right, size, turn);
    wrong += !receive(left, size, turn);
    sem_down(&right->sent);
}

/* Waits until the peers have all that was sent to them. A message that was lost on the way is sent
 * again, and only this VM can do that. A peer may have gone already, so nothing is said of an
 * acknowledgement that does not come. */
static void wait_until_acknowledged(void) {
    for (u32 i = 0; i < nr; i++)
        if (i != self) sock_flush(peers[i].s, time_ns() + PATIENCE);
}

/* ---- connections ---- */

/* Makes a connection to each other rank: connects to those with a lower number, and waits for those
 * with a higher one. The side that connects first sends its rank. Then starts a thread for each
 * peer that sends messages to it. */
static void connect_all(u32 first) {
    struct sock *listener, *s;
    u8 rank;

    if (sock_open(SOCK_TCP, &options, &listener) || sock_bind(listener, PORT) ||
        sock_listen(listener, MAX_RANKS))
        guest_panic("rank %u: there is no socket", self);
    for (u32 i = 0; i < self; i++) {
        peers[i].s = net_connect(first + i, PORT, &options);
        sock_no_delay(peers[i].s);
        rank = (u8)self;
        sock_send(peers[i].s, &rank, 1, NET_FOREVER);
    }
    for (u32 i = self + 1; i < nr; i++) {
        if (sock_accept(listener, &s, NET_FOREVER) || sock_recv(s, &rank, 1, NET_FOREVER) != 1 ||
            rank >= nr || rank <= self || peers[rank].s)
            guest_panic("rank %u: who has connected is no rank that is due", self);
        sock_no_delay(s);
        peers[rank].s = s;
    }
    for (u32 i = 0; i < nr; i++) {
        sem_init(&peers[i].go, 0);
        sem_init(&peers[i].sent, 0);
        if (i != self) thread_start(net_thread_vcpu(), "sender", sender, &peers[i]);
    }
}

/* Runs the test that the command line names, as a thread, and prints how long it took. */
static void run(void *arg) {
    u64 size = MAX(cmdline_u64("size", 1024), sizeof(struct head)), start;
    u64 wait = cmdline_u64("start_ms", 0) * NS_PER_MS;
    u32 count = (u32)cmdline_u64("count", 100), turn = 0;
    void (*turn_of)(u64, u32) = all_to_all;
    char test[16];
    bool named = cmdline_str("test", test, sizeof(test));

    if (!strcmp(test, "sendrecv"))
        turn_of = send_and_receive;
    else if (named && strcmp(test, "alltoall"))
        guest_panic("test must be alltoall or sendrecv, not \"%s\"", test);
    if (wait) sleep_ns(wait);
    connect_all(net_cmdline_ip("first", 0x0a00000a));
    all_to_all(sizeof(struct head), turn++); /* a barrier: all are there */
    start = time_ns();
    for (u32 i = 0; i < count; i++) turn_of(size, turn++);
    printf("ranks: %s, %u ranks, %u turns of %lu bytes in %lu ns, %u wrong\n",
           named ? test : "alltoall", nr, count, size, time_ns() - start, wrong);
    all_to_all(sizeof(struct head), turn); /* nobody goes before all are done */
    wait_until_acknowledged();
    sleep_ns(NS_PER_S / 4); /* for the last acknowledgement */
}

/* Runs this VM's rank. Returns 1 if a message was wrong. */
int main(void) {
    struct thread *t;

    nr = (u32)cmdline_u64("ranks", 4);
    self = (u32)cmdline_u64("rank", 0);
    if (nr < 2 || nr > MAX_RANKS || self >= nr)
        guest_panic("ranks=%u rank=%u: ranks has to be 2 to %u, and rank less than ranks", nr, self,
                    MAX_RANKS);
    if (net_start(3 * MAX_RANKS * net_bufs_for(options.rcvbuf)))
        guest_panic("ranks: there is no network");
    t = thread_start(net_thread_vcpu(), "rank", run, NULL);
    background_start(net_thread_vcpu());
    if (!t) guest_panic("ranks: there is no memory");
    thread_join(t);
    return wrong != 0;
}
