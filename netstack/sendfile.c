/* Sends a range of a disk through a TCP socket. The bytes are copied once, from the page cache
 * straight into the socket's send buffer. sendfile.h has the contract. */
#include <guest/pagecache.h>
#include <netstack/sendfile.h>

#define PIECE 16384 /* the first piece is sent while the second is read */

/* Sends `len` bytes from byte `offset` of the disk through the socket. Returns how many bytes the
 * socket took, or a negative error. It reads from the page cache directly into the send buffer, in
 * pieces, so that the socket sends the first piece while the second one is read. */
i64 sock_send_file(struct sock *s, struct pagecache *c, struct pagecache_stream *at, u64 offset,
                   u64 len, u64 deadline) {
    u64 done = 0;

    while (done < len) {
        void *to;
        i64 n = sock_room(s, &to, deadline);

        if (n >= 0) {
            int error;

            n = (i64)MIN(MIN((u64)n, len - done), (u64)PIECE);
            error = pagecache_read(c, at, offset + done, to, (size_t)n);
            if (error) n = error;
        }
        if (n < 0 && done) return (i64)done; /* the error comes again at the next call */
        if (n < 0) return n;
        sock_filled(s, (u32)n);
        done += (u64)n;
    }
    return (i64)done;
}
