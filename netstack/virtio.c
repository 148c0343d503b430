#include <guest/device.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <netstack/socket.h>
#include <netstack/virtio.h>
#include "drivers/bridge.h"
#include "drivers/virtio_net.h"
#include "lwip/priv/tcp_priv.h"

#define VCPU      0 /* of the bottom half */
#define TX_FRAMES 256
#define TX_SIZE   2048
#define BATCH     64 /* frames taken before timers and threads get their turn */
#define RETRY     (50 * NS_PER_MS)

static struct virtio_dev dev;
static struct virtio_net nic;
static struct semaphore changed = SEMAPHORE(0); /* something happened to the device */
/* the bottom half alone */
static bool up;
static u32 ring;     /* frames that the device may hold */
static bool tx_full; /* frames had to wait */
static u8 *free_tx[TX_FRAMES];
static u32 nr_free_tx;
static struct net_device_stats stats;

const struct net_device_stats *net_device_stats(void) { return &stats; }

u32 net_thread_vcpu(void) { return vcpu_count() - 1; }

struct sock *net_connect(u32 ip, u16 port, const struct sock_options *options) {
    struct sock *s;

    for (;;) {
        int error = sock_open(SOCK_TCP, options, &s);

        if (error) guest_panic("net: no socket: %d", error);
        if (!sock_connect(s, ip, port, NET_FOREVER)) return s;
        sock_close(s);
        sleep_ns(RETRY);
    }
}

/* ---- command line ---- */

/* A.B.C.D or A.B.C.D/N; *bits stays as it was without /N. False: it is neither. */
static bool parse_ip(const char *p, u32 *ip, u32 *bits) {
    u32 value[5] = { 0 }, n = 0;

    for (; n < 5; n++, p++) {
        if (*p < '0' || *p > '9') return false;
        for (; *p >= '0' && *p <= '9' && value[n] < 256; p++) value[n] = value[n] * 10 + (u32)(*p - '0');
        if (*p != (n < 3 ? '.' : '/')) break;
    }
    if (*p || n < 3 || n > 4 || value[4] > 32) return false;
    for (u32 i = 0; i < 4; i++)
        if (value[i] > 255) return false;
    *ip = value[0] << 24 | value[1] << 16 | value[2] << 8 | value[3];
    if (n == 4) *bits = value[4];
    return true;
}

static u32 cmdline_ip(const char *key, u32 otherwise, u32 *bits) {
    char text[32];
    u32 ip;

    if (!cmdline_str(key, text, sizeof(text))) return otherwise;
    if (!parse_ip(text, &ip, bits)) guest_panic("%s=%s is no address", key, text);
    return ip;
}

u32 net_cmdline_ip(const char *key, u32 otherwise) {
    u32 bits;

    return cmdline_ip(key, otherwise, &bits);
}

/* ---- the bottom half ---- */

static void sent(void *token) { free_tx[nr_free_tx++] = token; }

/* Received frames lie in buffers of the stack's, and go up in them: another one takes each one's place. */
static struct net_buf *buf_of(void *p) {
    return (struct net_buf *)((u8 *)p - offsetof(struct net_buf, data));
}

/* From the thread that stops the device. */
static void put(void *p) {
    u64 flags = irq_save();

    net_buf_put(buf_of(p));
    irq_restore(flags);
}

static void post(void) {
    struct net_buf *nb;

    for (u32 i = 0; i < nic.nr_buffers && (nb = net_buf_get()); i++) virtio_net_recycle(&nic, nb->data);
}

static void take(const struct virtio_net_frame *f) {
    const struct virtio_net_part *part = &f->part[0];
    struct net_buf *fresh = f->nr == 1 ? net_buf_get() : NULL; /* one holds any frame of the MTU */

    if (!fresh) {
        stats.bad += f->nr > 1;
        for (u32 i = 0; i < f->nr; i++) virtio_net_recycle(&nic, f->part[i].buffer);
        return;
    }
    virtio_net_recycle(&nic, fresh->data);
    buf_of(part->buffer)->checked = f->csum_ok;
    net_rx(buf_of(part->buffer), (u32)(part->data - part->buffer), f->len);
}

static void poll(void *arg) {
    struct virtio_net_frame f;
    void *token;
    u32 n = 0;

    if (!up) return;
    while (virtio_net_sent(&nic, &token)) sent(token);
    if (tx_full && nr_free_tx) {
        tx_full = false;
        tcp_txnow();
    }
    while (n < BATCH && virtio_net_receive(&nic, &f)) {
        take(&f);
        n++;
    }
    stats.polls++;
    stats.frames += n;
    stats.batch_most = MAX(stats.batch_most, n);
}

