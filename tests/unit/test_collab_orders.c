/* Every order in which the messages of IOrchestra's manager and of two guests can cross: a small
 * model that steps one of them at a time, from every state that can be reached, with the decisions
 * of drivers/collab/flush.h and congest.h themselves.
 *
 * A key is a variable. A watch is a bit: it fires whenever the key is written, and
 * several firings before it is taken are one, as in the store. A guest's step writes one key at
 * most; the manager reads all keys of a disk in one. The manager can end at any time: the keys
 * that it made are gone then, and their watches fire; the next one reads all keys that it finds.
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
    u8 dirty;                    /* pages */
    u8 syncing, synced, woken;   /* it is told to flush; it has; a watch has fired */
    u8 key_has, key_nr;          /* has_dirty_pages, nr */
    u8 key_flush, manager_woken; /* flush_now; the manager's watch has fired */
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
       M_TAKE,
       GUEST_STEPS,
       M_CHOOSE = GUEST_STEPS * VMS,
       T_LATE,
       ENVIRONMENT,
       E_WRITE = ENVIRONMENT,
       E_WRITTEN_BACK = E_WRITE + VMS, /* by the guest itself */
       E_IDLE = E_WRITTEN_BACK + VMS,
       E_DIES,
       FLUSH_STEPS,
};

static bool flush_guest_step(struct flush_state *s, u32 i, u32 n) {
    struct flush_guest *g = &s->g[i];

    switch (n) {
    case G_PUBLISH: /* nr, then has_dirty_pages */
        if (g->dirty == g->key_nr && g->key_has == (g->key_nr != 0)) return false;
        if (g->dirty != g->key_nr)
            g->key_nr = g->dirty;
        else
            g->key_has = g->key_nr != 0;
        g->manager_woken = true;
        return true;
    case G_TAKE:
        if (!g->woken) return false;
        g->woken = false;
        g->syncing |= g->key_flush;
        return true;
    case G_SYNCED:
        if (!g->syncing) return false;
        if (!g->synced) {
            g->synced = true;
            g->dirty = 0;
            return true;
        }
        g->syncing = g->synced = false;
        g->key_flush = false;
        g->woken = g->manager_woken = true; /* its own watch fires, too */
        return true;
    default:
        if (!g->manager_woken || !s->alive) return false;
        g->manager_woken = false;
        s->seen[i] = (struct flush_disk){ g->key_has, g->key_flush, g->key_nr, s->seen[i].asked };
        if (g->key_flush && !s->late) s->seen[i].asked = FLUSH_PATIENCE;
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
    s->g[i].woken = s->g[i].manager_woken = true;
    return true;
}

/* The manager ends. The next one is there at once, or never. All that the old one had set is gone
 * with it. */
static void manager_dies(struct flush_state *s, bool next) {
    for (u32 i = 0; i < VMS; i++) {
        s->g[i].woken = true;
        s->g[i].key_flush = false;
        s->seen[i] = (struct flush_disk){ 0 };
        s->g[i].manager_woken = true; /* a new watch fires at once */
    }
    s->alive = next;
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
        if (!s->g[n - E_WRITTEN_BACK].dirty) return false;
        s->g[n - E_WRITTEN_BACK].dirty = 0;
        return true;
    }
    if (n == E_IDLE) {
        if (!s->changes) return false;
        s->changes--;
        s->idle = !s->idle;
        return true;
    }
    if (!s->deaths) return false;
    s->deaths--;
    manager_dies(s, true);
    return true;
}

static void flush_at_rest(const void *state) {
    const struct flush_state *s = state;

    for (u32 i = 0; i < VMS; i++) {
        assert_false(s->g[i].key_flush); /* no flush_now is lost */
        assert_int_equal(s->g[i].key_nr, s->g[i].dirty);
        assert_int_equal(s->g[i].key_has, s->g[i].dirty != 0);
        if (s->idle) assert_int_equal(s->g[i].dirty, 0);
    }
}

static void test_flush(void **state) {
    struct flush_state first;
    u32 n;

    memset(&first, 0, sizeof(first));
    first.alive = first.idle = true;
    first.writes = 2;
    first.changes = 2;
    first.deaths = 1;
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
};

struct congest_state {
    struct congest_guest g[VMS];
    struct congest c; /* the manager's */
    u8 crowded, alive, next_alive;
    u8 asks, changes, deaths; /* of the environment, still to come */
};

enum {
    C_TAKE,
    C_RELEASED,
    C_MANAGER,
    C_ANSWER,
    C_GUEST_STEPS,
    C_RELIEVE = C_GUEST_STEPS * VMS,
    C_ENVIRONMENT,
    C_ASK = C_ENVIRONMENT,
    C_TIMEOUT = C_ASK + VMS,
    C_CROWD = C_TIMEOUT + VMS,
    C_DIES,
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
    case C_MANAGER:
        if (!g->manager_woken || !s->alive) return false;
        g->manager_woken = false;
        if (!g->key_congested)
            congest_forget(&s->c, i);
        else if (congest_ask(&s->c, i, s->crowded) == CONGEST_RELEASE)
            g->answering = true;
        return true;
    default:
        if (!g->answering || !s->alive) return false;
        g->answering = false;
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
static void congest_manager_dies(struct congest_state *s) {
    s->c = congest_begin(0);
    s->alive = s->next_alive;
    for (u32 i = 0; i < VMS; i++) {
        s->g[i].answering = 0;
        s->g[i].key_release = false;
        s->g[i].woken = s->g[i].manager_woken = true;
    }
}

static bool congest_step(void *state, u32 n) {
    struct congest_state *s = state;

    if (n < C_RELIEVE) return congest_guest_step(s, n / C_GUEST_STEPS, n % C_GUEST_STEPS);
    if (n == C_RELIEVE) return relieve_step(s);
    if (n < C_TIMEOUT) {
        struct congest_guest *g = &s->g[n - C_ASK];

        if (!s->asks || g->congested) return false;
        s->asks--;
        g->congested = g->key_congested = g->manager_woken = true;
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
    if (!s->deaths) return false;
    s->deaths--;
    congest_manager_dies(s);
    return true;
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

static u32 congest_search(bool next_alive) {
    struct congest_state first;

    memset(&first, 0, sizeof(first));
    first.c = congest_begin(0);
    first.alive = true;
    first.next_alive = next_alive;
    first.crowded = true;
    first.asks = 3;
    first.changes = 3;
    first.deaths = 1;
    return search(&first, sizeof(first), CONGEST_STEPS, C_ENVIRONMENT, congest_step,
                  congest_at_rest);
}

/* No guest stays congested for ever. With a manager, a guest goes on as soon as the device is
 * relieved. Without one, the guest's own time-out is left, which is a step that can always be
 * taken. */
static void test_congestion(void **state) {
    u32 n = congest_search(true);

    print_message("congestion: %u states, %u if no manager follows\n", n, congest_search(false));
    assert_true(n > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flush),
        cmocka_unit_test(test_congestion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
