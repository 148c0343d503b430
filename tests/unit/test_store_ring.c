/* The connections of the store: packets and rings, good and bad, in each state of a client. */
#include <takt/errno.h>
#include "store_steps.h"

static struct xs_page page[RIG_VMS];

/* A packet as it is on the wire. */
struct wire {
    struct xs_header head;
    u8 data[XS_PAYLOAD_MAX];
};

/* Puts bytes on the request ring as a guest does, as far as there is room; returns how many. */
static u32 ring_put(u32 who, const void *bytes, u32 n) {
    struct xs_page *p = &page[who];
    u32 room = XS_RING_SIZE - (p->req_prod - p->req_cons);

    n = MIN(n, room);
    for (u32 i = 0; i < n; i++) p->req[(p->req_prod + i) % XS_RING_SIZE] = ((const u8 *)bytes)[i];
    p->req_prod += n;
    return n;
}

static u32 ring_get(u32 who, void *bytes, u32 n) {
    struct xs_page *p = &page[who];

    n = MIN(n, p->rsp_prod - p->rsp_cons);
    for (u32 i = 0; i < n; i++) ((u8 *)bytes)[i] = p->rsp[(p->rsp_cons + i) % XS_RING_SIZE];
    p->rsp_cons += n;
    return n;
}

static unsigned serve(u32 who) {
    unsigned what, all = 0;

    do {
        all |= what = store_pump(&rig_client[who], true);
    } while (what & STORE_MORE);
    return all;
}

/* Sends a packet through the ring, in pieces if it is long. Returns the next packet that comes
 * back. */
static struct store_packet *ring_call(u32 who, u32 type, const void *payload, u32 len) {
    static struct wire in, out;
    static struct store_packet reply;
    u32 sent = 0, got = 0, size = sizeof(in.head) + len;

    in.head = (struct xs_header){ .type = type, .req_id = 9, .len = len };
    memcpy(in.data, payload, len);
    for (u32 tries = 0; tries < 100; tries++) {
        sent += ring_put(who, (u8 *)&in + sent, size - sent);
        serve(who);
        got += ring_get(who, (u8 *)&out + got,
                        got < sizeof(out.head) ? sizeof(out.head) - got
                                               : sizeof(out.head) + out.head.len - got);
        if (got >= sizeof(out.head) && got == sizeof(out.head) + out.head.len) {
            reply = (struct store_packet){ out.head, out.data };
            return &reply;
        }
    }
    fail_msg("no reply to %u", type);
    return NULL;
}

static void connect_all(void) {
    for (u32 i = 1; i < RIG_VMS; i++) {
        memset(&page[i], 0xff, sizeof(page[i]));
        store_connect(&rig_client[i], &page[i]);
        assert_int_equal(page[i].req_prod | page[i].rsp_cons | page[i].error | page[i].connection,
                         0);
        assert_int_equal(page[i].features, 3);
    }
}

static void test_ring(void **state) {
    static char big[XS_PAYLOAD_MAX];
    struct store_packet *r;

    connect_all();
    RUN({ 0, MKDIR, 0, "/local/domain/1|", "OK|" }, { 0, SET, 0, "/local/domain/1|n1|", "OK|" });
    rig_client[1].quota.value = 4000;
    memset(big, 'v', sizeof(big));
    memcpy(big, "x", 2);
    r = ring_call(1, XS_WRITE, big, 4000);
    assert_string_equal(rig_string(r), "OK");
    assert_int_equal(r->head.req_id, 9);
    for (u32 i = 0; i < 50; i++) { /* round and round */
        r = ring_call(1, XS_READ, "x", 2);
        assert_int_equal(r->head.len, 3998);
        assert_memory_equal(r->data, big + 2, 3998);
        r = ring_call(1, XS_READ, "none", 5);
        assert_int_equal(r->head.type, XS_ERROR);
    }
    assert_int_equal(serve(1), 0); /* nothing to do: no event */
    r = ring_call(1, XS_WATCH, "x\0t", 4);
    assert_string_equal(rig_string(r), "OK");
    assert_int_equal(serve(1), 0);
    assert_int_equal(ring_get(1, big, 100), 16 + 4);
    assert_int_equal(((struct xs_header *)big)->type, XS_WATCH_EVENT);
    assert_memory_equal(big + 16, "x\0t", 4);
    rig_notified[1] = 0;
    RUN({ 0, WRITE, 0, "/local/domain/1/x|1", "OK|" });
    assert_int_equal(rig_notified[1], 1);
    assert_int_equal(serve(1), STORE_TELL);
    assert_int_equal(ring_get(1, big, 100), 16 + 4);
}

