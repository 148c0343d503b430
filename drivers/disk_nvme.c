/* Disks of VMs that are ranges of the disk behind an NVMe controller (the *store*). Each disk has
 * some *slots*: a buffer that the controller can reach, and the command that is under way with it.
 * Data go through these buffers, because the memory of the VM may be freed while a command is under
 * way. disk_nvme.h has the contracts. */
#include "drivers/disk_nvme.h"
#include <takt/errno.h>

#define BUFFER_PAGES ((size_t)(NVME_TRANSFER / PAGE_SIZE))

const struct option_kind disk_nvme_options[] = {
    { "dev", OPTION_WORD },
    { "offset", OPTION_BYTES },
    { "size", OPTION_BYTES },
    { NULL, 0 },
};

static struct disk_nvme *nvme_of(struct disk *d) { return container_of(d, struct disk_nvme, disk); }

static bool ranges_overlap(u64 first, u64 blocks, u64 first2, u64 blocks2) {
    return first < first2 + blocks2 && first2 < first + blocks;
}

/* ---- requests ---- */

/* Returns whether, in the range of this disk, a command is under way for which nobody waits any
 * more, because it was begun for a VM that is gone. */
static bool others_under_way(const struct disk_nvme *d) {
    for (const struct disk_nvme *o = d->store->disk; o < d->store->disk + DISK_NVME_MOST; o++)
        for (const struct disk_nvme_slot *s = o->slot; s < o->slot + DISK_NVME_DEPTH; s++)
            if (s->busy && !s->q && ranges_overlap(s->first, s->blocks, d->first, d->disk.sectors))
                return true;
    return false;
}

/* Returns a slot of the disk without a command, or NULL. */
static struct disk_nvme_slot *free_slot(struct disk_nvme *d) {
    for (struct disk_nvme_slot *s = d->slot; s < d->slot + DISK_NVME_DEPTH; s++)
        if (!s->busy) return s;
    return NULL;
}

/* Returns whether the disk can begin another request now. A disk that was opened anew takes no
 * request before the commands of the range's earlier owner have ended. */
static bool nvme_room(struct disk *disk) {
    struct disk_nvme *d = nvme_of(disk);

    if (d->waits) d->waits = others_under_way(d);
    return !d->waits && free_slot(d);
}

/* Makes the slot free for another command, because the controller has nothing to do for it any
 * more. */
static void slot_release(struct disk_nvme_slot *s) {
    s->q = NULL;
    s->busy = false;
    s->disk->store->load.in_queue--;
}

/* Gives the request of the slot back, and frees the slot. */
static void slot_end(struct disk_nvme_slot *s, u8 status) {
    s->q->status = status;
    disk_row_add(&s->disk->ended, s->q);
    slot_release(s);
}

/* Writes the ranges of the request to the buffer, in the form in which the device reads them.
 * Returns how many there are. */
static u32 put_ranges(struct disk_nvme_slot *s) {
    struct nvme_range *to = s->command.buffer;
    u32 n = 0;

    for (u32 i = 0; i < s->q->nr_ranges; i++) {
        const struct virtio_blk_range *r = &s->q->range[i];

        if (r->sectors) to[n++] = (struct nvme_range){ 0, r->sectors, s->disk->first + r->sector };
    }
    return n;
}

/* Submits the next piece of the slot's request to the controller: as much of it as one command can
 * move. If that cannot be done, the request ends with an error. */
