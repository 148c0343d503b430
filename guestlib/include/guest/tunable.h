/* Numbers of a running VM that others may change through the store: what a disk's cache, the
 * network stack or the bridge of a driver domain would otherwise only take from its command line
 * (IOrchestra, table 1 and section 7). Each of them is a key below io/tune/ in the VM's home:
 *
 *   takt> store write /local/domain/3/io/tune/disk0/dirty 30
 *
 * A value that is no number or out of range, or that the part itself refuses, changes nothing: the
 * log says why, and the key gets the old value back.
 *
 * The VM has these keys only with the word `tune` on its command line. Without it all functions
 * here do nothing. All of them are called on vCPU 0. */
#ifndef GUEST_TUNABLE_H
#define GUEST_TUNABLE_H

#include <takt/types.h>

#define TUNABLES     160 /* at a time */
#define TUNABLE_NAME 32  /* bytes of a name, with its terminator */

/* Takes a new value, which is in range. Returns NULL if it was taken, or else the end of a sentence
 * that begins "... is refused:". It is called in a thread, and no other thread of vCPU 0 runs
 * meanwhile. */
typedef const char *(*tunable_set)(void *arg, u64 value);

struct tunable {
    char name[TUNABLE_NAME]; /* the path below io/tune */
    u64 least, most;
    u64 value; /* at the start */
    tunable_set set;
    void *arg;
};

/* Returns whether this VM has tunables. */
bool tunables_on(void);
/* Makes a key for the number that *t describes; *t is copied. It does not wait, so the caller need
 * not be a thread. */
void tunable_add(const struct tunable *t);
/* Removes all keys with that `arg`. Their `set` is not called any more. */
void tunable_remove(const void *arg);

#endif
