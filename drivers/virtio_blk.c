/* The driver of a virtio block device, for a guest. A request is a chain of buffers in the ring: a
 * header, the data, and a byte into which the device writes the status. A device with several
 * queues has a `struct virtio_blk` for each. The device is served by another VM. virtio_blk.h has
 * the contracts. */
#include "drivers/virtio_blk.h"
#include <takt/errno.h>

#define FEATURES                                                                                   \
    (BIT(VIRTIO_F_INDIRECT) | BIT(VIRTIO_F_EVENT_IDX) | VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_RO |   \
     VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_DISCARD)

/* Reads the size of the disk and the limits of its requests from the device's configuration. The
 * configuration is read after the features are negotiated, because the features say which of its
 * fields are valid. */
static void read_config(struct virtio_blk *b) {
    u64 features = b->dev->features;
    struct virtio_blk_config c;

    virtio_config(b->dev, 0, &c, sizeof(c));
    b->capacity = c.capacity;
    b->max_parts = VIRTIO_BLK_PARTS;
    if (features & VIRTIO_BLK_F_SEG_MAX) b->max_parts = MAX(MIN(b->max_parts, c.seg_max), 1u);
    b->read_only = features & VIRTIO_BLK_F_RO;
    b->can_flush = features & VIRTIO_BLK_F_FLUSH;
    b->can_discard = features & VIRTIO_BLK_F_DISCARD;
    if (b->can_discard) b->max_discard = c.max_discard_sectors;
}

/* Returns how many queues the device has (5.2.4). */
static u32 queues_of(struct virtio_dev *dev) {
    u16 n = 1;

    if (dev->features & VIRTIO_BLK_F_MQ)
        virtio_config(dev, offsetof(struct virtio_blk_config, num_queues), &n, sizeof(n));
    return MAX(n, 1u);
}

/* Brings the device up with as many queues as it has, but at most `most`, and makes b[0], b[1] and
 * so on the driver of one queue each. Returns how many there are, or a negative error. If a queue
 * cannot be made, the device is reset before the memory of the others is freed, because it could
 * still write there. */
int virtio_blk_start_queues(struct virtio_blk *b, u32 most, struct virtio_dev *dev, u32 size) {
    u64 features = FEATURES;
    u32 nr, made = 0;
    int error;

    if (most > 1) features |= VIRTIO_BLK_F_MQ;
    *b = (struct virtio_blk){ .dev = dev };
    error = virtio_begin(dev, features);
    if (error) return error;
    read_config(b);
    nr = MIN(queues_of(dev), most);
    for (; !error && made < nr; made++) {
        if (made) b[made] = b[0];
        b[made].queue = made;
        error = virtio_queue(dev, made, &b[made].ring, size);
    }
    if (!error) {
        virtio_go(dev);
        return (int)nr;
    }
    if (virtio_reset(dev)) return error;
    while (--made) vring_front_fini(&b[made - 1].ring); /* the last one was not made */
    return error;
}

int virtio_blk_start(struct virtio_blk *b, struct virtio_dev *dev, u32 size) {
    int nr = virtio_blk_start_queues(b, 1, dev, size);

    return MIN(nr, 0);
}

/* Resets the device, ends all requests of its `nr` queues with an error, and frees the rings.
 * Returns 0, or -ETIMEDOUT as virtio_reset() does. The requests can only end after the reset,
 * because until then the device may still write to their memory. */
int virtio_blk_stop_queues(struct virtio_blk *b, u32 nr) {
    struct virtio_blk_request *q;
    int error = virtio_reset(b->dev);

    if (error) return error;
    for (u32 i = 0; i < nr; i++) {
        while ((q = vring_front_drain(&b[i].ring))) q->done(q, -EIO);
        b[i].in_flight = 0;
        vring_front_fini(&b[i].ring);
    }
    return 0;
}

int virtio_blk_stop(struct virtio_blk *b) { return virtio_blk_stop_queues(b, 1); }

/* Returns whether the disk has requests of that type: some are optional features of the device. */
static bool has_type(const struct virtio_blk *b, enum virtio_blk_type type) {
    switch (type) {
    case VIRTIO_BLK_IN:
    case VIRTIO_BLK_OUT: return true;
    case VIRTIO_BLK_FLUSH: return b->can_flush;
    case VIRTIO_BLK_DISCARD: return b->can_discard;
    default: return false;
    }
}

