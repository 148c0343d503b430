/* The tests of lab 9. In those of rings the test plays the device: it reads what the driver has
 * written, and writes to the used ring. */
#include "rig.h"

#define OFFER (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_INDIRECT) | VIRTIO_BLK_F_FLUSH)

static int a, b, c; /* tokens */

static void handshake(void) {
    static const u32 order[] = { 0, VIRTIO_ACKNOWLEDGE, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER,
                                 VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK };
    u64 capacity = 0;

    plug(OFFER);
    expect_result("virtio_begin", virtio_begin(&dev, VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_RO), 0);
    expect("how often the driver wrote to Status", regs.steps, ARRAY_SIZE(order));
    for (u32 i = 0; i < ARRAY_SIZE(order); i++) {
        char what[40];

        snprintf(what, sizeof(what), "write number %u to Status", i + 1);
        expect(what, regs.history[i], order[i]);
    }
    expect("the features that the driver took", regs.accepted,
           BIT(VIRTIO_F_VERSION_1) | VIRTIO_BLK_F_FLUSH);
    expect("the features that it remembers", dev.features, regs.accepted);
    plug(OFFER);
    regs.refuses = VIRTIO_BLK_F_FLUSH;
    expect_result("virtio_begin if the device clears FEATURES_OK",
                  virtio_begin(&dev, VIRTIO_BLK_F_FLUSH), -EINVAL);
    expect("the bit FAILED of Status after that", regs.status & VIRTIO_FAILED, VIRTIO_FAILED);
    plug(VIRTIO_BLK_F_FLUSH);
    expect_result("virtio_begin with a device of before virtio 1.0",
                  virtio_begin(&dev, VIRTIO_BLK_F_FLUSH), -EINVAL);
    plug(OFFER);
    regs.stuck = true;
    expect_result("virtio_begin if the device stays in reset", virtio_begin(&dev, 0), -ETIMEDOUT);
    expect("how often the driver wrote to Status then", regs.steps, 1);
    plug(OFFER);
    regs.config.capacity = 0xffff;
    regs.config_changes = true;
    virtio_config(&dev, 0, &capacity, sizeof(capacity));
    expect("a field that grew while it was read", capacity, 0x10000);
}

/* Checks a descriptor. */
static void descriptor(const char *what, u16 at, u64 addr, u32 len, u16 flags) {
    const struct vring_desc *d = &ring.desc[at];
    char text[80];

    snprintf(text, sizeof(text), "%s: address", what);
    expect(text, d->addr, addr);
    snprintf(text, sizeof(text), "%s: length", what);
    expect(text, d->len, len);
    snprintf(text, sizeof(text), "%s: flags", what);
    expect(text, d->flags, flags);
}

static void chains(void) {
    struct vring_sg sg[3] = { { 0x20000, 16 }, { 0x21000, 512 }, { 0x22000, 1 } };
    u16 head, next, last;

    begin(0);
    expect_result("a chain of three buffers", vring_front_add(&ring, sg, 1, 2, &a), 0);
    head = ring.avail->ring[0];
    next = ring.desc[head].next;
    last = ring.desc[next].next;
    descriptor("the buffer that the device reads", head, 0x20000, 16, VRING_DESC_NEXT);
    descriptor("the first that it writes", next, 0x21000, 512, VRING_DESC_NEXT | VRING_DESC_WRITE);
    descriptor("the last that it writes", last, 0x22000, 1, VRING_DESC_WRITE);
    expect("descriptors that are left", ring.nr_free, SIZE - 3);
    expect("the index that the device sees before vring_front_publish", ring.avail->idx, 0);
    add_one(&b);
    expect("that another chain has another descriptor",
           ring.avail->ring[1] != head && ring.avail->ring[1] != next &&
               ring.avail->ring[1] != last,
           true);
    expect_result("an empty chain", vring_front_add(&ring, sg, 0, 0, &a), -EINVAL);
    expect_result("a chain without a token", vring_front_add(&ring, sg, 1, 0, NULL), -EINVAL);
    for (u32 i = 0; i < SIZE - 4; i++) add_one(&c);
    expect_result("a chain when the ring is full", vring_front_add(&ring, sg, 1, 0, &c), -ENOSPC);
    begin(BIT(VIRTIO_F_INDIRECT));
    expect_result("a chain of three buffers", vring_front_add(&ring, sg, 1, 2, &a), 0);
    expect("descriptors that an indirect chain leaves", ring.nr_free, SIZE - 1);
    head = ring.avail->ring[0];
    descriptor("the descriptor of an indirect chain", head,
               arena_gpa(ring.table + head * VRING_INDIRECT), 3 * sizeof(struct vring_desc),
               VRING_DESC_INDIRECT);
}

