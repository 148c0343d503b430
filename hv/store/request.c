/* One packet of a client: what it asks for is done, and the reply put in its place. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "store/store.h"

/* What the packet holds. */
struct call {
    struct store_client *c;
    u32 tx;
    const char *in, *second; /* terminated; what follows the first zero */
    u32 rest;                /* bytes at `second` */
    char *out;               /* of the reply */
};

enum {
    TWO = 1,   /* two strings, both terminated */
    MORE = 2,  /* something may follow the first string; else it is all there is */
    PRIV = 4,  /* for privileged clients: -EACCES */
    NO_TX = 8, /* tx_id is not looked at */
    OK = 16,   /* that is the reply */
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

/* Generation, names from an offset on, and an empty one if these are the last. */
static int directory_part(struct call *k) {
    u64 offset, generation;
    u32 from, head = 32; /* room for a generation */
    int len, more;

    if (parse_u64(k->second, &offset, NULL) || offset > INT32_MAX) return -EINVAL;
    from = (u32)offset;
    len = store_list(k->c, k->tx, k->in, k->out + head, XS_PAYLOAD_MAX - head - 1, &from, &generation);
    if (len < 0) return len;
    more = hv_snprintf(k->out, head, "%llu", (unsigned long long)generation) + 1;
    memmove(k->out + more, k->out + head, (u32)len);
    if (!from) k->out[more + len++] = 0;
    return more + len;
}

static int parse_id(const char *text, u16 *id) {
    u64 n;

    if (parse_u64(text, &n, NULL) || n > STORE_MAX_ID) return -EINVAL;
    *id = (u16)n;
    return 0;
}

const char store_right[] = "nrwb";

int store_parse_perm(const char *text, struct store_perms *p, u32 at) {
    const char *r = *text ? strchr(store_right, *text) : NULL;

    if (r) p->of[at].rights = (u16)(r - store_right);
    return r ? parse_id(text + 1, &p->of[at].id) : -EINVAL;
}

static int get_perms(struct call *k) {
    struct store_perms p;
    int error = store_get_perms(k->c, k->tx, k->in, &p), len = 0;

    for (u32 i = 0; !error && i < p.nr; i++)
        len += hv_snprintf(k->out + len, 8, "%c%u", store_right[p.of[i].rights], p.of[i].id) + 1;
    return error ? error : len;
}

static int set_perms(struct call *k) {
    struct store_perms p = { .nr = 0 };
    const char *s = k->second, *end = s + k->rest;

    if (!k->rest || end[-1]) return -EINVAL;
    for (; s < end; s += strlen(s) + 1, p.nr++) {
        if (p.nr == STORE_MAX_PERMS) return -ENOSPC;
        if (store_parse_perm(s, &p, p.nr)) return -EINVAL;
    }
    return store_set_perms(k->c, k->tx, k->in, &p);
}

static int reply(struct call *k, const char *text) {
    return hv_snprintf(k->out, XS_PAYLOAD_MAX, "%s", text) + 1;
}

/* What names a VM. */
static int domain(struct call *k, u32 type) {
    const struct store_client *vm;
    u16 id;

    if (parse_id(k->in, &id)) return -EINVAL;
    if (type == XS_GET_DOMAIN_PATH) return hv_snprintf(k->out, STORE_HOME_LEN, STORE_HOME, id) + 1;
    vm = store_vm(id);
    return reply(k, vm && !vm->left ? "T" : "F");
}

/* A negative errno, or the length of the reply; of a new transaction its number. */
static int run(struct call *k, u32 type) {
    switch (type) {
    case XS_DIRECTORY: return store_list(k->c, k->tx, k->in, k->out, XS_PAYLOAD_MAX, NULL, NULL);
    case XS_DIRECTORY_PART: return directory_part(k);
    case XS_READ: return store_read(k->c, k->tx, k->in, k->out, XS_PAYLOAD_MAX);
    case XS_GET_PERMS: return get_perms(k);
    case XS_WATCH: return store_watch(k->c, k->in, k->second);
    case XS_UNWATCH: return store_unwatch(k->c, k->in, k->second);
    case XS_TRANSACTION_START: return k->tx ? -EBUSY : store_begin(k->c);
    case XS_TRANSACTION_END:
        if (strcmp(k->in, "T") && strcmp(k->in, "F")) return -EINVAL;
        return store_end(k->c, k->tx, *k->in == 'T');
    case XS_WRITE: return store_write(k->c, k->tx, k->in, k->second, k->rest);
    case XS_MKDIR: return store_mkdir(k->c, k->tx, k->in);
    case XS_RM: return store_rm(k->c, k->tx, k->in);
    case XS_SET_PERMS: return set_perms(k);
    case XS_RESET_WATCHES: return store_reset(k->c);
    case XS_GET_DOMAIN_PATH:
    case XS_IS_DOMAIN_INTRODUCED: return domain(k, type);
    default: return -ENOSYS;
    }
}

/* Are there as many strings as there must be? */
static bool parse(struct call *k, const struct xs_header *h) {
    u32 first = (u32)strnlen(k->in, h->len), how = h->type < XS_TYPES ? flags[h->type] : MORE;

    if (first == h->len) return false;
    k->rest = h->len - first - 1;
    k->second = k->in + first + 1;
    k->tx = how & NO_TX ? 0 : h->tx_id;
    if (how & TWO) return k->rest && strnlen(k->second, k->rest) + 1 == k->rest;
    return how & MORE || !k->rest;
}

/* Of the errors that a client hears of; any other is EINVAL to it. */
#define NAMED(error) [error] = #error
static const char *const names[] = {
    NAMED(EPERM), NAMED(ENOENT), NAMED(EIO),    NAMED(E2BIG),  NAMED(EAGAIN), NAMED(ENOMEM), NAMED(EACCES),
    NAMED(EBUSY), NAMED(EEXIST), NAMED(EINVAL), NAMED(ENOSPC), NAMED(EROFS),  NAMED(ENOSYS),
};

bool store_request(struct store_client *c) {
    struct call k = { .c = c, .in = (const char *)c->in.data, .out = (char *)c->out.data };
    u32 type = c->in.head.type;
    int len;

    if (store_work()) return false;
    if (type >= XS_TYPES)
        len = -ENOSYS;
    else if (flags[type] & PRIV && !c->privileged)
        len = -EACCES;
    else
        len = parse(&k, &c->in.head) ? run(&k, type) : -EINVAL;
    if (len == -EBUSY && type == XS_DIRECTORY_PART) return false;
    c->out.head = c->in.head;
    if (len < 0) {
        c->out.head.type = XS_ERROR;
        len = reply(&k, names[(u32)-len < ARRAY_SIZE(names) && names[-len] ? -len : EINVAL]);
    } else if (type == XS_TRANSACTION_START) {
        len = hv_snprintf(k.out, 16, "%d", len) + 1;
    } else if (flags[type] & OK) {
        len = reply(&k, "OK");
    }
    c->out.head.len = (u32)len;
    return true;
}
