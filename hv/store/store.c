/* The operations. Each looks first and allocates what it needs; only then it changes anything. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "mm/frame.h"
#include "store/tree.h"

struct store_quota store_quota = { 1000, 128, 2048, 10, 5, 20, 64, 2u << 20 };

/* ---- clients ---- */

struct store_client *store_vm(u16 id) {
    list_for_each(c, &store.clients, struct store_client, link) {
        if (c->id == id && !c->privileged) return c;
    }
    return NULL;
}

int store_open(struct store_client *c, u16 id, bool privileged) {
    if (store_busy()) return -EBUSY;
    if (!privileged && store_vm(id)) return -EEXIST;
    c->id = id;
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

int store_reset(struct store_client *c) {
    if (store_busy()) return -EBUSY;
    while (!list_empty(&c->events)) event_free(list_first(&c->events, struct event, link));
    while (!list_empty(&c->transactions)) tx_end(list_first(&c->transactions, struct transaction, link));
    store.resetting = c;
    return 0;
}

bool store_close(struct store_client *c) {
    if (store_work()) return true;
    if (c->left) return list_del(&c->link), false;
    store_reset(c);
    store.leaving = c;
    c->left = true;
    if (c->privileged) return true;
    /* What they hold of it must not come back with a commit. */
    list_for_each(other, &store.clients, struct store_client, link) {
        list_for_each(tx, &other->transactions, struct transaction, link) tx->doomed = true;
    }
    store.sweep = store.root;
    store.home = path_parse(c, "x", false) ? NULL : store.root;
    for (u32 i = 0; store.home && i + 1 < store.depth; i++) store.home = node_below(store.home, i);
    return true;
}

/* ---- operations ---- */

int store_read(struct store_client *c, u32 tx, const char *path, void *buf, u32 size) {
    struct node *n;
    int error = store_find(c, tx, path, STORE_R, false, &n);

    if (error) return error;
    n = node_body(n);
    if (n->bind && n->bind->read) {
        if (size < STORE_BOUND) return -E2BIG;
        *(char *)buf = 0;
        n->bind->read(n->bind_ctx, n->name, buf);
        return (int)strlen(buf);
    }
    if (n->len > size) return -E2BIG;
    if (n->len) memcpy(buf, n->value, n->len);
    return (int)n->len;
}

/* Makes what is missing of the current path, its value will have `len` bytes. *node: its shadow, or NULL. */
static int make(struct store_client *c, struct node **node, u32 len) {
    struct node *n = *node, *at;
    u64 bytes = len;
    int error = n ? 0 : node_place(store.root, &n);

    if (error) return error;
    at = n;
    for (u32 i = 0; i < store.missing; i++, at = at->parent) bytes += node_size(at);
    if (node_bound(at))
        error = -EROFS;
    else if (!c->privileged && (c->nodes + store.missing > c->quota.nodes || !client_room(c, (i64)bytes)))
        error = -ENOSPC;
    if (error) return node_vanish(n), error;
    for (u32 i = store.depth - store.missing; i < store.depth; i++) node_appear(c, store.part[i].node);
    *node = n;
    return 0;
}

static int put(struct store_client *c, u32 tx, const char *path, const void *value, u32 len, bool keep) {
    char text[STORE_BOUND];
    struct node *n;
    void *copy = NULL;
    int error = store_find(c, tx, path, STORE_W, false, &n);

    if (error && !store.missing) return error;
    if (!error && keep) return 0;
    if (!error && node_bound(n)) {
        if (n->tx || !n->bind->write) return -EROFS;
        if (len >= STORE_BOUND) return -EINVAL;
        memcpy(text, value, len);
        text[len] = 0;
        error = n->bind->write(n->bind_ctx, n->name, text);
        if (!error) node_touched(n, NULL);
        return error;
    }
    if (!c->privileged && len > c->quota.value) return -ENOSPC;
    if (!error && !c->privileged && !client_room(n->payer, (i64)len - n->len)) return -ENOSPC;
    if (len && !(copy = heap_alloc(len))) return -ENOMEM;
    if (len) memcpy(copy, value, len);
    if (error) error = make(c, &n, len);
    if (error) return heap_free(copy), error;
    if (n->tx && !n->dirty) n->perms = n->base->perms, n->dirty = true;
    node_set_value(n, copy, len);
    n->news = true;
    if (!n->tx) node_touched(n, NULL);
    return 0;
}

int store_write(struct store_client *c, u32 tx, const char *path, const void *value, u32 len) {
    return put(c, tx, path, value, len, false);
}

int store_mkdir(struct store_client *c, u32 tx, const char *path) { return put(c, tx, path, NULL, 0, true); }

int store_rm(struct store_client *c, u32 tx, const char *path) {
    struct node *n;
    u64 mark;
    int error = store_find(c, tx, path, STORE_W, false, &n);

    if (error) return store.missing == 1 ? 0 : error;
    if (!store.depth) return -EINVAL;
    if (node_bound(n)) return -EROFS;
    if (!n->tx) {
        store.removing = n;
        return 0;
    }
    n->parent->generation = mark = ++store.generation;
    list_for_each(s, &n->tx->shadows, struct node, in_tx) { /* parents first: mark is of this node or below */
        if (s != n && (!s->parent || s->parent->mark != mark)) continue;
        list_del(&s->sibling);
        s->mark = s->generation = mark;
        s->cut = s->dirty = true;
        s->exists = s->news = false;
    }
    store_spent += 30 * n->tx->nr;
    return 0;
}

#define LIST_MOST 36000u /* instructions, roughly, after which a list ends */

int store_list(struct store_client *c, u32 tx, const char *path, void *buf, u32 size, u32 *from,
               u64 *generation) {
    u32 start = from ? *from : 0, len = 0, offset, spent, room;
    struct store_cursor at = c->cursor;
    u64 now, removed = ~0ull;
    struct list *l, *head;
    struct node *n, *dir, *k;
    int error = store_find(c, tx, path, STORE_R, false, &n);

    if (error) return error;
    if (n->tx) n->looked |= LIST;
    now = n->generation + (n->tx ? n->base->generation : 0);
    if (at.node != n->id || at.generation != now || at.offset > start || !at.child)
        at = (struct store_cursor){ .node = n->id, .generation = now };
    spent = store_spent;
    offset = at.offset;
    if (n->tx) { /* bases that its list is not to show: it has removed them */
        removed = ++store.generation;
        spent += 10 * n->tx->nr;
        list_for_each(s, &n->tx->shadows, struct node, in_tx) {
            if (s->parent == n && s->cut) s->base->mark = removed;
        }
    }
    dir = at.child ? at.child->parent : n->tx && !n->cut ? n->base : n;
    head = &dir->children;
    for (l = at.child ? &at.child->sibling : head->next;; l = l->next) {
        k = l == head ? NULL : list_entry(l, struct node, sibling);
        if (!k && dir == n) break;
        if (!k) { /* after the base's children those that the transaction made */
            dir = n;
            l = head = &n->children;
            continue;
        }
        if (k->mark == removed) continue;
        room = k->name_len + 1u;
        if (spent > LIST_MOST || (offset >= start && len + room > size)) break;
        if (offset >= start) {
            if (room <= NAME_ROOM && size - len >= NAME_ROOM)
                __builtin_memcpy((char *)buf + len, k->name, NAME_ROOM); /* one word */
            else
                memcpy((char *)buf + len, k->name, room);
            len += room;
            spent += 10;
        }
        spent += 15;
        offset += room;
    }
    store_spent = spent;
    at.child = k;
    at.offset = offset;
    c->cursor = at;
    if (!from) return k ? -E2BIG : (int)len;
    if (k && !len && spent > LIST_MOST) return -EBUSY;
    *generation = now;
    *from = k ? offset : 0;
    return (int)len;
}

int store_get_perms(struct store_client *c, u32 tx, const char *path, struct store_perms *perms) {
    struct node *n;
    int error = store_find(c, tx, path, STORE_R, true, &n);

    if (!error) *perms = node_body(n)->perms;
    return error;
}

int store_set_perms(struct store_client *c, u32 tx, const char *path, const struct store_perms *perms) {
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

static struct watch *find_watch(struct store_client *c, const char *token) {
    struct node *n = store.path[0] == '@' ? store.special : store.root;
    u64 hash = part_of(token, (u32)strlen(token)).hash;

    for (u32 i = 0; n && i < store.depth; i++) n = node_child(n, &store.part[i]);
    list_for_each(w, &c->watches, struct watch, link) {
        if (w->node == n && w->hash == hash && !strcmp(w->token, token)) return w;
    }
    return NULL;
}

int store_watch(struct store_client *c, const char *path, const char *token) {
    struct part t = part_of(token, (u32)strlen(token));
    u32 size = (u32)sizeof(struct watch) + t.len + 1, len, cost;
    struct watch *w;
    int error = store_busy() ? -EBUSY : path_parse(c, path, true);

    if (error) return error;
    if (t.len > STORE_TOKEN_MAX) return -E2BIG;
    if (find_watch(c, token)) return -EEXIST;
    len = (u32)strlen(store.path);
    cost = size + len + store.depth * (u32)sizeof(struct node);
    if (!c->privileged && (c->nr_watches >= c->quota.watches || !client_room(c, cost))) return -ENOSPC;
    w = heap_alloc(size);
    if (!w) return -ENOMEM;
    error = node_place(store.path[0] == '@' ? store.special : store.root, &w->node);
    if (error) return heap_free(w), error;
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

int store_unwatch(struct store_client *c, const char *path, const char *token) {
    int error = store_busy() ? -EBUSY : path_parse(c, path, true);
    struct watch *w;

    if (error) return error;
    w = find_watch(c, token);
    return w ? watch_free(w), 0 : -ENOENT;
}

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
    len = (u32)hv_snprintf(buf, XS_PAYLOAD_MAX, "%s%c%s", path + w->skip, 0, w->token) + 1;
    store_spent += 500;
    if (e) event_free(e);
    return (int)len;
}

int store_begin(struct store_client *c) {
    u32 size = (u32)(sizeof(struct transaction) + 2 * sizeof(struct node)) + 2;
    struct transaction *tx;

    if (store_busy()) return -EBUSY;
    if (!c->privileged && (c->nr_transactions >= c->quota.transactions || !client_room(c, size)))
        return -ENOSPC;
    tx = heap_alloc(sizeof(*tx));
    if (!tx) return -ENOMEM;
    tx->root = node_new(NULL, &(struct part){ .name = "" });
    if (!tx->root) return heap_free(tx), -ENOMEM;
    tx->root->tx = tx;
    tx->root->base = store.root;
    tx->root->exists = true;
    tx->root->payer = tx->client = c;
    list_init(&tx->shadows);
    list_add_tail(&tx->shadows, &tx->root->in_tx);
    list_add_tail(&store.root->shadows, &tx->root->shadows);
    client_charge(c, size);
    do {
        c->last_tx = c->last_tx % INT32_MAX + 1;
    } while (tx_find(c, c->last_tx));
    tx->id = c->last_tx;
    list_add_tail(&c->transactions, &tx->link);
    c->nr_transactions++;
    return (int)tx->id;
}

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
    return commit ? -EAGAIN : 0;
}

int store_bind(const char *path, const struct store_binding *b, void *ctx, const struct store_perms *perms) {
    struct node *n;
    int error = store_find(&store.self, 0, path, STORE_W, false, &n);

    if (error && (!store.missing || !b)) return error;
    if (error) error = make(&store.self, &n, 0);
    if (error) return error;
    n->bind = b;
    n->bind_ctx = ctx;
    if (b) node_set_perms(n, perms);
    node_touched(n, NULL);
    return 0;
}

int store_touch(const char *path) {
    struct node *n;
    int error = store_find(&store.self, 0, path, STORE_R, false, &n);

    if (!error) node_touched(n, NULL);
    return error;
}
