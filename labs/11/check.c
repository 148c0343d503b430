/* The tests of lab 11. Each plays the manager, and the programs that make pages dirty. */
#include "rig.h"
#include "drivers/collab/flush.h"

#define NOW (10 * NS_PER_S)

static void choose(void) {
    static const struct {
        const char *what;
        bool idle;
        struct flush_disk d[3];
        u32 chosen;
    } table[] = {
        { "nobody has dirty pages", true, { { 0 } }, FLUSH_NOBODY },
        { "the device is busy", false, { { true, false, 5, 0 } }, FLUSH_NOBODY },
        { "only disk 1 has dirty pages", true, { { 0 }, { true, false, 5, 0 } }, 1 },
        { "disk 1 has most of them",
          true,
          { { true, false, 4, 0 }, { true, false, 9, 0 }, { true, false, 8, 0 } },
          1 },
        { "disks 1 and 2 have the same number",
          true,
          { { 0 }, { true, false, 9, 0 }, { true, false, 9, 0 } },
          1 },
        { "a number is there, but not the flag",
          true,
          { { false, false, 99, 0 }, { true, false, 1, 0 } },
          1 },
        { "disk 0 has been asked just now",
          true,
          { { true, true, 4, NOW }, { true, false, 9, 0 } },
          FLUSH_NOBODY },
        { "disk 0 was asked long ago, and has not answered",
          true,
          { { true, true, 99, NOW - FLUSH_PATIENCE }, { true, false, 9, 0 } },
          1 },
        { "the only disk was asked long ago",
          true,
          { { true, true, 99, NOW - FLUSH_PATIENCE } },
          FLUSH_NOBODY },
    };

    for (u32 i = 0; i < ARRAY_SIZE(table); i++) {
        char text[100];

        snprintf(text, sizeof(text), "%s: the disk that is chosen, all ones: none", table[i].what);
        expect(text, flush_choose(table[i].d, 3, table[i].idle, NOW), table[i].chosen);
    }
}

static bool watched(const char *path) {
    for (u32 i = 0; i < nr_watches; i++)
        if (strcmp(watches[i].path, path) == 0) return true;
    return false;
}

static void watch(void) {
    static const char *const keys[] = { AT, DISK "flush_now", DISK "release_request",
                                        DISK "device_idle" };

    begin();
    for (u32 i = 0; i < ARRAY_SIZE(keys); i++) {
        char text[80];

        snprintf(text, sizeof(text), "that %s is watched", keys[i]);
        expect(text, watched(keys[i]), true);
    }
    expect("how many watches there are", nr_watches, ARRAY_SIZE(keys));
    tell("what the guest does without a manager", "");
    dirty(5);
    pass(NS_PER_S);
    tell("what it does without a manager when pages are dirty", "");
    wakes = 0;
    manager_comes(1);
    guest_runs();
    expect("how often the thread wakes when a manager comes, at least once", wakes > 0, true);
    manager_sets("release_request", 1);
    guest_runs();
    expect("release_request after the guest has seen it", stored(DISK "release_request", 9), 0);
}

static void publish(void) {
    begin();
    manager_comes(1);
    guest_runs();
    tell("what the guest publishes when a manager has come", "nr=0 has_dirty_pages=0");
    dirty(4);
    tell("what it publishes when 4 pages are dirty", "nr=4 has_dirty_pages=1");
    dirty(7);
    pass(NS_PER_S);
    tell("what it publishes when 7 are", "");
    dirty(8);
    tell("what it publishes when 8 are: twice as many", "nr=8");
    dirty(5);
    pass(NS_PER_S);
    tell("what it publishes when 5 are", "");
    dirty(4);
    pass(100 * NS_PER_MS);
    tell("what it publishes 100 ms after 4 are: half as many", "nr=4");
    dirty(0);
    pass(100 * NS_PER_MS);
    tell("what it publishes 100 ms after none is", "nr=0 has_dirty_pages=0");
    dirty(1);
    tell("what it publishes when 1 page is dirty", "nr=1 has_dirty_pages=1");
}

static void flush(void) {
    begin_managed();
    dirty(10);
    tell("what the guest publishes", "nr=10 has_dirty_pages=1");
    manager_sets("flush_now", 1);
    guest_runs();
    tell("what it does when flush_now becomes 1", "sync flush_now=0 nr=0 has_dirty_pages=0");
    expect("how many flushes it has counted", collab_stats()->flushes, 1);
    manager_sets("flush_now", 0);
    guest_runs();
    tell("what it does when flush_now is written, and is 0", "");
    dirty(10);
    disk_refuses = true;
    story[0] = '\0';
    manager_sets("flush_now", 1);
    guest_runs();
    tell("what it does when flush_now becomes 1, and all pages stay dirty",
         "sync flush_now=0 nr=10");
}

static void quiet(void) {
    begin_managed();
    wakes = 0;
    pass(10 * NS_PER_S);
    expect("how often the thread wakes in 10 s while nothing is dirty", wakes, 0);
    dirty(5);
    wakes = 0;
    pass(10 * NS_PER_S);
    expect("how often it wakes in 10 s while 5 pages are dirty", wakes, 100);
    manager_goes();
    dirty(0);
    wakes = 0;
    dirty(100);
    pass(10 * NS_PER_S);
    expect("that it wakes at most once in 10 s without a manager", wakes <= 1, true);
}

static void idle(void) {
    begin_managed();
    disk_refuses = true;
    dirty(5);
    story[0] = '\0';
    manager_sets("device_idle", 1);
    guest_runs();
    tell("what the guest does when the device becomes idle", "flush-in-background");
    pass(200 * NS_PER_MS);
    tell("what it does in the next 200 ms, while its pages stay dirty",
         "flush-in-background flush-in-background");
    manager_sets("device_idle", 0);
    guest_runs();
    pass(NS_PER_S);
    tell("what it does when the device is idle no more", "");
    expect("how often it has flushed by itself", collab_stats()->by_itself, 3);
}

static void another(void) {
    begin_managed();
    dirty(5);
    story[0] = '\0';
    manager_goes();
    guest_runs();
    tell("what the guest does when the manager goes", "rm:io/disk");
    dirty(50);
    pass(NS_PER_S);
    tell("what it does without a manager", "");
    manager_comes(2);
    guest_runs();
    tell("what it does when another manager comes", "nr=50 has_dirty_pages=1");
    manager_comes(3);
    guest_runs();
    tell("what it does when one manager takes the place of another",
         "rm:io/disk nr=50 has_dirty_pages=1");
    manager_sets("flush_now", 1);
    guest_runs();
    tell("what it does when that one asks it to flush", "sync flush_now=0 nr=0 has_dirty_pages=0");
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "choose", choose }, { "watch", watch }, { "publish", publish }, { "flush", flush },
        { "quiet", quiet },   { "idle", idle },   { "another", another }, { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
