/* The operations of the store: a tree of named values ("nodes") that VMs, the hypervisor and
 * programs on the host share. Each of them is a client. A watch is a client's wish to be told when
 * a node, or one below it, changes; an event tells it. A transaction is reads and writes that
 * happen together or not at all; its shadows are its own view of the nodes. A node may belong to a
 * VM, which then pays for it by its quotas, so that no VM can use up the hypervisor's memory. A
 * bound node has no value: reading or writing it calls a function of the hypervisor.
 *
 * Each operation first checks whether it is allowed and possible, and allocates what it needs. Only
 * after that does it change anything. So an operation that fails has changed nothing. While
 * something long is in progress (work.c), all of them return -EBUSY. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "common/string.h"
#include "mm/frame.h"
#include "store/tree.h"

struct store_quota store_quota = {
    .nodes = 1000,
    .watches = 128,
    .value = 2048,
    .transactions = 10,
    .perms = 5,
    .requests = 20,
    .events = 64,
    .memory = 2u << 20,
};

/* ---- clients ---- */

/* Returns the client of a VM, or NULL if there is none. */
struct store_client *store_vm(u16 id) {
    list_for_each(c, &store.clients, struct store_client, link) {
        if (c->id == id && !c->privileged) return c;
    }
    return NULL;
}

/* Adds a client. Returns 0, -EEXIST or -EBUSY. A VM's id must be free: an earlier VM with the same
 * id has to have left completely. */
int store_open(struct store_client *c, u16 id, bool privileged) {
    if (store_busy()) return -EBUSY;
    if (!privileged && store_vm(id)) return -EEXIST;
    c->id = id;
    c->home_len = (u32)hv_snprintf(c->home, sizeof(c->home), STORE_HOME "/", id);
    c->privileged = privileged;
    c->quota = store_quota;
    list_init(&c->watches);
    list_init(&c->transactions);
    list_init(&c->events);
    list_init(&c->late);
    list_add_tail(&store.clients, &c->link);
    if (!privileged) node_tell(store.introduce, false, NULL);
    return 0;
}

/* Drops a client's watches, events and transactions. Returns 0 or -EBUSY. Events and transactions
 * go at once. Watches take longer; store_work() frees them one by one. */
int store_reset(struct store_client *c) {
    if (store_busy()) return -EBUSY;
    while (!list_empty(&c->events)) event_free(list_first(&c->events, struct event, link));
    while (!list_empty(&c->transactions))
        tx_end(list_first(&c->transactions, struct transaction, link));
    store.resetting = c;
    return 0;
}

/* Does a part of ending a client. Returns true if there is more to do. The first call drops the
 * watches and begins a walk over all nodes, which takes away what the VM has there; `left` says
 * that this has begun. When store_work() has finished the walk, the next call takes the client off
 * the list, and frees its pages. */
bool store_close(struct store_client *c) {
    if (store_work()) return true;
    if (c->left) {
        list_del(&c->link);
        store_end_stream(c);
        return false;
    }
    store_reset(c);
    store.leaving = c;
    c->left = true;
    if (c->privileged) return true;
    /* Transactions of others may have copies of what is removed. A commit must not bring it
     * back. */
    list_for_each(other, &store.clients, struct store_client, link) {
        list_for_each(tx, &other->transactions, struct transaction, link) tx->doomed = true;
    }
    store.sweep = store.root;
    store.home = NULL;
    if (path_parse(c, "x", false)) return true;
    /* The path of the name "x" is /local/domain/<id>/x. The client's home is all of that but the
     * last component. */
    store.home = store.root;
    for (u32 i = 0; store.home && i + 1 < store.depth; i++) store.home = node_below(store.home, i);
    return true;
}

/* ---- operations ---- */

/* Copies the value of a node to `buf`. Returns its length or a negative errno. A bound node has no
 * value of its own: its binding writes the text. */
int store_read(struct store_client *c, u32 tx, const char *path, void *buf, u32 size) {
    struct node *n;
    int error = store_find(c, tx, path, STORE_R, false, &n);

    if (error) return error;
    n = node_body(n);
    if (!n->tx && n->bind && n->bind->read) {
        if (size < STORE_BOUND) return -E2BIG;
        *(char *)buf = 0;
        n->bind->read(n->bind_ctx, n->name, buf);
        return (int)strlen(buf);
    }
    if (n->len > size) return -E2BIG;
    if (n->len) memcpy(buf, n->value, n->len);
    return (int)n->len;
}

