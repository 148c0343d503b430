/* A server of static pages, HTTP/1.1 (RFC 9112) with connections that stay open: GET and HEAD of
 *
 *   /        a small page that names the VM, name=N ("VM " and its id)
 *   /SIZE    SIZE bytes, at most 1 GiB: digits in order, as load.c sends them
 *
 * and 404 for all else. What is no request gets 400, another method 501, and both the end of the
 * connection.
 *
 * Command line: port=P (80); workers=N (4) threads, each of which serves a connection, others
 * wait for one; timeout_ms=T (5000), in which a request has to come and 16 KiB of an answer have
 * to be taken. With idle_ms=T it ends when for so long nobody has connected. And what
 * netstack/start.h has. */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define MAX_WORKERS 16
#define MAX_HEAD    2048 /* bytes of a request, its empty line and those before it included */
#define MAX_SIZE    BIT(30)
#define PIECE       16380 /* of digits, so a multiple of 10 */
#define LINGER      (NS_PER_S / 2)

/* What a client sends is in `in`: the request's head, and what came with it of the next one. */
struct worker {
    struct sock *s;
    u32 have, head; /* bytes */
    char in[MAX_HEAD];
    char out[512];
    u64 connections, requests, bytes, bad, timeouts;
};

struct request {
    int status;
    bool body, keep; /* an answer has its body; the connection stays */
    u64 size;        /* of a page of digits; 0 with `front` */
    bool front;
};

static u8 digits[PIECE];
static char front[128];
static struct sock *listener;
static struct mutex accepting = MUTEX; /* a socket has one reader: who is next */
static u64 timeout, idle, last;        /* last: when somebody connected, under `accepting` */

/* ---- requests ---- */

/* Bytes up to and with the line's end, CR LF or LF (RFC 9112, 2.2); 0: it is not all there. */
static u32 line(const char *p, u32 n) {
    for (u32 i = 0; i < n; i++)
        if (p[i] == '\n') return i + 1;
    return 0;
}

static u32 line_text(const char *p, u32 n) {
    if (n >= 2 && p[n - 2] == '\r') return n - 2;
    return n - 1;
}

/* Bytes of the empty lines that it begins with. */
static u32 empty_lines(const char *p, u32 n) {
    u32 at = 0, len;

    while ((len = line(p + at, n - at)) && line_text(p + at, len) == 0) at += len;
    return at;
}

/* Bytes of the head, its empty line included; 0: it is not all there. */
static u32 head_length(const char *p, u32 n) {
    u32 at = 0, len;

    while ((len = line(p + at, n - at))) {
        at += len;
        if (line_text(p + at - len, len) == 0) return at;
    }
    return 0;
}

static char lower(char c) {
    if (c < 'A' || c > 'Z') return c;
    return (char)(c - 'A' + 'a');
}

static bool same(const char *p, u32 n, const char *word) {
    if (n != strlen(word)) return false;
    for (u32 i = 0; i < n; i++)
        if (lower(p[i]) != word[i]) return false;
    return true;
}

/* Is `word` one of those that stand between commas? */
static bool listed(const char *p, u32 n, const char *word) {
    for (u32 from = 0, to; from < n; from = to + 1) {
        u32 a = from, b;

        for (to = from; to < n && p[to] != ','; to++)
            ;
        for (b = to; b > a && (p[b - 1] == ' ' || p[b - 1] == '\t'); b--)
            ;
        while (a < b && (p[a] == ' ' || p[a] == '\t')) a++;
        if (same(p + a, b - a, word)) return true;
    }
    return false;
}

/* A path of digits alone that is a size. */
static bool parse_size(const char *p, u32 n, u64 *size) {
    *size = 0;
    for (u32 i = 0; i < n && *size <= MAX_SIZE; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *size = *size * 10 + (u64)(p[i] - '0');
    }
    return n && *size <= MAX_SIZE;
}

