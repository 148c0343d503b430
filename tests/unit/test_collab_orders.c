/* Every order in which the messages of IOrchestra's manager and of two guests can cross: a small
 * model that steps one of them at a time, from every state that can be reached, with the decisions
 * of drivers/collab/flush.h and congest.h themselves.
 *
 * A key is a variable. A watch is a bit: it fires whenever the key is written, and
 * several firings before it is taken are one, as in the store. A guest's step writes one key at
 * most; the manager reads all keys of a disk in one.
 *
 * The manager can end at any time, and with it the driver domain that serves the disks: the keys
 * that it made are gone then, their watches fire, and no page can be written. Another one may come
 * at any later time, or never. It has no rights to keys that were made before. So a guest that
 * hears of either removes its keys, and makes them anew if there is a manager.
 *
 * A state is at rest when no step of guests or manager changes it, so that only the environment
 * (writes, the device, the end of the manager) or time can. There, with the device idle and the
 * manager alive, nothing may be left to flush, no flush_now may stand, no guest may be congested.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <takt/seed.h>
#include "drivers/collab/congest.h"
#include "drivers/collab/flush.h"

#define VMS   2
#define STATE 512 /* bytes, at most */

/* ---- the search: every state that can be reached, once ---- */

struct search {
    u8 *state;          /* of nr states, STATE bytes each */
    u32 *slot, nr, max; /* slot: by hash, 1 + index */
};

static bool search_add(struct search *s, const void *state, size_t size) {
    u64 hash = 0;
    u32 at;

    assert_true(size <= STATE);
    for (size_t i = 0; i < size; i++) hash = seed_mix(hash + ((const u8 *)state)[i] + 1);
    for (at = (u32)hash & (2 * s->max - 1); s->slot[at]; at = (at + 1) & (2 * s->max - 1))
        if (!memcmp(s->state + (size_t)(s->slot[at] - 1) * size, state, size)) return false;
    assert_true(s->nr < s->max);
    memcpy(s->state + (size_t)s->nr * size, state, size);
    s->slot[at] = ++s->nr;
    return true;
}

/* step(state, n) takes step n, false: it cannot be taken; at_rest(state) judges one where only
 * steps from `environment` on can be taken. Returns how many states there were. */
static u32 search(const void *first, size_t size, u32 steps, u32 environment,
                  bool (*step)(void *state, u32 n), void (*at_rest)(const void *state)) {
    struct search s = { .max = 1 << 22 };
    u32 rests = 0;

    s.state = malloc((size_t)s.max * size);
    s.slot = calloc(2 * s.max, sizeof(*s.slot));
    assert_true(s.state && s.slot);
    search_add(&s, first, size);
    for (u32 i = 0; i < s.nr; i++) {
        bool moved = false;

        for (u32 n = 0; n < steps; n++) {
            u8 next[STATE];

            memcpy(next, s.state + (size_t)i * size, size);
            if (!step(next, n)) continue;
            moved |= n < environment && memcmp(next, s.state + (size_t)i * size, size);
            search_add(&s, next, size);
        }
        if (moved) continue;
        rests++;
        at_rest(s.state + (size_t)i * size);
    }
    free(s.state);
    free(s.slot);
    assert_true(rests > 1);
    return s.nr;
}

/* ---- flush ---- */

struct flush_guest {
    u8 dirty;           /* pages */
    u8 syncing, synced; /* it is told to flush; it has */
    u8 cleared;         /* it has cleared flush_now, and has yet to write nr */
    u8 woken;           /* a watch of flush_now has fired */
    u8 key_has, key_nr; /* has_dirty_pages, nr */
    u8 key_flush;       /* flush_now, which the manager does not watch */
    u8 manager_woken;   /* the manager's watch of another key has fired */
    u8 renew, knows;    /* another manager, or none; what the guest knows of it */
    u8 rights;          /* the manager may use the keys */
};

struct flush_state {
    struct flush_guest g[VMS];
    struct flush_disk seen[VMS]; /* the manager's */
    u8 idle, alive, late;        /* the device; the manager; FLUSH_PATIENCE is over */
    u8 writes, changes, deaths;  /* of the environment, still to come */
};

