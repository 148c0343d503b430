/* vms: 2 */
/* time: 4000 */
/* keys1: net = dev_back_ends-2 */
/* The back end of a device reboots while the front end uses it. The front end is told that the
 * device needs a reset, and does not find it any more. When the back end offers it again, it
 * works. */
#include "dev_rig.h"

enum { PING = 1, DIE, END };

static void front(void) {
    struct box *box = page_alloc(1);
    u32 config = dev_get(0, TAKT_VIRTIO_CONFIG_PORT);

    memset(box, 0, PAGE_SIZE);
    dev_await_type(0, VIRTIO_ID_NET);
    dev_start(0, box);
    dev_ask(0, box, PING);
    CHECK(box->lives == 1, "life %lu", box->lives);
    event_take(config);
    dev_ask(0, box, DIE);
    dev_await(config, "the end of the back end");
    CHECK(dev_get(0, VIRTIO_DEVICE_ID) == 0, "the device is still there");
    CHECK(dev_get(0, VIRTIO_STATUS) == (DEV_RUNS | VIRTIO_NEEDS_RESET), "status %x",
          dev_get(0, VIRTIO_STATUS));
    CHECK(dev_get(0, VIRTIO_QUEUE_NUM_MAX) == 0, "it has queues");
    dev_put(0, VIRTIO_QUEUE_NOTIFY, 0);
    dev_put(0, VIRTIO_STATUS, 0);
    CHECK(dev_get(0, VIRTIO_STATUS) == 0, "a reset without a back end waits");
    dev_put(0, VIRTIO_STATUS, DEV_STARTED);
    CHECK(dev_get(0, VIRTIO_STATUS) == 0, "a driver without a device");
    dev_await_type(0, VIRTIO_ID_NET);
    dev_start(0, box);
    dev_ask(0, box, PING);
    CHECK(box->lives == 2, "life %lu", box->lives);
    dev_ask(0, box, END);
}

static void back(void) {
    struct dev_back b = { 0 };
    u64 seen = ~0ull, command;

    back_find(&b);
    back_offer(&b);
    back_map(&b);
    back_await(&b, 0);
    b.box->lives++;
    for (;;) {
        while (b.box->asked == seen || b.box->asked == b.box->answered)
            dev_await(b.port, "a request");
        seen = b.box->asked;
        command = b.box->command; /* with the answer the front end goes on to the next */
        b.box->answered = seen;
        back_irq(&b);
        if (command == END) return;
        if (command == DIE) {
            sleep_ns(5 * NS_PER_MS); /* the front end has its answer */
            hypercall2(TAKT_HC_SHUTDOWN, TAKT_SHUTDOWN_REBOOT, 0);
        }
    }
}

int main(void) { return dev_test(front, back, NULL, "it came again"); }
