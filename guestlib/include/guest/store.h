/* The store: a tree of named values that this VM shares with the hypervisor and with other VMs
 * (docs/store.md). A path that does not begin with / is below /local/domain/<this VM>/. Only on
 * Takt.
 *
 * Calls block the thread, for at most STORE_TIMEOUT. Each takes the number of a transaction, or 0
 * for none. They return 0 or more, or
 *   -ENOENT     there is no such node
 *   -EACCES     this VM has no right to do that
 *   -EINVAL     the path or the value is malformed
 *   -ENOSPC     a quota is used up
 *   -E2BIG      the answer does not fit into the buffer, or the request is too long
 *   -EROFS      the node cannot be changed
 *   -EAGAIN     only store_end(): another client has changed what the transaction has seen; do the
 *               transaction again
 *   -ETIMEDOUT  the store does not answer in time
 *   -EIO        the connection broke, and a new one could not be made
 *   -ENODEV     store_start() was not called */
#ifndef GUEST_STORE_H
#define GUEST_STORE_H

#include <guest/time.h>
#include <takt/store_wire.h>

#define STORE_TIMEOUT NS_PER_S
#define STORE_WATCHES 128 /* as many as the store gives a VM */

/* Connects to the store. Call it from a thread; the vCPU of that thread takes the store's
 * interrupts. A further call makes a new connection, with all watches. */
int store_start(void);

/* Reads a value into `buf`. The value is not terminated. Returns its length. */
i64 store_read(u32 tx, const char *path, void *buf, u32 size);
/* Reads the names of the children of a node; each name is terminated. Returns the length of all of
 * them together. */
i64 store_list(u32 tx, const char *path, char *buf, u32 size);
/* Writes a value of `len` bytes. Makes the node, and those above it, if it is not there. */
i64 store_write(u32 tx, const char *path, const void *value, u32 len);
/* Makes a node without a value. If it is there, nothing changes. */
i64 store_mkdir(u32 tx, const char *path);
/* Removes a node and all nodes below it. */
i64 store_rm(u32 tx, const char *path);
/* Sets the rights of a node. Each entry is n, r, w or b and the number of a VM, terminated. The
 * first entry names the owner; its letter holds for all VMs that have no entry. */
i64 store_set_perms(u32 tx, const char *path, const char *perms, u32 len);
/* Reads or writes a value that is a number in decimal. */
i64 store_read_u64(u32 tx, const char *path, u64 *value);
i64 store_write_u64(u32 tx, const char *path, u64 value);

/* Begins a transaction. Returns its number. */
i64 store_begin(void);
/* Ends a transaction: its changes are made all together, or dropped if `commit` is false. */
i64 store_end(u32 tx, bool commit);

/* Calls fn(ctx, path) at once, and then whenever the node or one below it changes. `fn` is called
 * with interrupts off, often in an interrupt handler, so it should only wake a thread. The path
 * that it gets begins as `path` does here. Returns -ENOSPC if there are STORE_WATCHES watches
 * already. */
i64 store_watch(const char *path, void (*fn)(void *ctx, const char *path), void *ctx);
/* Ends the watch that was made with these arguments. */
i64 store_unwatch(const char *path, void (*fn)(void *ctx, const char *path), void *ctx);

#endif
