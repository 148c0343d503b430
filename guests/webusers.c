/* The users of a web application (guests/webapp.h), as Olio's load generator plays them. A user
 * asks for a page and then for the images in it, and waits for each answer. The next operation of
 * the user begins when a random time is over, which counts from the beginning of the last one, is
 * exponentially distributed, and has a mean of 5 s. If the last operation took longer than that,
 * the next one begins at once (a closed loop). Which kind of operation it is, is drawn by the
 * shares in webapp_operation.
 *
 * All users share some connections. A user has one of them for a whole operation, and waits if
 * there is none; the latency of the operation counts from before that.
 *
 *   to=A.B.C.D (10.0.0.2)  port=P (80)   the web server
 *   users=N (8)            how many users there are
 *   connections=N (8)      as on the server's command line
 *   cycle_ms=T (5000)      the mean time between the beginnings of two operations of a user
 *   start_ms=T (0)         when users begin; each of them begins within the next cycle_ms
 *   ramp_ms=T (0)          what ends within so much time after that does not count
 *   run_ms=T (2000)        for so long after that, what ends counts; then no operation begins
 *
 * netstack/start.h has more words. For each kind it prints how many operations counted, how many
 * there were in all, and the latency of those that counted. The exit code is 0 if each answer came
 * and was right. */
#include <guest/arrivals.h>
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/printf.h>
#include <guest/thread.h>
#include <guest/workload.h>
#include <netstack/socket.h>
#include <netstack/start.h>
#include <takt/seed.h>
#include "guests/webapp.h"

static struct mutex lock = MUTEX; /* guards what follows */
static struct hist latency[WEBAPP_OPERATIONS];
static u32 asked[WEBAPP_OPERATIONS];
static u64 wrong;

static struct webapp_pool server;
static u64 start, from, end; /* set at the start, ns */

/* Draws a kind of operation. */
static u32 draw(u64 *rng) {
    u64 sum = 0, at;
    u32 i = 0;

    for (u32 k = 0; k < WEBAPP_OPERATIONS; k++) sum += webapp_operation[k].share;
    for (at = seed_below(seed_next(rng), sum); at >= webapp_operation[i].share; i++)
        at -= webapp_operation[i].share;
    return i;
}

/* Returns how many words of an image are wrong. A page of it that was never written is empty. */
static u64 check_image(const u8 *image, u64 at) {
    u64 bad = 0;

    for (u32 i = 0; i < WEBAPP_IMAGE; i += PAGE_SIZE)
        if (*(const u64 *)(image + i)) bad += workload_check(image + i, 0, at + i, PAGE_SIZE);
    return bad;
}

/* Asks for one part of an operation, and waits for the answer. Returns how much of it was wrong. */
static u64 fetch(struct sock *s, u64 *rng, u32 operation, u32 part, u8 *buffer) {
    const struct webapp_operation *o = &webapp_operation[operation];
    struct webapp_head head = { .operation = operation, .part = part, .key = seed_next(rng) };
    struct webapp_head got;
    u32 want = WEBAPP_IMAGE;

    if (!part) {
        head.upload = o->upload_kib << 10;
        want = o->page_kib << 10;
    }
    if (!webapp_send(s, &head, sizeof(head))) guest_panic("webusers: the server has gone");
    for (u32 n = 0; n < head.upload; n += WEBAPP_RECORD)
        if (!webapp_send(s, buffer, WEBAPP_RECORD)) guest_panic("webusers: the server has gone");
    if (!sock_recv_exactly(s, &got, sizeof(got), NET_FOREVER) || got.bytes != want ||
        !sock_recv_exactly(s, buffer, got.bytes, NET_FOREVER))
        guest_panic("webusers: the server has gone, or its answer has another length");
    if (got.operation != operation || got.part != part || got.key != head.key) return 1;
    if (part) return check_image(buffer, got.image);
    return workload_check(buffer, operation, 0, want);
}

/* Carries out an operation of a kind that is drawn: the page first, then the images. */
static void operate(u64 *rng, u8 *buffer) {
    u64 began = time_ns(), bad = 0, now;
    u32 operation = draw(rng);
    struct sock *s = webapp_pool_take(&server);

    for (u32 part = 0; part <= webapp_operation[operation].images; part++)
        bad += fetch(s, rng, operation, part, buffer);
    webapp_pool_give(&server, s);
    now = time_ns();
    mutex_lock(&lock);
    asked[operation]++;
    wrong += bad;
    if (now >= from && now < end) hist_add(&latency[operation], now - began);
    mutex_unlock(&lock);
}

/* Plays user `number`, as a thread. */
static void play(void *number) {
    u64 rng = seed_of(takt_seed(), (u64)number);
    u64 cycle = MAX(cmdline_u64("cycle_ms", 5000), 1ull) * NS_PER_MS;
    struct arrivals next = arrivals_begin(seed_next(&rng), 1, 0);
    u8 *buffer = malloc(WEBAPP_RECORD);

    next.mean = cycle;
    if (!buffer) guest_panic("webusers: there is no memory");
    sleep_until(start + seed_below(seed_next(&rng), cycle));
    while (time_ns() < end) {
        next.next = time_ns();
        arrivals_advance(&next);
        operate(&rng, buffer);
        if (next.next > time_ns()) sleep_until(MIN(next.next, end));
    }
    free(buffer);
}

/* Prints one line, on one kind of operation or on all. */
static void say(const char *name, const struct hist *h, u32 all) {
    printf("webusers: %s counted=%lu of=%u mean_us=%lu p50_us=%lu p99_us=%lu p999_us=%lu "
           "max_us=%lu\n",
           name, h->count, all, h->sum / MAX(h->count, 1ul) / 1000, hist_percentile(h, 500) / 1000,
           hist_percentile(h, 990) / 1000, hist_percentile(h, 999) / 1000, h->max / 1000);
}

/* Prints what was measured. Returns how many operations counted. */
static u64 report(void) {
    static struct hist all; /* too big for the stack */
    u32 sum = 0;

    for (u32 i = 0; i < WEBAPP_OPERATIONS; i++) {
        say(webapp_operation[i].name, &latency[i], asked[i]);
        hist_merge(&all, &latency[i]);
        sum += asked[i];
    }
    say("all", &all, sum);
    printf("webusers: %lu operations in %lu ns, %lu wrong\n", all.count, end - from, wrong);
    return all.count;
}

/* Plays all users. Returns 1 if an answer was wrong, or if no operation counted. */
int main(void) {
    u32 users = (u32)MAX(cmdline_u64("users", 8), 1ull);
    u32 connections = webapp_connections("connections", 8);
    struct thread **t = malloc(users * sizeof(struct thread *));
    u64 counted;

    if (!t || net_start((connections + 1) * net_bufs_for(webapp_options.rcvbuf)))
        guest_panic("webusers: there is no network, or no memory");
    webapp_pool_open(&server, connections, net_cmdline_ip("to", 0x0a000002),
                     (u16)cmdline_u64("port", 80));
    start = time_ns() + cmdline_u64("start_ms", 0) * NS_PER_MS + 1;
    from = start + cmdline_u64("ramp_ms", 0) * NS_PER_MS;
    end = from + cmdline_u64("run_ms", 2000) * NS_PER_MS;
    for (u64 i = 0; i < users; i++) {
        t[i] = thread_start(net_thread_vcpu(), "user", play, (void *)i);
        if (!t[i]) guest_panic("webusers: there is no memory for %u users", users);
    }
    for (u32 i = 0; i < users; i++) thread_join(t[i]);
    webapp_pool_close(&server);
    counted = report();
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgements to go out */
    return !counted || wrong;
}
