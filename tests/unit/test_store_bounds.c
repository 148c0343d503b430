/* What the store may cost: instructions of single calls, counted one by one, among few nodes and many,
 * and with what clients can pile up; what takes longer goes in parts; what an open transaction holds. */
#include "count.h"
#include "store_steps.h"

/* ---- calls ---- */

static const char *path;
static char buf[XS_PAYLOAD_MAX], text[XS_ABS_PATH_MAX + 1];
static u32 from, tx;

static void call_read(void) { store_read(&rig_client[1], 0, path, buf, sizeof(buf)); }

static void call_write(void) { store_write(&rig_client[1], 0, path, "0123456789abcdef", 16); }

static void call_admin_write(void) { store_write(&rig_client[0], 0, path, "x", 1); }

static void call_mkdir(void) { store_mkdir(&rig_client[1], 0, path); }

static void call_list(void) { store_list(&rig_client[1], tx, path, buf, sizeof(buf), NULL, NULL); }

static void call_list_on(void) {
    u64 generation;

    store_list(&rig_client[1], tx, path, buf, sizeof(buf), &from, &generation);
}

static void call_rm(void) { store_rm(&rig_client[1], tx, path); }

/* What libc's heap takes of a path of 63 nodes; the hypervisor's is far quicker. */
static void call_heap(void) {
    for (u32 i = 0; i < 63; i++) heap_alloc(280);
}

static void call_work(void) { store_work(); }

static void call_reset(void) { store_reset(&rig_client[1]); }

static void open_home(void) {
    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" },
        { 1, WRITE, 0, "/s/x|0123456789abcdef", "OK|" });
}

/* ---- tests ---- */

/* A read and a write among 10 nodes and among 10,000. */
static void test_growth(void **state) {
    u32 read, write;

    open_home();
    path = "/s/x";
    assert_int_equal(fill(&rig_client[0], "/s/few-%u", 8), 8);
    read = instructions(call_read);
    write = instructions(call_write);
    assert_int_equal(fill(&rig_client[0], "/s/sibling-%u", 5000), 5000);
    assert_int_equal(fill(&rig_client[0], "/other/%u/x", 2500), 2500);
    print_message("read: %u to %u, write: %u to %u instructions\n", read, instructions(call_read), write,
                  instructions(call_write));
    assert_in_range(read, 100, 4000);
    assert_in_range(instructions(call_read), 100, 2 * read);
    assert_in_range(instructions(call_write), 100, 2 * write);
}

/* The most names that a reply holds, in a transaction that has removed as many as it can, while others have
 * looked at them. */
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
    assert_int_equal(store_list(&rig_client[1], tx, path, buf, sizeof(buf), NULL, NULL), 1364 * 3);
    whole = instructions(call_list);
    print_message(", in a transaction %u\n", whole);
    assert_in_range(whole, 5000, BOUND);
    tx = 0;
}

/* One of many: where a part of it begins is found in parts. */
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
    while ((len = store_list(&rig_client[1], 0, path, buf, 100, &from, &(u64){ 0 })) == -EBUSY) calls++;
    assert_in_range(calls, 1, 4);
    assert_string_equal(buf, "4222"); /* 10 of 2 bytes, 90 of 3, 900 of 4, the others of 5 */
    /* and the next part at once, as long as nothing changes there */
    assert_in_range(instructions(call_list_on), 5000, BOUND);
    assert_int_equal(store_list(&rig_client[1], 0, path, buf, 100, &from, &(u64){ 0 }), 100);
    assert_string_equal(buf, "4242");
    RUN({ 0, RM, 0, "/d/4262|", "OK|" });
    while ((len = store_list(&rig_client[1], 0, path, buf, 100, &from, &(u64){ 0 })) == -EBUSY)
        ;
    assert_string_equal(buf, "4263");
    /* all of it, while another client lists something else and changes that */
    for (from = 0; !n || from;) {
        len = store_list(&rig_client[1], 0, path, names + n, 1000, &from, &(u64){ 0 });
        assert_true(len > 0);
        n += (u32)len;
        RUN({ 0, DIR, 0, "/s|", "x|" }, { 0, WRITE, 0, "/s/x|1", "OK|" });
    }
    assert_int_equal(n, 10 * 2 + 90 * 3 + 900 * 4 + 5000 * 5 - 5);
    /* at the end and beyond it there is nothing */
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
        if (i % 2) assert_int_equal(store_rm(&rig_client[1], tx, i % 8 < 4 ? "/d/own1" : "/d/c0"), 0);
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

