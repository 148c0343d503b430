/* The registers of a virtio device: what a driver may do, and that everything else does nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "vdev/virtio_mmio.h"

#define RAM      (4ull << 20)
#define STARTED  (VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER)
#define AGREED   (STARTED | VIRTIO_FEATURES_OK)
#define RUNNING  (AGREED | VIRTIO_DRIVER_OK)
#define FEATURES (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_EVENT_IDX) | BIT(5))

static struct guestmem mem = { .size = RAM, .low_size = RAM };
static struct virtio_mmio dev;
static struct takt_offer offer;

static u32 get(u32 reg) { return virtio_mmio_read(&dev, reg, 4); }

static unsigned put(u32 reg, u32 value) { return virtio_mmio_write(&dev, reg, 4, value); }

static void no_device(void) {
    dev = (struct virtio_mmio){ .mem = &mem, .type = VIRTIO_ID_BLOCK, .port = 5, .config_port = 6 };
    offer = (struct takt_offer){
        .features = FEATURES, .nr_queues = 2, .queue_max = 256, .config_len = 6
    };
    memcpy(offer.config, "abcdef", 6);
}

static void offered(void) {
    unsigned tell = 0;

    no_device();
    assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), 0);
    assert_int_equal(tell, VIRTIO_TELL_FRONT);
}

static void take_features(u64 features) {
    put(VIRTIO_DRIVER_FEATURES_SEL, 1);
    put(VIRTIO_DRIVER_FEATURES, (u32)(features >> 32));
    put(VIRTIO_DRIVER_FEATURES_SEL, 0);
    put(VIRTIO_DRIVER_FEATURES, (u32)features);
}

static void agreed(void) {
    offered();
    put(VIRTIO_STATUS, VIRTIO_ACKNOWLEDGE);
    put(VIRTIO_STATUS, STARTED);
    take_features(FEATURES);
    put(VIRTIO_STATUS, AGREED);
    assert_int_equal(get(VIRTIO_STATUS), AGREED);
}

static void queue(u32 n, u32 size, u64 desc, u64 avail, u64 used) {
    put(VIRTIO_QUEUE_SEL, n);
    put(VIRTIO_QUEUE_NUM, size);
    put(VIRTIO_QUEUE_DESC, (u32)desc);
    put(VIRTIO_QUEUE_DESC + 4, (u32)(desc >> 32));
    put(VIRTIO_QUEUE_DRIVER, (u32)avail);
    put(VIRTIO_QUEUE_DRIVER + 4, (u32)(avail >> 32));
    put(VIRTIO_QUEUE_DEVICE, (u32)used);
    put(VIRTIO_QUEUE_DEVICE + 4, (u32)(used >> 32));
    put(VIRTIO_QUEUE_READY, 1);
}

static void running(void) {
    agreed();
    queue(0, 256, 0x10000, 0x11000, 0x12000);
    queue(1, 8, RAM - 4096, RAM - 2048, RAM - 128);
    assert_int_equal(put(VIRTIO_STATUS, RUNNING), VIRTIO_TELL_BACK);
    assert_int_equal(get(VIRTIO_STATUS), RUNNING);
    assert_int_equal(dev.dropped, 0);
}

static struct takt_front state(u32 resets) {
    struct takt_front f;

    memset(&f, 0xee, sizeof(f));
    virtio_mmio_state(&dev, resets, &f);
    return f;
}

static void test_before_the_offer(void **s) {
    no_device();
    assert_int_equal(get(VIRTIO_MAGIC), 0x74726976);
    assert_int_equal(get(VIRTIO_VERSION), 2);
    assert_int_equal(get(VIRTIO_DEVICE_ID), 0);
    assert_int_equal(get(TAKT_VIRTIO_PORT), 5);
    assert_int_equal(get(TAKT_VIRTIO_CONFIG_PORT), 6);
    put(VIRTIO_STATUS, STARTED);
    assert_int_equal(get(VIRTIO_STATUS), 0);
    put(VIRTIO_STATUS, 0);
    queue(0, 8, 0x1000, 0x2000, 0x3000);
    assert_int_equal(get(VIRTIO_QUEUE_READY), 0);
    assert_false(virtio_mmio_notify(&dev, 0));
    assert_int_equal(virtio_mmio_read_none(VIRTIO_MAGIC), 0x74726976);
    assert_int_equal(virtio_mmio_read_none(TAKT_VIRTIO_PORT), 0);
    assert_int_equal(virtio_mmio_read_none(VIRTIO_DEVICE_ID), 0);
}

static void test_what_is_offered(void **s) {
    offered();
    assert_int_equal(get(VIRTIO_DEVICE_ID), VIRTIO_ID_BLOCK);
    assert_int_equal(get(VIRTIO_DEVICE_FEATURES), (u32)FEATURES);
    put(VIRTIO_DEVICE_FEATURES_SEL, 1);
    assert_int_equal(get(VIRTIO_DEVICE_FEATURES), 1);
    put(VIRTIO_DEVICE_FEATURES_SEL, 2);
    assert_int_equal(get(VIRTIO_DEVICE_FEATURES), 0);
    assert_int_equal(get(VIRTIO_QUEUE_NUM_MAX), 256);
    put(VIRTIO_QUEUE_SEL, 2);
    assert_int_equal(get(VIRTIO_QUEUE_NUM_MAX), 0);
    assert_int_equal(get(VIRTIO_INTERRUPT_STATUS), VIRTIO_INT_CONFIG);
    put(VIRTIO_INTERRUPT_ACK, VIRTIO_INT_CONFIG);
    assert_int_equal(get(VIRTIO_INTERRUPT_STATUS), 0);
    for (u32 reg = VIRTIO_SHM_LEN; reg < VIRTIO_SHM_END; reg += 4)
        assert_int_equal(get(reg), 0xffffffff);
    assert_int_equal(get(VIRTIO_SHM_END), 0);
}

static void test_offers(void **s) {
    static const struct {
        u64 features;
        u32 nr, max, len, reserved;
    } bad[] = {
        { FEATURES, 0, 256, 6, 0 },
        { FEATURES, 9, 256, 6, 0 },
        { FEATURES, 1, 0, 6, 0 },
        { FEATURES, 1, 3, 6, 0 },
        { FEATURES, 1, 2048, 6, 0 },
        { FEATURES, 1, 256, 257, 0 },
        { FEATURES, 1, 256, 6, 1 },
        { BIT(5), 1, 256, 6, 0 },
        { FEATURES | BIT(34), 1, 256, 6, 0 },
        { FEATURES | BIT(40), 1, 256, 6, 0 },
        { FEATURES | BIT(38), 1, 256, 6, 0 },
    };
    unsigned tell;
    u32 generation;

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        no_device();
        offer = (struct takt_offer){ .features = bad[i].features,
                                     .nr_queues = bad[i].nr,
                                     .queue_max = bad[i].max,
                                     .config_len = bad[i].len,
                                     .reserved = bad[i].reserved };
        assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), -EINVAL);
        assert_int_equal(get(VIRTIO_DEVICE_ID), 0);
    }
    running();
    generation = get(VIRTIO_CONFIG_GENERATION);
    put(VIRTIO_INTERRUPT_ACK, ~0u);
    offer.config[0] = 'z';
    assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), 0);
    assert_int_equal(tell, VIRTIO_TELL_FRONT);
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG, 1), 'z');
    assert_int_not_equal(get(VIRTIO_CONFIG_GENERATION), generation);
    assert_int_equal(get(VIRTIO_INTERRUPT_STATUS), VIRTIO_INT_CONFIG);
    assert_int_equal(get(VIRTIO_STATUS), RUNNING);
    offer.nr_queues = 1;
    assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), -EBUSY);
    assert_true(virtio_mmio_notify(&dev, 1));
}

static void test_features(void **s) {
    static const u64 bad[] = { FEATURES & ~BIT(VIRTIO_F_VERSION_1), FEATURES | BIT(6), ~0ull, 0 };

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        offered();
        put(VIRTIO_STATUS, STARTED);
        take_features(bad[i]);
        put(VIRTIO_STATUS, AGREED);
        assert_int_equal(get(VIRTIO_STATUS), STARTED);
        put(VIRTIO_STATUS, RUNNING);
        assert_int_equal(get(VIRTIO_STATUS), STARTED);
        assert_false(virtio_mmio_notify(&dev, 0));
        take_features(FEATURES & ~BIT(5)); /* and then it thinks better of it */
        put(VIRTIO_STATUS, AGREED);
        assert_int_equal(get(VIRTIO_STATUS), AGREED);
    }
    take_features(0); /* too late */
    assert_int_equal(dev.front.features, FEATURES & ~BIT(5));
    offered(); /* FEATURES_OK before anything */
    take_features(FEATURES);
    put(VIRTIO_STATUS, VIRTIO_FEATURES_OK);
    assert_int_equal(get(VIRTIO_STATUS), 0);
    put(VIRTIO_STATUS, VIRTIO_DRIVER_OK | VIRTIO_NEEDS_RESET | 0x30);
    assert_int_equal(get(VIRTIO_STATUS), 0);
}

