/* The store: what XenStore's documentation says of each operation, case by case; quotas; and
 * what a client can learn of another one. */
#include "store_steps.h"

static void test_values(void **state) {
    RUN({ 0, WRITE, 0, "/a|text", "OK|" }, { 0, READ, 0, "/a|", "text" },
        { 0, WRITE, 0, "/a|x|y|", "OK|" }, /* any bytes */
        { 0, READ, 0, "/a|", "x|y|" }, { 0, WRITE, 0, "/a|", "OK|" }, { 0, READ, 0, "/a|", "" },
        { 0, WRITE, 0, "/b/c/d|1", "OK|" }, /* what is above is made, empty */
        { 0, READ, 0, "/b|", "" }, { 0, DIR, 0, "/b|", "c|" }, { 0, DIR, 0, "/b/c/d|", "" },
        { 0, DIR, 0, "/|", "a|b|" }, { 0, READ, 0, "/|", "" }, { 0, READ, 0, "/none|", "ENOENT|" },
        { 0, READ, 0, "/a/none|", "ENOENT|" }, { 0, DIR, 0, "/none|", "ENOENT|" },
        { 0, MKDIR, 0, "/b/c|", "OK|" }, /* there already: left as it is */
        { 0, MKDIR, 0, "/b/c/d|", "OK|" }, { 0, READ, 0, "/b/c/d|", "1" },
        { 0, MKDIR, 0, "/m/n|", "OK|" }, { 0, READ, 0, "/m/n|", "" }, { 0, RM, 0, "/b|", "OK|" },
        { 0, READ, 0, "/b/c/d|", "ENOENT|" },
        { 0, RM, 0, "/b|", "OK|" }, /* not there: well, if its parent is */
        { 0, RM, 0, "/b/c|", "ENOENT|" }, { 0, RM, 0, "/|", "EINVAL|" },
        { 0, DIR, 0, "/|", "a|m|" });
}

/* An observer reads everything, hears of everything, and changes nothing that is not its own. */
static void test_observer(void **state) {
    rig_client[3].observer = true;
    RUN({ 0, WRITE, 0, "/host/secret|1", "OK|" }, { 0, SET, 0, "/host/secret|n0|", "OK|" },
        { 2, READ, 0, "/host/secret|", "EACCES|" }, { 3, READ, 0, "/host/secret|", "1" },
        { 3, DIR, 0, "/host|", "secret|" }, { 3, WRITE, 0, "/host/secret|2", "EACCES|" },
        { 3, RM, 0, "/host/secret|", "EACCES|" }, { 3, SET, 0, "/host/secret|b3|", "EACCES|" },
        { 3, READ, 0, "/host/none|", "ENOENT|" }, { 0, READ, 0, "/host/secret|", "1" });
    rig_client[3].observer = false;
    RUN({ 3, READ, 0, "/host/secret|", "EACCES|" });
}

static void test_paths(void **state) {
    char path[XS_ABS_PATH_MAX + 3] = "/";

    RUN({ 0, READ, 0, "|", "EINVAL|" }, { 0, READ, 0, "", "EINVAL|" },
        { 0, READ, 0, "/a/|", "EINVAL|" }, { 0, READ, 0, "//a|", "EINVAL|" },
        { 0, READ, 0, "/a//b|", "EINVAL|" }, { 0, READ, 0, "a/|", "EINVAL|" },
        { 2, READ, 0, "/local/domain/|", "EINVAL|" }, { 0, READ, 0, "/a.b|", "EINVAL|" },
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
        { 0, READ, 0, "/local/domain/2/x/y|", "here" },
        { 2, READ, 0, "/local/domain/2/x/y|", "here" }, { 2, DIR, 0, "x|", "y|" });
    memset(path + 1, 'a', sizeof(path) - 2);
    assert_int_equal(store_mkdir(&rig_client[0], 0, path), -EINVAL);
    path[XS_ABS_PATH_MAX] = 0;
    assert_int_equal(store_mkdir(&rig_client[0], 0, path), 0);
    rig_settle();
    /* Relative paths must be shorter. */
    assert_int_equal(store_mkdir(&rig_client[2], 0, path + 1), -EINVAL);
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
        { 1, WRITE, 0, "/a|2", "EACCES|" }, { 1, RM, 0, "/a|", "EACCES|" },
        { 2, READ, 0, "/a|", "EACCES|" }, { 2, WRITE, 0, "/a|2", "OK|" },
        { 3, READ, 0, "/a|", "2" }, { 3, WRITE, 0, "/a|3", "OK|" },
        { 3, SET, 0, "/a|n3|", "EACCES|" },
        /* The first entry is for all clients that have none of their own. */
        { 0, SET, 0, "/a|r0|n2|", "OK|" }, { 1, READ, 0, "/a|", "3" },
        { 2, READ, 0, "/a|", "EACCES|" }, { 0, SET, 0, "/a|b0|", "OK|" },
        { 1, WRITE, 0, "/a|4", "OK|" },
        /* A client that makes a node owns it. The node inherits the permissions of its parent. */
        { 1, WRITE, 0, "/a/x/y|5", "OK|" }, { 0, PERMS, 0, "/a/x|", "b1|" },
        { 0, PERMS, 0, "/a/x/y|", "b1|" }, { 0, WRITE, 0, "/a/x/z|6", "OK|" },
        { 0, PERMS, 0, "/a/x/z|", "b1|" }, /* the administrator does not */
        { 1, SET, 0, "/a/x|n1|r2|", "OK|" }, { 2, READ, 0, "/a/x|", "" },
        { 2, DIR, 0, "/a/x|", "y|z|" }, { 3, READ, 0, "/a/x|", "EACCES|" },
        { 1, WRITE, 0, "/a/x/v|", "OK|" }, { 0, PERMS, 0, "/a/x/v|", "n1|r2|" },
        { 1, SET, 0, "/a/x|n2|", "EPERM|" }, /* only the administrator gives nodes away */
        { 0, SET, 0, "/a/x|n2|", "OK|" }, { 1, READ, 0, "/a/x|", "EACCES|" },
        { 2, READ, 0, "/a/x|", "" },
        { 1, READ, 0, "/a/x/y|", "5" }, /* above it counts for nothing */
        { 2, RM, 0, "/a/x|", "OK|" },   /* and so does what is below */
        { 0, READ, 0, "/a/x/y|", "ENOENT|" });
}