enum { /* steps of a guest, for each of them */
       G_PUBLISH,
       G_TAKE,
       G_SYNCED,
       G_RENEW,
       M_TAKE,
       GUEST_STEPS,
       M_CHOOSE = GUEST_STEPS * VMS,
       T_LATE,
       ENVIRONMENT,
       E_WRITE = ENVIRONMENT,
       E_WRITTEN_BACK = E_WRITE + VMS, /* by the guest itself */
       E_IDLE = E_WRITTEN_BACK + VMS,
       E_DIES,
       E_BORN,
       FLUSH_STEPS,
};

static bool flush_guest_step(struct flush_state *s, u32 i, u32 n) {
    struct flush_guest *g = &s->g[i];

    switch (n) {
    case G_PUBLISH: /* nr, then has_dirty_pages */
        if (!g->knows || g->syncing) return false;
        if (g->dirty == g->key_nr && g->key_has == (g->key_nr != 0)) return false;
        if (g->dirty != g->key_nr)
            g->key_nr = g->dirty;
        else
            g->key_has = g->key_nr != 0;
        g->manager_woken = true;
        return true;
    case G_TAKE: /* the thread does it between two syncs */
        if (!g->woken || g->syncing) return false;
        g->woken = false;
        g->syncing = g->key_flush;
        return true;
    case G_SYNCED:
        if (!g->syncing) return false;
        if (!g->synced) {
            g->synced = true;
            if (s->alive) g->dirty = 0;
            return true;
        }
        if (!g->cleared) {
            g->cleared = true;
            g->key_flush = false;
            g->woken = true; /* its own watch fires, too */
            return true;
        }
        g->syncing = g->synced = g->cleared = false;
        g->key_nr = g->dirty;
        g->manager_woken = true;
        return true;
    case G_RENEW: /* that, too */
        if (!g->renew || g->syncing) return false;
        g->renew = false;
        g->key_has = g->key_nr = g->key_flush = 0;
        g->rights = g->knows = s->alive;
        g->woken = g->manager_woken = true;
        return true;
    default:
        if (!g->manager_woken || !s->alive) return false;
        g->manager_woken = false;
        if (!g->rights) return true; /* to this manager there are no keys */
        s->seen[i].has_dirty_pages = g->key_has;
        s->seen[i].nr = g->key_nr;
        if (s->seen[i].flush_now) s->seen[i].flush_now = g->key_flush;
        return true;
    }
}

/* The time is always FLUSH_PATIENCE. A guest that was asked just now has that time, and one that is
 * late has 0. */
static bool flush_choose_step(struct flush_state *s) {
    u32 i = s->alive ? flush_choose(s->seen, VMS, s->idle, FLUSH_PATIENCE) : FLUSH_NOBODY;

    if (i == FLUSH_NOBODY) return false;
    s->seen[i].flush_now = true;
    s->seen[i].asked = FLUSH_PATIENCE;
    s->late = false;
    s->g[i].key_flush = true;
    s->g[i].woken = true;
    return true;
}

/* The manager ends. All that it had set is gone with it. */
static bool manager_dies(struct flush_state *s) {
    if (!s->deaths || !s->alive) return false;
    s->deaths--;
    s->alive = s->late = false;
    for (u32 i = 0; i < VMS; i++) {
        s->g[i].woken = s->g[i].renew = true;
        s->g[i].key_flush = s->g[i].rights = false;
        s->g[i].manager_woken = false;
        s->seen[i] = (struct flush_disk){ 0 };
    }
    return true;
}

/* There is another one. A new watch fires at once. */
static bool manager_is_born(struct flush_state *s) {
    if (s->alive) return false;
    s->alive = true;
    for (u32 i = 0; i < VMS; i++) s->g[i].renew = s->g[i].manager_woken = true;
    return true;
}

