/* The store against a plain model: random operations of an administrator and three VMs on a
 * small tree, in transactions and out of them, with watches, quotas, VMs that go and come again,
 * and allocations that fail. After each operation its result and every event are what the model
 * says. TAKT_SEED=n begins elsewhere; TAKT_STORE_OPS=1000000 is the long form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "store_rig.h"

/* the root, and three children of each to the fourth level: of i 3i + 1 ... 3i + 3 */
#define NODES   121
#define WATCHES 12 /* a client */
#define LOG     24 /* changes in a transaction */
#define TXS     2  /* a client */
#define ROUND   20000

enum op { READ, LIST, PERMS, WRITE, MKDIR, RM, SET, OPS };

struct mnode {
    bool exists;
    u32 len;
    char value[4];
    struct store_perms perms;
};

struct change {
    enum op op;
    u32 at, len;
    char value[4];
    struct store_perms perms;
};

struct mtx {
    u32 id; /* 0: none */
    u32 nr;
    /* There was no memory while the transaction looked at a node, so it may fail or succeed. */
    bool any;
    u64 seen[NODES], seen_body[NODES], seen_list[NODES]; /* since when; 0: not */
    struct change log[LOG];
};

static struct mnode db[NODES];
/* When a node was changed last: when it came or went (`life`), when its value or rights changed
 * (`body`), and when its children changed (`list`). */
static u64 seq, life[NODES], body[NODES], list[NODES];
static struct mtx txs[RIG_VMS][TXS];
static struct {
    bool on;
    u32 at;
} watches[RIG_VMS][WATCHES];
static char paths[NODES][16];

/* Events that an operation must bring, by client, watch and node. */
static bool expected[RIG_VMS][WATCHES][NODES];

static u64 rng, stats[8];

static u32 rnd(u32 n) {
    rng = rng * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)(rng >> 33) % n;
}

static u32 parent_of(u32 i) { return (i - 1) / 3; }

static bool at_or_below(u32 i, u32 top) {
    while (i > top) i = parent_of(i);
    return i == top;
}

static u32 rights(u32 who, const struct store_perms *p) {
    if (!who || p->of[0].id == who) return STORE_R | STORE_W | STORE_OWN;
    for (u32 i = 1; i < p->nr; i++)
        if (p->of[i].id == who) return p->of[i].rights;
    return p->of[0].rights;
}

static void expect(u32 at, bool exact, const struct store_perms *a, const struct store_perms *b) {
    for (u32 c = 0; c < RIG_VMS; c++)
        for (u32 w = 0; w < WATCHES; w++)
            if (watches[c][w].on &&
                (exact ? watches[c][w].at == at : at_or_below(at, watches[c][w].at)) &&
                ((rights(c, a) | rights(c, b)) & STORE_R))
                expected[c][w][at] = true;
}

/* Returns the nearest node that exists, at `at` or above it. */
static u32 nearest(const struct mnode *d, u32 at) {
    while (!d[at].exists) at = parent_of(at);
    return at;
}

/* ---- changes, to the tree itself (`base`) or to a transaction's view of it ---- */

static void make(struct mnode *d, u32 who, u32 at, bool base) {
    if (d[at].exists) return;
    make(d, who, parent_of(at), base);
    d[at] = (struct mnode){ .exists = true, .perms = d[parent_of(at)].perms };
    if (who) d[at].perms.of[0].id = (u16)who;
    if (base) life[at] = list[parent_of(at)] = ++seq;
}

/* Removes a node with all below it. If `tell`, watches hear of it as of a removal of `top`. */
static void drop(struct mnode *d, u32 top, bool base, bool tell) {
    for (u32 i = NODES; i-- > top;) {
        if (!d[i].exists || !at_or_below(i, top)) continue;
        if (tell) expect(i, i != top, &d[i].perms, &d[i].perms);
        d[i].exists = false;
        if (base) life[i] = list[parent_of(i)] = ++seq;
    }
}

