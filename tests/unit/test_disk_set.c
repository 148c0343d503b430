/* Several modelled devices as one, in stripes (drivers/disk_set.h), in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/disk_ram.h"
#include "drivers/disk_set.h"

#define US   NS_PER_US
#define KIB  1024u
#define SIZE (1024 * KIB)

static struct disk_set set;
static struct disk_model whole, part[DISK_SET_MOST];
static struct monitor seen[DISK_SET_MOST];

/* Makes a set of `nr` members, all with these options. */
static void set_up(const char *options, u32 nr, const char *of_member) {
    memset(&set, 0, sizeof(set));
    memset(&whole, 0, sizeof(whole));
    assert_null(disk_set_init(&set, &whole, options));
    for (u32 k = 0; k < nr; k++) {
        disk_model_init(&part[k], of_member);
        assert_true(disk_set_add(&set, &whole, &part[k]));
        monitor_init(&seen[k], NULL, 0);
        set.member[k].monitor = &seen[k];
    }
}

static struct disk_request request(u32 type, u64 at, u32 bytes) {
    return (struct disk_request){ .type = type, .sector = at / VIRTIO_BLK_SECTOR, .bytes = bytes };
}

static u64 begin(u64 now, u32 type, u64 at, u32 bytes) {
    struct disk_request q = request(type, at, bytes);

    return disk_device_begin(&whole, now, &q);
}

/* Over many seeds: each sector is on the member that its stripe belongs to, and on no other. */
static void test_stripes(void **state) {
    for (u64 seed = 1; seed <= 300; seed++) {
        u64 rng = seed, at, nr, count[DISK_SET_MOST] = { 0 };
        struct disk_set s = { 0 };

        s.stripe = VIRTIO_BLK_SECTOR * (1 + seed_next(&rng) % 9);
        s.nr = 1 + (u32)(seed_next(&rng) % DISK_SET_MOST);
        at = seed_next(&rng) % 200;
        nr = seed_next(&rng) % 100;
        for (u64 i = at; i < at + nr; i++)
            count[i * VIRTIO_BLK_SECTOR / s.stripe % s.nr] += VIRTIO_BLK_SECTOR;
        for (u32 k = 0; k < s.nr; k++)
            assert_int_equal(disk_set_bytes(&s, k, at * VIRTIO_BLK_SECTOR, nr * VIRTIO_BLK_SECTOR),
                             count[k]);
    }
}

/* A request over several stripes is done by all members at the same time, and ends with the last
 * one. A small one leaves the other members to others. 1 KiB takes 100 us. */
static void test_members_work_at_the_same_time(void **state) {
    set_up("of=a+b stripe=64K", 2, "bw=10240000");
    assert_int_equal(whole.load.bandwidth, 20480000);
    assert_int_equal(begin(0, VIRTIO_BLK_OUT, 0, 128 * KIB), 6400 * US);
    assert_int_equal(part[0].load.bytes, 64 * KIB);
    assert_int_equal(part[1].load.bytes, 64 * KIB);
    set_up("of=a+b stripe=64K", 2, "bw=10240000");
    assert_int_equal(begin(0, VIRTIO_BLK_OUT, 0, 4 * KIB), 400 * US);
    assert_int_equal(begin(0, VIRTIO_BLK_OUT, 64 * KIB, 4 * KIB), 400 * US);
    assert_int_equal(begin(0, VIRTIO_BLK_OUT, 128 * KIB, 4 * KIB), 800 * US);
    assert_int_equal(begin(0, VIRTIO_BLK_IN, 60 * KIB, 16 * KIB), 1600 * US);
    assert_int_equal(whole.load.bytes, 28 * KIB);
    assert_int_equal(whole.load.in_queue, 4);
}

/* What was written is only safe when all members have flushed. The first one is busy for 800 us. */
static void test_a_flush_concerns_all(void **state) {
    set_up("of=a+b+c stripe=64K", 3, "bw=10240000 lat=100us");
    begin(0, VIRTIO_BLK_OUT, 0, 8 * KIB);
    assert_int_equal(begin(0, VIRTIO_BLK_FLUSH, 0, 0), 900 * US);
    for (u32 k = 0; k < 3; k++) assert_int_equal(part[k].load.in_queue, k ? 1 : 2);
}

/* ---- disks ---- */

static struct disk_ram disk;
static struct disk_ram_data data;
static u8 memory[SIZE + 2 * PAGE_SIZE], buffer[8][64 * KIB];
static struct disk_request requests[8];
static struct disk_turns turns;

static void disk_up(void) {
    memset(memory, 0, sizeof(memory));
    disk_ram_data_init(&data, "size=1M", memory);
    disk_ram_init(&disk, "size=1M", &whole, &data);
}

