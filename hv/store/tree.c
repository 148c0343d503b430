/* The tree of the store: nodes (named values), paths, rights, shadows.
 *
 * Nodes are found by parent and name in one hash table, so a look-up costs as much as its path is
 * long. A node that does not exist is kept in the table as long as a watch is on it (a client wants
 * to be told when it changes) or a transaction has looked for it.
 *
 * A transaction is reads and writes that happen together, or not at all. It has a shadow of each
 * node that it has looked at. The shadows are a tree of their own in the same table. A shadow reads
 * through to its base, the node itself, until it is written. A base that changes dooms the
 * transactions whose shadows have looked at what changed. So at its end a transaction is known to
 * be good without another look, and all memory that committing needs was allocated before. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "common/string.h"
#include "mm/frame.h"
#include "store/tree.h"

#define BUCKETS     8192u
#define TABLE_ORDER 4

struct store_state store;

/* ---- nodes ---- */

/* Returns a hash of a number. It is made by a product of 128 bits with a secret number, so that no
 * client can know two values with the same hash, and slow the store down by many of them. */
static u64 fold(u64 h) {
    unsigned __int128 product = (unsigned __int128)h * store.seed;

    return (u64)product ^ (u64)(product >> 64);
}

/* Returns a component of a path, with the hash of its name. The name is hashed in words of 8 bytes,
 * the last of which is filled up with zeros. The hash begins with the length. */
struct part part_of(const char *name, u32 len) {
    struct part p = { .name = name, .len = len, .hash = len };
    u64 word;

    for (; len > 8; len -= 8, name += 8) {
        __builtin_memcpy(&word, name, 8);
        p.hash = fold(p.hash ^ word);
    }
    word = 0;
    memcpy(&word, name, len);
    p.hash = fold(p.hash ^ word);
    p.tail = word;
    return p;
}

/* Has the node this name? Most names are short, and then one word decides. */
static bool has_name(const struct node *n, const struct part *p) {
    u64 word;

    if (n->name_len != p->len) return false;
    if (p->len > NAME_ROOM) return memcmp(n->name, p->name, p->len) == 0;
    __builtin_memcpy(&word, n->name, NAME_ROOM);
    return word == p->tail;
}

/* Returns the child of that name, or NULL if the table has none. Looks in the bucket of the hash
 * table to which parent and name lead. The hash is compared first, because nearly all other nodes
 * of the bucket differ in it already. */
struct node *node_child(const struct node *parent, const struct part *p) {
    u32 hash = (u32)fold(p->hash ^ (u64)parent);
    struct node *n = store.table[hash % BUCKETS];

    while (n && (n->hash != hash || n->parent != parent || !has_name(n, p))) n = n->next;
    return n;
}

/* Makes a node, which does not exist for clients yet, and is no shadow yet. Returns NULL if there
 * is no memory. Puts the node into the hash table, unless it is a root. `held` counts the nodes
 * below a parent, so that the parent is not freed before them. */
struct node *node_new(struct node *parent, const struct part *p) {
    struct node *n = heap_alloc(sizeof(*n) + MAX(p->len + 1, NAME_ROOM)), **bucket;

    if (!n) return NULL;
    store_spent += COST_NODE_NEW;
    n->id = ++store.ids;
    list_init(&n->children);
    list_init(&n->sibling);
    list_init(&n->watches);
    list_init(&n->shadows);
    n->parent = parent;
    n->name_len = (u16)p->len;
    memcpy(n->name, p->name, p->len);
    if (!parent) return n;
    parent->held++;
    n->hash = (u32)fold(p->hash ^ (u64)parent);
    bucket = &store.table[n->hash % BUCKETS];
    n->next = *bucket;
    *bucket = n;
    return n;
}

/* Takes a node out of the hash table. */
void node_unhash(struct node *n) {
    struct node **at = &store.table[n->hash % BUCKETS];

    while (*at != n) at = &(*at)->next;
    *at = n->next;
    n->parent->held--;
}

/* Frees a node that nobody needs any more, and then the nodes above it. Goes up as long as a node
 * is needed only by the one that was freed below it. A node is needed while it exists, while others
 * are below it, while somebody watches it or a transaction has looked at it, and while its change
 * is being told. */
