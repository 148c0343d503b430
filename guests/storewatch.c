/* Watches a key of the store, and prints each change of it.
 *
 * Command line: key=PATH (data/key), relative to the home of this VM or absolute. The guest makes
 * the key, empty, if it does not exist. With ask=N it first asks for micro-slices of N us by
 * writing to request/micro_us, and prints whether that was granted. With io=N it tells the
 * hypervisor N times, once a millisecond, that it had 100 interrupts, as a driver does. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

static struct semaphore changes = SEMAPHORE(0);

static void on_change(void *ctx, const char *path) { sem_up(&changes); }

/* Sets the watch and prints changes for ever. */
int main(void) {
    char key[64], value[256];
    i64 n = store_start();

    if (n) guest_panic("storewatch: there is no store (error %ld)", -n);
    if (!cmdline_str("key", key, sizeof(key))) snprintf(key, sizeof(key), "data/key");
    if (cmdline_has("ask")) {
        n = store_write_u64(0, "request/micro_us", cmdline_u64("ask", 0));
        printf("storewatch: request/micro_us: %s\n", n ? "refused" : "granted");
    }
    if (store_read(0, key, value, 0) == -ENOENT) store_write(0, key, "", 0);
    n = store_watch(key, on_change, NULL);
    if (n) guest_panic("storewatch: %s cannot be watched: error %ld", key, -n);
    for (u64 left = cmdline_u64("io", 0); left; left--) {
        sleep_ns(NS_PER_MS);
        hypercall1(TAKT_HC_IO_REPORT, 100);
    }
    for (;;) {
        sem_down(&changes);
        n = store_read(0, key, value, sizeof(value) - 1);
        if (n < 0) continue; /* the key has been removed */
        value[n] = 0;
        printf("storewatch: %s = %s\n", key, value);
    }
}
