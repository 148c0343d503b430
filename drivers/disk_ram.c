/* A disk in memory, which outlives the VM that uses it. The data are in pages of this VM; a model
 * (drivers/disk_model.h) says when each request ends, and only then the data are moved. Several
 * disks may be on one shared device, and then take turns (drivers/disk_turns.h). disk_ram.h has the
 * contracts. */
#include "drivers/disk_ram.h"
#include "drivers/disk_set.h"

const struct option_kind disk_ram_options[] = {
    { "dev", OPTION_WORD },
    { "size", OPTION_BYTES },
    { "bw", OPTION_NUMBER },
    { "lat", OPTION_NS },
    { "depth", OPTION_NUMBER },
    { "keep", OPTION_NUMBER },
    { NULL, 0 },
};

const struct option_kind disk_ram_shared_options[] = {
    { "dev", OPTION_WORD },       { "on", OPTION_WORD },      { "size", OPTION_BYTES },
    { "depth", OPTION_NUMBER },   { "share", OPTION_NUMBER }, { "socket", OPTION_NUMBER },
    { "sockets", OPTION_NUMBER }, { "keep", OPTION_NUMBER },  { NULL, 0 },
};

static struct disk_ram *ram_of(struct disk *d) { return container_of(d, struct disk_ram, disk); }

/* Returns how many of the `bytes` bytes of the disk from `byte` on are in the page of the first. */
static u32 within_page(u64 byte, u64 bytes) {
    return (u32)MIN(PAGE_SIZE - byte % PAGE_SIZE, bytes);
}

/* Returns whether the disk may begin another request. */
static bool ram_room(struct disk *d) {
    const struct disk_ram *r = ram_of(d);

    if (r->nr >= d->depth) return false;
    if (r->device->turns) return true; /* what the device has no room for waits for its turn */
    return disk_model_room(r->device, r->nr);
}

/* Takes the lock that guards the disks on this disk's device. With I/O cores several vCPUs use the
 * device at the same time, and each disk on it is changed by whoever begins its requests. */
static void ram_lock(const struct disk_ram *r) {
    if (r->core) driver_lock(&r->device->turns->lock);
}

static void ram_unlock(const struct disk_ram *r) {
    if (r->core) driver_unlock(&r->device->turns->lock);
}

/* Begins requests whose turn it is, of all disks on the device, as far as there is room. */
static void ram_take_turns(struct disk_model *device, u64 now) {
    struct disk_request *q;

    while ((q = disk_turns_next(device->turns, now))) {
        struct disk_ram *r = container_of(q->turn, struct disk_ram, turn);

        q->due += r->remote_ns;
        disk_row_insert(&r->begun, q);
        r->nr_begun++;
    }
}

/* Begins a request, or puts it where it waits for its turn. The model of the disk says when a
 * request that has begun will end. The data are moved only then, in ram_ended(), as a real disk
 * would do it. */
static void ram_begin(struct disk *d, struct disk_request *q, u64 now) {
    struct disk_ram *r = ram_of(d);

    r->nr++;
    if (r->device->turns) {
        ram_lock(r);
        disk_round_wait(r->round, &r->turn, q);
        ram_take_turns(r->device, now);
        ram_unlock(r);
        return;
    }
    q->due = disk_device_begin(r->device, now, q);
    disk_row_insert(&r->begun, q);
    r->nr_begun++;
}

/* Copies the data of a read from the disk's pages to the VM. */
static void ram_read(struct disk_ram *r, const struct disk_request *q) {
    u64 byte = q->sector * VIRTIO_BLK_SECTOR;
    u32 bytes;

    for (u32 at = 0; at < q->bytes; at += bytes, byte += bytes) {
        bytes = within_page(byte, q->bytes - at);
        disk_give(q, at, r->data->page[byte / PAGE_SIZE] + byte % PAGE_SIZE, bytes);
    }
}

