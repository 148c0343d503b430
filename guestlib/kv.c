/* guest/kv.h says how the store works.
 *
 * Readers of the disk hold no lock while they wait for it. So the record's page may be given to
 * another table meanwhile. A reader therefore looks afterwards whether the record is still in the
 * same place, and if not, it begins anew. */
#include <guest/guest.h>
#include <guest/kv.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <takt/errno.h>

#define PER_PAGE ((u32)PAGE_SIZE / KV_RECORD)
#define NOWHERE  (~0u)
/* Values of kv.where at and above this are places in memory: table 0, then table 1. Others count
 * records from the beginning of the disk. */
#define IN_MEMORY 0x80000000u
/* Tables on the disk are numbered from 1 to this, then from 1 again. A page has the number of its
 * table in a byte, and 0 if it is free. */
#define TABLE_NUMBERS 255u

static bool in_memory(u32 where) { return where >= IN_MEMORY && where != NOWHERE; }

/* Returns the record in memory at that place, a value of kv.where at or above IN_MEMORY. */
static struct kv_record *memory_at(const struct kv *s, u32 where) {
    u32 at = where - IN_MEMORY;

    return &s->memory[at / s->table_records][at % s->table_records];
}

/* ---- the log: a ring at the beginning of the disk, as long as both tables in memory ---- */

static u32 log_pages(const struct kv *s) {
    return (2 * s->table_records + PER_PAGE - 1) / PER_PAGE;
}

/* ---- the flusher ---- */

/* What is being written: a page that is not full yet. */
struct output {
    struct kv_record record[PER_PAGE];
    u32 key[PER_PAGE];
    u32 nr;
    struct extent extent; /* pages that were taken and not yet written */
};

static u32 next_table(u32 table) { return table % TABLE_NUMBERS + 1; }

/* Returns how many tables after `oldest` the table `newest` was made. */
static u32 tables_since(u32 oldest, u32 newest) {
    return (newest + TABLE_NUMBERS - oldest) % TABLE_NUMBERS;
}

/* Returns whether the record is copied to the new table: it is in the full table in memory, or in
 * the oldest one on the disk. */
static bool goes_along(const struct kv *s, u32 where, u32 full, u32 oldest) {
    if (where == NOWHERE) return false;
    if (in_memory(where)) return (where - IN_MEMORY) / s->table_records == full;
    return oldest && s->owner[where / PER_PAGE] == oldest;
}

/* Writes the page of records that is being filled to the disk, and lets the index say that they are
 * there. If a thread has written a record anew meanwhile, the index keeps the place of the new
 * version. Returns 0 or an error. */
static int put_out(struct kv *s, struct output *o) {
    u32 page;
    int error;

    if (!o->extent.nr) {
        mutex_lock(&s->lock);
        o->extent = extents_take(&s->space, PAGECACHE_RUN);
        mutex_unlock(&s->lock);
        if (!o->extent.nr) return -ENOSPC;
    }
    page = o->extent.first++;
    o->extent.nr--;
    error = pagecache_write(s->cache, (u64)page * PAGE_SIZE, o->record, PAGE_SIZE);
    if (error) return error;
    mutex_lock(&s->lock);
    s->owner[page] = (u8)s->newest;
    for (u32 i = 0; i < o->nr; i++)
        if (s->version[o->key[i]] == o->record[i].version)
            s->where[o->key[i]] = page * PER_PAGE + i;
    mutex_unlock(&s->lock);
    o->nr = 0;
    return 0;
}

/* Copies the record of `key`, which was at `where`, to the page that is being filled, and writes
 * the page if it is full now. The old place keeps its contents until this flush has ended. A thread
 * may write a new version of the record at any time; the copy is then of no use, and put_out() sees
 * that. Returns 0 or an error. */
static int take_along(struct kv *s, struct output *o, u32 key, u32 where) {
    struct kv_record *to = &o->record[o->nr];
    int error = 0;

    if (in_memory(where))
        *to = *memory_at(s, where);
    else
        error = pagecache_read(s->cache, NULL, (u64)where * KV_RECORD, to, KV_RECORD);
    if (error) return error;
    s->stats.moved += !in_memory(where);
    o->key[o->nr++] = key;
    if (o->nr == PER_PAGE) return put_out(s, o);
    return 0;
}

/* Frees the pages of a table on the disk, whose records are all in a newer one. */
static void kv_free_table(struct kv *s, u32 table) {
    mutex_lock(&s->lock);
    for (u32 page = 0; page < s->space.pages; page++) {
        if (s->owner[page] != table) continue;
        s->owner[page] = 0;
        extents_give(&s->space, (struct extent){ page, 1 });
    }
    mutex_unlock(&s->lock);
}

/* Writes the full table in memory, number `full`, to the disk as a new table, in the order of the
 * keys. If there are KV_TABLES tables on the disk already, the valid records of the oldest one go
 * along, and its pages become free. Returns 0 or an error. */
static int kv_flush(struct kv *s, struct output *o, u32 full) {
    u32 oldest = 0;
    int error = 0;

    s->newest = next_table(s->newest);
    if (tables_since(s->oldest, s->newest) >= KV_TABLES) oldest = s->oldest;
    for (u32 key = 0; key < s->keys && !error; key++) {
        bool goes;
        u32 where;

        mutex_lock(&s->lock);
        where = s->where[key];
        goes = goes_along(s, where, full, oldest);
        mutex_unlock(&s->lock);
        if (goes) error = take_along(s, o, key, where);
    }
    if (!error && o->nr) error = put_out(s, o);
    mutex_lock(&s->lock);
    if (o->extent.nr) extents_give(&s->space, o->extent);
    o->extent.nr = 0;
    mutex_unlock(&s->lock);
    /* The log's copy of these records is overwritten from now on. */
    if (!error) error = pagecache_sync(s->cache);
    if (error || !oldest) return error;
    kv_free_table(s, oldest);
    s->oldest = next_table(oldest);
    return 0;
}

