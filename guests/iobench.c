/* Measures, for `make bench`, what a batch of frames or of requests costs on its way through all
 * layers. Two VMs with this guest talk over TCP. One of them, with to=A.B.C.D, asks the other
 * rounds=N (16) times for 1 segment of 1,460 bytes, and as many times for 32. The other one sends
 * what it was asked for. Then the first one writes and reads its disk, in as many batches of 1 and
 * of 32 requests of 4 KiB. The beginning and the end of each round are stamps (guests/stamped/),
 * which are printed at the end.
 *
 * With the word `disk` there is no network: the guest writes and reads its disk one request at a
 * time, and does nothing else. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <netstack/net.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include "drivers/virtio_blk.h"
#include "guests/stamped/stamps.h"

#define PORT    5001
#define SEGMENT 1460
#define BATCH   32
#define BLOCK   4096
#define WARM    8 /* the first rounds, which do not count */

static u8 data[BATCH * SEGMENT];
static u32 rounds;

/* Receives exactly so many bytes. */
static void receive(struct sock *s, void *to, u32 bytes) {
    if (!sock_recv_exactly(s, to, bytes, NET_FOREVER))
        guest_panic("the other end has closed the connection");
}

/* ---- the guest that sends ---- */

/* Sends, for each request of the client, as many segments as the request says. */
static int serve(void) {
    struct sock *listener, *s;
    u32 segments;

    if (sock_open(SOCK_TCP, NULL, &listener) || sock_bind(listener, PORT) ||
        sock_listen(listener, 1) || sock_accept(listener, &s, NET_FOREVER))
        guest_panic("the connection cannot be made");
    for (;;) {
        receive(s, &segments, sizeof(segments));
        sock_send(s, data, MIN(segments, (u32)BATCH) * SEGMENT, NET_FOREVER);
    }
}

/* ---- the guest that receives ---- */

/* Marks the end of a round with the letter of its kind; the beginning has the capital letter. The
 * time of the last wake tells how long the way to the handler was. */
static void end(char kind) {
    stamp(kind);
    stamp_at('w', vcpu_times(0).wake_tsc);
}

/* Measures rounds: asks for `segments` segments and waits until they have come. The first WARM
 * rounds do not count, because caches and connections are still cold. */
static void ask(struct sock *s, u32 segments, char kind) {
    for (u32 i = 0; i < WARM + rounds; i++) {
        u32 before = nr_stamps;

        sleep_ns(2 * NS_PER_MS); /* until nothing is on its way */
        stamp(kind & ~0x20);
        sock_send(s, &segments, sizeof(segments), NET_FOREVER);
        receive(s, data, segments * SEGMENT);
        end(kind);
        if (i < WARM) nr_stamps = before;
    }
}

/* ---- the disk ---- */

static struct virtio_dev dev;
static struct virtio_blk blk;
static struct semaphore used = SEMAPHORE(0);
static struct virtio_blk_request *request[BATCH];
static u32 failed;

static void on_used(u32 port, void *arg) { sem_up(&used); }

static void iobench_done(struct virtio_blk_request *q, int error) { failed += error != 0; }

/* Measures rounds of `n` requests, all submitted at once. */
static void transfer(enum virtio_blk_type type, u32 n, char kind) {
    for (u32 i = 0; i < rounds; i++) {
        sleep_ns(2 * NS_PER_MS);
        stamp(kind & ~0x20);
        for (u32 k = 0; k < n; k++) {
            request[k]->type = type;
            failed += virtio_blk_submit(&blk, request[k]) != 0;
        }
        virtio_blk_flush_ring(&blk);
        while (blk.in_flight) {
            if (!virtio_blk_listen(&blk, n)) sem_down(&used);
            virtio_blk_poll(&blk);
        }
        end(kind);
    }
}

/* Makes BATCH requests of one block each. */
static void disk_begin(void) {
    int error = device_open(&dev, VIRTIO_ID_BLOCK, 0, 5 * NS_PER_S);

    if (!error) error = virtio_blk_start(&blk, &dev, 4 * BATCH);
    if (error) guest_panic("there is no disk (error %d)", error);
    for (u32 k = 0; k < BATCH; k++) {
        struct virtio_blk_request *q = calloc(1, sizeof(*q));
        u8 *p = page_alloc(1);

        if (!q || !p) guest_panic("there is no memory");
        *q = (struct virtio_blk_request){ .sector = k * BLOCK / VIRTIO_BLK_SECTOR,
                                          .nr = 1,
                                          .done = iobench_done };
        q->part[0].p = p;
        q->part[0].len = BLOCK;
        request[k] = q;
    }
    device_on_used(&dev, 0, on_used, NULL);
}

/* Measures writing and reading, one request at a time. */
static void disk_single(void) {
    transfer(VIRTIO_BLK_OUT, 1, 'c');
    transfer(VIRTIO_BLK_IN, 1, 'e');
    if (failed) guest_panic("%u requests failed", failed);
}

/* Measures writing and reading, one request at a time and BATCH at once. */
static void disk(void) {
    disk_begin();
    transfer(VIRTIO_BLK_OUT, BATCH, 'd');
    transfer(VIRTIO_BLK_IN, BATCH, 'f');
    disk_single();
}

/* Runs the server or the client, as the command line says. Also prints how much memory the network
 * took. */
int main(void) {
    u64 bufs = 4 * net_bufs_for(256 << 10), ring = 256, before = page_count_free(), taken;
    struct sock *s;

    rounds = (u32)cmdline_u64("rounds", 16);
    if (cmdline_has("disk")) {
        disk_begin();
        disk_single();
        stamps_print();
        return 0;
    }
    if (net_start((u32)bufs)) guest_panic("there is no network");
    /* Only the buffers for frames are subtracted. The heap of lwIP counts in full, with the 64
     * bytes for each of these buffers (NET_BUF_HEAP), because a guest cannot choose how large the
     * heap is. */
    taken = (before - page_count_free()) * PAGE_SIZE;
    printf("BENCH net_bytes %lu\n", (u64)(taken - (bufs + ring) * NET_BUF_SIZE));
    if (!cmdline_has("to")) return serve();
    s = net_connect(net_cmdline_ip("to", 0), PORT, NULL);
    nr_stamps = 0;
    ask(s, 1, 'a');
    ask(s, BATCH, 'b');
    disk();
    stamps_print();
    return 0;
}
