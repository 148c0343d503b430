/* Starts the network stack by the words of the guest's command line, on the network card that it
 * finds: a virtual function of a card if the VM was given one, else its virtio device. start.h
 * lists the words. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/tunable.h>
#include <guest/vcpu.h>
#include <netstack/nic.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include <takt/errno.h>

#define RETRY (50 * NS_PER_MS)

struct net_device_stats net_nic_stats;

const struct net_device_stats *net_device_stats(void) { return &net_nic_stats; }

u32 net_thread_vcpu(void) { return vcpu_count() - 1; }

/* Opens a TCP connection. The server's VM may start later than this one, so it tries until the
 * server answers. */
struct sock *net_connect(u32 ip, u16 port, const struct sock_options *options) {
    struct sock *s;

    for (;;) {
        int error = sock_open(SOCK_TCP, options, &s);

        if (error) guest_panic("net: there is no socket (error %d)", error);
        if (!sock_connect(s, ip, port, NET_FOREVER)) return s;
        sock_close(s);
        sleep_ns(RETRY);
    }
}

/* ---- command line ---- */

/* Reads A.B.C.D or A.B.C.D/N. Without /N, *bits stays as it was. Returns false if the text is
 * neither. */
static bool parse_ip(const char *p, u32 *ip, u32 *bits) {
    u32 value[5] = { 0 }, n = 0;

    for (; n < 5; n++, p++) {
        if (*p < '0' || *p > '9') return false;
        for (; *p >= '0' && *p <= '9' && value[n] < 256; p++)
            value[n] = value[n] * 10 + (u32)(*p - '0');
        if (n < 3 && *p != '.') break;
        if (n >= 3 && *p != '/') break;
    }
    if (*p || n < 3 || n > 4 || value[4] > 32) return false;
    for (u32 i = 0; i < 4; i++)
        if (value[i] > 255) return false;
    *ip = value[0] << 24 | value[1] << 16 | value[2] << 8 | value[3];
    if (n == 4) *bits = value[4];
    return true;
}

/* Returns the address that the command line gives for `key`, or `otherwise`, as net_cmdline_ip()
 * does, and sets *bits if the address ends in /N. An address that cannot be read ends the guest
 * with a sentence; without that it would run under another address. */
static u32 cmdline_ip(const char *key, u32 otherwise, u32 *bits) {
    char text[32];
    u32 ip;

    if (!cmdline_str(key, text, sizeof(text))) return otherwise;
    if (!parse_ip(text, &ip, bits))
        guest_panic("%s=%s is not an address such as 10.0.0.1", key, text);
    return ip;
}

u32 net_cmdline_ip(const char *key, u32 otherwise) {
    u32 bits;

    return cmdline_ip(key, otherwise, &bits);
}

static void start_tunables(void) {
    tunable_add(&(struct tunable){ "net/rcvbuf", NET_RCVBUF_MIN, NET_RCVBUF_MAX, NET_RCVBUF_MAX,
                                   net_set_rcvbuf, NULL });
    tunable_add(&(struct tunable){ "net/sndbuf", NET_SNDBUF_MIN, NET_SNDBUF_MAX, NET_SNDBUF_MAX,
                                   net_set_sndbuf, NULL });
}

/* Starts all vCPUs, waits for the network device and starts the stack with `bufs` buffers for
 * sockets. The card is opened first, because the stack has to know its address and how many buffers
 * it holds; interrupts come only at the end. */
int net_start(unsigned bufs) {
    const struct net_nic *nic = &net_virtio;
    const char *acknowledges = "the backlog waits";
    struct net_nic_info info = { .mtu = 0 };
    u32 bits = 24, ip = cmdline_ip("ip", 0x0a000000 | (u8)takt_vm_id(), &bits);
    struct net_config config = { .ip = ip,
                                 .gateway = net_cmdline_ip("gw", 0),
                                 .model = NET_OWNER,
                                 .early_ack = cmdline_u64("early_ack", 1),
                                 .sent = net_sent_for((u32)cmdline_u64("sndbuf", 0)),
                                 .bufs = NET_BUFS_KEPT + bufs };
    int error;

    if (net_igbvf.present()) nic = &net_igbvf;
    config.tx_open = nic->tx_open;
    if (bits) config.mask = ~0u << (32 - bits);
    if (config.early_ack) acknowledges = "early acknowledgements";
    if (cmdline_has("plain")) {
        config.model = NET_PLAIN;
        acknowledges = "nobody owns a socket";
    }
    vcpu_start_all();
    error = nic->open((u32)cmdline_u64("ring", 256), &info);
    if (error) return error;
    config.posted = info.posted;
    config.bufs += info.posted;
    config.mtu = info.mtu;
    memcpy(config.mac, info.mac, sizeof(config.mac));
    error = net_guest_start(&nic->guest, &config);
    if (error) return error;
    if (!thread_start(NET_VCPU, "net", nic->watch, NULL)) return -ENOMEM;
    nic->go();
    start_tunables();
    printf("net: %u.%u.%u.%u/%u, %02x:%02x:%02x:%02x:%02x:%02x by %s, %s\n", ip >> 24,
           ip >> 16 & 255, ip >> 8 & 255, ip & 255, bits, info.mac[0], info.mac[1], info.mac[2],
           info.mac[3], info.mac[4], info.mac[5], nic->name, acknowledges);
    return 0;
}
