/* What the store may cost: the instructions of single calls and visits, counted one by one in
 * the code of the image, with few nodes and with many, and with everything that clients can pile
 * up. What takes longer is done in parts. Also what an open transaction holds. */
#include "count.h"
#define HEAP_MODEL_H /* but the image's own heap */
#include "mm/frame.h"
#define ARENA (64u << 20)
static unsigned model_objects;
#include "store_steps.h"

/* ---- calls ---- */

static const char *path;
static char buf[XS_PAYLOAD_MAX], text[XS_ABS_PATH_MAX + 1];
static u32 from, tx;

static void call_read(void) { store_read(&rig_client[1], 0, path, buf, sizeof(buf)); }

static void call_write(void) { store_write(&rig_client[1], 0, path, "0123456789abcdef", 16); }

static void call_admin_write(void) { store_write(&rig_client[0], 0, path, "x", 1); }

static void call_list(void) { store_list(&rig_client[1], tx, path, buf, sizeof(buf), NULL, NULL); }

static void call_list_on(void) {
    u64 generation;

    store_list(&rig_client[1], tx, path, buf, sizeof(buf), &from, &generation);
}

static void call_rm(void) { store_rm(&rig_client[1], tx, path); }

static void call_put(void) { store_write(&rig_client[1], tx, path, buf, 2048); }

static void call_watch(void) { store_watch(&rig_client[1], path, buf); }

static void call_unwatch(void) { store_unwatch(&rig_client[1], path, buf); }

static void call_event(void) { store_event(&rig_client[1], buf); }

static void call_work(void) { store_work(); }

static void call_reset(void) { store_reset(&rig_client[1]); }

static void open_home(void) {
    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" },
        { 1, WRITE, 0, "/s/x|0123456789abcdef", "OK|" });
}

/* ---- tests ---- */

/* Among 10,000 nodes, a read and a write may cost at most twice what they cost among 10. */
static void test_growth(void **state) {
    u32 read, write;

    open_home();
    path = "/s/x";
    assert_int_equal(fill(&rig_client[0], "/s/few-%u", 8), 8);
    read = instructions(call_read);
    write = instructions(call_write);
    assert_int_equal(fill(&rig_client[0], "/s/sibling-%u", 5000), 5000);
    assert_int_equal(fill(&rig_client[0], "/other/%u/x", 2500), 2500);
    print_message("read: %u to %u, write: %u to %u instructions\n", read, instructions(call_read),
                  write, instructions(call_write));
    assert_in_range(read, 100, 4000);
    assert_in_range(instructions(call_read), 100, 2 * read);
    assert_in_range(instructions(call_write), 100, 2 * write);
}

/* Lists the most names that a reply holds, in a transaction that has removed as many as it can,
 * while other transactions have looked at them. */
