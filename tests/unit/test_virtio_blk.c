/* The driver of a virtio block device and its back end, on a disk in memory with a model of its
 * speed, in virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "device_rig.h"
#include "drivers/back_blk.h"
#include "drivers/disk_ram.h"
#include "drivers/virtio_blk.h"

#define DISK    (1u << 20)
#define SECTORS (DISK / VIRTIO_BLK_SECTOR)

static struct rig_device rig;
static struct back_blk back;
static struct disk_ram ram;
static struct virtio_blk blk;
static struct disk_ram_data data;
static u8 memory[DISK + 2 * PAGE_SIZE]; /* of `data`: with the spare page and the table */
static u8 disk[DISK], model[DISK];
static u64 now;
static u32 flags; /* TAKT_FRONT_* that the back end is told */

/* Copies what is on the disk to `disk`. */
static void look_at_disk(void) {
    for (u32 i = 0; i < DISK / PAGE_SIZE; i++)
        memcpy(disk + i * PAGE_SIZE, data.page[i], PAGE_SIZE);
}

static void start(struct rig_device *r) {
    back.dev.window = arena_window;
    back_blk_start(&back, &r->front);
}

static void stop(struct rig_device *r) { back_blk_stop(&back); }

/* Makes the disk of what is in `data`, and its back end. */
static void make_back_end(const char *options) {
    struct takt_back info = { .handle = 1, .vm = 1, .type = VIRTIO_ID_BLOCK };

    strcpy(info.options, options);
    disk_ram_init(&ram, options, NULL, &data);
    assert_int_equal(back_blk_init(&back, &arena_env, &rig_calls, &info, &ram.disk, &rig.offer), 0);
}

/* A disk that behaves as one on an NVMe controller. Requests do not end in their order: some take
 * longer, and later ones overtake them. What was written is there when another back end opens the
 * disk. */
#define LONGER 1000000u /* ns */
static const struct disk_ops *in_order;
static struct disk_request *overtaken;

static bool shuffled_room(struct disk *d) { return in_order->room(d); }

static void shuffled_begin(struct disk *d, struct disk_request *q, u64 at) {
    in_order->begin(d, q, at);
}

static u64 shuffled_due(const struct disk *d) {
    if (overtaken) return MIN(overtaken->due + LONGER, in_order->due(d));
    return in_order->due(d);
}

static void shuffled_stop(struct disk *d) {
    overtaken = NULL;
    in_order->stop(d);
}

static struct disk_request *shuffled_ended(struct disk *d, u64 at) {
    struct disk_request *q = overtaken;

    if (q && at >= q->due + LONGER) {
        overtaken = NULL;
        return q;
    }
    q = in_order->ended(d, at);
    if (!q || overtaken || rig_rand(2)) return q;
    overtaken = q;
    return in_order->ended(d, at);
}

static void make_shuffled(const char *options) {
    static const struct disk_ops shuffled = { shuffled_room, shuffled_begin, shuffled_ended,
                                              shuffled_due, shuffled_stop };

    make_back_end(options);
    in_order = ram.disk.ops;
    ram.disk.ops = &shuffled;
    ram.disk.forgets = false;
}

/* The back end ends with its requests under way, and another one goes on. */
static void next_back_end(const char *options) {
    stop(&rig);
    back_blk_fini(&back);
    make_shuffled(options);
    rig.front.flags |= TAKT_FRONT_RESUMED;
    start(&rig);
}

static void set_up_with(const char *options, u64 hidden) {
    arena_reset();
    now = 0;
    memset(memory, 0, sizeof(memory));
    memset(model, 0, sizeof(model));
    rig_init(&rig, 1, start, stop);
    rig.hidden = hidden;
    rig.front.flags = flags;
    assert_int_equal(disk_ram_bytes(options), DISK);
    assert_int_equal(disk_ram_pages(options), sizeof(memory) / PAGE_SIZE);
    disk_ram_data_init(&data, options, memory);
    if (flags)
        make_shuffled(options);
    else
        make_back_end(options);
    assert_int_equal(virtio_blk_start(&blk, &rig.dev, 64), 0);
    assert_int_equal(blk.capacity, SECTORS);
}

