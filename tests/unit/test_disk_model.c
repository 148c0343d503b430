/* One model of a disk device under the disks of several VMs (drivers/disk_model.h), in virtual
 * time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/disk_ram.h"

#define US   NS_PER_US
#define SIZE 65536u

static struct disk_model device;
static struct disk_ram a, b;
static struct disk_ram_data data_a, data_b;
static u8 memory_a[SIZE + 2 * PAGE_SIZE], memory_b[SIZE + 2 * PAGE_SIZE];
static struct disk_request requests[64];

static void set_up(const char *options, const char *disk_options) {
    disk_model_init(&device, options);
    disk_ram_data_init(&data_a, disk_options, memory_a);
    disk_ram_data_init(&data_b, disk_options, memory_b);
    disk_ram_init(&a, disk_options, &device, &data_a);
    disk_ram_init(&b, disk_options, &device, &data_b);
    memset(requests, 0, sizeof(requests));
}

/* A flush moves no data; so it needs no guest's memory. Returns when it ends. */
static u64 begin(struct disk_ram *d, u32 i, u64 now) {
    requests[i].type = VIRTIO_BLK_FLUSH;
    d->disk.ops->begin(&d->disk, &requests[i], now);
    return requests[i].due;
}

static bool room(struct disk_ram *d) { return d->disk.ops->room(&d->disk); }

/* There is only one bus. What two VMs move at the same time takes as long as if one of them had
 * moved all of it. */
static void test_bandwidth_is_shared(void **state) {
    u64 last = 0;

    set_up("bw=50M lat=100us depth=32", "size=64K");
    for (u32 i = 0; i < 10; i++) last = disk_model_begin(&device, 0, 50000);
    assert_int_equal(last, 100 * US + 10 * 1000 * US);
    assert_int_equal(device.load.bytes, 500000);
    /* The shared device does not slow down a disk that has a model of its own. */
    disk_ram_init(&b, "size=64K lat=100us", NULL, &data_b);
    assert_int_equal(begin(&b, 0, 0), 100 * US);
}

/* `depth` latencies at a time, whoever's they are: the others begin when a place is free. */
static void test_depth_is_shared(void **state) {
    set_up("lat=100us depth=2", "size=64K");
    assert_int_equal(begin(&a, 0, 0), 100 * US);
    assert_int_equal(begin(&b, 1, 0), 100 * US);
    assert_int_equal(begin(&a, 2, 0), 200 * US);
    assert_int_equal(begin(&b, 3, 50 * US), 200 * US);
    assert_int_equal(begin(&b, 4, 500 * US), 600 * US);
}

/* The queue may be full for a disk that has requests in it, but never for one that has none. */
static void test_queue_is_shared(void **state) {
    set_up("lat=1ms queue=3", "size=64K depth=8");
    for (u32 i = 0; i < 3; i++) {
        assert_true(room(&a));
        begin(&a, i, 0);
    }
    assert_false(room(&a));
    assert_true(room(&b));
    begin(&b, 3, 0);
    assert_false(room(&b));
    assert_int_equal(device.load.in_queue, 4);
    assert_ptr_equal(a.disk.ops->ended(&a.disk, NS_PER_MS), &requests[0]);
    assert_ptr_equal(a.disk.ops->ended(&a.disk, NS_PER_MS), &requests[1]);
    assert_true(room(&b));
    assert_int_equal(device.load.in_queue, 2);
}

/* A VM that is destroyed gives its places in the queue back. */
static void test_stop_gives_back(void **state) {
    set_up("lat=1ms queue=3", "size=64K");
    for (u32 i = 0; i < 3; i++) begin(i % 2 ? &b : &a, i, 0);
    a.disk.ops->stop(&a.disk);
    assert_int_equal(device.load.in_queue, 1);
    assert_ptr_equal(a.disk.ops->ended(&a.disk, NS_PER_S), NULL);
    assert_ptr_equal(b.disk.ops->ended(&b.disk, NS_PER_S), &requests[1]);
    assert_int_equal(device.load.in_queue, 0);
}

