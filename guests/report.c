/* Sends the contents of the store, and the hypervisor's log, to a collector outside the machine: by
 * TCP to to=A.B.C.D, port=P (6514), every period_s=S (10) seconds. netstack/start.h has more words.
 * Its VM has to be an observer (docs/config.md); otherwise it sees only its own home in the store.
 *
 * Each line is "SECONDS PATH VALUE", or "SECONDS log LINE" for a line of the hypervisor's log.
 * SECONDS are counted from the boot. If the connection is lost, the guest makes a new one, and goes
 * on with the log where it was. What was on its way is lost. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define PATIENCE  (10 * NS_PER_S)
#define DEPTH     6u  /* levels of nodes below /local/domain/ID/data */
#define LOG_NODES 32u /* how many pieces of the log the store keeps: as in hv/nodes/keeplog.c */

static const struct sock_options options = { NET_RCVBUF_MIN, 65536 };
static struct sock *s; /* NULL: there is no connection */
static u64 seconds;    /* since boot, when this report began */

/* Sends text to the collector. If that fails, the connection is given up; the next report makes a
 * new one. */
static void say(const char *text, u32 len) {
    if (!s || sock_send(s, text, len, time_ns() + PATIENCE) == (i64)len) return;
    sock_abort(s);
    s = NULL;
}

/* Sends one line. One that is too long is left out, because a part of it would mislead. */
static void line(const char *path, const char *value) {
    char text[512];
    int n = snprintf(text, sizeof(text), "%lu %s %s\n", seconds, path, value);

    if (n < (int)sizeof(text)) say(text, (u32)n);
}

/* Reads the value of a node as one line of text. Returns false if it cannot be read. */
static bool value_of(const char *path, char *value, u32 size) {
    i64 n = store_read(0, path, value, size - 1);

    if (n < 0) return false;
    value[n] = 0;
    for (char *c = value; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    return true;
}

/* Sends the value of a node, unless it is empty. */
static void node(const char *path) {
    char value[256];

    if (value_of(path, value, sizeof(value)) && value[0]) line(path, value);
}

/* Sends a node and all nodes below it, at most DEPTH levels deep. */
static void tree(const char *path, u32 depth) {
    static char names[DEPTH][XS_PAYLOAD_MAX];
    char below[192];
    i64 n;

    node(path);
    if (depth == DEPTH) return;
    n = store_list(0, path, names[depth], sizeof(names[depth]));
    for (i64 at = 0; at < n; at += (i64)strlen(names[depth] + at) + 1)
        if (snprintf(below, sizeof(below), "%s/%s", path, names[depth] + at) < (int)sizeof(below))
            tree(below, depth + 1);
}

/* Sends what the hypervisor says of a VM, and what the VM itself has written below data/. */
static void vm(const char *home) {
    static const char *const nodes[] = { "name", "cpu_ms", "sched/class", "sched/events_per_s",
                                         "sched/weight" };
    char path[192];

    for (u32 i = 0; i < ARRAY_SIZE(nodes); i++) {
        snprintf(path, sizeof(path), "%s/%s", home, nodes[i]);
        node(path);
    }
    snprintf(path, sizeof(path), "%s/data", home);
    tree(path, 0);
}

/* Sends what the store has of each VM. */
static void vms(void) {
    static char ids[XS_PAYLOAD_MAX];
    char home[64];
    i64 n = store_list(0, "/local/domain", ids, sizeof(ids));

    /* This VM is not an observer: it sees its own home only. */
    if (n < 0 && value_of("domid", ids, sizeof(ids))) {
        snprintf(home, sizeof(home), "/local/domain/%s", ids);
        vm(home);
    }
    for (i64 at = 0; at < n; at += (i64)strlen(ids + at) + 1) {
        snprintf(home, sizeof(home), "/local/domain/%s", ids + at);
        vm(home);
    }
}

/* Sends each line of one piece of the log. Changes the text. */
static void lines(char *text) {
    while (*text) {
        char *end = text;

        while (*end && *end != '\n') end++;
        if (*end) *end++ = 0;
        line("log", text);
        text = end;
    }
}

/* Sends the pieces of the log that are new since the last report. A piece has several lines. */
static void log(void) {
    static char piece[2048];
    static u64 sent;
    char path[64];
    u64 next;

    if (store_read_u64(0, "/takt/host/log/next", &next)) return;
    if (next > sent + LOG_NODES) sent = next - LOG_NODES;
    for (; sent < next && s; sent++) {
        i64 n;

        snprintf(path, sizeof(path), "/takt/host/log/%lu", sent % LOG_NODES);
        n = store_read(0, path, piece, sizeof(piece) - 1);
        if (n < 0) continue;
        piece[n] = 0;
        lines(piece);
    }
}

/* Sends a report, again and again. Each report begins `period` after the one before, however long
 * sending took. */
int main(void) {
    u32 to = net_cmdline_ip("to", 0);
    u16 port = (u16)cmdline_u64("port", 6514);
    u64 period = cmdline_u64("period_s", 10) * NS_PER_S, next = time_ns();

    if (!to) guest_panic("report: the command line does not say to whom: to=A.B.C.D is missing");
    if (store_start()) guest_panic("report: there is no store");
    if (net_start(2 * net_bufs_for(options.rcvbuf))) guest_panic("report: there is no network");
    for (;; next += period) {
        while (time_ns() < next) sleep_ns(next - time_ns());
        if (!s) s = net_connect(to, port, &options);
        if (store_read_u64(0, "/takt/host/uptime_s", &seconds)) seconds = time_ns() / NS_PER_S;
        log();
        tree("/takt/host/counter", DEPTH - 1);
        vms();
        line("end", "of this report");
    }
}
