/* The device of this lab: registers that note what the driver does, and a disk behind a ring. Its
 * memory, and the "guest-physical" addresses of it, are in takt/tests/unit/ring_rig.h. */
#ifndef LAB9_RIG_H
#define LAB9_RIG_H

#include <signal.h>
#include <sys/mman.h>
#include <takt/errno.h>
#include "check.h"
#include "drivers/virtio_blk.h"
#include "ring_rig.h"

#define SIZE 256u /* descriptors; the table of descriptors fills a page, and the rings the next */

/* ---- a ring without a device; the test plays its other side ---- */

static struct vring_front ring;

/* Returns where the device says when it wants to be notified, and where the driver says when it
 * wants an interrupt: the event indexes (virtio 1.2, 2.7.7 and 2.7.10). */
static inline u16 *avail_event(void) { return (u16 *)&ring.used->ring[SIZE]; }
static inline u16 *used_event(void) { return &ring.avail->ring[SIZE]; }

static inline void begin(u64 features) {
    if (ring.avail) vring_front_fini(&ring);
    arena_reset();
    expect_result("vring_front_init", vring_front_init(&ring, &arena_env, SIZE, features), 0);
}

/* Adds a chain of one buffer. */
static inline void add_one(void *token) {
    struct vring_sg sg = { ARENA_GPA, 64 };

    expect_result("vring_front_add", vring_front_add(&ring, &sg, 1, 0, token), 0);
}

/* The device is done with a chain. */
static inline void used(u32 id, u32 len) {
    ring.used->ring[ring.used->idx % SIZE] = (struct vring_used_elem){ id, len };
    __atomic_store_n(&ring.used->idx, (u16)(ring.used->idx + 1), __ATOMIC_RELEASE);
}

/* ---- a device that does something just before the driver writes to the available ring ---- */

static void (*meanwhile_act)(void);
static struct sigaction crash;

static inline void meanwhile_open(void) {
    mprotect(ring.avail, PAGE_SIZE, PROT_READ | PROT_WRITE);
    sigaction(SIGSEGV, &crash, NULL);
}

static inline void meanwhile_trap(int sig, siginfo_t *info, void *context) {
    meanwhile_open();
    /* Elsewhere it is a crash: the write happens once more, and is reported. */
    if ((u64)info->si_addr / PAGE_SIZE == (u64)ring.avail / PAGE_SIZE) meanwhile_act();
}

/* At the next write of the driver to the page of the available ring, `act` is called first. */
static inline void meanwhile(void (*act)(void)) {
    struct sigaction trap = { .sa_sigaction = meanwhile_trap, .sa_flags = SA_SIGINFO };

    meanwhile_act = act;
    sigaction(SIGSEGV, &trap, &crash);
    mprotect(ring.avail, PAGE_SIZE, PROT_READ);
}

/* ---- registers ---- */

static struct {
    /* what the test sets */
    u64 offers, refuses; /* features: offered, and not accepted together with others */
    bool stuck;          /* it does not come out of reset */
    u32 queue_max;
    struct virtio_blk_config config;
    bool config_changes; /* once, while the driver reads it */
    /* what the driver has done */
    u32 status, history[16], steps; /* all that was written to Status */
    u64 accepted;
    u32 generation, queue_size;
    u64 desc, avail, used;
    u32 notified;
} regs;

static inline u64 regs_features(struct virtio_dev *d) { return regs.offers; }
static inline void regs_accept(struct virtio_dev *d, u64 features) { regs.accepted = features; }

static inline u32 regs_status(struct virtio_dev *d) {
    if (regs.stuck && !regs.status) return VIRTIO_NEEDS_RESET;
    return regs.status;
}

static inline void regs_set_status(struct virtio_dev *d, u32 status) {
    if (regs.steps < ARRAY_SIZE(regs.history)) regs.history[regs.steps++] = status;
    if (status & VIRTIO_FEATURES_OK && regs.accepted & regs.refuses) status &= ~VIRTIO_FEATURES_OK;
    regs.status = status;
}

static inline u32 regs_queue_max(struct virtio_dev *d, u32 queue) {
    if (queue) return 0;
    return regs.queue_max;
}

