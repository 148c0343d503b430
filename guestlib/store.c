/* A guest's client of the store, a tree of named values that VMs and the hypervisor share
 * (docs/store.md). Requests and answers are packets that go through two rings in a page, which the
 * guest has handed to the hypervisor. A *watch* is a function that is called when a node changes.
 * store.h has the contracts; takt/store_wire.h has the format of packets. */
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

#define HEAD ((u32)sizeof(struct xs_header))
/* The token of a watch is a number of two letters, from A on. */
#define TOKEN_LETTERS 16u

static struct mutex one = MUTEX;              /* held during a request: there is one at a time */
static struct semaphore moved = SEMAPHORE(0); /* raised when the store has taken or given bytes */
/* Guards all but the bytes of requests. It is taken with interrupts off. */
static struct spinlock lock;
static struct xs_page *page;
static u32 port;

static struct watch {
    char *path; /* NULL: this entry is free */
    void (*fn)(void *ctx, const char *path);
    void *ctx;
} watches[STORE_WATCHES];

/* The packet that is arriving. Its first `have` bytes are here. */
static struct {
    struct xs_header head;
    char data[XS_PAYLOAD_MAX + 1];
} in;
static u32 have;
_Static_assert(offsetof(__typeof__(in), data) == sizeof(struct xs_header),
               "head and data are one packet");

/* The request that waits for its answer. */
static struct {
    u32 id;
    bool answered;
    /* The length of the answer in bytes, or the error of XS_ERROR as a negative errno. */
    i64 result;
    char *buf;
    u32 size;
} call;

/* Turns the name of an error into its number. XS_ERROR names an error by a word. Returns the
 * negative errno, -EIO for an unknown word. */
static i64 error_of(const char *name) {
    static const struct {
        const char *name;
        int error;
    } names[] = {
        { "EINVAL", EINVAL }, { "EACCES", EACCES }, { "EEXIST", EEXIST }, { "ENOENT", ENOENT },
        { "ENOMEM", ENOMEM }, { "ENOSPC", ENOSPC }, { "ENOSYS", ENOSYS }, { "EROFS", EROFS },
        { "EBUSY", EBUSY },   { "EAGAIN", EAGAIN }, { "E2BIG", E2BIG },   { "EPERM", EPERM },
    };

    for (u32 i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i].name) == 0) return -names[i].error;
    return -EIO;
}

/* ---- packets that arrive; called with the lock held ---- */

/* Calls the function of the watch that has fired. The packet has the path and then the token, which
 * is two letters for the number of the watch: ask_watch(). */
static void on_watch_event(void) {
    const char *token = in.data + strlen(in.data) + 1;
    u32 i;

    if (token + 2 >= in.data + in.head.len) return;
    i = (u32)(token[0] - 'A') * TOKEN_LETTERS + (u32)(token[1] - 'A');
    if (i < STORE_WATCHES && watches[i].path) watches[i].fn(watches[i].ctx, in.data);
}

/* Stores the answer of the request that waits, and lets its thread go on. */
static void on_answer(void) {
    /* This answers a request that was given up because it took too long. */
    if (in.head.req_id != call.id || call.answered) return;
    if (in.head.type == XS_ERROR)
        call.result = error_of(in.data);
    else
        call.result = in.head.len;
    if (call.result > call.size)
        call.result = -E2BIG;
    else if (call.result > 0)
        memcpy(call.buf, in.data, (u32)call.result);
    call.answered = true;
}

/* Takes a whole packet that has arrived: an answer, or the event of a watch. The text in it is
 * ended by a zero, which the store does not send. */
static void on_packet(void) {
    in.data[in.head.len] = 0;
    if (in.head.type == XS_WATCH_EVENT)
        on_watch_event();
    else
        on_answer();
}

/* Takes all bytes that the store has sent out of the ring, and handles each packet that is
 * complete. A packet may arrive in pieces, because the ring is smaller than the longest packet;
 * `have` says how much of it is there. */
static void receive_packets(void) {
    u64 flags = spin_lock_irqsave(&lock);

    for (;;) {
        u32 there = __atomic_load_n(&page->rsp_prod, __ATOMIC_ACQUIRE) - page->rsp_cons;
        u32 at = page->rsp_cons % XS_RING_SIZE, n = HEAD - have;

        if (!there) break;
        if (have >= HEAD) n = HEAD + in.head.len - have;
        n = MIN(MIN(n, there), XS_RING_SIZE - at);
        memcpy((char *)&in + have, page->rsp + at, n);
        have += n;
        __atomic_store_n(&page->rsp_cons, page->rsp_cons + n, __ATOMIC_RELEASE);
        if (have >= HEAD && have == HEAD + in.head.len) {
            have = 0;
            on_packet();
        }
    }
    spin_unlock_irqrestore(&lock, flags);
}

