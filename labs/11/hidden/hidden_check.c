/* Tests of lab 11 that students do not have. */
#include "rig.h"

/* Whatever happens, and in whatever order: when all is quiet the manager knows how many pages are
 * dirty, by a factor of two, and no flush is owed. */
static void at_rest(void) {
    u64 rng = 5, nr, pages;
    bool managed = true;

    begin_managed();
    for (u32 step = 0; step < 4000; step++) {
        rng = rng * 6364136223846793005ull + 1442695040888963407ull;
        switch ((rng >> 33) % 8) {
        case 0: manager_sets("flush_now", managed); break;
        case 1: manager_sets("release_request", managed); break;
        case 2: manager_sets("device_idle", managed && rng >> 60 & 1); break;
        case 3: pass((rng >> 40) % (300 * NS_PER_MS)); break;
        case 4:
            if ((rng >> 50) % 8) break;
            managed = !managed;
            if (managed)
                manager_comes(1 + step);
            else
                manager_goes();
            break;
        default: dirty((u32)((rng >> 40) % 40)); break;
        }
        story[0] = '\0';
        if ((rng >> 56) % 4) continue;
        pass(200 * NS_PER_MS);
        pages = disk.cache.dirty;
        nr = stored(DISK "nr", 99);
        expect("flush_now when all is quiet, and there is a manager",
               managed && stored(DISK "flush_now", 0), 0);
        if (!managed) continue;
        expect("has_dirty_pages when all is quiet", stored(DISK "has_dirty_pages", 99), pages != 0);
        expect("that nr is about right when all is quiet", nr < 2 * pages + 1 && pages < 2 * nr + 1,
               true);
    }
}

static void dies_in_a_sync(void) {
    begin_managed();
    dirty(5);
    manager_sets("flush_now", 1);
    while_it_syncs = manager_goes;
    guest_runs();
    expect("that the key nr is gone when the manager has gone", stored(DISK "nr", 99), 99);
    expect("that the key flush_now is gone", stored(DISK "flush_now", 99), 99);
    while_it_syncs = NULL;
    story[0] = '\0';
    dirty(7);
    manager_comes(4);
    guest_runs();
    tell("what the guest does when another manager comes", "nr=7 has_dirty_pages=1");
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "at_rest", at_rest },
        { "dies_in_a_sync", dies_in_a_sync },
        { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
