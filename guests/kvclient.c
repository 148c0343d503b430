/* Sends requests over TCP to guests/kvserver.c, each to read or to write one key: read_pct=P (50)
 * per cent of them read. Each thread has a connection of its own, and waits for the answer to its
 * request before it takes the next one. A request counts from when it was due, not from when a
 * thread was free to send it.
 *
 *   to=A.B.C.D (10.0.0.2)   the server
 *   port=P (7002)           its port
 *   keys=N (1000)           as on the server's command line
 *
 * guest/workload.h says when requests are due, and what is printed; netstack/start.h has more
 * words. The exit code is 0 if each answer came, had the value that belongs to its key, and was not
 * older than what this client knew before. */
#include <guest/guest.h>
#include <guest/kvload.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/workload.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include <takt/seed.h>
#include "kvnet.h"

static u32 *newest; /* for each key: the newest version that an answer has told of; atomic */
static u32 keys;

/* Notes that the version exists. */
static void learn(u32 key, u32 version) {
    u32 known = __atomic_load_n(&newest[key], __ATOMIC_RELAXED);

    while (known < version && !__atomic_compare_exchange_n(&newest[key], &known, version, false,
                                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

/* Sends a request and receives its answer. Returns false if the connection has ended. */
static bool exchange(struct sock *s, bool writes, u32 key) {
    struct kvnet_head head = { .writes = writes, .key = key };
    u32 least = __atomic_load_n(&newest[key], __ATOMIC_RELAXED);
    struct kv_record record;

    if (writes) kvload_fill(record.value, key);
    if (!kvnet_ask(s, &head, &record)) return false;
    workload_wrong(head.version < least);
    learn(key, head.version);
    return true;
}

/* Sends requests over a connection of its own, as a thread, and waits for each answer. */
static void worker(void *number) {
    u16 port = (u16)cmdline_u64("port", KVNET_PORT);
    struct sock *s = net_connect(net_cmdline_ip("to", 0x0a000002), port, &kvnet_options);
    u64 read_pct = cmdline_u64("read_pct", 50);
    struct workload_request r;

    sock_no_delay(s);
    while (workload_next(&r)) {
        u32 key = kvload_key(&r.rng, keys);
        bool reads = seed_below(seed_next(&r.rng), 100) < read_pct;

        if (!exchange(s, !reads, key)) guest_panic("kvclient: the server has gone");
        if (reads)
            workload_done(&r, WORKLOAD_READ, KV_VALUE);
        else
            workload_done(&r, WORKLOAD_WRITE, KV_VALUE);
    }
    sock_close(s);
}

static void serve(void) {
    keys = (u32)MAX(cmdline_u64("keys", 1000), 1ull);
    newest = calloc(keys, sizeof(u32));
    if (!newest) guest_panic("kvclient: there is no memory");
    workload_threads(0, worker);
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgements to go out */
}

int main(void) {
    if (net_start(2 * workload_thread_count() * net_bufs_for(NET_RCVBUF_MIN)))
        guest_panic("kvclient: there is no network");
    return workload_run("kvclient", serve);
}
