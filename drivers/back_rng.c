/* The back end of a virtio entropy device. Its one queue has buffers of the driver in the front VM,
 * which are filled with random bytes and given back. back_rng.h has the contracts. */
#include "drivers/back_rng.h"
#include <takt/errno.h>
#include <takt/seed.h>

#define FEATURES (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_INDIRECT) | BIT(VIRTIO_F_EVENT_IDX))

const struct option_kind back_rng_options[] = { { "seed", OPTION_NUMBER }, { 0 } };

/* The source of a device with a seed: everything that it gives can be foretold. */
static bool seeded_word(struct rng_source *s, u64 *word) {
    *word = seed_next(&s->seed);
    return true;
}

/* Writes random bytes to a buffer. Returns how many: all that fit up to BACK_RNG_MOST, or fewer if
 * the source has no more at the moment. */
static u32 fill(struct back_rng *b, const struct vring_chain *c) {
    u32 want = MIN(c->in_len, BACK_RNG_MOST), have = 0;
    u8 bytes[BACK_RNG_MOST];
    u64 word;

    while (have < want && b->source.word(&b->source, &word)) {
        u32 n = MIN(want - have, (u32)sizeof(word));

        __builtin_memcpy(bytes + have, &word, n);
        have += n;
    }
    return vring_copy_in(c->seg + c->nr_out, c->nr_in, 0, bytes, have);
}

/* Fills the buffers that the driver has made available. The specification wants at least one byte
 * in each, so a buffer that cannot be filled stays in the ring for a later turn. */
u64 back_rng_serve(struct back_rng *b, u64 now) {
    struct vring_chain c;

    for (u32 i = 0; b->dev.live && i < BACK_RNG_BATCH; i++) {
        int r = vring_back_take(&b->ring, &c);
        u32 n;

        if (r == 0) {
            if (vring_back_listen(&b->ring)) continue;
            return ~0ull;
        }
        if (r < 0 || !c.in_len) {
            back_broken(&b->dev);
            break;
        }
        n = fill(b, &c);
        if (!n) {
            vring_back_untake(&b->ring, 1);
            return now + BACK_RNG_RETRY;
        }
        vring_back_put(&b->ring, c.head, n);
        b->buffers++;
        b->bytes += n;
    }
    if (!b->dev.live) return ~0ull;
    return 0;
}

void back_rng_flush(struct back_rng *b) {
    if (!b->dev.live) return;
    b->dev.irq |= vring_back_flush(&b->ring);
    back_interrupt(&b->dev);
}

/* ---- life ---- */

int back_rng_init(struct back_rng *b, const struct back_calls *calls, const struct takt_back *info,
                  bool (*hardware)(struct rng_source *s, u64 *word), struct takt_offer *offer) {
    *b = (struct back_rng){ .dev = { .handle = info->handle, .calls = calls },
                            .source = { .word = hardware } };
    if (option_has(info->options, "seed")) {
        b->source.seed = option_number(info->options, "seed", 0);
        b->source.word = seeded_word;
    }
    if (!b->source.word) return -ENODEV;
    *offer =
        (struct takt_offer){ .features = FEATURES, .nr_queues = 1, .queue_max = TAKT_QUEUE_MAX };
    return 0;
}

void back_rng_start(struct back_rng *b, const struct takt_front *f) {
    back_begin(&b->dev, f);
    if (!back_ring(&b->dev, &b->ring, f, 0)) back_broken(&b->dev);
}

void back_rng_stop(struct back_rng *b) { b->dev.live = false; }
