#include <guest/event.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/store.h>
#include <guest/string.h>
#include <guest/thread.h>

#define HEAD ((u32)sizeof(struct xs_header))

static struct mutex one = MUTEX; /* request at a time */
static struct semaphore moved = SEMAPHORE(0);
static struct spinlock lock; /* taken with interrupts off: the rest, but for requests' bytes */
static struct xs_page *page;
static u32 port;

static struct watch {
    char *path; /* NULL: free */
    void (*fn)(void *ctx, const char *path);
    void *ctx;
} watches[STORE_WATCHES];

/* What comes: the packet so far. */
static struct {
    struct xs_header head;
    char data[XS_PAYLOAD_MAX + 1];
} in;
static u32 have;

/* The request that waits. */
static struct {
    u32 id;
    bool answered;
    i64 result; /* bytes of the reply, or what XS_ERROR says */
    char *buf;
    u32 size;
} call;

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

/* ---- what comes, with the lock ---- */

static void on_packet(void) {
    in.data[in.head.len] = 0;
    if (in.head.type == XS_WATCH_EVENT) {
        const char *token = in.data + strlen(in.data) + 1;
        u32 i = token < in.data + in.head.len ? (u32)(token[0] - 'A') : STORE_WATCHES;

        if (i < STORE_WATCHES && watches[i].path) watches[i].fn(watches[i].ctx, in.data);
    } else if (in.head.req_id == call.id && !call.answered) { /* else it is late */
        call.result = in.head.type == XS_ERROR ? error_of(in.data) : in.head.len;
        if (call.result > call.size)
            call.result = -E2BIG;
        else if (call.result > 0)
            memcpy(call.buf, in.data, (u32)call.result);
        call.answered = true;
    }
}