static void slot_go(struct disk_nvme_slot *s) {
    struct nvme_store *store = s->disk->store;
    const struct disk_request *q = s->q;
    struct nvme_command *c = &s->command;

    s->bytes = MIN(q->bytes - s->at, store->nvme.max_blocks * NVME_BLOCK);
    c->first = s->disk->first + q->sector + s->at / NVME_BLOCK;
    c->blocks = s->bytes / NVME_BLOCK;
    switch (q->type) {
    case VIRTIO_BLK_IN: c->op = NVME_READ; break;
    case VIRTIO_BLK_OUT:
        c->op = NVME_WRITE;
        if (!disk_take(c->buffer, &s->disk->disk, q, s->at, s->bytes)) {
            slot_end(s, VIRTIO_BLK_IOERR);
            return;
        }
        break;
    case VIRTIO_BLK_FLUSH: c->op = NVME_FLUSH; break;
    case VIRTIO_BLK_DISCARD:
        c->op = NVME_DISCARD;
        c->blocks = put_ranges(s);
        if (!c->blocks) {
            slot_end(s, VIRTIO_BLK_OK);
            return;
        }
        break;
    }
    if (nvme_submit(&store->nvme, c, store->now)) slot_end(s, VIRTIO_BLK_IOERR);
}

/* Handles the end of a command; the controller's driver calls it. Copies data that were read to the
 * VM, and then submits the next piece of the request or ends the request. If nobody waits for the
 * command any more, because its VM is gone, the slot only becomes free. */
static void slot_done(struct nvme_command *c, int error) {
    struct disk_nvme_slot *s = container_of(c, struct disk_nvme_slot, command);

    if (!s->q) {
        slot_release(s);
        return;
    }
    if (error) {
        slot_end(s, VIRTIO_BLK_IOERR);
        return;
    }
    if (s->q->type == VIRTIO_BLK_IN) disk_give(s->q, s->at, c->buffer, s->bytes);
    s->at += s->bytes;
    if (s->at < s->q->bytes)
        slot_go(s);
    else
        slot_end(s, VIRTIO_BLK_OK);
}

/* Begins a request in a free slot; nvme_room() has seen that there is one. The slot keeps a copy of
 * the disk's range, because the disk may be closed and opened with another range while the command
 * is still under way. */
static void nvme_begin(struct disk *disk, struct disk_request *q, u64 now) {
    struct disk_nvme *d = nvme_of(disk);
    struct disk_nvme_slot *s = free_slot(d);

    d->store->now = now;
    d->store->load.in_queue++;
    d->store->load.bytes += disk_request_size(q);
    s->busy = true;
    s->q = q;
    s->at = 0;
    s->first = d->first;
    s->blocks = disk->sectors;
    slot_go(s);
}

static struct disk_request *nvme_ended(struct disk *disk, u64 now) {
    return disk_row_take(&nvme_of(disk)->ended);
}

static u64 nvme_disk_due(const struct disk *disk) {
    const struct disk_nvme *d = container_of(disk, const struct disk_nvme, disk);

    if (!d->ended.first) return ~0ull;
    return 0;
}

/* Gives up the requests that are under way, because the VM is gone or has reset its device.
 * Commands that are under way cannot be called back: their slots lose the request, and become free
 * when the controller has done them. */
static void nvme_stop(struct disk *disk) {
    struct disk_nvme *d = nvme_of(disk);

    d->ended.first = NULL;
    d->waits = true;
    for (u32 i = 0; i < DISK_NVME_DEPTH; i++) d->slot[i].q = NULL;
}

/* ---- disks ---- */

/* Allocates the buffers of a disk, if it has none yet. They are never freed, because a device that
 * is broken might still write to them. */
static int get_buffers(struct disk_nvme *d) {
    u8 *p = d->slot[0].command.buffer;

    if (p) return 0;
    p = d->store->env->pages(DISK_NVME_DEPTH * BUFFER_PAGES);
    if (!p) return -ENOMEM;
    for (u32 i = 0; i < DISK_NVME_DEPTH; i++) {
        d->slot[i].disk = d;
        d->slot[i].command =
            (struct nvme_command){ .buffer = p + i * NVME_TRANSFER, .done = slot_done };
    }
    return 0;
}

/* Notes why the disk cannot be opened, and which VM's disk is in the way, for the operator. */
static struct disk *store_refuse(struct nvme_store *s, const char *why,
                                 const struct takt_back *other) {
    s->why = why;
    s->other = other;
    return NULL;
}

