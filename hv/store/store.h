/* The store: a tree of named values through which VMs and the hypervisor tell each other what
 * they know. It means what XenStore means; docs/store.md tells where it differs.
 *
 * Lock: there is none in here. The caller holds a lock of its own (store_lock) over every call,
 * and none of hv/sched's. The heap's lock is taken inside. `notify` and the functions of a
 * binding are called with the caller's lock held and must not call back.
 *
 * No call waits, and none is longer than a part may be (docs/architecture.md). Removing many
 * nodes, committing a transaction and events for many watches take longer. Such an operation is
 * told to be done at once, and store_work() then carries it out. Meanwhile every other operation
 * is refused with -EBUSY, so nobody sees half of it.
 *
 * Operations return 0 or more, or one of these. An operation that fails has changed nothing.
 *   -EINVAL  the path or another argument is not valid
 *   -ENOENT  there is no such node; or the client has no transaction `tx`
 *   -EACCES  the client may not do that; also if it may not read where a missing node would be
 *   -ENOSPC  it would exceed a quota
 *   -ENOMEM  there is no memory
 *   -E2BIG   it does not fit
 *   -EROFS   the node is bound
 *   -EBUSY   something is in progress: call store_work(), then again
 * `tx` is the number of a transaction, 0 for none. Paths and tokens are terminated; values need
 * not be. */
#ifndef HV_STORE_STORE_H
#define HV_STORE_STORE_H

#include <takt/store_wire.h>
#include "lib/list.h"

#define STORE_DEPTH     24  /* components of a path; with more: -E2BIG */
#define STORE_TX_NODES  512 /* nodes that one transaction looks at or changes; with more: -ENOSPC */
#define STORE_MAX_PERMS 8
#define STORE_MAX_ID    0x7fef /* of a domain, as Xen has it */
#define STORE_TOKEN_MAX (XS_PAYLOAD_MAX - XS_ABS_PATH_MAX - 2)
#define STORE_HOME      "/local/domain/%u"
#define STORE_HOME_LEN  24

enum { STORE_R = 1, STORE_W = 2, STORE_OWN = 4 };

/* The first entry names the owner, which may do everything, and the rights of clients without an
 * entry. */
struct store_perms {
    u32 nr;
    struct {
        u16 id;
        u16 rights; /* STORE_R | STORE_W */
    } of[STORE_MAX_PERMS];
};

/* What one client may have. New clients begin with store_quota. For a privileged client only
 * `events` and `requests` are limits. */
struct store_quota {
    u32 nodes; /* nodes that it owns */
    u32 watches;
    u32 value;        /* bytes of one value */
    u32 transactions; /* transactions that are open at a time */
    u32 perms;        /* entries of a node's permissions, at most STORE_MAX_PERMS */
    /* Requests that are answered at one visit; after them it is the turn of other clients. */
    u32 requests;
    /* Events that wait to be read; docs/store.md tells what happens to further ones. */
    u32 events;
    u32 memory; /* bytes that all of that takes */
};
extern struct store_quota store_quota;

struct store_packet {
    struct xs_header head;
    u8 *data; /* XS_PAYLOAD_MAX bytes; NULL before store_stream() */
};

/* Where a client's last list ended. It is good as long as the node's list is of that generation. */
struct store_cursor {
    u64 node, generation; /* node: its id */
    u32 offset;           /* bytes of the list that come before `child` */
    struct node *child;   /* the next child to be listed */
};

/* A connection. Each VM has one, with the VM's id. The hypervisor's own and those from the host
 * are privileged and share id 0. store_open() sets it and wants it zeroed; its members are
 * hv/store's. */
struct store_client {
    u16 id;
    char home[STORE_HOME_LEN]; /* STORE_HOME of this client, and a slash */
    u32 home_len;
    bool privileged;
    bool observer;                          /* may read every node */
    void (*notify)(struct store_client *c); /* called when an event waits; may be NULL */
    struct store_quota quota;
    u32 nodes, nr_watches, nr_transactions, nr_events, memory; /* how many it has now */
    struct list link, watches, transactions, events, late;
    struct store_cursor cursor;
    u32 last_tx;
    bool left; /* its end has begun */
    /* the connection's bytes (ring.c) */
    struct xs_page *page; /* NULL: no ring */
    u32 req_cons, rsp_prod;
    bool bad;
    u32 in_have, out_sent, out_len;
    struct store_packet in, out;
};

#define STORE_BOUND 64 /* bytes of a bound node's value, which is terminated text */

/* What stands behind a bound node. */
struct store_binding {
    /* Called before a value is accepted. Returns 0, or an error that says why the value is refused
     * (not -EBUSY); then nothing changes. If this is NULL, nobody may write the node. */
    int (*write)(void *ctx, const char *name, const char *text);
    /* Writes the value to `text`, which has room for STORE_BOUND bytes and is empty. */
    void (*read)(void *ctx, const char *name, char *text);
};

/* Sets the store up. Call it once. The seed decides how names are spread over the table, so that no
 * client can choose names that all fall into one bucket. Returns 0 or -ENOMEM. */
int store_init(u64 seed);

/* Adds a client. Watches of @introduceDomain are told of a VM. Returns 0, -EEXIST if there is a
 * VM of that id, or -EBUSY. */
int store_open(struct store_client *c, u16 id, bool privileged);
/* Does a part of ending a client; returns true while there is more to do. Its watches,
 * transactions and events go. If it is a VM, so do the nodes that it owns with all below,
 * /local/domain/<id>, and every right that others gave it. Then watches of @releaseDomain are
 * told, and `c` is the caller's again. */
