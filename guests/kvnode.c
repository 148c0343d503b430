/* A node of a key-value store that several VMs hold together, as nodes of Cassandra do. Key K of
 * the whole store is on node K % nodes + 1, where its number is K / nodes. Threads of each node
 * read and write keys of the whole store. For a key of another node they ask that node over TCP,
 * each over a connection of its own, and wait for the answer. A node ends when all nodes have sent
 * all their requests.
 *
 *   nodes=N (1)                nodes
 *   node=I (1)                 number of this one, from 1
 *   first=A.B.C.D (10.0.0.1)   address of node 1; those of the others follow it, in order
 *   read_pct=P (50)            so many per cent of the requests read
 *
 * guest/kvload.h has the words that describe the store, and keys= is how many of them each node
 * has. netstack/start.h, guest/workload.h and guest/disk.h have more words. All nodes need the same
 * number of threads. The exit code is 0 if all that was read was as it had been written last. */
#include <guest/guest.h>
#include <guest/kvload.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/workload.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include <takt/seed.h>
#include "kvnet.h"

#define MOST_PEERS 30u /* connections in each direction. A guest has 64 sockets */

static u32 nodes, self; /* how many, and which of them this one is, from 0 */
static struct sock *listener;
static struct thread *serving[MOST_PEERS];
/* Atomic counters: requests that other nodes have answered for this one, and this one for them, and
 * what they sent that is no request. */
static u32 remote, answered, bad;

/* How many connections this node makes, and how many it accepts. */
static u32 connections(void) { return (nodes - 1) * workload_thread_count(); }

/* Answers the requests of another node's thread, as a thread. */
static void serve_peer(void *arg) {
    struct sock *s = arg;
    struct kvnet_head head;
    struct kv_record record;

    while (kvnet_receive(s, &head, &record, NET_FOREVER, &bad)) {
        kvnet_execute(&head, &record);
        if (!kvnet_answer(s, &head, &record)) break;
        __atomic_fetch_add(&answered, 1, __ATOMIC_RELAXED);
    }
    sock_close(s);
}

/* Accepts the connections of all other nodes, as a thread. */
static void accept_peers(void *arg) {
    for (u32 i = 0; i < connections(); i++) {
        struct sock *s;

        if (sock_accept(listener, &s, NET_FOREVER)) guest_panic("kvnode: the port is closed");
        sock_no_delay(s);
        serving[i] = thread_start(net_thread_vcpu(), "peer", serve_peer, s);
        if (!serving[i]) guest_panic("kvnode: there is no memory for a connection");
    }
}

/* Connects to each other node; to[self] stays NULL. */
static void connect_peers(struct sock **to) {
    u32 first = net_cmdline_ip("first", 0x0a000001);

    for (u32 i = 0; i < nodes; i++) {
        if (i == self) continue;
        to[i] = net_connect(first + i, KVNET_PORT, &kvnet_options);
        sock_no_delay(to[i]);
    }
}

/* Reads or writes one key for each request, as a thread. */
static void worker(void *number) {
    struct sock *to[MOST_PEERS + 1] = { NULL };
    u64 read_pct = cmdline_u64("read_pct", 50);
    struct workload_request r;

    connect_peers(to);
    while (workload_next(&r)) {
        u32 key = kvload_key(&r.rng, nodes * kvload_keys()), owner = key % nodes;
        bool writes = seed_below(seed_next(&r.rng), 100) >= read_pct;
        struct kvnet_head head = { .writes = writes, .key = key / nodes };
        struct kv_record record;
        enum workload_kind kind = WORKLOAD_READ;

        if (writes) {
            kvload_fill(record.value, head.key);
            kind = WORKLOAD_WRITE;
        }
        if (owner == self) {
            kvnet_execute(&head, &record);
        } else {
            if (!kvnet_ask(to[owner], &head, &record))
                guest_panic("kvnode: node %u has gone", owner + 1);
            __atomic_fetch_add(&remote, 1, __ATOMIC_RELAXED);
        }
        workload_done(&r, kind, KV_RECORD);
    }
    for (u32 i = 0; i < nodes; i++)
        if (i != self) sock_close(to[i]);
}

static void serve(void) {
    struct thread *accepting;

    kvload_open();
    if (sock_open(SOCK_TCP, &kvnet_options, &listener) || sock_bind(listener, KVNET_PORT) ||
        sock_listen(listener, MAX(connections(), 1u)))
        guest_panic("kvnode: there is no network");
    accepting = thread_start(net_thread_vcpu(), "accept", accept_peers, NULL);
    if (!accepting) guest_panic("kvnode: there is no memory");
    workload_threads(0, worker);
    thread_join(accepting);
    for (u32 i = 0; i < connections(); i++) thread_join(serving[i]);
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgements to go out */
    printf("kvnode: remote=%u answered=%u bad=%u\n", remote, answered, bad);
    kvload_say("kvnode");
}

int main(void) {
    nodes = (u32)MAX(cmdline_u64("nodes", 1), 1ull);
    self = (u32)cmdline_u64("node", 1) - 1;
    if (self >= nodes) guest_panic("kvnode: node=%u, but the nodes are 1 to %u", self + 1, nodes);
    if (nodes > MOST_PEERS || connections() > MOST_PEERS)
        guest_panic("kvnode: %u nodes are too many for %u threads each", nodes,
                    workload_thread_count());
    if (net_start((2 * connections() + 2) * net_bufs_for(NET_RCVBUF_MIN)))
        guest_panic("kvnode: there is no network");
    return workload_main("kvnode", serve);
}
