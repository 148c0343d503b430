/* The back ends of network and block devices serve a front end whose memory and registers have
 * random contents. They must stay inside the window, the disk and their own memory, and must end.
 * When they have found a device broken, they must leave it alone. */
#include <stdlib.h>
#include <string.h>
#include "drivers/back_blk.h"
#include "drivers/back_net.h"
#include "drivers/disk_ram.h"
#include "drivers/gso.h"

#define RAM   0x4000
#define DISK  0x2000
#define TURNS 40

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static u32 broken;
static u64 heard; /* sum of the bytes that the other port of the bridge got */

static void *taken[16]; /* pages that the back end has allocated for this input */
static u32 nr_taken;

static void *pages(size_t n) {
    if (nr_taken == ARRAY_SIZE(taken)) return NULL;
    taken[nr_taken] = calloc(n, PAGE_SIZE);
    return taken[nr_taken++];
}

static void pages_free(void *p, size_t n) {}

static void free_all(void) {
    while (nr_taken) free(taken[--nr_taken]);
}

static u64 dma_addr(const void *p) { return (u64)p; }

static void relax(void) {}

static const struct driver_env env = { pages, pages_free, dma_addr, relax };

static void irq(u32 handle) {
    if (broken) abort(); /* no interrupt of a device that was given up */
}

static void on_broken(u32 handle) { broken++; }

static bool gone(u32 handle) { return false; }

static const struct back_calls calls = { irq, on_broken, gone };

static int hear(struct bridge_port *p, const struct frame *f) {
    static u8 buf[GSO_FRAME_MAX];
    u32 most = FRAME_MAX;

    if (f->gso_size && !p->takes_large) abort();
    if (f->gso_size) most = GSO_FRAME_MAX;
    if (f->len < FRAME_HEAD || f->len > most) abort();
    frame_copy(buf, f);
    for (u32 i = 0; i < f->len; i++) heard += buf[i];
    return 0;
}

/* Makes *f a large frame of TCP with 5,000 bytes of data, in `body`. */
static void make_large(struct frame *f, u8 *body) {
    static const u8 head[] = { 0x45, 0, (5040 >> 8), 5040 & 255, 0, 0, 0, 0, 64, 6 };
    u8 copy[GSO_HEAD_MAX];

    memcpy(body, head, sizeof(head));
    body[32] = 0x50;
    f->head[12] = 8;
    f->len = FRAME_HEAD + 5040;
    f->partial = true;
    f->csum_start = 34;
    f->csum_offset = 16;
    f->gso_size = 1000;
    if (!gso_check(f, copy)) abort();
}

/* `large`: bit 0 says that large frames arrive from the other port, bit 1 that it takes them. */
static void net(const struct takt_window *w, const struct takt_front *front, const char *options,
                u32 large) {
    struct takt_back info = { .handle = 1, .vm = 1, .type = VIRTIO_ID_NET };
    struct bridge_port other = {
        .name = "other", .deliver = hear, .takes_large = large & 2, .takes_partial = large & 2
    };
    struct netem_params wire = { .queue = 8 };
    struct takt_offer offer;
    static struct bridge b;
    static struct back_net n;
    u8 body[5040] = { 1 };
    struct vring_seg seg = { body, sizeof(body) };
    struct frame f = {
        .head = { 2, 'T', 'k', 0, 1, 0, 2, 0, 0, 0, 0, 9 }, .len = 1414, .seg = &seg, .nr = 1
    };

    strcpy(info.options, options);
    bridge_init(&b, &env, 8);
    bridge_add(&b, &other, &wire, &wire);
    if (back_net_init(&n, &b, &calls, &info, &offer)) abort();
    n.dev.window = *w;
    back_net_start(&n, front);
    for (u64 now = 0; now < TURNS * NS_PER_MS; now += NS_PER_MS) {
        f.len = 1414;
        f.gso_size = 0;
        f.partial = now / NS_PER_MS % 2;
        f.csum_start = 34;
        f.csum_offset = 6;
        if (f.partial && large & 1) make_large(&f, body);
        bridge_input(&b, &other, &f, now);
        back_net_serve(&n, now);
        bridge_run(&b, now);
        back_net_flush(&n);
    }
    back_net_stop(&n);
    back_net_fini(&n);
}

static void blk(const struct takt_window *w, const struct takt_front *front, const char *options) {
    struct takt_back info = { .handle = 2, .vm = 1, .type = VIRTIO_ID_BLOCK };
    struct takt_offer offer;
    static struct back_blk b;
    static struct disk_ram ram;
    struct disk_ram_data disk;
    u8 *memory = calloc(disk_ram_pages(options), PAGE_SIZE);

    disk_ram_data_init(&disk, options, memory);
    disk_ram_init(&ram, options, NULL, &disk);
    if (back_blk_init(&b, &env, &calls, &info, &ram.disk, &offer)) abort();
    b.dev.window = *w;
    back_blk_start(&b, front);
    for (u64 now = 0; now < TURNS * NS_PER_MS; now += NS_PER_MS) {
        back_blk_serve(&b, now);
        back_blk_flush(&b);
    }
    back_blk_stop(&b);
    back_blk_fini(&b);
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const net_options[] = { "", "rate=10M delay=2ms queue=4", "offload=yes",
                                               "offload=yes mac=02:00:00:00:00:02" };
    static const char *const blk_options[] = { "size=8K", "size=8K lat=1ms depth=3" };
    struct takt_front front = { .status = VIRTIO_DRIVER_OK, .nr_queues = 2 };
    struct takt_window w = { .low = RAM };
    u8 flags;

    if (size < 16) return 0;
    flags = data[0];
    front.features = BIT(VIRTIO_F_VERSION_1);
    if (flags & 1) front.features |= BIT(VIRTIO_F_INDIRECT);
    if (flags & 2) front.features |= BIT(VIRTIO_F_EVENT_IDX);
    if (flags & 4) front.features |= VIRTIO_NET_F_MRG_RXBUF;
    if (flags & 8) front.features |= VIRTIO_NET_F_CSUM | VIRTIO_NET_F_GUEST_CSUM;
    if (data[3] & 4) front.features |= VIRTIO_NET_F_HOST_TSO4 | VIRTIO_NET_F_GUEST_TSO4;
    for (u32 q = 0; q < 2; q++)
        front.queue[q] =
            (struct takt_queue){ 16, 1, q * 0x400, q * 0x400 + 0x100, q * 0x400 + 0x200 };
    if (flags & 16) front.queue[0].size = data[1];
    if (flags & 32) front.queue[1].used = (u64)data[2] << 8 | data[3];
    /* Allocated anew each time, so that the sanitizer finds an access behind its end. */
    u8 *ram = calloc(1, RAM);

    memcpy(ram, data + 4, MIN(size - 4, (size_t)RAM));
    w.base = (u64)ram;
    broken = 0;
    if (flags & 64)
        net(&w, &front, net_options[(flags >> 7) + (data[3] & 8) / 4], data[3]);
    else
        blk(&w, &front, blk_options[flags >> 7]);
    if (broken > 1) abort();
    free_all();
    free(ram);
    return 0;
}