static void test_bad_permissions(void **state) {
    RUN({ 0, MKDIR, 0, "/a|", "OK|" }, { 0, SET, 0, "/a|", "EINVAL|" },
        { 0, SET, 0, "/a||", "EINVAL|" }, { 0, SET, 0, "/a|x1|", "EINVAL|" },
        { 0, SET, 0, "/a|n|", "EINVAL|" }, { 0, SET, 0, "/a|n99999|", "EINVAL|" },
        { 0, SET, 0, "/a|r-1|", "EINVAL|" }, { 0, SET, 0, "/a|n0|r1", "EINVAL|" },
        { 0, SET, 0, "/a|n0 |", "EINVAL|" }, { 0, SET, 0, "/a|n0||", "EINVAL|" },
        { 0, SET, 0, "/a|n18446744073709551616|", "EINVAL|" }, { 0, SET, 0, "/a|n32751|", "OK|" },
        { 0, SET, 0, "/a|n32752|", "EINVAL|" }, { 0, SET, 0, "/a|n0|r1|r1|r1|r1|r1|r1|r1|", "OK|" },
        { 0, SET, 0, "/a|n0|r1|r1|r1|r1|r1|r1|r1|r1|", "ENOSPC|" },
        { 0, SET, 0, "/none|n0|", "ENOENT|" }, { 0, SET, 0, "/a|b1|", "OK|" },
        { 1, SET, 0, "/a|n1|r1|r1|r1|r1|", "OK|" },
        { 1, SET, 0, "/a|n1|r1|r1|r1|r1|r1|", "ENOSPC|" },
        { 0, PERMS, 0, "/a|", "n1|r1|r1|r1|r1|" });
}

/* A client that may not read where a node would be gets the same answer whether the node is there
 * or not. */
static void test_hidden(void **state) {
    RUN({ 0, WRITE, 0, "/local/domain/1/secret|1", "OK|" },
        { 2, READ, 0, "/local/domain/1/secret|", "EACCES|" },
        { 2, READ, 0, "/local/domain/1/none|", "EACCES|" },
        { 2, READ, 0, "/local/domain/9|", "EACCES|" }, { 2, DIR, 0, "/local/domain|", "EACCES|" },
        { 2, PERMS, 0, "/local/domain/1/none|", "EACCES|" },
        { 2, RM, 0, "/local/domain/1/none|", "EACCES|" },
        { 2, MKDIR, 0, "/local/domain/1/secret|", "EACCES|" },
        { 2, MKDIR, 0, "/local/domain/1/none|", "EACCES|" },
        { 2, SET, 0, "/local/domain/1/none|n2|", "EACCES|" },
        { 2, SET, 0, "/local/domain/1/secret|n2|", "EACCES|" },
        { 2, XS_IS_DOMAIN_INTRODUCED, 0, "1|", "EACCES|" },
        { 2, XS_IS_DOMAIN_INTRODUCED, 0, "9|", "EACCES|" },
        /* Neither a watch nor the end of a transaction tells VM 2 of nodes that it may not see. */
        { 2, WATCH, 0, "/local/domain/1|t|", "OK|" }, { 2, WATCH, 0, "@releaseDomain|t|", "OK|" },
        { 2, EVENTS, 0, "", "/local/domain/1|t|@releaseDomain|t|" }, { 2, START, 1, "|", "ID|" },
        { 2, READ, 1, "/local/domain/1/secret|", "EACCES|" },
        { 2, READ, 1, "/local/domain/1/none|", "EACCES|" },
        { 0, WRITE, 0, "/local/domain/1/secret|2", "OK|" },
        { 0, WRITE, 0, "/local/domain/1/none|2", "OK|" }, { 0, RM, 0, "/local/domain/1|", "OK|" },
        { 2, END, 1, "T|", "OK|" }, { 2, EVENTS, 0, "", "" },
        /* If VM 2 may read the directory, it sees the names in it anyway. */
        { 0, SET, 0, "/local/domain|r0|", "OK|" }, { 0, MKDIR, 0, "/local/domain/5|", "OK|" },
        { 0, SET, 0, "/local/domain/5|n0|", "OK|" }, { 2, DIR, 0, "/local/domain|", "5|" },
        { 2, READ, 0, "/local/domain/5|", "EACCES|" },
        { 2, READ, 0, "/local/domain/6|", "ENOENT|" });
}