/* Method, target, version, one space between them. False: it is no request. */
static bool parse_first(const char *p, u32 n, struct request *r) {
    u32 method = 0, target;

    while (method < n && p[method] >= 'A' && p[method] <= 'Z') method++;
    if (!method || method == n || p[method] != ' ') return false;
    for (target = method + 1; target < n && p[target] > ' ' && p[target] < 127; target++)
        ;
    if (target == method + 1 || n - target != 9 || memcmp(p + target, " HTTP/1.", 8)) return false;
    if (p[n - 1] != '0' && p[n - 1] != '1') return false;
    r->keep = p[n - 1] == '1';
    r->body = method != 4 || memcmp(p, "HEAD", 4);
    if (r->body && (method != 3 || memcmp(p, "GET", 3))) {
        r->status = 501;
        return true;
    }
    p += method + 1;
    n = target - method - 1;
    r->front = n == 1 && p[0] == '/';
    r->status = r->front || (p[0] == '/' && parse_size(p + 1, n - 1, &r->size)) ? 200 : 404;
    return true;
}

/* One header. False: it is none, or it says that a body follows, which none of ours has. */
static bool parse_header(const char *p, u32 n, struct request *r, u32 *hosts) {
    u32 name = 0, value;

    while (name < n && p[name] > ' ' && p[name] != ':' && p[name] < 127) name++;
    if (!name || name == n || p[name] != ':') return false;
    value = name + 1;
    while (value < n && (p[value] == ' ' || p[value] == '\t')) value++;
    if (same(p, name, "host")) ++*hosts;
    if (same(p, name, "transfer-encoding")) return false;
    if (same(p, name, "content-length")) return n - value == 1 && p[value] == '0';
    if (same(p, name, "connection")) {
        if (listed(p + value, n - value, "keep-alive")) r->keep = true;
        if (listed(p + value, n - value, "close")) r->keep = false;
    }
    return true;
}

static struct request parse(const char *p, u32 n) {
    struct request r = { 0 };
    u32 len = line(p, n), hosts = 0;
    bool ok = parse_first(p, line_text(p, len), &r), must_name = r.keep;

    if (ok && r.status == 501) { /* where it ends only who knows the method can tell */
        r.keep = false;
        return r;
    }
    for (u32 at = len; ok && at < n; at += len) {
        len = line(p + at, n - at);
        if (line_text(p + at, len)) ok = parse_header(p + at, line_text(p + at, len), &r, &hosts);
    }
    if (!ok || hosts > 1 || (must_name && !hosts))
        r = (struct request){ .status = 400, .body = true };
    return r;
}

/* ---- a connection ---- */

/* The next request. False: the connection ends. Empty lines before it are let pass (RFC 9112,
 * 2.2), within the bound and the deadline of the whole. */
static bool receive(struct worker *w, struct request *r) {
    u64 deadline = time_ns() + timeout;

    w->have -= w->head;
    memmove(w->in, w->in + w->head, w->have);
    for (w->head = 0;;) {
        u32 from = empty_lines(w->in, w->have), n = w->have - from;
        const char *p = w->in + from;
        u32 len = line(p, n), head = head_length(p, n);
        i64 got = -EAGAIN;

        if (head) {
            w->head = from + head;
            *r = parse(p, head);
            return true;
        }
        *r = (struct request){ .status = 400, .body = true };
        if (w->have == MAX_HEAD || (len && !parse_first(p, line_text(p, len), r))) return true;
        if (time_ns() < deadline)
            got = sock_recv(w->s, w->in + w->have, MAX_HEAD - w->have, deadline);
        w->timeouts += got == -EAGAIN;
        if (got <= 0) return false;
        w->have += (u32)got;
    }
}

static bool send(struct worker *w, const void *p, u64 n) {
    i64 sent = sock_send(w->s, p, n, time_ns() + timeout);

    w->timeouts += sent >= 0 && (u64)sent < n;
    w->timeouts += sent == -EAGAIN;
    return sent == (i64)n;
}