static void apply(struct mnode *d, u32 who, const struct change *c, bool base) {
    struct store_perms old;

    if (c->op == RM) {
        if (d[c->at].exists) drop(d, c->at, base, base);
        return;
    }
    if (c->op == MKDIR && d[c->at].exists) return;
    make(d, who, c->at, base);
    old = d[c->at].perms;
    if (c->op == WRITE) {
        d[c->at].len = c->len;
        memcpy(d[c->at].value, c->value, 4);
    } else if (c->op == SET) {
        d[c->at].perms = c->perms;
    }
    if (base) {
        body[c->at] = ++seq;
        expect(c->at, false, &old, &d[c->at].perms);
    }
}

/* ---- transactions ---- */

static bool doomed(const struct mtx *t) {
    for (u32 i = 0; i < NODES; i++)
        if ((t->seen[i] && life[i] > t->seen[i]) ||
            (t->seen_body[i] && body[i] > t->seen_body[i]) ||
            (t->seen_list[i] && list[i] > t->seen_list[i]))
            return true;
    return false;
}

static void see(u64 *when) {
    if (!*when) *when = seq;
}

/* As the transaction sees the tree. */
static const struct mnode *view(u32 who, const struct mtx *t) {
    static struct mnode d[NODES];

    memcpy(d, db, sizeof(d));
    for (u32 i = 0; i < t->nr; i++) apply(d, who, &t->log[i], false);
    return d;
}

/* All changes at once. Watches hear of what is another in the end, and of what was removed. */
static void commit(u32 who, struct mtx *t) {
    static struct mnode old[NODES];
    bool removed[NODES] = { false }, news[NODES] = { false };

    memcpy(old, db, sizeof(old));
    for (u32 i = 0; i < t->nr; i++) {
        const struct change *c = &t->log[i];

        if (c->op == RM) {
            for (u32 n = c->at; n < NODES; n++)
                if (at_or_below(n, c->at)) removed[n] = removed[n] && n == c->at, news[n] = false;
            removed[c->at] = old[c->at].exists;
            for (u32 n = c->at; n; n = parent_of(n))
                if (n != c->at && removed[n]) removed[c->at] = false;
        } else {
            news[c->at] = true;
        }
        apply(db, who, c, false);
    }
    for (u32 n = 0; n < NODES; n++) {
        bool gone = false;

        for (u32 a = n; a; a = parent_of(a)) gone |= removed[a];
        if (gone && old[n].exists) {
            expect(n, !removed[n], &old[n].perms, &old[n].perms);
            life[n] = list[parent_of(n)] = ++seq;
        }
        if (db[n].exists && (!old[n].exists || gone)) life[n] = list[parent_of(n)] = ++seq;
        if (db[n].exists && news[n]) {
            expect(n, false, &db[n].perms, old[n].exists && !gone ? &old[n].perms : &db[n].perms);
            body[n] = ++seq;
        }
    }
}

/* ---- events ---- */

/* Checks that the events that came are those that were expected. After an allocation has failed, an
 * event may name the watch's path instead. */
static void check_events(bool failed) {
    static char buf[XS_PAYLOAD_MAX];
    bool late[RIG_VMS][WATCHES] = { { false } };
    u32 n, w, at;

    for (u32 c = 0; c < RIG_VMS; c++) {
        while (store_event(&rig_client[c], buf)) {
            w = (u32)atoi(buf + strlen(buf) + 1);
            for (at = 0; at < NODES && strcmp(paths[at], buf); at++)
                ;
            assert_in_range(at, 0, NODES - 1);
            assert_true(watches[c][w].on);
            stats[0]++;
            late[c][w] |= failed && at == watches[c][w].at;
            if (!expected[c][w][at] && !late[c][w])
                fail_msg("client %u hears of %s by its watch of %s", c, buf,
                         paths[watches[c][w].at]);
            expected[c][w][at] = false;
        }
        assert_int_equal(rig_client[c].nr_events, 0);
    }
    for (n = 0; n < RIG_VMS * WATCHES * NODES; n++)
        if ((&expected[0][0][0])[n] && !late[n / NODES / WATCHES][n / NODES % WATCHES])
            fail_msg("client %u was not told of %s", n / NODES / WATCHES, paths[n % NODES]);
    memset(expected, 0, sizeof(expected));
}

/* ---- one operation ---- */

static struct store_perms random_perms(u32 owner) {
    struct store_perms p = { .nr = 1 + rnd(4) };

