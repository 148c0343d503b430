/* The driver domain: serves the virtio devices of other VMs. Network devices are ports of one
 * bridge; block devices are disks in this VM's memory, which outlive the VM that uses them, or
 * ranges of the disk behind an NVMe controller that was given to it. Entropy devices have the CPU's
 * random numbers. One loop on vCPU 0; it sleeps when there is nothing to do.
 *
 * Command line: frames=N (1024) that the bridge can hold, of 1.5 KiB each; report_s=R (none): what
 * each device did in the last R seconds, if it did anything; NAME=bw=50M,lat=100us,...: a modelled
 * device that disks with on=NAME share (drivers/disk_model.h has the words);
 * NAME=of=A+B,stripe=64K: a set of such devices (drivers/disk_set.h); nvme=bw=200M,queue=32: what
 * is known of the NVMe controller (guest/controller.h); collab: manage them together with their
 * guests (docs/collab.md, which has further words); cores=N (none): vCPUs 1 to N are I/O cores,
 * which poll the rings of disks on such devices; remote=T (0): a request that comes to an I/O core
 * from another socket takes T longer; tune: the queues of links are keys in the store
 * (guest/tunable.h). */
#include <guest/controller.h>
#include <guest/cores.h>
#include <guest/coschedule.h>
#include <guest/device.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/manager.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/served_disk.h>
#include <guest/string.h>
#include <guest/time.h>
#include <guest/tunable.h>
#include <guest/x86.h>
#include "drivers/back_net.h"
#include "drivers/back_rng.h"
#include "drivers/port_nic.h"

#define MAX_SERVED 64
#define MAX_CARDS  4

