/* Work of the store that may take long, done in small steps: to tell watches of a change, to remove
 * a tree of nodes, to carry out a transaction at its end, to free what is left of one, and to take
 * a client's watches and rights away. A watch is a client's wish to be told when a node, or one
 * below it, changes. A shadow is a transaction's own view of a node. One thing is in progress at a
 * time, and no other operation is carried out meanwhile. So no client sees half of it. */
#include <takt/errno.h>
#include "lib/log.h"
#include "common/string.h"
#include "mm/frame.h"
#include "store/tree.h"

u32 store_spent;

/* Frees an event, and gives the client back what it has paid for the event. */
void event_free(struct event *e) {
    struct store_client *c = e->watch->client;

    list_del(&e->link);
    c->nr_events--;
    store_spent += COST_EVENT_FREE;
    client_charge(c, -(i64)(e->cost));
    heap_free(e);
}

/* Frees a watch and its events. node_vanish() comes last, because the watch may have been all that
 * kept its node in the table. */
void watch_free(struct watch *w) {
    struct node *n = w->node;

    list_for_each_safe(e, &w->client->events, struct event, link) {
        if (e->watch == w) event_free(e);
    }
    list_del(&w->in_node);
    list_del(&w->link);
    list_del(&w->late);
    w->client->nr_watches--;
    client_charge(w->client, -(i64)(w->cost));
    heap_free(w);
    node_vanish(n);
}

/* Queues an event for the watch's client: `n` has changed. If there is no room for it, an event
 * with the watch's own path takes its place. There is always room for that one; the client then
 * has to look at all that is below the path. */
static void queue_event(struct watch *w, const struct node *n) {
    struct store_client *c = w->client;
    u32 len = path_of(n, store.path), cost = (u32)sizeof(struct event) + len + 1;
    struct event *e = NULL;

    store_spent += COST_EVENT_QUEUE + len;
    list_for_each(old, &c->events, struct event, link) {
        if (old->watch == w && old->node == n->id) return;
    }
    if (n != w->node && c->nr_events < c->quota.events && client_room(c, cost))
        e = heap_alloc(cost);
    if (e) {
        *e = (struct event){ .watch = w, .node = n->id, .cost = cost };
        memcpy(e->path, store.path, len + 1);
        list_add_tail(&c->events, &e->link);
        c->nr_events++;
        client_charge(c, cost);
    } else if (list_empty(&w->late)) {
        list_add_tail(&c->late, &w->late);
    }
    if (c->notify) c->notify(c);
}

/* Does one step of telling watches of a change: queues the event of one watch, or goes on to the
 * watches of the node above. After the root the telling is over. A client hears of the change only
 * if it may or might read the node. */
static void tell_one(void) {
    struct node *n = store.telling.node;
    struct watch *w;

    if (store.telling.watch == &store.telling.at->watches) {
        store.telling.at = store.telling.at->parent;
        if (store.telling.at && !store.telling.exact) {
            store.telling.watch = store.telling.at->watches.next;
        } else {
            store.telling.node = NULL;
            node_vanish(n);
        }
        return;
    }
    w = list_entry(store.telling.watch, struct watch, in_node);
    store.telling.watch = store.telling.watch->next;
    if ((store_rights(w->client, &n->perms) | store_rights(w->client, &store.telling.old)) &
        STORE_R)
        queue_event(w, n);
}

/* Removes one node that has no children, at or below the node that is to be removed. That node
 * itself is the last one. */
static void remove_one(void) {
    struct node *n = store.removing;

    store_spent += COST_REMOVE;
    while (!list_empty(&n->children)) n = list_first(&n->children, struct node, sibling);
    if (n == store.removing) store.removing = NULL;
    node_disappear(n, store.removing);
}

/* Ends a transaction for which nothing is left to be done; store_work() frees it. */
void tx_end(struct transaction *tx) {
    list_del(&tx->link);
    list_add_tail(&store.ended, &tx->link);
    tx->client->nr_transactions--;
}

/* Does one step of carrying out a transaction: writes one shadow, the transaction's own copy of a
 * node, to the real node. If the transaction has removed that node, and maybe made it anew, the
 * real one is removed first. After the last shadow the transaction has ended. */
