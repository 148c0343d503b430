/* What the loads with a key-value store share: the store of guest/kv.h with keys that were all
 * written once, and what belongs into each of them. It is on the disk of guest/workload.h. These
 * words of the command line describe it:
 *
 *   keys=N (1000)     keys
 *   table=N (128)     records in each table in memory
 *   sync_ms=T (500)   how often the log is synced, as Cassandra does it, so that a request need not
 *                     wait for the disk; 0: never */
#ifndef GUEST_KVLOAD_H
#define GUEST_KVLOAD_H

#include <guest/kv.h>

/* Makes the store, writes each key once, and starts the thread that syncs. Panics if it cannot.
 * Call it from serve() of guest/workload.h. */
void kvload_open(void);
/* Returns how many keys there are. */
u32 kvload_keys(void);
/* The first function fills `value`, which has KV_VALUE bytes, with what belongs to the key. The
 * second one returns how many words of a value that was read differ from that. */
void kvload_fill(void *value, u32 key);
u64 kvload_check(const void *value, u32 key);
/* Chooses a key from n by a random number r->rng: the smaller one of two, so that some keys are
 * asked for more often than others. */
u32 kvload_key(u64 *rng, u32 n);
/* Write and read a record. Panic if the disk refuses that. A record that was read, and is older
 * than the newest one at the time of the call, is counted as wrong (workload_wrong()). */
void kvload_put(struct kv_record *r);
void kvload_get(struct kv_record *r);
/* Prints what the store has done. */
void kvload_say(const char *title);

#endif
