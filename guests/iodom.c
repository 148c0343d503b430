/* The driver domain: serves the virtio devices of other VMs. Network devices are ports of one
 * bridge; block devices are disks in this VM's memory, which outlive the VM that uses them, or
 * ranges of the disk behind an NVMe controller that was given to it. One loop on one vCPU; it
 * sleeps when there is nothing to do.
 *
 * Command line: frames=N (1024) that the bridge can hold, of 1.5 KiB each; report_s=R (none):
 * what each device did in the last R seconds, if it did anything; NAME=bw=50M,lat=100us,...: a
 * modelled device that disks with on=NAME share (drivers/disk_model.h has the words); collab:
 * manage them together with their guests (docs/collab.md, which has further words). */
#include <guest/device.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/manager.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/time.h>
#include "drivers/back_blk.h"
#include "drivers/back_net.h"
#include "drivers/disk_nvme.h"
#include "drivers/disk_ram.h"
#include "drivers/port_nic.h"

#define MAX_SERVED 64
#define MAX_DISKS  16
#define MAX_CARDS  4
#define MAX_SHARED 4

/* A modelled device under disks of several VMs. */
struct shared_device {
    char name[16]; /* empty: free */
    struct disk_model model;
    struct disk_turns turns; /* with sched=drr */
};

struct served {
    struct takt_back info;
    u32 port;
    u32 resets;    /* that have been dealt with */
    bool started;  /* the rings are in use, or were until they broke */
    u64 next;      /* when to look after it again; ~0: when it is notified */
    u64 sum, told; /* of what it has done, and what was reported of that */
    struct back_net net;
    struct back_blk blk;
    bool on_nvme;             /* its disk is a range of the NVMe disk */
    struct shared_device *on; /* NULL: its disk is on none */
};

/* A disk in memory belongs to a device of a VM of that name, whoever that is. */
struct ram_disk {
    char name[32];
    u32 number;
    u64 bytes;
    u8 *data;
    struct disk_ram ram;
};

/* A network card. */
struct card {
    struct takt_pci pci;
    u32 index;     /* of TAKT_HC_PCI_*; cards that are not ours to drive leave gaps */
    u64 sum, told; /* interrupts, and of them those before the last report */
    struct port_nic port;
};

static struct served *served[MAX_SERVED];
static struct card *cards[MAX_CARDS];
static u32 nr_cards;
static u64 dma_offset; /* the same for all of our RAM */
static struct ram_disk ram_disks[MAX_DISKS];
static struct shared_device shared_devices[MAX_SHARED];
static struct nvme_store store;
static struct takt_pci store_pci; /* id 0: there is no NVMe controller */
static u32 store_index;           /* of TAKT_HC_PCI_* */
static bool store_told;           /* that it is broken */
static struct bridge bridge;
static u32 back_port; /* of TAKT_HC_BACK_PORT: raised when devices come, go, or change */
static u64 offset;    /* from time_ns() to the hypervisor's time */
static u64 report_ns, next_report;

static void call_irq(u32 handle) { hypercall1(TAKT_HC_BACK_IRQ, handle); }

static void call_broken(u32 handle) { hypercall1(TAKT_HC_BACK_BROKEN, handle); }

/* The hypervisor raises our port before it takes anything of a front VM out of our windows, and
 * then knows the VM's devices no more. */
static bool call_gone(u32 handle) {
    static struct takt_front f;

    if (!event_is_pending(back_port)) return false;
    for (u32 i = 0; i < MAX_SERVED; i++) {
        const struct served *s = served[i];

        if (s && s->info.handle == handle)
            return hypercall3(TAKT_HC_BACK_STATE, handle, (u64)&f, s->resets) == -ENOENT;
    }
    return true;
}

static const struct back_calls calls = { call_irq, call_broken, call_gone };

#define BDF       "%02x:%02x.%x"
#define BDF_OF(p) (p)->bdf >> 8, (p)->bdf >> 3 & 31, (p)->bdf & 7

static bool is_net(const struct served *s) { return s->info.type == VIRTIO_ID_NET; }

static struct back_dev *dev_of(struct served *s) {
    if (is_net(s)) return &s->net.dev;
    return &s->blk.dev;
}

/* ---- reports ---- */

/* A line, of the counters that are not 0. */
struct line {
    char text[400];
    int len;
};

static void add_count(struct line *l, const char *name, u64 n) {
    int room = (int)sizeof(l->text) - l->len;

    if (n && room > 1) l->len += snprintf(l->text + l->len, (size_t)room, " %s=%lu", name, n);
}