/* Carries out a write: copies the request's data from the VM's memory to the disk's pages. They go
 * to the spare page first. The disk gets them only when it is known that they are the VM's data,
 * because the VM may be going: a whole page by changing places with the spare page, and parts of a
 * page by a second copy. */
static void ram_write(struct disk_ram *r, const struct disk_request *q) {
    struct disk_ram_data *d = r->data;
    u64 byte = q->sector * VIRTIO_BLK_SECTOR;
    u32 bytes;

    for (u32 at = 0; at < q->bytes; at += bytes, byte += bytes) {
        u8 **page = &d->page[byte / PAGE_SIZE];
        u8 *copy = d->spare;

        bytes = within_page(byte, q->bytes - at);
        if (!disk_take(copy, &r->disk, q, at, bytes)) return;
        if (bytes == PAGE_SIZE) {
            d->spare = *page;
            *page = copy;
        } else {
            __builtin_memcpy(*page + byte % PAGE_SIZE, copy, bytes);
        }
    }
}

/* Empties the sectors that a discard names. What was discarded reads as zeros. */
static void ram_discard(struct disk_ram *r, const struct virtio_blk_range *range) {
    u64 byte = range->sector * VIRTIO_BLK_SECTOR;
    u64 end = byte + (u64)range->sectors * VIRTIO_BLK_SECTOR;
    u32 bytes;

    for (; byte < end; byte += bytes) {
        bytes = within_page(byte, end - byte);
        __builtin_memset(r->data->page[byte / PAGE_SIZE] + byte % PAGE_SIZE, 0, bytes);
    }
}

/* Does what the request asks for. For a flush there is nothing to do, because a write that has
 * ended is on the disk. */
static void ram_transfer(struct disk_ram *r, const struct disk_request *q) {
    switch (q->type) {
    case VIRTIO_BLK_IN: ram_read(r, q); break;
    case VIRTIO_BLK_OUT: ram_write(r, q); break;
    case VIRTIO_BLK_DISCARD:
        for (u32 i = 0; i < q->nr_ranges; i++) ram_discard(r, &q->range[i]);
        break;
    }
}

/* Takes the request that ends first, if it is due. Returns NULL if none is due. */
static struct disk_request *ram_take_due(struct disk_ram *r, u64 now) {
    struct disk_request *q;

    if (r->device->turns) ram_take_turns(r->device, now);
    q = r->begun.first;
    if (!q || q->due > now) return NULL;
    disk_row_take(&r->begun);
    r->nr--;
    r->nr_begun--;
    disk_model_end(r->device);
    if (r->core) {
        r->core->ended++;
        r->core->latency_ns += now - q->begun;
    }
    return q;
}

/* Does the work of ram_ended() for a disk that has requests. */
static __attribute__((noinline)) struct disk_request *ram_end_one(struct disk_ram *r, u64 now) {
    struct disk_request *q;

    ram_lock(r);
    q = ram_take_due(r, now);
    ram_unlock(r);
    if (!q) return NULL;
    if (r->core) driver_lock(&r->data->lock);
    ram_transfer(r, q);
    if (r->core) driver_unlock(&r->data->lock);
    q->status = VIRTIO_BLK_OK;
    return q;
}

/* Returns a request that is due, after its data were moved. The back end and I/O cores ask again
 * and again, so a disk without requests gives its answer at once, without the lock. */
static struct disk_request *ram_ended(struct disk *d, u64 now) {
    struct disk_ram *r = ram_of(d);

    if (!r->nr) return NULL;
    return ram_end_one(r, now);
}

static u64 ram_due(const struct disk *d) {
    const struct disk_ram *r = container_of(d, const struct disk_ram, disk);

    if (r->begun.first) return r->begun.first->due;
    if (r->turn.waiting.first) return disk_turns_room_at(r->device->turns);
    return ~0ull;
}

/* Gives up all requests of the disk, those that wait for their turn as well; none of them moves
 * data any more. An I/O core may have chosen one of them to be next. That can also be a core which
 * served the disk earlier, so all cores on the device are looked at. */
