/* Virtual disks of a driver domain. guest/served_disk.h has the contracts. */
#include <guest/controller.h>
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/manager.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/served_disk.h>
#include <guest/string.h>
#include <guest/time.h>
#include <guest/trap.h>
#include <takt/errno.h>

#define MAX_DISKS 32

/* A disk in memory belongs to a device of a VM of that name, whoever that is. */
struct ram_disk {
    char name[32];
    u32 number;
    u64 bytes;
    u8 *memory;
    struct disk_ram_data data; /* without pages: this place is free */
    struct disk_ram ram;
};

static struct ram_disk ram_disks[MAX_DISKS];
static u32 nr_cores; /* I/O cores; 0: vCPU 0 serves all disks */

void served_disk_use_cores(u32 n) { nr_cores = n; }

/* ---- disks in memory ---- */

/* Returns the disk in memory of this device, which a device of the same name may have left, or a
 * new one. Returns NULL if the old one has another size, or if there is no room for a new one. */
static struct ram_disk *ram_disk_for(const struct takt_back *info) {
    u64 bytes = disk_ram_bytes(info->options);
    struct ram_disk *d, *unused = NULL;
    u8 *memory;

    for (d = ram_disks; d < ram_disks + MAX_DISKS; d++) {
        if (!d->data.page)
            unused = d;
        else if (!strcmp(d->name, info->name) && d->number == info->number)
            return d->bytes == bytes ? d : NULL;
    }
    if (!unused || !bytes) return NULL;
    memory = guest_env.pages(disk_ram_pages(info->options));
    if (!memory) return NULL;
    disk_ram_data_init(&unused->data, info->options, memory);
    unused->bytes = bytes;
    unused->memory = memory;
    unused->number = info->number;
    memcpy(unused->name, info->name, sizeof(info->name));
    return unused;
}

/* With keep=0 a disk in memory goes with its device. */
static void ram_disk_forget(const struct takt_back *info) {
    if (option_number(info->options, "keep", 1)) return;
    for (struct ram_disk *d = ram_disks; d < ram_disks + MAX_DISKS; d++) {
        if (!d->data.page || strcmp(d->name, info->name) || d->number != info->number) continue;
        guest_env.pages_free(d->memory, disk_ram_pages(info->options));
        d->data.page = NULL;
    }
}

/* Returns the disk in memory for this device, which may be on a shared device. NULL: there is none,
 * or no memory. */
static struct disk *ram_disk(struct served_disk *s) {
    bool on = option_has(s->info.options, "on");
    struct ram_disk *d;

    if (on) s->on = shared_device(s->info.options, nr_cores);
    if (on && !s->on) return NULL;
    d = ram_disk_for(&s->info);
    if (!d) return NULL;
    disk_ram_init(&d->ram, s->info.options, s->on ? &s->on->model : NULL, &d->data);
    return &d->ram.disk;
}

/* ---- disks that I/O cores serve ---- */

static void lanes_fini(struct served_disk *s) {
    for (u32 i = 0; i < s->nr_lanes; i++) lane_fini(&s->lane[i]);
    free(s->lane);
    s->nr_lanes = 0;
}

/* Sets up the disk and the back end of one ring. Returns 0, or a negative error. Other VMs' disks
 * are served meanwhile, so a thread that has the lock of the device must not have to wait:
 * interrupts are off. */
static int lane_init(struct served_disk *s, struct lane *l, struct ram_disk *d,
                     const struct back_calls *calls, struct takt_offer *offer) {
    u64 f = irq_save();

    disk_ram_init(&l->ram, s->info.options, &s->on->model, &d->data);
    irq_restore(f);
    return back_blk_init(&l->blk, &guest_env, calls, &s->info, &l->ram.disk, offer);
}

/* Makes the `n` lanes of a disk, one for each socket on which its VM is; `socket` is the first of
 * them. A lane is a ring that an I/O core polls. Fills in *offer, and gives the lanes to
 * co-scheduling, which chooses their I/O cores. Returns 0 or a negative errno. */