/* Serves as the driver domain does, until there is nothing to do at this time. */
static u64 serve(void) {
    u64 next;

    while ((next = back_blk_serve(&back, now)) == 0) back_blk_flush(&back);
    back_blk_flush(&back);
    return next;
}

static u32 ended, failed;
static int last_error;

static void done(struct virtio_blk_request *q, int error) {
    ended++;
    failed += error != 0;
    last_error = error;
    q->arg = NULL;
}

static struct virtio_blk_request *requests; /* 64, in the arena */
static u8 *buffers;                         /* 64 KiB each */

static struct virtio_blk_request *request(u32 i, enum virtio_blk_type type, u64 sector, u32 sectors,
                                          u32 parts) {
    struct virtio_blk_request *q = &requests[i];
    u32 bytes = sectors * VIRTIO_BLK_SECTOR, at = 0;

    *q = (struct virtio_blk_request){
        .type = type, .sector = sector, .nr = parts, .done = done, .arg = q
    };
    for (u32 p = 0; p < MIN(parts, VIRTIO_BLK_PARTS); p++) {
        u32 n = p + 1 == parts ? bytes - at : bytes / parts;

        q->part[p].p = buffers + i * 0x8000 + at;
        q->part[p].len = n;
        at += n;
    }
    return q;
}

static void places(void) {
    requests = (void *)(arena + ARENA_SIZE / 4);
    buffers = arena + ARENA_SIZE / 2;
    ended = failed = 0;
    last_error = 0;
}

static int one(struct virtio_blk_request *q) {
    u32 before = ended;
    int error = virtio_blk_submit(&blk, q);

    if (error) return error;
    virtio_blk_flush_ring(&blk);
    for (u64 next; (next = serve()) != ~0ull;) now = next;
    virtio_blk_poll(&blk);
    assert_int_equal(ended, before + 1);
    return last_error;
}

/* A random kind of request. Half of those that are neither flush nor discard read. */
static enum virtio_blk_type random_type(void) {
    if (rig_rand(8) == 0) return VIRTIO_BLK_FLUSH;
    if (rig_rand(8) == 0) return VIRTIO_BLK_DISCARD;
    if (rig_rand(2)) return VIRTIO_BLK_IN;
    return VIRTIO_BLK_OUT;
}

/* Random reads, writes, discards and flushes, many at a time, against a copy of the disk. A
 * request that touches what another in flight touches waits for that one, as a file system would
 * see to it. */
static void random_requests(const char *options, u64 hidden) {
    bool busy[64] = { false };
    u64 owner[SECTORS / 8] = { 0 }; /* of eight sectors: which request */

    set_up_with(options, hidden);
    places();
    for (u32 step = 0; step < 20000; step++) {
        u32 i = rig_rand(60), sectors = 1 + rig_rand(60), group, groups;
        u64 sector = rig_rand(SECTORS - 64);
        enum virtio_blk_type type = random_type();
        bool free = !busy[i];

        group = (u32)sector / 8;
        groups = (u32)(sector + sectors - 1) / 8 - group + 1;
        for (u32 g = group; type != VIRTIO_BLK_FLUSH && g < group + groups; g++) free &= !owner[g];
        if (free) {
            struct virtio_blk_request *q = request(i, type, sector, sectors, 1 + rig_rand(8));
            u8 *p = q->part[0].p;
            int error;

            if (type == VIRTIO_BLK_DISCARD) q->sectors = sectors;
            for (u32 k = 0; k < sectors * VIRTIO_BLK_SECTOR; k++) p[k] = (u8)(k * 7 + step);
            error = virtio_blk_submit(&blk, q);
            assert_true(error == 0 || error == -ENOSPC);
            if (!error) {
                busy[i] = true;
                if (type != VIRTIO_BLK_FLUSH)
                    for (u32 g = group; g < group + groups; g++) owner[g] = i + 1;
                if (type == VIRTIO_BLK_OUT) memcpy(model + sector * 512, p, sectors * 512);
                if (type == VIRTIO_BLK_DISCARD) memset(model + sector * 512, 0, sectors * 512);
            }
        }
        if (rig_rand(4)) continue;
        virtio_blk_flush_ring(&blk);
        now += rig_rand(2000000);
        /* The last back end was in the middle of its work. */
        if (flags && rig_rand(20) == 0) {
            back_blk_serve(&back, now);
            if (rig_rand(2)) back_blk_flush(&back);
            next_back_end(options);
        }
        serve();
        virtio_blk_poll(&blk);
        for (u32 k = 0; k < 60; k++) {
            struct virtio_blk_request *q = &requests[k];

            if (!busy[k] || q->arg) continue;
            busy[k] = false;
            for (u32 g = 0; g < SECTORS / 8; g++)
                if (owner[g] == k + 1) owner[g] = 0;
            for (u32 p = 0, at = 0; q->type == VIRTIO_BLK_IN && p < q->nr; p++) {
                assert_memory_equal(q->part[p].p, model + q->sector * 512 + at, q->part[p].len);
                at += q->part[p].len;
            }
        }
    }
    assert_int_equal(failed, 0);
    assert_true(ended > 3000);
    virtio_blk_flush_ring(&blk);
    for (u64 next; (next = serve()) != ~0ull;) now = next;
    virtio_blk_poll(&blk);
    assert_int_equal(blk.in_flight, 0);
    look_at_disk();
    assert_memory_equal(disk, model, DISK);
}

