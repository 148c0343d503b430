/* A server of static pages, by HTTP/1.1 (RFC 9112) with connections that stay open. It answers GET
 * and HEAD of
 *
 *   /        a small page with the name of the VM: name=N, or else "VM " and its number
 *   /SIZE    SIZE bytes, at most 1 GiB: digits in order, as load.c sends them
 *
 * Any other path gets 404. What is not a request gets 400, another method gets 501, and both end
 * the connection.
 *
 * Command line: port=P (80); workers=N (4) threads, each of which serves one connection while other
 * connections wait; timeout_ms=T (5000), within which a request has to arrive, and each 16 KiB of
 * an answer have to be taken. With idle_ms=T it ends when nobody has connected for so long.
 * guest/background.h and netstack/start.h have more words. */
#include <guest/background.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define MAX_WORKERS 16
#define MAX_HEAD    2048 /* bytes of a request, with its empty line and the empty lines before it */
#define MAX_SIZE    BIT(30)
/* Bytes that are sent at once; a multiple of 10, so that each piece begins with digit 0. */
#define PIECE  16380
#define DEL    127            /* in ASCII; characters below it and above the blank can be seen */
#define LINGER (NS_PER_S / 2) /* How long a connection may take to end in good order, in ns. */

/* A thread, and the connection that it serves. `in` has the head of a request, and what arrived
 * with it of the next request. */
struct worker {
    struct sock *s;
    u32 have, head; /* bytes in `in`; bytes of the request's head */
    char in[MAX_HEAD];
    char out[512];
    u64 connections, requests, bytes, bad, timeouts;
};

struct request {
    int status;
    bool body, keep; /* body: the answer has a body; keep: the connection stays open */
    u64 size;        /* bytes of a page of digits; 0 with `front` */
    bool front;
};

static u8 digits[PIECE];
static char front[128];
static struct sock *listener;
/* A listener may have one reader; this is held by the worker that accepts next. */
static struct mutex accepting = MUTEX;
/* In ns; last: when somebody connected last, guarded by `accepting`. */
static u64 timeout, idle, last;

/* ---- requests ---- */

/* Returns the length of the first line, with its end, which is CR LF or LF (RFC 9112, 2.2). 0: the
 * line is not complete. */
static u32 line(const char *p, u32 n) {
    for (u32 i = 0; i < n; i++)
        if (p[i] == '\n') return i + 1;
    return 0;
}

/* Returns the length of a line of `n` bytes without its end. */
static u32 line_text(const char *p, u32 n) {
    if (n >= 2 && p[n - 2] == '\r') return n - 2;
    return n - 1;
}

/* Returns how many bytes of empty lines are at the beginning. */
static u32 empty_lines(const char *p, u32 n) {
    u32 at = 0, len;

    while ((len = line(p + at, n - at)) && line_text(p + at, len) == 0) at += len;
    return at;
}

/* Returns the length of the head, with the empty line that ends it. 0: the head is not complete. */
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

/* Compares with a word in lower case; capitals count as small letters. */
static bool same(const char *p, u32 n, const char *word) {
    if (n != strlen(word)) return false;
    for (u32 i = 0; i < n; i++)
        if (lower(p[i]) != word[i]) return false;
    return true;
}

/* Returns whether `word` is in a list of words with commas between them, as in the header
 * Connection. */
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

/* Reads a path of digits only. Returns false if it is not a size that is allowed. */
static bool parse_size(const char *p, u32 n, u64 *size) {
    *size = 0;
    for (u32 i = 0; i < n && *size <= MAX_SIZE; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *size = *size * 10 + (u64)(p[i] - '0');
    }
    return n && *size <= MAX_SIZE;
}

/* Reads the first line: method, target and version, with one space between them. Returns false if
 * it is not a request. */
static bool parse_first(const char *p, u32 n, struct request *r) {
    u32 method = 0, target;

    while (method < n && p[method] >= 'A' && p[method] <= 'Z') method++;
    if (!method || method == n || p[method] != ' ') return false;
    for (target = method + 1; target < n && p[target] > ' ' && p[target] < DEL; target++)
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
    r->status = 404;
    if (r->front || (p[0] == '/' && parse_size(p + 1, n - 1, &r->size))) r->status = 200;
    return true;
}

