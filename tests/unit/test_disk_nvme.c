/* Virtio block devices on ranges of the disk of a modelled NVMe controller. The driver, the back
 * end, the store and the controller are in one process. A request must never touch a range that
 * belongs to another VM. */
#include "nvme_model.h"

#include "device_rig.h"
#include "drivers/back_blk.h"
#include "drivers/disk_nvme.h"
#include "drivers/virtio_blk.h"

#define MEMORY  (NVME_MEMORY + DISK_NVME_MOST * DISK_NVME_DEPTH * NVME_TRANSFER)
#define FIRST   100u /* sector where the disk of most tests begins, and how many it has */
#define SECTORS 2048u
#define OPTIONS "dev=nvme offset=51200 size=1M"

static u8 *memory;
static u64 used, now;
static struct nvme_store store;
static struct takt_back owner;
static struct disk *disk;
static struct rig_device rig;
static struct back_blk back;
static struct virtio_blk blk;

static void *pages(size_t n) {
    void *p = memory + used;

    if (used + n * PAGE_SIZE > MEMORY) return NULL;
    used += n * PAGE_SIZE;
    return p;
}

static const struct driver_env env = { .pages = pages };

static void start(struct rig_device *r) {
    back.dev.window = arena_window;
    back_blk_start(&back, &r->front);
}

static void stop(struct rig_device *r) { back_blk_stop(&back); }

static void open_store(void) {
    if (!memory) memory = aligned_alloc(4096, MEMORY);
    model_begin(memory, MEMORY);
    used = now = 0;
    srand(7);
    assert_int_equal(nvme_store_init(&store, model_regs, 0x2000, &model_env, &env), 0);
}

static void connect(void) {
    arena_reset();
    rig_init(&rig, 1, start, stop);
    assert_int_equal(back_blk_init(&back, &arena_env, &rig_calls, &owner, disk, &rig.offer), 0);
    assert_int_equal(virtio_blk_start(&blk, &rig.dev, 64), 0);
}

static int setup(void **state) {
    open_store();
    owner = (struct takt_back){ .handle = 1, .type = VIRTIO_ID_BLOCK, .options = OPTIONS };
    disk = nvme_store_open(&store, &owner);
    assert_non_null(disk);
    connect();
    assert_int_equal(blk.capacity, SECTORS);
    return 0;
}

/* Does one round of the driver domain, in which the controller does at most `most` commands.
 * Returns how many it did. */
static u32 turn(u32 most) {
    u32 n;

    while (back_blk_serve(&back, now) <= now) back_blk_flush(&back);
    back_blk_flush(&back);
    nvme_kick(&store.nvme);
    n = model_work(most);
    nvme_store_run(&store, now);
    while (back_blk_serve(&back, now) <= now) back_blk_flush(&back);
    back_blk_flush(&back);
    nvme_kick(&store.nvme);
    return n;
}

static u32 ended, failed;

static void done(struct virtio_blk_request *q, int error) {
    ended++;
    failed += error != 0;
    q->arg = NULL;
}

#define BYTES 0x18000u /* size of a request's buffer, which is more than one command moves */

static struct virtio_blk_request *requests; /* 16, in the arena */
static u8 *buffers;

static struct virtio_blk_request *request(u32 i, enum virtio_blk_type type, u64 sector, u32 sectors,
                                          u32 parts) {
    struct virtio_blk_request *q;
    u32 bytes = sectors * VIRTIO_BLK_SECTOR, at = 0;

    requests = (void *)(arena + ARENA_SIZE / 4);
    buffers = arena + ARENA_SIZE / 2;
    q = &requests[i];
    *q = (struct virtio_blk_request){
        .type = type, .sector = sector, .nr = parts, .sectors = sectors, .done = done, .arg = q
    };
    for (u32 p = 0; p < parts; p++) {
        u32 n = p + 1 == parts ? bytes - at : bytes / parts;

        q->part[p].p = buffers + i * BYTES + at;
        q->part[p].len = n;
        at += n;
    }
    return q;
}

static void submit(u32 i, enum virtio_blk_type type, u64 sector, u32 sectors) {
    assert_int_equal(virtio_blk_submit(&blk, request(i, type, sector, sectors, 1)), 0);
    virtio_blk_flush_ring(&blk);
}

static void finish(void) {
    virtio_blk_flush_ring(&blk);
    while (turn(~0u)) virtio_blk_poll(&blk);
    virtio_blk_poll(&blk);
    assert_int_equal(blk.in_flight, 0);
}

static int count(void **state) {
    ended = failed = 0;
    return setup(state);
}

