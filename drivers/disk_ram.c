#include "drivers/disk_ram.h"

const struct option_kind disk_ram_options[] = {
    { "dev", OPTION_WORD }, { "size", OPTION_BYTES },   { "bw", OPTION_NUMBER },
    { "lat", OPTION_NS },   { "depth", OPTION_NUMBER }, { NULL, 0 },
};

const struct option_kind disk_ram_shared_options[] = {
    { "dev", OPTION_WORD },     { "on", OPTION_WORD }, { "size", OPTION_BYTES },
    { "depth", OPTION_NUMBER }, { NULL, 0 },
};

static struct disk_ram *ram_of(struct disk *d) { return container_of(d, struct disk_ram, disk); }

static u8 *sector_at(struct disk_ram *r, u64 sector) { return r->data + sector * VIRTIO_BLK_SECTOR; }

static bool room(struct disk *d) {
    const struct disk_ram *r = ram_of(d);

    return r->nr < d->depth && disk_model_room(r->device, r->nr);
}

static void begin(struct disk *d, struct disk_request *q, u64 now) {
    struct disk_ram *r = ram_of(d);
    bool moves = q->type == VIRTIO_BLK_IN || q->type == VIRTIO_BLK_OUT;

    q->due = disk_model_begin(r->device, now, moves ? q->bytes : 0);
    disk_row_add(&r->begun, q);
    r->nr++;
}

/* A flush has nothing to do: what has ended is on the disk. */
static void transfer(struct disk_ram *r, const struct disk_request *q) {
    if (q->type == VIRTIO_BLK_IN) disk_give(q, 0, sector_at(r, q->sector), q->bytes);
    if (q->type == VIRTIO_BLK_OUT) disk_take(sector_at(r, q->sector), q, 0, q->bytes);
    for (u32 i = 0; q->type == VIRTIO_BLK_DISCARD && i < q->nr_ranges; i++)
        __builtin_memset(sector_at(r, q->range[i].sector), 0, (u64)q->range[i].sectors * VIRTIO_BLK_SECTOR);
}

static struct disk_request *ended(struct disk *d, u64 now) {
    struct disk_ram *r = ram_of(d);
    struct disk_request *q = r->begun.first;

    if (!q || q->due > now) return NULL;
    disk_row_take(&r->begun);
    r->nr--;
    disk_model_end(r->device);
    transfer(r, q);
    q->status = VIRTIO_BLK_OK;
    return q;
}

static u64 due(const struct disk *d) {
    const struct disk_request *q = container_of(d, const struct disk_ram, disk)->begun.first;

    return q ? q->due : ~0ull;
}

/* What has begun is not done. */
static void stop(struct disk *d) {
    struct disk_ram *r = ram_of(d);

    for (; r->nr; r->nr--) disk_model_end(r->device);
    r->begun.first = NULL;
}

u64 disk_ram_bytes(const char *options) {
    return ALIGN_DOWN(option_bytes(options, "size", DISK_RAM_SIZE), (u64)VIRTIO_BLK_SECTOR);
}

void disk_ram_init(struct disk_ram *d, const char *options, struct disk_model *device, u8 *data) {
    static const struct disk_ops ops = { room, begin, ended, due, stop };
    u64 depth = MAX(option_number(options, "depth", DISK_RAM_DEPTH), 1ull);

    *d = (struct disk_ram){ .disk = { .ops = &ops,
                                      .sectors = disk_ram_bytes(options) / VIRTIO_BLK_SECTOR,
                                      .depth = (u32)MIN(depth, (u64)DISK_RAM_MOST),
                                      .discards = true,
                                      .id = "takt-ram" },
                            .data = data };
    d->model = (struct disk_model){ .bandwidth = option_number(options, "bw", 0),
                                    .latency = option_ns(options, "lat", 0) };
    d->device = device ? device : &d->model;
}
