/* vcpus: 2 */
/* memory: 8 */
/* time: 2000 */
/* The network stack in a guest. Its lower half runs in interrupts of vCPU 0, and a thread on
 * vCPU 1 answers datagrams. This test is the device: it hands in frames of its own and looks at
 * those that go out. */
#include <guest/string.h>
#include <guest/test.h>
#include <guest/thread.h>
#include <guest/vcpu.h>
#include <netstack/guest.h>
#include <netstack/socket.h>

#define PORT   7
#define ROUNDS 50

static u8 in[64], out[128];
static u32 in_len, out_len; /* 0: none; atomic */
static u64 wrong_vcpu;

static void put(u8 *p, unsigned n, u64 v) {
    for (; n--; v >>= 8) p[n] = v;
}

static void poll(void *arg) {
    struct net_buf *nb;

    if (this_vcpu()->id != 0) wrong_vcpu++;
    if (!in_len || !(nb = net_buf_get())) return;
    memcpy(nb->data, in, in_len);
    net_rx(nb, 0, in_len);
    in_len = 0;
}

static bool tx(void *arg, const struct net_frame *f) {
    u32 len = 0;

    for (unsigned i = 0; i < f->n && len + f->piece[i].len <= sizeof(out); len += f->piece[i++].len)
        memcpy(out + len, f->piece[i].data, f->piece[i].len);
    __atomic_store_n(&out_len, len, __ATOMIC_RELEASE);
    return true;
}

/* The frame in `in` arrives, with an interrupt. */
static void arrives(u32 len) {
    u64 f = irq_save();

    in_len = len;
    net_guest_run();
    irq_restore(f);
}

static void echo(void *arg) {
    struct sock *s = arg;
    u8 data[100];
    u32 ip;
    u16 port;

    for (unsigned i = 0; i < ROUNDS; i++) {
        i64 n = sock_recv_from(s, data, sizeof(data), &ip, &port, NET_FOREVER);

        if (this_vcpu()->id != 1) wrong_vcpu++;
        if (n < 0 || sock_send_to(s, data, n, ip, port, NET_FOREVER))
            test_fail("round %u: %ld", i, n);
    }
}

/* An ARP request of 10.0.0.2 for 10.0.0.1, from which the stack learns the address to answer to. */
static void introduce(void) {
    memset(in, 0, sizeof(in));
    memset(in, 0xff, 6);
    put(in + 6, 6, 0x020000000002);
    put(in + 12, 8, 0x0806000108000604);
    put(in + 20, 2, 1);
    put(in + 22, 6, 0x020000000002);
    put(in + 28, 4, 0x0a000002);
    put(in + 38, 4, 0x0a000001);
    arrives(42);
    CHECK(out_len == 42 && out[21] == 2, "no answer to ARP (%u bytes)", out_len);
    out_len = 0;
}

static void datagram(u32 number) {
    u32 sum = 0;

    memset(in, 0, sizeof(in));
    put(in, 6, 0x020000000001);
    put(in + 6, 6, 0x020000000002);
    put(in + 12, 2, 0x800);
    put(in + 14, 4, 0x45000000 | (20 + 8 + 4));
    put(in + 22, 2, 64 << 8 | 17);
    put(in + 26, 4, 0x0a000002);
    put(in + 30, 4, 0x0a000001);
    for (unsigned i = 14; i < 34; i += 2) sum += in[i] << 8 | in[i + 1];
    put(in + 24, 2, ~((sum >> 16) + (sum & 0xffff)));
    put(in + 34, 8, 5555ull << 48 | (u64)PORT << 32 | (8 + 4) << 16); /* no checksum */
    put(in + 42, 4, number);
    arrives(60);
}

int main(void) {
    struct net_config config = { .mac = { 2, 0, 0, 0, 0, 1 },
                                 .ip = 0x0a000001,
                                 .mask = 0xffffff00,
                                 .model = NET_OWNER,
                                 .early_ack = true,
                                 .bufs = 512 };
    struct net_guest guest = { .vcpu = 0, .poll = poll, .tx = tx };
    struct sock_options options = { .rcvbuf = NET_RCVBUF_MIN };
    struct thread *t;
    struct sock *s;

    test_begin();
    if (vcpu_start_all() < 2) test_error("there is one vCPU");
    if (net_guest_start(&guest, &config)) test_error("no memory for the stack");
    net_join();
    introduce();
    CHECK(sock_open(SOCK_UDP, &options, &s) == 0 && sock_bind(s, PORT) == 0, "no socket");
    t = thread_start(1, "echo", echo, s);
    if (!t) test_error("no thread");
    for (u32 i = 0; i < ROUNDS; i++) {
        u64 end = time_ns() + 4 * NS_PER_S;

        /* By then the thread waits. Without this it may still be on its way. */
        if (i & 1) sleep_ns(NS_PER_MS / 4);
        datagram(i);
        while (!__atomic_load_n(&out_len, __ATOMIC_ACQUIRE) && time_ns() < end)
            sleep_ns(50 * NS_PER_US);
        CHECK(out_len == 46 && out[23] == 17, "round %u: %u bytes came out", i, out_len);
        CHECK(out[45] == (u8)i && out[35] == PORT, "round %u: another datagram", i);
        if (!out_len) break;
        __atomic_store_n(&out_len, 0, __ATOMIC_RELEASE);
    }
    thread_join(t);
    CHECK(!wrong_vcpu, "%lu times on the wrong vCPU", wrong_vcpu);
    return test_end("bottom half on vCPU 0, thread on vCPU 1");
}
