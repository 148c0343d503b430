/* The registers of a virtio device: its driver, which a guest has, makes any accesses, and its back
 * end any calls. After each the state must be one that a back end can rely on, above all rings that
 * lie within the guest's memory. */
#include <stdlib.h>
#include <string.h>
#include "vdev/virtio_mmio.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RAM (8ull << 20)

static struct guestmem mem = { .size = RAM, .low_size = RAM - (2 << 20) };
static struct virtio_mmio dev;

static void check(bool ok) {
    if (!ok) abort();
}

static void check_part(u64 at, u64 align, u64 len) {
    check(at % align == 0 && guestmem_has(&mem, at, len));
}

static void invariants(void) {
    const struct takt_front *f = &dev.front;
    u32 status = f->status, n = dev.offer.nr_queues;

    check(!(status & ~(VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_DRIVER_OK | VIRTIO_FEATURES_OK |
                       VIRTIO_NEEDS_RESET | VIRTIO_FAILED)));
    check(n <= TAKT_MAX_QUEUES && f->nr_queues == n && dev.offer.config_len <= TAKT_MAX_CONFIG);
    check(n || !dev.live);
    check(!dev.live || (status & (VIRTIO_DRIVER_OK | VIRTIO_FEATURES_OK | VIRTIO_NEEDS_RESET |
                                  VIRTIO_FAILED)) == (VIRTIO_DRIVER_OK | VIRTIO_FEATURES_OK));
    check(!dev.live || dev.served);
    check(!dev.absent || (dev.stays && n && !dev.served));
    check(!(status & VIRTIO_DRIVER_OK) || status & VIRTIO_FEATURES_OK);
    if (n && status & VIRTIO_FEATURES_OK && !(status & VIRTIO_NEEDS_RESET))
        check(f->features >> VIRTIO_F_VERSION_1 & 1 && !(f->features & ~dev.offer.features));
    for (u32 i = 0; i < TAKT_MAX_QUEUES; i++) {
        const struct takt_queue *q = &f->queue[i];

        check(!(dev.live >> i & 1) || q->ready);
        check(q->ready <= 1 && (!q->ready || i < n));
        if (!q->ready) continue;
        check(q->size && q->size <= dev.offer.queue_max && !(q->size & (q->size - 1)));
        check_part(q->desc, 16, 16ull * q->size);
        check_part(q->avail, 2, 6 + 2ull * q->size);
        check_part(q->used, 4, 6 + 8ull * q->size);
    }
    check(dev.interrupt <= (VIRTIO_INT_USED | VIRTIO_INT_CONFIG));
    check(f->resets >= dev.let_go && f->resets <= dev.let_go + 1);
}

static void back_end(u8 what, u32 value) {
    struct takt_offer offer = { .features = BIT(VIRTIO_F_VERSION_1) | (value & 0xff),
                                .nr_queues = value >> 8 & 15,
                                .queue_max = 1u << (value >> 12 & 15),
                                .config_len = value >> 16 & 0x1ff };
    struct takt_front front;
    unsigned tell;

    memset(offer.config, (int)value, sizeof(offer.config));
    switch (what & 7) {
    case 0: virtio_mmio_offer(&dev, &offer, &tell); break;
    case 1: virtio_mmio_withdraw(&dev); break;
    case 2: virtio_mmio_break(&dev); break;
    case 3: check(virtio_mmio_used(&dev) == (dev.live != 0)); break;
    default:
        if (!(what & 8)) value = dev.front.resets; /* it has seen all of them */
        virtio_mmio_state(&dev, value, &front);
        check(front.resets == dev.front.resets);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const u32 edges[] = { 0, 1,     3,      7,       11,         15,
                                 8, 0x100, 0x1000, 0x10000, RAM - 4096, 0xffffffff };
    u32 tell, offered = 0x00f600ff | 2 << 8;

    dev = (struct virtio_mmio){ .mem = &mem, .type = VIRTIO_ID_NET, .port = 1, .config_port = 2 };
    dev.stays = size & 1;
    for (; size >= 8; data += 8, size -= 8) {
        u32 offset = (data[1] | (u32)data[2] << 8) % PAGE_SIZE, value;
        unsigned width = 1u << (data[3] & 3);

        memcpy(&value, data + 4, 4);
        if (data[0] & 0x80) value = edges[value % ARRAY_SIZE(edges)];
        if (data[0] & 0x40) { /* a register that is there */
            offset = offset % 0x108 & ~3u;
            width = 4;
        }
        switch (data[0] & 7) {
        case 0: back_end(data[1], value); break;
        case 1:
            check(width == 4 || virtio_mmio_read(&dev, offset, width) >> 8 * MIN(width, 3u) == 0);
            break;
        case 2:
            check(virtio_mmio_notify(&dev, value) == (value < 8 && dev.live >> value & 1));
            break;
        case 3: back_end(0, offered); break;
        default:
            tell = virtio_mmio_write(&dev, offset, width, value);
            check(tell <= (VIRTIO_TELL_BACK | VIRTIO_TELL_FRONT));
        }
        invariants();
    }
    return 0;
}
