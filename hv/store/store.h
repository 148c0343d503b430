/* The store: a tree of named values that VMs and hypervisor tell each other what they know by. Its meaning is
 * XenStore's; docs/store.md tells where it differs.
 *
 * Lock: none in here. The caller holds one of its own over every call, and none of hv/sched's; the heap's is
 * taken inside. `notify` and a binding's functions are called with the caller's lock held and must not call
 * back. No call waits and none is longer than a part (docs/architecture.md). What takes longer, the removal
 * of many nodes, a transaction's commit, events to many watches, is told done at once and then carried out by
 * store_work(); meanwhile every other operation is refused with -EBUSY, so nobody sees half of it.
 *
 * Operations return 0 or more, or: -EINVAL (no such path, no such argument), -ENOENT, -EACCES (may not; and
 * whoever may not read where a missing node would be hears this too), -ENOSPC (a quota), -ENOMEM, -E2BIG
 * (does not fit), -EROFS (a bound node), -EBUSY. An operation that fails has changed nothing. `tx` 0 is no
 * transaction; -ENOENT if the client has none of that number. Paths and tokens are terminated, values need
 * not be.
 */
#ifndef HV_STORE_STORE_H
#define HV_STORE_STORE_H

#include <takt/store_wire.h>
#include "lib/list.h"

#define STORE_DEPTH     24  /* components of a path; -E2BIG beyond */
#define STORE_TX_NODES  512 /* nodes that one transaction looks at or changes; -ENOSPC beyond */
#define STORE_MAX_PERMS 8
#define STORE_MAX_ID    0x7fef /* of a domain, as Xen has it */
#define STORE_TOKEN_MAX (XS_PAYLOAD_MAX - XS_ABS_PATH_MAX - 2)
#define STORE_HOME      "/local/domain/%u"
#define STORE_HOME_LEN  24

enum { STORE_R = 1, STORE_W = 2, STORE_OWN = 4 };

/* The first entry names the owner, who may all, and what those may who have no entry. */
struct store_perms {
    u32 nr;
    struct {
        u16 id;
        u16 rights; /* STORE_R | STORE_W */
    } of[STORE_MAX_PERMS];
};

/* What one client may have; store_quota is where new ones begin. A privileged client has no limits but
 * `events` and `requests`. */
struct store_quota {
    u32 nodes; /* that it owns */
    u32 watches;
    u32 value;        /* bytes of one */
    u32 transactions; /* open at a time */
    u32 perms;        /* entries of a node, at most STORE_MAX_PERMS */
    u32 requests;     /* answered at one visit; then it is the turn of others */
    u32 events;       /* that wait to be read; beyond, see docs/store.md */
    u32 memory;       /* bytes of all that */
};
extern struct store_quota store_quota;

struct store_packet {
    struct xs_header head;
    u8 data[XS_PAYLOAD_MAX];
};

/* Where a client's last list went on; good as long as the node's list is of that generation. */
struct store_cursor {
    u64 node, generation; /* the node's id */
    u32 offset;           /* bytes of the list before it */
    struct node *child;
};

/* A connection. VMs have one each, under the VM's id; the hypervisor's own and those from the host are
 * privileged and share id 0. Set by store_open(), which takes it zeroed; the rest is hv/store's. */
