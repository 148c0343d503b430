/* A client of httpd.c, at to=A.B.C.D (10.0.0.2), port=P (80). clients=N (1) threads each get /SIZE,
 * size=SIZE (10000), count=C (10) times over one connection, compare each byte, and print how long
 * it took.
 *
 * With `rude` there are also clients that break the rules meanwhile: they send rubbish, half a
 * request, or more than a request may have, or they ask for a lot and read nothing. After them come
 * clients that send only empty lines, as fast as they can, and one at a time. netstack/start.h has
 * more words for the command line.
 *
 * The exit code is 0 if all pages were right, and if the rude clients got the answers that they
 * deserve. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/thread.h>
#include <netstack/socket.h>
#include <netstack/start.h>

#define MAX_CLIENTS 8
#define PATIENCE    (20 * NS_PER_S)

struct client {
    struct sock *s;
    u32 have, at; /* have: bytes in `in`; at: how many of them have been read */
    u32 pages, wrong;
    char in[4096];
};

static u32 to;
static u16 port;
static u64 size, count;
static const struct sock_options options = { NET_RCVBUF_MIN, 65536 };

/* Connects to the server. Waits until the server is there. */
static void open(struct client *c) {
    c->s = net_connect(to, port, &options);
    c->have = c->at = 0;
}

/* Sends the text. Returns false if the server has ended the connection or takes nothing. */
static bool say(struct client *c, const char *text) {
    return sock_send(c->s, text, strlen(text), time_ns() + PATIENCE) == (i64)strlen(text);
}

/* Returns the next byte that the server sends, or -1 if there is none: the connection has ended, or
 * nothing came for PATIENCE. */
static int next(struct client *c) {
    i64 n;

    if (c->at == c->have) {
        n = sock_recv(c->s, c->in, sizeof(c->in), time_ns() + PATIENCE);
        if (n <= 0) return -1;
        c->have = (u32)n;
        c->at = 0;
    }
    return (u8)c->in[c->at++];
}

/* Reads the head of an answer. Returns its status, or 0 if it is not the head of an answer. *length
 * is how many bytes follow it. */
static u32 answer(struct client *c, u64 *length) {
    static const char field[] = "Content-Length: ";
    char text[128];
    u32 status = 0, n = 0;

    *length = 0;
    for (int b; (b = next(c)) >= 0;) {
        if (b != '\n') {
            if (n < sizeof(text) - 1) text[n++] = (char)b;
            continue;
        }
        text[n] = '\0';
        if (n <= 1) return status;
        if (!memcmp(text, "HTTP/1.1 ", 9))
            status = (u32)(text[9] * 100 + text[10] * 10 + text[11] - 111 * '0');
        if (n > sizeof(field) && !memcmp(text, field, sizeof(field) - 1))
            for (u32 i = sizeof(field) - 1; text[i] >= '0' && text[i] <= '9'; i++)
                *length = *length * 10 + (u64)(text[i] - '0');
        n = 0;
    }
    return 0;
}

/* Gets one page. Returns whether every byte of it is right. */
static bool page(struct client *c, const char *request) {
    u64 length;
    bool right = say(c, request) && answer(c, &length) == 200 && length == size;

    for (u64 i = 0; right && i < size; i++) right = next(c) == (int)('0' + i % 10);
    return right;
}

/* Gets the page again and again over one connection, as a thread of a client that keeps the rules,
 * then asks for its head only, and sees the server close. */
static void get_pages(void *arg) {
    struct client *c = arg;
    char request[128];
    u64 length;

    open(c);
    snprintf(request, sizeof(request), "GET /%lu HTTP/1.1\r\nHost: server\r\n\r\n", size);
    for (u64 i = 0; i < count; i++) {
        c->wrong += !page(c, request);
        c->pages++;
    }
    memcpy(request, "HEAD", 4);
    snprintf(request, sizeof(request),
             "HEAD /%lu HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n", size);
    c->wrong += !say(c, request) || answer(c, &length) != 200 || length != size || next(c) != -1;
    sock_close(c->s);
}

/* ---- clients that break the rules ---- */

/* Sends `text` and returns whether the server answers with `status` and then ends the connection.
 */