static void test_watches(void **state) {
    RUN({ 0, WRITE, 0, "/a/b|1", "OK|" }, { 0, WATCH, 0, "/a|t|", "OK|" },
        { 0, EVENTS, 0, "", "/a|t|" }, /* once at first */
        { 0, WATCH, 0, "/a|t|", "EEXIST|" }, { 0, WATCH, 0, "/a|u|", "OK|" },
        { 0, EVENTS, 0, "", "/a|u|" }, { 0, UNWATCH, 0, "/a|u|", "OK|" },
        { 0, UNWATCH, 0, "/a|u|", "ENOENT|" }, { 0, UNWATCH, 0, "/none|t|", "ENOENT|" },
        { 0, WRITE, 0, "/a|2", "OK|" }, { 0, EVENTS, 0, "", "/a|t|" },
        { 0, WRITE, 0, "/a/b|2", "OK|" }, { 0, EVENTS, 0, "", "/a/b|t|" },
        { 0, WRITE, 0, "/a/c/d|2", "OK|" }, { 0, EVENTS, 0, "", "/a/c/d|t|" },
        { 0, WRITE, 0, "/ab|2", "OK|" }, { 0, EVENTS, 0, "", "" }, { 0, READ, 0, "/a|", "2" },
        { 0, EVENTS, 0, "", "" }, { 0, SET, 0, "/a/b|n0|r1|", "OK|" },
        { 0, EVENTS, 0, "", "/a/b|t|" }, { 0, RM, 0, "/a/b|", "OK|" },
        { 0, EVENTS, 0, "", "/a/b|t|" }, { 0, MKDIR, 0, "/a/b|", "OK|" },
        { 0, EVENTS, 0, "", "/a/b|t|" }, { 0, MKDIR, 0, "/a/b|", "OK|" }, { 0, EVENTS, 0, "", "" },
        /* The same event waits only once. */
        { 0, WRITE, 0, "/a/b|3", "OK|" }, { 0, WRITE, 0, "/a/b|4", "OK|" },
        { 0, EVENTS, 0, "", "/a/b|t|" },
        /* A removal tells those who watch below it, each with its own path. */
        { 0, WATCH, 0, "/a/c/d|v|", "OK|" }, { 0, WATCH, 0, "/a/c/none|w|", "OK|" },
        { 0, WATCH, 0, "/|x|", "OK|" }, { 0, EVENTS, 0, "", "/a/c/d|v|/a/c/none|w|/|x|" },
        { 0, RM, 0, "/a|", "OK|" }, { 0, EVENTS, 0, "", "/a/c/d|v|/a|t|/a|x|" },
        { 0, WRITE, 0, "/a/c/none|1", "OK|" },
        { 0, EVENTS, 0, "", "/a/c/none|w|/a/c/none|t|/a/c/none|x|" },
        { 0, XS_RESET_WATCHES, 0, "|", "OK|" }, { 0, WRITE, 0, "/a|2", "OK|" },
        { 0, EVENTS, 0, "", "" }, { 0, WATCH, 0, "/a/|t|", "EINVAL|" },
        { 0, WATCH, 0, "/a|t", "EINVAL|" }, { 0, WATCH, 0, "/a|", "EINVAL|" },
        { 0, WATCH, 0, "/a|t|1|", "EINVAL|" }, { 0, UNWATCH, 0, "/a|", "EINVAL|" },
        { 0, WATCH, 0, "/a||", "OK|" }, { 0, EVENTS, 0, "", "/a||" });
}

