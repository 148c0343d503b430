/* Sends a file through a socket inside the kernel (vTurbo, section 5.2): a range of a disk goes to
 * a peer without a buffer of the application in between. Each page of the page cache is copied
 * once, into the send buffer of the socket. lwIP refers to it there until the peer has acknowledged
 * it. For guests only, because it needs the page cache.
 *
 * A server in the kernel calls it from a thread of the turbo vCPU. Reads of the disk are then
 * queued and completed without the regular vCPUs. */
#ifndef NETSTACK_SENDFILE_H
#define NETSTACK_SENDFILE_H

#include <netstack/socket.h>

struct pagecache;
struct pagecache_stream;

/* Sends `len` bytes that begin at byte `offset` of the disk. `at` is that of pagecache_read().
 * Returns how many bytes the socket took: fewer than `len` if the deadline came or if there was an
 * error. If the socket took none, it returns -EAGAIN, or the error of pagecache_read() or
 * sock_send(). */
i64 sock_send_file(struct sock *s, struct pagecache *c, struct pagecache_stream *at, u64 offset,
                   u64 len, u64 deadline);

#endif
