/* Tests the virtio block device: writes requests=N (200) requests of kib=K (4) at random places,
 * flushes, reads them back and compares. depth=D (16) requests are in flight at a time. The places
 * follow from seed=S (1). With `discard` it then discards them. With `stay` it sleeps when it is
 * done, instead of ending.
 *
 * After it has written, it puts a mark on the disk. If it finds the mark at its start, it only
 * reads: so the second run shows that the disk has kept everything. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include "drivers/virtio_blk.h"

#define MAX_DEPTH 64
#define MARK      0x6b72616d64656d72ull

static struct virtio_dev dev;
static struct virtio_blk blk;
static struct semaphore work = SEMAPHORE(0);
static struct virtio_blk_request *requests[MAX_DEPTH];
static u64 rng;
static u32 depth, sectors, ended, bad, errors;

/* Returns the next random number; the sequence follows from `rng`. */
static u64 noise(void) {
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return rng >> 33;
}

/* What belongs at word `i` of a sector. It depends on the number of the sector alone, because a
 * place may be written more than once. */
static u64 word_of(u64 sector, u32 i) { return (sector << 32 | i) * 0x9e3779b97f4a7c15ull; }

static void fill(struct virtio_blk_request *q) {
    u64 *p = q->part[0].p;

    for (u32 i = 0; i < q->part[0].len / 8; i++) p[i] = word_of(q->sector + i / 64, i % 64);
}

static bool intact(const struct virtio_blk_request *q) {
    const u64 *p = q->part[0].p;

    for (u32 i = 0; i < q->part[0].len / 8; i++)
        if (p[i] != word_of(q->sector + i / 64, i % 64)) return false;
    return true;
}

/* Takes the end of a request. The last sector has the mark, and is not compared. */
static void blktest_done(struct virtio_blk_request *q, int error) {
    ended++;
    errors += error != 0;
    if (!error && q->type == VIRTIO_BLK_IN) bad += q->sector < blk.capacity - 1 && !intact(q);
    q->arg = NULL;
}

static void on_used(u32 port, void *arg) { sem_up(&work); }

/* Waits until `n` or fewer requests are in flight. It gives up if the device has been lost, because
 * then no interrupt would come. */
static void wait_for(u32 n) {
    while (blk.in_flight > n) {
        virtio_blk_flush_ring(&blk);
        virtio_blk_poll(&blk);
        if (blk.in_flight <= n || virtio_blk_listen(&blk, blk.in_flight - n)) continue;
        if (!sem_down_until(&work, time_ns() + 5 * NS_PER_S) && !virtio_alive(&dev))
            guest_panic("the disk is gone");
    }
}

/* Submits a request of that type at `sector`. If `depth` requests are in flight already, first
 * waits until one of them has ended and its buffer is free. */
static void submit(enum virtio_blk_type type, u64 sector) {
    struct virtio_blk_request *q = NULL;
    int error;

    wait_for(depth - 1);
    for (u32 i = 0; i < depth && !q; i++)
        if (!requests[i]->arg) q = requests[i];
    q->type = type;
    q->sector = sector;
    q->sectors = sectors;
    q->arg = q;
    if (type == VIRTIO_BLK_OUT) fill(q);
    error = virtio_blk_submit(&blk, q);
    if (error)
        guest_panic("a request of type %u at sector %lu was refused: error %d", type, sector,
                    error);
}

/* Makes `n` requests, waits for their end, and returns the time in ns. The same seed leads to the
 * same places. */
static u64 run(enum virtio_blk_type type, u32 n, u64 seed) {
    u64 start = time_ns();

    rng = seed;
    for (u32 i = 0; i < n; i++) submit(type, noise() % ((blk.capacity - 1) / sectors) * sectors);
    wait_for(0);
    return time_ns() - start;
}

/* Writes the mark to the last sector, which nothing else uses, or reads that sector. Returns
 * whether the mark is there. */
static bool mark(bool write) {
    struct virtio_blk_request *q = requests[0];
    u64 *p = q->part[0].p;

    if (write) {
        *p = MARK;
        q->type = VIRTIO_BLK_OUT;
    } else {
        *p = 0;
        q->type = VIRTIO_BLK_IN;
    }
    q->sector = blk.capacity - 1;
    q->part[0].len = VIRTIO_BLK_SECTOR;
    if (virtio_blk_submit(&blk, q)) guest_panic("the mark cannot be read or written");
    wait_for(0);
    q->part[0].len = sectors * VIRTIO_BLK_SECTOR;
    return *p == MARK;
}

/* Tests the disk. The first run writes, marks the disk, and reads back; a later run on the same
 * disk only reads. */
int main(void) {
    u32 n = cmdline_u64("requests", 200);
    u64 seed = cmdline_u64("seed", 1), wrote = 0, flushed = 0, read;
    int error = device_open(&dev, VIRTIO_ID_BLOCK, 0, 10 * NS_PER_S);

    if (!error) error = virtio_blk_start(&blk, &dev, 256);
    if (error) guest_panic("there is no block device (error %d)", error);
    depth = MIN(MAX(cmdline_u64("depth", 16), 1ull), (u64)MAX_DEPTH);
    sectors = cmdline_u64("kib", 4) * 1024 / VIRTIO_BLK_SECTOR;
    for (u32 i = 0; i < depth; i++) {
        requests[i] = calloc(1, sizeof(*requests[i]));
        if (!requests[i]) guest_panic("there is no memory");
        requests[i]->nr = 1;
        requests[i]->done = blktest_done;
        requests[i]->part[0].p = malloc(sectors * VIRTIO_BLK_SECTOR);
        requests[i]->part[0].len = sectors * VIRTIO_BLK_SECTOR;
        if (!requests[i]->part[0].p) guest_panic("there is no memory");
    }
    device_on_used(&dev, 0, on_used, NULL);
    if (mark(false)) {
        printf("blktest: verifies what it has found\n");
    } else {
        wrote = run(VIRTIO_BLK_OUT, n, seed);
        mark(true);
        flushed = run(VIRTIO_BLK_FLUSH, 1, seed);
    }
    read = run(VIRTIO_BLK_IN, n, seed);
    printf("blktest: %lu KiB, %u requests of %u sectors: wrote in %lu ns, flushed in %lu, read in "
           "%lu; %u "
           "ended, %u errors, "
           "%u bad; %lu notifications\n",
           blk.capacity / 2, n, sectors, wrote, flushed, read, ended, errors, bad, blk.kicks);
    if (cmdline_has("discard")) run(VIRTIO_BLK_DISCARD, n, seed);
    if (cmdline_has("stay")) sleep_until(FOREVER);
    return bad || errors;
}
