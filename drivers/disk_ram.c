/* A disk in memory. disk_ram.h explains it. */
#include "drivers/disk_ram.h"

const struct option_kind disk_ram_options[] = {
    { "dev", OPTION_WORD }, { "size", OPTION_BYTES },   { "bw", OPTION_NUMBER },
    { "lat", OPTION_NS },   { "depth", OPTION_NUMBER }, { NULL, 0 },
};

const struct option_kind disk_ram_shared_options[] = {
    { "dev", OPTION_WORD },     { "on", OPTION_WORD },      { "size", OPTION_BYTES },
    { "depth", OPTION_NUMBER }, { "share", OPTION_NUMBER }, { NULL, 0 },
};

static struct disk_ram *ram_of(struct disk *d) { return container_of(d, struct disk_ram, disk); }

static u8 *sector_at(struct disk_ram *r, u64 sector) {
    return r->data + sector * VIRTIO_BLK_SECTOR;
}

static bool ram_room(struct disk *d) {
    const struct disk_ram *r = ram_of(d);

    if (r->nr >= d->depth) return false;
    if (r->device->turns) return true; /* what the device has no room for waits for its turn */
    return disk_model_room(r->device, r->nr);
}

/* Begins requests whose turn it is, of all disks on the device, as far as there is room. */
static void ram_take_turns(struct disk_model *device, u64 now) {
    struct disk_turn *turn;
    struct disk_request *q;

    while ((q = disk_turns_next(device->turns, now, &turn))) {
        struct disk_ram *r = container_of(turn, struct disk_ram, turn);

        disk_row_add(&r->begun, q);
        r->nr_begun++;
    }
}

/* Takes a request. The model says when it ends. The data are moved only then, in ram_ended(), as a
 * real disk would do it. */
static void ram_begin(struct disk *d, struct disk_request *q, u64 now) {
    struct disk_ram *r = ram_of(d);
    u32 bytes = 0; /* bytes that go over the bus */

    if (q->type == VIRTIO_BLK_IN || q->type == VIRTIO_BLK_OUT) bytes = q->bytes;
    r->nr++;
    if (r->device->turns) {
        disk_turns_wait(r->device->turns, &r->turn, q);
        ram_take_turns(r->device, now);
        return;
    }
    q->due = disk_model_begin(r->device, now, bytes);
    disk_row_add(&r->begun, q);
    r->nr_begun++;
}

/* The data goes to the disk only when it is known that it is the VM's. */
static void ram_write(struct disk_ram *r, const struct disk_request *q) {
    u8 *to = sector_at(r, q->sector);
    u32 bytes;

    for (u32 at = 0; at < q->bytes; at += bytes) {
        bytes = MIN(q->bytes - at, (u32)DISK_RAM_BOUNCE);
        if (!disk_take(r->bounce, &r->disk, q, at, bytes)) return;
        __builtin_memcpy(to + at, r->bounce, bytes);
    }
}

/* Does what the request asks for. For a flush there is nothing to do, because a write that has
 * ended is on the disk. */
static void ram_transfer(struct disk_ram *r, const struct disk_request *q) {
    switch (q->type) {
    case VIRTIO_BLK_IN: disk_give(q, 0, sector_at(r, q->sector), q->bytes); break;
    case VIRTIO_BLK_OUT: ram_write(r, q); break;
    case VIRTIO_BLK_DISCARD:
        for (u32 i = 0; i < q->nr_ranges; i++)
            __builtin_memset(sector_at(r, q->range[i].sector), 0,
                             (u64)q->range[i].sectors * VIRTIO_BLK_SECTOR);
        break;
    }
}

/* Returns the oldest request if it is due, after its data were moved. Requests end in the order in
 * which they began, so the others need not be looked at. Returns NULL if none is due. */
static struct disk_request *ram_ended(struct disk *d, u64 now) {
    struct disk_ram *r = ram_of(d);
    struct disk_request *q;

    if (r->device->turns) ram_take_turns(r->device, now);
    q = r->begun.first;
    if (!q || q->due > now) return NULL;
    disk_row_take(&r->begun);
    r->nr--;
    r->nr_begun--;
    disk_model_end(r->device);
    ram_transfer(r, q);
    q->status = VIRTIO_BLK_OK;
    return q;
}

static u64 ram_due(const struct disk *d) {
    const struct disk_ram *r = container_of(d, const struct disk_ram, disk);

    if (r->begun.first) return r->begun.first->due;
    if (r->turn.waiting.first) return disk_turns_room_at(r->device->turns);
    return ~0ull;
}

/* Gives up the requests that have begun: they move no data. */
static void ram_stop(struct disk *d) {
    struct disk_ram *r = ram_of(d);

    for (; r->nr_begun; r->nr_begun--) disk_model_end(r->device);
    r->nr = 0;
    r->begun.first = r->turn.waiting.first = NULL;
}

u64 disk_ram_bytes(const char *options) {
    return ALIGN_DOWN(option_bytes(options, "size", DISK_RAM_SIZE), (u64)VIRTIO_BLK_SECTOR);
}

void disk_ram_init(struct disk_ram *d, const char *options, struct disk_model *device, u8 *data) {
    static const struct disk_ops ops = { ram_room, ram_begin, ram_ended, ram_due, ram_stop };
    u64 depth = MAX(option_number(options, "depth", DISK_RAM_DEPTH), 1ull);

    *d = (struct disk_ram){ .disk = { .ops = &ops,
                                      .sectors = disk_ram_bytes(options) / VIRTIO_BLK_SECTOR,
                                      .depth = (u32)MIN(depth, (u64)DISK_RAM_MOST),
                                      .discards = true,
                                      .id = "takt-ram" },
                            .data = data };
    d->model = (struct disk_model){ .bandwidth = option_number(options, "bw", 0),
                                    .latency = option_ns(options, "lat", 0) };
    d->device = device;
    if (!device) d->device = &d->model;
    d->turn.share = (u32)MAX(MIN(option_number(options, "share", 1), 1000ull), 1ull);
    if (d->device->turns) disk_turns_add(d->device->turns, &d->turn);
}
