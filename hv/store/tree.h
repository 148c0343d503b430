/* What the files of hv/store share: nodes, watches, transactions, and the work that is in
 * progress. */
#ifndef HV_STORE_TREE_H
#define HV_STORE_TREE_H

#include "store/store.h"

/* What a transaction has looked at, or what of a node has changed. */
enum {
    BODY = 1, /* value and permissions */
    LIST = 2, /* which children there are */
    ALL = 7   /* the node itself has come or gone */
};

/* How many instructions things cost, roughly: estimated from counted runs, so that a call can
 * stop before it has taken too long. tests/unit/test_store_bounds counts the instructions of
 * whole calls and fails if one takes longer than a part may (docs/architecture.md). */
enum {
    COST_PATH_BYTE = 7,   /* a byte of a path is copied and checked */
    COST_PATH_PART = 100, /* a component of a path is hashed */
    COST_NODE_NEW = 350,
    COST_NODE_FREE = 100,
    COST_EVENT_QUEUE = 600, /* and 1 for each byte of the path */
    COST_EVENT_READ = 500,
    COST_EVENT_FREE = 100,
    COST_REMOVE = 300,     /* a node is removed */
    COST_COMMIT = 300,     /* a shadow is written to its base */
    COST_TX_FREE = 200,    /* a shadow is freed */
    COST_WATCH_FREE = 300, /* a watch of a client that is reset */
    COST_WORK_STEP = 80,   /* a step of store_work() by itself */
    COST_LIST_CHILD = 15,  /* a child is visited to list it */
    COST_LIST_COPY = 10,   /* and its name is copied */
    COST_LIST_SHADOW = 10, /* a shadow is visited before a transaction lists a node */
    COST_RM_SHADOW = 30,   /* a shadow is visited to remove a node in a transaction */
    COST_RING_VISIT = 1000,
    COST_RING_BYTE = 2,

    LIMIT_WORK = 20000, /* store_work() stops after so many */
    LIMIT_LIST = 36000, /* a list ends after so many; the client asks for the rest */
    LIMIT_RING = 4000   /* no further request of the ring is taken after so many */
};

struct node {
    struct node *next;      /* in its bucket of the table */
    struct node *parent;    /* NULL: a root */
    u32 hash;               /* of parent and name */
    u32 held;               /* how many nodes of the table have this node as their parent */
    struct list children;   /* those that exist; of a shadow: those that its transaction has made */
    struct list sibling;    /* its link in the parent's `children` */
    struct list shadows;    /* of a base: its shadows; of a shadow: its link in that list */
    struct transaction *tx; /* of a shadow: its transaction; else NULL */
    union {
        struct {                 /* of a node that is no shadow */
            struct list watches; /* on this node */
            const struct store_binding *bind;
            void *bind_ctx;
        };
        struct {               /* of a shadow */
            struct list in_tx; /* in its transaction's list */
            struct node *base; /* the node that it stands for */
            u8 looked;         /* what of the node its transaction has looked at */
            bool dirty;        /* value and permissions are its own */
            bool cut;          /* the transaction has removed what the base is and has below it */
            bool news;         /* watches are told when it is committed */
            bool counted;      /* it counts among the client's nodes */
        };
    };
    struct store_client *payer;
    void *value;
    u64 id;
    u64 generation; /* changes whenever the node or its list of children does */
    u64 mark;       /* the generation of the call that last marked it */
    u32 len;        /* of the value, in bytes */
    u16 name_len;
    bool exists;
    struct store_perms perms;
    char name[]; /* terminated, with room for at least NAME_ROOM bytes, filled up with zeros */
};
_Static_assert(sizeof(struct node) + 24 <= 224, "a class of the heap: many are in each VM's home");
#define NAME_ROOM 8u /* names of at most so many bytes are copied and compared as one word */

struct transaction {
    struct list link, shadows; /* parents before children */
    struct store_client *client;
    struct node *root;
    u32 id, nr;
    bool doomed;
};

struct watch {
    struct list in_node; /* in its node's list */
    struct list link;    /* in its client's list */
    struct list late;    /* in its client's list: an event with the watch's own path is due */
    struct store_client *client;
    struct node *node;
    u32 cost; /* bytes that the client is charged */
    /* How many bytes of a path are left out of events, because the watch's path was relative. */
    u32 skip;
    u64 hash; /* of the token */
    char token[];
};

struct event {
    struct list link;
    struct watch *watch;
    u64 node; /* the id of the node that changed */
    u32 cost; /* bytes that the client is charged */
    char path[];
};

/* A component of a path. */
struct part {
    const char *name;
    u32 len;
    u64 hash;          /* of the name alone */
    u64 tail;          /* the last 1 to 8 bytes of the name, filled up with zeros */
    struct node *node; /* set by node_place() */
};

