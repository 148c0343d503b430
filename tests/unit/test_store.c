/* The store: what XenStore's documentation says of each operation, case by case; quotas; what a client can
 * learn of another; malformed packets and rings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "store_rig.h"

enum {
    DIR = XS_DIRECTORY,
    READ,
    PERMS,
    WATCH,
    UNWATCH,
    START,
    END,
    INTRODUCE,
    RELEASE,
    HOME,
    WRITE,
    MKDIR,
    RM,
    SET
};
enum { EVENTS = 100 }; /* what waits for the client, all of it */

/* Of client `who`, in its transaction `tx` (START opens it; 0: none). */
struct step {
    u32 who, type, tx;
    const char *in, *out;
};

static u32 txs[RIG_VMS][4];

static void run_steps(const struct step *s, u32 n) {
    char bytes[XS_PAYLOAD_MAX], events[XS_PAYLOAD_MAX];
    struct store_packet *reply;
    const char *got;
    u32 len;

    for (u32 i = 0; i < n; i++, s++) {
        struct store_client *c = &rig_client[s->who];

        if (s->type == EVENTS) {
            for (len = 0; (reply = &c->out)->head.len = (u32)store_event(c, bytes), reply->head.len;) {
                memcpy(events + len, bytes, reply->head.len);
                len += reply->head.len;
            }
            got = rig_text(events, len);
        } else {
            len = rig_bytes(s->in, bytes);
            reply = rig_send(c, s->type, s->type == START ? 0 : txs[s->who][s->tx], bytes, len);
            assert_int_equal(reply->head.req_id, 7);
            assert_int_equal(reply->head.tx_id, s->type == START ? 0 : txs[s->who][s->tx]);
            if (reply->head.type != XS_ERROR) assert_int_equal(reply->head.type, s->type);
            got = rig_text((char *)reply->data, reply->head.len);
            if (s->type == START && reply->head.type != XS_ERROR) {
                txs[s->who][s->tx] = (u32)strtoul(got, NULL, 10);
                got = "ID|";
            }
        }
        if (strcmp(got, s->out))
            fail_msg("step %u: client %u, %u, %s: %s, and not %s", i, s->who, s->type, s->in, got, s->out);
    }
}

#define RUN(...)                                                                                             \
    do {                                                                                                     \
        static const struct step steps[] = { __VA_ARGS__ };                                                  \
        run_steps(steps, ARRAY_SIZE(steps));                                                                 \
    } while (0)

static unsigned objects;

static int setup(void **state) {
    memset(txs, 0, sizeof(txs));
    store_quota = (struct store_quota){ 1000, 128, 2048, 10, 5, 20, 64, 2u << 20 };
    objects = model_objects;
    rig_start();
    return 0;
}

static int teardown(void **state) {
    rig_end();
    for (u32 i = 0; i < RIG_VMS; i++) {
        assert_int_equal(rig_client[i].memory, 0);
        assert_int_equal(rig_client[i].nodes, 0);
        assert_int_equal(rig_client[i].nr_watches + rig_client[i].nr_transactions + rig_client[i].nr_events,
                         0);
    }
    assert_int_equal(model_objects, objects);
    return 0;
}

static int group_setup(void **state) {
    rig_start(); /* the roots are not counted */
    rig_end();
    return 0;
}

static void test_values(void **state) {
    RUN({ 0, WRITE, 0, "/a|text", "OK|" }, { 0, READ, 0, "/a|", "text" },
        { 0, WRITE, 0, "/a|x|y|", "OK|" }, /* any bytes */
        { 0, READ, 0, "/a|", "x|y|" }, { 0, WRITE, 0, "/a|", "OK|" }, { 0, READ, 0, "/a|", "" },
        { 0, WRITE, 0, "/b/c/d|1", "OK|" }, /* what is above is made, empty */
        { 0, READ, 0, "/b|", "" }, { 0, DIR, 0, "/b|", "c|" }, { 0, DIR, 0, "/b/c/d|", "" },
        { 0, DIR, 0, "/|", "a|b|" }, { 0, READ, 0, "/|", "" }, { 0, READ, 0, "/none|", "ENOENT|" },
        { 0, READ, 0, "/a/none|", "ENOENT|" }, { 0, DIR, 0, "/none|", "ENOENT|" },
        { 0, MKDIR, 0, "/b/c|", "OK|" }, /* there already: left as it is */
        { 0, MKDIR, 0, "/b/c/d|", "OK|" }, { 0, READ, 0, "/b/c/d|", "1" }, { 0, MKDIR, 0, "/m/n|", "OK|" },
        { 0, READ, 0, "/m/n|", "" }, { 0, RM, 0, "/b|", "OK|" }, { 0, READ, 0, "/b/c/d|", "ENOENT|" },
        { 0, RM, 0, "/b|", "OK|" }, /* not there: well, if its parent is */
        { 0, RM, 0, "/b/c|", "ENOENT|" }, { 0, RM, 0, "/|", "EINVAL|" }, { 0, DIR, 0, "/|", "a|m|" });
}

static void test_paths(void **state) {
    char path[XS_ABS_PATH_MAX + 3] = "/";

    RUN({ 0, READ, 0, "|", "EINVAL|" }, { 0, READ, 0, "", "EINVAL|" }, { 0, READ, 0, "/a/|", "EINVAL|" },
        { 0, READ, 0, "//a|", "EINVAL|" }, { 0, READ, 0, "/a//b|", "EINVAL|" },
        { 0, READ, 0, "a/|", "EINVAL|" }, { 0, READ, 0, "/a.b|", "EINVAL|" },
        { 0, READ, 0, "/a b|", "EINVAL|" }, { 0, READ, 0, "/\xff|", "EINVAL|" },
        { 0, WATCH, 0, "@|t|", "OK|" }, { 0, UNWATCH, 0, "@|t|", "OK|" },
        { 0, READ, 0, "/a", "EINVAL|" },   /* no zero */
        { 0, READ, 0, "/a|x", "EINVAL|" }, /* more than a path */
        { 0, READ, 0, "/a|x|", "EINVAL|" }, { 0, WRITE, 0, "/azAZ09-_@|1", "OK|" },
        { 0, READ, 0, "/azAZ09-_@|", "1" }, { 0, READ, 0, "@introduceDomain|", "EINVAL|" },
        { 0, WRITE, 0, "@x|1", "EINVAL|" }, { 0, RM, 0, "@releaseDomain|", "EINVAL|" },
        { 0, READ, 0, "/@releaseDomain|", "ENOENT|" }, { 0, DIR, 0, "/|", "azAZ09-_@|" },
        { 0, MKDIR, 0, "/local/domain/2|", "OK|" }, { 0, SET, 0, "/local/domain/2|n2|", "OK|" },
        { 2, WRITE, 0, "x/y|here", "OK|" }, /* relative to /local/domain/2 */
        { 0, READ, 0, "/local/domain/2/x/y|", "here" }, { 2, READ, 0, "/local/domain/2/x/y|", "here" },
        { 2, DIR, 0, "x|", "y|" });
    memset(path + 1, 'a', sizeof(path) - 2);
    assert_int_equal(store_mkdir(&rig_client[0], 0, path), -EINVAL);
    path[XS_ABS_PATH_MAX] = 0;
    assert_int_equal(store_mkdir(&rig_client[0], 0, path), 0);
    rig_settle();
    assert_int_equal(store_mkdir(&rig_client[2], 0, path + 1), -EINVAL); /* relative ones are shorter */
    path[XS_REL_PATH_MAX + 1] = 0;
    assert_int_equal(store_mkdir(&rig_client[2], 0, path + 1), 0);
    rig_settle();
    for (u32 i = 0; i < 1000; i++) memcpy(path + 2 * i, "/d", 3);
    assert_int_equal(store_mkdir(&rig_client[0], 0, path), -E2BIG);
    path[2 * STORE_DEPTH] = 0;
    assert_int_equal(store_mkdir(&rig_client[0], 0, path), 0);
    rig_settle();
    path[2 * STORE_DEPTH] = '/';
    path[2 * STORE_DEPTH + 2] = 0;
    assert_int_equal(store_mkdir(&rig_client[0], 0, path), -E2BIG);
}

