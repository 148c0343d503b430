/* What guests/nfs.c and its clients send each other. */
#ifndef GUESTS_NFS_H
#define GUESTS_NFS_H

#include <takt/types.h>

#define NFS_RECORD_MOST (1024u << 10) /* the most bytes that one request may read or write */

enum nfs_op { NFS_READ = 1, NFS_WRITE, NFS_COMMIT, NFS_DROP, NFS_END };

/* The head of a request, and of its answer. After the head of NFS_WRITE come `len` bytes, and after
 * that of the answer to NFS_READ if its status is 0. Answers come in the order of the requests. */
struct nfs_head {
    u32 op;
    u32 len;
    u64 offset;
    i64 status; /* of an answer: 0, or a negative error */
};
_Static_assert(sizeof(struct nfs_head) == 24, "the head has no gaps");

#endif
