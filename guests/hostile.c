/* Does its worst for ever, in one way, so that a test can see that other VMs do not suffer. mode=M
 * names the way: io, mmio, hypercall, console, babble, ipi, timer, yield, cli, msr, cpuid,
 * selfwake, ports, virtio, notify or flood. Each is a function below that run() calls again and
 * again. Every vCPU takes part; notify and flood are for one vCPU. The random numbers always follow
 * from the same seed, so that a run can be repeated. */
#include <guest/device.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/lapic.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/time.h>
#include <guest/vcpu.h>
#include <takt/io.h>
#include "drivers/virtio_net.h"

#define VECTOR_STORM 0x50

static u64 seed = 1;

/* Returns the next random number. */
static u64 noise(void) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return seed >> 16;
}

static void storm_handler(void *arg) { lapic_eoi(); }

static void io(void) {
    outb((u16)(0x1000 + noise() % 0xe000), (u8)noise());
    (void)inl((u16)(0x1000 + noise() % 0xe000));
}

static void mmio(void) { (void)mmio_read32((void *)(TAKT_LAPIC_GPA + (noise() % 0x40) * 16)); }

/* Calls any hypercall with any arguments. */
static void any_hypercall(void) {
    u32 number = (u32)(noise() % 128);

    /* These two would end or stop this guest. */
    if (number != TAKT_HC_SHUTDOWN && number != TAKT_HC_POLL)
        hypercall(number, noise(), noise(), noise(), noise());
}

static void console(void) { printf("\033[2Jnoise %lx\n", noise()); }

/* Floods the console with bytes that are no printable characters. Takt shows each of them as four
 * characters (\x01), so it has four times as much to print as this guest has sent. */
static void babble(void) {
    static char line[160];

    memset(line, 1, 158);
    line[158] = '\n';
    printf("%s", line);
}

/* Interrupts all vCPUs of this VM. */
static void ipi(void) { lapic_icr(0, ICR_ASSERT | ICR_ALL | VECTOR_STORM); }

/* Sets the timer of the local APIC to the shortest period. */
static void timer(void) {
    lapic_write(LAPIC_LVT_TIMER, LVT_PERIODIC | VECTOR_STORM);
    lapic_write(LAPIC_TIMER_INITIAL, 1);
}

static void yield(void) { hypercall0(TAKT_HC_YIELD); }

static void msr(void) {
    u64 v;

    rdmsr_fault((u32)noise(), &v);
}

static void any_cpuid(void) { cpuid((u32)noise(), (u32)noise()); }

/* Sleeps for as short a time as it can, so that it is woken, and boosted, as often as it can be. */
static void self_wake(void) { sleep_until(time_ns() + 1000); }

/* Allocates all ports that it can get, and waits. */
static void ports(void) {
    while (event_alloc(takt_vm_id()) > 0)
        ;
    sleep_until(time_ns() + NS_PER_S);
}

static void cli(void) { irq_disable(); }

/* ---- a virtio device of this VM, and the back end that serves it ---- */

#define RING 8
/* Where the parts of a ring are in its page. */
#define AVAIL 0x200
#define USED  0x400
/* The index of the available ring is below this, and now and then more than RING. */
#define MOST_SHOWN 12

static volatile u8 *regs;

static void put_reg(u32 reg, u32 value) { mmio_write32(regs + reg, value); }

/* Fills the page of a ring with garbage: descriptors at its beginning, the available ring at AVAIL.
 * Three of four descriptors and all entries of the available ring look plausible, so that the
 * device goes on to use them. */
static void fill_ring(u8 *p) {
    struct vring_avail *avail = (void *)(p + AVAIL);

    for (u32 i = 0; i < PAGE_SIZE; i++) p[i] = (u8)noise();
    for (u32 i = 0; i < RING; i++) {
        struct vring_desc d = { mem_ram() / 2 + noise() % (2 * mem_ram()), (u32)noise() % 4096,
                                (u16)noise() % 8, (u16)noise() % (RING + 1) };

        if (noise() % 4) memcpy(p + i * sizeof(d), &d, sizeof(d));
    }
    for (u32 i = 0; i < RING; i++) avail->ring[i] = (u8)noise() % RING;
    avail->idx = (u8)noise() % MOST_SHOWN;
}

/* Sets a queue up with random garbage. Most values are plausible, because a device would refuse
 * plain nonsense at once. */