static void test_permissions(void **state) {
    RUN({ 0, WRITE, 0, "/a|1", "OK|" }, { 0, PERMS, 0, "/a|", "n0|" }, { 0, PERMS, 0, "/|", "n0|" },
        { 1, READ, 0, "/a|", "EACCES|" }, { 1, WRITE, 0, "/a|2", "EACCES|" },
        { 1, PERMS, 0, "/a|", "EACCES|" }, { 0, SET, 0, "/a|n0|r1|w2|b3|", "OK|" },
        { 0, PERMS, 0, "/a|", "n0|r1|w2|b3|" }, { 1, READ, 0, "/a|", "1" },
        { 1, WRITE, 0, "/a|2", "EACCES|" }, { 1, RM, 0, "/a|", "EACCES|" }, { 2, READ, 0, "/a|", "EACCES|" },
        { 2, WRITE, 0, "/a|2", "OK|" }, { 3, READ, 0, "/a|", "2" }, { 3, WRITE, 0, "/a|3", "OK|" },
        { 3, SET, 0, "/a|n3|", "EACCES|" },
        /* the first entry is for all that have none of their own */
        { 0, SET, 0, "/a|r0|n2|", "OK|" }, { 1, READ, 0, "/a|", "3" }, { 2, READ, 0, "/a|", "EACCES|" },
        { 0, SET, 0, "/a|b0|", "OK|" }, { 1, WRITE, 0, "/a|4", "OK|" },
        /* who makes a node owns it, and what it inherits is its parent's */
        { 1, WRITE, 0, "/a/x/y|5", "OK|" }, { 0, PERMS, 0, "/a/x|", "b1|" },
        { 0, PERMS, 0, "/a/x/y|", "b1|" }, { 0, WRITE, 0, "/a/x/z|6", "OK|" },
        { 0, PERMS, 0, "/a/x/z|", "b1|" }, /* the administrator does not */
        { 1, SET, 0, "/a/x|n1|r2|", "OK|" }, { 2, READ, 0, "/a/x|", "" }, { 2, DIR, 0, "/a/x|", "y|z|" },
        { 3, READ, 0, "/a/x|", "EACCES|" }, { 1, WRITE, 0, "/a/x/v|", "OK|" },
        { 0, PERMS, 0, "/a/x/v|", "n1|r2|" },
        { 1, SET, 0, "/a/x|n2|", "EPERM|" }, /* only the administrator gives nodes away */
        { 0, SET, 0, "/a/x|n2|", "OK|" }, { 1, READ, 0, "/a/x|", "EACCES|" }, { 2, READ, 0, "/a/x|", "" },
        { 1, READ, 0, "/a/x/y|", "5" }, /* above it counts for nothing */
        { 2, RM, 0, "/a/x|", "OK|" },   /* and so does what is below */
        { 0, READ, 0, "/a/x/y|", "ENOENT|" });
}

static void test_bad_permissions(void **state) {
    RUN({ 0, MKDIR, 0, "/a|", "OK|" }, { 0, SET, 0, "/a|", "EINVAL|" }, { 0, SET, 0, "/a||", "EINVAL|" },
        { 0, SET, 0, "/a|x1|", "EINVAL|" }, { 0, SET, 0, "/a|n|", "EINVAL|" },
        { 0, SET, 0, "/a|n99999|", "EINVAL|" }, { 0, SET, 0, "/a|r-1|", "EINVAL|" },
        { 0, SET, 0, "/a|n0|r1", "EINVAL|" }, { 0, SET, 0, "/a|n0 |", "EINVAL|" },
        { 0, SET, 0, "/a|n0||", "EINVAL|" }, { 0, SET, 0, "/a|n18446744073709551616|", "EINVAL|" },
        { 0, SET, 0, "/a|n32751|", "OK|" }, { 0, SET, 0, "/a|n32752|", "EINVAL|" },
        { 0, SET, 0, "/a|n0|r1|r1|r1|r1|r1|r1|r1|", "OK|" },
        { 0, SET, 0, "/a|n0|r1|r1|r1|r1|r1|r1|r1|r1|", "ENOSPC|" }, { 0, SET, 0, "/none|n0|", "ENOENT|" },
        { 0, SET, 0, "/a|b1|", "OK|" }, { 1, SET, 0, "/a|n1|r1|r1|r1|r1|", "OK|" },
        { 1, SET, 0, "/a|n1|r1|r1|r1|r1|r1|", "ENOSPC|" }, { 0, PERMS, 0, "/a|", "n1|r1|r1|r1|r1|" });
}

