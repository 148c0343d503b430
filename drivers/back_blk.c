/* The back end of a virtio block device: it takes requests from the ring of another VM's driver
 * (the front end), checks them, lets a disk (drivers/disk.h) carry them out, and gives them back
 * with a status. The ring lies in the other VM's memory, so nothing in it is trusted. back_blk.h
 * has the contracts. */
#include "drivers/back_blk.h"
#include <takt/errno.h>

#define HDR ((u32)sizeof(struct virtio_blk_hdr))
#define FEATURES                                                                                   \
    (BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_F_INDIRECT) | BIT(VIRTIO_F_EVENT_IDX) |                  \
     VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_FLUSH)
#define MAX_DISCARD 4096u /* sectors */
#define MAX_BYTES   (4u << 20)

/* Returns whether [sector, sector + bytes) consists of whole sectors within the disk, and is not so
 * long that other requests would wait long for it. */
static bool within(const struct back_blk *b, u64 sector, u64 bytes) {
    return bytes % VIRTIO_BLK_SECTOR == 0 && bytes <= MAX_BYTES && sector <= b->disk->sectors &&
           bytes / VIRTIO_BLK_SECTOR <= b->disk->sectors - sector;
}

/* Returns how many bytes of data the device may write: all that it may write but the byte for the
 * status. */
static u32 data_in(const struct vring_chain *c) { return c->in_len - 1; }

/* Returns how many bytes of data the device may read: all that it may read but the header. */
static u32 data_out(const struct vring_chain *c) { return c->out_len - HDR; }

/* ---- judging requests: VIRTIO_BLK_OK, or the status for one that cannot be done ---- */

/* Checks a request to discard sectors, and copies its ranges to q->range. Only the copy is used
 * after that, because the front end could change its own ranges after they were checked. Returns
 * VIRTIO_BLK_OK, or the status that says why the request cannot be done. */
static u8 judge_discard(struct back_blk *b, struct disk_request *q) {
    u32 bytes = data_out(&q->c);

    if (!b->disk->discards) return VIRTIO_BLK_UNSUPP;
    if (!bytes || bytes % sizeof(q->range[0]) || bytes > sizeof(q->range)) return VIRTIO_BLK_IOERR;
    if (!disk_take(q->range, b->disk, q, 0, bytes)) return VIRTIO_BLK_IOERR;
    q->nr_ranges = bytes / sizeof(q->range[0]);
    for (u32 i = 0; i < q->nr_ranges; i++) {
        const struct virtio_blk_range *r = &q->range[i];

        if (r->flags) return VIRTIO_BLK_UNSUPP;
        if (r->sectors > MAX_DISCARD || !within(b, r->sector, (u64)r->sectors * VIRTIO_BLK_SECTOR))
            return VIRTIO_BLK_IOERR;
    }
    return VIRTIO_BLK_OK;
}

/* Reads the request's header into *q, and checks that the request is of a known type and stays
 * within the disk. The front end may write anything into its ring, so the disk sees no request that
 * was not checked here. Returns VIRTIO_BLK_OK, or the status that says why it cannot be done. */
static u8 judge(struct back_blk *b, struct disk_request *q) {
    struct virtio_blk_hdr hdr;

    vring_copy_header(&hdr, &q->c, HDR);
    q->type = hdr.type;
    q->sector = hdr.sector;
    q->bytes = 0;
    if (b->lost) return VIRTIO_BLK_IOERR;
    switch (hdr.type) {
    case VIRTIO_BLK_IN: q->bytes = data_in(&q->c); break;
    case VIRTIO_BLK_OUT: q->bytes = data_out(&q->c); break;
    case VIRTIO_BLK_FLUSH: return VIRTIO_BLK_OK;
    case VIRTIO_BLK_DISCARD: return judge_discard(b, q);
    case VIRTIO_BLK_GET_ID:
        q->bytes = MIN(data_in(&q->c), VIRTIO_BLK_ID_BYTES);
        return VIRTIO_BLK_OK;
    default: return VIRTIO_BLK_UNSUPP;
    }
    if (!within(b, q->sector, q->bytes)) return VIRTIO_BLK_IOERR;
    return VIRTIO_BLK_OK;
}

/* ---- requests ---- */

/* Counts a request that has ended, for the statistics that the driver domain reports. */
static void request_count(struct back_blk *b, const struct disk_request *q) {
    if (q->status != VIRTIO_BLK_OK) {
        b->errors++;
        return;
    }
    switch (q->type) {
    case VIRTIO_BLK_IN:
        b->reads++;
        b->bytes += q->bytes;
        break;
    case VIRTIO_BLK_OUT:
        b->writes++;
        b->bytes += q->bytes;
        break;
    case VIRTIO_BLK_FLUSH: b->flushes++; break;
    case VIRTIO_BLK_DISCARD: b->discards++; break;
    }
}

