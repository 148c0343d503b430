/* A disk behind a virtio block device, as its back end sees it. There are two kinds:
 * drivers/disk_ram.h and drivers/disk_nvme.h. */
#ifndef DRIVERS_DISK_H
#define DRIVERS_DISK_H

#include "drivers/back_dev.h"
#include "drivers/virtio.h"
#include "drivers/vring_back.h"

#define DISK_RANGES 4u /* the most ranges that a discard may have */

struct disk_turn;

/* A request that the back end has checked. It asks for whole sectors within the disk, and not for
 * so many that other requests would wait long. */
struct disk_request {
    struct disk_request *next;  /* in a list of the file that has the request at the time */
    struct disk_request *later; /* in back_blk.oldest */
    u32 type;                   /* VIRTIO_BLK_IN, OUT, FLUSH, DISCARD */
    u64 sector;                 /* for IN and OUT */
    u32 bytes;                  /* for IN and OUT; not 0 */
    u32 nr_ranges;              /* for DISCARD */
    struct virtio_blk_range range[DISK_RANGES];
    struct vring_chain c;
    u8 status;              /* VIRTIO_BLK_*: set by the disk when the request ends */
    bool over;              /* it has ended, and waits for older ones; only for the back end */
    u64 begun;              /* when the disk began it, ns; set by the back end */
    u64 due;                /* only for the disk */
    struct disk_turn *turn; /* whose request it is; only for drivers/disk_turns.c */
};

/* Returns how many bytes of data the request moves. */
static inline u32 disk_request_size(const struct disk_request *q) {
    if (q->type == VIRTIO_BLK_IN || q->type == VIRTIO_BLK_OUT) return q->bytes;
    return 0;
}

struct disk {
    const struct disk_ops *ops;
    u64 sectors;
    u32 depth; /* how many requests may have begun and not ended */
    bool discards;
    bool forgets; /* its contents end with the VM that serves it */
    char id[VIRTIO_BLK_ID_BYTES];
    struct back_dev *dev; /* set by the back end, whose requests these are */
};

struct disk_ops {
    /* Returns whether another request may begin. */
    bool (*room)(struct disk *d);
    /* Begins the request at the time `now`; room() was true. It belongs to the disk until ended()
     * returns it. */
    void (*begin)(struct disk *d, struct disk_request *q, u64 now);
    /* Returns a request that has ended by `now`, with its data in place, or NULL if there is none.
     */
    struct disk_request *(*ended)(struct disk *d, u64 now);
    /* Returns the time (ns) at which a request will have ended, or at which there will be room
     * again. ~0 means that the owner of the disk learns that in another way, such as by an
     * interrupt. */
    u64 (*due)(const struct disk *d);
    /* Gives up all requests that have begun: from now on neither they nor their memory are touched.
     */
    void (*stop)(struct disk *d);
};

/* ---- copying the data of a request, beginning at its byte `at` ---- */

/* Copies `bytes` of what the VM wants to write, from byte `at` of the request's data on, to `to`.
 * Returns false if the VM is going: its memory may have been taken away, so anything may be in `to`
 * now. That must not reach the disk, where it would destroy what was synced before. */
static inline bool disk_take(void *to, const struct disk *d, const struct disk_request *q, u32 at,
                             u32 bytes) {
    const u32 header = sizeof(struct virtio_blk_hdr);

    /* Nearly all drivers give the header a segment of its own. Then the data are in the segment
     * behind it, from which vring_copy_out() copies faster. */
    if (q->c.seg[0].len == header)
        vring_copy_out(to, q->c.seg + 1, q->c.nr_out - 1u, at, bytes);
    else
        vring_copy_out(to, q->c.seg, q->c.nr_out, header + at, bytes);
    return !d->dev->calls->gone(d->dev->handle);
}

/* Copies `bytes` that were read from the disk into the VM's memory, to byte `at` of the request's
 * data. */
static inline void disk_give(const struct disk_request *q, u32 at, const void *from, u32 bytes) {
    vring_copy_in(q->c.seg + q->c.nr_out, q->c.nr_in, at, from, bytes);
}

/* ---- requests in a row ---- */

struct disk_row {
    struct disk_request *first, *last;
};

/* Adds the request at the end of the row. */
static inline void disk_row_add(struct disk_row *r, struct disk_request *q) {
    q->next = NULL;
    if (r->first)
        r->last->next = q;
    else
        r->first = q;
    r->last = q;
}

/* Puts the request into a row that is ordered by `due`, behind its equals. Nearly always it belongs
 * to the end. */
static inline void disk_row_insert(struct disk_row *r, struct disk_request *q) {
    struct disk_request **at = &r->first;

    if (!r->first || r->last->due <= q->due) {
        disk_row_add(r, q);
        return;
    }
    while ((*at)->due <= q->due) at = &(*at)->next;
    q->next = *at;
    *at = q;
}

/* Removes and returns the first request of the row, or NULL if it is empty. */
static inline struct disk_request *disk_row_take(struct disk_row *r) {
    struct disk_request *q = r->first;

    if (q) r->first = q->next;
    return q;
}

#endif