/* A random kind of request. Half of those that are neither flush nor discard read. */
static enum virtio_blk_type random_type(void) {
    if (rig_rand(8) == 0) return VIRTIO_BLK_FLUSH;
    if (rig_rand(8) == 0) return VIRTIO_BLK_DISCARD;
    if (rig_rand(2)) return VIRTIO_BLK_IN;
    return VIRTIO_BLK_OUT;
}

/* Compares random requests of up to 96 KiB, cut in any way, with a copy of the range. All around
 * the range must stay as it was. */
static void random_requests(void **state) {
    static u8 copy[SECTORS * 512];
    bool busy[16] = { false };
    u8 taken[SECTORS] = { 0 };

    memset(model_disk, 0x5a, sizeof(model_disk));
    memset(copy, 0x5a, sizeof(copy));
    for (u32 step = 0; step < 20000; step++) {
        u32 i = rig_rand(16), sectors = 1 + rig_rand(rig_rand(4) ? 16 : BYTES / 512);
        u64 sector = rig_rand(SECTORS - sectors + 1);
        enum virtio_blk_type type = random_type();
        bool free = !busy[i];

        for (u32 s = 0; s < sectors; s++) free &= !taken[sector + s] || type == VIRTIO_BLK_FLUSH;
        if (free) {
            struct virtio_blk_request *q = request(i, type, sector, sectors, 1 + rig_rand(5));
            u8 *p = q->part[0].p;

            for (u32 k = 0; k < sectors * 512; k++) p[k] = (u8)(k * 7 + step);
            assert_int_equal(virtio_blk_submit(&blk, q), 0);
            busy[i] = true;
            if (type != VIRTIO_BLK_FLUSH) memset(taken + sector, 1, sectors);
            if (type == VIRTIO_BLK_OUT) memcpy(copy + sector * 512, p, sectors * 512);
            if (type == VIRTIO_BLK_DISCARD) memset(copy + sector * 512, 0, sectors * 512);
        }
        if (rig_rand(3)) continue;
        virtio_blk_flush_ring(&blk);
        turn(rig_rand(6));
        virtio_blk_poll(&blk);
        for (u32 k = 0; k < 16; k++) {
            struct virtio_blk_request *q = &requests[k];

            if (!busy[k] || q->arg) continue;
            busy[k] = false;
            if (q->type != VIRTIO_BLK_FLUSH) memset(taken + q->sector, 0, q->sectors);
            if (q->type == VIRTIO_BLK_IN)
                assert_memory_equal(q->part[0].p, copy + q->sector * 512, q->sectors * 512);
        }
    }
    finish();
    assert_int_equal(failed, 0);
    assert_true(ended > 3000 && model.flushes > 300);
    assert_int_equal(back.flushes, model.flushes);
    assert_memory_equal(model_disk + FIRST * 512, copy, sizeof(copy));
    for (u32 k = 0; k < sizeof(model_disk); k++)
        if (k < FIRST * 512 || k >= (FIRST + SECTORS) * 512) assert_int_equal(model_disk[k], 0x5a);
}

/* A request is longer than a command may move, on a controller that moves 8 KiB. */
static void small(u8 *page, u32 cns) {
    if (cns == 1) page[77] = 1, page[520] = 0;
}

static void pieces(void **state) {
    u8 *p;

    open_store();
    model.tweak = small;
    assert_int_equal(nvme_init(&store.nvme, model_regs, 0x2000, memory, &model_env), 0);
    disk = nvme_store_open(&store, &owner);
    connect();
    assert_false(blk.can_discard);
    p = request(0, VIRTIO_BLK_OUT, 3, 100, 7)->part[0].p;
    for (u32 i = 0; i < 100 * 512; i++) p[i] = (u8)(i * 5 + i / 4096);
    virtio_blk_submit(&blk, &requests[0]);
    virtio_blk_flush_ring(&blk);
    for (u32 i = 0; i < 7; i++) assert_int_equal(turn(~0u), 1); /* one after the other */
    finish();
    assert_int_equal(ended, 1);
    assert_memory_equal(model_disk + (FIRST + 3) * 512, p, 100 * 512);
}