static void random_instant(void **state) { random_requests("size=1M", 0); }
static void random_modelled(void **state) {
    random_requests("size=1M bw=100M lat=100us depth=8", 0);
}
static void random_plain(void **state) {
    random_requests("size=1M lat=1ms", BIT(VIRTIO_F_INDIRECT) | BIT(VIRTIO_F_EVENT_IDX));
}

/* Back ends end at any moment, and each of them is followed by one that goes on. No request is
 * lost, and none ends twice. */
static void back_ends_that_end(void **state) {
    flags = TAKT_FRONT_ORDERED;
    random_requests("size=1M bw=20M lat=100us depth=8", 0);
    random_requests("size=1M bw=20M lat=100us depth=8",
                    BIT(VIRTIO_F_INDIRECT) | BIT(VIRTIO_F_EVENT_IDX));
    flags = 0;
}

/* What was on a disk in memory is gone together with the VM that had it. The driver must not read
 * zeros in its place. */
static void lost_with_the_back_end(void **state) {
    flags = TAKT_FRONT_ORDERED;
    set_up_with("size=1M", 0);
    places();
    assert_int_equal(one(request(0, VIRTIO_BLK_OUT, 0, 1, 1)), 0);
    next_back_end("size=1M");
    assert_int_equal(one(request(0, VIRTIO_BLK_IN, 0, 1, 1)), 0);
    ram.disk.forgets = true;
    start(&rig);
    assert_int_equal(one(request(0, VIRTIO_BLK_IN, 0, 1, 1)), -EIO);
    assert_int_equal(one(request(0, VIRTIO_BLK_OUT, 0, 1, 1)), -EIO);
    assert_int_equal(one(request(0, VIRTIO_BLK_FLUSH, 0, 0, 0)), -EIO);
    assert_true(back.dev.live);
    flags = 0;
}

/* How long it takes: alone, many at a time, and with the bus as the limit. */
static void the_model(void **state) {
    set_up_with("size=1M bw=50M lat=100us depth=4", 0);
    places();
    one(request(0, VIRTIO_BLK_IN, 0, 8, 1));
    assert_int_equal(now, 100000 + 4096 * 20); /* 50 MB/s: 20 ns a byte */
    now = 0;
    ram.model.bus_free = 0;
    virtio_blk_submit(&blk, request(0, VIRTIO_BLK_IN, 0, 8, 1));
    virtio_blk_flush_ring(&blk);
    assert_int_equal(serve(), 100000 + 4096 * 20);
    now = 100000 + 4096 * 20 - 1;
    serve();
    assert_int_equal(virtio_blk_poll(&blk), 0);
    now++;
    serve();
    assert_int_equal(virtio_blk_poll(&blk), 1);
    now = 0;
    ram.model.bus_free = 0;
    one(request(0, VIRTIO_BLK_FLUSH, 0, 0, 0));
    assert_int_equal(now, 100000);
    now = 0;
    ram.model.bus_free = 0;
    for (u32 i = 0; i < 16; i++)
        assert_int_equal(virtio_blk_submit(&blk, request(i, VIRTIO_BLK_IN, i, 1, 1)), 0);
    virtio_blk_flush_ring(&blk);
    for (u64 next; (next = serve()) != ~0ull;) now = next;
    assert_int_equal(back.nr_most, 4);
    /* There are four rounds, and each has a latency and four transfers of 10,240 ns. The transfers
     * of one round overlap the latency of the next one. */
    assert_true(now >= 4 * 100000 + 10240 && now <= 4 * (100000 + 4 * 10240));
    now = 0;
    ram.model.bus_free = 0;
    for (u32 i = 0; i < 4; i++) virtio_blk_submit(&blk, request(i, VIRTIO_BLK_OUT, i * 64, 64, 1));
    virtio_blk_flush_ring(&blk);
    for (u64 next; (next = serve()) != ~0ull;) now = next;
    assert_int_equal(now, 100000 + 4 * 32768 * 20);
    virtio_blk_poll(&blk);
    assert_int_equal(ended, 23);
}