static void test_queues(void **s) {
    struct takt_front f;

    running();
    f = state(0);
    assert_int_equal(f.status, RUNNING);
    assert_int_equal(f.features, FEATURES);
    assert_int_equal(f.nr_queues, 2);
    assert_int_equal(f.queue[0].size, 256);
    assert_int_equal(f.queue[0].desc, 0x10000);
    assert_int_equal(f.queue[0].avail, 0x11000);
    assert_int_equal(f.queue[0].used, 0x12000);
    assert_true(f.queue[0].ready && f.queue[1].ready && !f.queue[2].ready);
    queue(0, 128, 0x20000, 0x21000, 0x22000); /* what is ready stays */
    put(VIRTIO_QUEUE_READY, 0);
    assert_int_equal(get(VIRTIO_QUEUE_READY), 1);
    assert_memory_equal(&dev.front.queue[0], &f.queue[0], sizeof(f.queue[0]));
    agreed();
    queue(0, 256, 0x10000, 0x11000, 0x12000);
    put(VIRTIO_QUEUE_READY, 2);
    assert_int_equal(get(VIRTIO_QUEUE_READY), 1);
    put(VIRTIO_QUEUE_READY, 0); /* before DRIVER_OK it may */
    assert_int_equal(get(VIRTIO_QUEUE_READY), 0);
    offered(); /* features first */
    put(VIRTIO_STATUS, STARTED);
    queue(0, 256, 0x10000, 0x11000, 0x12000);
    assert_int_equal(get(VIRTIO_QUEUE_READY), 0);
}

