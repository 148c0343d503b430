/* The wire protocol of the store. It is the protocol of XenStore, so that a client of one can use
 * the other without a change. In both directions there are packets, each of which is a header and
 * `len` bytes. Names and numbers are those of Xen's public header io/xs_wire.h; docs/store.md says
 * what each operation does here. All numbers are little-endian. */
#ifndef TAKT_STORE_WIRE_H
#define TAKT_STORE_WIRE_H

#include <takt/types.h>

enum xs_type {
    XS_CONTROL = 0,
    XS_DIRECTORY = 1,
    XS_READ = 2,
    XS_GET_PERMS = 3,
    XS_WATCH = 4,
    XS_UNWATCH = 5,
    XS_TRANSACTION_START = 6,
    XS_TRANSACTION_END = 7,
    XS_INTRODUCE = 8,
    XS_RELEASE = 9,
    XS_GET_DOMAIN_PATH = 10,
    XS_WRITE = 11,
    XS_MKDIR = 12,
    XS_RM = 13,
    XS_SET_PERMS = 14,
    XS_WATCH_EVENT = 15, /* the store sends it unasked: path and token; req_id and tx_id are 0 */
    XS_ERROR = 16,       /* the store sends it as a reply: the name of an error such as "ENOENT" */
    XS_IS_DOMAIN_INTRODUCED = 17,
    XS_RESUME = 18,
    XS_SET_TARGET = 19,
    XS_RESET_WATCHES = 21,
    XS_DIRECTORY_PART = 22,
    XS_TYPES
};

struct xs_header {
    u32 type;   /* XS_*; a reply has the type of its request, or XS_ERROR */
    u32 req_id; /* a number that the client chooses; the reply has the same */
    u32 tx_id;  /* the number that XS_TRANSACTION_START has returned; 0: no transaction */
    u32 len;    /* bytes that follow; with more than XS_PAYLOAD_MAX the connection ends */
};

#define XS_PAYLOAD_MAX       4096
#define XS_ABS_PATH_MAX      3072 /* bytes of a path, without the zero at its end */
#define XS_REL_PATH_MAX      2048 /* of one that begins below /local/domain/<id>/ */

#define XS_SPECIAL_INTRODUCE "@introduceDomain"
#define XS_SPECIAL_RELEASE   "@releaseDomain"

/* The page between a guest and the store. The indexes of a ring are never reduced, and the byte of
 * index x is at x % XS_RING_SIZE. Only the producer changes `prod`, and only the consumer `cons`;
 * each then tells the other end by an event. */
#define XS_RING_SIZE 1024
struct xs_page {
    u8 req[XS_RING_SIZE]; /* from the guest */
    u8 rsp[XS_RING_SIZE]; /* to the guest */
    u32 req_cons, req_prod;
    u32 rsp_cons, rsp_prod;
    u32 features;   /* XS_FEATURE_* */
    u32 connection; /* the guest writes XS_RECONNECT, the store XS_CONNECTED */
    u32 error;      /* XS_RING_ERROR_*: why the store takes no more of this connection */
    u32 port;       /* of the guest */
};

#define XS_FEATURE_RECONNECT   1u
#define XS_FEATURE_ERROR       2u

#define XS_CONNECTED           0u
#define XS_RECONNECT           1u

#define XS_RING_ERROR_NONE     0u
#define XS_RING_ERROR_COMM     1u
#define XS_RING_ERROR_INDEX    2u /* an index jumped */
#define XS_RING_ERROR_PROTOCOL 3u /* a packet was longer than XS_PAYLOAD_MAX */

#endif