    for (u32 i = 0; i < p.nr; i++) {
        p.of[i].id = (u16)(i ? rnd(RIG_VMS) : owner);
        p.of[i].rights = (u16)(rnd(3) ? 3 : rnd(4));
    }
    return p;
}

static int call(struct store_client *c, u32 tx, const struct change *o, char *buf,
                struct store_perms *p) {
    const char *path = paths[o->at];

    switch (o->op) {
    case READ: return store_read(c, tx, path, buf, 64);
    case LIST: return store_list(c, tx, path, buf, 64, NULL, NULL);
    case PERMS: return store_get_perms(c, tx, path, p);
    case WRITE: return store_write(c, tx, path, o->value, o->len);
    case MKDIR: return store_mkdir(c, tx, path);
    case RM: return store_rm(c, tx, path);
    default: return store_set_perms(c, tx, path, &o->perms);
    }
}

/* Returns what the operation `o` must return, by the tree `d` that client `who` sees. */
static int predict(const struct mnode *d, u32 who, const struct change *o) {
    static const u32 need[OPS] = {
        STORE_R, STORE_R, STORE_R, STORE_W, STORE_W, STORE_W, STORE_OWN
    };
    struct store_client *c = &rig_client[who];
    u32 near = nearest(d, o->at), missing = 0;
    int len = 0;

    for (u32 i = o->at; i != near; i = parent_of(i)) missing++;
    if (!(rights(who, &d[near].perms) & need[o->op])) return -EACCES;
    if (missing == 1 && o->op == RM) return 0;
    if (missing && o->op != WRITE && o->op != MKDIR) return -ENOENT;
    switch (o->op) {
    case READ: return (int)d[o->at].len;
    case LIST:
        for (u32 i = 3 * o->at + 1; i <= 3 * o->at + 3 && i < NODES; i++) len += 2 * d[i].exists;
        return len;
    case RM:
        if (o->at == 0) return -EINVAL;
        return 0;
    case SET:
        if (who && o->perms.of[0].id != d[o->at].perms.of[0].id) return -EPERM;
        return 0;
    default:
        if (who && missing && c->nodes + missing > c->quota.nodes) return -ENOSPC;
        return 0;
    }
}

static void check_answer(const struct mnode *d, const struct change *o, const char *buf,
                         const struct store_perms *p) {
    const struct mnode *n = &d[o->at];

    if (o->op == READ) {
        assert_memory_equal(buf, n->value, n->len);
    } else if (o->op == PERMS) {
        assert_int_equal(p->nr, n->perms.nr);
        assert_memory_equal(p->of, n->perms.of, p->nr * sizeof(p->of[0]));
    } else if (o->op == LIST) {
        for (u32 i = 3 * o->at + 1; i <= 3 * o->at + 3 && i < NODES; i++) {
            u32 there = 0;

            for (u32 k = 0; buf[k]; k += 2)
                there += buf[k] == paths[i][strlen(paths[i]) - 1] && !buf[k + 1];
            assert_int_equal(there, d[i].exists);
        }
    }
}

static void operate(u32 who, bool failing) {
    struct store_client *c = &rig_client[who];
    struct mtx *t = rnd(2) ? &txs[who][rnd(TXS)] : NULL;
    struct change o = { .op = (enum op)rnd(OPS), .at = rnd(rnd(3) ? 13 : NODES), .len = rnd(4) };
    const struct mnode *d = db;
    struct store_perms p;
    char buf[65] = { 0 };
    u32 owner;
    int want, got;
    bool lost;

    if (t && (!t->id || t->nr == LOG)) t = NULL;
    if (o.op == RM && rnd(4)) o.op = READ;
    if (o.op == SET && !o.at) o.op = LIST; /* the root stays open */
    if (t) d = view(who, t);
    lost = t && doomed(t);
    memcpy(o.value, &rng, 4);
    owner = 0;
    if (!who && !rnd(3))
        owner = rnd(RIG_VMS);
    else if (d[o.at].exists)
        owner = d[o.at].perms.of[0].id;
    o.perms = random_perms(owner);
    want = predict(d, who, &o);
    got = call(c, t ? t->id : 0, &o, buf, &p);
    if (failing && model_fail_at && model_allocations >= model_fail_at) stats[1]++;
    if (t && got == -ENOMEM) {
        assert_true(failing);
        t->any = true;
        for (u32 i = o.at;; i = parent_of(i)) {
            see(&t->seen[i]);
            see(&t->seen_body[i]);
            if (!i) return;
        }
    }
    if (got == -ENOMEM && failing) return;
    if (lost) return;
    if (got != want)
        fail_msg("client %u, operation %u, %s%s: %d and not %d", who, o.op, paths[o.at],
                 t ? ", in a transaction" : "", got, want);
    if (got >= 0) check_answer(d, &o, buf, &p);
    if (t && got != -EACCES) {
        u32 near = nearest(d, o.at);

        for (u32 i = o.at;; i = parent_of(i)) {
            see(&t->seen[i]);
            if (i >= near && (i == o.at || !d[i].exists || i == near)) see(&t->seen_body[i]);
            if (!i) break;
        }
        if (o.op == LIST && got >= 0) see(&t->seen_list[o.at]);
    }
    if (o.op < WRITE || got < 0 || (o.op == MKDIR && d[o.at].exists)) return;
    stats[t ? 2 : 3]++;
    if (t)
        t->log[t->nr++] = o;
    else
        apply(db, who, &o, true);
}

