/* Block devices whose driver has a ring for each socket of the machine, so that threads of two
 * sockets do not share a ring. Each ring has a lock. guest/direct.h has the contracts. */
#include <guest/direct.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/vcpu.h>

#define RING 256 /* requests that a ring holds */

/* Ends what the device is done with, and asks for an interrupt for the next one. */
static void ring_run(struct direct *d, u32 i) {
    struct virtio_blk *b = &d->ring[i];

    do virtio_blk_poll(b);
    while (b->in_flight && virtio_blk_listen(b, 1));
}

/* Handles the device's interrupt: ends the requests of its rings that are done. A device has one
 * interrupt for all of its rings, so each is looked at. */
static void on_used(u32 port, void *arg) {
    struct direct *d = arg;

    for (u32 i = 0; i < d->nr_rings; i++) {
        u64 f = spin_lock_irqsave(&d->lock[i]);

        if (d->up) ring_run(d, i);
        spin_unlock_irqrestore(&d->lock[i], f);
    }
}

static void on_config(u32 port, void *arg) { sem_up(&((struct direct *)arg)->changed); }

/* ---- the back end comes and goes ---- */

/* Allows or forbids the use of all rings. From when this returns no ring is used, or all may be.
 * Another vCPU that holds a lock has its interrupts off, so it is done soon. */
static void direct_set_up(struct direct *d, bool up) {
    for (u32 i = 0; i < TAKT_MAX_QUEUES; i++) {
        u64 f = spin_lock_irqsave(&d->lock[i]);

        d->up = up;
        spin_unlock_irqrestore(&d->lock[i], f);
    }
}

/* Waits for the device, practically for ever, and starts it with as many rings as it offers. */
static int direct_start(struct direct *d) {
    int error = device_open(&d->dev, VIRTIO_ID_BLOCK, d->index, FOREVER / 2);

    if (error) return error;
    error = virtio_blk_start_queues(d->ring, TAKT_MAX_QUEUES, &d->dev, RING);
    if (error < 0) return error;
    d->nr_rings = (u32)error;
    return 0;
}

/* Lets requests go to the device from now on. */
static int direct_go(struct direct *d, u32 lives) {
    int error = device_on_used(&d->dev, 0, on_used, d);

    if (!error) error = device_on_config(&d->dev, 0, on_config, d);
    if (error) return error;
    __atomic_store_n(&d->lives, lives, __ATOMIC_RELEASE);
    direct_set_up(d, true);
    return 0;
}

/* A thread that sleeps until the back end has gone, and then, in direct_start(), until another one
 * has come. In between virtio_blk_stop_queues() ends the requests that were under way. It fails if
 * their memory may still be written to. It calls q->done() of each request, which expects
 * that interrupts are off. d->lives counts the back ends; it is 0 while there is none. */
static void direct_watch(void *arg) {
    struct direct *d = arg;

    for (u32 lives = 1;;) {
        u64 f;

        sem_down(&d->changed);
        if (virtio_alive(&d->dev)) continue;
        printf("disk: the device is gone\n");
        __atomic_store_n(&d->lives, 0, __ATOMIC_RELEASE);
        direct_set_up(d, false);
        f = irq_save();
        if (virtio_blk_stop_queues(d->ring, d->nr_rings))
            guest_panic("disk: the device does not let go");
        irq_restore(f);
        if (direct_start(d) || d->ring[0].capacity < d->capacity)
            guest_panic("disk: the device does not come back as it was");
        if (direct_go(d, ++lives)) guest_panic("disk: the device's interrupts cannot be used");
        printf("disk: the device is back\n");
    }
}

/* Waits for block device `index`, sets up its rings, and starts the thread that watches it. Returns
 * 0, or a negative error. */
int direct_open(struct direct *d, u32 index) {
    int error;

    *d = (struct direct){ .index = index };
    sem_init(&d->changed, 0);
    error = direct_start(d);
    if (error) return error;
    d->capacity = d->ring[0].capacity;
    if (!thread_start(0, "disk", direct_watch, d)) return -ENOMEM;
    return direct_go(d, 1);
}

u32 direct_lives(const struct direct *d) { return __atomic_load_n(&d->lives, __ATOMIC_ACQUIRE); }

/* ---- requests ---- */

u32 direct_socket(const struct direct *d, u32 vcpu) { return vcpu * d->nr_rings / vcpu_count(); }

/* Submits a request and shows it to the device. Returns 0, or a negative error. The request goes
 * into the ring of the socket on which the thread runs. A new back end may have fewer rings than
 * the one before, so the number is looked at with the lock held. */
int direct_submit(struct direct *d, struct virtio_blk_request *q) {
    u32 i = direct_socket(d, thread_self()->vcpu);
    u64 f = spin_lock_irqsave(&d->lock[i]);
    int error = -EIO;

    if (d->up && i < d->nr_rings) error = virtio_blk_submit(&d->ring[i], q);
    if (!error) {
        virtio_blk_flush_ring(&d->ring[i]);
        ring_run(d, i);
    }
    spin_unlock_irqrestore(&d->lock[i], f);
    return error;
}