static bool answer(struct worker *w, const struct request *r) {
    static const struct {
        int status;
        const char *text;
    } known[] = {
        { 200, "OK" }, { 400, "Bad Request" }, { 404, "Not Found" }, { 501, "Not Implemented" }
    };
    const char *text = "", *type = "text/plain", *connection = "close", *page = NULL;
    u64 size;
    int n;

    for (u32 i = 0; i < ARRAY_SIZE(known); i++)
        if (known[i].status == r->status) text = known[i].text;
    if (r->front) page = front;
    if (r->status != 200) page = text;
    size = r->size;
    if (page) size = strlen(page);
    if (r->front) type = "text/html";
    if (r->keep) connection = "keep-alive";
    n = snprintf(
        w->out, sizeof(w->out),
        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %lu\r\nConnection: %s\r\n\r\n",
        r->status, text, type, size, connection);
    w->requests++;
    w->bad += r->status != 200;
    if (!send(w, w->out, (u64)n)) return false;
    if (!r->body) return true;
    for (u64 left = size, part; left; left -= part) {
        part = MIN(left, (u64)PIECE);
        if (!send(w, page ? (const void *)page : digits, part)) return false;
        w->bytes += part;
    }
    return true;
}

/* The end, so that what was sent arrives though there may be more to read, and so that who takes
 * nothing does not keep the socket. */
static void end(struct worker *w) {
    u64 deadline = time_ns() + LINGER;
    i64 n;

    sock_shutdown(w->s);
    while ((n = sock_recv(w->s, w->in, MAX_HEAD, deadline)) > 0 && time_ns() < deadline)
        ;
    if (n == 0 && sock_flush(w->s, deadline) == 0)
        sock_close(w->s);
    else
        sock_abort(w->s);
}

static void serve(struct worker *w) {
    struct request r;

    w->have = w->head = 0;
    w->connections++;
    do
        if (!receive(w, &r) || !answer(w, &r)) break;
    while (r.keep);
    end(w);
}

static void work(void *arg) {
    struct worker *w = arg;
    int error;

    for (;;) {
        mutex_lock(&accepting);
        error = sock_accept(listener, &w->s, idle && last ? last + idle : NET_FOREVER);
        if (!error) last = time_ns();
        mutex_unlock(&accepting);
        if (error) return;
        serve(w);
    }
}

int main(void) {
    u32 n = (u32)MIN(MAX(cmdline_u64("workers", 4), 1ull), (u64)MAX_WORKERS);
    struct sock_options options = { NET_RCVBUF_MIN, 65536 };
    struct worker *w = calloc(n, sizeof(*w)), all = { 0 };
    struct thread *thread[MAX_WORKERS];
    char name[64];

    timeout = MAX(cmdline_u64("timeout_ms", 5000), 1ull) * NS_PER_MS;
    idle = cmdline_u64("idle_ms", 0) * NS_PER_MS;
    for (u32 i = 0; i < PIECE; i++) digits[i] = (u8)('0' + i % 10);
    if (!cmdline_str("name", name, sizeof(name)))
        snprintf(name, sizeof(name), "VM %u", takt_vm_id());
    snprintf(front, sizeof(front), "<!doctype html>\n<title>Takt</title>\n<p>%s\n", name);
    /* Those that wait, and those that have ended and whose last bytes are under way. */
    if (!w || net_start((2 * n + 1) * net_bufs_for(options.rcvbuf)) ||
        sock_open(SOCK_TCP, &options, &listener) ||
        sock_bind(listener, (u16)cmdline_u64("port", 80)) || sock_listen(listener, 2 * n))
        guest_panic("httpd: no network");
    for (u32 i = 0; i < n; i++)
        if (!(thread[i] = thread_start(net_thread_vcpu(), "worker", work, &w[i])))
            guest_panic("httpd: no memory");
    for (u32 i = 0; i < n; i++) {
        thread_join(thread[i]);
        all.connections += w[i].connections;
        all.requests += w[i].requests;
        all.bytes += w[i].bytes;
        all.bad += w[i].bad;
        all.timeouts += w[i].timeouts;
    }
    printf("httpd: connections=%lu requests=%lu bytes=%lu bad=%lu timeouts=%lu\n", all.connections,
           all.requests, all.bytes, all.bad, all.timeouts);
    return 0;
}
