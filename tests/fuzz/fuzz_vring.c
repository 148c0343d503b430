/* The back end's side of a ring whose memory a hostile front end has filled. Each chain that it
 * takes must lie within the window and have a bounded length, so that all its bytes can be read and
 * written, and must be the same when it is taken again. */
#include <stdlib.h>
#include <string.h>
#include "drivers/vring_back.h"

#define RING  0x400 /* bytes of the three parts, for the longest queue here */
#define SIZE  16
#define DESC  0
#define AVAIL 0x100
#define USED  0x200

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok) {
    if (!ok) abort();
}

static void check_chain(const struct takt_window *w, const struct vring_chain *c) {
    static u8 buf[8192];
    u64 sum[2] = { 0 };

    check(c->nr_out + c->nr_in >= 1 && c->nr_out + c->nr_in <= VRING_MAX_SEGS);
    for (u32 i = 0; i < c->nr_out + c->nr_in; i++) {
        check((u64)c->seg[i].p >= w->base && c->seg[i].len);
        sum[i >= c->nr_out] += c->seg[i].len;
    }
    check(sum[0] == c->out_len && sum[1] == c->in_len);
    for (u32 at = 0; at < MIN(c->out_len, 1u << 20); at += sizeof(buf))
        vring_copy_out(buf, c->seg, c->nr_out, at, sizeof(buf));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct takt_window w;
    struct vring_back r;
    struct vring_chain c, again;
    u64 features = 0;
    u32 n, length = SIZE;
    u8 *ram;

    if (size < 8) return 0;
    if (data[0] & 1) features |= BIT(VIRTIO_F_INDIRECT);
    if (data[0] & 2) features |= BIT(VIRTIO_F_EVENT_IDX);
    if (data[1] & 0x80) length = data[1];
    n = MIN((u32)size - 2, 8192u);
    ram = malloc(MAX(n, (u32)RING)); /* the sanitizer finds an access behind it */
    memset(ram, 0, MAX(n, (u32)RING));
    memcpy(ram, data + 2, n);
    w = (struct takt_window){ (u64)ram, MAX(n, (u32)RING), 0 };
    if (vring_back_init(&r, &w, features, length, DESC, AVAIL, USED) == 0) {
        for (u32 i = 0; i < 64; i++) {
            if (vring_back_take(&r, &c) != 1) break;
            check_chain(&w, &c);
            vring_back_untake(&r, 1);
            check(vring_back_take(&r, &again) == 1 && again.head == c.head);
            if (c.nr_in && data[0] & 4)
                vring_copy_in(c.seg + c.nr_out, c.nr_in, data[1], data, (u32)size);
            vring_back_put(&r, c.head, c.in_len);
            if (i % 4 == 3) vring_back_flush(&r);
        }
        vring_back_flush(&r);
        vring_back_listen(&r);
        vring_back_ignore(&r);
        check(!r.broken || vring_back_take(&r, &c) < 0);
    }
    free(ram);
    return 0;
}
