/* vms: 2 */
/* time: 1500 */
/* keys1: net = dev_pair-2 rate=1M  delay=2ms; disk = dev_pair-2 */
/* A front end and its back end: the device appears when it is offered; queues and features
 * arrive; both see the same RAM; each notification and each interrupt comes once; the
 * configuration changes; the device needs a reset, and a reset waits for the back end. */
#include "dev_rig.h"

#define ROUNDS 50

enum { PING = 1, CONFIGURE, BREAK, END };

static void front(void) {
    struct box *box = page_alloc(1);
    u32 config = dev_get(0, TAKT_VIRTIO_CONFIG_PORT), port = dev_get(0, TAKT_VIRTIO_PORT),
        generation;

    memset(box, 0, PAGE_SIZE);
    for (u32 n = 0; n < TAKT_MAX_DEVICES; n++) {
        CHECK(dev_get(n, VIRTIO_MAGIC) == VIRTIO_MAGIC_VALUE && dev_get(n, VIRTIO_VERSION) == 2,
              "page %u", n);
        CHECK((dev_get(n, TAKT_VIRTIO_PORT) != 0) == (n < 2), "device %u", n);
    }
    CHECK(dev_get(2, VIRTIO_DEVICE_ID) == 0, "a device that is not there");
    dev_await_type(0, VIRTIO_ID_NET);
    dev_await_type(1, VIRTIO_ID_BLOCK);
    CHECK(dev_get(0, VIRTIO_QUEUE_NUM_MAX) == 64, "queue size %u",
          dev_get(0, VIRTIO_QUEUE_NUM_MAX));
    dev_start(0, box);
    event_take(config);
    for (u32 i = 0; i < ROUNDS; i++) {
        dev_ask(0, box, PING);
        CHECK(dev_get(0, VIRTIO_INTERRUPT_STATUS) & VIRTIO_INT_USED, "no interrupt status");
        dev_put(0, VIRTIO_INTERRUPT_ACK, VIRTIO_INT_USED);
        CHECK(!(dev_get(0, VIRTIO_INTERRUPT_STATUS) & VIRTIO_INT_USED), "not acknowledged");
    }
    CHECK(!event_is_pending(config), "a config event for nothing");

    dev_put(0, VIRTIO_INTERRUPT_ACK, VIRTIO_INT_CONFIG);
    generation = dev_get(0, VIRTIO_CONFIG_GENERATION);
    dev_ask(0, box, CONFIGURE);
    CHECK(event_take(config), "no config event");
    CHECK(dev_get(0, VIRTIO_CONFIG_GENERATION) != generation, "the generation is the same");
    CHECK(dev_get(0, VIRTIO_CONFIG) == 0x44434241, "configuration %x", dev_get(0, VIRTIO_CONFIG));
    CHECK(*(volatile u8 *)(TAKT_VIRTIO_GPA + VIRTIO_CONFIG + 2) == 0x43, "a byte of it");
    CHECK(dev_get(0, VIRTIO_INTERRUPT_STATUS) == (VIRTIO_INT_USED | VIRTIO_INT_CONFIG),
          "interrupt status %x", dev_get(0, VIRTIO_INTERRUPT_STATUS));

    box->command = BREAK;
    box->asked++;
    dev_put(0, VIRTIO_QUEUE_NOTIFY, 0);
    dev_await(config, "that it needs a reset");
    CHECK(dev_get(0, VIRTIO_STATUS) == (DEV_RUNS | VIRTIO_NEEDS_RESET), "status %x",
          dev_get(0, VIRTIO_STATUS));
    dev_put(0, VIRTIO_STATUS, 0);
    CHECK(dev_get(0, VIRTIO_STATUS) != 0, "it is reset before the back end has let go");
    while (dev_get(0, VIRTIO_STATUS)) dev_await(config, "the reset");
    CHECK(box->answered == box->asked, "the back end had not let go");
    CHECK(!event_is_pending(port), "an interrupt from before the reset");
    dev_start(0, box);
    dev_ask(0, box, END);
}