/* A client that never reads its replies is no longer served, and costs the other clients
 * nothing. */
static void test_ring_full(void **state) {
    static const struct xs_header h = { .type = XS_GET_DOMAIN_PATH, .len = 2 };
    u8 request[18], bytes[XS_RING_SIZE];
    u32 sent = 0, got = 0, n;

    connect_all();
    memcpy(request, &h, 16);
    memcpy(request + 16, "7", 2);
    for (u32 i = 0; i < 1000; i++) {
        n = ring_put(1, request + sent % 18, 18 - sent % 18);
        sent += n;
        serve(1);
    }
    assert_in_range(sent, XS_RING_SIZE, 3 * XS_RING_SIZE);
    assert_int_equal(page[1].rsp_prod - page[1].rsp_cons, XS_RING_SIZE);
    assert_int_equal(rig_client[1].memory, 0);
    assert_string_equal(rig_string(ring_call(2, XS_GET_DOMAIN_PATH, "3", 2)), "/local/domain/3");
    for (u32 i = 0; i < 100; i++) {
        got += ring_get(1, bytes, sizeof(bytes));
        serve(1);
    }
    assert_int_equal(got, sent / 18 * 32);
}

static void broken(u32 error) {
    struct store_client *c = &rig_client[1];
    u32 prod = page[1].rsp_prod;

    assert_int_equal(serve(1) & STORE_TELL, STORE_TELL);
    assert_true(c->bad);
    assert_int_equal(page[1].error, error);
    assert_int_equal(c->nr_watches + c->nr_transactions, 0);
    page[1].req_prod = page[1].req_cons;
    page[1].rsp_cons = prod;
    assert_int_equal(serve(1), 0); /* whatever it does now */
    assert_int_equal(page[1].rsp_prod, prod);
    assert_string_equal(rig_string(ring_call(2, XS_GET_DOMAIN_PATH, "3", 2)), "/local/domain/3");
    /* The connection stays broken until the guest asks for a new one. */
    page[1].connection = XS_RECONNECT;
    assert_int_equal(serve(1) & STORE_TELL, STORE_TELL);
    assert_int_equal(page[1].connection, XS_CONNECTED);
    assert_int_equal(page[1].error, 0);
    assert_string_equal(rig_string(ring_call(1, XS_GET_DOMAIN_PATH, "3", 2)), "/local/domain/3");
    assert_string_equal(rig_string(ring_call(1, XS_WATCH, "x\0t", 4)), "OK");
    assert_true(store_begin(c) > 0);
    serve(1);
    ring_get(1, (u8[64]){ 0 }, 64);
}

static void test_ring_bad(void **state) {
    static const struct xs_header too_long = { .type = XS_READ, .len = 4097 },
                                  lie = { .type = XS_READ, .len = ~0u };

    connect_all();
    page[1].req_prod = page[1].req_cons + XS_RING_SIZE + 1;
    broken(XS_RING_ERROR_INDEX);
    page[1].req_prod = page[1].req_cons - 1; /* backwards */
    broken(XS_RING_ERROR_INDEX);
    page[1].rsp_cons = page[1].rsp_prod + 1;
    broken(XS_RING_ERROR_INDEX);
    page[1].rsp_cons = page[1].rsp_prod - XS_RING_SIZE - 1;
    broken(XS_RING_ERROR_INDEX);
    ring_put(1, &too_long, 16);
    broken(XS_RING_ERROR_PROTOCOL);
    ring_put(1, &lie, 16);
    broken(XS_RING_ERROR_PROTOCOL);
    /* The guest cannot set the indexes that the store itself keeps. */
    page[1].req_cons = 12345;
    page[1].rsp_prod = 54321;
    page[1].req_prod = rig_client[1].req_cons;
    assert_int_equal(serve(1), 0);
    assert_int_equal(page[1].req_cons, rig_client[1].req_cons);
    assert_int_equal(page[1].rsp_prod, rig_client[1].rsp_prod);
    assert_false(rig_client[1].bad);
}