static void test_watch_rights(void **state) {
    RUN({ 0, WRITE, 0, "/a|1", "OK|" }, { 0, SET, 0, "/a|n0|r1|", "OK|" },
        { 1, WATCH, 0, "/|t|", "OK|" }, { 2, WATCH, 0, "/a|t|", "OK|" },
        { 1, EVENTS, 0, "", "/|t|" }, { 2, EVENTS, 0, "", "/a|t|" }, { 0, WRITE, 0, "/a|2", "OK|" },
        { 0, WRITE, 0, "/b|2", "OK|" }, { 1, EVENTS, 0, "", "/a|t|" }, { 2, EVENTS, 0, "", "" },
        /* A client that loses or gains the right is told. */
        { 0, SET, 0, "/a|n0|r2|", "OK|" }, { 1, EVENTS, 0, "", "/a|t|" },
        { 2, EVENTS, 0, "", "/a|t|" }, { 0, WRITE, 0, "/a|3", "OK|" }, { 1, EVENTS, 0, "", "" },
        { 2, EVENTS, 0, "", "/a|t|" }, { 0, RM, 0, "/a|", "OK|" }, { 2, EVENTS, 0, "", "/a|t|" },
        { 1, EVENTS, 0, "", "" },
        /* Relative paths come back as relative ones. */
        { 0, MKDIR, 0, "/local/domain/1|", "OK|" }, { 0, SET, 0, "/local/domain/1|b1|", "OK|" },
        { 1, XS_RESET_WATCHES, 0, "|", "OK|" }, { 1, WATCH, 0, "x|t|", "OK|" },
        { 1, WATCH, 0, "x/y|u|", "OK|" }, { 1, WATCH, 0, "/local/domain/1/x|v|", "OK|" },
        { 1, EVENTS, 0, "", "x|t|x/y|u|/local/domain/1/x|v|" },
        { 2, WRITE, 0, "/local/domain/1/x/y|1", "OK|" },
        { 1, EVENTS, 0, "", "x/y|u|x/y|t|/local/domain/1/x/y|v|" });
}

static void test_transactions(void **state) {
    RUN({ 0, WRITE, 0, "/a|1", "OK|" }, { 0, WRITE, 0, "/d/x|1", "OK|" },
        { 0, WATCH, 0, "/|t|", "OK|" }, { 0, EVENTS, 0, "", "/|t|" }, { 0, START, 1, "|", "ID|" },
        { 0, WRITE, 1, "/a|2", "OK|" }, { 0, READ, 1, "/a|", "2" }, { 0, READ, 0, "/a|", "1" },
        { 0, WRITE, 1, "/b/c|3", "OK|" }, { 0, READ, 0, "/b|", "ENOENT|" },
        { 0, DIR, 1, "/|", "a|d|b|" }, { 0, DIR, 0, "/|", "a|d|" }, { 0, RM, 1, "/d|", "OK|" },
        { 0, READ, 1, "/d/x|", "ENOENT|" }, { 0, READ, 0, "/d/x|", "1" },
        { 0, DIR, 1, "/|", "a|b|" }, { 0, SET, 1, "/a|n0|r1|", "OK|" },
        { 0, PERMS, 1, "/a|", "n0|r1|" }, { 0, PERMS, 0, "/a|", "n0|" }, { 0, EVENTS, 0, "", "" },
        { 0, END, 1, "T|", "OK|" }, { 0, EVENTS, 0, "", "/a|t|/b/c|t|/d|t|" },
        { 0, READ, 0, "/a|", "2" }, { 0, READ, 0, "/b/c|", "3" }, { 0, READ, 0, "/d|", "ENOENT|" },
        { 0, PERMS, 0, "/a|", "n0|r1|" }, { 0, END, 1, "T|", "ENOENT|" },
        { 0, READ, 1, "/a|", "ENOENT|" },
        /* The transaction is given up. */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/a|9", "OK|" }, { 0, WRITE, 1, "/z|9", "OK|" },
        { 0, END, 1, "X|", "EINVAL|" }, { 0, END, 1, "F|", "OK|" }, { 0, READ, 0, "/a|", "2" },
        { 0, EVENTS, 0, "", "" }, { 0, END, 0, "T|", "ENOENT|" },
        /* Nodes are made, removed and made again in one transaction. */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/b/n|1", "OK|" }, { 0, RM, 1, "/b|", "OK|" },
        { 0, READ, 1, "/b/c|", "ENOENT|" }, { 0, WRITE, 1, "/b/m|2", "OK|" },
        { 0, DIR, 1, "/b|", "m|" }, { 0, READ, 1, "/b/c|", "ENOENT|" },
        { 0, READ, 1, "/b/n|", "ENOENT|" }, { 0, WRITE, 1, "/b/c|7", "OK|" },
        { 0, END, 1, "T|", "OK|" }, { 0, DIR, 0, "/b|", "c|m|" }, { 0, READ, 0, "/b/c|", "7" },
        /* A node that is made again only as the parent of another one is empty, whatever it
         * held. */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/v|old", "OK|" }, { 0, RM, 1, "/v|", "OK|" },
        { 0, WRITE, 1, "/v/w|1", "OK|" }, { 0, READ, 1, "/v|", "" }, { 0, END, 1, "T|", "OK|" },
        { 0, READ, 0, "/v|", "" }, { 0, READ, 0, "/v/w|", "1" },
        /* A reset ends a transaction, even if the request itself names that transaction. */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/v|2", "OK|" },
        { 0, XS_RESET_WATCHES, 1, "|", "OK|" }, { 0, END, 1, "T|", "ENOENT|" },
        { 0, READ, 0, "/v|", "" });
}