static void read_at(u32 i, u64 at, u32 bytes, u64 now) {
    struct disk_request *q = &requests[i];

    *q = request(VIRTIO_BLK_IN, at, bytes);
    q->c.nr_out = q->c.nr_in = 1;
    q->c.seg[1].p = buffer[i];
    q->c.seg[1].len = bytes;
    disk.disk.ops->begin(&disk.disk, q, now);
}

static struct disk_request *ended(u64 now) { return disk.disk.ops->ended(&disk.disk, now); }

/* A request that finds its member idle ends before one that began earlier and waits for the other
 * member; those of one member end in their order. */
static void check_order(void) {
    memory[0] = 7;
    memory[64 * KIB] = 8;
    read_at(0, 0, 32 * KIB, 0);
    read_at(1, 64 * KIB, 4 * KIB, 0);
    read_at(2, 128 * KIB, 4 * KIB, 0);
    assert_int_equal(disk.disk.ops->due(&disk.disk), 400 * US);
    assert_null(ended(400 * US - 1));
    assert_ptr_equal(ended(400 * US), &requests[1]);
    assert_int_equal(buffer[1][0], 8);
    assert_null(ended(3200 * US - 1));
    assert_ptr_equal(ended(3600 * US), &requests[0]);
    assert_ptr_equal(ended(3600 * US), &requests[2]);
    assert_int_equal(buffer[0][0], 7);
    assert_null(ended(3600 * US));
    assert_int_equal(whole.load.in_queue, 0);
}

static void test_order(void **state) {
    set_up("of=a+b stripe=64K", 2, "bw=10240000");
    disk_up();
    check_order();
    set_up("of=a+b stripe=64K", 2, "bw=10240000");
    disk_turns_init(&turns, &whole);
    disk_up();
    check_order();
}

/* The limit of the queue is that of the set, however idle some of its members are. A place is free
 * when any request has ended, and not only the first that began. */
static void test_queue_of_the_set(void **state) {
    set_up("of=a+b stripe=64K queue=2", 2, "bw=10240000");
    disk_turns_init(&turns, &whole);
    disk_up();
    read_at(0, 0, 32 * KIB, 0);
    read_at(1, 64 * KIB, 4 * KIB, 0);
    read_at(2, 192 * KIB, 4 * KIB, 0);
    assert_int_equal(turns.nr_under_way, 2);
    assert_int_equal(disk_turns_room_at(&turns), 400 * US);
    assert_ptr_equal(ended(400 * US), &requests[1]);
    assert_int_equal(turns.nr_under_way, 2);
    assert_ptr_equal(ended(800 * US), &requests[2]);
    set_up("of=a+b stripe=64K queue=2", 2, "bw=10240000");
    disk_up();
    read_at(0, 0, 4 * KIB, 0);
    assert_true(disk.disk.ops->room(&disk.disk));
    read_at(1, 0, 4 * KIB, 0);
    assert_false(disk.disk.ops->room(&disk.disk));
}

/* Requests of one disk without data in any guest's memory: they only begin. */
static void keep_waiting(struct disk_turn *d, struct disk_request *q, u32 nr, u64 *rng) {
    for (u32 i = 0; i < nr; i++) {
        u64 at = VIRTIO_BLK_SECTOR * (seed_next(rng) % 4096);

        q[i] = request(VIRTIO_BLK_OUT, at, VIRTIO_BLK_SECTOR * (1 + (u32)(seed_next(rng) % 400)));
        disk_round_wait(&turns.round, d, &q[i]);
    }
}

/* What must hold after each request of test_turns(): shares within a quantum and a request. */
static void check_shares(const struct disk_turn *d, const u32 *share, u32 nr) {
    for (u32 i = 0; i < nr; i++)
        for (u32 k = 0; k < nr; k++)
            assert_true(d[i].bytes * share[k] <=
                        d[k].bytes * share[i] + (d[i].drr.quantum + turns.round.most) * share[k] +
                            (d[k].drr.quantum + turns.round.most) * share[i]);
}

/* Over seeds, through the queue of a set: disks that always have requests get bytes by their
 * shares, the queue is never longer than it may be, and its room is told in the order of time. The
 * members' bytes are all bytes of the set. */
