/* The front end and the back end of a device, for tests. Both use some words in the RAM of the
 * front end; they are where its first queue says that the descriptors are. */
#ifndef DEV_RIG_H
#define DEV_RIG_H

#include <guest/device.h>
#include <guest/event.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <takt/io.h>

#define DEV_STARTED (VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER)
#define DEV_AGREED  (DEV_STARTED | VIRTIO_FEATURES_OK)
#define DEV_RUNS    (DEV_AGREED | VIRTIO_DRIVER_OK)
#define DEV_WAIT    (2 * NS_PER_S)

/* The main function of a test with several VMs. The VM with `vm=1` on its command line is the
 * front end, and 2 is the back end. `third` may be NULL. */
static inline int dev_test(void (*front)(void), void (*back)(void), void (*third)(void),
                           const char *reason) {
    void (*const role[])(void) = { front, back, third };

    test_begin();
    test_needs_takt();
    role[cmdline_u64("vm", 1) - 1]();
    return test_end(reason);
}

struct box {
    volatile u64 asked, answered, command, lives;
};

static inline u32 dev_get(u32 n, u32 reg) {
    return mmio_read32((void *)(TAKT_VIRTIO_GPA + n * PAGE_SIZE + reg));
}

static inline void dev_put(u32 n, u32 reg, u32 value) {
    mmio_write32((void *)(TAKT_VIRTIO_GPA + n * PAGE_SIZE + reg), value);
}

/* Waits for an event on `port`, and clears its pending bit. */
static inline void dev_await(u32 port, const char *what) {
    if (event_poll(port, DEV_WAIT)) test_fatal("%s: nothing comes", what);
    event_take(port);
}

static inline void dev_await_type(u32 n, u32 type) {
    while (dev_get(n, VIRTIO_DEVICE_ID) != type)
        dev_await(dev_get(n, TAKT_VIRTIO_CONFIG_PORT), "the offer");
}

static inline void dev_queue(u32 n, u32 queue, u32 size, u64 desc, u64 avail, u64 used) {
    u64 part[] = { desc, avail, used };

    dev_put(n, VIRTIO_QUEUE_SEL, queue);
    dev_put(n, VIRTIO_QUEUE_NUM, size);
    for (u32 i = 0; i < 3; i++) {
        dev_put(n, VIRTIO_QUEUE_DESC + 0x10 * i, (u32)part[i]);
        dev_put(n, VIRTIO_QUEUE_DESC + 0x10 * i + 4, (u32)(part[i] >> 32));
    }
    dev_put(n, VIRTIO_QUEUE_READY, 1);
}

static inline void dev_agree(u32 n) {
    dev_put(n, VIRTIO_STATUS, VIRTIO_ACKNOWLEDGE);
    dev_put(n, VIRTIO_STATUS, DEV_STARTED);
    dev_put(n, VIRTIO_DRIVER_FEATURES_SEL, 1);
    dev_put(n, VIRTIO_DRIVER_FEATURES, 1);
    dev_put(n, VIRTIO_STATUS, DEV_AGREED);
    CHECK(dev_get(n, VIRTIO_STATUS) == DEV_AGREED, "features are not taken: %x",
          dev_get(n, VIRTIO_STATUS));
}

/* Device n runs, with `box` and its page as its first queue. */
static inline void dev_start(u32 n, struct box *box) {
    dev_agree(n);
    dev_queue(n, 0, 16, (u64)box, (u64)box + 1024, (u64)box + 2048);
    CHECK(dev_get(n, VIRTIO_QUEUE_READY) == 1, "the queue is not taken");
    dev_put(n, VIRTIO_STATUS, DEV_RUNS);
    CHECK(dev_get(n, VIRTIO_STATUS) == DEV_RUNS, "it does not run: %x", dev_get(n, VIRTIO_STATUS));
}

/* Asks the back end of device n for an answer. */
static inline void dev_ask(u32 n, struct box *box, u64 command) {
    u32 port = dev_get(n, TAKT_VIRTIO_PORT);
    u64 asked = box->asked + 1;

    box->command = command;
    box->asked = asked;
    dev_put(n, VIRTIO_QUEUE_NOTIFY, 0);
    dev_await(port, "the answer");
    CHECK(box->answered == asked, "asked %lu, answered %lu", asked, box->answered);
}

/* ---- the back end ---- */

struct dev_back {
    struct takt_back is;
    struct takt_offer offer;
    struct takt_front front;
    struct takt_window window;
    struct box *box; /* as the back end sees it */
    u32 bell, port;
};

/* Waits for the first device to serve. */
static inline void back_find(struct dev_back *b) {
    u64 end = time_ns() + DEV_WAIT;

    b->bell = (u32)hypercall0(TAKT_HC_BACK_PORT);
    while (hypercall2(TAKT_HC_BACK_LIST, 0, (u64)&b->is) == -ENOENT) {
        if (time_ns() > end) test_fatal("there is no device to serve");
        event_poll(b->bell, 10 * NS_PER_MS);
        event_take(b->bell);
    }
}

static inline void back_offer(struct dev_back *b) {
    i64 port;

    b->offer.features = BIT(VIRTIO_F_VERSION_1);
    b->offer.nr_queues = 2;
    b->offer.queue_max = 64;
    b->offer.config_len = 4;
    port = hypercall2(TAKT_HC_BACK_OFFER, b->is.handle, (u64)&b->offer);
    if (port <= 0) test_fatal("offering says %ld", port);
    b->port = (u32)port;
}

static inline void back_map(struct dev_back *b) {
    i64 error = hypercall2(TAKT_HC_BACK_MAP, b->is.handle, (u64)&b->window);

    if (error || window_map(&b->window)) test_fatal("mapping says %ld", error);
}

static inline i64 back_state(struct dev_back *b, u32 resets) {
    return hypercall3(TAKT_HC_BACK_STATE, b->is.handle, (u64)&b->front, resets);
}

/* Waits until the device runs. */
static inline void back_await(struct dev_back *b, u32 resets) {
    while (back_state(b, resets) == 0 && b->front.status != DEV_RUNS)
        dev_await(b->port, "the driver");
    b->box = (struct box *)(b->window.base + b->front.queue[0].desc);
}

static inline void back_irq(struct dev_back *b) {
    CHECK(hypercall1(TAKT_HC_BACK_IRQ, b->is.handle) == 0, "cannot interrupt");
}

#endif
