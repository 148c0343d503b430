/* Carries out one packet of a client, and makes the reply. The store is a tree of named values that
 * VMs, the hypervisor and programs on the host share. Its protocol is that of Xen's XenStore: a
 * packet has a type, such as XS_READ, the number of a transaction, and strings. The client is not
 * trusted, so the strings are checked to be inside the packet and terminated. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "common/string.h"
#include "store/store.h"

/* A packet, taken apart. */
struct call {
    struct store_client *c;
    u32 tx;
    const char *in;     /* the first string, terminated */
    const char *second; /* what follows it */
    u32 rest;           /* bytes at `second` */
    char *out;          /* room for the reply's data */
};

/* The properties of a type of request. */
enum {
    TWO = 1,   /* it consists of two strings, both terminated */
    MORE = 2,  /* any bytes may follow the first string; without TWO and MORE none may */
    PRIV = 4,  /* only privileged clients may send it: -EACCES */
    NO_TX = 8, /* its tx_id means nothing */
    OK = 16,   /* its reply is "OK" */
};

static const u8 flags[XS_TYPES] = {
    [XS_WATCH] = TWO | NO_TX | OK,
    [XS_UNWATCH] = TWO | NO_TX | OK,
    [XS_TRANSACTION_START] = MORE,
    [XS_TRANSACTION_END] = OK,
    [XS_WRITE] = MORE | OK,
    [XS_MKDIR] = OK,
    [XS_RM] = OK,
    [XS_SET_PERMS] = MORE | OK,
    [XS_IS_DOMAIN_INTRODUCED] = PRIV,
    [XS_RESET_WATCHES] = MORE | NO_TX | OK,
    [XS_DIRECTORY_PART] = TWO,
};

/* Carries out XS_DIRECTORY_PART, by which a client reads a long list of children in pieces. The
 * list is the names one after the other, and the client gives an offset into it, in bytes. Replies
 * with the generation (a number that changes when the list does), the names from there on, and an
 * empty name if these are the last ones; store_list() sets `from` to 0 then. */
static int directory_part(struct call *k) {
    u64 offset, generation;
    u32 from, head = 32; /* room for a generation */
    int len, more;

    if (parse_u64(k->second, &offset, NULL) || offset > INT32_MAX) return -EINVAL;
    from = (u32)offset;
    len = store_list(k->c, k->tx, k->in, k->out + head, XS_PAYLOAD_MAX - head - 1, &from,
                     &generation);
    if (len < 0) return len;
    more = hv_snprintf(k->out, head, "%llu", (unsigned long long)generation) + 1;
    memmove(k->out + more, k->out + head, (u32)len);
    if (!from) k->out[more + len++] = 0;
    return more + len;
}

/* Reads the id of a VM. Returns 0 or -EINVAL. */
static int parse_id(const char *text, u16 *id) {
    u64 n;

    if (parse_u64(text, &n, NULL) || n > STORE_MAX_ID) return -EINVAL;
    *id = (u16)n;
    return 0;
}

const char store_right[] = "nrwb";

/* Reads one entry of permissions, such as "r7", into p->of[at]. Returns 0 or -EINVAL. 'n' is no
 * right, 'r' to read, 'w' to write, 'b' both. */
int store_parse_perm(const char *text, struct store_perms *p, u32 at) {
    const char *letter;

    if (!*text) return -EINVAL; /* strchr() would find the end of store_right */
    letter = strchr(store_right, *text);
    if (!letter) return -EINVAL;
    p->of[at].rights = (u16)(letter - store_right);
    return parse_id(text + 1, &p->of[at].id);
}

/* Replies with the permissions of a node as strings, each a letter and an id. */
static int request_get_perms(struct call *k) {
    struct store_perms p;
    int error = store_get_perms(k->c, k->tx, k->in, &p), len = 0;

    if (error) return error;
    for (u32 i = 0; i < p.nr; i++)
        len += hv_snprintf(k->out + len, 8, "%c%u", store_right[p.of[i].rights], p.of[i].id) + 1;
    return len;
}

/* Reads the strings that follow the path, each a letter and an id, and sets these permissions. The
 * last string has to be terminated, because strlen() would read beyond the packet otherwise. */
static int request_set_perms(struct call *k) {
    struct store_perms p = { .nr = 0 };
    const char *s = k->second, *end = s + k->rest;

    if (!k->rest || end[-1]) return -EINVAL;
    for (; s < end; s += strlen(s) + 1, p.nr++) {
        if (p.nr == STORE_MAX_PERMS) return -ENOSPC;
        if (store_parse_perm(s, &p, p.nr)) return -EINVAL;
    }
    return store_set_perms(k->c, k->tx, k->in, &p);
}

/* Makes the reply a text. Returns its length, with the terminator. */
static int reply_text(struct call *k, const char *text) {
    u32 len = (u32)strlen(text) + 1;

    memcpy(k->out, text, len);
    return (int)len;
}

/* Carries out a request that names a VM: where its nodes are, or whether it is there ("T" or
 * "F"). */
