/* What guests share that measure a disk behind a page cache: how they start, when each request is
 * due, how late it was answered, and what they print.
 *
 * A guest whose requests are sent one after the other hides a stall: while it waits for one
 * request, it sends no others that would be slow as well. So requests have a time when they are due
 * (an open loop), and the latency of each counts from that time, also if no thread was free to send
 * it then. These words of the command line say when requests are due:
 *
 *   rate=R        R requests a second, at random times that follow from the VM's seed; without it,
 *                 or 0: a request is due when a thread has time for it (a closed loop)
 *   burst_ms=B    with a rate: the requests come in bursts (guest/arrivals.h) of B ms, which begin
 *                 at the same time in all VMs
 *   start_ms=T    the first request is not due before the VM is T ms old (0). What the guest has to
 *                 prepare should be done by then
 *   threads=N     how many threads send requests; by default as many as the VM has vCPUs
 *   count=N       so many requests, and no more
 *   run_ms=T      no request that is due later than this (by default 2000, without a limit if there
 *                 is another one)
 *   kib=K         no request after K KiB were read and written
 *
 * A guest that decides itself when its requests are due (guests/bursts.c, guests/video.c) makes its
 * own struct workload_request, and does not know those words. It prints `requests=0`. All know:
 *
 *   collab        takes part in docs/collab.md
 *
 * guest/disk.h has more words. */
#ifndef GUEST_WORKLOAD_H
#define GUEST_WORKLOAD_H

#include <guest/disk.h>
#include "common/hist.h"

enum workload_kind { WORKLOAD_READ, WORKLOAD_WRITE, WORKLOAD_KINDS };

/* A request that a thread was given. */
struct workload_request {
    u64 number;
    u64 due; /* ns; its latency counts from here */
    u64 rng; /* for seed_next(): what the request does follows from this alone */
};

extern struct disk workload_disk; /* open from when `serve` is called */

/* Runs a whole workload: starts the vCPUs, opens the disk, takes part in the collaboration if the
 * command line says so, and calls serve() as a thread of the vCPU that guest/disk.h names. At the
 * end it prints what was measured; each line begins with `name`. Returns main()'s result, which is
 * 0 if all that was read was right. */
int workload_main(const char *name, void (*serve)(void));
/* As workload_main(), for a guest without a disk. Nothing is printed of a page cache then. */
int workload_run(const char *name, void (*serve)(void));
/* Starts the clock by which requests are due. workload_threads() calls it; a guest that has other
 * threads, and gets its requests from elsewhere, calls it before the first request. */
void workload_begin(void);
/* Runs n copies of fn, with the numbers from 0 as arguments, as threads of all vCPUs but the first
 * (of vCPU 0 if it is the only one), and waits for the end of all. Requests are due from now
 * on. n is 0: as many as the command line says. */
void workload_threads(u32 n, void (*fn)(void *number));
/* Returns how many threads workload_threads(0, ...) starts. */
u32 workload_thread_count(void);
/* Waits until the next request is due, and describes it in *r. Returns false when there are no
 * more. Call it from a thread of workload_threads(). */
bool workload_next(struct workload_request *r);
/* Notes that a request, or a part of one, has been answered, and has moved `bytes`. With `collab`,
 * in a VM on several sockets, a thread of workload_threads() may go to another vCPU here
 * (guest/sockets.h). */
void workload_done(const struct workload_request *r, enum workload_kind kind, u64 bytes);
/* Notes that `bad` words of what was read were wrong. */
void workload_wrong(u64 bad);

/* The first function fills `len` bytes, a multiple of 8, with what belongs at `offset` of a file.
 * The second one returns how many words differ from that; it looks at one word of each 64 bytes, so
 * that looking does not cost much time. `version` distinguishes one file from another one. */
void workload_fill(void *p, u64 version, u64 offset, u64 len);
u64 workload_check(const void *p, u64 version, u64 offset, u64 len);

#endif
