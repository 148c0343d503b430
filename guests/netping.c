/* Answers ARP and echo requests on its virtio network device without an IP stack. Its address is
 * ip=N, or else 10.0.0.(number of the VM). With to=N it also sends echo requests to that address:
 * batches=B (10) batches of batch=P (32) requests with size=S (56) bytes each. An address is
 * written 0x0a000002, or 2 for 10.0.0.2. The next batch goes when the last one has been answered,
 * or after timeout_ms=T (1000), and interval_ms=I (0) after that. */
#include <guest/device.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include "drivers/virtio_net.h"

#define BUFFERS   256
#define HEAD      14 /* bytes of the Ethernet header */
#define IP_HEAD   20
#define ICMP      (HEAD + IP_HEAD)
#define ICMP_HEAD 8
#define MAX_SIZE  1472

#define TYPE_IP   0x0800
#define TYPE_ARP  0x0806

/* A packet of ARP (RFC 826), for Ethernet and IPv4. */
struct arp {
    u8 fixed[6]; /* 00 01 08 00 06 04 */
    u8 op[2];
    u8 from_mac[6], from_ip[4], to_mac[6], to_ip[4];
} __attribute__((packed));

static struct virtio_dev dev;
static struct virtio_net net;
static struct semaphore work = SEMAPHORE(0);
static u8 *free_buffers[BUFFERS];
static u32 nr_free;

static u8 own_ip[4], peer_ip[4], peer_mac[6];
static bool peer_known, changed; /* changed: something happened to the device */
static u32 id;                   /* of this VM; it is kept because asking for it costs an exit */
static u32 size, seq_sent, seq_base, answered, wrong;
static u64 first_answer, last_answer;

static u16 be16(const u8 *p) { return (u16)(p[0] << 8 | p[1]); }

static void put_be16(u8 *p, u32 v) {
    p[0] = (u8)(v >> 8);
    p[1] = (u8)v;
}

/* Returns the checksum of RFC 1071. Over data that contains its own checksum it is 0 if the data is
 * intact. */
static u16 sum_of(const u8 *p, u32 len) {
    u32 sum = 0;

    for (u32 i = 0; i + 1 < len; i += 2) sum += be16(p + i);
    if (len & 1) sum += (u32)p[len - 1] << 8;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (u16)~sum;
}

/* ---- sending ---- */

static void free_buffer(void *p) { free_buffers[nr_free++] = p; }

/* Returns a free buffer, or NULL. */
static u8 *buffer(void) {
    void *token;

    while (virtio_net_sent(&net, &token)) free_buffer(token);
    if (!nr_free) return NULL;
    return free_buffers[--nr_free];
}

/* Queues a frame. If the ring is full the frame is lost, as on a real network. */
static void send(u8 *p, u32 len) {
    struct virtio_net_seg seg = { p, len };

    if (virtio_net_send(&net, &seg, 1, 0, 0, p)) free_buffer(p);
}

/* Takes a buffer, and writes an Ethernet header. Returns NULL if no buffer is free. */
static u8 *begin(const u8 *to, u16 type) {
    u8 *p = buffer();

    if (!p) return NULL;
    memcpy(p, to, 6);
    memcpy(p + 6, net.mac, 6);
    put_be16(p + 12, type);
    return p;
}