static void do_transaction(u32 who, bool failing) {
    struct store_client *c = &rig_client[who];
    struct mtx *t = &txs[who][rnd(TXS)];
    bool yes = rnd(5) > 0, lost;
    int got;

    if (!t->id) {
        got = store_begin(c);
        if (got == -ENOMEM && failing) return;
        assert_true(got > 0);
        memset(t, 0, sizeof(*t));
        t->id = (u32)got;
        if (!seq) seq = 1;
        t->seen[0] = seq;
        return;
    }
    lost = doomed(t);
    if (t->any && lost) yes = false; /* or is it not? */
    got = store_end(c, t->id, yes);
    if (!yes) {
        assert_int_equal(got, 0);
        stats[6]++;
    } else if (lost) {
        assert_int_equal(got, -EAGAIN);
        stats[4]++;
    } else {
        assert_int_equal(got, 0);
        stats[5]++;
        commit(who, t);
    }
    t->id = 0;
}

static void do_watch(u32 who, bool failing) {
    struct store_client *c = &rig_client[who];
    u32 w = rnd(WATCHES), at = rnd(rnd(2) ? 13 : NODES);
    char token[8];
    int got;

    snprintf(token, sizeof(token), "%u", w);
    if (watches[who][w].on) {
        assert_int_equal(store_watch(c, paths[watches[who][w].at], token), -EEXIST);
        assert_int_equal(store_unwatch(c, paths[watches[who][w].at], token), 0);
        watches[who][w].on = false;
        return;
    }
    assert_int_equal(store_unwatch(c, paths[at], token), -ENOENT);
    got = store_watch(c, paths[at], token);
    if (got == -ENOMEM && failing) return;
    assert_int_equal(got, 0);
    watches[who][w].on = expected[who][w][at] = true;
    watches[who][w].at = at;
}

static void drain(void) {
    static char buf[XS_PAYLOAD_MAX];

    for (u32 c = 0; c < RIG_VMS; c++)
        while (store_event(&rig_client[c], buf))
            ;
    memset(expected, 0, sizeof(expected));
}

/* The VM ends, and another one comes with the same id. */
static void do_restart(u32 who) {
    u32 quota = rig_client[who].quota.nodes, kept;

    rig_close(who);
    assert_int_equal(rig_client[who].memory, 0);
    assert_int_equal(rig_client[who].nodes, 0);
    rig_open(who);
    rig_client[who].quota.nodes = quota;
    memset(watches[who], 0, sizeof(watches[who]));
    memset(txs[who], 0, sizeof(txs[who]));
    for (u32 i = 1; i < NODES; i++)
        if (db[i].exists && db[i].perms.of[0].id == who) drop(db, i, true, false);
    for (u32 i = 0; i < NODES; i++) {
        kept = 1;
        for (u32 k = 1; k < db[i].perms.nr; k++)
            if (db[i].perms.of[k].id != who) db[i].perms.of[kept++] = db[i].perms.of[k];
        if (kept != db[i].perms.nr) body[i] = ++seq;
        db[i].perms.nr = kept;
    }
    life[0] = ++seq; /* and all transactions are lost */
    stats[7]++;
    drain();
}