/* Refuses queues of a wrong size or alignment, outside the RAM, or beyond 2^64. */
static void test_bad_queues(void **s) {
    static const struct {
        u32 size;
        u64 desc, avail, used;
    } bad[] = {
        { 0, 0x1000, 0x2000, 0x3000 },        { 3, 0x1000, 0x2000, 0x3000 },
        { 512, 0x1000, 0x2000, 0x3000 },      { 65535, 0x1000, 0x2000, 0x3000 },
        { 1u << 31, 0x1000, 0x2000, 0x3000 }, { 8, 0x1008, 0x2000, 0x3000 },
        { 8, 0x1000, 0x2001, 0x3000 },        { 8, 0x1000, 0x2000, 0x3002 },
        { 8, RAM, 0x2000, 0x3000 },           { 8, RAM - 112, 0x2000, 0x3000 },
        { 8, 0x1000, RAM - 20, 0x3000 },      { 8, 0x1000, 0x2000, RAM - 68 },
        { 8, 0xfed00000, 0x2000, 0x3000 },    { 8, ~0xfull, 0x2000, 0x3000 },
        { 8, 0x1000, ~1ull, 0x3000 },         { 8, 0x1000, 0x2000, ~3ull },
        { 8, BIT(38), 0x2000, 0x3000 },
    };

    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        agreed();
        queue(1, 8, 0x4000, 0x5000, 0x6000);
        put(VIRTIO_INTERRUPT_ACK, ~0u);
        queue(0, bad[i].size, bad[i].desc, bad[i].avail, bad[i].used);
        assert_int_equal(get(VIRTIO_QUEUE_READY), 0);
        assert_int_equal(get(VIRTIO_STATUS), AGREED | VIRTIO_NEEDS_RESET);
        assert_int_equal(get(VIRTIO_INTERRUPT_STATUS), VIRTIO_INT_CONFIG);
        put(VIRTIO_STATUS, RUNNING);
        assert_int_equal(get(VIRTIO_STATUS), AGREED | VIRTIO_NEEDS_RESET);
        assert_false(virtio_mmio_notify(&dev, 1));
        queue(0, 8, 0x1000, 0x2000, 0x3000);
        assert_int_equal(get(VIRTIO_QUEUE_READY), 0);
        put(VIRTIO_STATUS, 0);
        assert_int_equal(get(VIRTIO_STATUS), 0); /* it never ran: nobody holds the rings */
    }
}