static void commit_one(void) {
    struct transaction *tx = store.committing;
    struct node *s = list_entry(store.commit_at, struct node, in_tx), *n;
    struct store_perms old;

    store_spent += COST_COMMIT;
    if (store.commit_at == &tx->shadows) {
        store.committing = NULL;
        tx_end(tx);
        return;
    }
    n = s->base;
    old = n->perms;
    if (s->cut && n->exists) {
        store.removing = n; /* once that is removed, this shadow is tried again */
        return;
    }
    store.commit_at = store.commit_at->next;
    if (!s->dirty || !s->exists) return;
    if (!n->exists) {
        node_appear(tx->client, n);
        old = s->perms;
    }
    node_set_perms(n, &s->perms);
    client_charge(s->payer, -(i64)(s->len)); /* the value moves, and n's owner pays for it now */
    node_set_value(n, s->value, s->len);
    s->value = NULL;
    s->len = 0;
    if (s->news) node_touched(n, &old);
}

/* Frees a part of a transaction that has ended, so that each step is short. The parts are the
 * transaction's shadows, which are its own copies of nodes, and last the transaction itself. A
 * shadow is freed after those of its children, so the last one in the list comes first. Its client
 * gets back what node_shadow() has charged: the size of the copy, and of a node in the table that
 * stands for the real one, even if no real one exists. */
static void free_one(void) {
    struct transaction *tx = list_first(&store.ended, struct transaction, link);
    struct node *s = list_entry(tx->shadows.prev, struct node, in_tx);

    store_spent += COST_TX_FREE;
    if (list_empty(&tx->shadows)) {
        list_del(&tx->link);
        client_charge(tx->client, -(i64)(sizeof(*tx)));
        heap_free(tx);
        return;
    }
    if (s->parent) node_unhash(s); /* the shadow of the root has no parent, and is in no table */
    list_del(&s->in_tx);
    list_del(&s->shadows);
    list_del(&s->sibling);
    if (s->counted) tx->client->nodes--; /* it was made in this transaction */
    node_set_value(s, NULL, 0);
    client_charge(tx->client, -(i64)(2 * node_size(s)));
    node_vanish(s->base); /* if it only stood for a node that does not exist */
    heap_free(s);
}

/* Frees one watch of the client that is being reset. After the last watch the reset is over. */
static void reset_one(void) {
    struct store_client *c = store.resetting;

    store_spent += COST_WATCH_FREE;
    if (!list_empty(&c->watches))
        watch_free(list_first(&c->watches, struct watch, link));
    else
        store.resetting = NULL;
}

/* Returns the node that follows `n` in the tree; with `below_too` that may be its first child. */
static struct node *next_in_tree(struct node *n, bool below_too) {
    if (below_too && !list_empty(&n->children))
        return list_first(&n->children, struct node, sibling);
    for (; n->parent; n = n->parent)
        if (n->sibling.next != &n->parent->children)
            return list_first(&n->sibling, struct node, sibling);
    if (n == store.root) return store.special;
    return NULL;
}

/* Takes from one node what a VM that leaves has there: the node, or its rights. The VM's id may
 * be used again, and the next VM must not inherit anything. */
static void leave_one(void) {
    struct store_client *c = store.leaving;
    struct node *n = store.sweep;
    struct store_perms left;
    bool owned;

    if (!n) {
        store.leaving = NULL;
        if (!c->privileged) node_tell(store.release, false, NULL);
        return;
    }
    owned = n->perms.of[0].id == c->id;
    if ((owned || n == store.home) && n->parent && n->parent != store.special) {
        store.sweep = next_in_tree(n, false);
        store.removing = n;
        return;
    }
    store.sweep = next_in_tree(n, true);
    left = n->perms;
    left.nr = 1;
    if (owned) left.of[0].id = 0;
    for (u32 i = 1; i < n->perms.nr; i++)
        if (n->perms.of[i].id != c->id) left.of[left.nr++] = n->perms.of[i];
    if (left.nr == n->perms.nr && !owned) return;
    node_set_perms(n, &left);
    node_touched(n, NULL);
}

/* Does a part of what is in progress. Returns true if there is more to do. The order matters: the
 * watches are told of one change before the next change is made. */
bool store_work(void) {
    for (store_spent = 0; store_spent < LIMIT_WORK; store_spent += COST_WORK_STEP) {
        if (store.telling.node)
            tell_one();
        else if (store.removing)
            remove_one();
        else if (store.committing)
            commit_one();
        else if (!list_empty(&store.ended))
            free_one();
        else if (store.resetting)
            reset_one();
        else if (store.leaving)
            leave_one();
        else
            return false;
    }
    return store_busy();
}