/* Latencies of 100 us that vary by 20 % are from 80 to 120 us, all over that range, with the same
 * mean; the same seed gives the same ones, another seed others. */
static void test_variation(void **state) {
    struct disk_model same, other;
    u64 sum = 0, least = ~0ull, most = 0;
    u32 differs = 0;

    disk_model_init(&device, "lat=100us vary=20% seed=5");
    disk_model_init(&same, "lat=100us vary=20% seed=5");
    disk_model_init(&other, "lat=100us vary=20% seed=6");
    for (u64 now = 0; now < 10000 * NS_PER_MS; now += NS_PER_MS) {
        u64 took = disk_model_begin(&device, now, 0) - now;

        assert_int_equal(disk_model_begin(&same, now, 0) - now, took);
        differs += disk_model_begin(&other, now, 0) - now != took;
        sum += took;
        least = MIN(least, took);
        most = MAX(most, took);
    }
    assert_in_range(least, 80 * US, 81 * US);
    assert_in_range(most, 119 * US, 120 * US);
    assert_in_range(sum / 10000, 99 * US, 101 * US);
    assert_true(differs > 9000);
}

/* Over many seeds: the ends never go back, and never come before the latency and the bus allow. No
 * more than `depth` requests are under way between their start and their end. */
static void test_properties(void **state) {
    for (u64 seed = 1; seed <= 300; seed++) {
        u64 rng = seed, now = 0, last = 0, moved = 0;
        u64 due[200];

        disk_model_init(&device, "bw=100M lat=200us");
        device.depth = 1 + (u32)(seed_next(&rng) % 8);
        for (u32 i = 0; i < 200; i++) {
            u64 bytes = seed_next(&rng) % 65536;

            now += seed_next(&rng) % (100 * US);
            moved += bytes;
            due[i] = disk_model_begin(&device, now, bytes);
            assert_true(due[i] >= last && due[i] >= now + 200 * US + bytes * 10);
            assert_true(due[i] >= moved * 10);
            if (i >= device.depth)
                assert_true(due[i] >= due[i - device.depth] + 200 * US + bytes * 10);
            last = due[i];
        }
    }
}

/* ---- turns by deficit round robin ---- */

static struct disk_turns turns;

/* Requests of disk `d` without data in any guest's memory: they begin, and nothing is ever
 * transferred. */
static void keep_waiting(struct disk_turn *d, struct disk_request *q, u32 nr, u64 *rng) {
    for (u32 i = 0; i < nr; i++) {
        q[i] = (struct disk_request){ .type = VIRTIO_BLK_OUT,
                                      .bytes = 512 * (1 + (u32)(seed_next(rng) % 128)) };
        disk_round_wait(&turns.round, d, &q[i]);
    }
}

/* D1 over seeds, through the device's queue: among disks that always have requests, the bytes that
 * have begun differ from the ratio of the shares by at most a quantum and a request; credit stays
 * below that, too; the queue is never longer than it may be. */
static void test_turns(void **state) {
    static struct disk_request q[3][4000];

    for (u64 seed = 1; seed <= 100; seed++) {
        u32 shares[] = { 1 + (u32)(seed % 4), 1, 3 };
        struct disk_turn d[3] = { 0 };
        u64 rng = seed, now = 0;

        disk_model_init(&device, "bw=20M lat=100us depth=4 queue=8");
        disk_turns_init(&turns, &device);
        for (u32 i = 0; i < 3; i++) {
            d[i].share = shares[i];
            assert_true(disk_round_add(&turns.round, &d[i]));
        }
        for (u32 i = 0; i < 3; i++) keep_waiting(&d[i], q[i], 4000, &rng);
        for (u32 n = 0; n < 2000; n++) {
            struct disk_request *r = disk_turns_next(&turns, now);

            if (!r) {
                now = disk_turns_room_at(&turns);
                continue;
            }
            assert_true(turns.nr_under_way <= 8 && r->due > now);
            for (u32 i = 0; i < 3; i++) {
                u64 slack = d[i].drr.quantum + turns.round.most;

                assert_true(d[i].drr.credit <= slack);
                for (u32 k = 0; k < 3; k++) {
                    u64 mine = d[i].bytes * shares[k], others = d[k].bytes * shares[i];
                    u64 both =
                        slack * shares[k] + (d[k].drr.quantum + turns.round.most) * shares[i];

                    assert_true(mine <= others + both);
                }
            }
        }
    }
}