/* Changes how many requests the controller may have at a time, as a disk has come or gone. */
static void change_queue(struct nvme_store *s, i32 requests) {
    if (!s->described) s->load.queue = (u32)((i32)s->load.queue + requests);
}

/* Returns the disk that owner->options ask for, or NULL if there is none; then s->why says why. The
 * new disk waits (d->waits) until no command of an earlier owner is under way in its range.
 * Otherwise such a command could still write into the data of the new owner. */
struct disk *nvme_store_open(struct nvme_store *s, const struct takt_back *owner) {
    static const struct disk_ops ops = { nvme_room, nvme_begin, nvme_ended, nvme_disk_due,
                                         nvme_stop };
    u64 all = s->nvme.blocks * NVME_BLOCK, offset = option_bytes(owner->options, "offset", 0);
    u64 size = option_bytes(owner->options, "size", all - MIN(offset, all));
    struct disk_nvme *d = NULL;

    /* An option that is not understood may have been meant as the range. It is better to give no
     * disk than somebody else's data. */
    if (option_unknown(owner->options, disk_nvme_options))
        return store_refuse(s, "its options make no sense", NULL);
    if (s->nvme.why) return store_refuse(s, "the NVMe controller is broken", NULL);
    if (offset % NVME_BLOCK || size % NVME_BLOCK)
        return store_refuse(s, "its offset and size have to be multiples of 512", NULL);
    if (!size || offset > all || size > all - offset)
        return store_refuse(s, "its range is not within the NVMe disk", NULL);
    for (struct disk_nvme *o = s->disk; o < s->disk + DISK_NVME_MOST; o++) {
        if (!o->owner) {
            if ((u32)(o - s->disk) < s->nvme.depth / DISK_NVME_DEPTH && !d) d = o;
        } else if (ranges_overlap(o->first, o->disk.sectors, offset / NVME_BLOCK,
                                  size / NVME_BLOCK)) {
            return store_refuse(s, "its range overlaps that of", o->owner);
        }
    }
    if (!d) return store_refuse(s, "the NVMe controller takes no more disks", NULL);
    d->store = s;
    if (get_buffers(d)) return store_refuse(s, "there is no memory for its buffers", NULL);
    d->owner = owner;
    change_queue(s, DISK_NVME_DEPTH);
    d->first = offset / NVME_BLOCK;
    d->waits = true;
    d->ended.first = NULL;
    d->disk = (struct disk){ .ops = &ops,
                             .sectors = size / NVME_BLOCK,
                             .depth = DISK_NVME_DEPTH,
                             .discards = s->nvme.discards };
    __builtin_memcpy(d->disk.id, s->nvme.serial, sizeof(d->disk.id));
    return &d->disk;
}

void nvme_store_describe(struct nvme_store *s, u64 bandwidth, u32 queue) {
    s->load.bandwidth = bandwidth;
    if (!queue) return;
    s->load.queue = queue;
    s->described = true;
}

void nvme_store_close(struct disk *disk) {
    struct disk_nvme *d = nvme_of(disk);

    d->owner = NULL;
    change_queue(d->store, -(i32)DISK_NVME_DEPTH);
}

bool nvme_store_run(struct nvme_store *s, u64 now) {
    s->now = now;
    return nvme_run(&s->nvme, now);
}

/* Allocates the memory of the queues, and sets the controller up. Returns 0, -ENOMEM, or -ENODEV if
 * the controller cannot be used. The memory is not freed if this fails, because the controller may
 * still write to it. */
int nvme_store_init(struct nvme_store *s, volatile void *regs, u64 bytes,
                    const struct device_env *env, const struct driver_env *driver) {
    void *memory = driver->pages(NVME_MEMORY / PAGE_SIZE);

    *s = (struct nvme_store){ .env = driver, .load = { .by_time = true } };
    if (!memory) return -ENOMEM;
    return nvme_init(&s->nvme, regs, bytes, memory, env);
}
