/* The store as a guest sees it: its own part of the tree, what it may do and what not, watches,
 * transactions, values that are longer than the ring, and a connection that it breaks itself. */
#include <guest/mem.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>

static struct semaphore fired = SEMAPHORE(0);
static char fired_at[64];

static void on_change(void *ctx, const char *path) {
    snprintf(fired_at, sizeof(fired_at), "%s", path);
    sem_up(&fired);
}

static bool fires(const char *path) {
    return sem_down_until(&fired, time_ns() + NS_PER_S) && strcmp(fired_at, path) == 0;
}

static bool reads(u32 tx, const char *path, const char *value) {
    char buf[64];
    i64 n = store_read(tx, path, buf, sizeof(buf));

    return n == (i64)strlen(value) && memcmp(buf, value, (size_t)n) == 0;
}

static i64 writes(u32 tx, const char *path, const char *value) {
    return store_write(tx, path, value, (u32)strlen(value));
}

static void own_nodes(void) {
    u64 value = 0;
    char home[32], names[256];
    i64 n;

    CHECK(store_read_u64(0, "domid", &value) == 0 && value == takt_vm_id(), "domid is %lu", value);
    snprintf(home, sizeof(home), "/local/domain/%u/domid", takt_vm_id());
    CHECK(store_read_u64(0, home, &value) == 0 && value == takt_vm_id(), "by its whole path: %lu",
          value);
    CHECK(store_read_u64(0, "sched/weight", &value) == 0 && value == 256, "weight is %lu", value);
    CHECK(reads(0, "vcpu/0/availability", "online"), "vCPU 0 is not online");
    n = store_list(0, "vcpu", names, sizeof(names));
    CHECK(n == 2 && strcmp(names, "0") == 0, "%ld bytes of names below vcpu", n);
}

static void refused(void) {
    static char large[5000];
    char buf[16];

    CHECK(store_read(0, "nowhere", buf, sizeof(buf)) == -ENOENT, "a node that is not there");
    CHECK(store_read(0, "/local/domain/0/x", buf, sizeof(buf)) == -EACCES, "another's node");
    CHECK(store_read(0, "/takt/host/uptime_s", buf, sizeof(buf)) == -EACCES, "the operator's node");
    CHECK(writes(0, "name", "x") == -EACCES, "its name is not its own to write");
    CHECK(writes(0, "sched/weight", "1000") == -EACCES, "it sets its own weight");
    CHECK(writes(0, "request/weight", "1000") == -EACCES, "it gets more than the ceiling");
    CHECK(writes(0, "request/weight", "x") == -EINVAL, "it asks for x");
    CHECK(writes(0, "data//x", "y") == -EINVAL, "a path with an empty name");
    CHECK(store_write(0, "data/large", large, 2049) == -ENOSPC, "a value beyond the quota");
    CHECK(store_read(0, "domid", buf, 0) == -E2BIG, "no room for the value");
}

static void values(void) {
    static char long_one[2048], back[2048];

    for (u32 i = 0; i < sizeof(long_one); i++) long_one[i] = (char)(i * 7);
    CHECK(writes(0, "data/a/b/c", "1") == 0 && reads(0, "data/a/b/c", "1"),
          "a node three levels down");
    CHECK(store_write(0, "data/long", long_one, sizeof(long_one)) == 0, "2048 bytes");
    CHECK(store_read(0, "data/long", back, sizeof(back)) == sizeof(back) &&
              memcmp(back, long_one, sizeof(back)) == 0,
          "and back: they are others");
    CHECK(store_rm(0, "data/a") == 0 && store_read(0, "data/a/b/c", back, 1) == -ENOENT,
          "removed with all below");
}

static void watching(void) {
    CHECK(store_watch("data/w", on_change, NULL) == 0, "a watch");
    CHECK(fires("data/w"), "it does not fire at first");
    writes(0, "data/w/x", "1");
    CHECK(fires("data/w/x"), "nor for a node below: %s", fired_at);
    writes(0, "data/v", "1");
    CHECK(!sem_try(&fired), "it fires for another: %s", fired_at);
    CHECK(store_unwatch("data/w", on_change, NULL) == 0, "unwatch");
    writes(0, "data/w/x", "2");
    CHECK(!sem_try(&fired), "it fires when it is gone");
    CHECK(store_unwatch("data/w", on_change, NULL) == -ENOENT, "unwatch again");
}

static void transactions(void) {
    i64 tx = store_begin();

    CHECK(tx > 0, "a transaction: %ld", tx);
    CHECK(writes((u32)tx, "data/t", "in") == 0 && reads((u32)tx, "data/t", "in"),
          "it does not see its own");
    CHECK(!reads(0, "data/t", "in"), "others see it before the end");
    CHECK(store_end((u32)tx, true) == 0 && reads(0, "data/t", "in"), "the end");
    tx = store_begin();
    CHECK(reads((u32)tx, "data/t", "in"), "the next one");
    writes(0, "data/t", "out");
    writes((u32)tx, "data/u", "x");
    CHECK(store_end((u32)tx, true) == -EAGAIN && !reads(0, "data/u", "x"),
          "a conflict is not seen");
    CHECK(store_end((u32)tx, true) == -ENOENT, "an end of what has ended");
    CHECK(writes(0, "request/weight", "0") == -EINVAL, "a weight of 0");
}

/* The page can be given to the hypervisor again, and what was watched still is. */
static void reconnects(void) {
    struct xs_page *other = page_alloc(1);

    store_watch("data/r", on_change, NULL);
    CHECK(fires("data/r"), "a watch");
    CHECK(hypercall1(TAKT_HC_STORE_CONNECT, (u64)other + 8) == -EINVAL,
          "a page that is not aligned");
    CHECK(hypercall1(TAKT_HC_STORE_CONNECT, 1ull << 40) == -EFAULT, "a page that is not RAM");
    memset(other, 0xff, PAGE_SIZE);
    CHECK(hypercall1(TAKT_HC_STORE_CONNECT, (u64)other) > 0, "another page");
    other->req_prod = 5000; /* jumps */
    hypercall0(TAKT_HC_STORE_NOTIFY);
    CHECK(other->error == XS_RING_ERROR_INDEX, "an index that jumps: error %u", other->error);
    CHECK(store_start() == 0, "anew");
    CHECK(fires("data/r"), "the watch is gone");
    writes(0, "data/r", "1");
    CHECK(fires("data/r"), "or does not fire");
}

int main(void) {
    test_begin();
    test_needs_takt();
    CHECK(hypercall0(TAKT_HC_STORE_NOTIFY) == -ENOENT, "notify without a page");
    if (store_start()) test_error("no connection");
    own_nodes();
    refused();
    values();
    watching();
    transactions();
    reconnects();
    return test_end("the store");
}