static int lanes_init(struct served_disk *s, u32 socket, u32 n, const struct back_calls *calls,
                      struct takt_offer *offer) {
    struct ram_disk *d = ram_disk_for(&s->info);

    s->lane = calloc(n, sizeof(*s->lane));
    if (!d || !s->lane) return -ENOMEM;
    while (s->nr_lanes < n) {
        struct lane *l = &s->lane[s->nr_lanes++];

        if (lane_init(s, l, d, calls, offer)) return -ENOMEM;
        l->socket = socket + s->nr_lanes - 1;
        l->blk.queue = s->nr_lanes - 1;
        l->blk.polled = true;
    }
    back_blk_offer_queues(offer, n);
    s->coschedule = (struct coschedule_disk){
        .vm = s->info.vm,
        .number = s->info.number,
        .share = s->lane[0].ram.turn.share,
        .socket = socket,
        .nr = n,
        .lane = s->lane,
        .turns = &s->on->turns,
        .place = s->on->core,
    };
    return coschedule_add(&s->coschedule);
}

/* Makes a disk on a shared device that I/O cores serve, with a ring for each socket on which its VM
 * is. Returns 0 or a negative errno; the console says which option is wrong. */
static int make_lanes(struct served_disk *s, const struct back_calls *calls,
                      struct takt_offer *offer) {
    u32 socket = (u32)option_number(s->info.options, "socket", 0),
        n = (u32)option_number(s->info.options, "sockets", 1);
    int error;

    if (!n || n > nr_cores || socket > nr_cores - n) {
        printf("iodom: %s.%u: sockets %u to %u: there are I/O cores for 0 to %u\n", s->info.name,
               s->info.number, socket, socket + n - 1, nr_cores - 1);
        return -EINVAL;
    }
    s->on = shared_device(s->info.options, nr_cores);
    if (!s->on) return -ENOMEM;
    error = lanes_init(s, socket, n, calls, offer);
    if (error) lanes_fini(s);
    return error;
}

/* ---- all disks ---- */

static bool is_nvme(const struct takt_back *info) {
    return option_is(info->options, "dev", "nvme");
}

const struct option_kind *served_disk_options(const struct takt_back *info) {
    if (is_nvme(info)) return disk_nvme_options;
    if (option_has(info->options, "on")) return disk_ram_shared_options;
    return disk_ram_options;
}

/* Makes the disk that info->options describe: on a shared device with I/O cores, in memory, or on
 * the NVMe disk. Returns 0 or a negative errno. */
static int disk_as_described(struct served_disk *s, const struct back_calls *calls,
                             const struct takt_back *info, struct takt_offer *offer) {
    bool in_ram = option_is(info->options, "dev", "ram") || !option_has(info->options, "dev");
    struct disk *d = NULL;
    int error = -ENODEV;

    if (nr_cores && in_ram && option_has(info->options, "on")) return make_lanes(s, calls, offer);
    if (in_ram) {
        error = -ENOMEM;
        d = ram_disk(s);
    } else if (is_nvme(info)) {
        d = controller_open(&s->info);
        s->on_nvme = d;
    }
    if (d) error = back_blk_init(&s->blk, &guest_env, calls, &s->info, d, offer);
    if (error && s->on_nvme) nvme_store_close(d);
    return error;
}

/* Makes a disk without sectors. Returns 0, or a negative error. A guest that has no disk yet waits
 * for one without a limit, because its back end may come later. A disk without sectors tells any
 * guest that no other one will come. */
static int disk_of_nothing(struct served_disk *s, const struct back_calls *calls,
                           struct takt_offer *offer) {
    s->on = NULL;
    disk_ram_init(&s->none, "", NULL, NULL);
    s->none.disk.sectors = 0;
    s->none.disk.depth = 1;
    s->none.disk.discards = false;
    return back_blk_init(&s->blk, &guest_env, calls, &s->info, &s->none.disk, offer);
}