static void test_list(void **state) {
    u32 n, plain, whole;

    open_home();
    RUN({ 0, MKDIR, 0, "/d|", "OK|" }, { 0, SET, 0, "/d|b0|", "OK|" });
    for (n = 0; n < 1366; n++) {
        snprintf(text, sizeof(text), "/d/%c%c", 'a' + n % 26,
                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-"[n / 26]);
        assert_int_equal(store_mkdir(&rig_client[0], 0, text), 0);
        rig_settle();
    }
    path = "/d";
    assert_int_equal(store_list(&rig_client[1], 0, path, buf, sizeof(buf), NULL, NULL), -E2BIG);
    plain = instructions(call_list);
    RUN({ 0, RM, 0, "/d/aa|", "OK|" });
    assert_int_equal(store_list(&rig_client[1], 0, path, buf, sizeof(buf), NULL, NULL), 1365 * 3);
    whole = instructions(call_list);
    print_message("a list of 1365 names: %u instructions, one that is too long %u", whole, plain);
    assert_in_range(plain, 5000, BOUND);
    assert_in_range(whole, 5000, BOUND);
    for (u32 who = 2; who; who--) {
        tx = (u32)store_begin(&rig_client[who]);
        for (n = 0; n < 400; n++) {
            snprintf(text, sizeof(text), "/d/%c%c", 'a' + n % 26, 'a' + n / 26);
            store_read(&rig_client[who], tx, text, buf, 1);
        }
    }
    assert_int_equal(store_rm(&rig_client[1], tx, "/d/ba"), 0);
    /* A client in such a transaction gets the list in parts. */
    assert_int_equal(store_list(&rig_client[1], tx, path, buf, sizeof(buf), NULL, NULL), -E2BIG);
    n = (u32)store_list(&rig_client[1], tx, path, buf, sizeof(buf), &from, &(u64){ 0 });
    assert_in_range(n, 3000, 4095);
    assert_int_equal(from, n);
    n += (u32)store_list(&rig_client[1], tx, path, buf, sizeof(buf), &from, &(u64){ 0 });
    assert_int_equal(n, 1364 * 3);
    assert_int_equal(from, 0);
    whole = instructions(call_list);
    print_message(", in a transaction %u\n", whole);
    assert_in_range(whole, 5000, BOUND);
    tx = 0;
}

/* A list is too long for one reply. The place where a part of it begins is found in several
 * steps. */
static void test_long_list(void **state) {
    static char names[40000];
    u32 calls = 0, n = 0;
    int len;

    open_home();
    assert_int_equal(fill(&rig_client[0], "/d/%u", 6000), 6000);
    RUN({ 0, SET, 0, "/d|r0|", "OK|" });
    path = "/d";
    from = 20000;
    assert_in_range(instructions(call_list_on), 5000, BOUND);
    while ((len = store_list(&rig_client[1], 0, path, buf, 100, &from, &(u64){ 0 })) == -EBUSY)
        calls++;
    assert_in_range(calls, 1, 4);
    /* 10 names have 2 bytes, 90 have 3, 900 have 4, and all others have 5. */
    assert_string_equal(buf, "4222");
    /* The next part comes at once, as long as nothing changes there. */
    assert_in_range(instructions(call_list_on), 5000, BOUND);
    assert_int_equal(store_list(&rig_client[1], 0, path, buf, 100, &from, &(u64){ 0 }), 100);
    assert_string_equal(buf, "4242");
    RUN({ 0, RM, 0, "/d/4262|", "OK|" });
    while ((len = store_list(&rig_client[1], 0, path, buf, 100, &from, &(u64){ 0 })) == -EBUSY)
        ;
    assert_string_equal(buf, "4263");
    /* The whole list arrives, although another client lists and changes something else
     * meanwhile. */
    for (from = 0; !n || from;) {
        len = store_list(&rig_client[1], 0, path, names + n, 1000, &from, &(u64){ 0 });
        assert_true(len > 0);
        n += (u32)len;
        RUN({ 0, DIR, 0, "/s|", "x|" }, { 0, WRITE, 0, "/s/x|1", "OK|" });
    }
    assert_int_equal(n, 10 * 2 + 90 * 3 + 900 * 4 + 5000 * 5 - 5);
    /* At the end and behind it there is nothing. */
    for (u32 i = 0; i < 3; i++) {
        from = n + i;
        while ((len = store_list(&rig_client[1], 0, path, buf, 100, &from, &(u64){ 0 })) == -EBUSY)
            ;
        assert_int_equal(len, 0);
        assert_int_equal(from, 0);
    }
}

/* Lists of a transaction's own, where a cursor must not outlive what it points at. */
static void test_list_changes(void **state) {
    open_home();
    assert_int_equal(fill(&rig_client[0], "/d/c%u", 100), 100);
    RUN({ 0, SET, 0, "/d|b0|", "OK|" }, { 0, SET, 0, "/d/c0|b0|", "OK|" });
    for (u32 i = 0; i < 40; i++) {
        tx = (u32)store_begin(&rig_client[1]);
        assert_int_equal(store_mkdir(&rig_client[1], tx, "/d/own1"), 0);
        assert_int_equal(store_mkdir(&rig_client[1], tx, "/d/own2"), 0);
        from = i * 10;
        store_list(&rig_client[1], tx, "/d", buf, 20, &from, &(u64){ 0 });
        if (i % 2)
            assert_int_equal(store_rm(&rig_client[1], tx, i % 8 < 4 ? "/d/own1" : "/d/c0"), 0);
        if (i % 4 > 1) assert_int_equal(store_mkdir(&rig_client[1], tx, "/d/own3"), 0);
        store_list(&rig_client[1], tx, "/d", buf, 20, &from, &(u64){ 0 });
        if (i % 3) {
            assert_int_equal(store_end(&rig_client[1], tx, false), 0);
            rig_settle();
            tx = 0;
        }
        store_list(&rig_client[1], tx, "/d", buf, 20, &from, &(u64){ 0 });
        if (tx) store_end(&rig_client[1], tx, false);
        rig_settle();
    }
    tx = 0;
}

/* Tests what a client can pile up on nodes that others use: ten transactions that have looked as
 * often as they can, and all its watches and events. */
static void test_piled_up(void **state) {
    struct store_client *c = &rig_client[1];
    u32 n, held, others = rig_client[2].memory;

    c->quota.memory = 4u << 20;

    open_home();
    for (u32 t = 0; t < 10; t++) {
        tx = (u32)store_begin(c);
        assert_in_range(tx, 1, 1000);
        for (n = 0; n < 3000; n++) {
            snprintf(text, sizeof(text), "/s/x/%u", n);
            if (store_read(c, tx, text, buf, 1) != -ENOENT) break;
            store_rm(c, tx, "/s/x");
            store_write(c, tx, "/s/x", "", 0);
        }
    }
    assert_in_range(c->memory, 100000, c->quota.memory);
    assert_int_equal(c->nr_transactions, 10);
    assert_int_equal(store_begin(c), -ENOSPC);
    held = c->memory;
    while (store_watch(c, "/s/x", "t") == 0 || c->nr_watches < 128) {
        snprintf(text, sizeof(text), "%u", c->nr_watches);
        if (store_watch(c, "/s/x", text)) break;
    }
    assert_int_equal(fill(&rig_client[0], "/s/x/e%u", 70), 70);
    path = "/s/x";
    assert_in_range(instructions(call_write), 100, BOUND);
    assert_in_range(instructions(call_admin_write), 100, BOUND);
    assert_in_range(instructions(call_rm), 100, BOUND);
    assert_in_range(instructions(call_reset), 100, BOUND);
    /* No other client pays for it or waits for it. */
    assert_int_equal(rig_client[2].memory, others);
    RUN({ 2, WRITE, 0, "/s/two|1", "OK|" }, { 2, START, 1, "|", "ID|" },
        { 2, WRITE, 1, "/s/x|2", "OK|" }, { 2, END, 1, "T|", "OK|" });
    /* It ends with the connection. */
    assert_int_equal(store_reset(c), 0);
    rig_settle();
    assert_in_range(c->memory, 0, held - 100000);
    assert_int_equal(c->nr_transactions + c->nr_watches + c->nr_events, 0);
    tx = 0;
}

/* Makes the longest path, with as many components as may be. */
static void longest(void) {
    u32 part = (XS_ABS_PATH_MAX - 3) / (STORE_DEPTH - 1);

    memset(text, 'a', sizeof(text));
    memcpy(text, "/s", 2);
    for (u32 i = 0; i < STORE_DEPTH - 1; i++) text[2 + i * part] = '/';
    text[XS_ABS_PATH_MAX] = 0;
}

static u32 most;

static void bounded(const char *what, void (*call)(void)) {
    u32 n = instructions(call);

    if (n > most) most = n;
    if (n > BOUND) fail_msg("%s: %u instructions", what, n);
}

static void test_long_calls(void **state) {
    open_home();
    path = text;
    longest();
    for (u32 i = 0; i < 2; i++) {
        tx = i ? (u32)store_begin(&rig_client[1]) : 0;
        memset(buf, 't', STORE_TOKEN_MAX);
        buf[STORE_TOKEN_MAX] = 0;
        bounded("write it", call_put);
        if (!tx) bounded("watch it", call_watch);
        assert_int_equal(store_write(&rig_client[1], tx, path, buf, 2048), 0);
        rig_settle();
        if (tx) {
            assert_int_equal(store_end(&rig_client[1], tx, false), 0);
            rig_settle();
            continue;
        }
        assert_int_equal(store_watch(&rig_client[1], path, buf), 0);
        bounded("event", call_event);
        bounded("unwatch", call_unwatch);
        tx = (u32)store_begin(&rig_client[1]);
        bounded("first look", call_read);
        bounded("first list", call_list);
        assert_int_equal(store_reset(&rig_client[1]), 0);
        rig_settle();
        RUN({ 0, RM, 0, "/s|", "OK|" });
        open_home();
    }
    print_message("paths of %u bytes: at most %u instructions\n", XS_ABS_PATH_MAX, most);
    tx = (u32)store_begin(&rig_client[1]);
    for (u32 n = 0; n < STORE_TX_NODES - 1; n++) {
        snprintf(text, 100, "/s/%u", n);
        if (store_write(&rig_client[1], tx, text, text, 100)) break;
    }
    path = "/s";
    bounded("remove many in a transaction", call_rm);
    tx = 0;
}

/* Watches whose tokens differ at their ends. */
static void test_tokens(void **state) {
    open_home();
    path = "/s";
    memset(buf, 't', STORE_TOKEN_MAX + 1);
    for (u32 i = 0; i < 128; i++) {
        snprintf(buf + STORE_TOKEN_MAX - 3, 4, "%03u", i);
        assert_int_equal(store_watch(&rig_client[1], path, buf), 0);
    }
    bounded("unwatch the last", call_unwatch);
    memcpy(buf + STORE_TOKEN_MAX - 3, "xxx", 3);
    bounded("unwatch none", call_unwatch);
    bounded("watch", call_watch);
}

/* What one exit does: the guest's own ring, then what waits for one other (hc_store_notify()). */
static unsigned left;

static void visit(void) {
    left = store_pump(&rig_client[1], true);
    if (!(left & STORE_MORE)) left |= store_pump(&rig_client[2], false) & STORE_TELL;
}

static struct xs_page page[3];

static void ask(u32 who, u32 type, const void *payload, u32 len) {
    struct xs_header h = { .type = type, .tx_id = tx, .len = len };
    const u8 *parts[] = { (const u8 *)&h, payload };
    struct xs_page *p = &page[who];

    for (u32 i = 0; i < sizeof(h) + len; i++) {
        while (p->req_prod - p->req_cons == XS_RING_SIZE) {
            if (len > 500) bounded("a visit", visit);
            visit();
            p->rsp_cons = p->rsp_prod;
        }
        p->req[p->req_prod++ % XS_RING_SIZE] =
            i < sizeof(h) ? parts[0][i] : parts[1][i - sizeof(h)];
    }
}

static void serve(void) {
    do {
        bounded("a visit", visit);
        visit();
        page[1].rsp_cons = page[1].rsp_prod;
        page[2].rsp_cons = page[2].rsp_prod;
    } while (left);
}

/* Two clients ask for what costs most, after what costs little, and they get many events. */
static void test_visits(void **state) {
    char names[][16] = { "/s/x\0T", "/d", "/s/x" };

    most = 0;
    open_home();
    for (u32 n = 0; n < 1365; n++) {
        snprintf(text, sizeof(text), "/d/%c%c", 'a' + n % 26,
                 "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-"[n / 26]);
        assert_int_equal(store_mkdir(&rig_client[0], 0, text), 0);
        rig_settle();
    }
    RUN({ 0, SET, 0, "/d|b0|", "OK|" }, { 2, WATCH, 0, "/s|t|", "OK|" });
    for (u32 who = 1; who < 3; who++) store_connect(&rig_client[who], &page[who]);
    for (u32 i = 0; i < 64; i++) { /* events for the other, as many as it may have */
        snprintf(text, sizeof(text), "/s/%u", i);
        ask(1, XS_WRITE, text, (u32)strlen(text) + 1);
        if (i % 8 == 0) ask(2, XS_DIRECTORY, names[1], 3), visit();
    }
    serve();
    tx = (u32)store_begin(&rig_client[1]);
    for (u32 n = 0; n < 400; n++) {
        snprintf(text, sizeof(text), "/d/%c%c", 'a' + n % 26, 'a' + n / 26);
        store_read(&rig_client[1], tx, text, buf, 1);
    }
    for (u32 k = 0; k < 3; k++) ask(1, k % 2 ? XS_GET_PERMS : XS_READ, names[2], 5);
    ask(1, XS_DIRECTORY, names[1], 3);
    serve();
    longest();
    ask(1, XS_WRITE, text, XS_ABS_PATH_MAX + 1);
    serve();
    ask(1, XS_TRANSACTION_END, "T", 2);
    serve();
    tx = 0;
    memcpy(buf, text, sizeof(text));
    memcpy(buf + sizeof(text), "t", 2);
    ask(1, XS_WATCH, buf, sizeof(text) + 2);
    for (u32 i = 0; i < 30; i++) {
        if (i % 3 == 0)
            ask(1, XS_WRITE, names[2], 5);
        else
            ask(1, XS_TRANSACTION_START, "", 1);
    }
    serve();
    ask(1, XS_RESET_WATCHES, "", 1);
    serve();
    page[1].req_prod -= 1;
    serve();
    print_message("a visit: at most %u instructions\n", most);
    assert_in_range(most, 10000, BOUND);
}

/* What a transaction has made is removed by its commit's failure, though all around it has gone
 * meanwhile. */
static void test_commit_after_removal(void **state) {
    struct store_client *c = &rig_client[1];
    u32 id;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b1|", "OK|" },
        { 1, WRITE, 0, "/s/a/b|1", "OK|" });
    assert_int_equal(c->nodes, 3);
    id = (u32)store_begin(c);
    assert_int_equal(store_rm(c, id, "/s/a"), 0);
    assert_int_equal(store_write(c, id, "/s/a/b/c", "2", 1), 0);
    assert_int_equal(c->nodes, 6);
    RUN({ 0, RM, 0, "/s|", "OK|" });
    assert_int_equal(c->nodes, 3); /* its own, until it ends */
    assert_int_equal(store_end(c, id, true), -EAGAIN);
    rig_settle();
    assert_int_equal(c->nodes, 0);
    assert_int_equal(c->memory, 0);
}