/* Writes each table in memory that is full to the disk, as a thread, and wakes the threads that
 * wait for an empty one. */
static void kv_flusher(void *arg) {
    static struct output o; /* there is one store in a guest; too large for a stack */
    struct kv *s = arg;

    for (;;) {
        u32 full;

        sem_down(&s->full);
        full = 1 - s->active;
        if (kv_flush(s, &o, full)) guest_panic("kv: a table cannot be written to the disk");
        mutex_lock(&s->lock);
        s->used[full] = 0;
        s->stats.flushes++;
        for (; s->waiting; s->waiting--) sem_up(&s->empty);
        mutex_unlock(&s->lock);
    }
}

/* ---- for threads ---- */

/* Waits until the active table has room for a record. If it is full and the other table in memory
 * is empty, the two change places, and the flusher writes the full one. If both are full, waits
 * until the flusher has emptied one. The caller holds the lock, which is released while this waits.
 */
static void make_room(struct kv *s) {
    while (s->used[s->active] == s->table_records) {
        if (!s->used[1 - s->active]) {
            s->active = 1 - s->active;
            sem_up(&s->full);
            return;
        }
        s->stats.stalls++;
        s->waiting++;
        mutex_unlock(&s->lock);
        sem_down(&s->empty);
        mutex_lock(&s->lock);
    }
}

/* Writes the record to the log. A whole page is written each time, so that the cache need not read
 * it first. Writers take turns here, as the log has one end. */
static int kv_append(struct kv *s, const struct kv_record *r) {
    u32 page, in_page;
    int error;

    mutex_lock(&s->log_lock);
    page = (u32)(s->logged / PER_PAGE % log_pages(s));
    in_page = (u32)(s->logged++ % PER_PAGE);
    s->log[in_page] = *r;
    error = pagecache_write(s->cache, (u64)page * PAGE_SIZE, s->log, PAGE_SIZE);
    mutex_unlock(&s->log_lock);
    return error;
}

/* Writes a record to the table in memory and to the log. Returns 0, or -EIO. */
int kv_put(struct kv *s, struct kv_record *r) {
    u32 slot;

    mutex_lock(&s->lock);
    make_room(s);
    slot = s->used[s->active]++;
    r->version = ++s->version[r->key];
    s->memory[s->active][slot] = *r;
    s->where[r->key] = IN_MEMORY + s->active * s->table_records + slot;
    mutex_unlock(&s->lock);
    return kv_append(s, r);
}

/* Returns where the record of `key` is. If that is in memory, *r becomes the record. */
static u32 look_up(struct kv *s, u32 key, struct kv_record *r) {
    u32 where;

    mutex_lock(&s->lock);
    where = s->where[key];
    if (in_memory(where)) *r = *memory_at(s, where);
    mutex_unlock(&s->lock);
    return where;
}

/* Reads the record of r->key. Returns 0, -ENOENT if it was never written, or -EIO. While the disk
 * is read, the record may move, so its place is looked up again afterwards. */
int kv_get(struct kv *s, struct kv_record *r) {
    u32 key = r->key, where = look_up(s, key, r), now;

    while (where != NOWHERE && !in_memory(where)) {
        int error = pagecache_read(s->cache, NULL, (u64)where * KV_RECORD, r, KV_RECORD);

        if (error) return error;
        now = where;
        where = look_up(s, key, r);
        if (where == now && r->key != key) return -EIO;
        if (where == now) return 0;
    }
    if (where == NOWHERE) return -ENOENT;
    return 0;
}

/* Makes an empty store on the whole disk of the cache, and starts the thread that writes full
 * tables. Returns 0, -ENOMEM, or -ENOSPC if the disk is too small. */
int kv_open(struct kv *s, struct pagecache *cache, u32 keys, u32 table_records, u32 vcpu) {
    u32 pages = (u32)cache->blocks;
    u8 *used = malloc(pages);
    struct extent log;

    *s = (struct kv){ .cache = cache, .keys = keys, .table_records = table_records, .oldest = 1 };
    mutex_init(&s->lock);
    mutex_init(&s->log_lock);
    sem_init(&s->full, 0);
    sem_init(&s->empty, 0);
    s->where = malloc(keys * sizeof(u32));
    s->version = calloc(keys, sizeof(u32));
    s->owner = calloc(pages, 1);
    s->log = calloc(PER_PAGE, KV_RECORD);
    for (u32 i = 0; i < 2; i++) s->memory[i] = malloc((size_t)table_records * KV_RECORD);
    if (!used || !s->where || !s->version || !s->owner || !s->log || !s->memory[0] || !s->memory[1])
        return -ENOMEM;
    for (u32 i = 0; i < keys; i++) s->where[i] = NOWHERE;
    extents_init(&s->space, used, pages);
    log = extents_take(&s->space, log_pages(s));
    /* The valid records, those that the tables have and that were written anew since, and the new
     * table that is being written. */
    if (log.nr < log_pages(s) ||
        s->space.free < (2 * keys + (KV_TABLES + 2) * table_records) / PER_PAGE)
        return -ENOSPC;
    if (!thread_start(vcpu, "kv", kv_flusher, s)) return -ENOMEM;
    return 0;
}