static int request_domain(struct call *k, u32 type) {
    const struct store_client *vm;
    u16 id;

    if (parse_id(k->in, &id)) return -EINVAL;
    if (type == XS_GET_DOMAIN_PATH) return hv_snprintf(k->out, STORE_HOME_LEN, STORE_HOME, id) + 1;
    vm = store_vm(id);
    if (vm && !vm->left) return reply_text(k, "T");
    return reply_text(k, "F");
}

/* Carries out a request of the given type. Returns a negative errno, or the length of the reply.
 * For a new transaction that is its number. */
static int request_run(struct call *k, u32 type) {
    switch (type) {
    case XS_DIRECTORY: return store_list(k->c, k->tx, k->in, k->out, XS_PAYLOAD_MAX, NULL, NULL);
    case XS_DIRECTORY_PART: return directory_part(k);
    case XS_READ: return store_read(k->c, k->tx, k->in, k->out, XS_PAYLOAD_MAX);
    case XS_GET_PERMS: return request_get_perms(k);
    case XS_WATCH: return store_watch(k->c, k->in, k->second);
    case XS_UNWATCH: return store_unwatch(k->c, k->in, k->second);
    case XS_TRANSACTION_START:
        if (k->tx) return -EBUSY; /* there are no transactions within transactions */
        return store_begin(k->c);
    case XS_TRANSACTION_END:
        if (strcmp(k->in, "T") && strcmp(k->in, "F")) return -EINVAL;
        return store_end(k->c, k->tx, *k->in == 'T');
    case XS_WRITE: return store_write(k->c, k->tx, k->in, k->second, k->rest);
    case XS_MKDIR: return store_mkdir(k->c, k->tx, k->in);
    case XS_RM: return store_rm(k->c, k->tx, k->in);
    case XS_SET_PERMS: return request_set_perms(k);
    case XS_RESET_WATCHES: return store_reset(k->c);
    case XS_GET_DOMAIN_PATH:
    case XS_IS_DOMAIN_INTRODUCED: return request_domain(k, type);
    default: return -ENOSYS;
    }
}

/* Finds the strings of a packet. Returns whether there are as many as there have to be. */
static bool request_parse(struct call *k, const struct xs_header *h) {
    u32 first = (u32)strnlen(k->in, h->len), how = flags[h->type];

    if (first == h->len) return false;
    k->rest = h->len - first - 1;
    k->second = k->in + first + 1;
    k->tx = 0;
    if (!(how & NO_TX)) k->tx = h->tx_id;
    if (how & TWO) return k->rest && strnlen(k->second, k->rest) + 1 == k->rest;
    return (how & MORE) || !k->rest;
}

/* The names of the errors that a client may be told. */
#define NAMED(error) [error] = #error
static const char *const error_names[] = {
    NAMED(EPERM),  NAMED(ENOENT), NAMED(EIO),    NAMED(E2BIG),  NAMED(EAGAIN),
    NAMED(ENOMEM), NAMED(EACCES), NAMED(EBUSY),  NAMED(EEXIST), NAMED(EINVAL),
    NAMED(ENOSPC), NAMED(EROFS),  NAMED(ENOSYS),
};

/* Returns the name of an error as the client is told it. An error that is not in the table is
 * EINVAL for the client. */
static const char *name_of_error(u32 error) {
    if (error >= ARRAY_SIZE(error_names) || !error_names[error]) return error_names[EINVAL];
    return error_names[error];
}

/* Checks whether the client may send this request, and whether it has the strings that it needs,
 * and carries it out. Returns a negative errno, or what request_run() returns. */
static int request_dispatch(struct call *k, const struct xs_header *h) {
    if (h->type >= XS_TYPES) return -ENOSYS;
    if ((flags[h->type] & PRIV) && !k->c->privileged) return -EACCES;
    if (!request_parse(k, h)) return -EINVAL;
    return request_run(k, h->type);
}

/* Carries out the client's request and makes its reply. Returns false, with nothing done, if the
 * request has to wait. If a list takes too long for one operation, the answer is -EBUSY. Then
 * nothing is replied yet, and the same request is carried out again later. It goes on from where
 * the list has come. */
bool store_request(struct store_client *c) {
    struct call k = { .c = c, .in = (const char *)c->in.data, .out = (char *)c->out.data };
    u32 type = c->in.head.type;
    int len;

    if (store_work()) return false;
    len = request_dispatch(&k, &c->in.head);
    if (len == -EBUSY && type == XS_DIRECTORY_PART) return false;
    c->out.head = c->in.head;
    if (len < 0) {
        c->out.head.type = XS_ERROR;
        len = reply_text(&k, name_of_error((u32)-len));
    } else if (type == XS_TRANSACTION_START) { /* the id of the new transaction, as text */
        len = hv_snprintf(k.out, 16, "%d", len) + 1;
    } else if (flags[type] & OK) {
        len = reply_text(&k, "OK");
    }
    c->out.head.len = (u32)len;
    return true;
}