/* The device goes to sleep just now: it wants to be told of the next chain, and has seen none. */
static void falls_asleep(void) {
    expect("the index that the device sees when it goes to sleep", ring.avail->idx, 1);
    *avail_event() = 1;
    ring.used->flags = 0;
}

static void publish(void) {
    begin(0);
    expect("that the device is notified of nothing", vring_front_publish(&ring), false);
    add_one(&a);
    add_one(&b);
    expect("that it is notified of two chains", vring_front_publish(&ring), true);
    expect("the index that the device sees", ring.avail->idx, 2);
    expect("that it is notified of them once more", vring_front_publish(&ring), false);
    ring.used->flags = VRING_USED_NO_NOTIFY;
    add_one(&c);
    expect("that it is notified although it wants not to be", vring_front_publish(&ring), false);
    expect("the index that it sees nevertheless", ring.avail->idx, 3);
    begin(BIT(VIRTIO_F_EVENT_IDX));
    *avail_event() = 1;
    add_one(&a);
    expect("with event index 1: that it is notified of chain 0", vring_front_publish(&ring), false);
    add_one(&b);
    add_one(&c);
    expect("with event index 1: that it is notified of chains 1 and 2", vring_front_publish(&ring),
           true);
    for (u32 i = 0; i < 2; i++) {
        begin(i * BIT(VIRTIO_F_EVENT_IDX));
        add_one(&a);
        vring_front_publish(&ring);
        ring.used->flags = VRING_USED_NO_NOTIFY;
        *avail_event() = 0x8000;
        add_one(&b);
        meanwhile(falls_asleep);
        expect("that a device is notified that went to sleep just before it saw the chain",
               vring_front_publish(&ring), true);
    }
}

static void *take(u32 expected_len) {
    u32 len = 0;
    void *token = vring_front_take(&ring, &len);

    if (token) expect("how many bytes the device says it has written", len, expected_len);
    return token;
}

static void taken(void) {
    struct vring_sg sg[3] = { { 0x20000, 16 }, { 0x21000, 512 }, { 0x22000, 1 } };
    u16 first, second;

    begin(0);
    vring_front_add(&ring, sg, 1, 2, &a);
    add_one(&b);
    vring_front_publish(&ring);
    expect("that nothing is taken before the device is done", take(0) == NULL, true);
    first = ring.avail->ring[0];
    second = ring.avail->ring[1];
    used(second, 7);
    used(first, 513);
    expect("that the second chain comes back first", take(7) == &b, true);
    expect("that the first chain comes back", take(513) == &a, true);
    expect("that nothing comes back twice", take(0) == NULL, true);
    expect("descriptors that are free again", ring.nr_free, SIZE);
    expect("chains that the device has", vring_front_outstanding(&ring), 0);
    /* The indexes of rings have 16 bits. */
    for (u32 i = 0; i < 70000; i++) {
        expect_result("a chain when the ring is empty", vring_front_add(&ring, sg, 2, 1, &c), 0);
        vring_front_publish(&ring);
        used(ring.avail->ring[(u16)(ring.avail->idx - 1) % SIZE], 1);
        expect("that each of 70,000 chains comes back", take(1) == &c, true);
    }
    expect("descriptors that are free after 70,000 chains", ring.nr_free, SIZE);
}

static void liar(void) {
    static const char *const what[] = { "a descriptor that is not there", "a chain that is free",
                                        "a chain twice" };

    for (u32 i = 0; i < ARRAY_SIZE(what); i++) {
        char text[80];
        u16 head;

        begin(0);
        add_one(&a);
        vring_front_publish(&ring);
        head = ring.avail->ring[0];
        if (i == 0) used(SIZE, 1);
        if (i == 1) used((head + 1) % SIZE, 1);
        if (i == 2) {
            used(head, 1);
            expect("that the first time is good", take(1) == &a, true);
            used(head, 1);
        }
        snprintf(text, sizeof(text), "the device gives back %s: what is taken", what[i]);
        expect(text, (u64)take(1), 0);
        snprintf(text, sizeof(text), "the device gives back %s: that the ring is broken", what[i]);
        expect(text, ring.broken, true);
        used(head, 1);
        expect("what is taken from a broken ring", (u64)take(1), 0);
        expect_result("a chain for a broken ring",
                      vring_front_add(&ring, &(struct vring_sg){ 1, 1 }, 1, 0, &b), -ENOSPC);
    }
    begin(0);
    add_one(&a);
    vring_front_publish(&ring);
    ring.used->ring[0] = (struct vring_used_elem){ ring.avail->ring[0], 1 };
    ring.used->idx = SIZE + 1;
    expect("what is taken if the device has used more than there is", (u64)take(1), 0);
    expect("that the ring is broken then", ring.broken, true);
}

/* The device is done with a chain, and sees that nobody wants an interrupt yet. */
static void is_done(void) { used(ring.avail->ring[0], 1); }