static void add_port(struct line *l, const struct port_counts *c) {
    add_count(l, "in", c->in_frames);
    add_count(l, "in_bytes", c->in_bytes);
    add_count(l, "out", c->out_frames);
    add_count(l, "out_bytes", c->out_bytes);
    add_count(l, "ring_full", c->ring_full);
    add_count(l, "queue_full", c->queue_full);
    add_count(l, "queue_most", c->queue_most);
    add_count(l, "pushed_back", c->backpressure);
    add_count(l, "lost", c->lost);
    add_count(l, "bad", c->bad);
    add_count(l, "spoofed", c->spoofed);
    add_count(l, "no_memory", c->no_memory);
}

static void report(struct served *s) {
    const struct back_blk *b = &s->blk;
    struct line l = { .len = 0 };

    s->told = s->sum;
    if (is_net(s)) {
        add_port(&l, &s->net.port.counts);
    } else {
        add_count(&l, "reads", b->reads);
        add_count(&l, "writes", b->writes);
        add_count(&l, "flushes", b->flushes);
        add_count(&l, "discards", b->discards);
        add_count(&l, "bytes", b->bytes);
        add_count(&l, "errors", b->errors);
        add_count(&l, "depth_most", b->nr_most);
    }
    add_count(&l, "irqs", dev_of(s)->irqs);
    add_count(&l, "resets", s->resets);
    printf("iodom: %s.%u:%s\n", s->info.name, s->info.number, l.len ? l.text : " nothing");
}

static void report_card(struct card *c) {
    struct line l = { .len = 0 };

    c->told = c->sum;
    add_port(&l, &c->port.port.counts);
    add_count(&l, "damaged", c->port.ring->bad);
    add_count(&l, "missed", port_nic_missed(&c->port));
    printf("iodom: network card " BDF ":%s\n", BDF_OF(&c->pci), l.len ? l.text : " nothing");
}

/* What has not been told of must be, one day: a device that goes on doing something keeps the
 * timer, an idle one does not. */
static u64 report_due(u64 now) {
    bool news = false;

    for (u32 i = 0; report_ns && i < MAX_SERVED; i++)
        news |= served[i] && served[i]->sum != served[i]->told;
    for (u32 i = 0; report_ns && i < nr_cards; i++) news |= cards[i]->sum != cards[i]->told;
    if (!news) return ~0ull;
    if (now < next_report) return next_report;
    for (u32 i = 0; i < MAX_SERVED; i++)
        if (served[i] && served[i]->sum != served[i]->told) report(served[i]);
    for (u32 i = 0; i < nr_cards; i++)
        if (cards[i]->sum != cards[i]->told) report_card(cards[i]);
    next_report = now + report_ns;
    return ~0ull;
}

/* ---- devices that come and go ---- */

static struct ram_disk *ram_disk_for(const struct takt_back *info) {
    u64 bytes = disk_ram_bytes(info->options);
    struct ram_disk *d, *unused = NULL;

    for (d = ram_disks; d < ram_disks + MAX_DISKS; d++) {
        if (!d->data)
            unused = d;
        else if (!strcmp(d->name, info->name) && d->number == info->number)
            return d->bytes == bytes ? d : NULL;
    }
    if (!unused || !bytes) return NULL;
    unused->data = guest_env.pages((bytes + PAGE_SIZE - 1) / PAGE_SIZE);
    unused->bytes = bytes;
    unused->number = info->number;
    memcpy(unused->name, info->name, sizeof(info->name));
    return unused->data ? unused : NULL;
}

/* Makes the device that our command line has by that name. NULL, told why: there is none. */
static struct shared_device *make_shared(struct shared_device *d, const char *name) {
    char words[128];

    if (!cmdline_str(name, words, sizeof(words))) {
        printf("iodom: on=%s: the command line has no device %s=bw=...\n", name, name);
        return NULL;
    }
    for (char *p = words; *p; p++)
        if (*p == ',') *p = ' ';
    if (option_unknown(words, disk_model_options)) {
        printf("iodom: device %s: what is \"%s\"?\n", name,
               option_unknown(words, disk_model_options));
        return NULL;
    }
    memcpy(d->name, name, sizeof(d->name));
    disk_model_init(&d->model, words);
    if (option_is(words, "sched", "drr")) disk_turns_init(&d->turns, &d->model);
    return d;
}

/* The device that a disk with on=NAME is on; the first disk makes it, and it stays. */
static struct shared_device *shared_device(const char *options) {
    char name[sizeof(shared_devices[0].name)] = "";