struct served {
    struct takt_back info;
    u32 port;
    u32 resets;    /* that have been dealt with */
    bool started;  /* the rings are in use, or were until they broke */
    u64 next;      /* when to look after it again; ~0: when it is notified */
    u64 sum, told; /* of what it has done, and what was reported of that */
    struct back_net net;
    struct back_rng rng;
    struct served_disk disk;
    u64 notified; /* times that the driver notified us, although its rings are polled */
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
static struct bridge bridge;
static u32 back_port; /* of TAKT_HC_BACK_PORT: raised when devices come, go, or change */
static bool looking;  /* atomic: what back_port was raised for is being dealt with */
static bool managed;  /* there is a manager */
static u32 nr_cores;  /* I/O cores; 0: this vCPU serves all disks */
static u64 offset;    /* from time_ns() to the hypervisor's time */
static u64 report_ns, next_report;

static void call_irq(u32 handle) { hypercall1(TAKT_HC_BACK_IRQ, handle); }

static void call_broken(u32 handle) { hypercall1(TAKT_HC_BACK_BROKEN, handle); }

/* Returns whether a device's VM is gone, so that its memory must not be trusted any more. The
 * hypervisor raises our port before it takes anything of a front VM out of our windows, and then
 * knows the VM's devices no more. I/O cores come here as well, while vCPU 0 may have taken the
 * event already; but it has not dealt with it before the core has given up the VM's requests. */
static bool call_gone(u32 handle) {
    static struct takt_front ignored;

    if (!event_is_pending(back_port) && !__atomic_load_n(&looking, __ATOMIC_SEQ_CST)) return false;
    /* No device was reset so often, so this call acknowledges no reset. */
    return hypercall3(TAKT_HC_BACK_STATE, handle, (u64)&ignored, ~0u) == -ENOENT;
}

static const struct back_calls calls = { call_irq, call_broken, call_gone };

static bool is_net(const struct served *s) { return s->info.type == VIRTIO_ID_NET; }

static bool is_rng(const struct served *s) { return s->info.type == VIRTIO_ID_RNG; }

static bool is_disk(const struct served *s) { return s->info.type == VIRTIO_ID_BLOCK; }

static const char *kind_of(const struct served *s) {
    if (is_net(s)) return "network";
    if (is_rng(s)) return "random numbers";
    return "disk";
}

static struct back_dev *dev_of(struct served *s) {
    if (is_net(s)) return &s->net.dev;
    if (is_rng(s)) return &s->rng.dev;
    return served_disk_dev(&s->disk);
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

/* Adds to a report's line what a port of the bridge has counted: frames of a VM, and why frames
 * were lost. */
static void add_port(struct line *l, const struct port_counts *c) {
    add_count(l, "in", c->in_frames);
    add_count(l, "in_bytes", c->in_bytes);
    add_count(l, "out", c->out_frames);
    add_count(l, "out_bytes", c->out_bytes);
    add_count(l, "in_large", c->in_large);
    add_count(l, "out_large", c->out_large);
    add_count(l, "ring_full", c->ring_full);
    add_count(l, "queue_full", c->queue_full);
    add_count(l, "queue_most", c->queue_most);
    add_count(l, "pushed_back", c->backpressure);
    add_count(l, "lost", c->lost);
    add_count(l, "reordered", c->reordered);
    add_count(l, "bad", c->bad);
    add_count(l, "spoofed", c->spoofed);
    add_count(l, "no_memory", c->no_memory);
}

/* Prints the counters of a device on the console. */
static void report(struct served *s) {
    u64 irqs = dev_of(s)->irqs;
    struct line l = { .len = 0 };

    s->told = s->sum;
    if (is_net(s)) {
        add_port(&l, &s->net.port.counts);
    } else if (is_rng(s)) {
        add_count(&l, "buffers", s->rng.buffers);
        add_count(&l, "bytes", s->rng.bytes);
    } else {
        struct back_blk b = served_disk_counts(&s->disk);

        irqs = b.dev.irqs;
        add_count(&l, "reads", b.reads);
        add_count(&l, "writes", b.writes);
        add_count(&l, "flushes", b.flushes);
        add_count(&l, "discards", b.discards);
        add_count(&l, "bytes", b.bytes);
        add_count(&l, "errors", b.errors);
        add_count(&l, "depth_most", b.nr_most);
    }
    add_count(&l, "irqs", irqs);
    add_count(&l, "notified", s->notified);
    add_count(&l, "resets", s->resets);
    printf("iodom: %s.%u:%s\n", s->info.name, s->info.number, l.len ? l.text : " nothing");
}

/* Prints the counters of a network card on the console. */
static void report_card(struct card *c) {
    struct line l = { .len = 0 };

    c->told = c->sum;
    add_port(&l, &c->port.port.counts);
    add_count(&l, "damaged", c->port.ring->bad);
    add_count(&l, "missed", port_nic_missed(&c->port));
    printf("iodom: network card " BDF ":%s\n", BDF_OF(&c->pci), l.len ? l.text : " nothing");
}

/* Returns whether a device has done something since the last report. I/O cores count what they do
 * themselves. */
static bool has_news(struct served *s) {
    if (s->disk.nr_lanes) s->sum = served_disk_done(&s->disk);
    return s->sum != s->told;
}

/* Prints what devices have done since the last report. Returns when the next report is due, ~0 if
 * there is nothing to tell: an idle device must not keep the timer, so that the machine can sleep.
 */
static u64 report_due(u64 now) {
    bool news = false;

    for (u32 i = 0; report_ns && i < MAX_SERVED; i++) news |= served[i] && has_news(served[i]);
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

/* The source of an entropy device: the CPU's generator. All guests share it, so that it may have
 * nothing left for a moment; ten tries are what the manual advises (SDM 1 7.3.17.1). */
static bool cpu_random(struct rng_source *source, u64 *word) {
    for (u32 i = 0; i < 10; i++)
        if (rdrand(word)) return true;
    return false;
}

/* Makes the back end of an entropy device, which needs a CPU that has a generator. */
static int make_rng(struct served *s, struct takt_offer *offer) {
    bool (*source)(struct rng_source * s, u64 * word) = NULL;
    int error;

    if (cpuid(1, 0).ecx & BIT(30)) source = cpu_random; /* RDRAND */
    error = back_rng_init(&s->rng, &calls, &s->info, source, offer);
    if (error == -ENODEV)
        printf("iodom: %s.%u: this CPU has no RDRAND, so there are no random numbers; with seed=N "
               "there are some that can be foretold\n",
               s->info.name, s->info.number);
    return error;
}

static int make(struct served *s, struct takt_offer *offer) {
    if (is_net(s)) return back_net_init(&s->net, &bridge, &calls, &s->info, offer);
    if (is_rng(s)) return make_rng(s, offer);
    if (s->info.type != VIRTIO_ID_BLOCK) return -ENODEV;
    return served_disk_init(&s->disk, &calls, &s->info, offer);
}

static void unmake(struct served *s) {
    if (is_net(s)) back_net_fini(&s->net);
    if (is_disk(s)) served_disk_fini(&s->disk);
}

static const struct option_kind *options_of(const struct takt_back *info) {
    if (info->type == VIRTIO_ID_NET) return back_net_options;
    if (info->type == VIRTIO_ID_RNG) return back_rng_options;
    return served_disk_options(info);
}

/* ---- queue lengths that the store can change ---- */

static const char *set_frames(void *arg, u64 frames) {
    bridge.max_buffers = (u32)frames;
    return NULL;
}

static const char *set_queue(void *arg, u64 frames) {
    struct bridge_port *p = arg;

    p->up.netem.p.queue = p->down.netem.p.queue = (u32)frames;
    return NULL;
}

/* Adds the length of the queue of the link to a front end to those that the store can change. A
 * port without a link has none. */
static void add_queue(struct served *s) {
    struct bridge_port *p = &s->net.port;
    struct tunable t = {
        .least = 1, .most = 65536, .value = p->down.netem.p.queue, .set = set_queue, .arg = p
    };

    if (!netem_active(&p->down.netem)) return;
    snprintf(t.name, sizeof(t.name), "queue/%u-%u", s->info.vm, s->info.number);
    tunable_add(&t);
}

/* Makes the back end of a device that has come, and offers the device to its VM. If anything fails,
 * the device stays without a back end, and the operator reads why. */
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
    if (is_net(s)) {
        add_queue(s);
        if (option_is(info->options, "offload", "yes") && !s->net.offload)
            printf("iodom: %s.%u: offload=yes is ignored: an emulated link carries single frames\n",
                   info->name, info->number);
    }
    if (is_disk(s)) served_disk_manage(&s->disk);
    printf("iodom: %s.%u: %s, options \"%s\"\n", info->name, info->number, kind_of(s),
           info->options);
}

/* Stops the service of a device, whose rings are not used any more. Before this returns nothing
 * touches the memory of its VM. */
static void stop(struct served *s) {
    if (is_net(s)) back_net_stop(&s->net);
    if (is_rng(s)) back_rng_stop(&s->rng);
    if (is_disk(s)) served_disk_stop(&s->disk, s->started);
    s->started = false;
    s->next = ~0ull;
}

/* Begins to serve a device whose driver is ready: maps the memory of the driver's VM, and looks at
 * the rings. */
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
    s->next = 0;
    if (is_net(s)) {
        back_net_start(&s->net, f);
        return;
    }
    if (is_rng(s)) {
        back_rng_start(&s->rng, f);
        return;
    }
    if (s->disk.nr_lanes) s->next = ~0ull;
    served_disk_start(&s->disk, f);
}

/* Frees what belongs to a device whose VM is gone. Nothing points into its window any more when the
 * last of its devices is forgotten. */
static void forget(struct served **slot) {
    struct served *s = *slot;
    bool last = true;

    stop(s);
    report(s);
    if (is_net(s)) tunable_remove(&s->net.port);
    if (is_disk(s)) served_disk_unmanage(&s->disk);
    unmake(s);
    event_close(s->port);
    *slot = NULL;
    for (u32 i = 0; i < MAX_SERVED; i++) last &= !served[i] || served[i]->info.vm != s->info.vm;
    if (last) hypercall1(TAKT_HC_BACK_UNMAP, s->info.handle);
    free(s);
}

/* Asks the hypervisor for the state of a device. If the driver has reset it, the rings are given up
 * first, and then the reset is acknowledged; the driver waits for that. */
static i64 state_of(struct served *s, struct takt_front *f) {
    i64 error = hypercall3(TAKT_HC_BACK_STATE, s->info.handle, (u64)f, s->resets);

    if (error || f->resets == s->resets) return error;
    stop(s);
    s->resets = f->resets;
    return hypercall3(TAKT_HC_BACK_STATE, s->info.handle, (u64)f, s->resets);
}

/* Does for the device in *slot what its front end asks for: begins to serve it when the driver is
 * ready, stops when the driver has stopped or given up, and forgets the device, which empties
 * *slot, when it no longer exists. */
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

/* Serves the devices that have come since the last look. */
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

/* Deals with an event of our port: devices have come, gone, or changed their state. `looking` tells
 * the I/O cores that this is going on (call_gone()). */
static void look_around(void) {
    __atomic_store_n(&looking, true, __ATOMIC_SEQ_CST);
    event_take(back_port);
    for (u32 i = 0; i < MAX_SERVED; i++)
        if (served[i]) look_at(&served[i]);
    look_for_new();
    __atomic_store_n(&looking, false, __ATOMIC_SEQ_CST);
}

/* ---- network cards, and other devices of the machine ---- */

static u64 card_dma_addr(const void *p) { return (u64)p + dma_offset; }

/* Sets up a network card that was given to this VM, as a port of the bridge, and says on the
 * console what came of it. */
static void add_card(const struct takt_pci *pci, u32 index) {
    struct card *c = nr_cards < MAX_CARDS ? calloc(1, sizeof(*c)) : NULL;
    int error = c ? 0 : -ENOMEM;

    if (!error)
        error = port_nic_init(&c->port, &bridge, pci->id, (volatile void *)pci->bar[0].addr,
                              pci->bar[0].size, card_dma_addr);
    if (error) {
        printf("iodom: network card " BDF ": it cannot be used (error %d)\n", BDF_OF(pci), error);
        free(c);
        return;
    }
    printf("iodom: network card " BDF ": %s, a port of the bridge\n", BDF_OF(pci),
           c->port.port.name);
    c->pci = *pci;
    c->index = index;
    cards[nr_cards++] = c;
}

/* Goes over the PCI devices that were given to this VM: network cards become ports of the
 * bridge, and an NVMe controller holds disks. dma_offset is the same for all devices of a VM. */
static void find_devices(void) {
    static struct takt_pci pci;

    for (u32 i = 0; pci_get(i, &pci) == 0; i++) {
        dma_offset = pci.dma_offset;
        if (port_nic_known(pci.id)) add_card(&pci, i);
        if (pci.class_rev >> 8 == NVME_CLASS) controller_add(&pci, i);
    }
}

/* Takes the card's interrupt, if there was one, and the frames that it has received. Returns when
 * it wants its next turn. */
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

/* Takes what the NVMe controller has done, and has all disks on it looked at, because what has
 * ended may belong to any of them, or make room for its next request. */
static void serve_controller(u64 now) {
    if (!controller_run(now)) return;
    for (u32 i = 0; i < MAX_SERVED; i++) {
        struct served *s = served[i];

        if (s && s->disk.on_nvme && s->started) s->next = 0;
    }
}

/* ---- the loop ---- */

/* Serves a device if its front end has notified this VM, or if the time has come at which the
 * device wanted to be served again. */
static void serve(struct served *s, u64 now) {
    if (event_take(s->port)) s->next = 0;
    if (s->next > now) return;
    if (s->disk.nr_lanes) { /* it should not have notified us, and nothing is to be done */
        s->notified++;
        s->next = ~0ull;
        return;
    }
    s->sum++;
    if (is_net(s))
        s->next = back_net_serve(&s->net, now);
    else if (is_rng(s))
        s->next = back_rng_serve(&s->rng, now);
    else
        s->next = served_disk_serve(&s->disk, now);
}

/* Shows a front end what was done for it in this turn. */
static void flush(struct served *s) {
    if (is_net(s)) back_net_flush(&s->net);
    if (is_rng(s)) back_rng_flush(&s->rng);
    if (is_disk(s)) served_disk_flush(&s->disk);
}

static u64 run_manager(u64 now) {
    shared_settle(now);
    return manager_run(now);
}

/* Returns whether the manager or the report has nothing to do before the next request. */
static bool waits_for_requests(u64 manager_due, u64 report) {
    return (managed && manager_due == ~0ull) || (report_ns && report == ~0ull);
}

/* Arranges what wakes this vCPU while the I/O cores work. While nothing moves, the manager wants to
 * be called again after the next request, and so does the report. With I/O cores this vCPU does not
 * see that request, so the core has to tell. Returns when this vCPU has to be awake again at the
 * latest. `next` is when it has other things to do. */
static u64 watch_cores(u64 now, u64 next) {
    u64 report = report_due(now);

    if (!nr_cores || !waits_for_requests(manager_run(now), report)) return MIN(next, report);
    cores_wake_me();
    report = report_due(now);
    next = MIN(next, manager_run(now));
    return MIN(next, report);
}

/* Does one turn of the loop: serves each device, each card and the links of the bridge once. What
 * was sent and received in the turn is shown to all sides at its end, so that a turn raises one
 * interrupt for each device. Returns when the next turn is due: 0 means at once, ~0 after an event.
 */
static u64 turn(u64 now) {
    u64 next = ~0ull, due;

    if (controller_present()) serve_controller(now);
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
        flush(s);
    }
    for (u32 i = 0; i < nr_cards; i++) port_nic_flush(&cards[i]->port);
    due = MIN(due, run_manager(now));
    next = MIN(next, due);
    if (controller_present()) next = MIN(next, controller_kick());
    return next;
}