static void test_nested_transaction(void **state) {
    char text[16];
    u32 tx = (u32)store_begin(&rig_client[1]);
    struct store_packet *r = rig_send(&rig_client[1], START, tx, "", 1);

    assert_string_equal(rig_string(r), "EBUSY");
    snprintf(text, sizeof(text), "T");
    r = rig_send(&rig_client[2], END, tx, text, 2); /* somebody else's */
    assert_string_equal(rig_string(r), "ENOENT");
    r = rig_send(&rig_client[1], END, tx, text, 2);
    assert_string_equal(rig_string(r), "OK");
    r = rig_send(&rig_client[1], READ, 77, "/a", 3);
    assert_string_equal(rig_string(r), "ENOENT");
}

static void test_conflicts(void **state) {
    RUN({ 0, WRITE, 0, "/a|1", "OK|" }, { 0, WRITE, 0, "/b|1", "OK|" },
        { 0, WRITE, 0, "/d/x|1", "OK|" },
        /* A value that was read has changed. */
        { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/a|", "1" }, { 0, WRITE, 1, "/b|2", "OK|" },
        { 0, WRITE, 0, "/a|2", "OK|" }, { 0, END, 1, "T|", "EAGAIN|" }, { 0, READ, 0, "/b|", "1" },
        { 0, END, 1, "T|", "ENOENT|" },
        /* A value that was written has changed. */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/a|3", "OK|" }, { 0, WRITE, 0, "/a|4", "OK|" },
        { 0, END, 1, "T|", "EAGAIN|" }, { 0, READ, 0, "/a|", "4" },
        /* Nothing that it has seen has changed. */
        { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/a|", "4" }, { 0, WRITE, 0, "/b|5", "OK|" },
        { 0, WRITE, 0, "/d/y|1", "OK|" }, { 0, WRITE, 0, "/a/sub|1", "OK|" },
        { 0, END, 1, "T|", "OK|" },
        /* A name that was not there is there now, and one that was there is gone. */
        { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/d/z|", "ENOENT|" },
        { 0, WRITE, 0, "/d/z|1", "OK|" }, { 0, END, 1, "T|", "EAGAIN|" },
        { 0, START, 1, "|", "ID|" }, { 0, READ, 1, "/d/z|", "1" }, { 0, RM, 0, "/d|", "OK|" },
        { 0, END, 1, "T|", "EAGAIN|" }, { 0, START, 1, "|", "ID|" },
        { 0, READ, 1, "/q/r|", "ENOENT|" }, { 0, MKDIR, 0, "/q|", "OK|" },
        { 0, END, 1, "T|", "EAGAIN|" },
        /* A list that it looked at has changed. */
        { 0, START, 1, "|", "ID|" }, { 0, DIR, 1, "/q|", "" }, { 0, MKDIR, 0, "/q/n|", "OK|" },
        { 0, END, 1, "T|", "EAGAIN|" }, { 0, START, 1, "|", "ID|" }, { 0, DIR, 1, "/q|", "n|" },
        { 0, RM, 0, "/q/n|", "OK|" }, { 0, END, 1, "T|", "EAGAIN|" },
        /* Two transactions: the second sees what the first has done. */
        { 0, START, 1, "|", "ID|" }, { 0, START, 2, "|", "ID|" }, { 0, READ, 1, "/a|", "4" },
        { 0, WRITE, 1, "/b|6", "OK|" }, { 0, READ, 2, "/b|", "5" }, { 0, WRITE, 2, "/a|6", "OK|" },
        { 0, END, 1, "T|", "OK|" }, { 0, END, 2, "T|", "EAGAIN|" }, { 0, READ, 0, "/a|", "4" },
        /* A transaction that cannot succeed any more goes on until its end, with what there is. */
        { 0, START, 1, "|", "ID|" }, { 0, WRITE, 1, "/q/mine|1", "OK|" },
        { 0, RM, 0, "/q|", "OK|" }, { 0, READ, 1, "/q/mine|", "ENOENT|" },
        { 0, WRITE, 1, "/q/mine/more|2", "OK|" }, { 0, RM, 1, "/q|", "OK|" },
        { 0, END, 1, "T|", "EAGAIN|" }, { 0, READ, 0, "/q|", "ENOENT|" });
}

static void test_domains(void **state) {
    RUN({ 0, HOME, 0, "3|", "/local/domain/3|" }, { 1, HOME, 0, "007|", "/local/domain/7|" },
        { 1, HOME, 0, "x|", "EINVAL|" }, { 1, HOME, 0, "40000|", "EINVAL|" },
        { 0, XS_IS_DOMAIN_INTRODUCED, 0, "1|", "T|" },
        { 0, XS_IS_DOMAIN_INTRODUCED, 0, "9|", "F|" },
        { 0, WATCH, 0, "@introduceDomain|i|", "OK|" }, { 0, WATCH, 0, "@releaseDomain|r|", "OK|" },
        { 0, EVENTS, 0, "", "@introduceDomain|i|@releaseDomain|r|" },
        { 0, PERMS, 0, "@releaseDomain|", "n0|" }, { 0, SET, 0, "@releaseDomain|n0|r2|", "OK|" },
        { 2, WATCH, 0, "@releaseDomain|q|", "OK|" }, { 2, EVENTS, 0, "", "@releaseDomain|q|" },
        { 0, EVENTS, 0, "", "@releaseDomain|r|" });
    rig_close(1);
    RUN({ 0, EVENTS, 0, "", "@releaseDomain|r|" }, { 2, EVENTS, 0, "", "@releaseDomain|q|" },
        { 0, XS_IS_DOMAIN_INTRODUCED, 0, "1|", "F|" });
    rig_open(1);
    RUN({ 0, EVENTS, 0, "", "@introduceDomain|i|" }, { 0, XS_IS_DOMAIN_INTRODUCED, 0, "1|", "T|" },
        { 0, SET, 0, "@releaseDomain|n0|", "OK|" }, { 2, EVENTS, 0, "", "@releaseDomain|q|" },
        { 0, EVENTS, 0, "", "@releaseDomain|r|" });
    rig_close(3);
    RUN({ 0, EVENTS, 0, "", "@releaseDomain|r|" }, { 2, EVENTS, 0, "", "" });
    rig_open(3);
    RUN({ 0, EVENTS, 0, "", "@introduceDomain|i|" });
    /* A VM that is being destroyed is gone. */
    assert_true(store_close(&rig_client[3]));
    rig_settle();
    RUN({ 0, EVENTS, 0, "", "@releaseDomain|r|" }, { 0, XS_IS_DOMAIN_INTRODUCED, 0, "3|", "F|" });
}

/* Tests requests that do not exist, and packets that clients must not send. */
static void test_types(void **state) {
    static const u32 types[] = { XS_WATCH_EVENT,
                                 XS_ERROR,
                                 XS_SET_TARGET,
                                 XS_CONTROL,
                                 XS_INTRODUCE,
                                 XS_RELEASE,
                                 XS_RESUME,
                                 20,
                                 23,
                                 24,
                                 25,
                                 26,
                                 27,
                                 0xffff,
                                 ~0u };

    for (u32 i = 0; i < ARRAY_SIZE(types); i++)
        assert_string_equal(rig_string(rig_send(&rig_client[0], types[i], 0, "/a", 3)), "ENOSYS");
}

/* When an id is used again, the new VM inherits nothing. */
static void test_gone(void **state) {
    RUN({ 0, WRITE, 0, "/local/domain/1/mine|1", "OK|" },
        { 0, SET, 0, "/local/domain/1|n0|b1|", "OK|" }, { 0, WRITE, 0, "/s/x|1", "OK|" },
        { 0, SET, 0, "/s|n0|b1|b2|", "OK|" }, { 0, SET, 0, "/s/x|n0|r2|r1|", "OK|" },
        { 1, WRITE, 0, "/s/one|1", "OK|" }, { 1, WRITE, 0, "/s/one/below|1", "OK|" },
        { 2, WRITE, 0, "/s/two|1", "OK|" }, { 0, WRITE, 0, "/s/one/zero|1", "OK|" },
        { 0, SET, 0, "/s/one/zero|n0|", "OK|" }, { 0, SET, 0, "@introduceDomain|n0|r1|", "OK|" },
        { 1, WATCH, 0, "/s|t|", "OK|" }, { 1, START, 1, "|", "ID|" }, { 0, START, 1, "|", "ID|" },
        { 0, SET, 1, "/s/x|n0|r1|", "OK|" }, { 2, WATCH, 0, "/s|t|", "OK|" },
        { 2, EVENTS, 0, "", "/s|t|" });
    rig_close(1);
    rig_open(1);
    RUN({ 1, EVENTS, 0, "", "" }, { 0, READ, 0, "/local/domain/1|", "ENOENT|" },
        { 0, DIR, 0, "/s|", "x|two|" }, { 0, PERMS, 0, "/s|", "n0|b2|" },
        { 0, PERMS, 0, "/s/x|", "n0|r2|" }, { 0, PERMS, 0, "@introduceDomain|", "n0|" },
        { 1, READ, 0, "/s/x|", "EACCES|" }, { 1, END, 1, "T|", "ENOENT|" },
        { 0, END, 1, "T|", "EAGAIN|" }, { 2, READ, 0, "/s/two|", "1" });
}

static void test_quotas(void **state) {
    struct store_client *c = &rig_client[1], *other = &rig_client[2];
    static char value[4096];
    char path[64], token[8];
    u32 memory;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" });
    /* The 1001st node is refused, even if it is only one of several that a path would make. */
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
    /* A value may have at most 2,048 bytes. */
    assert_int_equal(store_write(c, 0, "/s/1", value, 2049), -ENOSPC);
    assert_int_equal(store_write(c, 0, "/s/1", value, 2048), 0);
    rig_settle();
    /* The 129th watch is refused. */
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
    /* The 11th transaction is refused. */
    for (u32 i = 0; i < 10; i++) assert_true(store_begin(c) > 0);
    assert_int_equal(store_begin(c), -ENOSPC);
    assert_true(store_begin(other) > 0);
    /* The client's nodes, watches and transactions may take 2 MiB of memory together. */
    assert_int_equal(store_reset(c), 0);
    rig_settle();
    for (u32 i = 0; i < 1000; i++) {
        snprintf(path, sizeof(path), "/s/%u", i);
        memory = c->memory;
        if (store_write(c, 0, path, value, 2048) == -ENOSPC && c->memory + 2048 > c->quota.memory)
            break;
        rig_settle();
        assert_in_range(c->memory, memory, c->quota.memory);
        assert_in_range(i, 0, 998);
    }
    c->quota.memory = c->memory + 100;
    assert_int_equal(store_begin(c), -ENOSPC);
    assert_int_equal(store_watch(c, "/s/1/2/3/4/5/6/7/8/9/0/1/2", "t"), -ENOSPC);
    assert_int_equal(store_write(other, 0, "/s/other", value, 2048), 0);
    rig_settle();
    /* A larger quota allows more. */
    c->quota.nodes = 1100;
    c->quota.memory = 4u << 20;
    assert_int_equal(store_mkdir(c, 0, "/s/c"), 0);
    rig_settle();
    /* The administrator has no quotas. */
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
    /* Nobody may read before all of the transaction is written. */
    assert_int_equal(store_read(c, 0, "/s/1", path, 1), -EBUSY);
    rig_settle();
    assert_int_equal(store_read(c, 0, path, path, 1), -ENOENT);
    assert_int_equal(store_read(c, 0, "/s/1", path, 1), 0);
    assert_int_equal(c->nodes, n);
    /* A transaction cannot make one node too many, and cannot commit what was removed meanwhile. */
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

/* A client does not read its events. No more than its quota are kept, and none is lost. */
static void test_unread_events(void **state) {
    struct store_client *c = &rig_client[1];
    char buf[XS_PAYLOAD_MAX];
    u32 n = 0;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|r0|", "OK|" },
        { 1, WATCH, 0, "/s|t|", "OK|" }, { 1, EVENTS, 0, "", "/s|t|" });
    rig_notified[1] = 0;
    assert_int_equal(fill(&rig_client[0], "/s/%u", 200), 200);
    assert_int_equal(c->nr_events, 64);
    assert_true(rig_notified[1] > 0);
    assert_true(store_event(c, buf) > 0);
    assert_string_equal(buf, "/s"); /* "look at all below" */
    while (store_event(c, buf)) n++;
    assert_int_equal(n, 64);
    /* After that, each event names its own node again. An event for which there is no memory
     * becomes such a general event. */
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
    assert_string_equal(rig_string(rig_send(&rig_client[0], DIR, 0, "/d", 3)), "E2BIG");
    for (;; parts++) {
        head = (u32)snprintf(path, sizeof(path), "/d%c%u", 0, len) + 1;
        r = rig_send(&rig_client[0], XS_DIRECTORY_PART, 0, path, head);
        assert_int_equal(r->head.type, XS_DIRECTORY_PART);
        if (!*generation) memcpy(generation, r->data, strnlen((char *)r->data, 24));
        assert_string_equal(rig_string(r), generation);
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
    assert_string_not_equal(rig_string(r), generation);
    RUN({ 0, XS_DIRECTORY_PART, 0, "/d|", "EINVAL|" },
        { 0, XS_DIRECTORY_PART, 0, "/d|x|", "EINVAL|" },
        { 0, XS_DIRECTORY_PART, 0, "/d|0", "EINVAL|" },
        { 1, XS_DIRECTORY_PART, 0, "/d|0|", "EACCES|" }, { 0, WRITE, 0, "/e/f|", "OK|" },
        { 0, XS_DIRECTORY_PART, 0, "/none|0|", "ENOENT|" });
}

static int bound_writes;
static char bound_value[16] = "256";

static int bound_write(void *ctx, const char *name, const char *text) {
    assert_ptr_equal(ctx, bound_value);
    assert_string_equal(name, "weight");
    if (!*text || strlen(text) > 5 || strchr(text, 'x')) return -EINVAL;
    bound_writes++;
    strcpy(bound_value, text);
    return 0;
}

static void bound_read(void *ctx, const char *name, char *text) { strcpy(text, bound_value); }

/* Tests nodes that are bound to functions of the hypervisor, as the scheduler's parameters are. */
static void test_bound(void **state) {
    static const struct store_binding b = { bound_write, bound_read }, fixed = { NULL, bound_read };
    static const struct store_perms readable = { 1, { { 0, STORE_R } } };
    static const char path[] = "/local/domain/1/sched/weight";

    assert_int_equal(store_bind(path, &b, bound_value, &readable), 0);
    rig_settle();
    assert_int_equal(store_bind("/takt/fixed", &fixed, NULL, &readable), 0);
    rig_settle();
    RUN({ 0, READ, 0, "/local/domain/1/sched/weight|", "256" },
        { 1, READ, 0, "sched/weight|", "256" }, { 1, WRITE, 0, "sched/weight|512", "EACCES|" },
        { 0, WATCH, 0, "/local|t|", "OK|" }, { 1, WATCH, 0, "sched|t|", "OK|" },
        { 0, EVENTS, 0, "", "/local|t|" }, { 1, EVENTS, 0, "", "sched|t|" },
        { 0, WRITE, 0, "/local/domain/1/sched/weight|512", "OK|" },
        { 0, READ, 0, "/local/domain/1/sched/weight|", "512" },
        { 0, EVENTS, 0, "", "/local/domain/1/sched/weight|t|" },
        { 1, EVENTS, 0, "", "sched/weight|t|" },
        { 0, WRITE, 0, "/local/domain/1/sched/weight|x", "EINVAL|" }, { 0, EVENTS, 0, "", "" },
        { 0, READ, 0, "/local/domain/1/sched/weight|", "512" },
        { 0, WRITE, 0, "/local/domain/1/sched/weight/sub|1", "EROFS|" },
        { 0, RM, 0, "/local/domain/1/sched/weight|", "EROFS|" },
        { 0, MKDIR, 0, "/local/domain/1/sched/weight|", "OK|" },
        { 0, WRITE, 0, "/takt/fixed|1", "EROFS|" }, { 0, START, 1, "|", "ID|" },
        { 0, READ, 1, "/local/domain/1/sched/weight|", "512" },
        { 0, WRITE, 1, "/local/domain/1/sched/weight|1", "EROFS|" },
        { 0, RM, 1, "/local/domain/1/sched/weight|", "EROFS|" },
        { 0, WRITE, 1, "/local/domain/1/sched/weight/sub|1", "EROFS|" },
        { 0, SET, 1, "/local/domain/1/sched/weight|b0|", "EROFS|" },
        { 0, WRITE, 1, "/ok|1", "OK|" }, { 0, END, 1, "T|", "OK|" }, { 0, START, 1, "|", "ID|" },
        { 0, READ, 1, "/local/domain/1/sched/weight|", "512" });
    assert_int_equal(bound_writes, 1);
    /* The hypervisor has changed the value by itself. */
    strcpy(bound_value, "7");
    assert_int_equal(store_touch(path), 0);
    rig_settle();
    assert_int_equal(store_touch("/none"), -ENOENT);
    RUN({ 1, EVENTS, 0, "", "sched/weight|t|" }, { 1, READ, 0, "sched/weight|", "7" },
        { 0, END, 1, "T|", "EAGAIN|" },
        /* In a transaction that removes it with all around it, it is a node like any other. */
        { 0, START, 1, "|", "ID|" }, { 0, RM, 1, "/local|", "OK|" },
        { 0, READ, 1, "/local/domain/1/sched/weight|", "ENOENT|" }, { 0, END, 1, "F|", "OK|" },
        { 0, READ, 0, "/local/domain/1/sched/weight|", "7" });
    assert_int_equal(store_bind(path, NULL, NULL, NULL), 0);
    rig_settle();
    RUN({ 0, WRITE, 0, "/local/domain/1/sched/weight|x", "OK|" },
        { 0, RM, 0, "/local/domain/1/sched/weight|", "OK|" });
}

/* Every allocation of an operation fails in turn. The operation then returns -ENOMEM, and nothing
 * is changed. */
static void test_no_memory(void **state) {
    struct store_client *c = &rig_client[1];
    static const char *const paths[] = { "/s/x", "/s/a/b/c", "/s/gone" };
    char buf[64];
    static char packet[XS_PAYLOAD_MAX];
    unsigned before, at;
    u32 tx, memory;
    int result, sites = 0;

    RUN({ 0, MKDIR, 0, "/s|", "OK|" }, { 0, SET, 0, "/s|b0|", "OK|" },
        { 1, WRITE, 0, "/s/x|old", "OK|" }, { 1, WRITE, 0, "/s/gone|", "OK|" });
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
    /* Neither a commit nor the events that follow from it need memory. */
    RUN({ 1, WATCH, 0, "/s|w|", "OK|" }, { 1, START, 1, "|", "ID|" },
        { 1, WRITE, 1, "/s/k/l|1", "OK|" }, { 1, RM, 1, "/s/x|", "OK|" });
    model_fail_at = model_allocations + 1;
    RUN({ 1, END, 1, "T|", "OK|" }, { 0, READ, 0, "/s/k/l|", "1" },
        { 0, READ, 0, "/s/x|", "ENOENT|" });
    model_fail_at = 0;
    while (store_event(c, packet)) at = 0;
    assert_int_equal(at, 0);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        TEST(test_values),          TEST(test_observer),
        TEST(test_paths),           TEST(test_permissions),
        TEST(test_bad_permissions), TEST(test_hidden),
        TEST(test_watches),         TEST(test_watch_rights),
        TEST(test_transactions),    TEST(test_nested_transaction),
        TEST(test_conflicts),       TEST(test_domains),
        TEST(test_types),           TEST(test_gone),
        TEST(test_quotas),          TEST(test_transaction_nodes),
        TEST(test_unread_events),   TEST(test_directory_part),
        TEST(test_bound),           TEST(test_no_memory),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