/* Makes the nodes of the current path that are missing, of which the last one will have a value of
 * `len` bytes. In a transaction *node is the last one's shadow, the transaction's own copy of it,
 * which is in the table already. Otherwise *node is NULL, and becomes the node. Returns 0 or a
 * negative errno. */
static int node_make(struct store_client *c, struct node **node, u32 len) {
    struct node *n = *node, *at;
    u64 bytes = len;
    int error = 0;

    if (!n) error = node_place(store.root, &n);
    if (error) return error;
    at = n;
    for (u32 i = 0; i < store.missing; i++, at = at->parent) bytes += node_size(at);
    if (node_bound(at))
        error = -EROFS;
    else if (!c->privileged &&
             (c->nodes + store.missing > c->quota.nodes || !client_room(c, (i64)bytes)))
        error = -ENOSPC;
    if (error) {
        node_vanish(n);
        return error;
    }
    for (u32 i = store.depth - store.missing; i < store.depth; i++)
        node_appear(c, store.part[i].node);
    *node = n;
    return 0;
}

/* Writes a bound node: calls the function of its binding, which may refuse the value. That is not
 * possible in a transaction, because it could not be undone. */
static int write_bound(struct node *n, const void *value, u32 len) {
    char text[STORE_BOUND];
    int error;

    if (n->tx || !n->bind->write) return -EROFS;
    if (len >= STORE_BOUND) return -EINVAL;
    memcpy(text, value, len);
    text[len] = 0;
    error = n->bind->write(n->bind_ctx, n->name, text);
    if (!error) node_touched(n, NULL);
    return error;
}

/* Copies a value to memory of the heap: *copy, NULL if `len` is 0. Returns 0 or -ENOMEM. */
static int copy_value(const void *value, u32 len, void **copy) {
    *copy = NULL;
    if (!len) return 0;
    *copy = heap_alloc(len);
    if (!*copy) return -ENOMEM;
    memcpy(*copy, value, len);
    return 0;
}

/* Writes a node, or makes it. With `keep`, a node that exists is left as it is. All that can fail
 * comes first: rights, quotas, memory. A shadow (a transaction's own copy) that is written for the
 * first time takes its rights over from the real node. Returns 0 or a negative errno. */
static int node_write(struct store_client *c, u32 tx, const char *path, const void *value, u32 len,
                      bool keep) {
    struct node *n;
    void *copy;
    int error = store_find(c, tx, path, STORE_W, false, &n);
    bool exists = !error;

    if (error && !store.missing) return error;
    if (exists && keep) return 0;
    if (exists && node_bound(n)) return write_bound(n, value, len);
    if (!c->privileged && len > c->quota.value) return -ENOSPC;
    if (exists && !c->privileged && !client_room(n->payer, (i64)len - n->len)) return -ENOSPC;
    if (copy_value(value, len, &copy)) return -ENOMEM;
    if (!exists) {
        error = node_make(c, &n, len);
        if (error) {
            heap_free(copy);
            return error;
        }
    }
    if (n->tx && !n->dirty) {
        n->perms = n->base->perms;
        n->dirty = true;
    }
    node_set_value(n, copy, len);
    if (n->tx)
        n->news = true; /* only a shadow has this field */
    else
        node_touched(n, NULL);
    return 0;
}

/* Sets the value of a node, which is made if it does not exist. Returns 0, or a negative errno. */
int store_write(struct store_client *c, u32 tx, const char *path, const void *value, u32 len) {
    return node_write(c, tx, path, value, len, false);
}

/* Makes a node. One that exists is left as it is. Returns 0, or a negative errno. */
int store_mkdir(struct store_client *c, u32 tx, const char *path) {
    return node_write(c, tx, path, NULL, 0, true);
}

/* Removes a node with all below it, for its transaction only. The real nodes stay until the
 * transaction is committed. So this changes the shadows, which are the transaction's own copies:
 * they no longer exist, and nothing is read from the real nodes any more (`cut`). */
static void remove_in_tx(struct node *n) {
    u64 mark = ++store.generation;

    n->parent->generation = mark;
    /* Parents come first in the list. So a shadow is below the node if its parent has the mark. */
    list_for_each(s, &n->tx->shadows, struct node, in_tx) {
        if (s != n && (!s->parent || s->parent->mark != mark)) continue;
        list_del(&s->sibling);
        s->mark = s->generation = mark;
        s->cut = s->dirty = true;
        s->exists = s->news = false;
    }
    store_spent += COST_RM_SHADOW * n->tx->nr;
}

/* Removes a node with all below it. Returns 0 or a negative errno. In a transaction only its own
 * copies of the nodes change. Otherwise store_work() removes the node and all below it step by
 * step, because there may be many. */
