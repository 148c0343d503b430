/* The store: a tree of named values that this VM shares with the hypervisor and with other VMs
 * (docs/store.md). Paths begin with /, or below /local/domain/<this VM>/. Only on Takt.
 *
 * Calls block the thread, for at most STORE_TIMEOUT. They return 0 or more, or -ENOENT, -EACCES, -EINVAL,
 * -ENOSPC (a quota), -E2BIG, -EROFS, -EAGAIN (only store_end()), -ETIMEDOUT, -EIO (the connection broke
 * and could not be made anew), -ENODEV (store_start() has not been called).
 */
#ifndef GUEST_STORE_H
#define GUEST_STORE_H

#include <guest/time.h>
#include <takt/store_wire.h>

#define STORE_TIMEOUT NS_PER_S
#define STORE_WATCHES 32

/* Connects, from a thread; events are taken on its vCPU. Again: makes the connection anew, with all
 * watches. */
int store_start(void);

/* Number of a transaction, 0: none, in each. */
i64 store_read(u32 tx, const char *path, void *buf,
               u32 size); /* length of the value, which is not terminated */
i64 store_list(u32 tx, const char *path, char *buf, u32 size); /* names, each terminated: their length */
i64 store_write(u32 tx, const char *path, const void *value, u32 len);
i64 store_mkdir(u32 tx, const char *path);
i64 store_rm(u32 tx, const char *path);
/* Each entry is n, r, w or b and the number of a VM, terminated; the first one's is the owner. */
i64 store_set_perms(u32 tx, const char *path, const char *perms, u32 len);
/* A number in decimal. */
i64 store_read_u64(u32 tx, const char *path, u64 *value);
i64 store_write_u64(u32 tx, const char *path, u64 value);

i64 store_begin(void);              /* the number of a transaction */
i64 store_end(u32 tx, bool commit); /* -EAGAIN: what it has seen has changed: do all of it again */

/* fn(ctx, path) at once, and then whenever the node or one below it changes: in an interrupt handler or
 * with interrupts off, so that it had better wake a thread. `path` is as it was given here, or below it.
 * -ENOSPC: there are STORE_WATCHES. */
i64 store_watch(const char *path, void (*fn)(void *ctx, const char *path), void *ctx);
i64 store_unwatch(const char *path, void (*fn)(void *ctx, const char *path), void *ctx);

#endif