/* One visit answers so many requests and no more. It waits while an operation of another client is
 * in progress. */
static void test_ring_turns(void **state) {
    struct xs_header h = { .type = XS_GET_DOMAIN_PATH, .len = 2 };
    u32 n = 0;

    connect_all();
    for (; n < 50; n++) {
        ring_put(1, &h, 16);
        ring_put(1, "7", 2);
    }
    rig_client[1].quota.requests = 2;
    assert_int_equal(store_pump(&rig_client[1], true), STORE_TELL | STORE_MORE);
    assert_int_equal(page[1].rsp_prod, 2 * 32);
    assert_int_equal(fill(&rig_client[0], "/d/%u", 2000), 2000);
    assert_int_equal(store_rm(&rig_client[0], 0, "/d"), 0);
    n = page[1].rsp_prod;
    assert_int_equal(store_pump(&rig_client[1], true), STORE_MORE);
    assert_int_equal(page[1].rsp_prod, n);
    assert_true(serve(1) & STORE_TELL);
    assert_int_equal(page[1].rsp_prod, XS_RING_SIZE);
    /* The VM is being destroyed now. */
    assert_true(store_close(&rig_client[1]));
    rig_settle();
    assert_int_equal(store_pump(&rig_client[1], true), 0);
}

/* The same number twice is the client's affair: each request has its reply. What changes
 * in the page after it was read changes nothing. */
static void test_ring_changed(void **state) {
    struct xs_header h = { .type = XS_GET_DOMAIN_PATH, .req_id = 5, .len = 2 }, back;
    char home[16];

    connect_all();
    for (u32 i = 0; i < 2; i++) ring_put(1, &h, 16), ring_put(1, "7", 2);
    serve(1);
    for (u32 i = 0; i < 2; i++) {
        assert_int_equal(ring_get(1, &back, 16), 16);
        assert_int_equal(back.req_id, 5);
        assert_int_equal(ring_get(1, home, back.len), 16);
        assert_string_equal(home, "/local/domain/7");
    }
    ring_put(1, &h, 16);
    serve(1);
    memset(page[1].req, 0xff, XS_RING_SIZE);
    page[1].req_cons = 77;
    ring_put(1, "8", 1);
    serve(1);
    memset(page[1].req, 0xff, XS_RING_SIZE);
    ring_put(1, "", 1);
    serve(1);
    assert_int_equal(ring_get(1, &back, 16), 16);
    assert_int_equal(ring_get(1, home, 16), 16);
    assert_string_equal(home, "/local/domain/8");
    assert_false(rig_client[1].bad);
}

/* A request for which the store has no time waits. Neither that request nor what comes behind it is
 * lost. */
