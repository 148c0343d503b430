/* In-kernel file-to-socket transfer (vTurbo, section 5.2): a range of a disk goes out through a
 * socket, and no buffer of the application's is between them. Pages of the cache are copied once,
 * into the socket's send buffer, to which lwIP refers until they are acknowledged. In a guest only.
 *
 * Called by a thread of the turbo vCPU, as a server in the kernel would, reads are queued and
 * completed without the regular vCPUs.
 */
#ifndef NETSTACK_SENDFILE_H
#define NETSTACK_SENDFILE_H

#include <netstack/socket.h>

struct pagecache;
struct pagecache_stream;

/* How many of `len` bytes from `offset` of the disk were taken: all of them unless the deadline
 * came. None: -EAGAIN, or what pagecache_read() or sock_send() says. `at` as for
 * pagecache_read(). */
i64 sock_send_file(struct sock *s, struct pagecache *c, struct pagecache_stream *at, u64 offset,
                   u64 len, u64 deadline);

#endif