static void listen(void) {
    begin(0);
    add_one(&a);
    vring_front_publish(&ring);
    vring_front_ignore(&ring);
    expect("the flags, when no interrupt is wanted", ring.avail->flags, VRING_AVAIL_NO_IRQ);
    expect("that the next chain is done already", vring_front_listen(&ring, 1), false);
    expect("the flags, when an interrupt is wanted", ring.avail->flags, 0);
    is_done();
    expect("that the next chain is done", vring_front_listen(&ring, 1), true);
    begin(BIT(VIRTIO_F_EVENT_IDX));
    for (u32 i = 0; i < 4; i++) add_one(&a);
    vring_front_publish(&ring);
    expect("that the next chain is done already", vring_front_listen(&ring, 1), false);
    expect("the event index for the first chain", *used_event(), 0);
    expect("that three chains are done already", vring_front_listen(&ring, 3), false);
    expect("the event index for the third chain", *used_event(), 2);
    is_done();
    expect("that three chains are done when one is", vring_front_listen(&ring, 3), false);
    take(1);
    vring_front_listen(&ring, 2);
    expect("the event index for two more, after one was taken", *used_event(), 2);
    for (u32 i = 0; i < 2; i++) {
        begin(i * BIT(VIRTIO_F_EVENT_IDX));
        add_one(&a);
        vring_front_publish(&ring);
        vring_front_ignore(&ring);
        meanwhile(is_done);
        expect("that a chain is done that was done just before the driver asked for an interrupt",
               vring_front_listen(&ring, 1), true);
    }
}

static int ended, error_of_last;

static void on_done(struct virtio_blk_request *q, int error) {
    ended++;
    error_of_last = error;
}

/* A request in memory that the device can reach. */
static struct virtio_blk_request *request(enum virtio_blk_type type, u64 sector) {
    struct virtio_blk_request *q = arena_pages(2);

    q->type = type;
    q->sector = sector;
    q->nr = 2;
    for (u32 i = 0; i < 2; i++) {
        q->part[i].p = (u8 *)q + PAGE_SIZE + i * VIRTIO_BLK_SECTOR;
        q->part[i].len = VIRTIO_BLK_SECTOR;
        memset(q->part[i].p, type == VIRTIO_BLK_OUT ? 0x51 + (int)i : 0, VIRTIO_BLK_SECTOR);
    }
    q->done = on_done;
    return q;
}

static void requests(void) {
    struct virtio_blk_request *out, *in;

    disk_begin(VIRTIO_BLK_F_FLUSH);
    expect("the sectors of the disk", disk.capacity, SECTORS);
    out = request(VIRTIO_BLK_OUT, 5);
    in = request(VIRTIO_BLK_IN, 5);
    ended = 0;
    expect_result("a write", virtio_blk_submit(&disk, out), 0);
    expect_result("a read", virtio_blk_submit(&disk, in), 0);
    expect("how often the device is notified before the ring is flushed", regs.notified, 0);
    virtio_blk_flush_ring(&disk);
    expect("how often the device is notified of both", regs.notified, 1);
    expect("requests under way", disk.in_flight, 2);
    disk_serve();
    expect("requests that have ended", virtio_blk_poll(&disk), 2);
    expect("calls of done()", (u64)ended, 2);
    expect_result("the error of the last", error_of_last, 0);
    expect("requests under way", disk.in_flight, 0);
    expect("byte 0 of sector 5", sectors[5 * VIRTIO_BLK_SECTOR], 0x51);
    expect("byte 0 of sector 6", sectors[6 * VIRTIO_BLK_SECTOR], 0x52);
    expect("the first byte that was read", *(u8 *)in->part[0].p, 0x51);
    expect("the last byte that was read", ((u8 *)in->part[1].p)[VIRTIO_BLK_SECTOR - 1], 0x52);
    disk_fails = true;
    virtio_blk_submit(&disk, in);
    virtio_blk_flush_ring(&disk);
    disk_serve();
    virtio_blk_poll(&disk);
    expect_result("the error of a read that failed", error_of_last, -EIO);
    out->type = VIRTIO_BLK_FLUSH;
    disk_fails = false;
    expect_result("a flush", virtio_blk_submit(&disk, out), 0);
    virtio_blk_flush_ring(&disk);
    disk_serve();
    virtio_blk_poll(&disk);
    expect_result("the error of a flush", error_of_last, 0);
    expect_result("a read beyond the disk", virtio_blk_submit(&disk, request(0, SECTORS - 1)),
                  -EINVAL);
    expect_result("a discard that the device does not know",
                  virtio_blk_submit(&disk, request(VIRTIO_BLK_DISCARD, 0)), -ENOSYS);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "handshake", handshake }, { "chains", chains }, { "publish", publish },
        { "taken", taken },         { "liar", liar },     { "listen", listen },
        { "requests", requests },   { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
