/* Front ends, back ends, windows: the rules are in backend.h. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "platform/smp.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

#define CHUNKS_A_PART 16u    /* that a part of a call, or of a destruction, maps */
#define SCRUB_PART    65536u /* bytes */
#define WINDOW_ALIGN  BIT(30)
#define MAX_WINDOWS   64u /* of a back end */

struct device {
    struct virtio_mmio regs;
    struct list link;
    struct vm *vm; /* whose it is */
    u32 number;
    const struct config_device *config; /* in vm */
    struct vm *back;                    /* that has offered it */
    u32 back_port;                      /* of `back`, joined with regs.port */
};

/* A front VM's RAM in a back end. */
struct window {
    struct list link;
    struct vm *front; /* NULL: it is gone, and all is waste */
    u32 front_id;
    u64 base;
    struct guestmem ram; /* its layout alone */
    u32 chunks;          /* mapped so far, from the first */
    u32 waste;           /* replaced so far, from the first */
    bool unmapping, kicked;
    u64 generation; /* once passed, no pCPU uses what was taken away */
};

struct spinlock backend_lock;
static struct list devices = { &devices, &devices }, backends = { &backends, &backends };

static struct vm *vm_of(struct backend *b) { return container_of(b, struct vm, back); }

static u32 handle_of(const struct device *d) { return d->vm->id * TAKT_MAX_DEVICES + d->number; }

/* ---- telling ---- */

static void tell_back_end(struct vm *vm) {
    if (vm->back.port) evtchn_raise(&vm->events, vm->back.port, now_ns());
}

static void tell(struct device *d, unsigned who) {
    if (who & VIRTIO_TELL_FRONT) evtchn_raise(&d->vm->events, d->regs.config_port, now_ns());
    if (who & VIRTIO_TELL_BACK && d->back) {
        evtchn_send(&d->vm->events, d->regs.port, now_ns());
        tell_back_end(d->back);
    }
}

/* To those that the VM's section names: a device has come or gone. */
static void tell_named(const struct vm *vm) {
    list_for_each(b, &backends, struct backend, in_all) {
        const struct config_device *c = vm->config.device, *end = c + vm->config.nr_devices;

        while (c < end && strcmp(c->back, vm_of(b)->name) != 0) c++;
        if (c < end) tell_back_end(vm_of(b));
    }
}

/* ---- the front end ---- */

void device_access(void *dev, const struct bus_access *a, u64 *value) {
    struct vm *vm = dev;
    u32 at = (u32)(a->addr - TAKT_VIRTIO_GPA), offset = at % PAGE_SIZE;
    struct device *d = vm->device[at / PAGE_SIZE];

    if (!d) {
        if (!a->write && a->size == 4) *value = virtio_mmio_read_none(offset);
    } else if (a->write && offset == VIRTIO_QUEUE_NOTIFY && a->size == 4) {
        if (virtio_mmio_notify(&d->regs, (u32)*value)) vcpu_send(vm->vcpu[a->vcpu], d->regs.port);
    } else {
        spin_lock(&backend_lock);
        if (a->write)
            tell(d, virtio_mmio_write(&d->regs, offset, a->size, (u32)*value));
        else
            *value = virtio_mmio_read(&d->regs, offset, a->size);
        spin_unlock(&backend_lock);
    }
}

/* ---- windows: where they are ---- */

static u64 window_span(const struct guestmem *m) {
    return ALIGN_UP(m->size == m->low_size ? m->size : TAKT_HIGH_RAM + m->size - m->low_size, WINDOW_ALIGN);
}

/* Chunk `n` of the front VM, in the back end. */
static gpa_t window_gpa(const struct window *w, u32 n) { return w->base + guestmem_chunk_gpa(&w->ram, n); }

static struct window *window_find(struct backend *b, const struct vm *front, u32 id) {
    list_for_each(w, &b->windows, struct window, link)
        if (front ? w->front == front : w->front_id == id) return w;
    return NULL;
}

static int window_create(struct vm *vm, struct vm *front, struct window **out) {
    const struct guestmem *own = &vm->mem, *mem = &front->mem;
    u64 span = window_span(mem);
    u64 base = MAX(TAKT_FOREIGN_GPA, ALIGN_UP(TAKT_HIGH_RAM + own->size - own->low_size, WINDOW_ALIGN));
    struct list *before = &vm->back.windows;
    struct window *w;

    list_for_each(old, &vm->back.windows, struct window, link) {
        if (old->base - base >= span) {
            before = &old->link;
            break;
        }
        base = old->base + window_span(&old->ram);
    }
    if (vm->back.nr_windows >= MAX_WINDOWS || base + span > BIT(cpuid_physical_bits())) return -ENOSPC;
    w = heap_alloc(sizeof(*w));
    if (!w) return -ENOMEM;
    *w = (struct window){ .front = front, .front_id = front->id, .base = base };
    w->ram = (struct guestmem){ .size = mem->size, .low_size = mem->low_size };
    list_add_tail(before, &w->link);
    vm->back.nr_windows++;
    *out = w;
    return 0;
}