    option_word(options, "on", name, sizeof(name));
    for (u32 i = 0; i < MAX_SHARED; i++) {
        struct shared_device *d = &shared_devices[i];

        if (!d->name[0]) return make_shared(d, name);
        if (!strcmp(d->name, name)) return d;
    }
    printf("iodom: on=%s: there can be %d devices\n", name, MAX_SHARED);
    return NULL;
}

static struct disk *ram_disk(struct served *s) {
    bool on = option_has(s->info.options, "on");
    struct ram_disk *d;

    if (on) s->on = shared_device(s->info.options);
    if (on && !s->on) return NULL;
    d = ram_disk_for(&s->info);
    if (!d) return NULL;
    disk_ram_init(&d->ram, s->info.options, s->on ? &s->on->model : NULL, d->data);
    return &d->ram.disk;
}

static bool is_nvme(const struct takt_back *info) {
    return option_is(info->options, "dev", "nvme");
}

static struct disk *nvme_disk(struct served *s) {
    struct disk *d = NULL;

    if (!store_pci.id)
        printf("iodom: %s.%u: no NVMe controller was given to this VM\n", s->info.name,
               s->info.number);
    else if (!(d = nvme_store_open(&store, &s->info)) && store.other)
        printf("iodom: %s.%u: %s %s.%u\n", s->info.name, s->info.number, store.why,
               store.other->name, store.other->number);
    else if (!d)
        printf("iodom: %s.%u: %s\n", s->info.name, s->info.number, store.why);
    s->on_nvme = d;
    return d;
}

static int make_disk(struct served *s, struct takt_offer *offer) {
    bool in_ram = option_is(s->info.options, "dev", "ram") || !option_has(s->info.options, "dev");
    struct disk *d = NULL;
    int error = -ENODEV;

    if (in_ram) {
        error = -ENOMEM;
        d = ram_disk(s);
    } else if (is_nvme(&s->info)) {
        d = nvme_disk(s);
    }
    if (d) error = back_blk_init(&s->blk, &guest_env, &calls, &s->info, d, offer);
    if (error && s->on_nvme) nvme_store_close(d);
    return error;
}

static int make(struct served *s, struct takt_offer *offer) {
    if (is_net(s)) return back_net_init(&s->net, &bridge, &calls, &s->info, offer);
    if (s->info.type != VIRTIO_ID_BLOCK) return -ENODEV;
    return make_disk(s, offer);
}

static void unmake(struct served *s) {
    if (is_net(s)) {
        back_net_fini(&s->net);
        return;
    }
    back_blk_fini(&s->blk);
    if (s->on_nvme) nvme_store_close(s->blk.disk);
}

static const struct option_kind *options_of(const struct takt_back *info) {
    if (info->type == VIRTIO_ID_NET) return back_net_options;
    if (is_nvme(info)) return disk_nvme_options;
    if (option_has(info->options, "on")) return disk_ram_shared_options;
    return disk_ram_options;
}

static void add(struct served **slot, const struct takt_back *info) {
    struct served *s = calloc(1, sizeof(*s));
    struct takt_offer *offer =
        malloc(sizeof(*offer)); /* the hypervisor reads it: not from a stack that spans pages */
    const char *word = option_unknown(info->options, options_of(info));
    i64 error = -ENOMEM;

    if (word) printf("iodom: %s.%u: what is \"%s\"?\n", info->name, info->number, word);
    if (s && offer) {
        s->info = *info;
        s->next = ~0ull;
        error = make(s, offer);
    }
    if (error == 0) {
        error = hypercall2(TAKT_HC_BACK_OFFER, info->handle, (u64)offer);
        if (error < 0) unmake(s);
    }
    free(offer);
    if (error < 0) {
        printf("iodom: %s.%u: cannot be served: error %ld\n", info->name, info->number, error);
        free(s);
        return;
    }
    s->port = (u32)error;
    *slot = s;
    if (s->on)
        s->blk.monitor = manager_add(info->vm, info->number,
                                     s->blk.disk->sectors * VIRTIO_BLK_SECTOR / PAGE_SIZE,
                                     &s->on->model, s->on->name);
    printf("iodom: %s.%u: %s, options \"%s\"\n", info->name, info->number,
           is_net(s) ? "network" : "disk", info->options);
}

static void stop_disk(struct back_blk *b) {
    monitor_give_up(b->monitor, b->nr, time_ns());
    back_blk_stop(b);
}

static void stop(struct served *s) {
    if (is_net(s))
        back_net_stop(&s->net);
    else
        stop_disk(&s->blk);
    s->started = false;
    s->next = ~0ull;
}