void node_vanish(struct node *n) {
    struct node *parent;

    for (; n->parent && !n->tx && !n->exists && !n->held; n = parent) {
        if (n == store.telling.node || !list_empty(&n->watches) || !list_empty(&n->shadows)) return;
        parent = n->parent;
        node_unhash(n);
        heap_free(n);
        store_spent += COST_NODE_FREE;
    }
}

/* Gives a node a value, which it then owns; the old one is freed. */
void node_set_value(struct node *n, void *value, u32 len) {
    client_charge(n->payer, -(i64)n->len);
    heap_free(n->value);
    n->value = value;
    n->len = len;
    client_charge(n->payer, len);
}

/* Returns the VM that pays for a node: its owner, if that is a VM that is there; else NULL. */
static struct store_client *payer_of(const struct node *n) {
    u16 owner = n->perms.of[0].id;

    if (!owner) return NULL;
    /* Most often it is the one that pays for the parent. */
    if (n->parent && n->parent->payer && n->parent->payer->id == owner) return n->parent->payer;
    return store_vm(owner);
}

/* Charges the VM that owns a node for the memory that it takes. */
static void node_pay(struct node *n) {
    n->payer = payer_of(n);
    client_charge(n->payer, node_size(n) + n->len);
    if (n->payer) n->payer->nodes++;
}

/* Gives the VM that pays for a node back what it was charged. */
static void node_unpay(struct node *n) {
    client_charge(n->payer, -(i64)(node_size(n) + n->len));
    if (n->payer) n->payer->nodes--;
    n->payer = NULL;
}

/* Gives a node its permissions, and with them the owner that pays for it. */
void node_set_perms(struct node *n, const struct store_perms *perms) {
    bool paid = n->exists && !n->tx;

    if (paid) node_unpay(n);
    n->perms = *perms;
    if (paid) node_pay(n);
}

/* Returns the rights that a client has by these permissions. An observer may read every node. Of
 * several entries for a client the first one counts. */
u32 store_rights(const struct store_client *c, const struct store_perms *p) {
    u32 seen = 0;

    if (c->privileged || p->of[0].id == c->id) return STORE_R | STORE_W | STORE_OWN;
    if (c->observer) seen = STORE_R;
    for (u32 i = 1; i < p->nr; i++)
        if (p->of[i].id == c->id) return p->of[i].rights | seen;
    return p->of[0].rights | seen;
}

/* Notes that something of a node has changed: its value and rights (BODY), the list of its children
 * (LIST), or ALL. Transactions that have looked at that are doomed: they will end with -EAGAIN. */
void node_changed(struct node *n, u8 what) {
    n->generation = ++store.generation;
    list_for_each(s, &n->shadows, struct node, shadows) {
        if (what == ALL || s->looked & what) s->tx->doomed = true;
    }
}

/* Begins to tell the watches on a node that it has changed, and those on the nodes above it unless
 * `exact`; store_work() does it. `old` are the rights that the node had before, if others. A client
 * is told if it may read the node by the old or by the new ones. */
void node_tell(struct node *n, bool exact, const struct store_perms *old) {
    store.telling.node = store.telling.at = n;
    store.telling.watch = n->watches.next;
    store.telling.exact = exact;
    store.telling.old = n->perms;
    if (old) store.telling.old = *old;
}

/* To be called after the value or the rights of a node have changed. */
void node_touched(struct node *n, const struct store_perms *old) {
    node_changed(n, BODY);
    node_tell(n, false, old);
}

/* Makes a node exist for clients; `c` makes it and becomes its owner. In a transaction only the
 * shadow, its own copy of the node, exists, and its client pays for it. Otherwise the owner pays,
 * and transactions that have looked at this node or at the list of its siblings are doomed. */
void node_appear(struct store_client *c, struct node *n) {
    n->perms = node_body(n->parent)->perms;
    if (!c->privileged) n->perms.of[0].id = c->id;
    n->exists = true;
    list_add_tail(&n->parent->children, &n->sibling);
    if (n->tx) {
        if (!n->counted) c->nodes++;
        node_set_value(n, NULL, 0); /* the shadow may have existed before, and been removed */
        n->dirty = n->counted = true;
        n->parent->generation = ++store.generation;
    } else {
        node_pay(n);
        node_changed(n, ALL);
        node_changed(n->parent, LIST);
    }
}

/* Makes a node no longer exist for clients. Shadows of it (the copies of transactions) that were
 * not written show this node as it is, so they no longer exist either. Without `exact` the watches
 * on the nodes above it are told, too. */
