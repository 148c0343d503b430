/* Threads that write a disk and read it back, without a page cache, each through the ring of the
 * socket on which it runs (guest/direct.h).
 *
 * Command line: threads=N (as many as vCPUs), of which thread i begins on vCPU i modulo the number
 * of vCPUs; depth=N (4) requests of each at a time; kib=N (4) of each request; run_ms=T (500);
 * first=W (10) is the weight of thread 0, and 10 that of the others; collab: threads go to the
 * vCPUs on which they belong by what the driver domain says (guest/sockets.h, docs/collab.md). Each
 * thread has a part of the disk to itself, writes all of it in order, reads all of it in order, and
 * so on until the time is over. Prints what went over each socket. The exit code is 0 if all that
 * was read is what was written.
 *
 * When the driver domain ends, the disk in its memory is gone. Each thread then waits for the next
 * one, and begins again by writing. */
#include <guest/direct.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/sockets.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include "common/hist.h"

#define MOST_THREADS 16
#define MOST_DEPTH   32

struct worker;

struct slot {
    struct virtio_blk_request q;
    struct worker *of;
    u64 began, took;
    u32 life;   /* direct_lives() when it was sent */
    u32 socket; /* that the request went over */
    u32 done;   /* atomic: it has ended */
    int error;
};

struct worker {
    u32 number;
    struct thread *thread;
    struct semaphore ended; /* counts requests that have ended */
    struct slot *slot;      /* `depth` of them */
    u64 position;           /* in requests since the start */
    u32 life;               /* of the device, whose contents the thread knows */
    bool again;             /* the device has another life, or none */
    /* results, by socket */
    u64 bytes[TAKT_MAX_QUEUES];
    struct hist latency[TAKT_MAX_QUEUES];
    u64 wrong, refused, lost;
};

static struct direct disk;
static struct worker workers[MOST_THREADS];
static u32 nr_threads, depth;
static u64 bytes_each, part; /* bytes of a request; requests in a thread's part of the disk */
static u64 end_at;

/* Notes that a request has ended, maybe on another vCPU than its thread's. The thread looks at the
 * data later. */
static void done(struct virtio_blk_request *q, int error) {
    struct slot *s = q->arg;

    s->error = error;
    s->took = time_ns() - s->began;
    __atomic_store_n(&s->done, 1, __ATOMIC_RELEASE);
    sem_up(&s->of->ended);
}

/* Returns what belongs at word `at` of request number `place` of a thread's part, in its n-th
 * pass. */
static u64 word_of(const struct worker *w, u64 pass, u64 place, u64 at) {
    return (u64)(w->number + 1) << 56 ^ (pass / 2) << 40 ^ place << 16 ^ at;
}

/* Sends the thread's next request. The thread goes over its part of the disk again and again; one
 * such pass writes all of it, and the next one reads it. One word of 64 is set: what belongs there
 * before a write, and 0 before a read, so that a read that brings nothing is seen. */
static void send(struct worker *w, struct slot *s) {
    u64 pass = w->position / part, place = w->position % part, *p = s->q.part[0].p;
    int error;

    w->position++;
    s->q.type = VIRTIO_BLK_OUT;
    if (pass % 2) s->q.type = VIRTIO_BLK_IN;
    s->q.sector = (w->number * part + place) * (bytes_each / VIRTIO_BLK_SECTOR);
    s->q.part[0].len = (u32)bytes_each;
    for (u64 i = 0; i < bytes_each / sizeof(*p); i += 64) {
        p[i] = 0;
        if (s->q.type == VIRTIO_BLK_OUT) p[i] = word_of(w, pass, place, i);
    }
    s->done = 0;
    s->socket = direct_socket(&disk, thread_self()->vcpu);
    s->began = time_ns();
    s->life = direct_lives(&disk);
    error = direct_submit(&disk, &s->q);
    if (error == -EIO) /* there is no back end */
        done(&s->q, error);
    else if (error)
        guest_panic("spread: a request does not fit into the ring");
}

/* Takes the result of a request that has ended: counts it and, if it was a read, checks the data.
 * No pass begins before all requests of the last one have ended, so the number of the pass follows
 * from the thread's position. If the device has another back end by now, the contents are lost, and
 * the thread has to begin again. */
static void look(struct worker *w, struct slot *s) {
    u64 place = s->q.sector / (bytes_each / VIRTIO_BLK_SECTOR) - w->number * part;
    u64 *p = s->q.part[0].p, pass = (w->position - 1) / part;

    if (s->life != w->life || direct_lives(&disk) != w->life) {
        w->lost++;
        w->again = true;
        return;
    }
    w->refused += s->error != 0;
    w->bytes[s->socket] += bytes_each;
    hist_add(&w->latency[s->socket], s->took);
    for (u64 i = 0; s->q.type == VIRTIO_BLK_IN && i < bytes_each / sizeof(*p); i += 64)
        w->wrong += p[i] != word_of(w, pass, place, i);
}