/* Each client owns as many nodes as the store counts for it. While it has a transaction open, the
 * store may count more. */
static void check_counts(void) {
    for (u32 c = 1; c < RIG_VMS; c++) {
        u32 n = 0, open = 0;

        for (u32 i = 0; i < NODES; i++) n += db[i].exists && db[i].perms.of[0].id == c;
        for (u32 i = 0; i < TXS; i++) open += txs[c][i].id;
        if (!open)
            assert_int_equal(rig_client[c].nodes, n);
        else
            assert_true(rig_client[c].nodes >= n);
    }
}

static void run_round(u64 seed, u32 ops) {
    unsigned objects = model_objects;
    struct store_perms open = { .nr = 1, .of = { { 0, 3 } } },
                       closed = { .nr = 1, .of = { { 0, 0 } } };

    rng = seed * 0x9e3779b97f4a7c15ull + 1;
    rig_start();
    rig_client[3].quota.nodes = 12;
    memset(db, 0, sizeof(db));
    memset(txs, 0, sizeof(txs));
    memset(watches, 0, sizeof(watches));
    memset(life, 0, sizeof(life));
    memset(body, 0, sizeof(body));
    memset(list, 0, sizeof(list));
    seq = 1;
    assert_int_equal(store_set_perms(&rig_client[0], 0, "/", &open), 0);
    rig_settle();
    drain();
    db[0] = (struct mnode){ .exists = true, .perms = open };
    for (u32 i = 0; i < ops; i++) {
        u32 who = rnd(RIG_VMS), what = rnd(100);
        bool failing = rnd(5) == 0, failed;

        if (failing) model_fail_at = model_allocations + 1 + rnd(rnd(2) ? 2 : 8);
        if (what < 82)
            operate(who, failing);
        else if (what < 91)
            do_transaction(who, failing);
        else if (what < 99 || rnd(10))
            do_watch(who, failing);
        else if (who)
            model_fail_at = 0, do_restart(who);
        rig_settle();
        failed = model_fail_at && model_allocations >= model_fail_at;
        model_fail_at = 0;
        check_events(failed);
        check_counts();
    }
    assert_int_equal(store_set_perms(&rig_client[0], 0, "/", &closed), 0);
    rig_settle();
    assert_int_equal(store_write(&rig_client[0], 0, "/", "", 0), 0);
    rig_end();
    for (u32 i = 0; i < RIG_VMS; i++)
        assert_int_equal(rig_client[i].memory | rig_client[i].nodes, 0);
    assert_int_equal(model_objects, objects);
}

static void test_model(void **state) {
    const char *seed = getenv("TAKT_SEED"), *n = getenv("TAKT_STORE_OPS");
    u64 first = 1;
    u32 ops = 40000;

    if (seed) first = strtoull(seed, NULL, 0);
    if (n) ops = (u32)strtoul(n, NULL, 0);
    for (u32 i = 1; i < NODES; i++)
        snprintf(paths[i], sizeof(paths[i]), "%s/%c", parent_of(i) ? paths[parent_of(i)] : "",
                 'a' + (int)((i - 1) % 3));
    strcpy(paths[0], "/");
    rig_start();
    rig_end();
    for (u32 done = 0; done < ops; done += ROUND)
        run_round(first + done / ROUND, MIN(ROUND, ops - done));
    print_message(
        "%u operations, seeds from %llu: %llu events, %llu allocations failed, %llu changes in "
        "transactions, "
        "%llu outside; %llu transactions lost, %llu committed, %llu given up; %llu VMs replaced\n",
        ops, (unsigned long long)first, (unsigned long long)stats[0], (unsigned long long)stats[1],
        (unsigned long long)stats[2], (unsigned long long)stats[3], (unsigned long long)stats[4],
        (unsigned long long)stats[5], (unsigned long long)stats[6], (unsigned long long)stats[7]);
    if (ops < 20000) return;
    /* If a run never reached one of these cases, it would show nothing about it. */
    for (u32 i = 0; i < ARRAY_SIZE(stats); i++) assert_true(stats[i] > ops / 10000);
}

int main(void) {
    static const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
