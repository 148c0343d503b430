/* A key-value store (guest/kv.h) that its own threads use. Each request reads or writes one key:
 * read_pct=P (50) per cent of them read.
 *
 * guest/kvload.h has the words that describe the store; guest/workload.h says when requests are
 * due, and what is printed; guest/disk.h has more words. The exit code is 0 if all that was read
 * was as it had been written last. guests/kvserver.c serves the same store over the network. */
#include <guest/guest.h>
#include <guest/kvload.h>
#include <guest/workload.h>
#include <takt/seed.h>

/* Reads or writes one key for each request, as a thread. */
static void worker(void *number) {
    u64 read_pct = cmdline_u64("read_pct", 50);
    struct workload_request r;

    while (workload_next(&r)) {
        struct kv_record record = { .key = kvload_key(&r.rng, kvload_keys()) };

        if (seed_below(seed_next(&r.rng), 100) < read_pct) {
            kvload_get(&record);
            workload_done(&r, WORKLOAD_READ, KV_RECORD);
        } else {
            kvload_fill(record.value, record.key);
            kvload_put(&record);
            workload_done(&r, WORKLOAD_WRITE, KV_RECORD);
        }
    }
}

static void serve(void) {
    kvload_open();
    workload_threads(0, worker);
    kvload_say("kvstore");
}

int main(void) { return workload_main("kvstore", serve); }
