/* Serves a key-value store (guest/kv.h), which is on this VM's disk, over TCP to guests/kvclient.c.
 *
 *   port=P (7002)          the port
 *   workers=N (4)          connections at a time
 *   connections=N          ends when so many connections have ended; without it: never
 *
 * guest/kvload.h has the words that describe the store, and kvnet.h the form of a request;
 * netstack/start.h, guest/workload.h (but not when requests are due: they come over the network),
 * guest/background.h and guest/disk.h have more words. A request's latency, as this guest prints
 * it, counts from when all of the request was received. The exit code is 0 if all that was read
 * from the store was as it had been written last. */
#include <guest/background.h>
#include <guest/guest.h>
#include <guest/kvload.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <guest/workload.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include "kvnet.h"

static struct sock *listener;
/* Held by the thread that accepts, because a listener may have one reader. */
static struct mutex accepting = MUTEX;
static struct semaphore over = SEMAPHORE(0); /* a connection has ended */
static u32 bad;                              /* atomic: connections with a request that is none */

/* Answers one request. Returns false if the connection has ended, or if the request is not valid.
 */
static bool answer(struct sock *s) {
    struct kvnet_head head;
    struct kv_record record;
    struct workload_request r;

    if (!kvnet_receive(s, &head, &record, KVNET_PATIENCE, &bad)) return false;
    r = (struct workload_request){ .due = time_ns() };
    kvnet_execute(&head, &record);
    if (head.writes)
        workload_done(&r, WORKLOAD_WRITE, KV_RECORD);
    else
        workload_done(&r, WORKLOAD_READ, KV_RECORD);
    return kvnet_answer(s, &head, &record);
}

/* Accepts a connection, answers its requests, and closes it, again and again, as a worker
 * thread. */
static void work(void *number) {
    for (;;) {
        struct sock *s;
        int error;

        mutex_lock(&accepting);
        error = sock_accept(listener, &s, NET_FOREVER);
        mutex_unlock(&accepting);
        if (error) return;
        sock_no_delay(s);
        while (answer(s)) {
        }
        sock_abort(s);
        sem_up(&over);
    }
}

static u32 workers(void) { return (u32)MIN(MAX(cmdline_u64("workers", 4), 1ull), 16ull); }

/* Opens the store and the port, starts the workers, and ends when as many connections have ended as
 * the command line says. */
static void serve(void) {
    u64 most = cmdline_u64("connections", ~0ull);

    kvload_open();
    if (sock_open(SOCK_TCP, &kvnet_options, &listener) ||
        sock_bind(listener, (u16)cmdline_u64("port", KVNET_PORT)) ||
        sock_listen(listener, 2 * workers()))
        guest_panic("kvserver: there is no network");
    printf("kvserver: ready\n");
    background_start(net_thread_vcpu());
    workload_begin();
    for (u64 i = 0; i < workers(); i++)
        if (!thread_start(net_thread_vcpu(), "worker", work, NULL))
            guest_panic("kvserver: there is no memory");
    for (u64 i = 0; i < most; i++) sem_down(&over);
    printf("kvserver: connections=%lu bad=%u\n", most, bad);
    kvload_say("kvserver");
}

int main(void) {
    if (net_start((2 * workers() + 1) * net_bufs_for(NET_RCVBUF_MIN)))
        guest_panic("kvserver: there is no network");
    return workload_main("kvserver", serve);
}