/* 16 requests in one batch: one notification; one interrupt, asked for after the last. */
static void batch(void **state) {
    set_up_with("size=1M", 0);
    places();
    serve();
    for (u32 round = 0; round < 6000; round++) {
        u32 kicks = rig.kicks, irqs = rig.irqs;

        for (u32 i = 0; i < 16; i++)
            assert_int_equal(virtio_blk_submit(&blk, request(i, VIRTIO_BLK_IN, i, 1, 1)), 0);
        assert_false(virtio_blk_listen(&blk, 16));
        virtio_blk_flush_ring(&blk);
        serve();
        assert_int_equal(virtio_blk_poll(&blk), 16);
        assert_int_equal(rig.kicks - kicks, 1);
        assert_int_equal(rig.irqs - irqs, 1);
    }
}

static void refused(void **state) {
    set_up_with("size=1M", 0);
    places();
    assert_int_equal(one(request(0, VIRTIO_BLK_IN, SECTORS, 1, 1)), -EINVAL);
    assert_int_equal(one(request(0, VIRTIO_BLK_IN, SECTORS - 1, 2, 1)), -EINVAL);
    assert_int_equal(one(request(0, VIRTIO_BLK_IN, ~0ull, 1, 1)), -EINVAL);
    assert_int_equal(one(request(0, VIRTIO_BLK_IN, 0, 0, 0)), -EINVAL);
    assert_int_equal(one(request(0, VIRTIO_BLK_IN, 0, 1, VIRTIO_BLK_PARTS + 1)), -EINVAL);
    assert_int_equal(one(request(0, 77, 0, 1, 1)), -ENOSYS);
    set_up_with("size=1M", VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_DISCARD);
    places();
    assert_int_equal(one(request(0, VIRTIO_BLK_FLUSH, 0, 0, 0)), -ENOSYS);
    struct virtio_blk_request *q = request(0, VIRTIO_BLK_DISCARD, 0, 0, 0);
    q->sectors = 1;
    assert_int_equal(one(q), -ENOSYS);
}

/* A front end asks for things that are not possible. The back end checks each request by itself. */
static void back_end_judges(void **state) {
    static const struct {
        u32 type;
        u64 sector;
        int want;
    } cases[] = {
        { VIRTIO_BLK_IN, SECTORS, -EIO },
        { VIRTIO_BLK_OUT, SECTORS, -EIO },
        { VIRTIO_BLK_IN, SECTORS - 1, -EIO },
        { VIRTIO_BLK_OUT, SECTORS - 1, -EIO },
        { VIRTIO_BLK_IN, ~0ull, -EIO },
        { VIRTIO_BLK_OUT, ~0ull - 1, -EIO },
        { VIRTIO_BLK_OUT, 1ull << 55, -EIO },
        { VIRTIO_BLK_IN, SECTORS - 2, 0 },
        { 99, 0, -ENOSYS },
    };

    set_up_with("size=1M", 0);
    places();
    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        struct virtio_blk_request *q =
            request(0, cases[i].type == VIRTIO_BLK_OUT ? VIRTIO_BLK_OUT : VIRTIO_BLK_IN, 0, 2, 1);

        assert_int_equal(virtio_blk_submit(&blk, q), 0);
        q->hdr.type = cases[i].type;
        q->hdr.sector = cases[i].sector;
        virtio_blk_flush_ring(&blk);
        serve();
        assert_int_equal(virtio_blk_poll(&blk), 1);
        assert_int_equal(last_error, cases[i].want);
    }
    static const struct virtio_blk_range wrong[] = {
        { SECTORS - 7, 8, 0 }, /* it ends behind the last sector */
        { 0, 0xffffffff, 0 },  /* so does this */
        { 0, 8, 1 },           /* with a flag that the device does not know */
    };
    static const int errors[] = { -EIO, -EIO, -ENOSYS };
    struct virtio_blk_request *q = request(0, VIRTIO_BLK_DISCARD, 0, 0, 0);
    q->sectors = 8;
    for (u32 i = 0; i < 3; i++) {
        assert_int_equal(virtio_blk_submit(&blk, q), 0);
        q->range = wrong[i];
        virtio_blk_flush_ring(&blk);
        serve();
        virtio_blk_poll(&blk);
        assert_int_equal(last_error, errors[i]);
    }
    assert_true(back.dev.live);
}