/* Reads one header of `n` bytes, and notes in *r what Connection says. *hosts counts the headers
 * Host. Returns false if the text is not a header, or if it announces a body, because the requests
 * that we answer have none. */
static bool parse_header(const char *p, u32 n, struct request *r, u32 *hosts) {
    u32 name = 0, value;

    while (name < n && p[name] > ' ' && p[name] != ':' && p[name] < DEL) name++;
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

/* Reads a whole head of `n` bytes: the first line, and the headers that matter. Returns what to
 * answer; status 400 if anything breaks the rules. */
static struct request parse(const char *p, u32 n) {
    struct request r = { 0 };
    u32 len = line(p, n), hosts = 0;
    bool ok = parse_first(p, line_text(p, len), &r), must_name = r.keep;

    /* Only a server that knows the method can tell where the request ends. */
    if (ok && r.status == 501) {
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

/* Waits for the next request. Returns false if the connection has to end. Empty lines before a
 * request are skipped (RFC 9112, 2.2), but they count for the limit of bytes and for the deadline,
 * because a client could send nothing else for ever. */
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

/* Sends `n` bytes. Returns false if the client does not take them in time. */
static bool send(struct worker *w, const void *p, u64 n) {
    i64 sent = sock_send(w->s, p, n, time_ns() + timeout);

    w->timeouts += sent >= 0 && (u64)sent < n;
    w->timeouts += sent == -EAGAIN;
    return sent == (i64)n;
}

/* Answers a request: sends the head, and the page if the method is GET. Returns false if the client
 * does not take it in time; then the connection has to end. */
static bool answer(struct worker *w, const struct request *r) {
    static const struct {
        int status;
        const char *text;
    } known[] = {
        { 200, "OK" }, { 400, "Bad Request" }, { 404, "Not Found" }, { 501, "Not Implemented" }
    };
    const char *text = "", *type = "text/plain", *connection = "close", *page = NULL;
    const void *body = digits;
    u64 size;
    int n;

    for (u32 i = 0; i < ARRAY_SIZE(known); i++)
        if (known[i].status == r->status) text = known[i].text;
    if (r->front) page = front;
    if (r->status != 200) page = text;
    size = r->size;
    if (page) {
        size = strlen(page);
        body = page;
    }
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
        if (!send(w, body, part)) return false;
        w->bytes += part;
    }
    return true;
}

/* Ends the connection. The client may still be sending. If we closed the socket with data unread,
 * the connection would be reset, and the answer could get lost. So we end our side, read what is
 * left, and wait for the acknowledgement; but not for longer than LINGER, so that a client that
 * takes nothing does not keep the socket. */
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

/* Serves one connection until the client or a rule ends it. */
static void serve(struct worker *w) {
    struct request r;

    w->have = w->head = 0;
    w->connections++;
    do
        if (!receive(w, &r) || !answer(w, &r)) break;
    while (r.keep);
    end(w);
}

/* Accepts a connection and serves it, again and again, as a worker thread. It ends when nobody has
 * connected for `idle`. */
static void work(void *arg) {
    struct worker *w = arg;
    u64 deadline;
    int error;

    for (;;) {
        mutex_lock(&accepting);
        deadline = NET_FOREVER;
        if (idle && last) deadline = last + idle;
        error = sock_accept(listener, &w->s, deadline);
        if (!error) last = time_ns();
        mutex_unlock(&accepting);
        if (error) return;
        serve(w);
    }
}

/* Starts the workers, and prints what they have counted when all have ended. */
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
    /* Enough for the connections that are served or wait, and for those that have ended and whose
     * last bytes are still on their way. */
    if (!w || net_start((2 * n + 1) * net_bufs_for(options.rcvbuf)) ||
        sock_open(SOCK_TCP, &options, &listener) ||
        sock_bind(listener, (u16)cmdline_u64("port", 80)) || sock_listen(listener, 2 * n))
        guest_panic("httpd: there is no network");
    for (u32 i = 0; i < n; i++)
        if (!(thread[i] = thread_start(net_thread_vcpu(), "worker", work, &w[i])))
            guest_panic("httpd: there is no memory");
    background_start(net_thread_vcpu());
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
