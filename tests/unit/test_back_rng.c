/* The back end of an entropy device, with a driver of this test: buffers come back full of what the
 * source gives, and no word of the source is used twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/errno.h>
#include <takt/seed.h>
#include "device_rig.h"
#include "drivers/back_rng.h"

#define BUFFER 1024u
#define NOW    1000u

static struct rig_device rig;
static struct back_rng back;
static struct vring_front ring;
static u8 *buffer;
static u64 words, available; /* that the source has given, and that it can still give */

/* A generator that counts. */
static bool counter(struct rng_source *s, u64 *word) {
    if (!available) return false;
    available--;
    *word = ++words;
    return true;
}

static void start(struct rig_device *r) {
    back.dev.window = arena_window;
    back_rng_start(&back, &r->front);
}

static void stop(struct rig_device *r) { back_rng_stop(&back); }

/* Makes the back end with these options, and a driver that has set up its ring. */
static void begin(const char *options, bool (*hardware)(struct rng_source *, u64 *)) {
    struct takt_back info = { .handle = 1, .vm = 1, .type = VIRTIO_ID_RNG };

    arena_reset();
    words = 0;
    available = ~0ull;
    strcpy(info.options, options);
    rig_init(&rig, 1, start, stop);
    assert_int_equal(back_rng_init(&back, &rig_calls, &info, hardware, &rig.offer), 0);
    assert_int_equal(rig.offer.nr_queues, 1);
    assert_int_equal(virtio_begin(&rig.dev, BIT(VIRTIO_F_EVENT_IDX)), 0);
    assert_int_equal(virtio_queue(&rig.dev, 0, &ring, 64), 0);
    virtio_go(&rig.dev);
    buffer = arena_pages(BUFFER / PAGE_SIZE + 1);
}

/* Adds a buffer of `len` bytes at `offset`, which the device writes. */
static void add(u32 offset, u32 len) {
    struct vring_sg sg = { arena_gpa(buffer + offset), len };

    assert_int_equal(vring_front_add(&ring, &sg, 0, 1, buffer + offset), 0);
}

/* Serves until there is nothing to do at this time. Returns when there will be. */
static u64 serve(void) {
    u64 next;

    virtio_kick(&rig.dev, 0, &ring);
    while ((next = back_rng_serve(&back, NOW)) == 0) back_rng_flush(&back);
    back_rng_flush(&back);
    return next;
}

/* Takes a buffer back. Returns how many bytes were written to it. */
static u32 take(u32 offset) {
    u32 len = 0;

    assert_ptr_equal(vring_front_take(&ring, &len), buffer + offset);
    return len;
}

static void test_fills(void **state) {
    begin("", counter);
    add(0, 32);
    add(64, 3);
    assert_int_equal(serve(), ~0ull);
    assert_int_equal(rig.irqs, 1);
    assert_int_equal(take(0), 32);
    assert_int_equal(take(64), 3);
    for (u64 i = 0; i < 4; i++) {
        u64 expected = i + 1;

        assert_memory_equal(buffer + 8 * i, &expected, 8);
    }
    assert_int_equal(buffer[32], 0); /* nothing behind the buffers was touched */
    assert_int_equal(buffer[64], 5);
    assert_int_equal(buffer[67], 0);
    assert_int_equal(back.buffers, 2);
    assert_int_equal(back.bytes, 35);
}

/* A driver may ask for much, and often: a buffer gets a part only, and a turn has an end. */
static void test_much(void **state) {
    begin("", counter);
    for (u32 i = 0; i < BACK_RNG_BATCH + 1; i++) add(i, BUFFER);
    virtio_kick(&rig.dev, 0, &ring);
    assert_int_equal(back_rng_serve(&back, NOW), 0);
    assert_int_equal(back.buffers, BACK_RNG_BATCH);
    assert_int_equal(back_rng_serve(&back, NOW), ~0ull);
    assert_int_equal(back.bytes, (BACK_RNG_BATCH + 1) * BACK_RNG_MOST);
}

/* While the source has nothing, the buffer waits. */
static void test_empty_source(void **state) {
    begin("", counter);
    available = 0;
    add(0, 16);
    assert_int_equal(serve(), NOW + BACK_RNG_RETRY);
    assert_int_equal(rig.irqs, 0);
    available = 1;
    assert_int_equal(serve(), ~0ull);
    assert_int_equal(take(0), 8);
    assert_int_equal(rig.irqs, 1);
}

static void test_seed(void **state) {
    u64 seed = 7, expected[2] = { 0 };

    for (u32 i = 0; i < 2; i++) expected[i] = seed_next(&seed);
    begin("seed=7", counter);
    add(0, 16);
    serve();
    assert_int_equal(take(0), 16);
    assert_memory_equal(buffer, expected, 16);
    assert_int_equal(words, 0);
    begin("seed=7", NULL);
}

static void test_no_source(void **state) {
    struct takt_back info = { .handle = 1 };

    assert_int_equal(back_rng_init(&back, &rig_calls, &info, NULL, &rig.offer), -ENODEV);
}

/* A buffer that the device may only read breaks the ring. */
static void test_bad_buffer(void **state) {
    struct vring_sg sg;

    begin("", counter);
    sg = (struct vring_sg){ arena_gpa(buffer), 16 };
    assert_int_equal(vring_front_add(&ring, &sg, 1, 0, buffer), 0);
    assert_int_equal(serve(), ~0ull);
    assert_int_equal(rig.broken, 1);
    assert_int_equal(words, 0);
}

/* Another back end goes on where an earlier one has ended. */
static void test_next_back_end(void **state) {
    begin("", counter);
    add(0, 8);
    serve();
    take(0);
    stop(&rig);
    add(8, 8);
    virtio_kick(&rig.dev, 0, &ring);
    rig.front.flags |= TAKT_FRONT_RESUMED;
    start(&rig);
    serve();
    assert_int_equal(take(8), 8);
    assert_int_equal(buffer[8], 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fills),         cmocka_unit_test(test_much),
        cmocka_unit_test(test_empty_source),  cmocka_unit_test(test_seed),
        cmocka_unit_test(test_no_source),     cmocka_unit_test(test_bad_buffer),
        cmocka_unit_test(test_next_back_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