static bool flush_step(void *state, u32 n) {
    struct flush_state *s = state;

    if (n < M_CHOOSE) return flush_guest_step(s, n / GUEST_STEPS, n % GUEST_STEPS);
    if (n == M_CHOOSE) return flush_choose_step(s);
    if (n == T_LATE) {
        bool asked = false;

        for (u32 i = 0; i < VMS; i++) {
            asked |= s->seen[i].flush_now && s->seen[i].asked;
            s->seen[i].asked = 0;
        }
        s->late |= asked;
        return asked;
    }
    if (n < E_WRITTEN_BACK) {
        if (!s->writes || s->g[n - E_WRITE].dirty == 2) return false;
        s->writes--;
        s->g[n - E_WRITE].dirty++;
        return true;
    }
    if (n < E_IDLE) {
        if (!s->g[n - E_WRITTEN_BACK].dirty || !s->alive) return false;
        s->g[n - E_WRITTEN_BACK].dirty = 0;
        return true;
    }
    if (n == E_IDLE) {
        if (!s->changes) return false;
        s->changes--;
        s->idle = !s->idle;
        return true;
    }
    if (n == E_DIES) return manager_dies(s);
    return manager_is_born(s);
}

static void flush_at_rest(const void *state) {
    const struct flush_state *s = state;

    for (u32 i = 0; i < VMS; i++) {
        assert_false(s->g[i].key_flush); /* no flush_now is lost */
        assert_int_equal(s->g[i].knows, s->alive);
        assert_int_equal(s->g[i].key_nr, s->alive * s->g[i].dirty);
        assert_int_equal(s->g[i].key_has, s->alive && s->g[i].dirty);
        if (s->idle && s->alive) assert_int_equal(s->g[i].dirty, 0);
    }
}

static void test_flush(void **state) {
    struct flush_state first;
    u32 n;

    memset(&first, 0, sizeof(first));
    first.alive = first.idle = true;
    first.writes = 2;
    first.changes = 2;
    first.deaths = 2;
    for (u32 i = 0; i < VMS; i++) first.g[i].rights = first.g[i].knows = true;
    n = search(&first, sizeof(first), FLUSH_STEPS, ENVIRONMENT, flush_step, flush_at_rest);
    print_message("flush: %u states\n", n);
    assert_true(n > 1000);
}

/* ---- congestion ---- */

struct congest_guest {
    u8 congested;        /* its own queue is throttled */
    u8 releasing, woken; /* it was let go; a watch has fired */
    u8 key_congested, key_release;
    u8 manager_woken, answering; /* the manager is about to set release_request */
    u8 renew, knows;             /* another manager, or none; what the guest knows of it */
    u8 rights;                   /* the manager may use the keys */
};

struct congest_state {
    struct congest_guest g[VMS];
    struct congest c; /* the manager's */
    u8 crowded, alive;
    u8 asks, changes, deaths; /* of the environment, still to come */
};

enum {
    C_TAKE,
    C_RELEASED,
    C_RENEW,
    C_PUBLISH,
    C_MANAGER,
    C_ANSWER,
    C_GUEST_STEPS,
    C_RELIEVE = C_GUEST_STEPS * VMS,
    C_ENVIRONMENT,
    C_ASK = C_ENVIRONMENT,
    C_TIMEOUT = C_ASK + VMS,
    C_CROWD = C_TIMEOUT + VMS,
    C_DIES,
    C_BORN,
    CONGEST_STEPS,
};

static bool congest_guest_step(struct congest_state *s, u32 i, u32 n) {
    struct congest_guest *g = &s->g[i];

    switch (n) {
    case C_TAKE:
        if (!g->woken) return false;
        g->woken = false;
        g->releasing |= g->key_release;
        return true;
    case C_RELEASED: /* it clears both keys before it goes on, and so before it can ask again */
        if (!g->releasing) return false;
        if (g->key_congested) {
            g->key_congested = false;
            g->manager_woken = true;
        } else if (g->key_release) {
            g->key_release = false;
            g->woken = true;
        } else {
            g->releasing = g->congested = false;
        }
        return true;
    case C_RENEW: /* the thread does it between two releases */
        if (!g->renew || g->releasing) return false;
        g->renew = g->key_congested = g->key_release = false;
        g->rights = g->knows = s->alive;
        g->woken = g->manager_woken = true;
        return true;
    case C_PUBLISH:
        if (!g->knows || !g->congested || g->key_congested || g->releasing) return false;
        g->key_congested = g->manager_woken = true;
        return true;
    case C_MANAGER:
        if (!g->manager_woken || !s->alive) return false;
        g->manager_woken = false;
        if (!g->key_congested || !g->rights)
            congest_forget(&s->c, i);
        else if (congest_ask(&s->c, i, s->crowded) == CONGEST_RELEASE)
            g->answering = true;
        return true;
    default:
        if (!g->answering || !s->alive) return false;
        g->answering = false;
        if (!g->rights) return true; /* it may not write the key */
        g->key_release = g->woken = true;
        return true;
    }
}