static bool tx(void *arg, const struct net_frag *piece, unsigned n, struct net_open_sum open) {
    struct virtio_net_seg seg = { 0 };
    void *token;
    u8 *p;

    if (!up) return false;
    while (!nr_free_tx && virtio_net_sent(&nic, &token)) sent(token);
    if (!nr_free_tx) {
        tx_full = true;
        return false;
    }
    p = free_tx[--nr_free_tx];
    for (unsigned i = 0; i < n; i++) {
        if (piece[i].len > TX_SIZE - seg.len) goto drop;
        memcpy(p + seg.len, piece[i].data, piece[i].len);
        seg.len += piece[i].len;
    }
    seg.p = p;
    if (open.start && !virtio_net_can_csum(&nic)) {
        frame_checksum(p, seg.len, open.start, open.offset);
        open.start = open.offset = 0;
    }
    if (virtio_net_send(&nic, &seg, 1, open.start, open.offset, p) == 0) return true;
drop:
    sent(p);
    return false;
}

/* One notification for all that was sent and recycled; then the next frame may interrupt. */
static bool done(void *arg) {
    bool more;

    if (!up) return false;
    virtio_net_flush(&nic);
    more = virtio_net_listen(&nic);
    return (tx_full && virtio_net_listen_sent(&nic)) || more;
}

static void on_used(u32 port, void *arg) { net_guest_run(); }

/* ---- the device, which may lose its back end and get another ---- */

static void on_config(u32 port, void *arg) { sem_up(&changed); }

static int open(void) {
    int error = device_open(&dev, VIRTIO_ID_NET, 0, FOREVER / 2);

    if (!error) error = virtio_net_start_own(&nic, &dev, ring, NET_BUF_ROOM, put);
    up = !error;
    return error;
}

static void go(void) {
    u64 flags = irq_save();

    post();
    device_on_used(&dev, VCPU, on_used, NULL);
    device_on_config(&dev, VCPU, on_config, NULL);
    net_guest_run(); /* what came before there was a handler */
    irq_restore(flags);
}

static void watch(void *arg) {
    for (;;) {
        u64 flags;

        sem_down(&changed);
        if (virtio_alive(&dev)) continue;
        printf("net: the device is gone\n");
        flags = irq_save();
        up = false;
        irq_restore(flags);
        if (virtio_net_stop(&nic, sent)) guest_panic("net: the device does not let go");
        if (open()) guest_panic("net: the device does not come back");
        go();
        printf("net: the device is back\n");
    }
}

int net_start(unsigned bufs) {
    struct net_guest guest = { .vcpu = VCPU, .poll = poll, .tx = tx, .done = done };
    u32 bits = 24, ip = cmdline_ip("ip", 0x0a000000 | (u8)takt_vm_id(), &bits);
    struct net_config config = { .ip = ip,
                                 .mask = bits ? ~0u << (32 - bits) : 0,
                                 .gateway = net_cmdline_ip("gw", 0),
                                 .model = cmdline_has("plain") ? NET_PLAIN : NET_OWNER,
                                 .early_ack = cmdline_u64("early_ack", 1),
                                 .tx_open = true,
                                 .bufs = NET_BUFS_KEPT + bufs };
    u8 *buffers = guest_env.pages(TX_FRAMES * TX_SIZE / PAGE_SIZE);
    int error;

    vcpu_start_all();
    if (!buffers) return -ENOMEM;
    while (nr_free_tx < TX_FRAMES) sent(buffers + nr_free_tx * TX_SIZE);
    ring = (u32)cmdline_u64("ring", 256);
    error = open();
    if (error) return error;
    config.posted = nic.nr_buffers;
    config.bufs += nic.nr_buffers;
    memcpy(config.mac, nic.mac, sizeof(config.mac));
    config.mtu = nic.mtu;
    error = net_guest_start(&guest, &config);
    if (error) return error;
    if (!thread_start(VCPU, "net", watch, NULL)) return -ENOMEM;
    go();
    printf("net: %u.%u.%u.%u/%u, %02x:%02x:%02x:%02x:%02x:%02x, %s\n", ip >> 24, ip >> 16 & 255,
           ip >> 8 & 255, ip & 255, bits, nic.mac[0], nic.mac[1], nic.mac[2], nic.mac[3], nic.mac[4],
           nic.mac[5],
           config.model == NET_PLAIN ? "nobody owns a socket"
           : config.early_ack        ? "early acknowledgements"
                                     : "the backlog waits");
    return 0;
}