/* Whoever may not read where a node would be hears the same whether it is there or not. */
static void test_hidden(void **state) {
    RUN({ 0, WRITE, 0, "/local/domain/1/secret|1", "OK|" },
        { 2, READ, 0, "/local/domain/1/secret|", "EACCES|" },
        { 2, READ, 0, "/local/domain/1/none|", "EACCES|" }, { 2, READ, 0, "/local/domain/9|", "EACCES|" },
        { 2, DIR, 0, "/local/domain|", "EACCES|" }, { 2, PERMS, 0, "/local/domain/1/none|", "EACCES|" },
        { 2, RM, 0, "/local/domain/1/none|", "EACCES|" },
        { 2, MKDIR, 0, "/local/domain/1/secret|", "EACCES|" },
        { 2, MKDIR, 0, "/local/domain/1/none|", "EACCES|" },
        { 2, SET, 0, "/local/domain/1/none|n2|", "EACCES|" },
        { 2, SET, 0, "/local/domain/1/secret|n2|", "EACCES|" },
        { 2, XS_IS_DOMAIN_INTRODUCED, 0, "1|", "EACCES|" },
        { 2, XS_IS_DOMAIN_INTRODUCED, 0, "9|", "EACCES|" },
        /* nor does a watch tell, nor the end of a transaction */
        { 2, WATCH, 0, "/local/domain/1|t|", "OK|" }, { 2, WATCH, 0, "@releaseDomain|t|", "OK|" },
        { 2, EVENTS, 0, "", "/local/domain/1|t|@releaseDomain|t|" }, { 2, START, 1, "|", "ID|" },
        { 2, READ, 1, "/local/domain/1/secret|", "EACCES|" },
        { 2, READ, 1, "/local/domain/1/none|", "EACCES|" },
        { 0, WRITE, 0, "/local/domain/1/secret|2", "OK|" }, { 0, WRITE, 0, "/local/domain/1/none|2", "OK|" },
        { 0, RM, 0, "/local/domain/1|", "OK|" }, { 2, END, 1, "T|", "OK|" }, { 2, EVENTS, 0, "", "" },
        /* where it may read the directory, it sees the name anyway */
        { 0, SET, 0, "/local/domain|r0|", "OK|" }, { 0, MKDIR, 0, "/local/domain/5|", "OK|" },
        { 0, SET, 0, "/local/domain/5|n0|", "OK|" }, { 2, DIR, 0, "/local/domain|", "5|" },
        { 2, READ, 0, "/local/domain/5|", "EACCES|" }, { 2, READ, 0, "/local/domain/6|", "ENOENT|" });
}

static void test_watches(void **state) {
    RUN({ 0, WRITE, 0, "/a/b|1", "OK|" }, { 0, WATCH, 0, "/a|t|", "OK|" },
        { 0, EVENTS, 0, "", "/a|t|" }, /* once at first */
        { 0, WATCH, 0, "/a|t|", "EEXIST|" }, { 0, WATCH, 0, "/a|u|", "OK|" }, { 0, EVENTS, 0, "", "/a|u|" },
        { 0, UNWATCH, 0, "/a|u|", "OK|" }, { 0, UNWATCH, 0, "/a|u|", "ENOENT|" },
        { 0, UNWATCH, 0, "/none|t|", "ENOENT|" }, { 0, WRITE, 0, "/a|2", "OK|" },
        { 0, EVENTS, 0, "", "/a|t|" }, { 0, WRITE, 0, "/a/b|2", "OK|" }, { 0, EVENTS, 0, "", "/a/b|t|" },
        { 0, WRITE, 0, "/a/c/d|2", "OK|" }, { 0, EVENTS, 0, "", "/a/c/d|t|" },
        { 0, WRITE, 0, "/ab|2", "OK|" }, { 0, EVENTS, 0, "", "" }, { 0, READ, 0, "/a|", "2" },
        { 0, EVENTS, 0, "", "" }, { 0, SET, 0, "/a/b|n0|r1|", "OK|" }, { 0, EVENTS, 0, "", "/a/b|t|" },
        { 0, RM, 0, "/a/b|", "OK|" }, { 0, EVENTS, 0, "", "/a/b|t|" }, { 0, MKDIR, 0, "/a/b|", "OK|" },
        { 0, EVENTS, 0, "", "/a/b|t|" }, { 0, MKDIR, 0, "/a/b|", "OK|" }, { 0, EVENTS, 0, "", "" },
        /* the same event waits but once */
        { 0, WRITE, 0, "/a/b|3", "OK|" }, { 0, WRITE, 0, "/a/b|4", "OK|" }, { 0, EVENTS, 0, "", "/a/b|t|" },
        /* a removal tells those who watch below, each its own path */
        { 0, WATCH, 0, "/a/c/d|v|", "OK|" }, { 0, WATCH, 0, "/a/c/none|w|", "OK|" },
        { 0, WATCH, 0, "/|x|", "OK|" }, { 0, EVENTS, 0, "", "/a/c/d|v|/a/c/none|w|/|x|" },
        { 0, RM, 0, "/a|", "OK|" }, { 0, EVENTS, 0, "", "/a/c/d|v|/a|t|/a|x|" },
        { 0, WRITE, 0, "/a/c/none|1", "OK|" }, { 0, EVENTS, 0, "", "/a/c/none|w|/a/c/none|t|/a/c/none|x|" },
        { 0, XS_RESET_WATCHES, 0, "|", "OK|" }, { 0, WRITE, 0, "/a|2", "OK|" }, { 0, EVENTS, 0, "", "" },
        { 0, WATCH, 0, "/a/|t|", "EINVAL|" }, { 0, WATCH, 0, "/a|t", "EINVAL|" },
        { 0, WATCH, 0, "/a|", "EINVAL|" }, { 0, WATCH, 0, "/a|t|1|", "EINVAL|" },
        { 0, UNWATCH, 0, "/a|", "EINVAL|" }, { 0, WATCH, 0, "/a||", "OK|" }, { 0, EVENTS, 0, "", "/a||" });
}

static void test_watch_rights(void **state) {
    RUN({ 0, WRITE, 0, "/a|1", "OK|" }, { 0, SET, 0, "/a|n0|r1|", "OK|" }, { 1, WATCH, 0, "/|t|", "OK|" },
        { 2, WATCH, 0, "/a|t|", "OK|" }, { 1, EVENTS, 0, "", "/|t|" }, { 2, EVENTS, 0, "", "/a|t|" },
        { 0, WRITE, 0, "/a|2", "OK|" }, { 0, WRITE, 0, "/b|2", "OK|" }, { 1, EVENTS, 0, "", "/a|t|" },
        { 2, EVENTS, 0, "", "" },
        /* whoever loses or gains the right hears of that */
        { 0, SET, 0, "/a|n0|r2|", "OK|" }, { 1, EVENTS, 0, "", "/a|t|" }, { 2, EVENTS, 0, "", "/a|t|" },
        { 0, WRITE, 0, "/a|3", "OK|" }, { 1, EVENTS, 0, "", "" }, { 2, EVENTS, 0, "", "/a|t|" },
        { 0, RM, 0, "/a|", "OK|" }, { 2, EVENTS, 0, "", "/a|t|" }, { 1, EVENTS, 0, "", "" },
        /* relative paths come back relative */
        { 0, MKDIR, 0, "/local/domain/1|", "OK|" }, { 0, SET, 0, "/local/domain/1|b1|", "OK|" },
        { 1, XS_RESET_WATCHES, 0, "|", "OK|" }, { 1, WATCH, 0, "x|t|", "OK|" },
        { 1, WATCH, 0, "x/y|u|", "OK|" }, { 1, WATCH, 0, "/local/domain/1/x|v|", "OK|" },
        { 1, EVENTS, 0, "", "x|t|x/y|u|/local/domain/1/x|v|" },
        { 2, WRITE, 0, "/local/domain/1/x/y|1", "OK|" },
        { 1, EVENTS, 0, "", "x/y|u|x/y|t|/local/domain/1/x/y|v|" });
}

