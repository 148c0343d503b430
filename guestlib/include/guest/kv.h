/* A key-value store on a disk behind a page cache, made like a log-structured merge tree: a write
 * goes to a log and to a table in memory. When that table is full, another one takes its place,
 * and a thread writes the full one to the disk in the order of the keys. With it go the records of
 * the oldest table on the disk that are still valid, so that its pages become free.
 *
 * Keys are the numbers below `keys`. A record has KV_RECORD bytes. The index, which says where the
 * record of each key is, is in memory only. The store is a load for a disk and not a place for
 * data: the log is written as it should be, but no code reads it after a crash. */
#ifndef GUEST_KV_H
#define GUEST_KV_H

#include <guest/extents.h>
#include <guest/pagecache.h>
#include <guest/sync.h>

#define KV_RECORD 1024u
#define KV_VALUE  (KV_RECORD - 16)
#define KV_TABLES 4 /* on the disk, before the oldest one is rewritten */

struct kv_record {
    u32 key, version; /* 0: there is no such record */
    u64 check;        /* not used by the store */
    u8 value[KV_VALUE];
};
_Static_assert(sizeof(struct kv_record) == KV_RECORD, "pages hold whole records");

struct kv_stats {
    u64 flushes; /* tables in memory that were written to the disk */
    u64 moved;   /* records that were taken along from an old table */
    u64 stalls;  /* writes that waited because both tables in memory were full */
};

struct kv {
    struct pagecache *cache;
    u32 keys, table_records;
    /* guarded by `lock` */
    struct mutex lock;
    u32 *where;                  /* for each key: where its record is */
    u32 *version;                /* for each key: how many times it was written */
    struct kv_record *memory[2]; /* the two tables in memory */
    u32 used[2];                 /* records in each */
    u32 active;                  /* which of the two takes writes */
    u32 waiting;                 /* threads that wait for an empty table */
    struct extents space;
    u8 *owner; /* for each page: the number of its table on the disk; 0: none */
    struct kv_stats stats;
    /* guarded by `log_lock` */
    struct mutex log_lock;
    struct kv_record *log; /* the page at the end of the log */
    u64 logged;            /* records that were written to it */
    /* used by the flusher alone */
    u32 oldest, newest; /* tables on the disk, numbered from 1 to 255, then from 1 again */
    struct semaphore full, empty;
};

/* Begins an empty store on the whole disk, with room for `table_records` records in each of the two
 * tables in memory. Starts a thread of the vCPU `vcpu` that writes full tables to the disk. Returns
 * 0, or
 *   -ENOSPC  the disk has no room for twice the keys, the log, and the tables
 *   -ENOMEM */
int kv_open(struct kv *s, struct pagecache *cache, u32 keys, u32 table_records, u32 vcpu);
/* Writes a record. `r->version` becomes the number of this version of its key, from 1 on. The
 * record is in the log's pages when this returns; a sync of the cache makes it safe. Returns 0, or
 * -EIO. */
int kv_put(struct kv *s, struct kv_record *r);
/* Reads the record of r->key. Returns 0, -ENOENT if it was never written, or -EIO. */
int kv_get(struct kv *s, struct kv_record *r);

#endif