static void test_ring_waits(void **state) {
    struct xs_header h = { .type = XS_DIRECTORY_PART, .req_id = 1, .len = 9 };
    struct store_client *host = &rig_client[0];
    struct wire got;

    connect_all();
    assert_int_equal(fill(&rig_client[0], "/d/%u", 6000), 6000);
    RUN({ 0, SET, 0, "/d|r0|", "OK|" });
    ring_put(1, &h, 16);
    ring_put(1,
             "/d\0"
             "24000",
             9);
    ring_put(1, &(struct xs_header){ .type = XS_GET_DOMAIN_PATH, .req_id = 2, .len = 2 }, 16);
    ring_put(1, "7", 2);
    /* The caller is told each time that there is more, and then that all is done. */
    for (u32 n = 0; n < 2; n++) {
        assert_true(store_pump(&rig_client[1], true) & STORE_MORE);
        assert_int_equal(page[1].rsp_prod, 0);
    }
    serve(1);
    assert_int_equal(ring_get(1, &got, 16), 16);
    assert_int_equal(got.head.type, XS_DIRECTORY_PART);
    for (u32 n = 0; n < 5; n++) got.head.len -= ring_get(1, got.data, got.head.len), serve(1);
    assert_int_equal(ring_get(1, &got, 32), 32);
    assert_string_equal((const char *)got.data, "/local/domain/7");
    /* The host's connection passes its requests on byte by byte. */
    assert_int_equal(store_rm(&rig_client[0], 0, "/d"), 0);
    h = (struct xs_header){ .type = XS_GET_DOMAIN_PATH, .len = 2 };
    assert_int_equal(store_feed(host, &h, 16), 16);
    assert_int_equal(store_feed(host, "7", 2), 2);
    assert_true(store_waits(host));
    assert_int_equal(store_feed(host, "xxxx", 4), 0);
    rig_settle();
    assert_int_equal(store_feed(host, NULL, 0), 0);
    assert_false(store_waits(host));
    assert_int_equal(store_drain(host, &got, sizeof(got)), 16 + 16);
    assert_string_equal((const char *)got.data, "/local/domain/7");
}

/* In the exit of another VM, a guest gets what waits for it. What the guest itself asks for stays
 * in its ring. */
static void test_ring_hand_over(void **state) {
    struct store_client *c = &rig_client[1];
    struct wire got;

    connect_all();
    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|r0|", "OK|" },
        { 1, WATCH, 0, "/s|t|", "OK|" }, { 1, EVENTS, 0, "", "/s|t|" },
        { 0, WRITE, 0, "/s|1", "OK|" });
    assert_int_equal(store_pump(c, false), STORE_TELL);
    assert_int_equal(ring_get(1, &got, 100), 16 + 5);
    assert_int_equal(store_pump(c, false), 0);
    /* One visit is enough, also where the ring ends within the event. */
    for (u32 i = 0; i < 2 * XS_RING_SIZE / 21; i++) {
        RUN({ 0, WRITE, 0, "/s|1", "OK|" });
        assert_int_equal(store_pump(c, false), STORE_TELL);
        assert_int_equal(ring_get(1, &got, 100), 16 + 5);
    }
    RUN({ 0, WRITE, 0, "/s|2", "OK|" });
    ring_put(1, &(struct xs_header){ .type = XS_GET_DOMAIN_PATH, .len = 2 }, 16);
    ring_put(1, "7", 2);
    assert_int_equal(store_pump(c, false), STORE_TELL | STORE_MORE);
    assert_int_equal(page[1].req_cons, 0);
    assert_int_equal(ring_get(1, &got, 100), 16 + 5);
    assert_int_equal(store_pump(c, true), STORE_TELL);
    assert_int_equal(ring_get(1, &got, 100), 32);
    assert_string_equal((const char *)got.data, "/local/domain/7");
    page[1].connection = XS_RECONNECT;
    assert_int_equal(store_pump(c, false), STORE_TELL | STORE_MORE);
    assert_int_equal(serve(1), 0);
    page[1].rsp_cons += 1;
    assert_int_equal(store_pump(c, false), STORE_TELL);
    assert_true(c->bad);
}

/* In whatever state a client is, it can be reset, connect anew and be gone; and is then as
 * good as new, or nothing is left of it. */
enum {
    IDLE,
    HALF,
    UNFETCHED,
    WATCHING,
    CHANGING,
    REMOVING,
    COMMITTING,
    RESETTING,
    LEAVING,
    LET_GO,
    BROKEN,
    WAITING,
    STATES
};

