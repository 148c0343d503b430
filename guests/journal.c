/* Writes records of 4 KiB, one after the other, to its virtio block device. After each flush=N (8)
 * records it flushes, prints how many records are safe now, and waits for pause_ms=P (0). At its
 * start it reads the records that it finds, and goes on after them. It does the same when its
 * device comes back after the back end had gone. So a test can see that no record is lost that was
 * called safe. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include "drivers/virtio_blk.h"

#define RECORD  4096u
#define SECTORS (RECORD / VIRTIO_BLK_SECTOR)
#define MOST    32u /* the most records that are in flight */

static struct virtio_dev dev;
static struct virtio_blk blk;
static struct semaphore work = SEMAPHORE(0);
static struct virtio_blk_request *requests[MOST];
static volatile bool changed;
static u32 errors;

/* Returns what belongs at word `i` of a record. */
static u64 word_of(u64 record, u32 i) { return (record << 9 | i) * 0x9e3779b97f4a7c15ull + 1; }

static void fill(u64 *p, u64 record) {
    for (u32 i = 0; i < RECORD / 8; i++) p[i] = word_of(record, i);
}

static bool intact(const u64 *p, u64 record) {
    for (u32 i = 0; i < RECORD / 8; i++)
        if (p[i] != word_of(record, i)) return false;
    return true;
}

static void journal_done(struct virtio_blk_request *q, int error) { errors += error != 0; }

static void on_used(u32 port, void *arg) { sem_up(&work); }

/* Has settle() look whether the device is gone; the device calls it. */
static void on_config(u32 port, void *arg) {
    changed = true;
    sem_up(&work);
}

/* Waits for the device, practically for ever, and starts it. */
static void connect(void) {
    int error = device_open(&dev, VIRTIO_ID_BLOCK, 0, FOREVER / 2);

    if (!error) error = virtio_blk_start(&blk, &dev, 64);
    if (error) guest_panic("there is no block device (error %d)", error);
    device_on_used(&dev, 0, on_used, NULL);
    device_on_config(&dev, 0, on_config, NULL);
}

/* Waits until nothing is in flight. Returns false if the device is gone; its requests are gone with
 * it. */
static bool settle(void) {
    while (blk.in_flight) {
        virtio_blk_flush_ring(&blk);
        virtio_blk_poll(&blk);
        if (!blk.in_flight || virtio_blk_listen(&blk, blk.in_flight)) continue;
        sem_down(&work);
        if (!changed) continue;
        changed = false;
        if (virtio_alive(&dev)) continue;
        printf("journal: the device is gone\n");
        if (virtio_blk_stop(&blk)) guest_panic("the device does not let go");
        connect();
        return false;
    }
    if (errors) guest_panic("the disk reported %u errors", errors);
    return true;
}

/* Submits one request. The device must take it, because at most MOST are in flight. */
static void submit(struct virtio_blk_request *q, enum virtio_blk_type type, u64 record) {
    int error;

    q->type = type;
    q->sector = record * SECTORS;
    if (type == VIRTIO_BLK_OUT) fill(q->part[0].p, record);
    error = virtio_blk_submit(&blk, q);
    if (error)
        guest_panic("a request of type %u at record %lu was refused: error %d", type, record,
                    error);
}

/* Reads or writes `n` records at once. Returns false if the device is gone. */
static bool transfer(enum virtio_blk_type type, u64 first, u32 n) {
    errors = 0;
    for (u32 i = 0; i < n; i++) submit(requests[i], type, first + i);
    return settle();
}

/* Makes safe what was written. Returns false if the device is gone. */
static bool flush(void) {
    errors = 0;
    submit(requests[0], VIRTIO_BLK_FLUSH, 0);
    return settle();
}

/* Counts the records from the first one on, up to the first gap. Returns false if the device is
 * gone. */
static bool journal_find(u64 *found) {
    u64 places = blk.capacity / SECTORS;

    for (*found = 0; *found < places;) {
        u32 n = (u32)MIN(places - *found, (u64)MOST), good = 0;

        if (!transfer(VIRTIO_BLK_IN, *found, n)) return false;
        while (good < n && intact(requests[good]->part[0].p, *found + good)) good++;
        *found += good;
        if (good < n) break;
    }
    printf("journal: found %lu\n", *found);
    return true;
}

/* Writes records from `at` to the end of the disk, `n` at a time. Returns false if the device is
 * gone. */
static bool go_on(u64 at, u32 n, u64 pause) {
    for (; at + n <= blk.capacity / SECTORS; at += n) {
        if (!transfer(VIRTIO_BLK_OUT, at, n) || !flush()) return false;
        printf("journal: %lu are safe\n", at + n);
        if (pause) sleep_ns(pause);
    }
    printf("journal: full\n");
    return true;
}

/* Writes the journal, record by record. When the device goes, everything begins again with what is
 * found on the disk. */
int main(void) {
    u32 n = (u32)MIN(MAX(cmdline_u64("flush", 8), 1ull), (u64)MOST);
    u64 pause = cmdline_u64("pause_ms", 0) * NS_PER_MS, found;

    for (u32 i = 0; i < MOST; i++) {
        requests[i] = calloc(1, sizeof(*requests[i]));
        if (!requests[i] || !(requests[i]->part[0].p = malloc(RECORD)))
            guest_panic("there is no memory");
        requests[i]->nr = 1;
        requests[i]->part[0].len = RECORD;
        requests[i]->done = journal_done;
    }
    connect();
    while (!journal_find(&found) || !go_on(found, n, pause))
        ;
    return 0;
}