static void start_queue(u32 queue) {
    static u8 page[4][PAGE_SIZE] __attribute__((aligned(4096)));
    u64 at = (u64)page[queue];

    fill_ring(page[queue]);
    put_reg(VIRTIO_QUEUE_SEL, queue);
    put_reg(VIRTIO_QUEUE_NUM, noise() % 8 ? RING : (u32)noise());
    put_reg(VIRTIO_QUEUE_DESC, (u32)at);
    put_reg(VIRTIO_QUEUE_DESC + 4, noise() % 16 ? 0 : (u32)noise());
    put_reg(VIRTIO_QUEUE_DRIVER, (u32)at + AVAIL);
    put_reg(VIRTIO_QUEUE_DRIVER + 4, 0);
    put_reg(VIRTIO_QUEUE_DEVICE, (u32)at + (noise() % 16 ? USED : (u32)noise() % (2 * USED)));
    put_reg(VIRTIO_QUEUE_DEVICE + 4, 0);
    put_reg(VIRTIO_QUEUE_READY, 1);
}

/* Goes through the handshake of a virtio driver as far as it must, gives the device rings full of
 * garbage, and notifies it. */
static void virtio(void) {
    regs = (volatile u8 *)(TAKT_VIRTIO_GPA + noise() % 2 * PAGE_SIZE);
    put_reg(VIRTIO_STATUS, 0);
    for (u32 i = 0; i < 1000 && mmio_read32(regs + VIRTIO_STATUS); i++) hypercall0(TAKT_HC_YIELD);
    put_reg(VIRTIO_STATUS, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER);
    put_reg(VIRTIO_DRIVER_FEATURES_SEL, 1);
    put_reg(VIRTIO_DRIVER_FEATURES, 1);
    put_reg(VIRTIO_DRIVER_FEATURES_SEL, 0);
    put_reg(VIRTIO_DRIVER_FEATURES,
            noise() % 2 ? 0 : 1u << VIRTIO_F_INDIRECT | 1u << VIRTIO_F_EVENT_IDX | 0x8001);
    put_reg(VIRTIO_STATUS, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK);
    for (u32 q = 0; q < 2; q++) start_queue(q);
    put_reg(VIRTIO_STATUS,
            VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK | VIRTIO_DRIVER_OK);
    for (u32 i = 0; i < 20; i++) {
        put_reg(VIRTIO_QUEUE_NOTIFY, noise() % 4 ? (u32)noise() % 2 : (u32)noise());
        if (noise() % 8 == 0) put_reg((u32)noise() % 0x200 & ~3u, (u32)noise());
        if (noise() % 4 == 0) hypercall0(TAKT_HC_YIELD);
    }
}

/* ---- a network device that works, used without manners ---- */

/* Returns a network device that works; opens it at the first call. */
static struct virtio_net *device(void) {
    static struct virtio_dev dev;
    static struct virtio_net net;

    if (!net.dev &&
        (device_open(&dev, VIRTIO_ID_NET, 0, NS_PER_S) || virtio_net_start(&net, &dev, 256, 2048)))
        guest_panic("there is no network device");
    return &net;
}

/* Notifies the back end although there is nothing in the ring. */
static void notify(void) {
    struct virtio_net *n = device();

    for (u32 i = 0; i < 1000; i++) n->dev->ops->notify(n->dev, i % 2);
}

/* Sends as many frames as the ring takes, to everybody, from addresses that the bridge has not seen
 * before. */
static void flood(void) {
    static u8 frame[256][64];
    struct virtio_net *n = device();
    void *token;

    for (u32 i = 0; i < 256; i++) {
        struct virtio_net_seg seg = { frame[i], 64 };

        memset(frame[i], 0xff, 6);
        for (u32 b = 6; b < 64; b++) frame[i][b] = (u8)(noise() << 1);
        if (virtio_net_send(n, &seg, 1, 0, 0, frame[i])) break;
    }
    virtio_net_flush(n);
    while (virtio_net_sent(n, &token))
        ;
}

static const struct {
    const char *name;
    void (*fn)(void);
} modes[] = {
    { "io", io },           { "mmio", mmio },       { "hypercall", any_hypercall },
    { "console", console }, { "babble", babble },   { "ipi", ipi },
    { "timer", timer },     { "yield", yield },     { "msr", msr },
    { "cli", cli },         { "cpuid", any_cpuid }, { "selfwake", self_wake },
    { "ports", ports },     { "virtio", virtio },   { "notify", notify },
    { "flood", flood },
};

/* Does its worst again and again, as the thread of each vCPU. */
static void run(void *arg) {
    void (*fn)(void) = arg;

    for (;;) fn();
}

/* Starts the attack that `mode` names on all vCPUs. If the mode is not known, ends with exit code
 * 1, so that a misspelt test does not pass. */
int main(void) {
    char mode[16] = "cli";
    unsigned n = vcpu_start_all();

    cmdline_str("mode", mode, sizeof(mode));
    irq_set_raw_handler(VECTOR_STORM, storm_handler, NULL);
    for (u32 i = 0; i < ARRAY_SIZE(modes); i++) {
        if (strcmp(modes[i].name, mode) != 0) continue;
        for (u32 v = 1; v < n; v++) thread_start(v, "hostile", run, (void *)modes[i].fn);
        run((void *)modes[i].fn);
    }
    printf("no mode is called %s\n", mode);
    return 1;
}