struct store_state {
    struct node **table;
    struct node *root, *special; /* of paths that begin with '/', with '@' */
    struct node *introduce, *release;
    u64 seed, ids, generation;
    struct list clients;
    struct store_client self; /* the hypervisor's own */
    /* The path of the current operation. */
    char path[XS_ABS_PATH_MAX + STORE_HOME_LEN];
    struct part part[STORE_DEPTH];
    u32 depth;   /* components of the path */
    u32 missing; /* how many of them, at its end, do not exist */
    /* what is in progress: watches that are told of a node */
    struct {
        struct node *node; /* NULL: none */
        struct node *at;   /* `node` or one above it, whose watches are next */
        struct list *watch;
        bool exact; /* only watches on the node itself */
        struct store_perms old;
    } telling;
    struct node *removing;
    struct transaction *committing;
    struct list *commit_at;
    struct list ended; /* transactions that are to be freed */
    struct store_client *resetting, *leaving;
    /* sweep: the next node to look at; home: /local/domain/<id>; both for `leaving`. */
    struct node *sweep, *home;
};
extern struct store_state store;

/* ring.c: takes back what store_stream() has given, if it has. */
void store_end_stream(struct store_client *c);

/* Adds bytes to what a client has, or takes them away. If `c` is NULL, nobody pays. */
static inline void client_charge(struct store_client *c, i64 bytes) {
    if (c) c->memory += (u32)bytes;
}
/* Returns whether the client may have so many bytes more. */
static inline bool client_room(const struct store_client *c, i64 bytes) {
    return !c || c->privileged || bytes <= 0 || c->memory + bytes <= c->quota.memory;
}

static inline u32 node_size(const struct node *n) { return (u32)sizeof(*n) + n->name_len + 1; }

/* Returns the node that has the value and permissions of `n`. A shadow that is not dirty has none
 * of its own, so that is its base. */
static inline struct node *node_body(struct node *n) {
    if (n->tx && !n->dirty) return n->base;
    return n;
}

/* Is the node's value read and written by functions of the hypervisor? */
static inline bool node_bound(const struct node *n) {
    if (n->tx) n = n->base;
    return n->bind != NULL;
}

/* Returns the child of that name, whether it exists or is only kept in the table; NULL if
 * neither. */
struct node *node_child(const struct node *parent, const struct part *p);
/* Makes a node that does not exist yet. Returns NULL if there is no memory. */
struct node *node_new(struct node *parent, const struct part *p);
/* Takes a node out of the table. */
void node_unhash(struct node *n);
/* Frees a node if it does not exist and nobody needs it. Does the same for the nodes above it. */
void node_vanish(struct node *n);
/* Gives a node a value, which it then owns. */
void node_set_value(struct node *n, void *value, u32 len);
void node_set_perms(struct node *n, const struct store_perms *perms);
/* Notes that `what` of a base has changed: transactions that have looked at that are doomed. */
void node_changed(struct node *n, u8 what);
/* Makes a node exist, as one that `c` makes. Its parent does exist. */
void node_appear(struct store_client *c, struct node *n);
/* Makes a node no longer exist. It has no children. `exact`: as for node_tell(). */
void node_disappear(struct node *n, bool exact);
/* Tells the watches on a node, and those on the nodes above it, that the node has changed. With
 * `exact`, tells only those on the node itself. Only clients are told that may read the node, or
 * could read it with its permissions `old` (NULL: these have not changed). */
void node_tell(struct node *n, bool exact, const struct store_perms *old);
/* Notes that the value or the permissions of a base have changed: dooms transactions that have seen
 * them, and tells watches. */
void node_touched(struct node *n, const struct store_perms *old);
/* Finds the node of the current path below the root `n`, whether it exists or not, and makes
 * what is missing of it in the table. node_vanish() undoes that. Returns 0, -ENOSPC or -ENOMEM. */
int node_place(struct node *n, struct node **placed);
/* Returns the child of `n` with the name of component `i` of the current path, as n's
 * transaction sees it, if it exists; else NULL. */
struct node *node_below(struct node *n, u32 i);

struct part part_of(const char *name, u32 len);
/* Makes `path` the current path: store.path, store.part. With `special` it may begin with '@'.
 * Returns 0, -EINVAL or -E2BIG. */
int path_parse(const struct store_client *c, const char *path, bool special);
/* Writes the path of a node. Returns its length. */
u32 path_of(const struct node *n, char *path);

struct transaction *tx_find(struct store_client *c, u32 id);
/* Ends a transaction for which nothing is left to be done. store_work() frees it. */
void tx_end(struct transaction *tx);
void event_free(struct event *e);
/* Frees a watch and its events. */
void watch_free(struct watch *w);

/* Returns whether something is in progress. Every operation is refused then. */
bool store_busy(void);
/* Finds the node of a path on which `c` has one of the rights `need`. Returns 0 with *node, or
 * an error of store.h. If the node does not exist and `c` may know that, returns -ENOENT with
 * store.missing set; *node is then its shadow in a transaction, else NULL. A transaction gets
 * shadows only of what the client may see: otherwise its end would tell the client of changes
 * there. */
int store_find(struct store_client *c, u32 id, const char *path, u32 need, bool special,
               struct node **node);

#endif
