/* Tables of steps: requests of several clients, and the replies that must come. Payloads are
 * written as in XenStore's documentation (store_rig.h). For CMocka programs. */
#ifndef STORE_STEPS_H
#define STORE_STEPS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
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

static inline void run_steps(const struct step *s, u32 n) {
    char bytes[XS_PAYLOAD_MAX], events[XS_PAYLOAD_MAX];
    struct store_packet *reply;
    const char *got;
    u32 len;

    for (u32 i = 0; i < n; i++, s++) {
        struct store_client *c = &rig_client[s->who];

        if (s->type == EVENTS) {
            for (len = 0;
                 (reply = &c->out)->head.len = (u32)store_event(c, bytes), reply->head.len;) {
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
            fail_msg("step %u: client %u, %u, %s: %s, and not %s", i, s->who, s->type, s->in, got,
                     s->out);
    }
}

#define RUN(...)                                                                                   \
    do {                                                                                           \
        static const struct step steps[] = { __VA_ARGS__ };                                        \
        run_steps(steps, ARRAY_SIZE(steps));                                                       \
    } while (0)

static unsigned objects;

static inline int setup(void **state) {
    memset(txs, 0, sizeof(txs));
    store_quota = (struct store_quota){ 1000, 128, 2048, 10, 5, 20, 64, 2u << 20 };
    objects = model_objects;
    rig_start();
    return 0;
}

static inline int teardown(void **state) {
    rig_end();
    for (u32 i = 0; i < RIG_VMS; i++) {
        assert_int_equal(rig_client[i].memory, 0);
        assert_int_equal(rig_client[i].nodes, 0);
        assert_int_equal(
            rig_client[i].nr_watches + rig_client[i].nr_transactions + rig_client[i].nr_events, 0);
    }
    assert_int_equal(model_objects, objects);
    return 0;
}

static inline int group_setup(void **state) {
    rig_start(); /* the roots are not counted */
    rig_end();
    return 0;
}

/* Makes `n` nodes, as far as it may: how many. */
static inline int fill(struct store_client *c, const char *format, u32 n) {
    char path[64];

    for (u32 i = 0; i < n; i++) {
        snprintf(path, sizeof(path), format, i);
        if (store_mkdir(c, 0, path)) return (int)i;
        rig_settle();
    }
    return (int)n;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