/* Tests chains without a header, or without room for the status. */
static void broken_chains(void **state) {
    for (u32 how = 0; how < 3; how++) {
        struct vring_sg sg[3];
        int token;

        set_up_with("size=1M", 0);
        places();
        for (u32 i = 0; i < 3; i++) sg[i] = (struct vring_sg){ arena_gpa(buffers), 15 };
        if (how == 0) vring_front_add(&blk.ring, sg, 1, 1, &token);
        if (how == 1) sg[0].len = 528;
        if (how == 1) vring_front_add(&blk.ring, sg, 1, 0, &token);
        if (how == 2) vring_front_add(&blk.ring, sg, 0, 3, &token);
        virtio_blk_flush_ring(&blk);
        serve();
        assert_int_equal(rig.broken, 1);
        assert_false(back.dev.live);
        assert_int_equal(serve(), ~0ull);
    }
}

/* The header comes in pieces, the status alone, and the data as one byte and the rest. It does not
 * matter how a chain is cut. */
static void any_framing(void **state) {
    struct virtio_blk_hdr h = { VIRTIO_BLK_OUT, 0, 5 };
    struct vring_sg sg[8];
    int token;
    u32 len;

    set_up_with("size=1M", BIT(VIRTIO_F_INDIRECT));
    places();
    memcpy(buffers, &h, 16);
    memset(buffers + 16, 0xa5, 512);
    buffers[1000] = 0xff;
    sg[0] = (struct vring_sg){ arena_gpa(buffers), 3 };
    sg[1] = (struct vring_sg){ arena_gpa(buffers + 3), 14 };
    sg[2] = (struct vring_sg){ arena_gpa(buffers + 17), 511 };
    sg[3] = (struct vring_sg){ arena_gpa(buffers + 1000), 1 };
    vring_front_add(&blk.ring, sg, 3, 1, &token);
    virtio_blk_flush_ring(&blk);
    serve();
    assert_ptr_equal(vring_front_take(&blk.ring, &len), &token);
    assert_int_equal(len, 1);
    assert_int_equal(buffers[1000], VIRTIO_BLK_OK);
    look_at_disk();
    assert_memory_equal(disk + 5 * 512, buffers + 16, 512);
    assert_int_equal(disk[5 * 512 - 1] | disk[6 * 512], 0);
}

static void front_end_goes(void **state) {
    set_up_with("size=1M lat=1ms", 0);
    places();
    for (u32 i = 0; i < 10; i++) virtio_blk_submit(&blk, request(i, VIRTIO_BLK_OUT, i, 1, 1));
    virtio_blk_flush_ring(&blk);
    assert_int_equal(serve(), 1000000);
    assert_int_equal(virtio_blk_stop(&blk), 0);
    assert_int_equal(ended, 10);
    assert_int_equal(failed, 10);
    now = 10000000;
    u8 *used = (void *)blk.ring.used;
    assert_null(used);
    assert_int_equal(serve(), ~0ull);
    assert_int_equal(back.writes, 0); /* what had only begun was not done */
    assert_int_equal(virtio_blk_start(&blk, &rig.dev, 64), 0);
    assert_int_equal(one(request(0, VIRTIO_BLK_OUT, 0, 1, 1)), 0);
}