/* Waits until the device has a back end. The thread's next pass is one that writes. */
static void begin_again(struct worker *w) {
    while (!(w->life = direct_lives(&disk))) sleep_ns(NS_PER_MS);
    w->position = (w->position / part / 2 + 1) * 2 * part;
    w->again = false;
}

/* Keeps `depth` requests under way until the time is over, as a thread. The next pass waits for all
 * requests of the pass before, because it reads what they write. After each wait the thread goes to
 * the vCPU where sockets.c wants it. */
static void work(void *arg) {
    struct worker *w = arg;
    u32 under_way = 0;

    for (;;) {
        bool stop = time_ns() >= end_at;

        for (u32 i = 0; i < depth; i++) {
            struct slot *s = &w->slot[i];
            bool next_pass = w->position && w->position % part == 0;

            if (s->q.arg || stop || w->again || (next_pass && under_way)) continue;
            s->q.arg = s;
            send(w, s);
            under_way++;
        }
        if (!under_way && stop) return;
        if (!under_way) {
            begin_again(w);
            continue;
        }
        sem_down(&w->ended);
        thread_move(sockets_vcpu(w->number));
        for (u32 i = 0; i < depth; i++) {
            struct slot *s = &w->slot[i];

            if (!s->q.arg || !__atomic_load_n(&s->done, __ATOMIC_ACQUIRE)) continue;
            look(w, s);
            s->q.arg = NULL;
            under_way--;
        }
    }
}

static u32 weight_of(u32 thread) {
    if (thread) return 10;
    return (u32)cmdline_u64("first", 10);
}

/* Makes thread i with the buffers of its requests, and starts it. */
static void make_worker(u32 i) {
    struct worker *w = &workers[i];

    w->number = i;
    w->life = direct_lives(&disk);
    sem_init(&w->ended, 0);
    w->slot = calloc(depth, sizeof(*w->slot));
    if (!w->slot) guest_panic("spread: there is no memory");
    for (u32 k = 0; k < depth; k++) {
        w->slot[k].of = w;
        w->slot[k].q.done = done;
        w->slot[k].q.nr = 1;
        w->slot[k].q.part[0].p = page_alloc((bytes_each + PAGE_SIZE - 1) / PAGE_SIZE);
        if (!w->slot[k].q.part[0].p) guest_panic("spread: there is no memory");
    }
    w->thread = thread_start(i % vcpu_count(), "worker", work, w);
    if (!w->thread) guest_panic("spread: there is no memory");
}

/* Runs the threads, and prints what each socket and all together have done. Returns 1 if data was
 * wrong or a request was refused. */
int main(void) {
    u64 wrong = 0, refused = 0, lost = 0;
    static struct hist latency;

    vcpu_start_all();
    nr_threads = (u32)MIN(cmdline_u64("threads", vcpu_count()), MOST_THREADS);
    depth = (u32)MIN(cmdline_u64("depth", 4), MOST_DEPTH);
    bytes_each = cmdline_u64("kib", 4) * 1024;
    if (direct_open(&disk, 0)) guest_panic("spread: there is no disk");
    part = disk.capacity * VIRTIO_BLK_SECTOR / bytes_each / nr_threads;
    if (!part) guest_panic("spread: the disk is too small");
    for (u32 i = 0; i < nr_threads; i++)
        if (sockets_add(weight_of(i), i % vcpu_count()) < 0)
            guest_panic("spread: threads=%u is more than can be moved between sockets", nr_threads);
    if (cmdline_has("collab") && sockets_start(0, disk.nr_rings, true))
        guest_panic("spread: there is no store");
    end_at = time_ns() + cmdline_u64("run_ms", 500) * NS_PER_MS;
    for (u32 i = 0; i < nr_threads; i++) make_worker(i);
    for (u32 i = 0; i < nr_threads; i++) thread_join(workers[i].thread);
    for (u32 s = 0; s < disk.nr_rings; s++) {
        u64 bytes = 0;

        latency = (struct hist){ 0 };
        for (u32 i = 0; i < nr_threads; i++) {
            bytes += workers[i].bytes[s];
            hist_merge(&latency, &workers[i].latency[s]);
        }
        printf("spread: socket %u: kib=%lu requests=%lu mean_us=%lu mean_ns=%lu p99_us=%lu "
               "kicks=%lu\n",
               s, bytes / 1024, latency.count, latency.sum / MAX(latency.count, 1ul) / 1000,
               latency.sum / MAX(latency.count, 1ul), hist_percentile(&latency, 990) / 1000,
               disk.ring[s].kicks);
    }
    for (u32 i = 0; i < nr_threads; i++) {
        wrong += workers[i].wrong;
        refused += workers[i].refused;
        lost += workers[i].lost;
    }
    printf("spread: rings=%u wrong=%lu refused=%lu moves=%u lost=%lu\n", disk.nr_rings, wrong,
           refused, sockets_moves(), lost);
    return wrong || refused;
}
