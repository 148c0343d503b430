/* The hypercalls of back ends, TAKT_HC_BACK_* of include/takt/abi.h. A virtio device of a VM (the
 * front end) is served by a program in another VM (the back end). The back end lists the devices
 * that name it, offers each, maps the RAM of the front VM, and raises interrupts there. A "handle"
 * is the number by which back ends name a device. backend_lock guards the devices of all VMs. */
#include <takt/errno.h>
#include "devices/device.h"
#include "common/string.h"
#include "vcpu/hypercall.h"

/* Returns the number by which back ends name a device. */
static u32 handle_of(const struct device *d) { return d->vm->id * TAKT_MAX_DEVICES + d->number; }

/* Returns the device that has this handle; NULL if there is none. */
static struct device *device_of_handle(u32 handle) {
    list_for_each(d, &devices, struct device, link) {
        if (handle_of(d) == handle) return d;
    }
    return NULL;
}

/* Takes the lock and returns the device, if v's VM is to serve it. Otherwise returns NULL without
 * the lock, and sets *error to -EPERM if another VM serves the device, or to -ENOENT. */
static struct device *device_lock(struct vcpu *v, u32 handle, i64 *error) {
    struct device *d;

    spin_lock(&backend_lock);
    d = device_of_handle(handle);
    if (d && (d->back == v->vm || strcmp(d->config->back, v->vm->name) == 0)) return d;
    spin_unlock(&backend_lock);
    *error = -ENOENT;
    if (d) *error = -EPERM;
    return NULL;
}

/* Takes the lock and returns the device, as device_lock() does, but only if a back end has offered
 * it: until then it has no rings to serve. Otherwise returns NULL without the lock; *error is then
 * as device_lock() sets it, or -EINVAL. */
static struct device *offered_lock(struct vcpu *v, u32 handle, i64 *error) {
    struct device *d = device_lock(v, handle, error);

    if (!d || d->back) return d;
    spin_unlock(&backend_lock);
    *error = -EINVAL;
    return NULL;
}

/* Returns the port that tells this VM, as a back end, that one of its devices has come, has gone or
 * has changed its status. The port is made at the first call; later calls return the same one. */
static i64 hc_back_port(struct vcpu *v, const u64 *a) {
    struct backend *b = &v->vm->back;
    int port;

    spin_lock(&backend_lock);
    port = (int)b->port;
    if (!port) port = evtchn_make(&v->vm->events);
    if (port > 0) b->port = (u32)port;
    spin_unlock(&backend_lock);
    return port;
}

/* Returns device number `index` of those whose section names `back`, or NULL. */
static struct device *nth_of_back_end(const char *back, u64 index) {
    list_for_each(d, &devices, struct device, link) {
        if (strcmp(d->config->back, back) != 0) continue;
        if (index == 0) return d;
        index--;
    }
    return NULL;
}

/* Copies what a back end has to know of the device number a[0] among those it serves to the guest's
 * memory at a[1]. A back end asks for 0, 1, 2 and so on, until the answer is -ENOENT. */
static i64 hc_back_list(struct vcpu *v, const u64 *a) {
    struct takt_back out = { 0 };
    const struct device *d;

    spin_lock(&backend_lock);
    d = nth_of_back_end(v->vm->name, a[0]);
    if (d) {
        out.handle = handle_of(d);
        out.vm = d->vm->id;
        out.type = d->regs.type;
        out.number = d->number;
        out.ram = d->vm->mem.size;
        memcpy(out.name, d->vm->name, strlen(d->vm->name));
        memcpy(out.options, d->config->options, strlen(d->config->options));
    }
    spin_unlock(&backend_lock);
    if (!d) return -ENOENT;
    return guestmem_write(&v->vm->mem, a[1], &out, sizeof(out));
}

/* Takes a back end's offer of a device: joins a port of the back end with the device's, and puts
 * the offer into the registers that the front end reads. Returns the back end's port, or a negative
 * errno. */
static i64 take_offer(struct vm *vm, struct device *d, const struct takt_offer *offer) {
    int error = virtio_mmio_offer_refused(&d->regs, offer), port;
    unsigned whom;

    if (error) return error; /* this comes first, because after it a port has to be given back */
    port = evtchn_connect(&vm->events, &d->vm->events, d->regs.port);
    if (port < 0) return port;
    error = virtio_mmio_offer(&d->regs, offer, &whom);
    if (error) return error;
    d->back = vm;
    d->back_port = (u32)port;
    device_tell(d, whom);
    return port;
}

/* The back end offers the device of handle a[0], with the features and the configuration at a[1].
 * From now on the front end sees the device. The offer is copied before the lock is taken, because
 * the guest could change it after it was checked. */