void node_disappear(struct node *n, bool exact) {
    node_changed(n, ALL);
    node_changed(n->parent, LIST);
    list_for_each(s, &n->shadows, struct node, shadows) {
        if (!s->dirty) s->exists = false;
    }
    node_set_value(n, NULL, 0);
    node_unpay(n);
    n->exists = false;
    n->bind = NULL;
    list_del(&n->sibling);
    node_tell(n, exact, NULL);
}

/* ---- paths ---- */

static const bool legal[256] = {
    ['a' ... 'z'] = true, ['A' ... 'Z'] = true, ['0' ... '9'] = true,
    ['-'] = true,         ['_'] = true,         ['@'] = true,
};

/* Makes `path` the current path. Returns 0, -EINVAL or -E2BIG. Splits the path at its slashes, and
 * checks each name. A path that does not begin with '/' or '@' is taken as below the client's home.
 * The lengths of XenStore hold: XS_ABS_PATH_MAX, or XS_REL_PATH_MAX for the others. */
int path_parse(const struct store_client *c, const char *path, bool special) {
    u32 max = XS_REL_PATH_MAX, len, skip = 0;
    const char *name, *end;
    bool is_last;

    store.depth = store.missing = 0;
    if (*path == '/' || *path == '@') {
        max = XS_ABS_PATH_MAX;
    } else {
        memcpy(store.path, c->home, c->home_len);
        skip = c->home_len;
    }
    len = (u32)strnlen(path, max + 1);
    store_spent = COST_PATH_BYTE * len; /* an operation begins here */
    if (!len || len > max || (*path == '@' && !special)) return -EINVAL;
    memcpy(store.path + skip, path, len + 1);
    if (len == 1 && *path == '/') return 0;
    name = store.path;
    if (*name == '/') name++;
    for (;;) {
        end = name;
        while (legal[(u8)*end]) end++;
        /* The name is empty if there are two slashes in a row, or one at the end. */
        if (end == name || (*end && *end != '/')) return -EINVAL;
        if (store.depth == STORE_DEPTH) return -E2BIG;
        store.part[store.depth] = part_of(name, (u32)(end - name));
        store_spent += COST_PATH_PART;
        is_last = *end == 0;
        name += store.part[store.depth].len + 1; /* behind the slash */
        store.depth++;
        if (is_last) return 0;
    }
}

/* Writes the path of a node to `buf`. Returns its length. Counts the length first, and then writes
 * the names from the end to the front, because a node knows only its parent. */
u32 path_of(const struct node *n, char *path) {
    u32 len = 0;

    for (const struct node *a = n; a->parent; a = a->parent) len += a->name_len + 1u;
    if (!len) len = 1;
    path += len;
    *path = 0;
    for (; n->parent; n = n->parent) {
        path -= n->name_len;
        memcpy(path, n->name, n->name_len);
        *--path = '/';
    }
    if (n == store.special)
        memmove(path, path + 1, len--);
    else if (len == 1)
        path[-1] = '/';
    return len;
}

/* Makes a shadow of n's child: the transaction's own copy, of which n is one itself. The real node,
 * its base, is put in the table if it is not there, because the transaction has to learn when
 * somebody makes it. So the client pays for two nodes. Returns 0, -ENOSPC or -ENOMEM. */
static int node_shadow(struct node *n, const struct part *p, struct node **shadow) {
    struct node *base = node_child(n->base, p), *s;
    struct transaction *tx = n->tx;

    if (tx->nr == STORE_TX_NODES || !client_room(tx->client, 2 * (i64)(sizeof(*s) + p->len)))
        return -ENOSPC;
    if (!base) base = node_new(n->base, p);
    if (!base) return -ENOMEM;
    s = node_new(n, p);
    if (!s) {
        node_vanish(base);
        return -ENOMEM;
    }
    s->tx = tx;
    s->base = base;
    s->cut = n->cut;
    s->exists = base->exists && !n->cut;
    s->payer = tx->client;
    list_add_tail(&base->shadows, &s->shadows);
    list_add_tail(&tx->shadows, &s->in_tx);
    tx->nr++;
    client_charge(tx->client, 2 * node_size(s));
    *shadow = s;
    return 0;
}

/* Finds the node at the current path below `n`, and makes what is missing in the table. Returns 0
 * with *placed, or an error; then node_vanish() frees the nodes that this call has made on the
 * way. */