/* The VM goes while a write of `sectors` sectors waits for the disk. The hypervisor has put other
 * memory in the place of the VM's, so what the disk has there must stay. */
static void waste_not_written_at(u64 sector, u32 sectors) {
    struct virtio_blk_request *q;
    u32 bytes = sectors * VIRTIO_BLK_SECTOR;
    u64 next;

    set_up_with("lat=1ms", 0);
    places();
    q = request(0, VIRTIO_BLK_OUT, sector, sectors, 1);
    memset(q->part[0].p, 0x5a, bytes);
    assert_int_equal(one(q), 0);
    look_at_disk();
    memcpy(model, disk, sizeof(disk));
    q = request(1, VIRTIO_BLK_OUT, sector, sectors, 1);
    memset(q->part[0].p, 0xa5, bytes);
    assert_int_equal(virtio_blk_submit(&blk, q), 0);
    virtio_blk_flush_ring(&blk);
    next = serve();
    assert_true(next > now && next != ~0ull);
    memset(q->part[0].p, 0, bytes);
    rig_front_gone = true;
    now = next;
    serve();
    rig_front_gone = false;
    assert_int_equal(back.nr, 0);
    look_at_disk();
    assert_memory_equal(disk, model, sizeof(disk));
    assert_int_equal(disk[sector * VIRTIO_BLK_SECTOR], 0x5a);
    assert_int_equal(disk[(sector + sectors) * VIRTIO_BLK_SECTOR - 1], 0x5a);
}

/* Whole pages take the place of the disk's pages, and parts of pages are copied. */
static void waste_is_not_written(void **s) {
    waste_not_written_at(8, 24);
    waste_not_written_at(11, 3);
    waste_not_written_at(5, 24);
}

/* A disk need not be whole pages. Its last sectors and those at borders of pages can be written and
 * read, in any number, and each write changes its own sectors only. What was written is there when
 * the device is made again for a VM of the same name. */
static void parts_of_pages(void **s) {
    static const char options[] = "size=10K"; /* 20 sectors, which lie in three pages */
    struct takt_back info = { .handle = 1, .vm = 1, .type = VIRTIO_ID_BLOCK };

    arena_reset();
    now = 0;
    memset(memory, 0, sizeof(memory));
    memset(model, 0, sizeof(model));
    assert_int_equal(disk_ram_pages(options), 3 + 1 + 1);
    disk_ram_data_init(&data, options, memory);
    for (u64 from = 0; from < 20; from++) {
        rig_init(&rig, 1, start, stop);
        disk_ram_init(&ram, options, NULL, &data);
        assert_int_equal(back_blk_init(&back, &arena_env, &rig_calls, &info, &ram.disk, &rig.offer),
                         0);
        assert_int_equal(virtio_blk_start(&blk, &rig.dev, 64), 0);
        places();
        for (u32 sectors = 1; sectors <= 20 - from; sectors++) {
            struct virtio_blk_request *q = request(0, VIRTIO_BLK_OUT, from, sectors, 1);

            memset(q->part[0].p, (int)(from * 20 + sectors), sectors * VIRTIO_BLK_SECTOR);
            memset(model + from * VIRTIO_BLK_SECTOR, (int)(from * 20 + sectors),
                   sectors * VIRTIO_BLK_SECTOR);
            assert_int_equal(one(q), 0);
            q = request(0, VIRTIO_BLK_IN, 0, 20, 1);
            assert_int_equal(one(q), 0);
            assert_memory_equal(q->part[0].p, model, 20 * VIRTIO_BLK_SECTOR);
        }
        back_blk_stop(&back);
        back_blk_fini(&back);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_instant),
        cmocka_unit_test(random_modelled),
        cmocka_unit_test(random_plain),
        cmocka_unit_test(back_ends_that_end),
        cmocka_unit_test(lost_with_the_back_end),
        cmocka_unit_test(the_model),
        cmocka_unit_test(batch),
        cmocka_unit_test(refused),
        cmocka_unit_test(back_end_judges),
        cmocka_unit_test(broken_chains),
        cmocka_unit_test(any_framing),
        cmocka_unit_test(front_end_goes),
        cmocka_unit_test(waste_is_not_written),
        cmocka_unit_test(parts_of_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