/* What a client can pile up where others come by: ten transactions that have looked as often as they can, all
 * its watches and events. */
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
    /* nobody else pays for it or waits for it */
    assert_int_equal(rig_client[2].memory, others);
    RUN({ 2, WRITE, 0, "/s/two|1", "OK|" }, { 2, START, 1, "|", "ID|" }, { 2, WRITE, 1, "/s/x|2", "OK|" },
        { 2, END, 1, "T|", "OK|" });
    /* and it goes with the connection */
    assert_int_equal(store_reset(c), 0);
    rig_settle();
    assert_in_range(c->memory, 0, held - 100000);
    assert_int_equal(c->nr_transactions + c->nr_watches + c->nr_events, 0);
    tx = 0;
}

/* The longest paths and the largest removal within a transaction. */
static void test_long_calls(void **state) {
    u32 most = 0, n;

    open_home();
    strcpy(text, "/s");
    memset(text + 2, 'a', sizeof(text) - 3);
    for (u32 i = 2; i < sizeof(text) - 1; i += 49) text[i] = '/';
    path = text;
    text[sizeof(text) - 1] = 0;
    if (text[sizeof(text) - 2] == '/') text[sizeof(text) - 2] = 'a';
    n = instructions(call_mkdir) - instructions(call_heap);
    print_message("a path of %zu bytes: made with %u instructions", strlen(text), n);
    assert_in_range(n, 5000, BOUND);
    assert_int_equal(store_mkdir(&rig_client[1], 0, text), 0);
    rig_settle();
    assert_in_range(n = instructions(call_read), 1000, BOUND);
    print_message(", read with %u\n", n);
    tx = (u32)store_begin(&rig_client[1]);
    for (n = 0; n < STORE_TX_NODES - 1; n++) {
        snprintf(buf, 100, "/s/%u", n);
        if (store_write(&rig_client[1], tx, buf, buf, 100)) break;
    }
    path = "/s";
    assert_in_range(most = instructions(call_rm), 5000, BOUND);
    tx = 0;
}

/* F8: what a transaction has made is removed by its commit's failure, though all around it has gone
 * meanwhile. */
static void test_commit_after_removal(void **state) {
    struct store_client *c = &rig_client[1];
    u32 id;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b1|", "OK|" }, { 1, WRITE, 0, "/s/a/b|1", "OK|" });
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

/* The removal of much, the end of a VM with much: in parts, and no part is long. F14: others hold
 * transactions there, and watches. */
static void test_parts(void **state) {
    u32 parts = 0;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" }, { 2, WATCH, 0, "/d|w|", "OK|" },
        { 2, EVENTS, 0, "", "/d|w|" });
    RUN({ 0, MKDIR, 0, "/d|", "OK|" }, { 0, SET, 0, "/d|r0|", "OK|" }, { 2, EVENTS, 0, "", "/d|w|" });
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
        assert_int_equal(store_read(&rig_client[2], 0, "/d", buf, 1), -EBUSY); /* nobody sees half of it */
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

int main(void) {
    static const struct CMUnitTest tests[] = {
        TEST(test_growth),
        TEST(test_list),
        TEST(test_long_list),
        TEST(test_list_changes),
        TEST(test_piled_up),
        TEST(test_long_calls),
        TEST(test_commit_after_removal),
        TEST(test_parts),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
