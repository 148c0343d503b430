#include "drivers/back_blk.h"
#include <takt/errno.h>

#define HDR ((u32)sizeof(struct virtio_blk_hdr))
#define FEATURES                                                                                             \
    (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_INDIRECT) | BIT(VIRTIO_F_EVENT_IDX) | VIRTIO_BLK_F_SEG_MAX |     \
     VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_DISCARD)
#define MAX_DISCARD 4096u /* sectors */
#define MAX_RANGES  4u    /* of a discard */
#define MAX_BYTES   (4u << 20)

const struct option_kind back_blk_options[] = {
    { "size", OPTION_BYTES },
    { "bw", OPTION_NUMBER },
    { "lat", OPTION_NS },
    { "depth", OPTION_NUMBER },
    { NULL, 0 },
};

static const char id[VIRTIO_BLK_ID_BYTES] = "takt-ram";

static u8 *sector_at(struct back_blk *b, u64 sector) { return b->data + sector * VIRTIO_BLK_SECTOR; }

/* Whole sectors within the disk, and not so many that others would wait long? */
static bool within(const struct back_blk *b, u64 sector, u64 bytes) {
    return bytes % VIRTIO_BLK_SECTOR == 0 && bytes <= MAX_BYTES && sector <= b->sectors &&
           bytes / VIRTIO_BLK_SECTOR <= b->sectors - sector;
}

static u32 data_in(const struct vring_chain *c) { return c->in_len - 1; }

static u32 data_out(const struct vring_chain *c) { return c->out_len - HDR; }

/* ---- requests, at their end. The status, and how many bytes were written before it ---- */

static u8 discard(struct back_blk *b, const struct back_blk_request *q) {
    u32 bytes = data_out(&q->c);
    struct virtio_blk_range r;

    if (!bytes || bytes % sizeof(r) || bytes > MAX_RANGES * sizeof(r)) return VIRTIO_BLK_IOERR;
    for (u32 at = 0; at < bytes; at += (u32)sizeof(r)) {
        vring_copy_out(&r, q->c.seg, q->c.nr_out, HDR + at, sizeof(r));
        if (r.flags) return VIRTIO_BLK_UNSUPP;
        if (r.sectors > MAX_DISCARD || !within(b, r.sector, (u64)r.sectors * VIRTIO_BLK_SECTOR))
            return VIRTIO_BLK_IOERR;
        __builtin_memset(sector_at(b, r.sector), 0, (u64)r.sectors * VIRTIO_BLK_SECTOR);
    }
    b->discards++;
    return VIRTIO_BLK_OK;
}

static u8 transfer(struct back_blk *b, const struct back_blk_request *q, u32 *written) {
    const struct vring_chain *c = &q->c;
    const struct vring_seg *in = c->seg + c->nr_out;
    u32 bytes;

    switch (q->hdr.type) {
    case VIRTIO_BLK_IN:
        bytes = data_in(c);
        if (!within(b, q->hdr.sector, bytes)) return VIRTIO_BLK_IOERR;
        *written = vring_copy_in(in, c->nr_in, 0, sector_at(b, q->hdr.sector), bytes);
        b->reads++;
        b->bytes += bytes;
        return VIRTIO_BLK_OK;
    case VIRTIO_BLK_OUT:
        bytes = data_out(c);
        if (!within(b, q->hdr.sector, bytes)) return VIRTIO_BLK_IOERR;
        vring_copy_out(sector_at(b, q->hdr.sector), c->seg, c->nr_out, HDR, bytes);
        b->writes++;
        b->bytes += bytes;
        return VIRTIO_BLK_OK;
    case VIRTIO_BLK_FLUSH: b->flushes++; return VIRTIO_BLK_OK; /* what has ended is on the disk */
    case VIRTIO_BLK_DISCARD: return discard(b, q);
    case VIRTIO_BLK_GET_ID:
        *written = vring_copy_in(in, c->nr_in, 0, id, MIN(data_in(c), VIRTIO_BLK_ID_BYTES));
        return VIRTIO_BLK_OK;
    }
    return VIRTIO_BLK_UNSUPP;
}

static void end(struct back_blk *b, struct back_blk_request *q) {
    u32 written = 0;
    u8 status = transfer(b, q, &written);

    b->errors += status != VIRTIO_BLK_OK;
    /* The last byte that may be written is the status, wherever that is. */
    vring_copy_in(q->c.seg + q->c.nr_out, q->c.nr_in, data_in(&q->c), &status, 1);
    vring_back_put(&b->ring, q->c.head, written + 1);
}