int node_place(struct node *n, struct node **placed) {
    int error;

    for (u32 i = 0; i < store.depth; i++) {
        struct part *p = &store.part[i];
        struct node *next = node_child(n, p);

        error = -ENOMEM;
        if (!next && n->tx)
            error = node_shadow(n, p, &next);
        else if (!next)
            next = node_new(n, p);
        if (!next) {
            node_vanish(n);
            return error;
        }
        p->node = n = next;
    }
    *placed = n;
    return 0;
}

/* Returns the child of `n` that component `i` of the current path names, if it exists; else
 * NULL. */
struct node *node_below(struct node *n, u32 i) {
    struct node *next = node_child(n, &store.part[i]);

    if (!next && n->tx && !n->cut) next = node_child(n->base, &store.part[i]);
    if (!next || !next->exists) return NULL;
    return next;
}

/* Returns the client's transaction with this number, or NULL. */
struct transaction *tx_find(struct store_client *c, u32 id) {
    list_for_each(tx, &c->transactions, struct transaction, link) {
        if (tx->id == id) return tx;
    }
    return NULL;
}

/* Is something in progress that takes several steps, so that no operation is possible now? */
bool store_busy(void) {
    return store.telling.node || store.removing || store.committing || !list_empty(&store.ended) ||
           store.resetting || store.leaving;
}

/* Finds the node of a path, in the view of transaction `id` if that is not 0, if the client has one
 * of the rights `need` on it. Returns 0 or a negative errno. If the node does not exist, that is
 * -ENOENT, and store.missing says how many components of the path do not exist. Rights are checked
 * before anything is made in the table. Otherwise a client could make the store keep nodes that it
 * must not see. */
int store_find(struct store_client *c, u32 id, const char *path, u32 need, bool special,
               struct node **node) {
    struct transaction *tx = NULL;
    struct node *n = store.root, *next;
    u32 i = 0;
    int error;

    *node = NULL;
    store.missing = 0;
    if (store_busy()) return -EBUSY;
    if (id) {
        tx = tx_find(c, id);
        if (!tx) return -ENOENT;
    }
    error = path_parse(c, path, special);
    if (error) return error;
    if (store.path[0] == '@')
        n = store.special;
    else if (tx)
        n = tx->root;
    for (; i < store.depth; i++) {
        next = node_below(n, i);
        if (!next) break;
        n = next;
    }
    /* Rights on the node, or on the nearest one above it that exists. */
    if (!(store_rights(c, &node_body(n)->perms) & need)) return -EACCES;
    store.missing = store.depth - i;
    if (tx && store.path[0] != '@') {
        error = node_place(tx->root, &n);
        if (error) {
            store.missing = 0;
            return error;
        }
        /* It has looked at each node that does not exist, and at the last one that does. */
        next = n;
        next->looked |= BODY;
        for (u32 k = 0; k < store.missing; k++) {
            next = next->parent;
            next->looked |= BODY;
        }
    }
    if (!store.missing || n->tx) *node = n;
    if (store.missing) return -ENOENT;
    return 0;
}

/* Makes a node that always exists. The owner is 0, and others have no rights. */
static struct node *root_new(struct node *parent, const char *name) {
    struct part p = part_of(name, (u32)strlen(name));
    struct node *n = node_new(parent, &p);

    if (!n) return NULL;
    n->exists = true;
    n->perms.nr = 1;
    if (parent) list_add_tail(&parent->children, &n->sibling);
    return n;
}

/* Sets the store up. Returns 0 or -ENOMEM. Makes the hash table, and the nodes that always exist:
 * the root, and those of the special paths, which begin with '@'. `seed` is a number that no client
 * can know. The multiplication, by 2^64 divided by the golden ratio, spreads its bits over all
 * 64. */
int store_init(u64 seed) {
    hpa_t table = frame_alloc_zeroed(TABLE_ORDER);

    if (table == HPA_NONE) return -ENOMEM;
    store.table = hpa_to_va(table);
    store.seed = seed * 0x9e3779b97f4a7c15 | 1;
    store.self.privileged = true;
    list_init(&store.clients);
    list_init(&store.ended);
    store.root = root_new(NULL, "");
    store.special = root_new(NULL, "");
    store.introduce = root_new(store.special, XS_SPECIAL_INTRODUCE);
    store.release = root_new(store.special, XS_SPECIAL_RELEASE);
    if (!store.root || !store.special || !store.introduce || !store.release) return -ENOMEM;
    return 0;
}
