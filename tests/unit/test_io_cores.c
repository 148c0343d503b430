/* I/O cores: a virtio block device with a ring for each socket, whose back ends are polled, and the
 * two levels of deficit round robin at a device that I/O cores share (drivers/disk_turns.h). In
 * virtual time, on one thread: one I/O core after the other has its turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "device_rig.h"
#include "drivers/back_blk.h"
#include "drivers/disk_ram.h"
#include "drivers/virtio_blk.h"

#define US    NS_PER_US
#define DISK  (1u << 20)
#define RINGS 2
#define PAGE  4096u

static struct disk_model model;
static struct disk_turns turns;
static struct disk_core core[RINGS];

static void device_init(const char *options) {
    disk_model_init(&model, options);
    disk_turns_init(&turns, &model);
    for (u32 i = 0; i < RINGS; i++) assert_true(disk_turns_add_core(&turns, &core[i]));
}

/* ---- a device with several rings ---- */

static struct rig_device rig;
static struct back_blk back[RINGS];
static struct disk_ram ram[RINGS];
static struct virtio_blk blk[RINGS];
static struct disk_ram_data disk;
static u8 memory[DISK + 2 * PAGE];
static u32 ended;

static void start(struct rig_device *r) {
    for (u32 i = 0; i < RINGS; i++) {
        back[i].dev.window = arena_window;
        back_blk_start(&back[i], &r->front);
    }
}

static void stop(struct rig_device *r) {
    for (u32 i = 0; i < RINGS; i++) back_blk_stop(&back[i]);
}

static void set_up(u64 hidden, const char *device) {
    struct takt_back info = { .handle = 1, .vm = 1, .type = VIRTIO_ID_BLOCK };

    arena_reset();
    rig_init(&rig, 1, start, stop);
    rig.hidden = hidden;
    device_init(device);
    assert_int_equal(disk_ram_pages("size=1M") * PAGE, sizeof(memory));
    disk_ram_data_init(&disk, "size=1M", memory);
    ended = 0;
    for (u32 i = 0; i < RINGS; i++) {
        disk_ram_init(&ram[i], "size=1M", &model, &disk);
        assert_true(disk_ram_set_core(&ram[i], &core[i], 0));
        assert_int_equal(
            back_blk_init(&back[i], &arena_env, &rig_calls, &info, &ram[i].disk, &rig.offer), 0);
        back[i].queue = i;
        back[i].polled = true;
    }
    back_blk_offer_queues(&rig.offer, RINGS);
}

static void done(struct virtio_blk_request *q, int error) {
    assert_int_equal(error, 0);
    ended++;
}

/* Request number i, of one page. Its memory is in the arena. */
static struct virtio_blk_request *request(u32 i, enum virtio_blk_type type, u64 sector) {
    struct virtio_blk_request *q = (void *)(arena + ARENA_SIZE / 2 + i * 2 * PAGE);

    *q = (struct virtio_blk_request){ .type = type, .sector = sector, .nr = 1, .done = done };
    q->part[0].p = (u8 *)q + PAGE;
    q->part[0].len = PAGE;
    return q;
}

/* Each core has a turn at each microsecond until `until`. */
static void poll_until(u64 until) {
    for (u64 now = 0; now < until; now += US)
        for (u32 i = 0; i < RINGS; i++) {
            back_blk_serve(&back[i], now);
            back_blk_flush(&back[i]);
        }
}

/* Each ring has its own requests, and both reach the same data. The driver never notifies, however
 * many requests it makes: also when the 16-bit index of a ring goes round. */