static void back(void) {
    struct dev_back b = { 0 }, disk = { 0 };
    u64 seen = 0, first;
    u32 events = 0, resets = 0;

    back_find(&b);
    while (hypercall2(TAKT_HC_BACK_LIST, 1, (u64)&disk.is) == -ENOENT) sleep_ns(NS_PER_MS);
    CHECK(b.is.type == VIRTIO_ID_NET && b.is.number == 0, "device %u of type %u", b.is.number,
          b.is.type);
    CHECK(disk.is.type == VIRTIO_ID_BLOCK && disk.is.handle == b.is.handle + 1, "handle %x",
          disk.is.handle);
    CHECK(strcmp(b.is.name, "dev_pair") == 0, "name %s", b.is.name);
    CHECK(strcmp(b.is.options, "rate=1M  delay=2ms") == 0 && !disk.is.options[0], "options %s",
          b.is.options);
    CHECK(b.is.ram == 4 << 20, "%lu bytes of RAM", b.is.ram);
    CHECK(hypercall2(TAKT_HC_BACK_LIST, 2, (u64)&b.is) == -ENOENT, "a third device");
    CHECK(hypercall1(TAKT_HC_BACK_IRQ, b.is.handle) == -EINVAL, "an interrupt before the offer");
    back_offer(&b);
    disk.is.handle = b.is.handle + 1;
    back_offer(&disk);
    back_map(&b);
    CHECK(b.window.base >= TAKT_FOREIGN_GPA && b.window.low == 4 << 20 && !b.window.high,
          "window at %lx", b.window.base);
    back_map(&disk);
    CHECK(disk.window.base == b.window.base, "two windows on one VM");
    back_await(&b, resets);
    CHECK(b.front.features == BIT(VIRTIO_F_VERSION_1), "features %lx", b.front.features);
    CHECK(b.front.queue[0].size == 16 && b.front.queue[0].ready && !b.front.queue[1].ready,
          "queues");
    CHECK(b.front.queue[0].used == b.front.queue[0].desc + 2048, "addresses");
    first = b.box->asked;
    for (;;) {
        while (b.box->asked == seen) {
            dev_await(b.port, "a request");
            events++;
        }
        seen = b.box->asked;
        b.box->answered = seen - (b.box->command == BREAK);
        if (b.box->command == CONFIGURE) {
            memcpy(b.offer.config, "ABCD", 4);
            back_offer(&b);
        }
        if (b.box->command == BREAK) break;
        back_irq(&b);
    }
    /* There are fewer if it looked before an event came, which is then one with the next. */
    CHECK(events > 0 && events <= ROUNDS + 4 - first, "%u events for %u requests", events, ROUNDS);
    hypercall1(TAKT_HC_BACK_BROKEN, b.is.handle);
    while (back_state(&b, resets) == 0 && b.front.resets == resets) dev_await(b.port, "the reset");
    CHECK(b.front.status == VIRTIO_NEEDS_RESET && !b.front.queue[0].ready, "status %x",
          b.front.status);
    sleep_ns(5 * NS_PER_MS); /* it has work to end */
    b.box->answered = seen;
    back_state(&b, ++resets);
    back_await(&b, resets);
    while (b.box->asked == seen) dev_await(b.port, "the last request");
    b.box->answered = b.box->asked;
    CHECK(b.box->command == END, "command %lu", b.box->command);
    back_irq(&b);
    CHECK(hypercall1(TAKT_HC_BACK_UNMAP, b.is.handle) == 0, "cannot unmap");
    CHECK(hypercall1(TAKT_HC_BACK_UNMAP, b.is.handle) == -ENOENT, "unmapped twice");
}

int main(void) { return dev_test(front, back, NULL, "a device works"); }