/* Handles the event by which the store says that it has taken or given bytes. */
static void store_on_event(u32 p, void *arg) {
    receive_packets();
    sem_up(&moved);
}

/* ---- requests; called with the mutex held ---- */

/* Has the store look at the rings. If the store neither takes nor gives bytes at once, waits until
 * it does. Returns 0, or
 *   -EIO        the connection is broken
 *   -ETIMEDOUT  the deadline came first */
static i64 store_notify(u64 deadline) {
    i64 moves = hypercall0(TAKT_HC_STORE_NOTIFY);

    if (moves < 0) return -EIO;
    if (moves) receive_packets();
    if (page->error) return -EIO;
    if (moves) return 0;
    if (!sem_down_until(&moved, deadline)) return -ETIMEDOUT;
    return 0;
}

/* Sends `n` bytes of a request, in as many pieces as the ring demands. While the ring is full,
 * waits. Returns 0 or an error of store_notify(). */
static i64 send_bytes(const void *bytes, u32 n, u64 deadline) {
    const char *from = bytes;

    while (n) {
        u32 room =
            XS_RING_SIZE - (page->req_prod - __atomic_load_n(&page->req_cons, __ATOMIC_ACQUIRE));
        u32 at = page->req_prod % XS_RING_SIZE, part = MIN(MIN(n, room), XS_RING_SIZE - at);

        if (!part) { /* the ring is full */
            i64 error = store_notify(deadline);

            if (error) return error;
        }
        memcpy(page->req + at, from, part);
        __atomic_store_n(&page->req_prod, page->req_prod + part, __ATOMIC_RELEASE);
        from += part;
        n -= part;
    }
    return 0;
}

/* Sends a request that consists of the parts `a` and `b`, and waits for its answer, which is stored
 * at `buf`. Returns the length of the answer, or a negative errno. */
static i64 store_ask(enum xs_type type, u32 tx, const void *a, u32 na, const void *b, u32 nb,
                     char *buf, u32 size) {
    u64 deadline = time_ns() + STORE_TIMEOUT;
    struct xs_header head = { type, ++call.id, tx, na + nb };
    i64 error;

    call.buf = buf;
    call.size = size;
    call.answered = false;
    while (sem_try(&moved)) { /* forget what was counted for earlier requests */
    }
    error = send_bytes(&head, HEAD, deadline);
    if (!error) error = send_bytes(a, na, deadline);
    if (!error) error = send_bytes(b, nb, deadline);
    while (!error && !__atomic_load_n(&call.answered, __ATOMIC_ACQUIRE))
        error = store_notify(deadline);
    if (error) return error;
    return call.result;
}

/* Sets (XS_WATCH) or removes (XS_UNWATCH) watch i. Its token, by which its events will be
 * recognised, is one letter. */
static i64 ask_watch(enum xs_type type, u32 i) {
    char token[3] = { (char)('A' + i / TOKEN_LETTERS), (char)('A' + i % TOKEN_LETTERS), 0 }, ok[8];

    return store_ask(type, 0, watches[i].path, (u32)strlen(watches[i].path) + 1, token,
                     sizeof(token), ok, sizeof(ok));
}

/* Connects, and sets all watches again, because the store forgets them when a connection ends.
 * Returns 0 or a negative errno. */
static i64 store_connect(void) {
    i64 p, error = 0;

    have = 0;
    for (;;) {
        p = hypercall1(TAKT_HC_STORE_CONNECT, (u64)page);
        if (p != -EAGAIN) break;
        thread_yield();
    }
    if (p < 0) return p;
    if (!port) error = event_set_handler((u32)p, thread_self()->vcpu, store_on_event, NULL);
    port = (u32)p;
    for (u32 i = 0; i < STORE_WATCHES && error >= 0; i++)
        if (watches[i].path) error = ask_watch(XS_WATCH, i);
    return MIN(error, 0);
}

/* Makes a request. If the connection breaks, makes a new one and tries once more. A request of a
 * transaction is not tried again, because the transaction has ended with the connection. */
static i64 request(enum xs_type type, u32 tx, const char *path, const void *b, u32 nb, char *buf,
                   u32 size) {
    i64 r;

    if (!page) return -ENODEV;
    mutex_lock(&one);
    r = store_ask(type, tx, path, (u32)strlen(path) + 1, b, nb, buf, size);
    if (r == -EIO && store_connect() == 0 && !tx && type != XS_TRANSACTION_START)
        r = store_ask(type, tx, path, (u32)strlen(path) + 1, b, nb, buf, size);
    mutex_unlock(&one);
    return r;
}

/* Sends a request whose answer is "OK". Returns 0, or a negative error. */
static i64 store_command(enum xs_type type, u32 tx, const char *path, const void *b, u32 nb) {
    char ok[8];
    i64 r = request(type, tx, path, b, nb, ok, sizeof(ok));

    return MIN(r, 0);
}