static bool refused(const char *text, u32 status) {
    static struct client c;
    u64 length = 0;
    u32 got;

    open(&c);
    say(&c, text);
    got = answer(&c, &length);
    while (length && next(&c) >= 0) length--;
    if (got != status || length || next(&c) != -1) {
        printf("fetch: %u instead of %u\n", got, status);
        got = 0;
    }
    sock_close(c.s);
    return got != 0;
}

/* Breaks the rules in many ways. Returns how many of them did not get the answer that they deserve.
 * Before that, one client asks for a large file and reads nothing, and another one ends its
 * connection by a reset in the middle of a request. The server has to cope with both while it
 * answers the others. */
static u32 rude(void) {
    static struct client reads_nothing, half;
    static char long_one[4096];
    u32 wrong = 0;

    open(&reads_nothing);
    say(&reads_nothing, "GET /1000000000 HTTP/1.1\r\nHost: server\r\n\r\n");
    open(&half);
    say(&half, "GET /100 HTTP/1.1\r\nHo");
    sock_abort(half.s);
    memset(long_one, 'A', sizeof(long_one) - 1);
    memcpy(long_one, "GET /1 HTTP/1.1\r\nA: ", 20);
    wrong += !refused("\x16\x03\x01\x02 what is this\r\n", 400);
    wrong += !refused(long_one, 400);
    wrong += !refused("GET /1 HTTP/1.1\r\n\r\n", 400); /* the header `Host` is missing */
    wrong += !refused("GET /1 HTTP/1.1\r\nHost: server\r\nContent-Length: 5\r\n\r\nGET /", 400);
    wrong += !refused("DELETE / HTTP/1.1\r\nHost: server\r\n\r\n", 501);
    wrong += !refused("GET /../1 HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n", 404);
    return wrong; /* the client that reads nothing stays connected */
}

/* Sends `text` again and again until the server ends the connection. Prints after how long that
 * was, and the status of the answer; 0 means that there was none. */
static void goes_on(const char *who, const char *text, u64 pause) {
    static struct client c;
    u64 start = time_ns(), length;

    open(&c);
    while (time_ns() - start < PATIENCE && say(&c, text)) sleep_ns(pause);
    start = time_ns() - start;
    printf("fetch: %s gets %u and its end after %lu ns\n", who, answer(&c, &length), start);
    sock_close(c.s);
}

/* Tells whether the server gives up when a client sends empty lines without end. Empty lines before
 * a request are allowed, so a server that does not limit them could be kept busy for ever. */
static void empty_lines(void) {
    static char many[2048 + 1];

    for (u32 i = 0; i < sizeof(many) - 1; i++) many[i] = "\r\n"[i % 2];
    goes_on("a flood", many, 0);
    goes_on("a trickle", "\r\n", NS_PER_S / 10);
}

/* Runs the clients, and prints how long they took. Returns 1 if anything was wrong. */
int main(void) {
    u32 clients = (u32)MIN(MAX(cmdline_u64("clients", 1), 1ull), (u64)MAX_CLIENTS), wrong = 0,
        pages = 0;
    static struct client c[MAX_CLIENTS];
    struct thread *thread[MAX_CLIENTS];
    u64 start, took;

    to = net_cmdline_ip("to", 0x0a000002);
    port = (u16)cmdline_u64("port", 80);
    size = cmdline_u64("size", 10000);
    count = cmdline_u64("count", 10);
    if (net_start((clients + 8) * net_bufs_for(options.rcvbuf)))
        guest_panic("fetch: there is no network");
    start = time_ns();
    for (u32 i = 0; i < clients; i++)
        if (!(thread[i] = thread_start(net_thread_vcpu(), "client", get_pages, &c[i])))
            guest_panic("fetch: there is no memory");
    if (cmdline_has("rude")) wrong = rude();
    for (u32 i = 0; i < clients; i++) {
        thread_join(thread[i]);
        pages += c[i].pages;
        wrong += c[i].wrong;
    }
    took = time_ns() - start;
    if (cmdline_has("rude")) empty_lines();
    printf("fetch: %u pages of %lu bytes in %lu ns, %u wrong\n", pages, size, took, wrong);
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgement to go out */
    return wrong != 0;
}
