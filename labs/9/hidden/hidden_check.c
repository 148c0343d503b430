/* Tests of lab 9 that students do not have. */
#include "rig.h"

/* Thousands of requests: the device takes some of them at a time, gives them back in another order,
 * and notifications and interrupts are the only way in which each side wakes the other. */
static void load(u64 features) {
    struct vring_chain held[8];
    u32 nr_held = 0, added = 0, back = 0;
    bool notified = false, interrupted = false;

    begin(features);
    expect_result("the ring", ring_join(&served, &ring, features), 0);
    for (u32 step = 0; step < 20000; step++) {
        struct vring_sg sg[3] = { { ARENA_GPA, 16 }, { ARENA_GPA, 512 }, { ARENA_GPA, 1 } };
        u32 len;

        for (u32 i = rig_rand(4); i; i--)
            if (!vring_front_add(&ring, sg, 1, 1 + rig_rand(2), &ring)) added++;
        notified |= vring_front_publish(&ring);
        if (notified) {
            while (nr_held < ARRAY_SIZE(held) && vring_back_take(&served, &held[nr_held]) > 0)
                nr_held++;
            notified = nr_held == ARRAY_SIZE(held) || vring_back_listen(&served);
        }
        for (u32 i = rig_rand(4); i && nr_held; i--) {
            u32 which = rig_rand(nr_held);

            vring_back_put(&served, held[which].head, 1);
            held[which] = held[--nr_held];
        }
        interrupted |= vring_back_flush(&served);
        if (!interrupted) continue;
        while (vring_front_take(&ring, &len)) back++;
        interrupted = vring_front_listen(&ring, 1);
    }
    expect("that neither side finds the ring broken", ring.broken || served.broken, false);
    expect("that chains still move at the end", back > 9000, true);
    expect("chains that the device has", vring_front_outstanding(&ring), added - back);
}

static void random_load(void) {
    load(0);
    load(BIT(VIRTIO_F_EVENT_IDX));
    load(BIT(VIRTIO_F_EVENT_IDX) | BIT(VIRTIO_F_INDIRECT));
}

static void no_memory(void) {
    struct vring_front r;

    plug(BIT(VIRTIO_F_VERSION_1));
    arena_used = ARENA_SIZE;
    expect_result("virtio_begin", virtio_begin(&dev, 0), 0);
    expect_result("virtio_queue without memory", virtio_queue(&dev, 0, &r, SIZE), -ENOMEM);
    expect("that the device was told of no ring", regs.desc, 0);
    arena_used = 0;
    expect_result("virtio_queue of a queue that is not there", virtio_queue(&dev, 1, &r, SIZE),
                  -ENODEV);
    expect_result("virtio_queue", virtio_queue(&dev, 0, &r, 2 * SIZE), 0);
    expect("descriptors of the queue", regs.queue_size, SIZE);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "random_load", random_load },
        { "no_memory", no_memory },
        { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