/* Connects the guest to the store, by a page of memory that the two share. Returns 0, or a negative
 * error. A further call makes a new connection with the same page, and sets all watches again. */
int store_start(void) {
    i64 error = -ENOMEM;

    if (!on_takt()) return -ENODEV;
    mutex_lock(&one);
    if (!page) {
        page = page_alloc(1);
        if (page) memset(page, 0, PAGE_SIZE);
    }
    if (page) error = store_connect();
    mutex_unlock(&one);
    return (int)error;
}

i64 store_read(u32 tx, const char *path, void *buf, u32 size) {
    return request(XS_READ, tx, path, NULL, 0, buf, size);
}

i64 store_list(u32 tx, const char *path, char *buf, u32 size) {
    return request(XS_DIRECTORY, tx, path, NULL, 0, buf, size);
}

i64 store_write(u32 tx, const char *path, const void *value, u32 len) {
    return store_command(XS_WRITE, tx, path, value, len);
}

i64 store_mkdir(u32 tx, const char *path) { return store_command(XS_MKDIR, tx, path, NULL, 0); }

i64 store_rm(u32 tx, const char *path) { return store_command(XS_RM, tx, path, NULL, 0); }

i64 store_set_perms(u32 tx, const char *path, const char *perms, u32 len) {
    return store_command(XS_SET_PERMS, tx, path, perms, len);
}

/* Reads a decimal number of at most `len` digits. Returns 0, or -EINVAL for anything else. */
static i64 number(const char *s, i64 len, u64 *value) {
    *value = 0;
    for (i64 i = 0; i < len && s[i]; i++) {
        if (s[i] < '0' || s[i] > '9') return -EINVAL;
        *value = *value * 10 + (u64)(s[i] - '0');
    }
    if (!len) return -EINVAL;
    return 0;
}

i64 store_read_u64(u32 tx, const char *path, u64 *value) {
    char digits[21];
    i64 n = store_read(tx, path, digits, sizeof(digits) - 1);

    if (n < 0) return n;
    return number(digits, n, value);
}

/* Writes a number in decimal as the value of a node. Returns 0, or a negative error. */
i64 store_write_u64(u32 tx, const char *path, u64 value) {
    char digits[20], *end = digits + sizeof(digits), *first = end;

    do {
        *--first = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return store_write(tx, path, first, (u32)(end - first));
}

/* Begins a transaction. Returns its number, or a negative error. The request has an empty path. The
 * answer is the number of the transaction, in decimal. */
i64 store_begin(void) {
    char digits[16];
    u64 tx = 0;
    i64 n = request(XS_TRANSACTION_START, 0, "", NULL, 0, digits, sizeof(digits));

    if (n > 0) n = number(digits, n, &tx);
    if (n < 0) return n;
    return (i64)tx;
}

i64 store_end(u32 tx, bool commit) {
    const char *how = "F";

    if (commit) how = "T";
    return store_command(XS_TRANSACTION_END, tx, how, NULL, 0);
}

/* Has fn(ctx, path) called whenever the node or one below it changes. Returns 0, or a negative
 * error. The entry is filled in before the request is sent, because the first event may come before
 * the answer. */
i64 store_watch(const char *path, void (*fn)(void *ctx, const char *path), void *ctx) {
    u32 i = 0;
    i64 r = -ENOSPC;

    if (!page) return -ENODEV;
    mutex_lock(&one);
    while (i < STORE_WATCHES && watches[i].path) i++;
    if (i < STORE_WATCHES) {
        watches[i] = (struct watch){ malloc(strlen(path) + 1), fn, ctx };
        r = -ENOMEM;
        if (watches[i].path) r = 0;
    }
    if (!r) {
        memcpy(watches[i].path, path, strlen(path) + 1);
        r = ask_watch(XS_WATCH, i);
        if (r < 0) {
            free(watches[i].path);
            watches[i].path = NULL;
        }
    }
    mutex_unlock(&one);
    return MIN(r, 0);
}

/* Ends the watch with these arguments. Returns 0, or a negative error. The entry is freed even if
 * the store refuses, so that the function is not called any more. */
i64 store_unwatch(const char *path, void (*fn)(void *ctx, const char *path), void *ctx) {
    i64 r = -ENOENT;

    mutex_lock(&one);
    for (u32 i = 0; i < STORE_WATCHES && r == -ENOENT; i++) {
        struct watch *w = &watches[i];

        if (!w->path || strcmp(w->path, path) || w->fn != fn || w->ctx != ctx) continue;
        r = ask_watch(XS_UNWATCH, i);
        free(w->path);
        w->path = NULL;
    }
    mutex_unlock(&one);
    return MIN(r, 0);
}
