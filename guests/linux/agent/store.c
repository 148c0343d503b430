/* A client of Takt's store, over a serial port or a socket: store.h. Types and numbers are those of
 * Xen's public header io/xs_wire.h. */
#include "store.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#define PORT "/dev/ttyS1"

enum { DIRECTORY = 1, READ = 2, WATCH = 4, WRITE = 11, RM = 13, EVENT = 15, ERROR = 16 };

struct head {
    uint32_t type, number, transaction, len;
};

struct packet {
    struct head head;
    char data[STORE_MAX + 1];
};

/* What the store answers instead of a number. */
static const struct {
    const char *name;
    int number;
} errors[] = {
    { "EINVAL", EINVAL }, { "EACCES", EACCES }, { "EEXIST", EEXIST }, { "ENOENT", ENOENT },
    { "ENOMEM", ENOMEM }, { "ENOSPC", ENOSPC }, { "EROFS", EROFS },   { "EBUSY", EBUSY },
    { "EAGAIN", EAGAIN }, { "E2BIG", E2BIG },   { "EPERM", EPERM },
};

/* ---- bytes ---- */

/* Sends all bytes of a packet. Returns 0, or a negative error. */
static int send_all(struct store *s, const void *bytes, size_t len) {
    for (size_t at = 0; at < len;) {
        ssize_t n = write(s->fd, (const char *)bytes + at, len - at);

        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        at += (size_t)n;
    }
    return 0;
}

/* Receives exactly `len` bytes. Returns 0, or a negative error. */
static int receive_all(struct store *s, void *bytes, size_t len) {
    for (size_t at = 0; at < len;) {
        ssize_t n = read(s->fd, (char *)bytes + at, len - at);

        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        if (n == 0) return -EPIPE;
        at += (size_t)n;
    }
    return 0;
}

/* Receives one packet and ends its data with 0. */
static int receive(struct store *s, struct packet *p) {
    int error = receive_all(s, &p->head, sizeof(p->head));

    if (error) return error;
    if (p->head.len > STORE_MAX) return -EPROTO;
    error = receive_all(s, p->data, p->head.len);
    p->data[p->head.len] = 0;
    return error;
}

/* ---- requests ---- */

/* Keeps the path of an event until store_wait() asks for it. */
static void keep(struct store *s, const struct packet *event) {
    size_t len = strlen(event->data) + 1;

    if (s->waiting_len + len > sizeof(s->waiting)) {
        s->lost = true;
        return;
    }
    memcpy(s->waiting + s->waiting_len, event->data, len);
    s->waiting_len += len;
}

static int error_of(const char *name) {
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(errors[i].name, name) == 0) return -errors[i].number;
    return -EIO;
}

/* Sends a request: a path with its 0, and then `len` bytes. Receives the reply, and keeps events
 * that come before it. Returns the length of the reply's data. */
static int ask(struct store *s, uint32_t type, const char *path, const void *more, size_t len,
               struct packet *reply) {
    size_t path_len = strlen(path) + 1;
    struct packet request;
    int error;

    if (path_len + len > STORE_MAX) return -E2BIG;
    request.head = (struct head){ type, ++s->last, 0, (uint32_t)(path_len + len) };
    memcpy(request.data, path, path_len);
    memcpy(request.data + path_len, more, len);
    error = send_all(s, &request, sizeof(request.head) + path_len + len);
    if (error) return error;
    for (;;) {
        error = receive(s, reply);
        if (error) return error;
        if (reply->head.type == EVENT)
            keep(s, reply);
        else if (reply->head.number == s->last)
            break;
    }
    if (reply->head.type == ERROR) return error_of(reply->data);
    return (int)reply->head.len;
}

/* Reads the value of a node, which is not terminated. Returns its length, or a negative error. */
int store_read(struct store *s, const char *path, char *value, size_t size) {
    struct packet reply;
    int len = ask(s, READ, path, "", 0, &reply);

    if (len < 0) return len;
    if ((size_t)len >= size) return -E2BIG;
    memcpy(value, reply.data, (size_t)len + 1);
    return len;
}

int store_write(struct store *s, const char *path, const char *value) {
    struct packet reply;

    return ask(s, WRITE, path, value, strlen(value), &reply);
}

int store_rm(struct store *s, const char *path) {
    struct packet reply;

    return ask(s, RM, path, "", 0, &reply);
}

int store_list(struct store *s, const char *path, char *names) {
    struct packet reply;
    int len = ask(s, DIRECTORY, path, "", 0, &reply);

    if (len > 0) memcpy(names, reply.data, (size_t)len);
    return len;
}

/* Watches a path. Returns 0, or a negative error. The path is also the token by which an event
 * names its watch. */
int store_watch(struct store *s, const char *path) {
    struct packet reply;

    return ask(s, WATCH, path, path, strlen(path) + 1, &reply);
}

/* ---- events ---- */

/* Takes the first event that was kept. */
static void take_kept(struct store *s, char *path) {
    size_t len = strlen(s->waiting) + 1;

    memcpy(path, s->waiting, len);
    s->waiting_len -= len;
    memmove(s->waiting, s->waiting + len, s->waiting_len);
}

/* Waits for the event of a watch for at most `ms` milliseconds, and writes its path. Returns 1, 0
 * if there was none, or a negative error. */
int store_wait(struct store *s, int ms, char *path) {
    struct pollfd p = { .fd = s->fd, .events = POLLIN };
    struct packet event;
    int r;

    if (s->lost) {
        s->lost = false;
        return -EOVERFLOW;
    }
    if (s->waiting_len) {
        take_kept(s, path);
        return 1;
    }
    r = poll(&p, 1, ms);
    if (r < 0 && errno != EINTR) return -errno;
    if (r <= 0) return 0;
    r = receive(s, &event);
    if (r) return r;
    if (event.head.type != EVENT) return -EPROTO;
    memcpy(path, event.data, strlen(event.data) + 1);
    return 1;
}

/* ---- the connection ---- */

/* Connects to the store's socket at `path`. Returns the file, or a negative error. */
static int open_socket(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd, error;

    if (strlen(path) >= sizeof(address.sun_path)) return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) return fd;
    error = -errno;
    close(fd);
    return error;
}

/* Takes the port for this program alone. In raw mode Linux passes all bytes as they are. */
static int take_port(int fd) {
    struct termios t;

    if (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno == EWOULDBLOCK) return -EBUSY;
        return -errno;
    }
    if (tcgetattr(fd, &t)) return -errno;
    cfmakeraw(&t);
    t.c_cflag |= CLOCAL | HUPCL;
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    if (tcsetattr(fd, TCSANOW, &t)) return -errno;
    return 0;
}

/* Opens the store's port of the VM, and locks it. Returns the file, or a negative error. A port
 * that is open already may be opened once more: that does not disturb the program that has it, but
 * the lock is not to be had then. */
static int open_port(void) {
    int fd = open(PORT, O_RDWR | O_NOCTTY | O_CLOEXEC), error;

    if (fd < 0) return -errno;
    error = take_port(fd);
    if (error == 0) return fd;
    close(fd);
    return error;
}

/* Opens the connection, to the socket XENSTORED_PATH if that is set, else to the VM's port. Returns
 * 0, or a negative error. */
int store_open(struct store *s) {
    const char *path = getenv("XENSTORED_PATH");

    memset(s, 0, sizeof(*s));
    if (path)
        s->fd = open_socket(path);
    else
        s->fd = open_port();
    if (s->fd < 0) return s->fd;
    return 0;
}

void store_close(struct store *s) { close(s->fd); }