int store_rm(struct store_client *c, u32 tx, const char *path) {
    struct node *n;
    int error = store_find(c, tx, path, STORE_W, false, &n);

    /* The node does not exist, but its parent does. That is a success, as in XenStore. */
    if (error && store.missing == 1) return 0;
    if (error) return error;
    if (!store.depth) return -EINVAL;
    if (node_bound(n)) return -EROFS;
    if (n->tx)
        remove_in_tx(n);
    else
        store.removing = n;
    return 0;
}

/* How far a list has come. */
struct listing {
    char *buf;
    u32 size, len; /* size: bytes of `buf` */
    u32 start;     /* the list is written from this byte on */
    u32 offset;    /* bytes of the list that have been passed */
    u32 spent;
    u64 removed; /* nodes with this mark are left out: the transaction has removed them */
};

/* Marks those children of n's base that n's transaction has removed. Returns the mark, which is a
 * new number, so that no old mark is taken for it. */
static u64 mark_removed(struct node *n) {
    u64 removed = ++store.generation;

    list_for_each(s, &n->tx->shadows, struct node, in_tx) {
        if (s->parent == n && s->cut) s->base->mark = removed;
    }
    return removed;
}

/* Copies the name of a node with its terminator, `bytes` in all, where `room` bytes are free. */
static inline void copy_name(char *to, const struct node *n, u32 bytes, u32 room) {
    if (bytes <= NAME_ROOM && room >= NAME_ROOM)
        __builtin_memcpy(to, n->name, NAME_ROOM); /* one word: most names are short */
    else
        memcpy(to, n->name, bytes);
}

/* Lists the children of `dir` from the link `first` on. Returns the one that it stopped at,
 * because there is no more room or it has taken long enough; NULL if it came to the end. Works
 * on a copy of *state, which the compiler can keep in registers: a list may have thousands of
 * names. */
static struct node *list_children(struct listing *state, struct node *dir, struct list *first) {
    struct listing s = *state;
    struct node *stopped = NULL;

    for (struct list *l = first; l != &dir->children; l = l->next) {
        struct node *k = list_entry(l, struct node, sibling);
        u32 bytes = k->name_len + 1u;

        if (k->mark == s.removed) continue;
        if (s.spent > LIMIT_LIST || (s.offset >= s.start && s.len + bytes > s.size)) {
            stopped = k;
            break;
        }
        if (s.offset >= s.start) {
            copy_name(s.buf + s.len, k, bytes, s.size - s.len);
            s.len += bytes;
            s.spent += COST_LIST_COPY;
        }
        s.spent += COST_LIST_CHILD;
        s.offset += bytes;
    }
    *state = s;
    return stopped;
}

/* Lists the children of n from where `at` says. If n is a shadow (a transaction's own copy of a
 * node), these are the children of the real node that the transaction has not removed, and then
 * those that the transaction has made. Returns as list_children(). */
static struct node *list_from(struct listing *s, struct node *n, const struct store_cursor *at) {
    struct node *dir = n, *stopped;
    struct list *first;

    if (at->child) {
        dir = at->child->parent;
        first = &at->child->sibling;
    } else {
        if (n->tx && !n->cut) dir = n->base;
        first = dir->children.next;
    }
    stopped = list_children(s, dir, first);
    if (stopped || dir == n) return stopped;
    return list_children(s, n, n->children.next);
}

/* Writes the names of a node's children to `buf`. Returns their length or a negative errno. A list
 * may be read in pieces. The cursor remembers where the last piece ended, so that the next one need
 * not pass all names again. It is valid only while the list has not changed: each change gives the
 * node a new number, its generation. */
int store_list(struct store_client *c, u32 tx, const char *path, void *buf, u32 size, u32 *from,
               u64 *generation) {
    struct listing s = { .buf = buf, .size = size, .removed = ~0ull };
    struct store_cursor at = c->cursor;
    u64 now;
    struct node *n;
    int error = store_find(c, tx, path, STORE_R, false, &n);

    if (error) return error;
    if (from) s.start = *from;
    now = n->generation;
    if (n->tx) {
        n->looked |= LIST;
        now += n->base->generation;
    }
    if (at.node != n->id || at.generation != now || at.offset > s.start || !at.child)
        at = (struct store_cursor){ .node = n->id, .generation = now };
    s.spent = store_spent;
    s.offset = at.offset;
    if (n->tx) {
        s.removed = mark_removed(n);
        s.spent += COST_LIST_SHADOW * n->tx->nr;
    }
    at.child = list_from(&s, n, &at);
    at.offset = s.offset;
    c->cursor = at;
    store_spent = s.spent;
    if (!from) {
        if (at.child) return -E2BIG;
        return (int)s.len;
    }
    if (at.child && !s.len && s.spent > LIMIT_LIST) return -EBUSY;
    *generation = now;
    *from = 0;
    if (at.child) *from = s.offset;
    return (int)s.len;
}