static void start(struct served *s, const struct takt_front *f) {
    struct back_dev *d = dev_of(s);
    i64 error = hypercall2(TAKT_HC_BACK_MAP, s->info.handle, (u64)&d->window);

    s->started = true;
    if (error == 0) error = window_map(&d->window);
    if (error) {
        printf("iodom: %s.%u: no window: error %ld\n", s->info.name, s->info.number, error);
        call_broken(s->info.handle);
        return;
    }
    if (is_net(s))
        back_net_start(&s->net, f);
    else
        back_blk_start(&s->blk, f);
    s->next = 0;
}

/* The VM is gone. Nothing points into its window any more when the last of its devices is
 * forgotten. */
static void forget(struct served **slot) {
    struct served *s = *slot;
    bool last = true;

    stop(s);
    report(s);
    unmake(s);
    event_close(s->port);
    if (s->on) manager_remove(s->info.vm, s->info.number);
    *slot = NULL;
    for (u32 i = 0; i < MAX_SERVED; i++) last &= !served[i] || served[i]->info.vm != s->info.vm;
    if (last) hypercall1(TAKT_HC_BACK_UNMAP, s->info.handle);
    free(s);
}

static i64 state_of(struct served *s, struct takt_front *f) {
    i64 error = hypercall3(TAKT_HC_BACK_STATE, s->info.handle, (u64)f, s->resets);

    if (error || f->resets == s->resets) return error;
    stop(s);
    s->resets = f->resets;
    return hypercall3(TAKT_HC_BACK_STATE, s->info.handle, (u64)f, s->resets);
}

static void look_at(struct served **slot) {
    static struct takt_front f;
    struct served *s = *slot;
    i64 error = state_of(s, &f);
    bool go = f.status & VIRTIO_DRIVER_OK && !(f.status & VIRTIO_NEEDS_RESET);

    if (error == -ENOENT)
        forget(slot);
    else if (!error && go && !s->started)
        start(s, &f);
    else if (!error && !go && s->started)
        stop(s);
}

static void look_for_new(void) {
    static struct takt_back info;

    for (u32 i = 0; hypercall2(TAKT_HC_BACK_LIST, i, (u64)&info) == 0; i++) {
        struct served **slot = NULL;
        bool known = false;

        for (u32 k = 0; k < MAX_SERVED; k++) {
            if (!served[k] && !slot) slot = &served[k];
            known |= served[k] && served[k]->info.handle == info.handle;
        }
        if (!known && slot) add(slot, &info);
    }
}

static void look_around(void) {
    for (u32 i = 0; i < MAX_SERVED; i++)
        if (served[i]) look_at(&served[i]);
    look_for_new();
}

/* ---- devices of the machine ---- */

static u64 card_dma_addr(const void *p) { return (u64)p + dma_offset; }

static void add_card(const struct takt_pci *pci, u32 index) {
    struct card *c = nr_cards < MAX_CARDS ? calloc(1, sizeof(*c)) : NULL;
    int error = c ? 0 : -ENOMEM;

    if (!error)
        error = port_nic_init(&c->port, &bridge, pci->id, (volatile void *)pci->bar[0].addr,
                              pci->bar[0].size, card_dma_addr);
    if (error) {
        printf("iodom: network card " BDF ": does not work: error %d\n", BDF_OF(pci), error);
        free(c);
        return;
    }
    printf("iodom: network card " BDF ": %s, a port of the bridge\n", BDF_OF(pci),
           c->port.port.name);
    c->pci = *pci;
    c->index = index;
    cards[nr_cards++] = c;
}

static void add_store(const struct takt_pci *pci, u32 index) {
    const struct device_env env = { card_dma_addr, time_ns, guest_env.relax };
    int error;

    if (store_pci.id) {
        printf("iodom: NVMe controller " BDF ": one is enough, this one is not used\n",
               BDF_OF(pci));
        return;
    }
    error = nvme_store_init(&store, (volatile void *)pci->bar[0].addr, pci->bar[0].size, &env,
                            &guest_env);
    if (error) {
        printf("iodom: NVMe controller " BDF ": %s\n", BDF_OF(pci),
               error == -ENOMEM ? "no memory for it" : store.nvme.why);
        return;
    }
    store_pci = *pci;
    store_index = index;
    printf("iodom: NVMe controller " BDF ": %lu KiB\n", BDF_OF(pci), store.nvme.blocks / 2);
}

/* Goes over the PCI devices that were given to this VM: network cards become ports of the
 * bridge, and an NVMe controller holds disks. dma_offset is the same for all devices of a VM. */