static void window_free(struct backend *b, struct window *w) {
    list_del(&w->link);
    b->nr_windows--;
    heap_free(w);
}

/* ---- windows: what is in them. Each does a part: 1: there is more ---- */

/* The chunk that takes the place of a front VM's RAM is there before the first window. */
static int waste_part(struct backend *b) {
    if (!b->waste) {
        hpa_t chunk = frame_alloc(FRAME_ORDER_2M);

        if (chunk == HPA_NONE) return -ENOMEM;
        b->waste = chunk;
        b->scrubbed = 0;
    }
    if (b->scrubbed == CHUNK_SIZE) return 0;
    memset((u8 *)hpa_to_va(b->waste) + b->scrubbed, 0, SCRUB_PART);
    b->scrubbed += SCRUB_PART;
    return 1;
}

/* Also for the devices of the machine that the back end has. */
static int window_put(struct vm *vm, const struct window *w, u32 n, hpa_t chunk) {
    gpa_t at = window_gpa(w, n);
    int err = npt_map(&vm->virt.npt, at, chunk, CHUNK_SIZE, NPT_RW, NPT_WB);

    return err || !vm->dma ? err : vm_giver->map(vm, at, chunk, CHUNK_SIZE);
}

/* What is left of the window then says to which generation translations may be in use, until the front VM has
 * gone. */
static void unmap_last(struct vm *vm, struct window *w) {
    gpa_t at = window_gpa(w, --w->chunks);

    npt_unmap(&vm->virt.npt, at, CHUNK_SIZE); /* splits nothing */
    if (vm->dma) vm_giver->map(vm, at, HPA_NONE, CHUNK_SIZE);
    w->waste = MIN(w->waste, w->chunks);
    w->generation = vm->virt.npt.tlb.current;
    w->kicked = false;
}

/* A chunk that vCPUs and devices do not both get is taken from both. */
static int map_part(struct vm *vm, struct window *w) {
    u32 all = (u32)(w->ram.size >> CHUNK_SHIFT);

    for (u32 i = 0; i < CHUNKS_A_PART && w->chunks < all; i++) {
        u32 n = w->chunks++;

        if (!window_put(vm, w, n, w->front->mem.chunk[n])) continue;
        unmap_last(vm, w);
        return -ENOMEM;
    }
    return w->chunks < all;
}

static int unmap_part(struct vm *vm, struct window *w) {
    for (u32 i = 0; i < CHUNKS_A_PART && w->chunks; i++) unmap_last(vm, w);
    if (w->chunks) return 1;
    w->unmapping = false;
    if (!w->front) window_free(&vm->back, w);
    return 0;
}

/* Puts waste in the place of what is mapped: that needs no memory. */
static int waste_window_part(struct vm *vm, struct window *w) {
    if (w->waste == w->chunks) return 0;
    for (u32 i = 0; i < CHUNKS_A_PART && w->waste < w->chunks; i++, w->waste++)
        window_put(vm, w, w->waste, vm->back.waste);
    w->generation = vm->virt.npt.tlb.current;
    w->kicked = false;
    return w->waste < w->chunks;
}

/* ---- hypercalls of the back end ---- */

/* The device, if v's VM is to serve it; the lock is taken then. Else *error. */
static struct device *device_lock(struct vcpu *v, u32 handle, i64 *error) {
    *error = -ENOENT;
    spin_lock(&backend_lock);
    list_for_each(d, &devices, struct device, link) {
        if (handle_of(d) != handle) continue;
        *error = d->back == v->vm || strcmp(d->config->back, v->vm->name) == 0 ? 0 : -EPERM;
        if (!*error) return d;
    }
    spin_unlock(&backend_lock);
    return NULL;
}

/* The same of one that it has offered. */
static struct device *offered_lock(struct vcpu *v, u32 handle, i64 *error) {
    struct device *d = device_lock(v, handle, error);

    if (!d || d->back) return d;
    spin_unlock(&backend_lock);
    *error = -EINVAL;
    return NULL;
}

i64 hc_back_port(struct vcpu *v, const u64 *a) {
    struct backend *b = &v->vm->back;
    int port;

    spin_lock(&backend_lock);
    port = b->port ? (int)b->port : evtchn_make(&v->vm->events);
    if (port > 0) b->port = (u32)port;
    spin_unlock(&backend_lock);
    return port;
}