static i64 hc_back_offer(struct vcpu *v, const u64 *a) {
    struct takt_offer offer;
    struct device *d;
    i64 result;

    if (guestmem_read(&v->vm->mem, a[1], &offer, sizeof(offer))) return -EFAULT;
    d = device_lock(v, (u32)a[0], &result);
    if (!d) return result;
    result = take_offer(v->vm, d, &offer);
    spin_unlock(&backend_lock);
    return result;
}

/* Tells the back end at a[1] what the front end (the driver in the VM that uses the device) has
 * set: status, features and rings. With a[2] the back end says how many resets it has followed;
 * once it has followed them all, the front end sees that the device is out of reset. */
static i64 hc_back_state(struct vcpu *v, const u64 *a) {
    struct takt_front out;
    struct device *d;
    i64 error;

    if (a[2] >> 32) return -EINVAL;
    if (!guestmem_has(&v->vm->mem, a[1], sizeof(out))) return -EFAULT;
    d = offered_lock(v, (u32)a[0], &error);
    if (!d) return error;
    device_tell(d, virtio_mmio_state(&d->regs, (u32)a[2], &out));
    spin_unlock(&backend_lock);
    return guestmem_write(&v->vm->mem, a[1], &out, sizeof(out));
}

/* Maps the RAM of the front VM, which uses the device, into the guest-physical addresses of the
 * back end, the VM that serves it and that calls this: its window on the front VM. Each call maps
 * some chunks (2 MiB), so that no call takes long, and HC_AGAIN has the hypercall executed again.
 * At the end the guest finds at a[1] where the window is. */
static i64 hc_back_map(struct vcpu *v, const u64 *a) {
    struct takt_window out;
    struct device *d;
    i64 result;

    if (!guestmem_has(&v->vm->mem, a[1], sizeof(out))) return -EFAULT;
    d = device_lock(v, (u32)a[0], &result);
    if (!d) return result;
    result = window_map_step(v->vm, d->vm, &out);
    spin_unlock(&backend_lock);
    if (result > 0) return HC_AGAIN;
    if (result < 0) return result;
    return guestmem_write(&v->vm->mem, a[1], &out, sizeof(out));
}

/* Unmaps the RAM of a front VM (see hc_back_map()), some chunks at each call. a[0] is the handle of
 * one of its devices. The VM may be gone already, because its window stays until the back end gives
 * it up. */
static i64 hc_back_unmap(struct vcpu *v, const u64 *a) {
    i64 result = -ENOENT;
    struct window *w;

    spin_lock(&backend_lock);
    w = window_of_id(&v->vm->back, (u32)a[0] / TAKT_MAX_DEVICES);
    if (w && (w->chunks || w->unmapping)) result = window_unmap_step(v->vm, w);
    spin_unlock(&backend_lock);
    if (result > 0) return HC_AGAIN;
    return result;
}

/* The back end has used buffers of the ring, and the front end gets an interrupt for that if it
 * wants one. The event is raised without the lock, because this call is frequent. */
static i64 hc_back_irq(struct vcpu *v, const u64 *a) {
    i64 error;
    struct device *d = offered_lock(v, (u32)a[0], &error);
    u32 port = 0;

    if (!d) return error;
    if (virtio_mmio_used(&d->regs)) port = d->back_port;
    device_line(d);
    spin_unlock(&backend_lock);
    if (port) vcpu_send(v, port);
    return 0;
}

/* The back end says that the front end has broken the rules of its ring. The device then needs a
 * reset, and the front end is told. */
static i64 hc_back_broken(struct vcpu *v, const u64 *a) {
    i64 error;
    struct device *d = offered_lock(v, (u32)a[0], &error);

    if (!d) return error;
    /* A device that is going to be reset anyway is not broken afterwards. */
    if (!virtio_mmio_resetting(&d->regs)) device_tell(d, virtio_mmio_break(&d->regs));
    spin_unlock(&backend_lock);
    return 0;
}

/* Registers the hypercalls of back ends. `words` in each call is the number of arguments that have
 * to fit into 32 bits. */
void back_ends_init(void) {
    static const struct hypercall calls[] = {
        { .nr = TAKT_HC_BACK_PORT, .fn = hc_back_port },
        { .nr = TAKT_HC_BACK_LIST, .fn = hc_back_list, .words = 1 },
        { .nr = TAKT_HC_BACK_OFFER, .fn = hc_back_offer, .words = 1 },
        { .nr = TAKT_HC_BACK_STATE, .fn = hc_back_state, .words = 1 },
        { .nr = TAKT_HC_BACK_MAP, .fn = hc_back_map, .words = 1 },
        { .nr = TAKT_HC_BACK_UNMAP, .fn = hc_back_unmap, .words = 1 },
        { .nr = TAKT_HC_BACK_IRQ, .fn = hc_back_irq, .words = 1 },
        { .nr = TAKT_HC_BACK_BROKEN, .fn = hc_back_broken, .words = 1 },
    };

    hypercalls_add(calls, ARRAY_SIZE(calls));
}