static void test_notify(void **s) {
    agreed();
    queue(1, 8, 0x1000, 0x2000, 0x3000);
    assert_false(virtio_mmio_notify(&dev, 1)); /* before DRIVER_OK */
    assert_false(virtio_mmio_used(&dev));
    put(VIRTIO_STATUS, RUNNING);
    assert_true(virtio_mmio_notify(&dev, 1));
    assert_false(virtio_mmio_notify(&dev, 0)); /* not ready */
    assert_false(virtio_mmio_notify(&dev, 2));
    assert_false(virtio_mmio_notify(&dev, 32)); /* H10 */
    assert_false(virtio_mmio_notify(&dev, 33));
    assert_false(virtio_mmio_notify(&dev, 65535));
    assert_false(virtio_mmio_notify(&dev, ~0u));
    assert_int_equal(dev.notifies, 1);
    assert_int_equal(dev.dropped, 7);
    assert_true(virtio_mmio_used(&dev));
    assert_int_equal(dev.interrupts, 1);
    assert_int_equal(get(VIRTIO_INTERRUPT_STATUS) & VIRTIO_INT_USED, VIRTIO_INT_USED);
    assert_int_equal(put(VIRTIO_STATUS, RUNNING | VIRTIO_FAILED), VIRTIO_TELL_BACK);
    assert_false(virtio_mmio_notify(&dev, 1));
}

static void begin_again(void) {
    put(VIRTIO_STATUS, get(VIRTIO_STATUS) | VIRTIO_ACKNOWLEDGE);
    put(VIRTIO_STATUS, get(VIRTIO_STATUS) | VIRTIO_DRIVER);
    take_features(FEATURES);
    put(VIRTIO_STATUS, get(VIRTIO_STATUS) | VIRTIO_FEATURES_OK);
    queue(0, 16, 0x1000, 0x2000, 0x3000);
    put(VIRTIO_STATUS, get(VIRTIO_STATUS) | VIRTIO_DRIVER_OK);
}

static void test_reset(void **s) {
    struct takt_front f;

    running();
    assert_int_equal(put(VIRTIO_STATUS, 0), VIRTIO_TELL_BACK);
    assert_int_equal(get(VIRTIO_STATUS), VIRTIO_NEEDS_RESET); /* not yet */
    assert_false(virtio_mmio_notify(&dev, 0));
    f = state(0); /* to look acknowledges nothing */
    assert_int_equal(f.resets, 1);
    assert_int_equal(f.status, VIRTIO_NEEDS_RESET);
    assert_false(f.queue[0].ready);
    assert_int_equal(get(VIRTIO_STATUS), VIRTIO_NEEDS_RESET);
    assert_int_equal(put(VIRTIO_STATUS, 0), 0); /* again: the same one */
    assert_int_equal(virtio_mmio_state(&dev, 2, &f), 0);
    assert_int_equal(virtio_mmio_state(&dev, 1, &f), VIRTIO_TELL_FRONT);
    assert_int_equal(f.status, 0);
    assert_int_equal(get(VIRTIO_STATUS), 0);
    assert_int_equal(get(VIRTIO_INTERRUPT_STATUS), 0);
    assert_int_equal(get(VIRTIO_DEVICE_ID), VIRTIO_ID_BLOCK);
    assert_int_equal(virtio_mmio_state(&dev, 1, &f), 0);

    /* A driver that does not wait is served when the back end has let go of the old rings. */
    running();
    put(VIRTIO_STATUS, 0);
    begin_again();
    assert_false(virtio_mmio_notify(&dev, 0));
    assert_int_equal(state(0).status, RUNNING | VIRTIO_NEEDS_RESET);
    assert_int_equal(state(0).resets, 1);
    /* The driver resets the device once more, before anybody has seen what it had begun. */
    put(VIRTIO_STATUS, 0);
    assert_int_equal(state(0).resets, 1);
    begin_again();
    f = state(1);
    assert_int_equal(f.status, RUNNING);
    assert_int_equal(f.queue[0].size, 16);
    assert_true(virtio_mmio_notify(&dev, 0));
    assert_int_equal(get(VIRTIO_STATUS), RUNNING);
}

