/* The store's wire protocol, which is XenStore's: clients of either need no change for the
 * other. Packets of a header and `len` bytes follow each other in both directions. Names and
 * numbers are those of Xen's public header io/xs_wire.h; docs/store.md tells what each operation
 * does here. All numbers are little-endian. */
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
    XS_WATCH_EVENT = 15, /* from the store, unasked: path and token, req_id and tx_id are 0 */
    XS_ERROR = 16,       /* from the store: the name of an error, "ENOENT" */
    XS_IS_DOMAIN_INTRODUCED = 17,
    XS_RESUME = 18,
    XS_SET_TARGET = 19,
    XS_RESET_WATCHES = 21,
    XS_DIRECTORY_PART = 22,
    XS_TYPES
};

struct xs_header {
    u32 type;   /* XS_*; a reply has its request's, or XS_ERROR */
    u32 req_id; /* the client's own, given back in the reply */
    u32 tx_id;  /* what XS_TRANSACTION_START answered; 0: none */
    u32 len;    /* bytes that follow, at most XS_PAYLOAD_MAX: else the connection ends */
};

#define XS_PAYLOAD_MAX       4096
#define XS_ABS_PATH_MAX      3072 /* bytes of a path, without the zero at its end */
#define XS_REL_PATH_MAX      2048 /* of one that begins below /local/domain/<id>/ */

#define XS_SPECIAL_INTRODUCE "@introduceDomain"
#define XS_SPECIAL_RELEASE   "@releaseDomain"

/* The page between a guest and the store. A ring's indexes run freely; the byte of index x is at
 * x % XS_RING_SIZE. The producer owns `prod`, the consumer `cons`; both tell the other end by an
 * event. */
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