static void drain(void) {
    u64 flags = spin_lock_irqsave(&lock);
    u32 there;

    while ((there = __atomic_load_n(&page->rsp_prod, __ATOMIC_ACQUIRE) - page->rsp_cons)) {
        u32 want = have < HEAD ? HEAD : HEAD + in.head.len, at = page->rsp_cons % XS_RING_SIZE,
            n = want - have;

        if (n > there) n = there;
        if (n > XS_RING_SIZE - at) n = XS_RING_SIZE - at;
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

static void on_event(u32 p, void *arg) {
    drain();
    sem_up(&moved);
}

/* ---- requests, with the mutex ---- */

/* Lets the store see what there is; waits if nothing has moved. */
static i64 notify(u64 deadline) {
    i64 moves = hypercall0(TAKT_HC_STORE_NOTIFY);

    if (moves < 0) return -EIO;
    if (moves) drain();
    if (page->error) return -EIO;
    return moves || sem_down_until(&moved, deadline) ? 0 : -ETIMEDOUT;
}

static i64 put(const void *bytes, u32 n, u64 deadline) {
    const char *from = bytes;
    i64 error;

    while (n) {
        u32 room = XS_RING_SIZE - (page->req_prod - __atomic_load_n(&page->req_cons, __ATOMIC_ACQUIRE));
        u32 at = page->req_prod % XS_RING_SIZE, part = n < room ? n : room;

        if (part > XS_RING_SIZE - at) part = XS_RING_SIZE - at;
        memcpy(page->req + at, from, part);
        __atomic_store_n(&page->req_prod, page->req_prod + part, __ATOMIC_RELEASE);
        from += part;
        n -= part;
        if (!part && (error = notify(deadline))) return error;
    }
    return 0;
}

/* One request of up to two parts, and its reply to `buf`. */
static i64 ask(enum xs_type type, u32 tx, const void *a, u32 na, const void *b, u32 nb, char *buf, u32 size) {
    u64 deadline = time_ns() + STORE_TIMEOUT;
    struct xs_header head = { type, ++call.id, tx, na + nb };
    i64 error;

    call.buf = buf;
    call.size = size;
    call.answered = false;
    while (sem_try(&moved))
        ;
    error = put(&head, HEAD, deadline);
    if (!error) error = put(a, na, deadline);
    if (!error) error = put(b, nb, deadline);
    while (!error && !__atomic_load_n(&call.answered, __ATOMIC_ACQUIRE)) error = notify(deadline);
    return error ? error : call.result;
}

static i64 ask_watch(enum xs_type type, u32 i) {
    char token[2] = { (char)('A' + i), 0 }, ok[8];

    return ask(type, 0, watches[i].path, (u32)strlen(watches[i].path) + 1, token, sizeof(token), ok,
               sizeof(ok));
}

static i64 connect(void) {
    i64 p, error = 0;

    have = 0;
    while ((p = hypercall1(TAKT_HC_STORE_CONNECT, (u64)page)) == -EAGAIN) thread_yield();
    if (p < 0) return p;
    if (!port) error = event_set_handler((u32)p, thread_self()->vcpu, on_event, NULL);
    port = (u32)p;
    for (u32 i = 0; i < STORE_WATCHES && error >= 0; i++)
        if (watches[i].path) error = ask_watch(XS_WATCH, i);
    return error < 0 ? error : 0;
}

static i64 request(enum xs_type type, u32 tx, const char *path, const void *b, u32 nb, char *buf, u32 size) {
    i64 r;

    if (!page) return -ENODEV;
    mutex_lock(&one);
    r = ask(type, tx, path, (u32)strlen(path) + 1, b, nb, buf, size);
    if (r == -EIO && connect() == 0 && !tx && type != XS_TRANSACTION_START)
        r = ask(type, tx, path, (u32)strlen(path) + 1, b, nb, buf, size);
    mutex_unlock(&one);
    return r;
}

/* One whose answer is "OK". */
static i64 command(enum xs_type type, u32 tx, const char *path, const void *b, u32 nb) {
    char ok[8];
    i64 r = request(type, tx, path, b, nb, ok, sizeof(ok));

    return r < 0 ? r : 0;
}

int store_start(void) {
    i64 error;

    if (!on_takt()) return -ENODEV;
    mutex_lock(&one);
    if (!page) {
        page = page_alloc(1);
        if (page) memset(page, 0, PAGE_SIZE);
    }
    error = page ? connect() : -ENOMEM;
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
    return command(XS_WRITE, tx, path, value, len);
}

i64 store_mkdir(u32 tx, const char *path) { return command(XS_MKDIR, tx, path, NULL, 0); }

i64 store_rm(u32 tx, const char *path) { return command(XS_RM, tx, path, NULL, 0); }

i64 store_set_perms(u32 tx, const char *path, const char *perms, u32 len) {
    return command(XS_SET_PERMS, tx, path, perms, len);
}

static i64 number(const char *s, i64 len, u64 *value) {
    *value = 0;
    for (i64 i = 0; i < len && s[i]; i++) {
        if (s[i] < '0' || s[i] > '9') return -EINVAL;
        *value = *value * 10 + (u64)(s[i] - '0');
    }
    return len ? 0 : -EINVAL;
}

i64 store_read_u64(u32 tx, const char *path, u64 *value) {
    char digits[21];
    i64 n = store_read(tx, path, digits, sizeof(digits) - 1);

    return n < 0 ? n : number(digits, n, value);
}

i64 store_write_u64(u32 tx, const char *path, u64 value) {
    char digits[24];

    return store_write(tx, path, digits, (u32)snprintf(digits, sizeof(digits), "%lu", value));
}

i64 store_begin(void) {
    char digits[16];
    u64 tx = 0;
    i64 n = request(XS_TRANSACTION_START, 0, "", NULL, 0, digits, sizeof(digits));

    if (n > 0) n = number(digits, n, &tx);
    return n < 0 ? n : (i64)tx;
}

i64 store_end(u32 tx, bool commit) { return command(XS_TRANSACTION_END, tx, commit ? "T" : "F", NULL, 0); }

i64 store_watch(const char *path, void (*fn)(void *ctx, const char *path), void *ctx) {
    u32 i = 0;
    i64 r = -ENOSPC;

    if (!page) return -ENODEV;
    mutex_lock(&one);
    while (i < STORE_WATCHES && watches[i].path) i++;
    if (i < STORE_WATCHES) {
        watches[i] = (struct watch){ malloc(strlen(path) + 1), fn, ctx };
        r = watches[i].path ? 0 : -ENOMEM;
    }
    if (!r) {
        memcpy(watches[i].path, path, strlen(path) + 1);
        r = ask_watch(XS_WATCH, i);
        if (r < 0) free(watches[i].path), watches[i].path = NULL;
    }
    mutex_unlock(&one);
    return r < 0 ? r : 0;
}

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
    return r < 0 ? r : 0;
}