/* Bad requests are refused before anything of them is begun. */
static void refused(void **state) {
    static const struct {
        const char *options, *why;
    } cases[] = {
        { "dev=nvme offset=2M size=16M", "its range is not within the NVMe disk" },
        { "dev=nvme offset=2M", "its range is not within the NVMe disk" },
        { "dev=nvme offset=3M", "its range is not within the NVMe disk" },
        { "dev=nvme offset=2096640 size=1K", "its range is not within the NVMe disk" },
        { "dev=nvme offset=2096640 size=0", "its range is not within the NVMe disk" },
        { "dev=nvme offset=9000G size=9000G", "its range is not within the NVMe disk" },
        { "dev=nvme offset=100 size=1K", "its offset and size have to be multiples of 512" },
        { "dev=nvme offset=1536K size=1000", "its offset and size have to be multiples of 512" },
        { "dev=nvme offset=99999999999 size=1K", "its options make no sense" },
        { "dev=nvme offset=1536K size=1K bw=1M", "its options make no sense" },
        { "dev=nvme offset=0 size=51201", "its offset and size have to be multiples of 512" },
        { "dev=nvme offset=0 size=51712", "its range overlaps that of" },
        { "dev=nvme offset=1099264 size=512", "its range overlaps that of" },
        { "dev=nvme", "its range overlaps that of" },
    };
    struct takt_back other = { .handle = 2 };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        strcpy(other.options, cases[i].options);
        assert_null(nvme_store_open(&store, &other));
        assert_string_equal(store.why, cases[i].why);
        assert_ptr_equal(store.other, strstr(store.why, "overlaps") ? &owner : NULL);
    }
    strcpy(other.options, "dev=nvme offset=1099776"); /* to the end */
    assert_int_equal(nvme_store_open(&store, &other)->sectors, MODEL_BLOCKS - FIRST - SECTORS);
    strcpy(other.options, "dev=nvme offset=0 size=51200");
    assert_int_equal(nvme_store_open(&store, &other)->sectors, FIRST);
    nvme_store_close(disk);
    strcpy(other.options, "dev=nvme offset=50K size=1M");
    assert_non_null(nvme_store_open(&store, &other));
}

/* There can be as many disks as the controller's queue has places for. */
static void many_disks(void **state) {
    static struct takt_back others[DISK_NVME_MOST + 1];

    nvme_store_close(disk);
    for (u32 i = 0; i <= DISK_NVME_MOST; i++) {
        sprintf(others[i].options, "dev=nvme offset=%uK size=4K", 4 * i);
        assert_int_equal(nvme_store_open(&store, &others[i]) != NULL, i < DISK_NVME_MOST);
    }
    assert_string_equal(store.why, "the NVMe controller takes no more disks");
    open_store();
    model.cap = (model.cap & ~0xffffull) | 16; /* 17 entries, 16 commands */
    assert_int_equal(nvme_init(&store.nvme, model_regs, 0x2000, memory, &model_env), 0);
    for (u32 i = 0; i < 3; i++)
        assert_int_equal(nvme_store_open(&store, &others[i]) != NULL, i < 2);
}

/* No more requests are under way than the disk has buffers. The others wait in the ring. */
static void depth(void **state) {
    for (u32 i = 0; i < 16; i++) submit(i, VIRTIO_BLK_OUT, i, 1);
    turn(0);
    assert_int_equal(store.nvme.under_way, DISK_NVME_DEPTH);
    assert_int_equal(turn(3), 3);
    assert_int_equal(store.nvme.under_way, DISK_NVME_DEPTH);
    finish();
    assert_int_equal(ended, 16);
    assert_int_equal(back.nr_most, DISK_NVME_DEPTH);
}

/* What the manager judges by. A request of a VM that is gone counts until the controller is done
 * with it. Each disk adds its buffers to what the controller may have at a time, unless the
 * administrator knows better. */
static void load(void **state) {
    struct takt_back other = { .options = "dev=nvme offset=1536K size=64K" };
    struct disk *d;

    assert_true(store.load.by_time);
    assert_int_equal(store.load.queue, DISK_NVME_DEPTH);
    d = nvme_store_open(&store, &other);
    assert_int_equal(store.load.queue, 2 * DISK_NVME_DEPTH);
    nvme_store_close(d);
    assert_int_equal(store.load.queue, DISK_NVME_DEPTH);
    for (u32 i = 0; i < 3; i++) submit(i, VIRTIO_BLK_OUT, i, 1);
    turn(0);
    assert_int_equal(store.load.in_queue, 3);
    assert_int_equal(store.load.bytes, 3 * 512);
    turn(1);
    assert_int_equal(store.load.in_queue, 2);
    virtio_blk_stop(&blk);
    assert_int_equal(store.load.in_queue, 2);
    model_work(1);
    nvme_store_run(&store, now);
    assert_int_equal(store.load.in_queue, 1);
    model_work(1);
    nvme_store_run(&store, now);
    assert_int_equal(store.load.in_queue, 0);
    nvme_store_describe(&store, 1000000, 32);
    assert_int_equal(store.load.bandwidth, 1000000);
    d = nvme_store_open(&store, &other);
    assert_int_equal(store.load.queue, 32);
    nvme_store_close(d);
    assert_int_equal(store.load.queue, 32);
}