/* Makes the disk that info->options describe, and its back end. If there is no room for it, its VM
 * gets a disk without sectors. Returns 0, or a negative error. */
int served_disk_init(struct served_disk *s, const struct back_calls *calls,
                     const struct takt_back *info, struct takt_offer *offer) {
    int error;

    s->info = *info;
    error = disk_as_described(s, calls, info, offer);
    if (error != -ENOMEM || is_nvme(info)) return error;
    printf("iodom: %s.%u: there is no room for this disk, so its VM sees one of 0 bytes\n",
           info->name, info->number);
    return disk_of_nothing(s, calls, offer);
}

/* Frees the disk, which was stopped. */
void served_disk_fini(struct served_disk *s) {
    if (s->nr_lanes) {
        coschedule_remove(&s->coschedule);
        lanes_fini(s);
    } else {
        back_blk_fini(&s->blk);
        if (s->on_nvme) nvme_store_close(s->blk.disk);
    }
    if (!is_nvme(&s->info)) ram_disk_forget(&s->info);
}

/* Tells the manager of a disk on a shared device or on the controller, and has the disk's back ends
 * report to the manager's monitor. */
void served_disk_manage(struct served_disk *s) {
    const struct takt_back *i = &s->info;

    if (s->on)
        s->blk.monitor = manager_add(i->vm, i->number, disk_ram_bytes(i->options) / PAGE_SIZE,
                                     &s->on->model.load, s->on->name);
    if (s->on_nvme)
        s->blk.monitor =
            manager_add(i->vm, i->number, s->blk.disk->sectors * VIRTIO_BLK_SECTOR / PAGE_SIZE,
                        controller_load(), CONTROLLER_NAME);
    for (u32 k = 0; k < s->nr_lanes; k++) s->lane[k].blk.monitor = s->blk.monitor;
}

void served_disk_unmanage(struct served_disk *s) {
    if (s->on || s->on_nvme) manager_remove(s->info.vm, s->info.number);
}

struct back_dev *served_disk_dev(struct served_disk *s) {
    if (s->nr_lanes) return &s->lane[0].blk.dev;
    return &s->blk.dev;
}

/* Begins to serve the disk, whose driver is ready. With I/O cores the lanes' disks are in memory,
 * too. */
void served_disk_start(struct served_disk *s, const struct takt_front *f) {
    if (f->flags & TAKT_FRONT_RESUMED && !s->on_nvme)
        printf("iodom: %s.%u: what was on this disk is lost, so all its requests fail\n",
               s->info.name, s->info.number);
    for (u32 i = 0; i < s->nr_lanes; i++) {
        s->lane[i].blk.dev.window = s->lane[0].blk.dev.window;
        core_begin(&s->lane[i], f);
    }
    if (!s->nr_lanes) back_blk_start(&s->blk, f);
}

/* Ends the service of a disk, and gives up the requests that are under way. The monitor must not
 * count requests that are given up as being under way for ever. */
void served_disk_stop(struct served_disk *s, bool started) {
    if (!s->nr_lanes) {
        monitor_give_up(s->blk.monitor, s->blk.nr, time_ns());
        back_blk_stop(&s->blk);
    }
    for (u32 i = 0; i < s->nr_lanes && started; i++) core_end(&s->lane[i]);
}

u64 served_disk_serve(struct served_disk *s, u64 now) { return back_blk_serve(&s->blk, now); }

void served_disk_flush(struct served_disk *s) {
    if (!s->nr_lanes) back_blk_flush(&s->blk);
}

struct back_blk served_disk_counts(const struct served_disk *s) {
    if (s->nr_lanes) return lanes_sum(s->lane, s->nr_lanes);
    return s->blk;
}

/* Returns how many requests the back ends of the disk's lanes have carried out. */
u64 served_disk_done(const struct served_disk *s) {
    u64 n = 0;

    for (u32 i = 0; i < s->nr_lanes; i++) {
        const struct back_blk *b = &s->lane[i].blk;

        n += b->reads + b->writes + b->flushes + b->discards + b->errors;
    }
    return n;
}
