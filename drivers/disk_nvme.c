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

static bool overlap(u64 first, u64 blocks, u64 first2, u64 blocks2) {
    return first < first2 + blocks2 && first2 < first + blocks;
}

/* ---- requests ---- */

/* Is a command under way that nobody waits for, in the range of this disk? */
static bool others_under_way(const struct disk_nvme *d) {
    for (const struct disk_nvme *o = d->store->disk; o < d->store->disk + DISK_NVME_MOST; o++)
        for (const struct disk_nvme_slot *s = o->slot; s < o->slot + DISK_NVME_DEPTH; s++)
            if (s->busy && !s->q && overlap(s->first, s->blocks, d->first, d->disk.sectors)) return true;
    return false;
}

static struct disk_nvme_slot *free_slot(struct disk_nvme *d) {
    for (struct disk_nvme_slot *s = d->slot; s < d->slot + DISK_NVME_DEPTH; s++)
        if (!s->busy) return s;
    return NULL;
}

static bool room(struct disk *disk) {
    struct disk_nvme *d = nvme_of(disk);

    if (d->waits) d->waits = others_under_way(d);
    return !d->waits && free_slot(d);
}

static void end(struct disk_nvme_slot *s, u8 status) {
    s->q->status = status;
    disk_row_add(&s->disk->ended, s->q);
    s->q = NULL;
    s->busy = false;
}

/* Ranges into the buffer; how many. */
static u32 put_ranges(struct disk_nvme_slot *s) {
    struct nvme_range *to = s->command.buffer;
    u32 n = 0;

    for (u32 i = 0; i < s->q->nr_ranges; i++) {
        const struct virtio_blk_range *r = &s->q->range[i];

        if (r->sectors) to[n++] = (struct nvme_range){ 0, r->sectors, s->disk->first + r->sector };
    }
    return n;
}

/* The next piece. */
static void go(struct disk_nvme_slot *s) {
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
        disk_take(c->buffer, q, s->at, s->bytes);
        break;
    case VIRTIO_BLK_FLUSH: c->op = NVME_FLUSH; break;
    case VIRTIO_BLK_DISCARD:
        c->op = NVME_DISCARD;
        c->blocks = put_ranges(s);
        if (!c->blocks) {
            end(s, VIRTIO_BLK_OK);
            return;
        }
        break;
    }
    if (nvme_submit(&store->nvme, c, store->now)) end(s, VIRTIO_BLK_IOERR);
}

static void done(struct nvme_command *c, int error) {
    struct disk_nvme_slot *s = container_of(c, struct disk_nvme_slot, command);

    if (!s->q) {
        s->busy = false;
        return;
    }
    if (error) {
        end(s, VIRTIO_BLK_IOERR);
        return;
    }
    if (s->q->type == VIRTIO_BLK_IN) disk_give(s->q, s->at, c->buffer, s->bytes);
    s->at += s->bytes;
    if (s->at < s->q->bytes)
        go(s);
    else
        end(s, VIRTIO_BLK_OK);
}

static void begin(struct disk *disk, struct disk_request *q, u64 now) {
    struct disk_nvme *d = nvme_of(disk);
    struct disk_nvme_slot *s = free_slot(d);

    d->store->now = now;
    s->busy = true;
    s->q = q;
    s->at = 0;
    s->first = d->first;
    s->blocks = disk->sectors;
    go(s);
}

static struct disk_request *ended(struct disk *disk, u64 now) { return disk_row_take(&nvme_of(disk)->ended); }

static u64 due(const struct disk *disk) {
    return container_of(disk, const struct disk_nvme, disk)->ended.first ? 0 : ~0ull;
}

static void stop(struct disk *disk) {
    struct disk_nvme *d = nvme_of(disk);

    d->ended.first = NULL;
    d->waits = true;
    for (u32 i = 0; i < DISK_NVME_DEPTH; i++) d->slot[i].q = NULL;
}

/* ---- disks ---- */

/* Buffers stay a disk's for ever, since a device that is broken might still write to them. */
static int get_buffers(struct disk_nvme *d) {
    u8 *p = d->slot[0].command.buffer;

    if (p) return 0;
    p = d->store->env->pages(DISK_NVME_DEPTH * BUFFER_PAGES);
    if (!p) return -ENOMEM;
    for (u32 i = 0; i < DISK_NVME_DEPTH; i++) {
        d->slot[i].disk = d;
        d->slot[i].command = (struct nvme_command){ .buffer = p + i * NVME_TRANSFER, .done = done };
    }
    return 0;
}

static struct disk *refuse(struct nvme_store *s, const char *why, const struct takt_back *other) {
    s->why = why;
    s->other = other;
    return NULL;
}

struct disk *nvme_store_open(struct nvme_store *s, const struct takt_back *owner) {
    static const struct disk_ops ops = { room, begin, ended, due, stop };
    u64 all = s->nvme.blocks * NVME_BLOCK, offset = option_bytes(owner->options, "offset", 0);
    u64 size = option_bytes(owner->options, "size", all - MIN(offset, all));
    struct disk_nvme *d = NULL;

    /* What it would have said is not known: better no disk than somebody else's data. */
    if (option_unknown(owner->options, disk_nvme_options))
        return refuse(s, "its options make no sense", NULL);
    if (s->nvme.why) return refuse(s, "the NVMe controller is broken", NULL);
    if (offset % NVME_BLOCK || size % NVME_BLOCK)
        return refuse(s, "its offset and size have to be multiples of 512", NULL);
    if (!size || offset > all || size > all - offset)
        return refuse(s, "its range is not within the NVMe disk", NULL);
    for (struct disk_nvme *o = s->disk; o < s->disk + DISK_NVME_MOST; o++) {
        if (!o->owner) {
            if ((u32)(o - s->disk) < s->nvme.depth / DISK_NVME_DEPTH && !d) d = o;
        } else if (overlap(o->first, o->disk.sectors, offset / NVME_BLOCK, size / NVME_BLOCK)) {
            return refuse(s, "its range overlaps that of", o->owner);
        }
    }
    if (!d) return refuse(s, "the NVMe controller takes no more disks", NULL);
    d->store = s;
    if (get_buffers(d)) return refuse(s, "there is no memory for its buffers", NULL);
    d->owner = owner;
    d->first = offset / NVME_BLOCK;
    d->waits = true;
    d->ended.first = NULL;
    d->disk = (struct disk){
        .ops = &ops, .sectors = size / NVME_BLOCK, .depth = DISK_NVME_DEPTH, .discards = s->nvme.discards
    };
    __builtin_memcpy(d->disk.id, s->nvme.serial, sizeof(d->disk.id));
    return &d->disk;
}

void nvme_store_close(struct disk *disk) { nvme_of(disk)->owner = NULL; }

bool nvme_store_run(struct nvme_store *s, u64 now) {
    s->now = now;
    return nvme_run(&s->nvme, now);
}

int nvme_store_init(struct nvme_store *s, volatile void *regs, u64 bytes, const struct device_env *env,
                    const struct driver_env *driver) {
    void *memory = driver->pages(NVME_MEMORY / PAGE_SIZE);

    *s = (struct nvme_store){ .env = driver };
    return memory ? nvme_init(&s->nvme, regs, bytes, memory, env) : -ENOMEM;
}