/* Tells the monitor, which measures how busy a shared device is, that the disk has ended a request.
 */
static void request_monitor(struct back_blk *b, const struct disk_request *q, u64 now) {
    enum monitor_kind kind = MONITOR_OTHER;
    u64 bytes = 0;

    if (!b->monitor) return;
    if (q->type == VIRTIO_BLK_IN) kind = MONITOR_READ;
    if (q->type == VIRTIO_BLK_OUT) kind = MONITOR_WRITE;
    if (kind != MONITOR_OTHER && q->status == VIRTIO_BLK_OK) bytes = q->bytes;
    monitor_end(b->monitor, kind, bytes, q->begun, now);
}

/* Gives the request back to the driver, with its status. The driver sees it after back_blk_flush().
 */
static void request_give_back(struct back_blk *b, struct disk_request *q) {
    const struct vring_seg *last = &q->c.seg[q->c.nr_out + q->c.nr_in - 1];
    bool read = q->type == VIRTIO_BLK_IN || q->type == VIRTIO_BLK_GET_ID;
    u32 written = 0;

    if (read && q->status == VIRTIO_BLK_OK) written = q->bytes;
    /* The status is the last byte that the device may write (virtio 1.2, 5.2.6). It is the last one
     * of the last segment, because no segment is empty and request_begin() saw that there is one to
     * write. */
    last->p[last->len - 1] = q->status;
    vring_back_put(&b->ring, q->c.head, written + 1);
    q->next = b->unused;
    b->unused = q;
}

/* Notes a request that was taken from the ring behind the older ones, if requests are given back in
 * their order. */
static void request_note(struct back_blk *b, struct disk_request *q) {
    if (!b->ordered) return;
    q->over = false;
    q->later = NULL;
    if (b->oldest)
        b->youngest->later = q;
    else
        b->oldest = q;
    b->youngest = q;
}

/* Handles the end of a request: counts it, and gives it back to the front end. If the front end
 * wants its requests back in order, this one may first have to wait for older ones. */
static void request_end(struct back_blk *b, struct disk_request *q) {
    request_count(b, q);
    b->nr--;
    b->done++;
    if (!b->ordered) {
        request_give_back(b, q);
        return;
    }
    q->over = true;
    while (b->oldest && b->oldest->over) {
        q = b->oldest;
        b->oldest = q->later;
        request_give_back(b, q);
    }
}

/* Returns whether the disk has anything to do for a request that was judged to be possible. */
static bool needs_disk(const struct disk_request *q) {
    switch (q->type) {
    case VIRTIO_BLK_FLUSH:
    case VIRTIO_BLK_DISCARD: return true;
    case VIRTIO_BLK_IN:
    case VIRTIO_BLK_OUT: return q->bytes;
    default: return false;
    }
}

/* Takes the next request and begins it. Returns 1, or 0 if there is none or the ring is broken. */
static int request_begin(struct back_blk *b, u64 now) {
    struct disk_request *q = b->unused;
    int r = vring_back_take(&b->ring, &q->c);

    /* It has no header, or no place for the status. */
    if (r < 0 || (r && (q->c.out_len < HDR || !q->c.in_len))) {
        back_broken(&b->dev);
        return 0;
    }
    if (!r) return 0;
    if (b->polled) vring_back_ignore(&b->ring);
    b->unused = q->next;
    request_note(b, q);
    b->nr++;
    b->nr_most = MAX(b->nr_most, b->nr);
    q->status = judge(b, q);
    if (q->status == VIRTIO_BLK_OK && q->type == VIRTIO_BLK_GET_ID)
        disk_give(q, 0, b->disk->id, q->bytes);
    if (q->status != VIRTIO_BLK_OK || !needs_disk(q)) {
        request_end(b, q);
        return 1;
    }
    q->begun = now;
    if (b->monitor) monitor_begin(b->monitor, now);
    b->disk->ops->begin(b->disk, q, now);
    return 1;
}

/* Ends the requests of the disk that are due, and takes new ones from the front end's ring. Returns
 * the time (ns) at which it wants to be called again. Requests that have ended come first, because
 * each of them frees a place for a new one. The function goes to sleep only after
 * vring_back_listen() has found the ring empty. Otherwise a request that arrives just before that
 * would wait until the next notification. */
