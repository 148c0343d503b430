/* A guest at its page of the store: it sends good and bad packets, lets the indexes jump, and does
 * not fetch replies, while an administrator works there and allocations fail. The hypervisor may
 * read and write nothing beyond the page, the guest must stay within its quotas, and nothing may be
 * left when the guest is gone. */
#include <stdint.h>
#include "../unit/store_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct xs_page page;

static void check(bool ok) {
    if (!ok) abort();
}

static void put(const void *bytes, u32 n) {
    for (u32 i = 0; i < n; i++)
        page.req[(page.req_prod + i) % XS_RING_SIZE] = ((const u8 *)bytes)[i];
    __atomic_store_n(&page.req_prod, page.req_prod + n, __ATOMIC_RELEASE);
}

static void visit(void) {
    struct store_client *c = &rig_client[1];

    for (u32 i = 0; i < 2000 && store_pump(c, i % 4 > 0) & STORE_MORE; i++)
        ;
    check(c->memory <= c->quota.memory && c->nodes <= c->quota.nodes &&
          c->nr_events <= c->quota.events);
    check(c->nr_watches <= c->quota.watches && c->nr_transactions <= c->quota.transactions);
    check(page.req_cons == c->req_cons && page.rsp_prod == c->rsp_prod);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct store_perms open = { .nr = 1, .of = { { 0, 3 } } };
    static const char *const paths[] = { "/local/domain/1/a/b", "/local/domain/1/a" };
    static unsigned objects;
    struct xs_header h;
    size_t at = 0, n;

    rig_start();
    if (!objects) {
        rig_end();
        objects = model_objects;
        rig_start();
    }
    rig_client[1].quota.memory = 16384; /* so little that it is soon used up */
    store_mkdir(&rig_client[0], 0, "/local/domain/1");
    rig_settle();
    store_set_perms(&rig_client[0], 0, "/local/domain/1", &open);
    rig_settle();
    store_connect(&rig_client[1], &page);
    while (at + 4 < size) {
        const uint8_t *d = data + at;

        n = MIN((size_t)d[1], size - at - 4);
        at += 4;
        switch (d[0] % 10) {
        case 0:
            put(d + 4, (u32)n);
            at += n;
            break;
        case 1: page.req_prod += (u32)d[1] << 8 | d[2]; break;
        case 2: page.rsp_cons += (u32)d[1] << 8 | d[2]; break;
        case 3: page.rsp_cons = page.rsp_prod; break;
        case 4: page.connection = d[1] % 2; break;
        case 5: model_fail_at = model_allocations + 1 + d[1] % 8; break;
        case 6:
            if (d[1] == 7) {
                rig_close(1);
                rig_open(1);
                rig_client[1].quota.memory = 16384;
                store_connect(&rig_client[1], &page);
            }
            break;
        case 7: /* the administrator writes a node of the guest */
            store_write(&rig_client[0], 0, paths[d[1] % 2], "x", 1);
            rig_settle();
            break;
        default: /* a packet with a good header */
            h = (struct xs_header){ .type = d[2] % 24, .tx_id = d[3] % 4, .len = (u32)n };
            put(&h, sizeof(h));
            put(d + 4, (u32)n);
            at += n;
            page.rsp_cons = page.rsp_prod;
            break;
        }
        visit();
    }
    model_fail_at = 0;
    rig_end();
    check(rig_client[1].memory == 0 && rig_client[1].nodes == 0 && model_objects == objects);
    return 0;
}
