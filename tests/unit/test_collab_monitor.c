/* What the monitor of IOrchestra says of a period (drivers/collab/monitor.h), against numbers that
 * can be computed by hand, and against a list of all requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/collab/monitor.h"

#define MS NS_PER_MS

/* Within a second, requests of 300 ms and of 200 ms overlap by 100 ms. */
static void test_by_hand(void **state) {
    struct monitor_period p;
    struct monitor m;

    monitor_init(&m, NULL, 5 * MS);
    monitor_begin(&m, 105 * MS);
    monitor_begin(&m, 305 * MS);
    monitor_end(&m, MONITOR_READ, 4096, 105 * MS, 405 * MS);
    monitor_end(&m, MONITOR_WRITE, 8192, 305 * MS, 505 * MS);
    monitor_cut(&m, 1005 * MS, &p);
    assert_int_equal(p.ns, NS_PER_S);
    assert_int_equal(p.requests[MONITOR_READ], 1);
    assert_int_equal(p.requests[MONITOR_WRITE], 1);
    assert_int_equal(p.requests[MONITOR_OTHER], 0);
    assert_int_equal(p.bytes_per_s[MONITOR_READ], 4096);
    assert_int_equal(p.bytes_per_s[MONITOR_WRITE], 8192);
    assert_int_equal(p.latency_mean, 250 * MS);
    assert_int_equal(p.latency_p99, 300 * MS);
    assert_int_equal(p.depth_milli, 500);
    assert_int_equal(p.busy_permille, 400);
}

/* A request that is under way when the period ends counts in the next period. The time that it
 * takes counts in both. */
static void test_over_the_end(void **state) {
    struct monitor_period p;
    struct monitor m;

    monitor_init(&m, NULL, 0);
    monitor_begin(&m, 50 * MS);
    assert_int_equal(monitor_in_use(&m, 60 * MS), 10 * MS);
    monitor_cut(&m, 100 * MS, &p);
    assert_int_equal(p.requests[MONITOR_WRITE], 0);
    assert_int_equal(p.busy_permille, 500);
    assert_int_equal(p.latency_mean, 0);
    assert_true(monitor_is_used(&m));
    monitor_end(&m, MONITOR_WRITE, 1000, 50 * MS, 125 * MS);
    monitor_cut(&m, 200 * MS, &p);
    assert_int_equal(p.bytes_per_s[MONITOR_WRITE], 10000);
    assert_int_equal(p.latency_mean, 75 * MS);
    assert_int_equal(p.busy_permille, 250);
    assert_false(monitor_is_used(&m));
    /* The time in use since the beginning knows of no periods. */
    assert_int_equal(monitor_in_use(&m, 250 * MS), 75 * MS);
    monitor_cut(&m, 300 * MS, &p);
    assert_int_equal(p.requests[MONITOR_WRITE] + p.busy_permille + p.depth_milli + p.latency_p999,
                     0);
}

/* A VM goes while it has requests under way. They leave the device's queue, and do not count as
 * done. */
static void test_given_up(void **state) {
    struct monitor device, m;
    struct monitor_period p;

    monitor_init(&device, NULL, 0);
    monitor_init(&m, &device, 0);
    monitor_begin(&m, 0);
    monitor_begin(&m, 0);
    monitor_give_up(&m, 2, 10 * MS);
    monitor_cut(&device, 20 * MS, &p);
    assert_int_equal(p.busy_permille, 500);
    assert_int_equal(p.depth_milli, 1000);
    assert_int_equal(p.requests[MONITOR_READ] + p.requests[MONITOR_WRITE], 0);
    assert_false(monitor_is_used(&device));
}

struct done {
    u64 begun, ended, bytes;
    u32 disk;
};

/* Over many seeds: the device's numbers are the sums of those of its disks, and of those in the
 * list. */
static void test_sums(void **state) {
    for (u64 seed = 1; seed <= 100; seed++) {
        struct monitor device, disk[3];
        struct monitor_period all, p[3];
        struct done under_way[8];
        u64 rng = seed, now = 0, ended = 0, bytes = 0, latency = 0, sum_requests = 0, sum_depth = 0;
        u32 nr = 0;

        monitor_init(&device, NULL, 0);
        for (u32 i = 0; i < 3; i++) monitor_init(&disk[i], &device, 0);
        for (u32 i = 0; i < 200; i++) {
            now += seed_next(&rng) % (2 * MS);
            if (nr < 8 && seed_next(&rng) % 2) {
                under_way[nr] = (struct done){ now, 0, 512 * (seed_next(&rng) % 64),
                                               (u32)(seed_next(&rng) % 3) };
                monitor_begin(&disk[under_way[nr++].disk], now);
            } else if (nr) {
                u32 k = (u32)(seed_next(&rng) % nr);
                struct done d = under_way[k];

                monitor_end(&disk[d.disk], MONITOR_READ, d.bytes, d.begun, now);
                ended++;
                bytes += d.bytes;
                latency += now - d.begun;
                under_way[k] = under_way[--nr];
            }
        }
        now += MS;
        monitor_cut(&device, now, &all);
        for (u32 i = 0; i < 3; i++) {
            monitor_cut(&disk[i], now, &p[i]);
            sum_requests += p[i].requests[MONITOR_READ];
            sum_depth += p[i].depth_milli;
            assert_true(p[i].busy_permille <= all.busy_permille);
        }
        assert_int_equal(all.requests[MONITOR_READ], ended);
        assert_int_equal(sum_requests, ended);
        assert_in_range(all.depth_milli, sum_depth, sum_depth + 3); /* each is rounded down */
        assert_int_equal(all.latency_mean, latency / ended);
        assert_int_equal(all.bytes_per_s[MONITOR_READ], bytes * 1000000 / (now / NS_PER_US));
        assert_true(all.latency_p99 <= all.latency_p999);
        assert_int_equal(device.under_way, nr);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_over_the_end),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