/* All times are one: what is random in them makes no new states. */
static bool relieve_step(struct congest_state *s) {
    struct congest before = s->c;
    u32 who;

    if (!s->alive) return false;
    who = congest_relieve(&s->c, s->crowded, 0);
    s->c.rng = before.rng;
    if (s->c.next != ~0ull) s->c.next = 0;
    if (who == CONGEST_NOBODY) return memcmp(&before, &s->c, sizeof(before)) != 0;
    s->g[who].answering = true;
    return true;
}

/* The keys that the manager has made are gone. The key `congested` belongs to the guest and
 * stays. */
static bool congest_manager_dies(struct congest_state *s) {
    if (!s->deaths || !s->alive) return false;
    s->deaths--;
    s->c = congest_begin(0);
    s->alive = false;
    for (u32 i = 0; i < VMS; i++) {
        s->g[i].answering = s->g[i].manager_woken = 0;
        s->g[i].key_release = s->g[i].rights = false;
        s->g[i].woken = s->g[i].renew = true;
    }
    return true;
}

static bool congest_manager_is_born(struct congest_state *s) {
    if (s->alive) return false;
    s->alive = true;
    for (u32 i = 0; i < VMS; i++) s->g[i].renew = s->g[i].manager_woken = true;
    return true;
}

static bool congest_step(void *state, u32 n) {
    struct congest_state *s = state;

    if (n < C_RELIEVE) return congest_guest_step(s, n / C_GUEST_STEPS, n % C_GUEST_STEPS);
    if (n == C_RELIEVE) return relieve_step(s);
    if (n < C_TIMEOUT) {
        struct congest_guest *g = &s->g[n - C_ASK];

        if (!s->asks || g->congested) return false;
        s->asks--;
        g->congested = true;
        return true;
    }
    if (n < C_CROWD) { /* a guest that has waited for long goes by its own queue again */
        struct congest_guest *g = &s->g[n - C_TIMEOUT];

        if (!g->congested) return false;
        g->congested = g->key_congested = false;
        g->manager_woken = true;
        return true;
    }
    if (n == C_CROWD) {
        if (!s->changes) return false;
        s->changes--;
        s->crowded = !s->crowded;
        return true;
    }
    if (n == C_DIES) return congest_manager_dies(s);
    return congest_manager_is_born(s);
}

static void congest_at_rest(const void *state) {
    const struct congest_state *s = state;

    for (u32 i = 0; i < VMS; i++) {
        assert_false(s->alive && s->g[i].key_release); /* a guest that may go has gone */
        if (s->alive && !s->crowded) assert_false(s->g[i].congested || s->g[i].key_congested);
        /* If a guest waits, its key is set, and the manager's queue is not empty. */
        if (s->alive && s->g[i].congested) assert_true(s->g[i].key_congested && s->c.nr);
    }
    if (s->alive && !s->crowded) assert_int_equal(s->c.nr, 0);
}

/* No guest stays congested for ever. With a manager, a guest goes on as soon as the device is
 * relieved. Without one, the guest's own time-out is left, which is a step that can always be
 * taken. */
static void test_congestion(void **state) {
    struct congest_state first;
    u32 n;

    memset(&first, 0, sizeof(first));
    first.c = congest_begin(0);
    first.alive = true;
    first.crowded = true;
    first.asks = 3;
    first.changes = 3;
    first.deaths = 2;
    for (u32 i = 0; i < VMS; i++) first.g[i].rights = first.g[i].knows = true;
    n = search(&first, sizeof(first), CONGEST_STEPS, C_ENVIRONMENT, congest_step, congest_at_rest);
    print_message("congestion: %u states\n", n);
    assert_true(n > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_congestion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