i64 hc_back_list(struct vcpu *v, const u64 *a) {
    struct takt_back out = { 0 };
    u32 index = 0;
    bool found = false;

    spin_lock(&backend_lock);
    list_for_each(d, &devices, struct device, link) {
        if (strcmp(d->config->back, v->vm->name) != 0 || index++ != a[0]) continue;
        out = (struct takt_back){
            .handle = handle_of(d), d->vm->id, d->regs.type, d->number, .ram = d->vm->mem.size
        };
        memcpy(out.name, d->vm->name, strlen(d->vm->name));
        memcpy(out.options, d->config->options, strlen(d->config->options));
        found = true;
        break;
    }
    spin_unlock(&backend_lock);
    return found ? guestmem_write(&v->vm->mem, a[1], &out, sizeof(out)) : -ENOENT;
}

i64 hc_back_offer(struct vcpu *v, const u64 *a) {
    struct takt_offer offer;
    struct device *d;
    unsigned who;
    i64 error;
    int port = 0;

    if (guestmem_read(&v->vm->mem, a[1], &offer, sizeof(offer))) return -EFAULT;
    d = device_lock(v, (u32)a[0], &error);
    if (!d) return error;
    error = virtio_mmio_offer_refused(&d->regs, &offer); /* first: one that is refused takes no port */
    if (!error) {
        port = evtchn_connect(&v->vm->events, &d->vm->events, d->regs.port);
        error = port < 0 ? port : virtio_mmio_offer(&d->regs, &offer, &who);
    }
    if (!error) {
        d->back = v->vm;
        d->back_port = (u32)port;
        tell(d, who);
    }
    spin_unlock(&backend_lock);
    return error ? error : port;
}

i64 hc_back_state(struct vcpu *v, const u64 *a) {
    struct takt_front out;
    struct device *d;
    i64 error;

    if (a[2] >> 32) return -EINVAL;
    if (!guestmem_has(&v->vm->mem, a[1], sizeof(out))) return -EFAULT;
    d = offered_lock(v, (u32)a[0], &error);
    if (!d) return error;
    tell(d, virtio_mmio_state(&d->regs, (u32)a[2], &out));
    spin_unlock(&backend_lock);
    return guestmem_write(&v->vm->mem, a[1], &out, sizeof(out));
}

static i64 map_window(struct vm *vm, struct vm *front, struct takt_window *out) {
    struct window *w = window_find(&vm->back, front, 0);
    int r = waste_part(&vm->back);

    if (r == 0 && !w) r = window_create(vm, front, &w);
    if (r == 0) r = w->unmapping ? -EBUSY : map_part(vm, w);
    if (r == 0) *out = (struct takt_window){ w->base, w->ram.low_size, w->ram.size - w->ram.low_size };
    return r > 0 ? HC_AGAIN : r;
}

i64 hc_back_map(struct vcpu *v, const u64 *a) {
    struct takt_window out;
    struct device *d;
    i64 result;

    if (!guestmem_has(&v->vm->mem, a[1], sizeof(out))) return -EFAULT;
    d = device_lock(v, (u32)a[0], &result);
    if (!d) return result;
    result = map_window(v->vm, d->vm, &out);
    spin_unlock(&backend_lock);
    return result ? result : guestmem_write(&v->vm->mem, a[1], &out, sizeof(out));
}

i64 hc_back_unmap(struct vcpu *v, const u64 *a) {
    struct window *w;
    i64 result = -ENOENT;

    spin_lock(&backend_lock);
    w = window_find(&v->vm->back, NULL, (u32)a[0] / TAKT_MAX_DEVICES);
    if (w && (w->chunks || w->unmapping)) {
        w->unmapping = true;
        result = unmap_part(v->vm, w) ? HC_AGAIN : 0;
    }
    spin_unlock(&backend_lock);
    return result;
}

i64 hc_back_irq(struct vcpu *v, const u64 *a) {
    i64 error;
    struct device *d = offered_lock(v, (u32)a[0], &error);
    u32 port;

    if (!d) return error;
    port = virtio_mmio_used(&d->regs) ? d->back_port : 0;
    spin_unlock(&backend_lock);
    if (port) vcpu_send(v, port);
    return 0;
}

i64 hc_back_broken(struct vcpu *v, const u64 *a) {
    i64 error;
    struct device *d = offered_lock(v, (u32)a[0], &error);

    if (!d) return error;
    /* What is to be reset anyway is not broken afterwards. */
    if (!virtio_mmio_resetting(&d->regs)) tell(d, virtio_mmio_break(&d->regs));
    spin_unlock(&backend_lock);
    return 0;
}

/* ---- life of a VM ---- */