static void test_rings(void **state) {
    set_up(0, "bw=1G lat=1us");
    assert_int_equal(virtio_blk_start_queues(blk, 8, &rig.dev, 64), RINGS);
    for (u32 n = 0; n < 70000; n++) {
        struct virtio_blk_request *w = request(0, VIRTIO_BLK_OUT, 8 * (n % 200));
        struct virtio_blk_request *r = request(1, VIRTIO_BLK_IN, 8 * (n % 200));

        memset(w->part[0].p, (int)n, PAGE);
        assert_int_equal(virtio_blk_submit(&blk[n % 2], w), 0);
        assert_false(virtio_blk_flush_ring(&blk[n % 2]));
        poll_until(12 * US);
        assert_int_equal(virtio_blk_poll(&blk[n % 2]), 1);
        assert_int_equal(virtio_blk_submit(&blk[1 - n % 2], r), 0);
        assert_false(virtio_blk_flush_ring(&blk[1 - n % 2]));
        poll_until(12 * US);
        assert_int_equal(virtio_blk_poll(&blk[1 - n % 2]), 1);
        assert_memory_equal(w->part[0].p, r->part[0].p, PAGE);
        model.bus_free = 0; /* poll_until() begins at 0 again */
        memset(model.slot_free, 0, sizeof(model.slot_free));
    }
    assert_int_equal(rig.kicks, 0);
    assert_int_equal(rig.broken, 0);
    assert_int_equal(core[0].ended, 70000);
    assert_int_equal(core[1].ended, 70000);
    assert_int_equal(virtio_blk_stop_queues(blk, RINGS), 0);
}

/* A driver that does not know several queues uses the first one, and the other back end does
 * nothing. */
static void test_one_ring(void **state) {
    struct virtio_blk_request *q;

    set_up(VIRTIO_BLK_F_MQ, "bw=1G lat=1us");
    assert_int_equal(virtio_blk_start_queues(blk, 8, &rig.dev, 64), 1);
    assert_true(back[0].dev.live);
    assert_false(back[1].dev.live);
    q = request(0, VIRTIO_BLK_OUT, 0);
    assert_int_equal(virtio_blk_submit(&blk[0], q), 0);
    virtio_blk_flush_ring(&blk[0]);
    poll_until(10 * US);
    assert_int_equal(virtio_blk_poll(&blk[0]), 1);
    assert_int_equal(rig.broken, 0);
    set_up(0, "bw=1G lat=1us");
    assert_int_equal(virtio_blk_start(&blk[0], &rig.dev, 64), 0);
    assert_false(back[1].dev.live);
}

/* A request from another socket takes longer. */
static void test_remote(void **state) {
    struct virtio_blk_request *q;

    set_up(0, "lat=10us");
    assert_true(disk_ram_set_core(&ram[1], &core[0], 5 * US));
    assert_int_equal(virtio_blk_start_queues(blk, 8, &rig.dev, 64), RINGS);
    for (u32 i = 0; i < RINGS; i++) {
        q = request(i, VIRTIO_BLK_OUT, 0);
        assert_int_equal(virtio_blk_submit(&blk[i], q), 0);
        virtio_blk_flush_ring(&blk[i]);
    }
    poll_until(11 * US);
    assert_int_equal(virtio_blk_poll(&blk[0]), 1);
    assert_int_equal(virtio_blk_poll(&blk[1]), 0);
    poll_until(16 * US);
    assert_int_equal(virtio_blk_poll(&blk[1]), 1);
    assert_int_equal(core[0].ended, 2);
    assert_int_equal(core[0].latency_ns, 25 * US);
}

/* ---- turns at two levels ---- */

#define DISKS 4 /* two of each core */

static struct disk_ram lane[DISKS];
static struct disk_request many[DISKS][3000];

/* All disks always have requests, of random sizes. They cannot be served, only begun. */
static void fill(u32 i, u64 *rng) {
    for (u32 k = 0; k < ARRAY_SIZE(many[i]); k++) {
        many[i][k] = (struct disk_request){ .type = VIRTIO_BLK_OUT,
                                            .bytes = 512 * (1 + (u32)(seed_next(rng) % 64)) };
        disk_round_wait(lane[i].round, &lane[i].turn, &many[i][k]);
    }
}

/* a / b and c / d differ by no more than `slack` bytes on each side. */
static bool near(u64 a, u64 b, u64 c, u64 d, u64 slack_a, u64 slack_c) {
    return a * d <= c * b + slack_a * d + slack_c * b;
}

/* D1 at both levels: cores get bytes by their weights, and the disks of a core by their shares,
 * within a quantum and a request. */
