/* A client of Takt's store for programs in a Linux VM. It speaks the store's protocol, which is
 * that of XenStore, over the VM's second serial port, /dev/ttyS1, or over the UNIX socket that
 * $XENSTORED_PATH names. The port takes one program at a time. */
#ifndef TAKT_LINUX_STORE_H
#define TAKT_LINUX_STORE_H

#include <stdbool.h>
#include <stddef.h>

#define STORE_MAX 4096 /* bytes of a request, a reply or an event, without its header */

struct store {
    int fd;
    unsigned last; /* the number of the last request */
    /* Paths of events that came while a reply was awaited; each ends with 0. What finds no room
     * is dropped, and `lost` says so. */
    char waiting[STORE_MAX];
    size_t waiting_len;
    bool lost;
};

/* All functions that return int return 0 or more, or a negative errno, which the store or Linux
 * gave. A path is absolute, or relative to the VM's own home. */

/* Opens the connection. -EBUSY: another program has the port open. */
int store_open(struct store *s);
void store_close(struct store *s);

/* Reads a value, of at most `size` - 1 bytes, and ends it with 0. Returns its length. */
int store_read(struct store *s, const char *path, char *value, size_t size);
int store_write(struct store *s, const char *path, const char *value);
int store_rm(struct store *s, const char *path);
/* Writes the names of the children to `names`, which has STORE_MAX bytes. Each ends with 0. Returns
 * the length of all. */
int store_list(struct store *s, const char *path, char *names);
/* Has the store tell of changes of a node and all below it. It also tells once at once. */
int store_watch(struct store *s, const char *path);
/* Waits for an event, for at most `ms` milliseconds (-1: for ever). Writes its path, of less than
 * STORE_MAX bytes. Returns 1, or 0 if there was none; -EOVERFLOW once, if events were lost. */
int store_wait(struct store *s, int ms, char *path);

#endif