static inline void regs_queue_set(struct virtio_dev *d, u32 queue, u32 size, u64 desc, u64 avail,
                                  u64 used_ring) {
    regs.queue_size = size;
    regs.desc = desc;
    regs.avail = avail;
    regs.used = used_ring;
}

static inline void regs_notify(struct virtio_dev *d, u32 queue) { regs.notified++; }
static inline u32 regs_generation(struct virtio_dev *d) { return regs.generation; }

/* The capacity changes when its second byte has been read. */
static inline u32 regs_config(struct virtio_dev *d, u32 offset, u32 bytes) {
    u32 value = 0;

    memcpy(&value, (u8 *)&regs.config + offset, bytes);
    if (regs.config_changes && offset == 1) {
        regs.config_changes = false;
        regs.config.capacity = 0x10000;
        regs.generation++;
    }
    return value;
}

static const struct virtio_ops regs_ops = {
    .features = regs_features,
    .accept = regs_accept,
    .status = regs_status,
    .set_status = regs_set_status,
    .queue_max = regs_queue_max,
    .queue_set = regs_queue_set,
    .notify = regs_notify,
    .generation = regs_generation,
    .config = regs_config,
};
static struct virtio_dev dev;

/* Begins with a device that nobody has used yet. */
static inline void plug(u64 offers) {
    arena_reset();
    memset(&regs, 0, sizeof(regs));
    regs.offers = offers;
    regs.queue_max = SIZE;
    regs.status = VIRTIO_DRIVER; /* left over from another driver */
    dev = (struct virtio_dev){ .ops = &regs_ops, .env = &arena_env };
}

/* ---- a disk ---- */

#define SECTORS 64u

static u8 sectors[SECTORS * VIRTIO_BLK_SECTOR];
static struct vring_back served;
static struct virtio_blk disk;
static bool disk_fails;

/* Brings a disk up. */
static inline void disk_begin(u64 features) {
    plug(features | BIT(VIRTIO_F_VERSION_1));
    regs.config.capacity = SECTORS;
    memset(sectors, 0, sizeof(sectors));
    disk_fails = false;
    expect_result("virtio_blk_start", virtio_blk_start(&disk, &dev, SIZE), 0);
    expect("Status when the driver is ready", regs.status,
           VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK | VIRTIO_DRIVER_OK);
    expect_result("the ring that the driver has told the device of",
                  vring_back_init(&served, &arena_window, regs.accepted, regs.queue_size, regs.desc,
                                  regs.avail, regs.used),
                  0);
}

/* Does one request of the driver. */
static inline void disk_do(struct vring_chain *c) {
    const struct vring_seg *in = c->seg + c->nr_out;
    struct virtio_blk_hdr hdr;
    u8 status = VIRTIO_BLK_OK;
    u64 at;

    expect("that the device can read the whole header",
           vring_copy_out(&hdr, c->seg, c->nr_out, 0, sizeof(hdr)), sizeof(hdr));
    expect("that the device can write the status", c->in_len > 0, true);
    at = hdr.sector * VIRTIO_BLK_SECTOR;
    if (disk_fails) {
        status = VIRTIO_BLK_IOERR;
    } else if (hdr.type == VIRTIO_BLK_OUT) {
        expect("that all data of a write is for the device to read", c->in_len, 1);
        vring_copy_out(sectors + at, c->seg, c->nr_out, sizeof(hdr), c->out_len - sizeof(hdr));
    } else if (hdr.type == VIRTIO_BLK_IN) {
        expect("that all data of a read is for the device to write", c->out_len, sizeof(hdr));
        vring_copy_in(in, c->nr_in, 0, sectors + at, c->in_len - 1);
    }
    vring_copy_in(in, c->nr_in, c->in_len - 1, &status, 1);
    vring_back_put(&served, c->head, c->in_len);
}

/* Does all that the device has been shown. */
static inline void disk_serve(void) {
    struct vring_chain c;

    while (vring_back_take(&served, &c) > 0) disk_do(&c);
    expect("that the device finds nothing wrong with the ring", served.broken, false);
    vring_back_flush(&served);
}

#endif