/* Returns how many bytes of data the request moves, or -EINVAL or -ENOSYS as virtio_blk_submit()
 * does. */
static i64 request_bytes(struct virtio_blk *b, const struct virtio_blk_request *q) {
    u64 bytes = 0, sectors;

    if (!has_type(b, q->type)) return -ENOSYS;
    if (q->type == VIRTIO_BLK_FLUSH) return 0;
    if (q->type != VIRTIO_BLK_IN && b->read_only) return -EINVAL;
    if (q->type == VIRTIO_BLK_DISCARD) {
        sectors = q->sectors;
        if (sectors > b->max_discard) return -EINVAL;
    } else {
        if (q->nr > b->max_parts) return -EINVAL;
        for (u32 i = 0; i < q->nr; i++) bytes += q->part[i].len;
        sectors = bytes / VIRTIO_BLK_SECTOR;
    }
    if (!sectors || bytes % VIRTIO_BLK_SECTOR || q->sector > b->capacity) return -EINVAL;
    if (sectors > b->capacity - q->sector) return -EINVAL;
    return (i64)bytes;
}

/* Puts a request into the ring. Returns 0, or an error if the ring is full or the request is not
 * one that the device can do. The chain is the header, then the range of a discard or the data,
 * then the byte for the status. The device has to write the status; 0xff shows that it did not. */
int virtio_blk_submit(struct virtio_blk *b, struct virtio_blk_request *q) {
    u64 (*dma)(const void *) = b->dev->env->dma_addr;
    struct vring_sg sg[VIRTIO_BLK_PARTS + 2];
    u32 nr = 0, nr_out;
    i64 bytes = request_bytes(b, q);
    int error;

    if (bytes < 0) return (int)bytes;
    q->hdr = (struct virtio_blk_hdr){ .type = q->type };
    if (q->type == VIRTIO_BLK_IN || q->type == VIRTIO_BLK_OUT) q->hdr.sector = q->sector;
    q->status = 0xff; /* no status that a device may give */
    sg[nr++] = (struct vring_sg){ dma(&q->hdr), sizeof(q->hdr) };
    if (q->type == VIRTIO_BLK_DISCARD) {
        q->range = (struct virtio_blk_range){ q->sector, q->sectors, 0 };
        sg[nr++] = (struct vring_sg){ dma(&q->range), sizeof(q->range) };
    }
    for (u32 i = 0; bytes && i < q->nr; i++)
        sg[nr++] = (struct vring_sg){ dma(q->part[i].p), q->part[i].len };
    sg[nr++] = (struct vring_sg){ dma(&q->status), 1 };
    nr_out = nr - 1;                          /* the device reads all but the status, */
    if (q->type == VIRTIO_BLK_IN) nr_out = 1; /* or, for a read, only the header */
    error = vring_front_add(&b->ring, sg, nr_out, nr - nr_out, q);
    if (error) return error;
    b->in_flight++;
    b->requests++;
    return 0;
}

bool virtio_blk_flush_ring(struct virtio_blk *b) {
    bool wanted = virtio_kick(b->dev, b->queue, &b->ring);

    if (wanted) b->kicks++;
    return wanted;
}

/* Returns the errno that stands for the status of a request. */
static int error_of_status(u8 status) {
    switch (status) {
    case VIRTIO_BLK_OK: return 0;
    case VIRTIO_BLK_UNSUPP: return -ENOSYS;
    default: return -EIO;
    }
}

/* Ends the requests that the device is done with, and returns how many there were. done() may
 * submit another request at once, so the request is not touched after it. */
u32 virtio_blk_poll(struct virtio_blk *b) {
    struct virtio_blk_request *q;
    u32 n = 0, len;

    while ((q = vring_front_take(&b->ring, &len))) {
        int error = error_of_status(__atomic_load_n(&q->status, __ATOMIC_RELAXED));

        b->in_flight--;
        if (error) b->errors++;
        q->done(q, error);
        n++;
    }
    return n;
}

bool virtio_blk_listen(struct virtio_blk *b, u32 n) {
    return !b->in_flight || vring_front_listen(&b->ring, (u16)MAX(MIN(n, b->in_flight), 1u));
}