/* The driver goes with writes under way, and comes again. What is then written to its range is not
 * overtaken by them, and buffers that the device still has are not touched. */
static void old_writes(void **state) {
    u8 *p;

    for (u32 i = 0; i < 3; i++)
        memset(request(i, VIRTIO_BLK_OUT, i, 1, 1)->part[0].p, 0x11 + (int)i, 512);
    for (u32 i = 0; i < 3; i++) submit(i, VIRTIO_BLK_OUT, i, 1);
    turn(0);
    assert_int_equal(virtio_blk_stop(&blk), 0);
    assert_int_equal(failed, 3);
    nvme_store_close(disk); /* the VM is gone, and another has a part of its range */
    strcpy(owner.options, "dev=nvme offset=51712 size=64K");
    disk = nvme_store_open(&store, &owner);
    connect();
    p = request(0, VIRTIO_BLK_OUT, 0, 1, 1)->part[0].p;
    memset(p, 0xaa, 512);
    submit(0, VIRTIO_BLK_OUT, 0, 1);
    turn(0);
    assert_int_equal(store.nvme.under_way, 3);
    assert_int_equal(turn(2), 2);
    assert_int_equal(turn(0), 0);
    assert_int_equal(store.nvme.under_way, 1); /* it waits for the last of them */
    finish();
    assert_int_equal(model_disk[FIRST * 512], 0x11);
    assert_int_equal(model_disk[FIRST * 512 + 512], 0xaa);
    assert_int_equal(model_disk[FIRST * 512 + 1024], 0x13);
    assert_int_equal(ended, 4);
    assert_int_equal(failed, 3);
}

/* A disk with another range does not wait for commands of a VM that is gone. */
static void others_do_not_wait(void **state) {
    for (u32 i = 0; i < 3; i++) submit(i, VIRTIO_BLK_OUT, i, 1);
    turn(0);
    virtio_blk_stop(&blk);
    nvme_store_close(disk);
    strcpy(owner.options, "dev=nvme offset=1536K");
    disk = nvme_store_open(&store, &owner);
    connect();
    submit(0, VIRTIO_BLK_OUT, 0, 1);
    turn(0);
    assert_int_equal(store.nvme.under_way, 4);
    finish();
    assert_int_equal(ended, 4);
    assert_int_equal(failed, 3);
}

/* A request fails if the controller says so. Once the controller is broken, all requests fail, and
 * no VM gets a disk. */
static void errors(void **state) {
    model.fail = 0x281;
    submit(0, VIRTIO_BLK_IN, 0, 1);
    finish();
    assert_int_equal(failed, 1);
    submit(0, VIRTIO_BLK_IN, 0, 1);
    finish();
    assert_int_equal(failed, 1);
    for (u32 i = 0; i < 16; i++) submit(i, i % 2 ? VIRTIO_BLK_IN : VIRTIO_BLK_FLUSH, 0, i % 2);
    turn(0);
    model.dead = true;
    now = 2 * NS_PER_S;
    turn(0);
    finish();
    assert_int_equal(failed, 17);
    assert_string_equal(store.nvme.why, "it is gone");
    submit(0, VIRTIO_BLK_OUT, 0, 1);
    finish();
    assert_int_equal(failed, 18);
    assert_int_equal(rig.broken, 0); /* the front end has broken no rule */
    nvme_store_close(disk);
    assert_null(nvme_store_open(&store, &owner));
    assert_string_equal(store.why, "the NVMe controller is broken");
}

/* The hypervisor has put other memory in the place of that of a VM that goes. */
static void waste_is_not_written(void **state) {
    memset(model_disk, 0x5a, sizeof(model_disk));
    memset(request(0, VIRTIO_BLK_OUT, 3, 8, 1)->part[0].p, 0, 8 * 512);
    rig_front_gone = true;
    submit(0, VIRTIO_BLK_OUT, 3, 8);
    finish();
    rig_front_gone = false;
    assert_int_equal(ended, 1);
    for (u32 k = 0; k < sizeof(model_disk); k++) assert_int_equal(model_disk[k], 0x5a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(random_requests, count),
        cmocka_unit_test_setup(pieces, count),
        cmocka_unit_test_setup(refused, count),
        cmocka_unit_test_setup(many_disks, count),
        cmocka_unit_test_setup(depth, count),
        cmocka_unit_test_setup(load, count),
        cmocka_unit_test_setup(old_writes, count),
        cmocka_unit_test_setup(others_do_not_wait, count),
        cmocka_unit_test_setup(errors, count),
        cmocka_unit_test_setup(waste_is_not_written, count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