/* One that has nothing for a while gets no more than its share later; the others use what it
 * leaves. */
static void test_turns_of_an_idle_disk(void **state) {
    static struct disk_request q[2][1000];
    struct disk_turn d[2] = { { .share = 1 }, { .share = 1 } };
    u64 rng = 7, now = 0, before;

    disk_model_init(&device, "bw=20M lat=100us queue=4");
    disk_turns_init(&turns, &device);
    for (u32 i = 0; i < 2; i++) disk_round_add(&turns.round, &d[i]);
    keep_waiting(&d[0], q[0], 1000, &rng);
    for (u32 n = 0; n < 300; n++)
        if (!disk_turns_next(&turns, now)) now = disk_turns_room_at(&turns);
    assert_int_equal(d[1].bytes, 0);
    before = d[0].bytes;
    assert_true(before > 100 * 512);
    keep_waiting(&d[1], q[1], 1000, &rng);
    for (u32 n = 0; n < 400; n++)
        if (!disk_turns_next(&turns, now)) now = disk_turns_room_at(&turns);
    assert_in_range(d[1].bytes, d[0].bytes - before - 2 * 131072, d[0].bytes - before + 2 * 131072);
}

/* A disk whose VM goes leaves nothing behind: what it had waiting is not begun, and its room on the
 * device is free when its time is over. */
static void test_stop_with_turns(void **state) {
    set_up("lat=1ms queue=2 sched=drr", "size=64K");
    disk_turns_init(&turns, &device);
    disk_ram_init(&a, "size=64K", &device, &data_a);
    disk_ram_init(&b, "size=64K", &device, &data_b);
    for (u32 i = 0; i < 5; i++) begin(&a, i, 0);
    begin(&b, 5, 0);
    assert_int_equal(device.load.in_queue, 2);
    a.disk.ops->stop(&a.disk);
    assert_int_equal(device.load.in_queue, 0);
    assert_ptr_equal(b.disk.ops->ended(&b.disk, 0), NULL);
    assert_int_equal(b.disk.ops->due(&b.disk), 1000 * US);
    assert_ptr_equal(b.disk.ops->ended(&b.disk, 1000 * US), NULL);
    assert_int_equal(b.disk.ops->due(&b.disk), 2000 * US);
    assert_ptr_equal(b.disk.ops->ended(&b.disk, 2000 * US), &requests[5]);
    assert_int_equal(b.disk.ops->due(&b.disk), ~0ull);
}

static void test_options(void **state) {
    char name[8];

    disk_model_init(&device, "depth=0 queue=9999999");
    assert_int_equal(device.depth, 1);
    assert_int_equal(device.load.queue, DISK_MODEL_MOST);
    assert_null(option_unknown("bw=1M lat=1ms depth=4 queue=8 vary=1% seed=3", disk_model_options));
    assert_non_null(option_unknown("bw=fast", disk_model_options));
    assert_null(option_unknown("on=ssd0 size=1M depth=4", disk_ram_shared_options));
    assert_non_null(option_unknown("on=ssd0 bw=1M", disk_ram_shared_options));
    assert_true(option_word("size=1M on=ssd0 depth=3", "on", name, sizeof(name)));
    assert_string_equal(name, "ssd0");
    assert_true(option_word("on=a-long-name", "on", name, sizeof(name)));
    assert_string_equal(name, "a-long-");
    assert_false(option_word("size=1M", "on", name, sizeof(name)));
    assert_string_equal(name, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bandwidth_is_shared),
        cmocka_unit_test(test_depth_is_shared),
        cmocka_unit_test(test_queue_is_shared),
        cmocka_unit_test(test_stop_gives_back),
        cmocka_unit_test(test_variation),
        cmocka_unit_test(test_properties),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_turns_of_an_idle_disk),
        cmocka_unit_test(test_stop_with_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