bool store_close(struct store_client *c);
/* Returns the client of a VM, or NULL if there is none. */
struct store_client *store_vm(u16 id);
/* Drops a client's watches, events and transactions. Returns 0 or -EBUSY. */
int store_reset(struct store_client *c);

/* Does a part of what is in progress; returns true while there is more to do. */
bool store_work(void);
/* How many instructions the last call took, roughly. */
extern u32 store_spent;

/* Copies the value to `buf`, and returns its length, or -E2BIG if the value is longer than `size`.
 * For a bound node `size` has to be at least STORE_BOUND. */
int store_read(struct store_client *c, u32 tx, const char *path, void *buf, u32 size);
/* Sets the value of a node. Makes the node and those above it if they do not exist. */
int store_write(struct store_client *c, u32 tx, const char *path, const void *value, u32 len);
/* Makes a node, and those above it, if it does not exist. */
int store_mkdir(struct store_client *c, u32 tx, const char *path);
/* Removes a node with all below it. */
int store_rm(struct store_client *c, u32 tx, const char *path);
/* Writes the names of the children, each terminated, oldest first, and returns their length.
 *
 * With `from` NULL the whole list has to fit: -E2BIG otherwise. Else the list begins at its byte
 * *from, and what does not fit is left for the next call: *from is then where the list goes on,
 * 0 if it is complete, and *generation is another number when the list has changed between two
 * calls. -EBUSY is also returned if *from is so far on that it is not found in one part: the
 * same call again goes on from where this one came to. */
int store_list(struct store_client *c, u32 tx, const char *path, void *buf, u32 size, u32 *from,
               u64 *generation);
int store_get_perms(struct store_client *c, u32 tx, const char *path, struct store_perms *perms);
/* Sets the permissions of a node. Only the node's owner and privileged clients may do that. Only a
 * privileged client may name another owner; others get -EPERM. */
int store_set_perms(struct store_client *c, u32 tx, const char *path,
                    const struct store_perms *perms);

/* Has the client told, with `token`, of changes of the node and of all nodes below it. Returns
 * -EEXIST if it is told already. */
int store_watch(struct store_client *c, const char *path, const char *token);
int store_unwatch(struct store_client *c, const char *path, const char *token);
/* Writes the client's next event to `buf`, which has room for XS_PAYLOAD_MAX bytes: path and
 * token, each terminated. Returns the length of both, or 0 if there is no event. */
int store_event(struct store_client *c, void *buf);

/* Begins a transaction and returns its number. */
int store_begin(struct store_client *c);
/* Ends a transaction. Returns -EAGAIN if it was to be committed, but something that it has seen has
 * changed meanwhile. */
int store_end(struct store_client *c, u32 tx, bool commit);

/* Binds the node of that path to functions of the hypervisor, and gives it these permissions.
 * The node is made if it does not exist. Clients may neither remove it, nor make nodes below it,
 * nor write it in a transaction: -EROFS. With `b` NULL the node is bound no longer. */
int store_bind(const char *path, const struct store_binding *b, void *ctx,
               const struct store_perms *perms);
/* Tells watches that the value of a bound node has changed. */
int store_touch(const char *path);

/* Returns the rights that `c` has on a node with these permissions. */
u32 store_rights(const struct store_client *c, const struct store_perms *p);

/* Gives the client room for a request and a reply, unless it has that: two pages. It comes before
 * the functions below, and store_close() takes the room back. A client that is only the owner of
 * nodes, as a VM that does not use the store, does without. Returns 0 or -ENOMEM. */
int store_stream(struct store_client *c);

/* ---- request.c: one packet of a client ---- */

/* Reads one entry of permissions as people and XenStore write it: a letter and an id, as in
 * "r7", into p->of[at]. Returns 0 or -EINVAL. The letter of some rights is store_right[rights]. */
int store_parse_perm(const char *text, struct store_perms *p, u32 at);
extern const char store_right[];

/* Carries out the request in c->in, which is complete, and puts the reply into c->out. Returns
 * false, with nothing done, while something is in progress that has to be finished first. */
bool store_request(struct store_client *c);

/* ---- ring.c: the connection as bytes ---- */

/* Takes bytes of requests, and returns how many it took. It takes none while a reply has not been
 * fetched or while the store is busy. If a packet is too long, it ends the connection (c->bad). */
u32 store_feed(struct store_client *c, const void *bytes, u32 n);
/* Writes bytes of replies and events. Returns how many it wrote. */
u32 store_drain(struct store_client *c, void *bytes, u32 room);
/* Returns whether a whole request waits because the store was busy. store_feed() takes no more
 * bytes then; each call of it, also with no bytes, tries that request again. */
static inline bool store_waits(const struct store_client *c) {
    return c->in_have >= sizeof(c->in.head) && c->in_have == sizeof(c->in.head) + c->in.head.len;
}

/* Forgets what was begun of a request and of a reply, for a connection that begins anew. */
void store_fresh(struct store_client *c);
/* Connects a client to the ring in a page of its VM, which lies in that VM's RAM. The ring is
 * empty then. */
void store_connect(struct store_client *c, struct xs_page *p);
enum { STORE_TELL = 1, STORE_MORE = 2 };
/* Does a part of serving the ring. With `asks` it takes requests. Without `asks` it only hands over
 * what waits for the guest, which costs little. Returns STORE_TELL if the guest has to get an
 * event, and STORE_MORE if there is more to do. */
unsigned store_pump(struct store_client *c, bool asks);

#endif