static void test_broken_and_withdrawn(void **s) {
    struct takt_front f;
    unsigned tell;

    running();
    put(VIRTIO_INTERRUPT_ACK, ~0u);
    assert_int_equal(virtio_mmio_break(&dev), VIRTIO_TELL_FRONT | VIRTIO_TELL_BACK);
    assert_int_equal(virtio_mmio_break(&dev), 0);
    assert_int_equal(get(VIRTIO_STATUS), RUNNING | VIRTIO_NEEDS_RESET);
    assert_int_equal(get(VIRTIO_INTERRUPT_STATUS), VIRTIO_INT_CONFIG);
    assert_false(virtio_mmio_notify(&dev, 0));
    assert_false(virtio_mmio_used(&dev));
    put(VIRTIO_STATUS, 0);
    assert_int_equal(get(VIRTIO_STATUS), VIRTIO_NEEDS_RESET); /* it held the rings */
    f = state(1);
    assert_int_equal(f.status, 0);

    running();
    assert_int_equal(virtio_mmio_withdraw(&dev), VIRTIO_TELL_FRONT);
    assert_int_equal(virtio_mmio_withdraw(&dev), 0);
    assert_int_equal(get(VIRTIO_DEVICE_ID), 0);
    assert_int_equal(get(VIRTIO_STATUS), RUNNING | VIRTIO_NEEDS_RESET);
    assert_int_equal(get(VIRTIO_DEVICE_FEATURES), 0);
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG, 1), 0);
    assert_false(virtio_mmio_notify(&dev, 0));
    assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), 0); /* somebody else */
    assert_int_equal(get(VIRTIO_STATUS), RUNNING | VIRTIO_NEEDS_RESET);
    assert_false(state(0).queue[0].ready);
    put(VIRTIO_STATUS, 0);
    assert_int_equal(get(VIRTIO_STATUS), 0); /* who never had the rings */
    running();                               /* a reset that nobody will acknowledge */
    put(VIRTIO_STATUS, 0);
    virtio_mmio_withdraw(&dev);
    assert_int_equal(get(VIRTIO_STATUS), 0);
}

/* A device that stays when its back end goes: its driver sees no change, and the next back end goes
 * on with the rings. */
static void test_stays(void **s) {
    struct takt_front before, f;
    unsigned tell;

    running();
    before = state(0);
    assert_int_equal(before.flags, 0); /* other devices do not stay */
    dev.stays = true;
    assert_int_equal(state(0).flags, TAKT_FRONT_ORDERED);
    put(VIRTIO_INTERRUPT_ACK, ~0u);
    for (u32 round = 0; round < 2; round++) {
        assert_int_equal(virtio_mmio_withdraw(&dev), 0);
        assert_int_equal(get(VIRTIO_DEVICE_ID), VIRTIO_ID_BLOCK);
        assert_int_equal(get(VIRTIO_STATUS), RUNNING);
        assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG, 1), 'a');
        assert_false(virtio_mmio_notify(&dev, 0)); /* nobody would hear it */
        assert_false(virtio_mmio_used(&dev));
        assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), 0);
        assert_int_equal(tell, VIRTIO_TELL_BACK);
        assert_int_equal(get(VIRTIO_INTERRUPT_STATUS), 0);
        assert_true(virtio_mmio_notify(&dev, 0));
        f = state(0);
        assert_int_equal(f.flags, TAKT_FRONT_ORDERED | TAKT_FRONT_RESUMED);
        f.flags = 0;
        assert_memory_equal(&f, &before, sizeof(f));
    }
    assert_int_equal(virtio_mmio_offer_refused(&dev, &offer), 0);
    offer.nr_queues = 1;
    assert_int_equal(virtio_mmio_offer_refused(&dev, &offer), -EBUSY);
    offer.nr_queues = 2;

    virtio_mmio_withdraw(&dev); /* and the next back end offers another configuration */
    offer.config[0] = 'z';
    assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), 0);
    assert_int_equal(tell, VIRTIO_TELL_BACK | VIRTIO_TELL_FRONT);
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG, 1), 'z');
    assert_int_equal(get(VIRTIO_STATUS), RUNNING);

    virtio_mmio_withdraw(&dev); /* another device: the driver cannot go on with that */
    offer.features |= BIT(6);
    assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), 0);
    assert_true(tell & VIRTIO_TELL_FRONT);
    assert_int_equal(get(VIRTIO_STATUS), RUNNING | VIRTIO_NEEDS_RESET);
    assert_false(virtio_mmio_notify(&dev, 0));
    assert_false(state(0).queue[0].ready);
}

