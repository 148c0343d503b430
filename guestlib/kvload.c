/* guest/kvload.h has the contracts. */
#include <guest/guest.h>
#include <guest/kvload.h>
#include <guest/printf.h>
#include <guest/workload.h>
#include <takt/seed.h>

static struct kv store;

void kvload_fill(void *value, u32 key) { workload_fill(value, key, 0, KV_VALUE); }

u64 kvload_check(const void *value, u32 key) { return workload_check(value, key, 0, KV_VALUE); }

u32 kvload_keys(void) { return store.keys; }

u32 kvload_key(u64 *rng, u32 n) {
    u64 one = seed_below(seed_next(rng), n), two = seed_below(seed_next(rng), n);

    return (u32)MIN(one, two);
}

void kvload_put(struct kv_record *r) {
    if (kv_put(&store, r)) guest_panic("the store refuses to write key %u", r->key);
}

void kvload_get(struct kv_record *r) {
    u32 key = r->key, least = __atomic_load_n(&store.version[key], __ATOMIC_RELAXED);

    if (kv_get(&store, r)) guest_panic("the store cannot read key %u", key);
    workload_wrong(kvload_check(r->value, key) + (r->key != key) + (r->version < least));
}

/* Syncs the store each `sync_ms` milliseconds, as a thread, so that what was written becomes
 * safe. */
static void syncer(void *arg) {
    u64 period = cmdline_u64("sync_ms", 500) * NS_PER_MS;

    for (u64 due = time_ns() + period;; due += period) {
        sleep_until(due);
        if (pagecache_sync(&workload_disk.cache)) guest_panic("the store's disk refuses a sync");
    }
}

/* Makes the store, writes each key once, and starts the thread that syncs. Ends the guest with a
 * sentence if that fails. */
void kvload_open(void) {
    u32 vcpu = disk_thread_vcpu(), keys = (u32)MAX(cmdline_u64("keys", 1000), 1ull);
    int error = kv_open(&store, &workload_disk.cache, keys, (u32)cmdline_u64("table", 128), vcpu);

    if (error) guest_panic("the disk is too small for a store of %u keys (error %d)", keys, error);
    for (u32 i = 0; i < keys; i++) {
        struct kv_record r = { .key = i };

        kvload_fill(r.value, i);
        kvload_put(&r);
    }
    if (pagecache_sync(&workload_disk.cache)) guest_panic("the store's disk refuses a sync");
    if (cmdline_u64("sync_ms", 500) && !thread_start(vcpu, "syncer", syncer, NULL))
        guest_panic("there is no memory for the store");
}

void kvload_say(const char *title) {
    printf("%s: flushes=%lu moved=%lu stalls=%lu\n", title, store.stats.flushes, store.stats.moved,
           store.stats.stalls);
}
