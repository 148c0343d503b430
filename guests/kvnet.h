/* How guests ask a key-value store (guest/kvload.h) over TCP, and how they answer. The server is
 * guests/kvserver.c for the clients of guests/kvclient.c; nodes of guests/kvnode.c ask each other.
 * Each connection has one request at a time. */
#ifndef GUESTS_KVNET_H
#define GUESTS_KVNET_H

#include <guest/guest.h>
#include <guest/kvload.h>
#include <guest/workload.h>
#include <netstack/socket.h>

#define KVNET_PORT     7002
#define KVNET_PATIENCE (10 * NS_PER_S) /* a peer that is silent for so long has gone */

/* One request or answer, in this machine's byte order. KV_VALUE bytes follow a request to write,
 * and the answer to a read. */
struct kvnet_head {
    u32 writes;  /* of a request: 1 to write, 0 to read */
    u32 key;     /* the answer repeats it */
    u32 version; /* of an answer: which version was written or read, from 1 on */
    u32 unused;
};

static const struct sock_options kvnet_options = { NET_RCVBUF_MIN, 65536 };

/* Sends n bytes. Returns false if the connection has ended. */
static inline bool kvnet_send(struct sock *s, const void *p, u64 n) {
    return sock_send(s, p, n, time_ns() + KVNET_PATIENCE) == (i64)n;
}

/* Sends the request *head, with record->value if it writes, and waits for the answer. head->version
 * is then the version that was written or read, and record->value what was read. Returns false if
 * the connection has ended. Counts what is wrong with the answer. */
static inline bool kvnet_ask(struct sock *s, struct kvnet_head *head, struct kv_record *record) {
    struct kvnet_head got;

    if (!kvnet_send(s, head, sizeof(*head))) return false;
    if (head->writes && !kvnet_send(s, record->value, KV_VALUE)) return false;
    if (!sock_recv_exactly(s, &got, sizeof(got), KVNET_PATIENCE)) return false;
    if (!head->writes && !sock_recv_exactly(s, record->value, KV_VALUE, KVNET_PATIENCE))
        return false;
    workload_wrong(got.key != head->key || !got.version); /* versions begin with 1 */
    if (!head->writes) workload_wrong(kvload_check(record->value, head->key));
    head->version = got.version;
    return true;
}

/* Receives a request, for which it waits `silence` nanoseconds. Returns false if the connection has
 * ended, or if the request is not valid; *bad, which is atomic, counts the latter. */
static inline bool kvnet_receive(struct sock *s, struct kvnet_head *head, struct kv_record *record,
                                 u64 silence, u32 *bad) {
    if (!sock_recv_exactly(s, head, sizeof(*head), silence)) return false;
    if (head->key >= kvload_keys() || head->writes > 1) {
        __atomic_fetch_add(bad, 1, __ATOMIC_RELAXED);
        return false;
    }
    return !head->writes || sock_recv_exactly(s, record->value, KV_VALUE, KVNET_PATIENCE);
}

/* Does on this VM's store what the request says. */
static inline void kvnet_execute(struct kvnet_head *head, struct kv_record *record) {
    record->key = head->key;
    if (head->writes)
        kvload_put(record);
    else
        kvload_get(record);
    head->version = record->version;
}

/* Sends the answer to a request that was executed. Returns false if the connection has ended. */
static inline bool kvnet_answer(struct sock *s, const struct kvnet_head *head,
                                const struct kv_record *record) {
    if (!kvnet_send(s, head, sizeof(*head))) return false;
    return head->writes || kvnet_send(s, record->value, KV_VALUE);
}

#endif
