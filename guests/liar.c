/* A guest that lies to the manager (docs/collab.md), for tests: it claims 2^63 dirty pages, says
 * that it has flushed them whenever it is asked to, without writing, and sets and clears
 * `congested` as fast as it can, for run_ms=T (1000).
 *
 * Command line: with `calm` it does not do the last of these; with `mute` it never clears
 * flush_now; with `rm` it also removes all its keys after every 16th change. With `wait` it is
 * honest, and waits: it has 4 dirty pages, sets `congested` once, at_ms=T (0) after its start, and
 * says when it is released, in ms of the machine's time. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

#define CLAIM     BIT(63)

#define LIES_KEPT 16 /* with `rm`: changes until the keys are removed */

static u64 asked, lies;
static bool calm, mute, removes;

/* Writes a node that says something about this VM's disk 0. */
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
    if (mute) return;
    put("flush_now", 0);
    put("nr", CLAIM); /* the manager looks at flush_now when it hears of this */
}

/* Claims what is not so, and answers what the manager asks, as the guest's thread, for run_ms. */
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
        if (removes && lies % LIES_KEPT == 0) {
            store_rm(0, "io/disk/0");
            put("nr", CLAIM);
            put("has_dirty_pages", 1);
        }
        answer();
    }
    printf("liar: asked=%lu lies=%lu\n", asked, lies);
}

static struct semaphore told = SEMAPHORE(0);

static void on_release(void *ctx, const char *path) { sem_up(&told); }

static u64 machine_ms(void) { return (u64)hypercall0(TAKT_HC_TIME) / NS_PER_MS; }

/* Claims once to be congested, as the guest's thread, and prints how long it takes until the
 * manager releases it. */
static void wait_for_release(void *arg) {
    u64 released = 0, began;

    if (store_start()) guest_panic("liar: there is no store");
    sleep_ns(cmdline_u64("at_ms", 0) * NS_PER_MS);
    put("nr", 4);
    put("has_dirty_pages", 1);
    put("congested", 1);
    began = machine_ms();
    if (store_watch("io/disk/0/release_request", on_release, NULL) < 0)
        guest_panic("liar: release_request cannot be watched");
    while (released != 1) {
        sem_down(&told);
        if (store_read_u64(0, "io/disk/0/release_request", &released)) released = 0;
    }
    printf("liar: congested at %lu ms, released at %lu ms\n", began, machine_ms());
    put("congested", 0);
    put("release_request", 0);
}

/* Runs the thread that lies, or, with `wait`, the one that waits for a release. */
int main(void) {
    void (*work)(void *arg) = lie;
    struct thread *t;

    calm = cmdline_has("calm");
    mute = cmdline_has("mute");
    removes = cmdline_has("rm");
    if (cmdline_has("wait")) work = wait_for_release;
    t = thread_start(0, "liar", work, NULL);
    if (!t) guest_panic("liar: there is no memory");
    thread_join(t);
    return 0;
}