/* Reads the permissions of a node. Returns 0 or a negative errno. Whoever may read a node may also
 * see who else may. */
int store_get_perms(struct store_client *c, u32 tx, const char *path, struct store_perms *perms) {
    struct node *n;
    int error = store_find(c, tx, path, STORE_R, true, &n);

    if (!error) *perms = node_body(n)->perms;
    return error;
}

/* Sets the permissions of a node. Returns 0 or a negative errno. Only a privileged client may give
 * a node to another owner. In a transaction they are set in the shadow, its own copy of the node.
 * That also gets a copy of the value: after the first change of a shadow, nothing is read from the
 * real node any more. */
int store_set_perms(struct store_client *c, u32 tx, const char *path,
                    const struct store_perms *perms) {
    struct node *n;
    struct store_perms old;
    void *copy;
    int error;

    if (!perms->nr || perms->nr > STORE_MAX_PERMS) return -EINVAL;
    if (!c->privileged && perms->nr > c->quota.perms) return -ENOSPC;
    error = store_find(c, tx, path, STORE_OWN, true, &n);
    if (error) return error;
    old = node_body(n)->perms;
    if (!c->privileged && perms->of[0].id != old.of[0].id) return -EPERM;
    if (n->tx) {
        if (node_bound(n)) return -EROFS;
        if (!n->dirty && n->base->len) {
            if (!client_room(c, n->base->len)) return -ENOSPC;
            copy = heap_alloc(n->base->len);
            if (!copy) return -ENOMEM;
            memcpy(copy, n->base->value, n->base->len);
            node_set_value(n, copy, n->base->len);
        }
        n->dirty = n->news = true;
        n->perms = *perms;
        return 0;
    }
    node_set_perms(n, perms);
    node_touched(n, &old);
    return 0;
}

/* Returns the root at which the current path begins. */
static struct node *path_root(void) {
    if (store.path[0] == '@') return store.special;
    return store.root;
}

/* Returns the client's watch on the current path with that token, or NULL. */
static struct watch *watch_find(struct store_client *c, const char *token) {
    struct node *n = path_root();
    u64 hash = part_of(token, (u32)strlen(token)).hash;

    for (u32 i = 0; n && i < store.depth; i++) n = node_child(n, &store.part[i]);
    list_for_each(w, &c->watches, struct watch, link) {
        if (w->node == n && w->hash == hash && !strcmp(w->token, token)) return w;
    }
    return NULL;
}

/* Makes a watch: the client is told of changes at the node and below it. Returns 0 or a negative
 * errno. The watch is put on the node even if that does not exist yet; the table then keeps the
 * node. The first event is due at once (c->late), as in XenStore. w->skip is how much of the whole
 * path the client did not give: events leave that out, too. */
int store_watch(struct store_client *c, const char *path, const char *token) {
    struct part t = part_of(token, (u32)strlen(token));
    u32 size = (u32)sizeof(struct watch) + t.len + 1, len, cost;
    struct watch *w;
    int error;

    if (store_busy()) return -EBUSY;
    error = path_parse(c, path, true);
    if (error) return error;
    if (t.len > STORE_TOKEN_MAX) return -E2BIG;
    if (watch_find(c, token)) return -EEXIST;
    len = (u32)strlen(store.path);
    cost = size + len + store.depth * (u32)sizeof(struct node);
    if (!c->privileged && (c->nr_watches >= c->quota.watches || !client_room(c, cost)))
        return -ENOSPC;
    w = heap_alloc(size);
    if (!w) return -ENOMEM;
    error = node_place(path_root(), &w->node);
    if (error) {
        heap_free(w);
        return error;
    }
    memcpy(w->token, token, t.len + 1);
    w->hash = t.hash;
    w->client = c;
    w->cost = cost;
    w->skip = len - (u32)strlen(path);
    list_add_tail(&w->node->watches, &w->in_node);
    list_add_tail(&c->watches, &w->link);
    list_add_tail(&c->late, &w->late);
    c->nr_watches++;
    client_charge(c, cost);
    if (c->notify) c->notify(c);
    return 0;
}

/* Ends a watch, and drops those of its events that were not read yet. Returns 0 or a negative
 * errno. */
