/* Inside hv/store: nodes, watches, transactions, and what is in progress. */
#ifndef HV_STORE_TREE_H
#define HV_STORE_TREE_H

#include "store/store.h"

/* What a transaction has looked at, or what of a node has changed. */
enum { BODY = 1, /* value, permissions */ LIST = 2, /* which children */ ALL = 7 };

struct node {
    struct node *next, *parent;    /* in its bucket; NULL for roots */
    u32 hash, held;                /* nodes in the table below this one */
    struct list children, sibling; /* those that exist; of a shadow those that its transaction made */
    struct list watches;
    struct list shadows; /* of a base; of a shadow: its link there */
    struct list in_tx;
    struct node *base;      /* a shadow's */
    struct transaction *tx; /* whose shadow; NULL: none */
    struct store_client *payer;
    const struct store_binding *bind;
    void *bind_ctx;
    void *value;
    u64 id, generation;
    u32 len;
    u16 name_len;
    bool exists;
    u8 looked;
    /* of a shadow */
    bool dirty;   /* value and permissions are its own */
    bool cut;     /* the transaction has removed what the base is and has below it */
    bool news;    /* watches are to hear of it */
    bool counted; /* among its client's nodes */
    u64 mark;     /* of a base as well: the generation of the call that looks */
    struct store_perms perms;
    char name[]; /* terminated; NAME_ROOM bytes at least */
};
#define NAME_ROOM 8u

struct transaction {
    struct list link, shadows; /* parents before children */
    struct store_client *client;
    struct node *root;
    u32 id, nr;
    bool doomed;
};

struct watch {
    struct list in_node, link; /* of its node, its client */
    struct list late;          /* of its client: an event with the watch's own path is due */
    struct store_client *client;
    struct node *node;
    u32 cost, skip; /* bytes charged; of paths that are not told, as it was given relative */
    u64 hash;       /* of the token */
    char token[];
};

struct event {
    struct list link;
    struct watch *watch;
    u64 node; /* its id */
    u32 cost;
    char path[];
};

/* A component of a path. */
struct part {
    const char *name;
    u32 len;
    u64 hash;          /* of the name alone */
    struct node *node; /* by node_place() */
};

struct store_state {
    struct node **table, *root, *special, *introduce, *release;
    u64 seed, ids, generation;
    struct list clients;
    struct store_client self; /* the hypervisor */
    /* the path of the current operation */
    char path[XS_ABS_PATH_MAX + STORE_HOME_LEN];
    struct part part[STORE_DEPTH];
    u32 depth, missing; /* of which so many last ones do not exist */
    /* in progress */
    struct {
        struct node *node, *at; /* NULL: nothing to tell; whose watches are next */
        struct list *watch;
        bool exact; /* only to watches on the node itself */
        struct store_perms old;
    } telling;
    struct node *removing;
    struct transaction *committing;
    struct list *commit_at;
    struct list ended; /* transactions */
    struct store_client *resetting, *leaving;
    struct node *sweep, *home;
};
extern struct store_state store;

/* Bytes on a client's account; NULL: nobody's. */
static inline void client_charge(struct store_client *c, i64 bytes) {
    if (c) c->memory += (u32)bytes;
}
static inline bool client_room(const struct store_client *c, i64 bytes) {
    return !c || c->privileged || bytes <= 0 || c->memory + bytes <= c->quota.memory;
}

static inline u32 node_size(const struct node *n) { return (u32)sizeof(*n) + n->name_len + 1; }

/* Where value and permissions are. */
static inline struct node *node_body(struct node *n) { return n->tx && !n->dirty ? n->base : n; }

static inline bool node_bound(const struct node *n) { return (n->tx ? n->base : n)->bind; }

/* In the table, whether it exists or not; NULL: none. */
struct node *node_child(const struct node *parent, const struct part *p);
struct node *node_new(struct node *parent, const struct part *p); /* does not exist yet. NULL: -ENOMEM */
void node_unhash(struct node *n);
void node_vanish(struct node *n); /* if nobody needs it any more, nor then those above */
void node_set_value(struct node *n, void *value, u32 len); /* which it then owns */
void node_set_perms(struct node *n, const struct store_perms *perms);
void node_changed(struct node *n, u8 what); /* of a base */
/* It exists from now on, as `c` makes it; the parent does. */
void node_appear(struct store_client *c, struct node *n);
/* It has no children. `exact`: as node_tell(). */
void node_disappear(struct node *n, bool exact);
/* Watches hear of it, of those who may read the node, or could with its permissions of before. `exact`: only
 * those on the node itself. */
void node_tell(struct node *n, bool exact, const struct store_perms *old);
/* Value or permissions of a base have changed: transactions are doomed, watches told. */
void node_touched(struct node *n, const struct store_perms *old);
/* The node of the current path below `n`, a root, whether it exists or not; node_vanish() if it is not needed
 * after all. */
int node_place(struct node *n, struct node **placed);
/* What `n` has below it by the name of part `i`, as seen by its transaction, if it exists; else NULL. */
struct node *node_below(struct node *n, u32 i);

struct part part_of(const char *name, u32 len);
int path_parse(const struct store_client *c, const char *path, bool special); /* to store.path, store.part */
u32 path_of(const struct node *n, char *path);                                /* its length */

struct transaction *tx_find(struct store_client *c, u32 id);
void tx_end(struct transaction *tx); /* it has done what it had to */
void event_free(struct event *e);
void watch_free(struct watch *w); /* and its events */

bool store_busy(void);
/* The node of a path, on which `c` has one of the rights `need`. If it does not exist, but `c` may know that:
 * -ENOENT, with store.missing; then in a transaction there is its shadow, else NULL. A transaction gets
 * shadows only of what the client may see, or its end would tell of changes there. */
int store_find(struct store_client *c, u32 id, const char *path, u32 need, bool special, struct node **node);

#endif