u64 back_blk_serve(struct back_blk *b, u64 now) {
    const struct disk_ops *d = b->disk->ops;
    struct disk_request *q;

    for (b->done = 0; b->dev.live && b->done < BACK_BLK_BATCH;) {
        while (b->done < BACK_BLK_BATCH && (q = d->ended(b->disk, now))) {
            request_monitor(b, q, now);
            request_end(b, q);
        }
        if (b->done == BACK_BLK_BATCH) break;
        /* Further requests wait in the ring. */
        if (!d->room(b->disk) || !b->unused) return d->due(b->disk);
        if (request_begin(b, now) || !b->dev.live) continue;
        if (b->polled) return now;
        if (d->due(b->disk) <= now) continue;
        if (vring_back_listen(&b->ring)) continue;
        return d->due(b->disk);
    }
    if (!b->dev.live) return ~0ull;
    return 0;
}

void back_blk_flush(struct back_blk *b) {
    if (!b->dev.live) return;
    b->dev.irq |= vring_back_flush(&b->ring);
    back_interrupt(&b->dev);
}

/* ---- life ---- */

/* Sets up the back end for the device that `info` describes, with `disk` behind it, and fills in
 * *offer, which is what the front end will see. Returns 0, or -ENOMEM. Memory for all requests that
 * the disk can have under way is allocated now, so that there is nothing to allocate while requests
 * are served. */
int back_blk_init(struct back_blk *b, const struct driver_env *env, const struct back_calls *calls,
                  const struct takt_back *info, struct disk *disk, struct takt_offer *offer) {
    struct virtio_blk_config c = { .capacity = disk->sectors, .seg_max = VRING_MAX_SEGS - 2 };
    u64 features = FEATURES;

    *b = (struct back_blk){ .dev = { .handle = info->handle, .calls = calls },
                            .env = env,
                            .disk = disk };
    disk->dev = &b->dev;
    b->pages = (disk->depth * sizeof(*b->requests) + PAGE_SIZE - 1) / PAGE_SIZE;
    b->requests = env->pages(b->pages);
    if (!b->requests) return -ENOMEM;
    if (disk->discards) {
        features |= VIRTIO_BLK_F_DISCARD;
        c.max_discard_sectors = MAX_DISCARD;
        c.max_discard_seg = DISK_RANGES;
        c.discard_alignment = 1;
    }
    *offer = (struct takt_offer){
        .features = features, .nr_queues = 1, .queue_max = TAKT_QUEUE_MAX, .config_len = sizeof(c)
    };
    __builtin_memcpy(offer->config, &c, sizeof(c));
    return 0;
}

/* Changes the offer of one disk into that of a disk with `nr` queues. The number of queues stands
 * in the configuration that the driver reads, and counts only if the feature is offered as well. */
void back_blk_offer_queues(struct takt_offer *offer, u32 nr) {
    struct virtio_blk_config c;

    __builtin_memcpy(&c, offer->config, sizeof(c));
    c.num_queues = (u16)nr;
    __builtin_memcpy(offer->config, &c, sizeof(c));
    offer->nr_queues = nr;
    offer->features |= VIRTIO_BLK_F_MQ;
}

void back_blk_fini(struct back_blk *b) {
    if (b->requests) b->env->pages_free(b->requests, b->pages);
    b->requests = NULL;
}

/* Begins to serve the front end that *f describes. All request structures go into the list of
 * unused ones, because no request is under way. If an earlier back end served this ring and the
 * disk's contents ended with it (`lost`), all requests will fail. A ring that lies outside the
 * window makes the device broken at once. */
void back_blk_start(struct back_blk *b, const struct takt_front *f) {
    back_begin(&b->dev, f);
    b->ordered = f->flags & TAKT_FRONT_ORDERED;
    b->lost = b->disk->forgets && f->flags & TAKT_FRONT_RESUMED;
    b->oldest = NULL;
    b->unused = NULL;
    for (u32 i = 0; i < b->disk->depth; i++) {
        b->requests[i].next = b->unused;
        b->unused = &b->requests[i];
    }
    /* A driver need not use all queues. */
    if (b->queue && !(b->queue < f->nr_queues && f->queue[b->queue].ready)) b->dev.live = false;
    if (!b->dev.live) return;
    if (!back_ring(&b->dev, &b->ring, f, b->queue))
        back_broken(&b->dev);
    else if (b->polled)
        vring_back_ignore(&b->ring);
}

void back_blk_stop(struct back_blk *b) {
    b->dev.live = false;
    b->disk->ops->stop(b->disk);
    b->nr = 0;
}
