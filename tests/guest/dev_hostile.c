/* vms: 3 */
/* memory: 4 */
/* time: 2500 */
/* keys1: net = dev_hostile-2 */
/* A front end that writes nonsense to the registers of its device harms itself alone: its device
 * needs a reset, or the access does nothing. The back end never sees a ring that is not in RAM,
 * and goes on serving. A third VM cannot do anything with the device. */
#include "dev_rig.h"

enum { PING = 1, END };

static u64 random(void) {
    static u64 r = 88172645463325252ull;

    r ^= r << 13;
    r ^= r >> 7;
    return r ^= r << 17;
}

static void reset(void) {
    u64 end = time_ns() + DEV_WAIT;

    dev_put(0, VIRTIO_STATUS, 0);
    while (dev_get(0, VIRTIO_STATUS) && time_ns() < end)
        event_poll(dev_get(0, TAKT_VIRTIO_CONFIG_PORT), NS_PER_MS),
            event_take(dev_get(0, TAKT_VIRTIO_CONFIG_PORT));
    CHECK(dev_get(0, VIRTIO_STATUS) == 0, "no reset: status %x", dev_get(0, VIRTIO_STATUS));
}

static void bad_queues(struct box *box) {
    u64 ram = 4 << 20, ok = (u64)box;
    struct {
        u32 size;
        u64 desc, avail, used;
    } bad[] = {
        { 0, ok, ok + 1024, ok + 2048 },        { 3, ok, ok + 1024, ok + 2048 },
        { 128, ok, ok + 1024, ok + 2048 },      { 65535, ok, ok + 1024, ok + 2048 },
        { 16, ok + 8, ok + 1024, ok + 2048 },   { 16, ok, ok + 1025, ok + 2048 },
        { 16, ok, ok + 1024, ok + 2050 },       { 16, ram, ok + 1024, ok + 2048 },
        { 16, ram - 16, ok + 1024, ok + 2048 }, { 16, ok, TAKT_SHARED_GPA, ok + 2048 },
        { 16, ok, ok + 1024, TAKT_VIRTIO_GPA }, { 16, ~0ull - 15, ok + 1024, ok + 2048 },
        { 16, ok, ~0ull - 1, ok + 2048 },       { 16, ok, ok + 1024, TAKT_FOREIGN_GPA },
    };

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        dev_agree(0);
        dev_queue(0, 0, bad[i].size, bad[i].desc, bad[i].avail, bad[i].used);
        CHECK(dev_get(0, VIRTIO_QUEUE_READY) == 0, "bad queue %u is ready", i);
        CHECK(dev_get(0, VIRTIO_STATUS) == (DEV_AGREED | VIRTIO_NEEDS_RESET),
              "bad queue %u: status %x", i, dev_get(0, VIRTIO_STATUS));
        dev_put(0, VIRTIO_STATUS, DEV_RUNS);
        CHECK(!(dev_get(0, VIRTIO_STATUS) & VIRTIO_DRIVER_OK), "bad queue %u runs", i);
        dev_put(0, VIRTIO_QUEUE_NOTIFY, 0);
        reset();
    }
}

static void out_of_order(void) {
    dev_put(0, VIRTIO_STATUS, VIRTIO_DRIVER_OK);
    CHECK(dev_get(0, VIRTIO_STATUS) == 0, "runs before anything");
    dev_put(0, VIRTIO_STATUS, DEV_STARTED);
    dev_put(0, VIRTIO_DRIVER_FEATURES_SEL, 1);
    dev_put(0, VIRTIO_DRIVER_FEATURES, ~0u);
    dev_put(0, VIRTIO_STATUS, DEV_AGREED);
    CHECK(dev_get(0, VIRTIO_STATUS) == DEV_STARTED, "features that were not offered");
    reset();
}

static void storms(void) {
    for (u32 i = 0; i < 3000; i++) dev_put(0, VIRTIO_QUEUE_NOTIFY, 0);
    for (u32 i = 0; i < 500; i++) dev_put(0, VIRTIO_QUEUE_NOTIFY, i & 1 ? 65535 : ~0u - i);
    for (u32 i = 0; i < 3000; i++) { /* any register, any value, but what would reset it */
        u32 reg = (u32)random() % PAGE_SIZE & ~3u;

        if (reg != VIRTIO_STATUS) dev_put((u32)random() % TAKT_MAX_DEVICES, reg, (u32)random());
        dev_get(0, (u32)random() % PAGE_SIZE & ~3u);
        *(volatile u8 *)(TAKT_VIRTIO_GPA + (u32)random() % PAGE_SIZE) = 0xff;
        *(volatile u16 *)(TAKT_VIRTIO_GPA + ((u32)random() % PAGE_SIZE & ~1u)) = 0xffff;
        *(volatile u64 *)(TAKT_VIRTIO_GPA + ((u32)random() % PAGE_SIZE & ~7u)) = ~0ull;
    }
}

static void front(void) {
    struct box *box = page_alloc(1);

    memset(box, 0, PAGE_SIZE);
    dev_await_type(0, VIRTIO_ID_NET);
    bad_queues(box);
    out_of_order();
    for (u32 i = 0; i < 3; i++) {
        dev_start(0, box);
        dev_ask(0, box, PING);
        storms();
        reset();
    }
    dev_start(0, box);
    dev_ask(0, box, END);
}

static void back(void) {
    struct dev_back b = { 0 };
    u32 resets = 0;
    u64 seen = 0;

    back_find(&b);
    back_offer(&b);
    back_map(&b);
    while (back_state(&b, resets) == 0) {
        for (u32 i = 0; i < TAKT_MAX_QUEUES; i++) {
            const struct takt_queue *q = &b.front.queue[i];

            CHECK(!q->ready || (q->size && q->size <= 64 && !(q->size & (q->size - 1)) &&
                                q->desc % 16 == 0 && q->desc < b.is.ram && q->avail < b.is.ram &&
                                q->used < b.is.ram),
                  "queue %u: %u at %lx", i, q->size, q->desc);
        }
        if (b.front.resets != resets) { /* it holds nothing from before */
            resets = b.front.resets;
            continue;
        }
        if (b.front.status == DEV_RUNS && b.front.queue[0].ready) {
            b.box = (struct box *)(b.window.base + b.front.queue[0].desc);
            if (b.box->asked != seen) {
                bool last = b.box->command == END;

                seen = b.box->asked;
                b.box->answered = seen;
                back_irq(&b);
                if (last) return;
            }
        }
        event_poll(b.port, DEV_WAIT);
        event_take(b.port);
    }
    test_fail("the device is gone");
}

static void third(void) {
    u32 handle = (takt_vm_id() - 2) * TAKT_MAX_DEVICES;
    u64 buffer[64] = { 0 };

    for (u32 i = 0; i < 300; i++) {
        for (u32 nr = TAKT_HC_BACK_OFFER; nr <= TAKT_HC_BACK_BROKEN; nr++) {
            i64 want = nr == TAKT_HC_BACK_UNMAP ? -ENOENT : -EPERM, got;

            got = hypercall3(nr, handle, (u64)buffer, 0);
            /* The front end may have ended. */
            CHECK(got == want || got == -ENOENT, "call %u gives %ld", nr, got);
            if (i == 0) CHECK(got == want, "call %u gives %ld", nr, got);
        }
        CHECK(hypercall2(TAKT_HC_BACK_LIST, 0, (u64)buffer) == -ENOENT, "a device to serve");
        sleep_ns(NS_PER_MS);
    }
}

int main(void) { return dev_test(front, back, third, "nobody else was hurt"); }