/* Sends an ARP request (op 1, to everybody) or an answer (op 2). */
static void send_arp(const u8 *mac, const u8 *ip, u8 op) {
    static const u8 all[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
    u8 *p = begin(op == 1 ? all : mac, TYPE_ARP);
    struct arp a = { { 0, 1, 8, 0, 6, 4 }, { 0, op }, { 0 }, { 0 }, { 0 }, { 0 } };

    if (!p) return;
    memcpy(a.from_mac, net.mac, 6);
    memcpy(a.from_ip, own_ip, 4);
    memcpy(a.to_mac, mac, 6);
    memcpy(a.to_ip, ip, 4);
    memcpy(p + HEAD, &a, sizeof(a));
    send(p, HEAD + sizeof(a));
}

/* Sends a packet whose `len` bytes of data are in place: writes the IP and ICMP headers before
 * them. */
static void send_icmp(u8 *p, const u8 *to, u8 type, u32 ident, u32 seq, u32 len) {
    u8 *ip = p + HEAD, *icmp = p + ICMP;

    memset(ip, 0, IP_HEAD);
    ip[0] = 0x45;
    put_be16(ip + 2, IP_HEAD + ICMP_HEAD + len);
    ip[8] = 64;
    ip[9] = 1;
    memcpy(ip + 12, own_ip, 4);
    memcpy(ip + 16, to, 4);
    put_be16(ip + 10, sum_of(ip, IP_HEAD));
    memset(icmp, 0, ICMP_HEAD);
    icmp[0] = type;
    put_be16(icmp + 4, ident);
    put_be16(icmp + 6, seq);
    put_be16(icmp + 2, sum_of(icmp, ICMP_HEAD + len));
    send(p, ICMP + ICMP_HEAD + len);
}

/* Sends the echo request number `seq`. Its data follow from the number, so that the answer can be
 * checked. */
static void send_request(u32 seq) {
    u8 *p = begin(peer_mac, TYPE_IP);

    if (!p) return;
    for (u32 i = 0; i < size; i++) p[ICMP + ICMP_HEAD + i] = (u8)(seq + i);
    send_icmp(p, peer_ip, 8, id, seq, size);
}

/* ---- receiving ---- */

/* Learns the peer's address, and answers if somebody asks for ours. */
static void on_arp(const u8 *p, u32 len) {
    struct arp a;

    if (len < HEAD + sizeof(a)) return;
    memcpy(&a, p + HEAD, sizeof(a));
    if (!memcmp(a.from_ip, peer_ip, 4)) {
        memcpy(peer_mac, a.from_mac, 6);
        peer_known = true;
    }
    if (a.op[1] == 1 && !memcmp(a.to_ip, own_ip, 4)) send_arp(a.from_mac, a.from_ip, 2);
}

/* Counts an echo answer if it belongs to the present batch and its data are right. */
static void on_reply(const u8 *icmp, u32 len) {
    u32 seq = be16(icmp + 6);
    bool ok = be16(icmp + 4) == (u16)id && len == ICMP_HEAD + size;

    for (u32 i = 0; ok && i < size; i++) ok = icmp[ICMP_HEAD + i] == (u8)(seq + i);
    if (ok && (u16)(seq - seq_base) < (u16)(seq_sent - seq_base)) {
        last_answer = time_ns();
        if (!answered++) first_answer = last_answer;
    } else {
        wrong++;
    }
}

/* Takes an echo request or answer for this VM. Every length is checked before the bytes behind it
 * are read. */
static void on_ip(const u8 *p, u32 len) {
    const u8 *ip = p + HEAD, *icmp = p + ICMP;
    u32 total;
    u8 *out;

    if (len < ICMP + ICMP_HEAD || ip[0] != 0x45 || ip[9] != 1 || memcmp(ip + 16, own_ip, 4)) return;
    total = be16(ip + 2);
    if (total < IP_HEAD + ICMP_HEAD || total > len - HEAD) return;
    if (sum_of(ip, IP_HEAD) || sum_of(icmp, total - IP_HEAD)) {
        wrong++;
        return;
    }
    if (icmp[0] == 0) on_reply(icmp, total - IP_HEAD);
    if (icmp[0] != 8 || !(out = begin(p + 6, TYPE_IP))) return;
    memcpy(out + ICMP + ICMP_HEAD, icmp + ICMP_HEAD, total - IP_HEAD - ICMP_HEAD);
    send_icmp(out, ip + 12, 0, be16(icmp + 4), be16(icmp + 6), total - IP_HEAD - ICMP_HEAD);
}

/* Takes a received frame. One that needs more than a buffer is longer than any that was sent. */
static void on_frame(const struct virtio_net_frame *f) {
    const u8 *p = f->part[0].data;

    if (f->nr > 1 || f->len < HEAD)
        wrong++;
    else if (be16(p + 12) == TYPE_ARP)
        on_arp(p, f->len);
    else if (be16(p + 12) == TYPE_IP)
        on_ip(p, f->len);
    for (u32 i = 0; i < f->nr; i++) virtio_net_recycle(&net, f->part[i].buffer);
}

static void on_used(u32 port, void *arg) { sem_up(&work); }

static void on_config(u32 port, void *arg) {
    changed = true;
    sem_up(&work);
}

/* ---- the device, which may lose its back end and get another one ---- */

/* Waits for the network device, practically for ever, and starts it. */
static void connect(void) {
    int error = device_open(&dev, VIRTIO_ID_NET, 0, FOREVER / 2);

    if (!error) error = virtio_net_start(&net, &dev, 256, 2048);
    if (error) guest_panic("there is no network device (error %d)", error);
    device_on_used(&dev, 0, on_used, NULL);
    device_on_config(&dev, 0, on_config, NULL);
    printf("netping: %u.%u.%u.%u, %02x:%02x:%02x:%02x:%02x:%02x\n", own_ip[0], own_ip[1], own_ip[2],
           own_ip[3], net.mac[0], net.mac[1], net.mac[2], net.mac[3], net.mac[4], net.mac[5]);
}

/* Looks whether the device's back end is gone, and then waits for the next one. */
static void reconnect(void) {
    changed = false;
    if (virtio_alive(&dev)) return;
    printf("netping: the device is gone\n");
    if (virtio_net_stop(&net, free_buffer)) guest_panic("the device does not let go");
    connect();
}

/* Takes all frames that have come, until the device will interrupt for the next one. */
static void drain(void) {
    struct virtio_net_frame f;

    do {
        while (virtio_net_receive(&net, &f)) on_frame(&f);
        virtio_net_flush(&net);
    } while (virtio_net_listen(&net));
}

/* Waits for an interrupt and takes what has come. Returns false if the deadline came first. */
static bool drain_more(u64 deadline) {
    if (!sem_down_until(&work, deadline)) return false;
    if (changed) reconnect();
    drain();
    return true;
}

/* ---- sending echo requests ---- */

/* Asks for the peer's Ethernet address until it answers. */
static void find_peer(void) {
    static const u8 nobody[6];

    while (!peer_known) {
        send_arp(nobody, peer_ip, 1);
        drain();
        for (u64 end = time_ns() + 20 * NS_PER_MS; !peer_known && drain_more(end);)
            ;
    }
}

/* Sends the batches, and prints how long each took and how many answers were missing. Returns the
 * exit code: 0 if all answers came and were right. */
static int ping_all(void) {
    u32 batches = cmdline_u64("batches", 10), batch = MIN(cmdline_u64("batch", 32), 128ull),
        lost = 0;
    u64 timeout = cmdline_u64("timeout_ms", 1000) * NS_PER_MS,
        interval = cmdline_u64("interval_ms", 0) * NS_PER_MS;
    u64 sum = 0, most = 0;

    find_peer();
    for (u32 b = 0; b < batches; b++) {
        u64 sent = time_ns();

        seq_base = seq_sent;
        answered = 0;
        while (seq_sent - seq_base < batch) send_request(seq_sent++);
        drain();
        while (answered < batch && drain_more(sent + timeout))
            ;
        lost += batch - answered;
        if (answered) {
            sum += first_answer - sent;
            most = MAX(most, first_answer - sent);
        }
        if (interval) sleep_until(sent + interval);
    }
    printf("netping: %u sent, %u lost, %u wrong, first answer of a batch after %lu ns, at most "
           "%lu; %lu "
           "notifications\n",
           seq_sent, lost, wrong, sum / MAX(batches, 1u), most, net.kicks);
    return lost || wrong;
}

static void put_ip(u8 *ip, u64 address) {
    if (address < 256) address |= 10u << 24;
    put_be16(ip, (u32)(address >> 16));
    put_be16(ip + 2, (u32)address & 0xffff);
}

/* Pings the address `to`, or answers others. Without `to` it only answers, for ever. */
int main(void) {
    for (; nr_free < BUFFERS; nr_free++)
        if (!(free_buffers[nr_free] = malloc(ICMP + ICMP_HEAD + MAX_SIZE)))
            guest_panic("there is no memory");
    size = MIN(cmdline_u64("size", 56), (u64)MAX_SIZE);
    id = takt_vm_id();
    put_ip(own_ip, cmdline_u64("ip", id & 0xff));
    put_ip(peer_ip, cmdline_u64("to", 0));
    connect();
    if (cmdline_has("to")) return ping_all();
    for (drain();;) drain_more(FOREVER);
}
