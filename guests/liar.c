/* A guest that lies to the manager (docs/collab.md), for tests: it claims 2^63 dirty pages, says
 * that it has flushed them whenever it is asked to, without writing, and sets and clears
 * `congested` as fast as it can, for run_ms=T (1000). With `calm` it does not do the last of
 * these. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

#define CLAIM BIT(63)

static u64 asked, lies;
static bool calm;

static void put(const char *name, u64 value) {
    char path[40];

    snprintf(path, sizeof(path), "io/disk/0/%s", name);
    if (store_write_u64(0, path, value) < 0) guest_panic("liar: %s cannot be written", path);
}

/* Says that it has done what it is asked to do. */
static void answer(void) {
    u64 flush_now;

    if (store_read_u64(0, "io/disk/0/flush_now", &flush_now) || flush_now != 1) return;
    asked++;
    put("flush_now", 0);
}

static void lie(void *arg) {
    u64 end = time_ns() + cmdline_u64("run_ms", 1000) * NS_PER_MS;

    if (store_start()) guest_panic("liar: there is no store");
    put("nr", CLAIM);
    put("has_dirty_pages", 1);
    while (time_ns() < end) {
        if (calm)
            sleep_ns(5 * NS_PER_MS);
        else
            put("congested", ++lies % 2);
        answer();
    }
    printf("liar: asked=%lu lies=%lu\n", asked, lies);
}

int main(void) {
    struct thread *t;

    calm = cmdline_has("calm");
    t = thread_start(0, "liar", lie, NULL);
    if (!t) guest_panic("liar: no memory");
    thread_join(t);
    return 0;
}
