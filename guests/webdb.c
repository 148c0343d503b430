/* The data base of a web application (guests/webapp.h). Its table is on this VM's disk: a page of
 * the disk has one row. It answers queries over TCP, one at a time on each connection. A query
 * reads its row. A transaction reads a row, changes it, writes to the log, and is answered when
 * both are safe on the disk, as a data base does it that loses nothing.
 *
 *   port=P (3306)          the port
 *   times=N (1)            as on the command line of webapp
 *   connections=N (4)      connections, up to 48; it ends when all were made and have ended
 *
 * guest/workload.h (but not when requests are due) and guest/disk.h have more words, and say what
 * is printed: a query counts as a read, and a transaction as a write. netstack/start.h has more
 * words. The exit code is 0 if each row that was read was as it had been written. */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/workload.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include "guests/webapp.h"

#define LOG_PART   16u  /* the log has this part of the disk, at its end */
#define LOG_RECORD 512u /* bytes */

/* A row, as it is at the beginning of its page. All is 0 in one that was never changed. */
struct row {
    u64 number; /* of the row, plus 1 */
    u64 version;
};

static u64 rows;
static u64 times;                 /* as on the command line */
static struct mutex lock = MUTEX; /* guards rows that are being changed, and `logged` */
static u64 logged;                /* records of the log */

static struct row read_row(u64 number) {
    struct row r;

    if (pagecache_read(&workload_disk.cache, NULL, number * PAGE_SIZE, &r, sizeof(r)))
        guest_panic("webdb: row %lu cannot be read", number);
    workload_wrong(r.version && r.number != number + 1);
    return r;
}

static void write_at(u64 offset, const void *p, size_t n) {
    if (pagecache_write(&workload_disk.cache, offset, p, n))
        guest_panic("webdb: byte %lu of the disk cannot be written", offset);
}

/* Changes a row, and waits until the change is safe. Returns the row. */
static struct row change_row(u64 number) {
    u8 record[LOG_RECORD] = { 0 };
    u64 places = (workload_disk.cache.blocks - rows) * PAGE_SIZE / LOG_RECORD;
    struct row r;

    mutex_lock(&lock);
    r = read_row(number);
    r = (struct row){ number + 1, r.version + 1 };
    write_at(number * PAGE_SIZE, &r, sizeof(r));
    *(struct row *)record = r;
    write_at(rows * PAGE_SIZE + logged++ % places * LOG_RECORD, record, sizeof(record));
    mutex_unlock(&lock);
    if (pagecache_sync(&workload_disk.cache)) guest_panic("webdb: the disk refuses a sync");
    return r;
}

/* Answers the queries of one connection, as a thread, until it ends. */
static void serve_connection(void *arg) {
    static const u8 answer[WEBAPP_ANSWER];
    struct sock *s = arg;
    struct webdb_head head;

    while (sock_recv_exactly(s, &head, sizeof(head), NET_FOREVER)) {
        struct workload_request r = { .due = time_ns() };
        u64 number = webapp_choose(head.key, rows);

        webapp_compute(times * WEBAPP_QUERY_US);
        if (head.commits) {
            head.version = (u32)change_row(number).version;
            workload_done(&r, WORKLOAD_WRITE, LOG_RECORD);
        } else {
            head.version = (u32)read_row(number).version;
            workload_done(&r, WORKLOAD_READ, WEBAPP_ANSWER);
        }
        if (!webapp_send(s, &head, sizeof(head)) || !webapp_send(s, answer, sizeof(answer))) break;
    }
    sock_close(s);
}

/* Serves all connections, until the last one has ended. */
static void serve(void) {
    times = webapp_times();
    rows = workload_disk.cache.blocks - workload_disk.cache.blocks / LOG_PART;
    if (rows == workload_disk.cache.blocks)
        guest_panic("webdb: there is too little memory or disk for a log");
    workload_begin();
    webapp_serve(webapp_connections("connections", 4), (u16)cmdline_u64("port", 3306),
                 serve_connection);
    printf("webdb: rows=%lu logged=%lu\n", rows, logged);
}

int main(void) {
    if (net_start((webapp_connections("connections", 4) + 1) * net_bufs_for(NET_RCVBUF_MIN)))
        guest_panic("webdb: there is no network");
    return workload_main("webdb", serve);
}