static void bring_to(u32 state) {
    struct store_client *c = &rig_client[1];
    struct xs_header h = { .type = XS_GET_DOMAIN_PATH, .len = 2 };
    u32 tx;

    switch (state) {
    case HALF: ring_put(1, &h, 11); break;
    case UNFETCHED:
        for (u32 i = 0; i < 100; i++) ring_put(1, &h, 16), ring_put(1, "7", 2), serve(1);
        break;
    case BROKEN: page[1].req_prod -= 1; break;
    case WATCHING:
    case RESETTING:
    case LEAVING:
    case LET_GO:
    case REMOVING:
        RUN({ 1, WATCH, 0, "/s|t|", "OK|" });
        assert_int_equal(fill(c, "/s/%u", 200), 200);
        if (state == REMOVING) store_rm(c, 0, "/s");
        if (state == RESETTING) store_reset(c);
        if (state >= LEAVING) store_close(c);
        if (state == LET_GO) rig_settle();
        return;
    case CHANGING:
    case COMMITTING:
    case WAITING:
        tx = (u32)store_begin(c);
        for (u32 i = 0; i < 50; i++) {
            char path[16];

            snprintf(path, sizeof(path), "/s/%u/x", i);
            assert_int_equal(store_write(c, tx, path, "1", 1), 0);
        }
        if (state != CHANGING) assert_int_equal(store_end(c, tx, true), 0);
        if (state == WAITING) ring_put(1, &h, 16), ring_put(1, "7", 2);
        break;
    }
    store_pump(c, true);
}

/* A client has pages for packets only if it wants to send some, and loses them at its end. */
static void test_stream(void **state) {
    unsigned before;

    rig_close(3);
    before = model_blocks;
    memset(&rig_client[3], 0, sizeof(rig_client[3]));
    assert_int_equal(store_open(&rig_client[3], 3, false), 0);
    assert_int_equal(model_blocks, before);
    model_no_frames = true;
    assert_int_equal(store_stream(&rig_client[3]), -ENOMEM);
    model_no_frames = false;
    for (u32 i = 0; i < 2; i++) {
        assert_int_equal(store_stream(&rig_client[3]), 0);
        assert_int_equal(model_blocks, before + 1);
    }
    connect_all();
    assert_string_equal(rig_string(ring_call(3, XS_GET_DOMAIN_PATH, "3", 2)), "/local/domain/3");
    rig_settle();
    rig_close(3);
    assert_int_equal(model_blocks, before);
    rig_open(3);
}

static void test_every_state(void **state) {
    struct store_client *c = &rig_client[1];

    for (u32 s = 0; s < STATES; s++) {
        for (u32 action = 0; action < 6; action++) { /* the last: none */
            RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" });
            connect_all();
            bring_to(s);
            switch (action) {
            case 0: store_reset(c); break;
            case 1: store_close(c); break;
            case 2: page[1].connection = XS_RECONNECT; break;
            case 3: store_connect(c, &page[1]); break;
            case 4: rig_send(&rig_client[0], XS_RESUME, 0, "1", 2); break;
            case 5: break;
            }
            for (u32 i = 0; i < 100; i++) serve(1);
            rig_settle();
            assert_string_equal(rig_string(ring_call(2, XS_GET_DOMAIN_PATH, "3", 2)),
                                "/local/domain/3");
            if (!c->left) {
                assert_int_equal(store_reset(c), 0);
                rig_settle();
                assert_int_equal(c->nr_watches + c->nr_transactions + c->nr_events, 0);
                store_connect(c, &page[1]);
                assert_string_equal(rig_string(ring_call(1, XS_GET_DOMAIN_PATH, "3", 2)),
                                    "/local/domain/3");
            }
            rig_close(1);
            assert_int_equal(
                c->memory + c->nodes + c->nr_watches + c->nr_transactions + c->nr_events, 0);
            rig_open(1);
            store_rm(&rig_client[0], 0, "/s");
            rig_settle();
        }
    }
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        TEST(test_ring),           TEST(test_ring_full),    TEST(test_ring_bad),
        TEST(test_ring_turns),     TEST(test_ring_changed), TEST(test_ring_waits),
        TEST(test_ring_hand_over), TEST(test_every_state),  TEST(test_stream),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