/* Takes the next request: 1; 0: there is none, or the ring is broken. */
static int begin(struct back_blk *b, u64 now) {
    struct back_blk_request *q = &b->pending[(b->first + b->nr) % b->depth];
    int r = vring_back_take(&b->ring, &q->c);

    if (r < 0 || (r && (q->c.out_len < HDR || !q->c.in_len))) { /* no header, or no place for the status */
        back_broken(&b->dev);
        return 0;
    }
    if (!r) return 0;
    vring_copy_out(&q->hdr, q->c.seg, q->c.nr_out, 0, HDR);
    q->due = disk_model_begin(&b->model, now,
                              q->hdr.type == VIRTIO_BLK_IN    ? data_in(&q->c)
                              : q->hdr.type == VIRTIO_BLK_OUT ? data_out(&q->c)
                                                              : 0);
    b->nr++;
    b->nr_most = MAX(b->nr_most, b->nr);
    return 1;
}

u64 back_blk_serve(struct back_blk *b, u64 now) {
    u32 done = 0;

    while (b->dev.live && done < BACK_BLK_BATCH) {
        while (b->nr && b->pending[b->first].due <= now && done < BACK_BLK_BATCH) {
            end(b, &b->pending[b->first]);
            b->first = (b->first + 1) % b->depth;
            b->nr--;
            done++;
        }
        if (b->nr == b->depth) return b->pending[b->first].due; /* the others wait in the ring */
        if (begin(b, now) || !b->dev.live) continue;
        if (b->nr && b->pending[b->first].due <= now) continue;
        if (vring_back_listen(&b->ring)) continue;
        return b->nr ? b->pending[b->first].due : ~0ull;
    }
    return b->dev.live ? 0 : ~0ull;
}

void back_blk_flush(struct back_blk *b) {
    if (!b->dev.live) return;
    b->dev.irq |= vring_back_flush(&b->ring);
    back_interrupt(&b->dev);
}

/* ---- life ---- */

u64 back_blk_bytes(const struct takt_back *info) {
    return ALIGN_DOWN(option_bytes(info->options, "size", BACK_BLK_SIZE), (u64)VIRTIO_BLK_SECTOR);
}

int back_blk_init(struct back_blk *b, const struct driver_env *env, const struct back_calls *calls,
                  const struct takt_back *info, u8 *data, struct takt_offer *offer) {
    const char *o = info->options;
    u64 depth = MAX(option_number(o, "depth", BACK_BLK_DEPTH), 1ull);
    struct virtio_blk_config c = { .seg_max = VRING_MAX_SEGS - 2,
                                   .max_discard_sectors = MAX_DISCARD,
                                   .max_discard_seg = MAX_RANGES,
                                   .discard_alignment = 1 };

    *b = (struct back_blk){ .dev = { .handle = info->handle, .calls = calls }, .env = env, .data = data };
    b->sectors = c.capacity = back_blk_bytes(info) / VIRTIO_BLK_SECTOR;
    b->model = (struct disk_model){ option_number(o, "bw", 0), option_ns(o, "lat", 0), 0 };
    b->depth = (u32)MIN(depth, (u64)BACK_BLK_MOST);
    b->pages = (b->depth * sizeof(*b->pending) + PAGE_SIZE - 1) / PAGE_SIZE;
    b->pending = env->pages(b->pages);
    if (!b->pending) return -ENOMEM;
    *offer = (struct takt_offer){
        .features = FEATURES, .nr_queues = 1, .queue_max = TAKT_QUEUE_MAX, .config_len = sizeof(c)
    };
    __builtin_memcpy(offer->config, &c, sizeof(c));
    return 0;
}

void back_blk_fini(struct back_blk *b) {
    if (b->pending) b->env->pages_free(b->pending, b->pages);
    b->pending = NULL;
}

void back_blk_start(struct back_blk *b, const struct takt_front *f) {
    b->dev.features = f->features;
    b->dev.irq = false;
    b->dev.live = true;
    b->first = b->nr = 0;
    if (!back_ring(&b->dev, &b->ring, f, 0)) back_broken(&b->dev);
}

void back_blk_stop(struct back_blk *b) {
    b->dev.live = false;
    b->nr = 0;
}