static int make_device(struct vm *vm, u32 number) {
    const struct config_device *c = &vm->config.device[number];
    int port = evtchn_make(&vm->events), config_port = evtchn_make(&vm->events);
    struct device *d;

    if (port < 0 || config_port < 0) return MIN(port, config_port);
    d = heap_alloc(sizeof(*d));
    if (!d) return -ENOMEM;
    *d = (struct device){ .vm = vm, .number = number, .config = c };
    d->regs = (struct virtio_mmio){
        .mem = &vm->mem, .type = c->type, .port = (u32)port, .config_port = (u32)config_port
    };
    list_init(&d->link);
    vm->device[number] = d;
    return 0;
}

int vm_make_virtio(struct vm *vm) {
    list_init(&vm->back.windows);
    for (u32 i = 0; i < vm->config.nr_devices; i++) {
        bool own = strcmp(vm->config.device[i].back, vm->name) == 0;
        int error = own ? -EINVAL : make_device(vm, i);

        if (own) vm->job.why = "it cannot serve its own devices";
        if (error) return error;
    }
    spin_lock(&backend_lock);
    for (u32 i = 0; i < vm->config.nr_devices; i++) list_add_tail(&devices, &vm->device[i]->link);
    list_add_tail(&backends, &vm->back.in_all);
    tell_named(vm);
    spin_unlock(&backend_lock);
    return 0;
}

/* As a front end: nobody finds its devices any more. */
static void free_devices(struct vm *vm) {
    for (u32 i = 0; i < vm->config.nr_devices; i++) {
        if (vm->device[i]) list_del(&vm->device[i]->link);
        heap_free(vm->device[i]);
        vm->device[i] = NULL;
    }
}

void kick_users(const struct tlbgen *g) {
    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        if (g->loaded[cpu] && cpu != this_cpu()->id) cpu_kick(cpu);
}

/* As a front end: its RAM is in nobody's reach any more. 1: not yet. */
static int revoke_part(struct vm *vm) {
    list_for_each(b, &backends, struct backend, in_all) {
        struct window *w = window_find(b, vm, 0);
        struct tlbgen *g = &vm_of(b)->virt.npt.tlb;

        if (!w) continue;
        if (waste_window_part(vm_of(b), w)) return 1;
        if (!tlbgen_passed(g, w->generation)) {
            if (!w->kicked) kick_users(g);
            w->kicked = true;
            return 1;
        }
        w->front = NULL;
        if (!w->chunks) window_free(b, w);
    }
    return 0;
}

/* As a back end: withdraws one of the devices that it serves; at last forgets its windows. */
static int withdraw_part(struct vm *vm) {
    list_for_each(d, &devices, struct device, link) {
        if (d->back != vm) continue;
        d->back = NULL;
        tell(d, virtio_mmio_withdraw(&d->regs));
        return 1;
    }
    list_for_each_safe(w, &vm->back.windows, struct window, link) window_free(&vm->back, w);
    return 0;
}

/* The waste has what the VM wrote there. */
static int free_waste_part(struct backend *b) {
    if (!b->waste) return 0;
    b->scrubbed -= MIN(b->scrubbed, SCRUB_PART);
    memset((u8 *)hpa_to_va(b->waste) + b->scrubbed, 0, SCRUB_PART);
    if (b->scrubbed) return 1;
    frame_free(b->waste, FRAME_ORDER_2M);
    b->waste = 0;
    return 0;
}

int vm_undo_virtio(struct vm *vm) {
    bool listed = vm->back.in_all.next; /* made to the end */
    int r;

    spin_lock(&backend_lock);
    free_devices(vm);
    r = revoke_part(vm);
    if (!r && listed) r = withdraw_part(vm);
    if (!r) r = free_waste_part(&vm->back);
    if (!r && listed) {
        list_del(&vm->back.in_all);
        tell_named(vm);
    }
    spin_unlock(&backend_lock);
    return r;
}

/* ---- reports ---- */

static const char *state_of(const struct device *d) {
    if (!d->back) return "waits";
    if (d->regs.front.status & VIRTIO_NEEDS_RESET) return "broken";
    if (virtio_mmio_resetting(&d->regs)) return "resets";
    return d->regs.front.status & VIRTIO_DRIVER_OK ? "runs" : "offered";
}

bool device_info(struct vm *vm, u32 number, struct device_info *out) {
    const struct device *d;

    spin_lock(&backend_lock);
    d = number < TAKT_MAX_DEVICES ? vm->device[number] : NULL;
    if (d) {
        *out = (struct device_info){ .type = d->regs.type == VIRTIO_ID_NET ? "net" : "disk",
                                     .back = d->config->back,
                                     .state = state_of(d),
                                     .status = d->regs.front.status,
                                     .resets = d->regs.front.resets,
                                     .notifies = d->regs.notifies,
                                     .interrupts = d->regs.interrupts,
                                     .dropped = d->regs.dropped };
        for (u32 i = 0; i < TAKT_MAX_QUEUES; i++) out->queues += d->regs.front.queue[i].ready;
    }
    spin_unlock(&backend_lock);
    return d;
}
