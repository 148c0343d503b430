/* Several modelled devices as one, in stripes. disk_set.h has the contracts. */
#include "drivers/disk_set.h"

const struct option_kind disk_set_options[] = {
    { "of", OPTION_WORD },
    { "stripe", OPTION_BYTES },
    { "queue", OPTION_NUMBER },
    { "sched", OPTION_WORD },
    { NULL, 0 },
};

/* Makes *whole the model of a set without members, by the options of the command line. Returns
 * NULL, or a sentence that says which option is wrong. */
const char *disk_set_init(struct disk_set *s, struct disk_model *whole, const char *options) {
    s->stripe = option_bytes(options, "stripe", DISK_SET_STRIPE);
    if (!s->stripe || s->stripe % VIRTIO_BLK_SECTOR || s->stripe > BIT(30))
        return "its stripe has to be a multiple of 512 bytes, and at most 1G";
    disk_model_init(whole, options);
    whole->set = s;
    return NULL;
}

/* Adds a member at the end. A member without a limit makes the whole one without a limit. */
bool disk_set_add(struct disk_set *s, struct disk_model *whole, struct disk_model *member) {
    if (s->nr == DISK_SET_MOST) return false;
    if (!s->nr) whole->load.bandwidth = 0;
    s->member[s->nr++] = (struct disk_member){ .model = member };
    whole->load.bandwidth += member->load.bandwidth;
    for (u32 k = 0; k < s->nr; k++)
        if (!s->member[k].model->load.bandwidth) whole->load.bandwidth = 0;
    return true;
}

/* Returns how many of the first `bytes` bytes of a disk are on member k: a stripe of each full row
 * of stripes, and what the last row has there. */
static u64 bytes_below(const struct disk_set *s, u32 k, u64 bytes) {
    u64 row = s->stripe * s->nr, rest = bytes % row, before = s->stripe * k;

    if (rest <= before) return bytes / row * s->stripe;
    return bytes / row * s->stripe + MIN(rest - before, s->stripe);
}

u64 disk_set_bytes(const struct disk_set *s, u32 k, u64 at, u64 bytes) {
    return bytes_below(s, k, at + bytes) - bytes_below(s, k, at);
}

/* ---- parts ---- */

/* Tells the member's monitor of the end of its oldest part. */
static void part_end(struct disk_member *d) {
    const struct disk_part *p = &d->part[d->first];

    monitor_end(d->monitor, p->kind, p->bytes, p->begun, p->due);
    disk_model_end(d->model);
    d->first = (d->first + 1) % DISK_MODEL_MOST;
    d->nr--;
}

static void settle(struct disk_member *d, u64 now) {
    while (d->nr && d->part[d->first].due <= now) part_end(d);
}

void disk_set_settle(struct disk_set *s, u64 now) {
    for (u32 k = 0; k < s->nr; k++) settle(&s->member[k], now);
}

/* Begins a part, and returns when it ends. The requests of a VM that was destroyed leave the set's
 * queue, but their parts stay here until their time is over, so there may be more parts than the
 * queue has places. Then the end of the oldest one is told too early, which only changes what the
 * monitor says. */
static u64 part_begin(struct disk_member *d, u64 now, u64 bytes, enum monitor_kind kind) {
    struct disk_part *p;

    settle(d, now);
    if (d->nr == DISK_MODEL_MOST) part_end(d);
    p = &d->part[(d->first + d->nr++) % DISK_MODEL_MOST];
    monitor_begin(d->monitor, now);
    *p = (struct disk_part){ .begun = now, .bytes = bytes, .kind = kind };
    p->due = disk_model_begin(d->model, now, bytes);
    return p->due;
}

/* ---- requests ---- */

static enum monitor_kind part_kind_of(const struct disk_request *q) {
    if (q->type == VIRTIO_BLK_IN) return MONITOR_READ;
    if (q->type == VIRTIO_BLK_OUT) return MONITOR_WRITE;
    return MONITOR_OTHER;
}

/* Begins a request on the members of a set that have a part of it. Returns when it ends, ns. The
 * request ends with the last of its parts. */
static u64 set_begin(struct disk_set *s, u64 now, const struct disk_request *q) {
    u64 due = now;

    for (u32 k = 0; k < s->nr; k++) {
        u64 size = disk_request_size(q), at = q->sector * VIRTIO_BLK_SECTOR, bytes = 0, ends;

        if (size) bytes = disk_set_bytes(s, k, at, size);
        if (size && !bytes) continue;
        ends = part_begin(&s->member[k], now, bytes, part_kind_of(q));
        due = MAX(due, ends);
    }
    return due;
}

/* Begins a request on a device, which is one device or a set of them. Returns when it ends, ns. */
u64 disk_device_begin(struct disk_model *m, u64 now, const struct disk_request *q) {
    u64 bytes = disk_request_size(q);

    if (!m->set) return disk_model_begin(m, now, bytes);
    m->load.in_queue++;
    m->load.bytes += bytes;
    return set_begin(m->set, now, q);
}