struct store_client {
    u16 id;
    bool privileged;
    bool observer;                          /* may read every node */
    void (*notify)(struct store_client *c); /* an event waits; or NULL */
    struct store_quota quota;
    u32 nodes, nr_watches, nr_transactions, nr_events, memory; /* in use */
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

#define STORE_BOUND 64 /* of a bound node's value, which is text, terminated */

/* What stands behind a bound node. */
struct store_binding {
    /* Before a value is accepted: 0, or why not, but for -EBUSY; then all stays. NULL: nobody may write. */
    int (*write)(void *ctx, const char *name, const char *text);
    /* The value to `text`, which has room for STORE_BOUND bytes and is empty. */
    void (*read)(void *ctx, const char *name, char *text);
};

int store_init(u64 seed); /* once; the seed hides how names are spread. -ENOMEM */

/* The client joins; @introduceDomain is told for a VM. -EEXIST: a VM of that id is there. -EBUSY. */
int store_open(struct store_client *c, u16 id, bool privileged);
/* A part of its end: true while there is more. Watches, transactions and events go; of a VM also the nodes
 * that it owns with all below, /local/domain/<id>, and every right that others gave it. Then @releaseDomain
 * is told, and the caller has `c` back. */
bool store_close(struct store_client *c);
struct store_client *store_vm(u16 id);   /* NULL: none */
int store_reset(struct store_client *c); /* its watches, events and transactions go */

/* A part of what was left to do: true while there is more. */
bool store_work(void);
extern u32 store_spent; /* instructions that the last part took, roughly */

/* `buf` gets the value: its length, -E2BIG if it is longer than `size`; a bound one's wants STORE_BOUND. */
int store_read(struct store_client *c, u32 tx, const char *path, void *buf, u32 size);
/* Makes the nodes above as well, if there are none. */
int store_write(struct store_client *c, u32 tx, const char *path, const void *value, u32 len);
int store_mkdir(struct store_client *c, u32 tx, const char *path);
int store_rm(struct store_client *c, u32 tx, const char *path); /* with all below */
/* Names of children, each terminated, oldest first: their length. From byte *from of the whole list; what
 * does not fit is left for the next call, unless `from` is NULL: then -E2BIG. *from becomes where the list
 * goes on, 0 if it does not; *generation is another one when the list has changed. -EBUSY also where *from is
 * so far on that it is not found in one part: the same call again goes on from there. */
int store_list(struct store_client *c, u32 tx, const char *path, void *buf, u32 size, u32 *from,
               u64 *generation);
int store_get_perms(struct store_client *c, u32 tx, const char *path, struct store_perms *perms);
/* The owner or a privileged client; another owner: -EPERM from others than the latter. */
int store_set_perms(struct store_client *c, u32 tx, const char *path, const struct store_perms *perms);

int store_watch(struct store_client *c, const char *path, const char *token); /* -EEXIST */
int store_unwatch(struct store_client *c, const char *path, const char *token);
/* The next event, path and token, each terminated, to `buf` of XS_PAYLOAD_MAX bytes: its length; 0: none. */
int store_event(struct store_client *c, void *buf);

int store_begin(struct store_client *c);                    /* the number of a transaction */
int store_end(struct store_client *c, u32 tx, bool commit); /* -EAGAIN: what it has seen has changed */

/* Binds the node of that path, which is made if need be, owner 0, rights `others` for all others. Clients may
 * neither remove it nor make nodes below it, nor write it in a transaction: -EROFS. NULL lets go of it. */
int store_bind(const char *path, const struct store_binding *b, void *ctx, const struct store_perms *perms);
/* A bound value is another one now: watches are told. -ENOENT. */
int store_touch(const char *path);

/* Rights of `c` on a node with these permissions. */
u32 store_rights(const struct store_client *c, const struct store_perms *p);

/* ---- request.c: one packet of a client ---- */

/* An entry as it is written, "r7", and back: store_right[rights] is its letter. -EINVAL */
int store_parse_perm(const char *text, struct store_perms *p, u32 at);
extern const char store_right[];

/* Carries out c->in, which is complete; the reply is in c->out. False: store_work() has to go first. */
bool store_request(struct store_client *c);

/* ---- ring.c: the connection as bytes ---- */

/* Takes request bytes, gives bytes of replies and events: how many. store_feed() takes none while a reply
 * waits to be fetched or the store is busy, and ends the connection (c->bad) at a packet that is too long. */
u32 store_feed(struct store_client *c, const void *bytes, u32 n);
u32 store_drain(struct store_client *c, void *bytes, u32 room);
/* A whole request waits for the store: store_feed() takes nothing, and tries again, be it with no bytes. */
static inline bool store_waits(const struct store_client *c) {
    return c->in_have >= sizeof(c->in.head) && c->in_have == sizeof(c->in.head) + c->in.head.len;
}

/* A VM's page, wholly in its RAM. The ring starts empty. */
void store_connect(struct store_client *c, struct xs_page *p);
enum { STORE_TELL = 1, STORE_MORE = 2 };
/* Serves the ring, a part: STORE_TELL: the guest is to have an event; STORE_MORE: call again. Unless it
 * `asks`, the guest only gets what waits for it, which costs little. */
unsigned store_pump(struct store_client *c, bool asks);

#endif
