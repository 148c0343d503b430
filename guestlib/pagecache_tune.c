/* What others may ask of a page cache while it is used: a manager of disk I/O (guest/collab.h), and
 * the store (guest/tunable.h). Each number is one word, which threads, flusher and bottom half read
 * when they need it. guest/pagecache.h has the contracts. */
#include <guest/pagecache.h>

void pagecache_on_congestion(struct pagecache *c, void (*fn)(void *arg), void *arg) {
    c->on_congestion_arg = arg;
    __atomic_store_n(&c->on_congestion, fn, __ATOMIC_RELEASE);
}

void pagecache_release(struct pagecache *c) {
    __atomic_store_n(&c->release_wanted, 1, __ATOMIC_SEQ_CST);
    c->host.kick(c->host.arg);
}

void pagecache_flush_now(struct pagecache *c) {
    __atomic_fetch_add(&c->stats.flush_now, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&c->wanted, 1, __ATOMIC_SEQ_CST);
    c->host.flusher(c->host.arg);
}

static void tune_store(u32 *p, u32 n) { __atomic_store_n(p, n, __ATOMIC_SEQ_CST); }

static u32 pages_of(const struct pagecache *c, u64 per_cent) {
    return (u32)(c->config.pages * per_cent / 100);
}

/* Writers that wait look again, and the flusher sees whether there are too many dirty pages now. */
static void look_again(struct pagecache *c) {
    c->host.wake(c->host.arg, PAGECACHE_ROOM);
    c->host.flusher(c->host.arg);
}

/* Sets how many per cent of the pages may be dirty before writers have to wait. Returns NULL, or a
 * sentence that says what is wrong with the value. */
const char *pagecache_set_dirty(void *cache, u64 per_cent) {
    struct pagecache *c = cache;

    if (pages_of(c, per_cent) <= c->background) return "it has to be more than background";
    tune_store(&c->limit, pages_of(c, per_cent));
    look_again(c);
    return NULL;
}

/* Sets from how many per cent of dirty pages on the flusher writes them. Returns NULL, or a
 * sentence that says what is wrong with the value. */
const char *pagecache_set_background(void *cache, u64 per_cent) {
    struct pagecache *c = cache;

    if (pages_of(c, per_cent) >= c->limit) return "it has to be less than dirty";
    tune_store(&c->background, pages_of(c, per_cent));
    look_again(c);
    return NULL;
}

const char *pagecache_set_ahead(void *cache, u64 pages) {
    struct pagecache *c = cache;

    if (pages) tune_store(&c->config.ahead, (u32)pages);
    __atomic_store_n(&c->config.no_ahead, pages == 0, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Sets how many requests may be under way, and the numbers at which the cache counts as congested.
 * Congested above 7/8, and no more below 13/16, as in Linux. */
void pagecache_limit_queue(struct pagecache *c, u32 n) {
    tune_store(&c->congested_on, n - n / 8);
    tune_store(&c->congested_off, n * 13 / 16);
    tune_store(&c->queue, n);
}

const char *pagecache_set_queue(void *cache, u64 requests) {
    struct pagecache *c = cache;

    pagecache_limit_queue(c, (u32)requests);
    c->host.kick(c->host.arg);
    return NULL;
}