static void find_devices(void) {
    static struct takt_pci pci;

    for (u32 i = 0; pci_get(i, &pci) == 0; i++) {
        dma_offset = pci.dma_offset;
        if (port_nic_known(pci.id)) add_card(&pci, i);
        if (pci.class_rev >> 8 == NVME_CLASS) add_store(&pci, i);
    }
}

static u64 serve_card(struct card *c, u64 now) {
    if (event_take(c->pci.port)) {
        if (port_nic_interrupt(&c->port, now))
            printf("iodom: network card " BDF ": link is %s\n", BDF_OF(&c->pci),
                   c->port.link ? "up" : "down");
        hypercall1(TAKT_HC_PCI_EOI, c->index);
        c->sum++;
    }
    return port_nic_serve(&c->port, now);
}

/* What ended may be some disk's, or make room for it. The line falls when all that has ended was
 * taken. */
static void serve_store(u64 now) {
    bool interrupted = event_take(store_pci.port);

    if (nvme_store_run(&store, now))
        for (u32 i = 0; i < MAX_SERVED; i++)
            if (served[i] && served[i]->on_nvme && served[i]->started) served[i]->next = 0;
    if (interrupted) hypercall1(TAKT_HC_PCI_EOI, store_index);
    if (store.nvme.why && !store_told)
        printf("iodom: NVMe controller " BDF ": %s; its disks give errors\n", BDF_OF(&store_pci),
               store.nvme.why);
    store_told = store.nvme.why;
}

/* ---- the loop ---- */

static void serve(struct served *s, u64 now) {
    if (event_take(s->port)) s->next = 0;
    if (s->next > now) return;
    s->sum++;
    if (is_net(s))
        s->next = back_net_serve(&s->net, now);
    else
        s->next = back_blk_serve(&s->blk, now);
}

/* One turn for everybody. When the next one is due: 0 at once. */
static u64 turn(u64 now) {
    u64 next = ~0ull, due;

    if (store_pci.id) serve_store(now);
    for (u32 i = 0; i < MAX_SERVED; i++) {
        if (!served[i]) continue;
        serve(served[i], now);
        next = MIN(next, served[i]->next);
    }
    for (u32 i = 0; i < nr_cards; i++) next = MIN(next, serve_card(cards[i], now));
    due = bridge_run(&bridge, now);
    for (u32 i = 0; i < MAX_SERVED; i++) {
        struct served *s = served[i];

        if (!s) continue;
        if (is_net(s))
            back_net_flush(&s->net);
        else
            back_blk_flush(&s->blk);
    }
    for (u32 i = 0; i < nr_cards; i++) port_nic_flush(&cards[i]->port);
    due = MIN(due, manager_run(now));
    if (!store_pci.id) return MIN(next, due);
    nvme_kick(&store.nvme);
    return MIN(MIN(next, due), nvme_due(&store.nvme));
}

static void start_manager(void) {
    const struct manager_config c = { .period_ns = cmdline_u64("collab_ms", 100) * NS_PER_MS,
                                      .monitor_ns = cmdline_u64("monitor_ms", 1000) * NS_PER_MS,
                                      .on = { [MANAGER_FLUSH] = cmdline_u64("flush", 1),
                                              [MANAGER_CONGESTION] = cmdline_u64("congestion", 1),
                                              [MANAGER_DIF] = cmdline_u64("dif", 0) },
                                      .busy_pct = (u32)cmdline_u64("busy_pct", 0),
                                      .seed = takt_seed() };

    if (cmdline_has("collab") && manager_start(&c)) printf("iodom: no store, so no manager\n");
}

int main(void) {
    i64 port = hypercall0(
        TAKT_HC_BACK_PORT); /* as all that are served here, on vCPU 0 and without a vector */

    if (port < 0) {
        printf("iodom: only on Takt\n");
        return 1;
    }
    back_port = (u32)port;
    offset = hypercall0(TAKT_HC_TIME) - time_ns();
    report_ns = cmdline_u64("report_s", 0) * NS_PER_S;
    next_report = time_ns() + report_ns;
    bridge_init(&bridge, &guest_env, (u32)cmdline_u64("frames", 1024));
    find_devices();
    start_manager();
    look_around();
    for (;;) {
        u64 next, now;

        if (event_take(back_port)) look_around();
        now = time_ns();
        next = turn(now);
        if (next > now) next = MIN(next, report_due(now));
        if (next > now) hypercall2(TAKT_HC_POLL, TAKT_PORT_ANY, next == ~0ull ? 0 : next + offset);
    }
}