static void test_two_levels(void **state) {
    for (u64 seed = 1; seed <= 100; seed++) {
        u64 rng = seed, now = 0;

        device_init("bw=20M lat=100us depth=4 queue=4");
        for (u32 i = 0; i < DISKS; i++) {
            disk_ram_init(&lane[i], "size=64K", &model, &disk);
            lane[i].turn.share = 1 + (u32)(seed_next(&rng) % 4);
            assert_true(disk_ram_set_core(&lane[i], &core[i / 2], 0));
        }
        for (u32 i = 0; i < RINGS; i++) core[i].turn.share = 1 + (u32)(seed_next(&rng) % 4);
        disk_round_shares(&turns.round);
        for (u32 i = 0; i < DISKS; i++) fill(i, &rng);
        for (u32 n = 0; n < 2000; n++) {
            u64 most = turns.round.most;

            if (!disk_turns_next(&turns, now)) {
                now = disk_turns_room_at(&turns);
                continue;
            }
            for (u32 i = 0; i < RINGS; i++) {
                const struct disk_turn *a = &core[i].turn, *b = &core[1 - i].turn;
                const struct disk_turn *c = &lane[2 * i].turn, *d = &lane[2 * i + 1].turn;

                assert_true(near(a->bytes, a->share, b->bytes, b->share, a->drr.quantum + most,
                                 b->drr.quantum + most));
                assert_true(near(c->bytes, c->share, d->bytes, d->share, c->drr.quantum + most,
                                 d->drr.quantum + most));
                assert_true(near(d->bytes, d->share, c->bytes, c->share, d->drr.quantum + most,
                                 c->drr.quantum + most));
            }
        }
    }
}

/* Two disks, each on a core of its own, with requests. */
static void two_disks(u64 *rng) {
    device_init("bw=20M lat=100us depth=4 queue=1");
    for (u32 i = 0; i < 2; i++) {
        disk_ram_init(&lane[i], "size=64K", &model, &disk);
        assert_true(disk_ram_set_core(&lane[i], &core[i], 0));
    }
    fill(0, rng);
}

/* A core whose disks have nothing leaves the device to the other one. A disk that goes to another
 * core keeps its requests in order, and shares that core. */
static void test_moves(void **state) {
    struct disk_request *q;
    u64 rng = 3, now = 0;
    u32 mine = 0, next = 0;

    two_disks(&rng);
    for (u32 k = 0; k < 10; k++) {
        q = disk_turns_next(&turns, now);
        assert_ptr_equal(q, &many[0][k]);
        now = q->due;
    }
    fill(1, &rng);
    assert_true(disk_ram_set_core(&lane[0], &core[1], 0));
    assert_int_equal(core[0].round.nr_disks, 0);
    assert_int_equal(core[1].round.nr_disks, 2);
    for (u32 n = 0; n < 400; n++) {
        q = disk_turns_next(&turns, now);
        assert_non_null(q);
        now = q->due;
        if (q->turn != &lane[0].turn) continue;
        assert_true(q >= &many[0][next]);
        next = (u32)(q - many[0]) + 1;
        mine++;
    }
    assert_in_range(mine, 150, 250);
    disk_ram_leave(&lane[0]);
    assert_int_equal(core[1].round.nr_disks, 1);
}

/* A disk that stops leaves nothing behind, not even the request that its core has chosen already,
 * and that waits for the core's turn. */
static void test_stops(void **state) {
    struct disk_request *q;
    u64 rng = 5, now = 0;

    two_disks(&rng);
    fill(1, &rng);
    while (!core[0].turn.waiting.first) {
        q = disk_turns_next(&turns, now);
        assert_non_null(q);
        now = q->due;
    }
    assert_true(core[0].turn.waiting.first->turn == &lane[0].turn);
    lane[0].disk.ops->stop(&lane[0].disk);
    for (u32 n = 0; n < 100; n++) {
        q = disk_turns_next(&turns, now);
        assert_ptr_equal(q->turn, &lane[1].turn);
        now = q->due;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rings),  cmocka_unit_test(test_one_ring),
        cmocka_unit_test(test_remote), cmocka_unit_test(test_two_levels),
        cmocka_unit_test(test_moves),  cmocka_unit_test(test_stops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
