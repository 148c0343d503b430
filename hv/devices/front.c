/* The virtio devices of VMs as their own side sees them: making them with the VM, their registers,
 * and taking them away. A VM with such devices is a front VM; the VM whose program serves a device
 * is its back end. A VM may be both. Telling the other side is done by event channels, one-bit
 * messages between VMs that arrive as interrupts. */
#include <takt/errno.h>
#include "devices/device.h"
#include "common/string.h"
#include "image/firmware.h"
#include "lib/log.h"
#include "sched/machine.h"
#include "vcpu/vcpu.h"
#include "x86/tsc.h"

struct spinlock backend_lock;
struct list devices = { &devices, &devices }, back_ends = { &back_ends, &back_ends };

/* ---- telling ---- */

/* Tells a back end that its devices have changed; it finds out by hypercalls which and how. */
static void tell_back_end(struct vm *vm) {
    if (vm->back.port) evtchn_raise(&vm->events, vm->back.port, now_ns());
}

/* Sets the level of the device's interrupt line, for a VM that has an IOAPIC. To be called when the
 * device may have begun or ceased to want an interrupt. */
void device_line(struct device *d) {
    vm_line(d->vm, PC_VIRTIO_PIN + d->number, &d->regs.interrupt);
}

/* Tells both ends of a device that its registers have changed, as `whom` says (VIRTIO_TELL_*). The
 * front end gets a configuration interrupt. The back end gets an event for this device, and one for
 * its list of devices. */
void device_tell(struct device *d, unsigned whom) {
    if (whom & VIRTIO_TELL_FRONT) {
        evtchn_raise(&d->vm->events, d->regs.config_port, now_ns());
        device_line(d);
    }
    if (whom & VIRTIO_TELL_BACK && d->back) {
        evtchn_send(&d->vm->events, d->regs.port, now_ns());
        tell_back_end(d->back);
    }
}

/* Returns whether the section of `vm` names `back` as a back end. */
static bool names_back_end(const struct vm *vm, const char *back) {
    for (u32 i = 0; i < vm->config.nr_devices; i++)
        if (strcmp(vm->config.device[i].back, back) == 0) return true;
    return false;
}

/* Tells the back ends that the section of the VM names: its devices have come or gone. */
static void tell_named(const struct vm *vm) {
    list_for_each(b, &back_ends, struct backend, in_all) {
        if (names_back_end(vm, vm_of_backend(b)->name)) tell_back_end(vm_of_backend(b));
    }
}

/* ---- registers ---- */

/* Reads or writes a register of a device for the front end's driver. Holds backend_lock, because
 * the back end may change the same device at the same time. */
static void device_register(struct device *d, u32 offset, const struct bus_access *a, u64 *value) {
    spin_lock(&backend_lock);
    if (a->write) {
        device_tell(d, virtio_mmio_write(&d->regs, offset, a->size, (u32)*value));
        device_line(d); /* it may have acknowledged an interrupt */
    } else {
        *value = virtio_mmio_read(&d->regs, offset, a->size);
    }
    spin_unlock(&backend_lock);
}

/* A bus_fn, the function that an exit calls, for the registers of a VM's virtio devices, which have
 * a page each. A write to QueueNotify, by which the driver says that it has put something into a
 * ring, is frequent, so it takes no lock of this room. */
static void device_access(void *dev, const struct bus_access *a, u64 *value) {
    struct vm *vm = dev;
    u32 at = (u32)(a->addr - TAKT_VIRTIO_GPA), offset = at % PAGE_SIZE;
    struct device *d = vm->device[at / PAGE_SIZE];

    if (!d) {
        if (!a->write && a->size == 4) *value = virtio_mmio_read_none(offset);
    } else if (a->write && offset == VIRTIO_QUEUE_NOTIFY && a->size == 4) {
        if (virtio_mmio_notify(&d->regs, (u32)*value)) vcpu_send(vm->vcpu[a->vcpu], d->regs.port);
    } else {
        device_register(d, offset, a, value);
    }
}

/* ---- life ---- */

/* Makes device number `number` of the VM, as its section of the configuration says. Nobody else
 * sees the device yet. Returns 0 or a negative errno. */
static int device_make(struct vm *vm, u32 number) {
    const struct config_device *c = &vm->config.device[number];
    int port, config_port;
    struct device *d;

    if (strcmp(c->back, vm->name) == 0)
        return vm_part_failed(vm, -EINVAL, "it cannot serve its own devices");
    port = evtchn_make(&vm->events);
    if (port < 0) return port;
    config_port = evtchn_make(&vm->events);
    if (config_port < 0) return config_port;
    d = heap_alloc(sizeof(*d));
    if (!d) return -ENOMEM;
    *d = (struct device){ .vm = vm, .number = number, .config = c };
    d->regs = (struct virtio_mmio){ .mem = &vm->mem,
                                    .type = c->type,
                                    .port = (u32)port,
                                    .config_port = (u32)config_port,
                                    .stays = vm_is_pc(vm) };
    list_init(&d->link);
    vm->device[number] = d;
    return 0;
}

/* A part of making a VM: makes its virtio devices, and puts them on its bus. When this returns 0,
 * others can find the VM's devices, and the VM as a back end. */
static int devices_make(struct vm *vm) {
    list_init(&vm->back.windows);
    bus_add(&vm->mmio, TAKT_VIRTIO_GPA, TAKT_MAX_DEVICES * PAGE_SIZE, device_access, vm);
    for (u32 i = 0; i < vm->config.nr_devices; i++) {
        int error = device_make(vm, i);

        if (error) return error;
    }
    spin_lock(&backend_lock);
    for (u32 i = 0; i < vm->config.nr_devices; i++) list_add_tail(&devices, &vm->device[i]->link);
    list_add_tail(&back_ends, &vm->back.in_all);
    tell_named(vm);
    spin_unlock(&backend_lock);
    return 0;
}