/* The removal of much, the end of a VM with much: in parts, and no part is long. Others hold
 * transactions there, and watches. */
static void test_parts(void **state) {
    u32 parts = 0;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" },
        { 2, WATCH, 0, "/d|w|", "OK|" }, { 2, EVENTS, 0, "", "/d|w|" });
    RUN({ 0, MKDIR, 0, "/d|", "OK|" }, { 0, SET, 0, "/d|r0|", "OK|" },
        { 2, EVENTS, 0, "", "/d|w|" });
    assert_int_equal(fill(&rig_client[0], "/d/%u", 5000), 5000);
    assert_int_equal(fill(&rig_client[1], "/s/%u", 900), 900);
    for (u32 t = 1; t < 4; t++) {
        assert_int_equal(txs[2][t] = (u32)store_begin(&rig_client[2]), t);
        for (u32 n = 0; n < 400; n++) {
            snprintf(text, sizeof(text), "/d/%u", n * 10 + t);
            store_read(&rig_client[2], t, text, buf, 1);
        }
    }
    assert_int_equal(store_rm(&rig_client[0], 0, "/d"), 0);
    for (;; parts++) {
        if (parts % 100 == 1) assert_in_range(instructions(call_work), 10, BOUND);
        if (!store_work()) break;
        assert_in_range(store_spent, 1, 25000);
        /* No client sees a removal that is half done. */
        assert_int_equal(store_read(&rig_client[2], 0, "/d", buf, 1), -EBUSY);
    }
    assert_true(parts > 50);
    while (store_event(&rig_client[2], buf)) parts = 0;
    assert_int_equal(parts, 0);
    RUN({ 2, END, 1, "T|", "EAGAIN|" }, { 2, END, 2, "F|", "OK|" }, { 2, END, 3, "T|", "EAGAIN|" });
    for (parts = 0; store_close(&rig_client[1]); parts++) {
        if (parts == 5) assert_in_range(instructions(call_work), 10, BOUND);
        assert_in_range(store_spent, 0, 25000);
    }
    assert_true(parts > 10);
    rig_open(1);
    RUN({ 0, DIR, 0, "/s|", "" }, { 0, DIR, 0, "/|", "s|" });
}

static int own_heap(void **state) {
    void *arena = aligned_alloc(2u << 20, ARENA);

    directmap_base = (u64)arena;
    frame_add(0, ARENA);
    return arena ? group_setup(state) : -1;
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        TEST(test_growth),       TEST(test_list),     TEST(test_long_list),
        TEST(test_list_changes), TEST(test_piled_up), TEST(test_long_calls),
        TEST(test_tokens),       TEST(test_visits),   TEST(test_commit_after_removal),
        TEST(test_parts),
    };

    return cmocka_run_group_tests(tests, own_heap, NULL);
}