static void test_turns(void **state) {
    static struct disk_request q[3][2000];

    for (u64 seed = 1; seed <= 60; seed++) {
        u32 share[] = { 1 + (u32)(seed % 4), 1, 3 };
        struct disk_turn d[3] = { 0 };
        u64 rng = seed, now = 0, bytes = 0;

        set_up("of=a+b+c stripe=16K queue=8", 3, "bw=20M lat=100us depth=4");
        disk_turns_init(&turns, &whole);
        for (u32 i = 0; i < 3; i++) {
            d[i].share = share[i];
            assert_true(disk_round_add(&turns.round, &d[i]));
            keep_waiting(&d[i], q[i], 2000, &rng);
        }
        for (u32 n = 0; n < 1000; n++) {
            const struct disk_request *r = disk_turns_next(&turns, now);

            check_shares(d, share, 3);
            assert_in_range(turns.nr_under_way, 1, 8);
            for (u32 i = 1; i < turns.nr_under_way; i++)
                assert_true(turns.end[(turns.first + i - 1) % DISK_MODEL_MOST] <=
                            turns.end[(turns.first + i) % DISK_MODEL_MOST]);
            if (!r) {
                assert_true(disk_turns_room_at(&turns) > now);
                now = disk_turns_room_at(&turns);
            }
        }
        for (u32 k = 0; k < 3; k++) bytes += part[k].load.bytes;
        assert_int_equal(bytes, whole.load.bytes);
    }
}

/* ---- what members did ---- */

/* The monitors of members: bytes, time in use, requests under way, and latency from when the device
 * begins a part until it ends. */
static void test_monitor(void **state) {
    struct monitor_period p;

    set_up("of=a+b stripe=64K", 2, "bw=10240000");
    begin(0, VIRTIO_BLK_OUT, 0, 12 * KIB);              /* 1200 us of the first member */
    begin(0, VIRTIO_BLK_IN, 64 * KIB, 8 * KIB);         /* 800 us of the second one */
    begin(400 * US, VIRTIO_BLK_IN, 128 * KIB, 8 * KIB); /* 1200 to 2000 us of the first one */
    disk_set_settle(&set, 1600 * US);
    monitor_cut(&seen[0], 1600 * US, &p);
    assert_int_equal(p.requests[MONITOR_WRITE], 1);
    assert_int_equal(p.requests[MONITOR_READ], 0);
    assert_int_equal(p.latency_mean, 1200 * US);
    assert_int_equal(p.bytes_per_s[MONITOR_WRITE], 12 * KIB * 10000 / 16);
    assert_int_equal(p.busy_permille, 1000);
    assert_int_equal(p.depth_milli, 1500);
    monitor_cut(&seen[1], 1600 * US, &p);
    assert_int_equal(p.requests[MONITOR_READ], 1);
    assert_int_equal(p.busy_permille, 500);
    assert_true(monitor_is_used(&seen[0]));
    assert_false(monitor_is_used(&seen[1]));
    disk_set_settle(&set, 2000 * US);
    monitor_cut(&seen[0], 2000 * US, &p);
    assert_int_equal(p.requests[MONITOR_READ], 1);
    assert_int_equal(p.latency_mean, 1600 * US);
    assert_false(monitor_is_used(&seen[0]));
    assert_int_equal(part[0].load.in_queue, 0);
}

/* A VM that is made and destroyed again and again leaves more parts than there are places. All of
 * them are told once, and the member is idle in the end. */
static void test_more_parts_than_places(void **state) {
    struct monitor_period p;

    set_up("of=a+b stripe=64K", 2, "lat=1ms depth=1");
    for (u32 i = 0; i < DISK_MODEL_MOST + 50; i++) begin(0, VIRTIO_BLK_OUT, 0, 512);
    assert_int_equal(part[0].load.in_queue, DISK_MODEL_MOST);
    disk_set_settle(&set, NS_PER_S);
    assert_int_equal(part[0].load.in_queue, 0);
    monitor_cut(&seen[0], NS_PER_S, &p);
    assert_int_equal(p.requests[MONITOR_WRITE], DISK_MODEL_MOST + 50);
    assert_false(monitor_is_used(&seen[0]));
}

/* A member without a limit makes a set without a limit, whichever it is. */
static void test_options(void **state) {
    struct disk_model fast = { 0 };

    assert_null(option_unknown("of=a+b stripe=4K queue=7 sched=drr", disk_set_options));
    assert_non_null(option_unknown("of=a+b bw=3", disk_set_options));
    assert_non_null(disk_set_init(&set, &whole, "of=a+b stripe=1000"));
    assert_non_null(disk_set_init(&set, &whole, "of=a+b stripe=0"));
    set_up("of=a+b+c+d queue=7", 1, "bw=10M");
    assert_int_equal(set.stripe, 64 * KIB);
    assert_int_equal(whole.load.queue, 7);
    assert_true(disk_set_add(&set, &whole, &fast));
    assert_int_equal(whole.load.bandwidth, 0);
    assert_true(disk_set_add(&set, &whole, &part[1]));
    assert_int_equal(whole.load.bandwidth, 0);
    assert_true(disk_set_add(&set, &whole, &part[2]));
    assert_false(disk_set_add(&set, &whole, &part[3]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stripes),
        cmocka_unit_test(test_members_work_at_the_same_time),
        cmocka_unit_test(test_a_flush_concerns_all),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_queue_of_the_set),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_monitor),
        cmocka_unit_test(test_more_parts_than_places),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