static void ram_stop(struct disk *d) {
    struct disk_ram *r = ram_of(d);
    struct disk_round *cores = NULL;

    ram_lock(r);
    for (; r->nr_begun; r->nr_begun--) disk_model_end(r->device);
    r->nr = 0;
    r->begun.first = r->turn.waiting.first = NULL;
    if (r->core) cores = &r->device->turns->round;
    for (u32 i = 0; cores && i < cores->nr_disks; i++) {
        struct disk_row *chosen = &cores->disk[i]->waiting;

        if (chosen->first && chosen->first->turn == &r->turn) chosen->first = NULL;
    }
    ram_unlock(r);
}

/* Has I/O core `core` serve the disk instead of the one before. Returns false, and changes nothing,
 * if the core has no place for another disk. */
bool disk_ram_set_core(struct disk_ram *r, struct disk_core *core, u64 remote_ns) {
    struct disk_turns *t = r->device->turns;
    struct disk_row waiting = r->turn.waiting;
    bool done;

    driver_lock(&t->lock);
    core->round.most = MAX(core->round.most, r->round->most);
    done = disk_round_add(&core->round, &r->turn);
    if (done) {
        r->turn.waiting = waiting;
        if (r->round != &core->round) disk_round_remove(r->round, &r->turn);
        r->round = &core->round;
        r->core = core;
        r->remote_ns = remote_ns;
    }
    driver_unlock(&t->lock);
    return done;
}

void disk_ram_leave(struct disk_ram *r) {
    driver_lock(&r->device->turns->lock);
    disk_round_remove(r->round, &r->turn);
    driver_unlock(&r->device->turns->lock);
}

u64 disk_ram_bytes(const char *options) {
    return ALIGN_DOWN(option_bytes(options, "size", DISK_RAM_SIZE), (u64)VIRTIO_BLK_SECTOR);
}

/* Returns how many pages so many bytes take. The sum of `bytes` and a page could overflow. */
static u64 ram_pages_of(u64 bytes) { return bytes / PAGE_SIZE + (bytes % PAGE_SIZE != 0); }

u64 disk_ram_pages(const char *options) {
    u64 n = ram_pages_of(disk_ram_bytes(options));

    return n + 1 + ram_pages_of(n * sizeof(u8 *));
}

void disk_ram_data_init(struct disk_ram_data *data, const char *options, u8 *memory) {
    u64 n = ram_pages_of(disk_ram_bytes(options));

    data->spare = memory + n * PAGE_SIZE;
    data->page = (u8 **)(void *)(data->spare + PAGE_SIZE);
    for (u64 i = 0; i < n; i++) data->page[i] = memory + i * PAGE_SIZE;
}

/* Makes a disk of `data`, either on the shared device `device` or, if that is NULL, with a model of
 * its own that follows from the options. */
void disk_ram_init(struct disk_ram *d, const char *options, struct disk_model *device,
                   struct disk_ram_data *data) {
    static const struct disk_ops ops = { ram_room, ram_begin, ram_ended, ram_due, ram_stop };
    u64 depth = MAX(option_number(options, "depth", DISK_RAM_DEPTH), 1ull);

    *d = (struct disk_ram){ .disk = { .ops = &ops,
                                      .sectors = disk_ram_bytes(options) / VIRTIO_BLK_SECTOR,
                                      .depth = (u32)MIN(depth, (u64)DISK_RAM_MOST),
                                      .discards = true,
                                      .forgets = true,
                                      .id = "takt-ram" },
                            .data = data };
    d->model = (struct disk_model){ .load.bandwidth = option_number(options, "bw", 0),
                                    .latency = option_ns(options, "lat", 0) };
    d->device = device;
    if (!device) d->device = &d->model;
    d->turn.share = (u32)MAX(MIN(option_number(options, "share", 1), 1000ull), 1ull);
    if (!d->device->turns) return;
    d->round = &d->device->turns->round;
    driver_lock(&d->device->turns->lock);
    disk_round_add(d->round, &d->turn);
    driver_unlock(&d->device->turns->lock);
}