/* Removes the devices that the VM has as a front VM, so that no code finds them any more. The back
 * ends (the VMs that serve them) are told before the VM's RAM, which they have mapped, is replaced
 * by other memory. So when a back end has read there, and its port is not raised after that, it
 * knows that it has read what the VM has there. */
static void devices_free(struct vm *vm) {
    bool had_some = false;

    for (u32 i = 0; i < vm->config.nr_devices; i++) {
        had_some |= vm->device[i] != NULL;
        if (vm->device[i]) list_del(&vm->device[i]->link);
        heap_free(vm->device[i]);
        vm->device[i] = NULL;
    }
    if (had_some) tell_named(vm);
}

/* Withdraws one of the devices that the VM serves as a back end. Returns 1 if there was one. */
static int withdraw_step(struct vm *vm) {
    list_for_each(d, &devices, struct device, link) {
        if (d->back != vm) continue;
        d->back = NULL;
        device_tell(d, virtio_mmio_withdraw(&d->regs));
        return 1;
    }
    return 0;
}

/* Does the next step of taking away the VM's devices: those that it uses (it is their front VM)
 * first, then those that it serves (it is their back end). Returns 1 if there is more to do. The
 * caller holds backend_lock. */
static int front_undo_step(struct vm *vm) {
    bool listed = vm->back.in_all.next; /* devices_make() has come to its end */

    devices_free(vm);
    if (windows_revoke_step(vm)) return 1;
    if (!listed) return waste_free_step(&vm->back);
    if (withdraw_step(vm)) return 1;
    windows_forget(vm);
    if (waste_free_step(&vm->back)) return 1;
    list_del(&vm->back.in_all);
    tell_named(vm);
    return 0;
}

/* Does one step of taking the VM's devices away. Returns 1 if there is more to do, and 0 at the
 * end. */
static int devices_undo(struct vm *vm) {
    int r;

    spin_lock(&backend_lock);
    r = front_undo_step(vm);
    spin_unlock(&backend_lock);
    return r;
}

const struct vm_part devices_part = { "devices", devices_make, devices_undo };

/* ---- waiting for back ends ---- */

#define OFFER_WAIT  (10 * NS_PER_S)  /* how long a VM that is a PC waits for its back ends */
#define OFFER_PAUSE (10 * NS_PER_MS) /* between two looks */

/* Returns the first device of the VM that no back end has offered, or NULL. */
static const struct device *not_offered(const struct vm *vm) {
    const struct device *found = NULL;

    spin_lock(&backend_lock);
    for (u32 i = 0; i < vm->config.nr_devices && !found; i++)
        if (!vm->device[i]->back) found = vm->device[i];
    spin_unlock(&backend_lock);
    return found;
}

/* A part of making a VM: waits until back ends have offered its devices. An operating system looks
 * for its devices once, when it starts. If no back end has offered a device by then, it finds an
 * empty slot there, and never looks again. So a VM that is a PC does not run before its devices are
 * offered, or OFFER_WAIT is over. The drivers of unikernels wait by themselves. vm->job.offset is
 * the end of the wait. */
static int offers_make(struct vm *vm) {
    const struct device *d;
    u64 now = machine_now();

    if (!vm_is_pc(vm)) return 0;
    d = not_offered(vm);
    if (!d) return 0;
    if (!vm->job.offset) vm->job.offset = now + OFFER_WAIT;
    if (now < vm->job.offset) {
        vm->job.work.not_before = now + OFFER_PAUSE;
        return 1;
    }
    log_warn("%s: VM %s has not offered device %u within %u s: the VM starts without it", vm->name,
             d->config->back, d->number, (unsigned)(OFFER_WAIT / NS_PER_S));
    return 0;
}

const struct vm_part offers_part = { "offers", offers_make, NULL };

/* ---- reports ---- */

/* Returns the word by which reports name the state of a device. */
static const char *device_state(const struct device *d) {
    u32 status = d->regs.front.status;

    if (!d->back) return "waits";
    if (status & VIRTIO_NEEDS_RESET) return "broken";
    if (virtio_mmio_resetting(&d->regs)) return "resets";
    if (status & VIRTIO_DRIVER_OK) return "runs";
    return "offered";
}

/* Returns the key of the VM file that gives a VM devices of this type. */
static const char *device_type(u32 type) {
    switch (type) {
    case VIRTIO_ID_NET: return "net";
    case VIRTIO_ID_RNG: return "rng";
    default: return "disk";
    }
}

/* Fills in *out with what the shell shows of a device. The caller holds backend_lock. */
static void device_report(const struct device *d, struct device_info *out) {
    *out = (struct device_info){ .type = device_type(d->regs.type),
                                 .back = d->config->back,
                                 .state = device_state(d),
                                 .status = d->regs.front.status,
                                 .resets = d->regs.front.resets,
                                 .notifies = d->regs.notifies,
                                 .interrupts = d->regs.interrupts,
                                 .dropped = d->regs.dropped };
    for (u32 i = 0; i < TAKT_MAX_QUEUES; i++) out->queues += d->regs.front.queue[i].ready;
}

/* Fills in *out with what the shell shows of a VM's device. Returns false if the VM has no such
 * device. */
bool device_info(struct vm *vm, u32 number, struct device_info *out) {
    const struct device *d = NULL;

    spin_lock(&backend_lock);
    if (number < TAKT_MAX_DEVICES) d = vm->device[number];
    if (d) device_report(d, out);
    spin_unlock(&backend_lock);
    return d;
}