/* Starts the I/O cores that the command line asks for. If that fails, says so, and goes on without
 * them. */
static void start_cores(void) {
    u32 n = (u32)cmdline_u64("cores", 0);
    int error;

    if (!n) return;
    error = cores_start(n);
    if (error) {
        printf("iodom: cores=%u: the I/O cores cannot be started (error %d): %u of them need %u "
               "vCPUs\n",
               n, error, n, n + 1);
        return;
    }
    nr_cores = n;
    served_disk_use_cores(n);
    coschedule_init(n, option_ns(cmdline(), "remote", 0));
}

/* Starts the manager of disk I/O with the periods and functions of the command line, if it has
 * `collab`. */
static void start_manager(void) {
    const struct manager_config c = { .period_ns = cmdline_u64("collab_ms", 100) * NS_PER_MS,
                                      .monitor_ns = cmdline_u64("monitor_ms", 1000) * NS_PER_MS,
                                      .on = { [MANAGER_FLUSH] = cmdline_u64("flush", 1),
                                              [MANAGER_CONGESTION] = cmdline_u64("congestion", 1),
                                              [MANAGER_DIF] = cmdline_u64("dif", 0),
                                              [MANAGER_COSCHEDULE] =
                                                  cmdline_u64("coschedule", nr_cores != 0) },
                                      .cores = nr_cores,
                                      .busy_pct = (u32)cmdline_u64("busy_pct", 0),
                                      .slow_pct = (u32)cmdline_u64("slow_pct", 200),
                                      .seed = takt_seed() };

    if (!cmdline_has("collab")) return;
    managed = manager_start(&c) == 0;
    if (!managed) printf("iodom: there is no store, so there is no manager of disk I/O\n");
}

/* Serves devices for ever. In between it sleeps until its port is raised or something is due. */
int main(void) {
    i64 port = hypercall0(
        TAKT_HC_BACK_PORT); /* as all that are served here, on vCPU 0 and without a vector */

    if (port < 0) {
        printf("iodom: this guest serves other VMs of Takt, and no Takt is below it\n");
        return 1;
    }
    back_port = (u32)port;
    offset = hypercall0(TAKT_HC_TIME) - time_ns();
    report_ns = cmdline_u64("report_s", 0) * NS_PER_S;
    next_report = time_ns() + report_ns;
    bridge_init(&bridge, &guest_env, (u32)cmdline_u64("frames", 1024));
    tunable_add(
        &(struct tunable){ "bridge/frames", 1, 65536, bridge.max_buffers, set_frames, NULL });
    find_devices();
    start_cores();
    start_manager();
    look_around();
    for (;;) {
        u64 next, now;

        if (event_is_pending(back_port)) look_around();
        if (nr_cores) cores_awake();
        now = time_ns();
        next = turn(now);
        if (next > now) next = watch_cores(now, next);
        if (next > now) hypercall2(TAKT_HC_POLL, TAKT_PORT_ANY, next == ~0ull ? 0 : next + offset);
    }
}