/* A driver that resets a device which has no back end at the time need not wait for one, and no
 * back end has used the rings that it sets up then. */
static void test_stays_and_resets(void **s) {
    unsigned tell;

    running();
    dev.stays = true;
    put(VIRTIO_STATUS, 0); /* the back end has not let go when it ends */
    virtio_mmio_withdraw(&dev);
    assert_int_equal(get(VIRTIO_STATUS), 0);
    begin_again();
    assert_int_equal(get(VIRTIO_STATUS), RUNNING);
    put(VIRTIO_STATUS, 0);
    assert_int_equal(get(VIRTIO_STATUS), 0);
    begin_again();
    assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), 0);
    assert_int_equal(state(0).flags, TAKT_FRONT_ORDERED);
    assert_int_equal(state(0).status, RUNNING);
    virtio_mmio_withdraw(&dev);
    put(VIRTIO_STATUS, 0);
    begin_again();
    assert_int_equal(virtio_mmio_offer(&dev, &offer, &tell), 0);
    assert_int_equal(state(0).flags, TAKT_FRONT_ORDERED);
    assert_true(virtio_mmio_notify(&dev, 0));
    put(VIRTIO_STATUS, 0); /* the new back end has to let go */
    assert_int_equal(get(VIRTIO_STATUS), VIRTIO_NEEDS_RESET);
    assert_int_equal(state(1).flags, TAKT_FRONT_ORDERED);
    assert_int_equal(get(VIRTIO_STATUS), 0);
}

static void test_config(void **s) {
    offered();
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG, 4), 0x64636261);
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG + 4, 2), 0x6665);
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG + 5, 1), 0x66);
    /* Behind its end it reads as zeros. */
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG + 4, 4), 0x6665);
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG + 6, 4), 0);
    assert_int_equal(virtio_mmio_read(&dev, 0xffc, 4), 0);
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG, 8), 0);
    for (unsigned size = 1; size <= 4; size *= 2) virtio_mmio_write(&dev, VIRTIO_CONFIG, size, 0);
    assert_int_equal(virtio_mmio_read(&dev, VIRTIO_CONFIG, 4), 0x64636261);
}

/* Writes to registers that cannot be written, or with a width that does not exist, change
 * nothing. */
static void test_dropped(void **s) {
    struct virtio_mmio before;

    running();
    before = dev;
    for (u32 reg = 0; reg < PAGE_SIZE; reg++)
        for (unsigned size = 1; size <= 8; size *= 2) {
            bool known = size == 4 && (reg == VIRTIO_STATUS || reg == VIRTIO_DEVICE_FEATURES_SEL ||
                                       reg == VIRTIO_DRIVER_FEATURES_SEL ||
                                       reg == VIRTIO_QUEUE_SEL || reg == VIRTIO_INTERRUPT_ACK);

            if (known) continue;
            assert_int_equal(virtio_mmio_write(&dev, reg, size, 0x5a5a5a5a), 0);
            if (reg < VIRTIO_CONFIG && (size != 4 || reg % 4))
                assert_int_equal(virtio_mmio_read(&dev, reg, size), 0);
        }
    assert_true(dev.dropped > before.dropped);
    dev.dropped = before.dropped;
    assert_memory_equal(&dev, &before, sizeof(dev));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_the_offer),
        cmocka_unit_test(test_what_is_offered),
        cmocka_unit_test(test_offers),
        cmocka_unit_test(test_features),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_bad_queues),
        cmocka_unit_test(test_notify),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_broken_and_withdrawn),
        cmocka_unit_test(test_stays),
        cmocka_unit_test(test_stays_and_resets),
        cmocka_unit_test(test_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