int store_unwatch(struct store_client *c, const char *path, const char *token) {
    struct watch *w;
    int error;

    if (store_busy()) return -EBUSY;
    error = path_parse(c, path, true);
    if (error) return error;
    w = watch_find(c, token);
    if (!w) return -ENOENT;
    watch_free(w);
    return 0;
}

/* Copies a terminated string to byte `at` of buf. Returns the number of the byte behind it. A
 * path and a token together fit into a packet, as their limits say. */
static u32 put_string(char *buf, u32 at, const char *s) {
    u32 len = (u32)strlen(s) + 1;

    memcpy(buf + at, s, len);
    return at + len;
}

/* Writes the client's next event to `buf`. Returns its length, or 0 if there is none. New watches,
 * and those whose events found no room, come first (c->late): each of them reports its own path
 * once, so that the client looks at all that is below it. */
int store_event(struct store_client *c, void *buf) {
    const char *path = store.path;
    struct event *e = NULL;
    struct watch *w;
    u32 len;

    if (!list_empty(&c->late)) {
        w = list_first(&c->late, struct watch, late);
        list_del(&w->late);
        path_of(w->node, store.path);
    } else if (!list_empty(&c->events)) {
        e = list_first(&c->events, struct event, link);
        w = e->watch;
        path = e->path;
    } else {
        return 0;
    }
    len = put_string(buf, 0, path + w->skip);
    len = put_string(buf, len, w->token);
    store_spent += COST_EVENT_READ;
    if (e) event_free(e);
    return (int)len;
}

/* Begins a transaction. Returns its number or a negative errno. A transaction sees and changes
 * shadows, its own copies of nodes. It begins with a shadow of the root. All other shadows are made
 * below it when the client looks at a node. */
int store_begin(struct store_client *c) {
    u32 size = (u32)(sizeof(struct transaction) + 2 * sizeof(struct node)) + 2;
    struct transaction *tx;

    if (store_busy()) return -EBUSY;
    if (!c->privileged && (c->nr_transactions >= c->quota.transactions || !client_room(c, size)))
        return -ENOSPC;
    tx = heap_alloc(sizeof(*tx));
    if (!tx) return -ENOMEM;
    tx->root = node_new(NULL, &(struct part){ .name = "" });
    if (!tx->root) {
        heap_free(tx);
        return -ENOMEM;
    }
    tx->root->tx = tx;
    tx->root->base = store.root;
    tx->root->exists = true;
    tx->root->payer = tx->client = c;
    list_init(&tx->shadows);
    list_add_tail(&tx->shadows, &tx->root->in_tx);
    list_add_tail(&store.root->shadows, &tx->root->shadows);
    client_charge(c, size);
    /* Takes the next number that no open transaction has. After INT32_MAX comes 1. */
    do {
        if (c->last_tx == INT32_MAX) c->last_tx = 0;
        c->last_tx++;
    } while (tx_find(c, c->last_tx));
    tx->id = c->last_tx;
    list_add_tail(&c->transactions, &tx->link);
    c->nr_transactions++;
    return (int)tx->id;
}

/* Ends a transaction, with or without its changes. Returns 0 or a negative errno. A transaction
 * that is doomed (something that it has looked at was changed by another client) ends with -EAGAIN,
 * and the client has to try again. Otherwise store_work() writes what it has changed to the real
 * nodes. */
int store_end(struct store_client *c, u32 id, bool commit) {
    struct transaction *tx = tx_find(c, id);

    if (store_busy()) return -EBUSY;
    if (!tx) return -ENOENT;
    if (commit && !tx->doomed) {
        store.committing = tx;
        store.commit_at = tx->shadows.next;
        return 0;
    }
    tx_end(tx);
    if (commit) return -EAGAIN;
    return 0;
}

/* Binds a node to functions of the hypervisor, which then read and write its value. Returns 0 or a
 * negative errno. The hypervisor itself is the client that makes the node, so no quota can refuse
 * it. */
int store_bind(const char *path, const struct store_binding *b, void *ctx,
               const struct store_perms *perms) {
    struct node *n;
    int error = store_find(&store.self, 0, path, STORE_W, false, &n);

    if (error && (!store.missing || !b)) return error;
    if (error) error = node_make(&store.self, &n, 0);
    if (error) return error;
    n->bind = b;
    n->bind_ctx = ctx;
    if (b) node_set_perms(n, perms);
    node_touched(n, NULL);
    return 0;
}

/* Tells watches that the value of a bound node has changed. It is called after the change, and does
 * not touch the node itself. */
int store_touch(const char *path) {
    struct node *n;
    int error = store_find(&store.self, 0, path, STORE_R, false, &n);

    if (!error) node_touched(n, NULL);
    return error;
}