static void test_transactions(void **state) {
    RUN({ 0, WRITE, 0, "/a|1", "OK|" }, { 0, WRITE, 0, "/d/x|1", "OK|" }, { 0, WATCH, 0, "/|t|", "OK|" },
        { 0, EVENTS, 0, "", "/|t|" }, { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/a|2", "OK|" },
        { 0, READ, 1, "/a|", "2" }, { 0, READ, 0, "/a|", "1" }, { 0, WRITE, 1, "/b/c|3", "OK|" },
        { 0, READ, 0, "/b|", "ENOENT|" }, { 0, DIR, 1, "/|", "a|d|b|" }, { 0, DIR, 0, "/|", "a|d|" },
        { 0, RM, 1, "/d|", "OK|" }, { 0, READ, 1, "/d/x|", "ENOENT|" }, { 0, READ, 0, "/d/x|", "1" },
        { 0, DIR, 1, "/|", "a|b|" }, { 0, SET, 1, "/a|n0|r1|", "OK|" }, { 0, PERMS, 1, "/a|", "n0|r1|" },
        { 0, PERMS, 0, "/a|", "n0|" }, { 0, EVENTS, 0, "", "" }, { 0, END, 1, "T|", "OK|" },
        { 0, EVENTS, 0, "", "/a|t|/b/c|t|/d|t|" }, { 0, READ, 0, "/a|", "2" }, { 0, READ, 0, "/b/c|", "3" },
        { 0, READ, 0, "/d|", "ENOENT|" }, { 0, PERMS, 0, "/a|", "n0|r1|" }, { 0, END, 1, "T|", "ENOENT|" },
        { 0, READ, 1, "/a|", "ENOENT|" },
        /* given up */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/a|9", "OK|" }, { 0, WRITE, 1, "/z|9", "OK|" },
        { 0, END, 1, "X|", "EINVAL|" }, { 0, END, 1, "F|", "OK|" }, { 0, READ, 0, "/a|", "2" },
        { 0, EVENTS, 0, "", "" }, { 0, END, 0, "T|", "ENOENT|" },
        /* made, removed, made again in one */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/b/n|1", "OK|" }, { 0, RM, 1, "/b|", "OK|" },
        { 0, READ, 1, "/b/c|", "ENOENT|" }, { 0, WRITE, 1, "/b/m|2", "OK|" }, { 0, DIR, 1, "/b|", "m|" },
        { 0, READ, 1, "/b/c|", "ENOENT|" }, { 0, READ, 1, "/b/n|", "ENOENT|" },
        { 0, WRITE, 1, "/b/c|7", "OK|" }, { 0, END, 1, "T|", "OK|" }, { 0, DIR, 0, "/b|", "c|m|" },
        { 0, READ, 0, "/b/c|", "7" });
}

static void test_nested_transaction(void **state) {
    char text[16];
    u32 tx = (u32)store_begin(&rig_client[1]);
    struct store_packet *r = rig_send(&rig_client[1], START, tx, "", 1);

    assert_string_equal(r->data, "EBUSY");
    snprintf(text, sizeof(text), "T");
    r = rig_send(&rig_client[2], END, tx, text, 2); /* somebody else's */
    assert_string_equal(r->data, "ENOENT");
    r = rig_send(&rig_client[1], END, tx, text, 2);
    assert_string_equal(r->data, "OK");
    r = rig_send(&rig_client[1], READ, 77, "/a", 3);
    assert_string_equal(r->data, "ENOENT");
}

static void test_conflicts(void **state) {
    RUN({ 0, WRITE, 0, "/a|1", "OK|" }, { 0, WRITE, 0, "/b|1", "OK|" }, { 0, WRITE, 0, "/d/x|1", "OK|" },
        /* what was read has changed */
        { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/a|", "1" }, { 0, WRITE, 1, "/b|2", "OK|" },
        { 0, WRITE, 0, "/a|2", "OK|" }, { 0, END, 1, "T|", "EAGAIN|" }, { 0, READ, 0, "/b|", "1" },
        { 0, END, 1, "T|", "ENOENT|" },
        /* what was written */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/a|3", "OK|" }, { 0, WRITE, 0, "/a|4", "OK|" },
        { 0, END, 1, "T|", "EAGAIN|" }, { 0, READ, 0, "/a|", "4" },
        /* nothing that it has seen */
        { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/a|", "4" }, { 0, WRITE, 0, "/b|5", "OK|" },
        { 0, WRITE, 0, "/d/y|1", "OK|" }, { 0, WRITE, 0, "/a/sub|1", "OK|" }, { 0, END, 1, "T|", "OK|" },
        /* a name that was not there is; one that was there is gone */
        { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/d/z|", "ENOENT|" }, { 0, WRITE, 0, "/d/z|1", "OK|" },
        { 0, END, 1, "T|", "EAGAIN|" }, { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/d/z|", "1" },
        { 0, RM, 0, "/d|", "OK|" }, { 0, END, 1, "T|", "EAGAIN|" }, { 0, START, 1, "|", "ID|" },
        { 0, READ, 1, "/q/r|", "ENOENT|" }, { 0, MKDIR, 0, "/q|", "OK|" }, { 0, END, 1, "T|", "EAGAIN|" },
        /* a list that was looked at */
        { 0, START, 1, "|", "ID|" }, { 0, DIR, 1, "/q|", "" }, { 0, MKDIR, 0, "/q/n|", "OK|" },
        { 0, END, 1, "T|", "EAGAIN|" }, { 0, START, 1, "|", "ID|" }, { 0, DIR, 1, "/q|", "n|" },
        { 0, RM, 0, "/q/n|", "OK|" }, { 0, END, 1, "T|", "EAGAIN|" },
        /* two transactions: the second sees what the first has done */
        { 0, START, 1, "|", "ID|" }, { 0, START, 2, "|", "ID|" }, { 0, READ, 1, "/a|", "4" },
        { 0, WRITE, 1, "/b|6", "OK|" }, { 0, READ, 2, "/b|", "5" }, { 0, WRITE, 2, "/a|6", "OK|" },
        { 0, END, 1, "T|", "OK|" }, { 0, END, 2, "T|", "EAGAIN|" }, { 0, READ, 0, "/a|", "4" },
        /* one that is lost goes on until its end, with what there is */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/q/mine|1", "OK|" }, { 0, RM, 0, "/q|", "OK|" },
        { 0, READ, 1, "/q/mine|", "ENOENT|" }, { 0, WRITE, 1, "/q/mine/more|2", "OK|" },
        { 0, RM, 1, "/q|", "OK|" }, { 0, END, 1, "T|", "EAGAIN|" }, { 0, READ, 0, "/q|", "ENOENT|" });
}

static void test_domains(void **state) {
    RUN({ 0, HOME, 0, "3|", "/local/domain/3|" }, { 1, HOME, 0, "007|", "/local/domain/7|" },
        { 1, HOME, 0, "x|", "EINVAL|" }, { 1, HOME, 0, "40000|", "EINVAL|" },
        { 0, XS_IS_DOMAIN_INTRODUCED, 0, "1|", "T|" }, { 0, XS_IS_DOMAIN_INTRODUCED, 0, "9|", "F|" },
        { 1, INTRODUCE, 0, "2|1|1|", "EACCES|" }, { 1, RELEASE, 0, "2|", "EACCES|" },
        { 1, XS_RESUME, 0, "2|", "EACCES|" }, { 1, XS_CONTROL, 0, "help|", "EACCES|" },
        { 0, XS_CONTROL, 0, "help|", "help|" }, { 0, XS_CONTROL, 0, "no|", "EINVAL|" },
        { 0, XS_RESUME, 0, "1|", "OK|" }, { 0, XS_RESUME, 0, "9|", "ENOENT|" },
        { 0, INTRODUCE, 0, "9|1|1|", "ENOENT|" }, { 0, WATCH, 0, "@introduceDomain|i|", "OK|" },
        { 0, WATCH, 0, "@releaseDomain|r|", "OK|" },
        { 0, EVENTS, 0, "", "@introduceDomain|i|@releaseDomain|r|" },
        { 0, PERMS, 0, "@releaseDomain|", "n0|" }, { 0, SET, 0, "@releaseDomain|n0|r2|", "OK|" },
        { 2, WATCH, 0, "@releaseDomain|q|", "OK|" }, { 2, EVENTS, 0, "", "@releaseDomain|q|" },
        { 0, EVENTS, 0, "", "@releaseDomain|r|" }, { 0, RELEASE, 0, "1|", "OK|" },
        { 0, EVENTS, 0, "", "@releaseDomain|r|" }, { 2, EVENTS, 0, "", "@releaseDomain|q|" },
        { 0, XS_IS_DOMAIN_INTRODUCED, 0, "1|", "F|" }, { 0, RELEASE, 0, "1|", "ENOENT|" },
        { 0, INTRODUCE, 0, "1|1|1|", "OK|" }, { 0, EVENTS, 0, "", "@introduceDomain|i|" },
        { 0, XS_IS_DOMAIN_INTRODUCED, 0, "1|", "T|" }, { 0, SET, 0, "@releaseDomain|n0|", "OK|" },
        { 2, EVENTS, 0, "", "@releaseDomain|q|" }, { 0, EVENTS, 0, "", "@releaseDomain|r|" });
    rig_close(3);
    RUN({ 0, EVENTS, 0, "", "@releaseDomain|r|" }, { 0, XS_RESUME, 0, "3|", "ENOENT|" },
        { 2, EVENTS, 0, "", "" });
    rig_open(3);
    RUN({ 0, EVENTS, 0, "", "@introduceDomain|i|" });
}

/* What does not exist, what must not be sent. */
static void test_types(void **state) {
    static const u32 types[] = {
        XS_WATCH_EVENT, XS_ERROR, XS_SET_TARGET, 20, 23, 24, 25, 26, 27, 0xffff, ~0u
    };

    for (u32 i = 0; i < ARRAY_SIZE(types); i++)
        assert_string_equal(rig_send(&rig_client[0], types[i], 0, "/a", 3)->data, "ENOSYS");
}

/* An id that is used again inherits nothing. */
static void test_gone(void **state) {
    RUN({ 0, WRITE, 0, "/local/domain/1/mine|1", "OK|" }, { 0, SET, 0, "/local/domain/1|n0|b1|", "OK|" },
        { 0, WRITE, 0, "/s/x|1", "OK|" }, { 0, SET, 0, "/s|n0|b1|b2|", "OK|" },
        { 0, SET, 0, "/s/x|n0|r2|r1|", "OK|" }, { 1, WRITE, 0, "/s/one|1", "OK|" },
        { 1, WRITE, 0, "/s/one/below|1", "OK|" }, { 2, WRITE, 0, "/s/two|1", "OK|" },
        { 0, WRITE, 0, "/s/one/zero|1", "OK|" }, { 0, SET, 0, "/s/one/zero|n0|", "OK|" },
        { 0, SET, 0, "@introduceDomain|n0|r1|", "OK|" }, { 1, WATCH, 0, "/s|t|", "OK|" },
        { 1, START, 1, "|", "ID|" }, { 0, START, 1, "|", "ID|" }, { 0, SET, 1, "/s/x|n0|r1|", "OK|" },
        { 2, WATCH, 0, "/s|t|", "OK|" }, { 2, EVENTS, 0, "", "/s|t|" });
    rig_close(1);
    rig_open(1);
    RUN({ 1, EVENTS, 0, "", "" }, { 0, READ, 0, "/local/domain/1|", "ENOENT|" },
        { 0, DIR, 0, "/s|", "x|two|" }, { 0, PERMS, 0, "/s|", "n0|b2|" }, { 0, PERMS, 0, "/s/x|", "n0|r2|" },
        { 0, PERMS, 0, "@introduceDomain|", "n0|" }, { 1, READ, 0, "/s/x|", "EACCES|" },
        { 1, END, 1, "T|", "ENOENT|" }, { 0, END, 1, "T|", "EAGAIN|" }, { 2, READ, 0, "/s/two|", "1" });
}

static int fill(struct store_client *c, const char *format, u32 n) {
    char path[64];

    for (u32 i = 0; i < n; i++) {
        snprintf(path, sizeof(path), format, i);
        if (store_mkdir(c, 0, path)) return (int)i;
        rig_settle();
    }
    return (int)n;
}

static void test_quotas(void **state) {
    struct store_client *c = &rig_client[1], *other = &rig_client[2];
    static char value[4096];
    char path[64], token[8];
    u32 memory;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" });
    /* the 1001st node, also by a path with several */
    assert_int_equal(fill(c, "/s/%u", 999), 999);
    assert_int_equal(store_mkdir(c, 0, "/s/a/b"), -ENOSPC);
    assert_int_equal(store_read(c, 0, "/s/a", value, 1), -ENOENT);
    assert_int_equal(store_mkdir(c, 0, "/s/a"), 0);
    rig_settle();
    assert_int_equal(store_mkdir(c, 0, "/s/b"), -ENOSPC);
    assert_int_equal(c->nodes, 1000);
    assert_int_equal(store_mkdir(other, 0, "/s/other"), 0);
    rig_settle();
    assert_int_equal(store_rm(c, 0, "/s/7"), 0);
    rig_settle();
    assert_int_equal(store_mkdir(c, 0, "/s/b"), 0);
    rig_settle();
    /* values */
    assert_int_equal(store_write(c, 0, "/s/1", value, 2049), -ENOSPC);
    assert_int_equal(store_write(c, 0, "/s/1", value, 2048), 0);
    rig_settle();
    /* the 129th watch */
    for (u32 i = 0; i < 128; i++) {
        snprintf(token, sizeof(token), "%u", i);
        assert_int_equal(store_watch(c, "/s/1", token), 0);
    }
    assert_int_equal(store_watch(c, "/s/1", "more"), -ENOSPC);
    assert_int_equal(store_watch(other, "/s/1", "more"), 0);
    memset(value, 'x', STORE_TOKEN_MAX + 1);
    assert_int_equal(store_watch(other, "/s/1", value), -E2BIG);
    value[STORE_TOKEN_MAX] = 0;
    assert_int_equal(store_watch(other, "/s/1", value), 0);
    /* the 11th transaction */
    for (u32 i = 0; i < 10; i++) assert_true(store_begin(c) > 0);
    assert_int_equal(store_begin(c), -ENOSPC);
    assert_true(store_begin(other) > 0);
    /* 2 MiB */
    assert_int_equal(store_reset(c), 0);
    rig_settle();
    for (u32 i = 0; i < 1000; i++) {
        snprintf(path, sizeof(path), "/s/%u", i);
        memory = c->memory;
        if (store_write(c, 0, path, value, 2048) == -ENOSPC && c->memory + 2048 > c->quota.memory) break;
        rig_settle();
        assert_in_range(c->memory, memory, c->quota.memory);
        assert_in_range(i, 0, 998);
    }
    c->quota.memory = c->memory + 100;
    assert_int_equal(store_begin(c), -ENOSPC);
    assert_int_equal(store_watch(c, "/s/1/2/3/4/5/6/7/8/9/0/1/2", "t"), -ENOSPC);
    assert_int_equal(store_write(other, 0, "/s/other", value, 2048), 0);
    rig_settle();
    /* another setting */
    c->quota.nodes = 1100;
    c->quota.memory = 4u << 20;
    assert_int_equal(store_mkdir(c, 0, "/s/c"), 0);
    rig_settle();
    /* the administrator has none */
    assert_int_equal(fill(&rig_client[0], "/n/%u", 2000), 2000);
    assert_int_equal(store_write(&rig_client[0], 0, "/n/1", value, 4096), 0);
}

static void test_transaction_nodes(void **state) {
    struct store_client *c = &rig_client[1];
    char path[32];
    u32 tx, n, nodes;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" });
    c->quota.nodes = 10000;
    tx = (u32)store_begin(c);
    for (n = 0; n < 3000; n++) {
        snprintf(path, sizeof(path), "/s/%u", n);
        if (store_mkdir(c, tx, path)) break;
    }
    assert_int_equal(n, STORE_TX_NODES - 1);
    assert_int_equal(store_end(c, tx, true), 0);
    assert_int_equal(store_read(c, 0, "/s/1", path, 1), -EBUSY); /* not before all of it is there */
    rig_settle();
    assert_int_equal(store_read(c, 0, path, path, 1), -ENOENT);
    assert_int_equal(store_read(c, 0, "/s/1", path, 1), 0);
    assert_int_equal(c->nodes, n);
    /* commit what was removed meanwhile, and what is one too many */
    c->quota.nodes = n + 1;
    tx = (u32)store_begin(c);
    assert_int_equal(store_mkdir(c, tx, "/s/a"), 0);
    assert_int_equal(store_mkdir(c, tx, "/s/b"), -ENOSPC);
    nodes = c->nodes;
    assert_int_equal(store_rm(&rig_client[0], 0, "/s"), 0);
    rig_settle();
    assert_int_equal(c->nodes, nodes - n);
    assert_int_equal(store_end(c, tx, true), -EAGAIN);
    rig_settle();
    assert_int_equal(c->nodes, 0);
}

/* Events that are not read: no more than the quota is kept, none is lost. */
static void test_unread_events(void **state) {
    struct store_client *c = &rig_client[1];
    char buf[XS_PAYLOAD_MAX];
    u32 n = 0;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|r0|", "OK|" }, { 1, WATCH, 0, "/s|t|", "OK|" },
        { 1, EVENTS, 0, "", "/s|t|" });
    rig_notified[1] = 0;
    assert_int_equal(fill(&rig_client[0], "/s/%u", 200), 200);
    assert_int_equal(c->nr_events, 64);
    assert_true(rig_notified[1] > 0);
    assert_true(store_event(c, buf) > 0);
    assert_string_equal(buf, "/s"); /* "look at all below" */
    while (store_event(c, buf)) n++;
    assert_int_equal(n, 64);
    /* without memory as well */
    RUN({ 0, WRITE, 0, "/s/0|1", "OK|" });
    assert_true(store_event(c, buf) > 0);
    assert_string_equal(buf, "/s/0");
    c->quota.memory = c->memory;
    RUN({ 0, WRITE, 0, "/s/0|2", "OK|" });
    assert_true(store_event(c, buf) > 0);
    assert_string_equal(buf, "/s");
    assert_int_equal(store_event(c, buf), 0);
}

static void test_directory_part(void **state) {
    static char all[70000];
    struct store_packet *r;
    char path[64], generation[32] = "";
    u32 len = 0, parts = 0, head;

    assert_int_equal(fill(&rig_client[0], "/d/child-%u", 5000), 5000);
    assert_string_equal(rig_send(&rig_client[0], DIR, 0, "/d", 3)->data, "E2BIG");
    for (;; parts++) {
        head = (u32)snprintf(path, sizeof(path), "/d%c%u", 0, len) + 1;
        r = rig_send(&rig_client[0], XS_DIRECTORY_PART, 0, path, head);
        assert_int_equal(r->head.type, XS_DIRECTORY_PART);
        if (!*generation) memcpy(generation, r->data, strnlen((char *)r->data, 24));
        assert_string_equal(r->data, generation);
        head = (u32)strlen(generation) + 1;
        memcpy(all + len, r->data + head, r->head.len - head);
        len += r->head.len - head;
        if (!all[len - 2]) break;
    }
    assert_in_range(parts, 13, 18);
    len = 0;
    for (u32 i = 0; i < 5000; i++, len += (u32)strlen(all + len) + 1) {
        snprintf(path, sizeof(path), "child-%u", i);
        assert_string_equal(all + len, path);
    }
    assert_string_equal(all + len, "");
    RUN({ 0, WRITE, 0, "/d/child-1/x|1", "OK|" }, { 0, RM, 0, "/d/child-0|", "OK|" });
    r = rig_send(&rig_client[0], XS_DIRECTORY_PART, 0,
                 "/d\0"
                 "0",
                 5);
    assert_string_not_equal(r->data, generation);
    RUN({ 0, XS_DIRECTORY_PART, 0, "/d|", "EINVAL|" }, { 0, XS_DIRECTORY_PART, 0, "/d|x|", "EINVAL|" },
        { 0, XS_DIRECTORY_PART, 0, "/d|0", "EINVAL|" }, { 1, XS_DIRECTORY_PART, 0, "/d|0|", "EACCES|" },
        { 0, WRITE, 0, "/e/f|", "OK|" }, { 0, XS_DIRECTORY_PART, 0, "/none|0|", "ENOENT|" });
}

static int bound_writes;
static char bound_value[16] = "256";

static int bound_write(void *ctx, const char *name, const void *value, u32 len) {
    assert_ptr_equal(ctx, bound_value);
    assert_string_equal(name, "weight");
    if (!len || len > 5 || memchr(value, 'x', len)) return -EINVAL;
    bound_writes++;
    memcpy(bound_value, value, len);
    bound_value[len] = 0;
    return 0;
}

static int bound_read(void *ctx, const char *name, void *buf, u32 size) {
    u32 len = (u32)strlen(bound_value);

    if (len > size) return -E2BIG;
    memcpy(buf, bound_value, len);
    return (int)len;
}

/* Nodes that somebody stands behind, as the scheduler's parameters. */
static void test_bound(void **state) {
    static const struct store_binding b = { bound_write, bound_read }, fixed = { NULL, bound_read };
    static const struct store_perms readable = { 1, { { 0, STORE_R } } };
    static const char path[] = "/local/domain/1/sched/weight";

    assert_int_equal(store_bind(path, &b, bound_value, &readable), 0);
    rig_settle();
    assert_int_equal(store_bind("/takt/fixed", &fixed, NULL, &readable), 0);
    rig_settle();
    RUN({ 0, READ, 0, "/local/domain/1/sched/weight|", "256" }, { 1, READ, 0, "sched/weight|", "256" },
        { 1, WRITE, 0, "sched/weight|512", "EACCES|" }, { 0, WATCH, 0, "/local|t|", "OK|" },
        { 1, WATCH, 0, "sched|t|", "OK|" }, { 0, EVENTS, 0, "", "/local|t|" },
        { 1, EVENTS, 0, "", "sched|t|" }, { 0, WRITE, 0, "/local/domain/1/sched/weight|512", "OK|" },
        { 0, READ, 0, "/local/domain/1/sched/weight|", "512" },
        { 0, EVENTS, 0, "", "/local/domain/1/sched/weight|t|" }, { 1, EVENTS, 0, "", "sched/weight|t|" },
        { 0, WRITE, 0, "/local/domain/1/sched/weight|x", "EINVAL|" }, { 0, EVENTS, 0, "", "" },
        { 0, READ, 0, "/local/domain/1/sched/weight|", "512" },
        { 0, WRITE, 0, "/local/domain/1/sched/weight/sub|1", "EROFS|" },
        { 0, RM, 0, "/local/domain/1/sched/weight|", "EROFS|" },
        { 0, MKDIR, 0, "/local/domain/1/sched/weight|", "OK|" }, { 0, WRITE, 0, "/takt/fixed|1", "EROFS|" },
        { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/local/domain/1/sched/weight|", "512" },
        { 0, WRITE, 1, "/local/domain/1/sched/weight|1", "EROFS|" },
        { 0, RM, 1, "/local/domain/1/sched/weight|", "EROFS|" },
        { 0, WRITE, 1, "/local/domain/1/sched/weight/sub|1", "EROFS|" },
        { 0, SET, 1, "/local/domain/1/sched/weight|b0|", "EROFS|" }, { 0, WRITE, 1, "/ok|1", "OK|" },
        { 0, END, 1, "T|", "OK|" }, { 0, START, 1, "|", "ID|" },
        { 0, READ, 1, "/local/domain/1/sched/weight|", "512" });
    assert_int_equal(bound_writes, 1);
    /* changed by another road */
    strcpy(bound_value, "7");
    assert_int_equal(store_touch(path), 0);
    rig_settle();
    assert_int_equal(store_touch("/none"), -ENOENT);
    RUN({ 1, EVENTS, 0, "", "sched/weight|t|" }, { 1, READ, 0, "sched/weight|", "7" },
        { 0, END, 1, "T|", "EAGAIN|" },
        /* in a transaction that removes it with all around it, it is a node like any other */
        { 0, START, 1, "|", "ID|" }, { 0, RM, 1, "/local|", "OK|" },
        { 0, READ, 1, "/local/domain/1/sched/weight|", "ENOENT|" }, { 0, END, 1, "F|", "OK|" },
        { 0, READ, 0, "/local/domain/1/sched/weight|", "7" });
    assert_int_equal(store_bind(path, NULL, NULL, NULL), 0);
    rig_settle();
    RUN({ 0, WRITE, 0, "/local/domain/1/sched/weight|x", "OK|" },
        { 0, RM, 0, "/local/domain/1/sched/weight|", "OK|" });
}

/* Every allocation of an operation fails in turn: -ENOMEM, and nothing is changed. */
static void test_no_memory(void **state) {
    struct store_client *c = &rig_client[1];
    static const char *const paths[] = { "/s/x", "/s/a/b/c", "/s/gone" };
    char buf[64];
    static char packet[XS_PAYLOAD_MAX];
    unsigned before, at;
    u32 tx, memory;
    int result, sites = 0;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" }, { 1, WRITE, 0, "/s/x|old", "OK|" },
        { 1, WRITE, 0, "/s/gone|", "OK|" });
    for (u32 op = 0; op < 9; op++) {
        for (at = 1;; at++) {
            tx = op >= 4 && op < 8 ? (u32)store_begin(c) : 0;
            before = model_objects;
            memory = c->memory;
            model_fail_at = model_allocations + at;
            switch (op) {
            case 0:
            case 1:
            case 4:
            case 5: result = store_write(c, tx, paths[op % 4], "new", 3); break;
            case 2: result = store_watch(c, "/s/q/r", "t"); break;
            case 3: result = store_begin(c); break;
            case 6: result = store_rm(c, tx, paths[2]); break;
            case 7: {
                struct store_perms p = { .nr = 1, .of = { { 1, STORE_R } } };

                result = store_set_perms(c, tx, "/s/x", &p);
                break;
            }
            default:
                result = store_bind("/s/bind/this", &(struct store_binding){ 0 }, NULL,
                                    &(struct store_perms){ .nr = 1 });
                break;
            }
            if (model_allocations < model_fail_at) break;
            sites++;
            model_fail_at = 0;
            assert_int_equal(result, -ENOMEM);
            if (tx) {
                rig_settle();
                assert_int_equal(store_end(c, tx, op % 2), 0); /* as if it had not been tried */
                rig_settle();
            } else {
                assert_int_equal(model_objects, before);
                assert_int_equal(c->memory, memory);
                assert_int_equal(store_watch(c, "/s", "probe"), 0); /* nothing is in progress */
                assert_int_equal(store_unwatch(c, "/s", "probe"), 0);
            }
            assert_int_equal(store_read(c, 0, "/s/x", buf, sizeof(buf)), 3);
            assert_memory_equal(buf, "old", 3);
            assert_int_equal(store_read(c, 0, "/s/a", buf, sizeof(buf)), -ENOENT);
            assert_int_equal(store_read(c, 0, "/s/gone", buf, sizeof(buf)), 0);
            assert_int_equal(store_read(&rig_client[0], 0, "/s/bind", buf, sizeof(buf)), -ENOENT);
        }
        model_fail_at = 0;
        assert_true(result >= 0);
        rig_settle();
        if (op == 1) {
            RUN({ 1, RM, 0, "/s/a|", "OK|" });
        } else if (op == 0) {
            RUN({ 1, WRITE, 0, "/s/x|old", "OK|" });
        } else if (tx) {
            store_end(c, tx, false);
            rig_settle();
        }
    }
    assert_true(sites > 25);
    assert_int_equal(store_bind("/s/bind/this", NULL, NULL, NULL), 0);
    rig_settle();
    /* committing and events need none */
    RUN({ 1, WATCH, 0, "/s|w|", "OK|" }, { 1, START, 1, "|", "ID|" }, { 1, WRITE, 1, "/s/k/l|1", "OK|" },
        { 1, RM, 1, "/s/x|", "OK|" });
    model_fail_at = model_allocations + 1;
    RUN({ 1, END, 1, "T|", "OK|" }, { 0, READ, 0, "/s/k/l|", "1" }, { 0, READ, 0, "/s/x|", "ENOENT|" });
    model_fail_at = 0;
    while (store_event(c, packet)) at = 0;
    assert_int_equal(at, 0);
}

/* ---- the ring ---- */

static struct xs_page page[RIG_VMS];

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
        all |= what = store_pump(&rig_client[who]);
    } while (what & STORE_MORE);
    return all;
}

/* A packet through the ring, in pieces if it is long; the next packet that comes back. */
static struct store_packet *ring_call(u32 who, u32 type, const void *payload, u32 len) {
    static struct store_packet in, out;
    u32 sent = 0, got = 0, size = sizeof(in.head) + len;

    in.head = (struct xs_header){ .type = type, .req_id = 9, .len = len };
    memcpy(in.data, payload, len);
    for (u32 tries = 0; tries < 100; tries++) {
        sent += ring_put(who, (u8 *)&in + sent, size - sent);
        serve(who);
        got +=
            ring_get(who, (u8 *)&out + got,
                     got < sizeof(out.head) ? sizeof(out.head) - got : sizeof(out.head) + out.head.len - got);
        if (got >= sizeof(out.head) && got == sizeof(out.head) + out.head.len) return &out;
    }
    fail_msg("no reply to %u", type);
    return NULL;
}

static void connect_all(void) {
    for (u32 i = 1; i < RIG_VMS; i++) {
        memset(&page[i], 0xff, sizeof(page[i]));
        store_connect(&rig_client[i], &page[i]);
        assert_int_equal(page[i].req_prod | page[i].rsp_cons | page[i].error | page[i].connection, 0);
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
    assert_string_equal(r->data, "OK");
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
    assert_string_equal(r->data, "OK");
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

/* A client that never reads its replies is no longer served, and costs nobody anything. */
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
    assert_string_equal(ring_call(2, XS_GET_DOMAIN_PATH, "3", 2)->data, "/local/domain/3");
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
    assert_string_equal(ring_call(2, XS_GET_DOMAIN_PATH, "3", 2)->data, "/local/domain/3");
    /* until it asks for another beginning */
    page[1].connection = XS_RECONNECT;
    assert_int_equal(serve(1) & STORE_TELL, STORE_TELL);
    assert_int_equal(page[1].connection, XS_CONNECTED);
    assert_int_equal(page[1].error, 0);
    assert_string_equal(ring_call(1, XS_GET_DOMAIN_PATH, "3", 2)->data, "/local/domain/3");
    assert_string_equal(ring_call(1, XS_WATCH, "x\0t", 4)->data, "OK");
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
    /* the store's own indexes are not the guest's to set */
    page[1].req_cons = 12345;
    page[1].rsp_prod = 54321;
    page[1].req_prod = rig_client[1].req_cons;
    assert_int_equal(serve(1), 0);
    assert_int_equal(page[1].req_cons, rig_client[1].req_cons);
    assert_int_equal(page[1].rsp_prod, rig_client[1].rsp_prod);
    assert_false(rig_client[1].bad);
}

/* One visit answers so many requests and no more, and waits for what another has set going. */
static void test_ring_turns(void **state) {
    struct xs_header h = { .type = XS_GET_DOMAIN_PATH, .len = 2 };
    u32 n = 0;

    connect_all();
    for (; n < 50; n++) {
        ring_put(1, &h, 16);
        ring_put(1, "7", 2);
    }
    rig_client[1].quota.requests = 5;
    assert_int_equal(store_pump(&rig_client[1]), STORE_TELL | STORE_MORE);
    assert_in_range(page[1].rsp_prod, 5 * 32, 6 * 32);
    assert_int_equal(fill(&rig_client[0], "/d/%u", 2000), 2000);
    assert_int_equal(store_rm(&rig_client[0], 0, "/d"), 0);
    n = page[1].rsp_prod;
    assert_int_equal(store_pump(&rig_client[1]), STORE_MORE);
    assert_int_equal(page[1].rsp_prod, n);
    assert_true(serve(1) & STORE_TELL);
    assert_int_equal(page[1].rsp_prod, XS_RING_SIZE);
    /* a VM that was let go */
    RUN({ 0, RELEASE, 0, "1|", "OK|" });
    assert_int_equal(store_pump(&rig_client[1]), 0);
    RUN({ 0, INTRODUCE, 0, "1|0|0|", "OK|" });
}

/* The removal of much, the end of a VM with much: in parts, and no part is long. */
static void test_parts(void **state) {
    u32 parts = 0;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" });
    assert_int_equal(fill(&rig_client[0], "/d/%u", 5000), 5000);
    assert_int_equal(fill(&rig_client[1], "/s/%u", 900), 900);
    assert_int_equal(store_rm(&rig_client[0], 0, "/d"), 0);
    for (; store_work(); parts++) assert_in_range(store_spent, 1, 25000);
    assert_true(parts > 50);
    for (parts = 0; store_close(&rig_client[1]); parts++) assert_in_range(store_spent, 0, 25000);
    assert_true(parts > 10);
    rig_open(1);
    RUN({ 0, DIR, 0, "/s|", "" }, { 0, DIR, 0, "/|", "s|" });
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    static const struct CMUnitTest tests[] = {
        TEST(test_values),
        TEST(test_paths),
        TEST(test_permissions),
        TEST(test_bad_permissions),
        TEST(test_hidden),
        TEST(test_watches),
        TEST(test_watch_rights),
        TEST(test_transactions),
        TEST(test_nested_transaction),
        TEST(test_conflicts),
        TEST(test_domains),
        TEST(test_types),
        TEST(test_gone),
        TEST(test_quotas),
        TEST(test_transaction_nodes),
        TEST(test_unread_events),
        TEST(test_directory_part),
        TEST(test_bound),
        TEST(test_no_memory),
        TEST(test_ring),
        TEST(test_ring_full),
        TEST(test_ring_bad),
        TEST(test_ring_turns),
        TEST(test_parts),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
