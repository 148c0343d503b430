/* Makes traffic inside the machine, for iperf.c or for the server of iperf 2. start_ms=M (0) after
 * it has its network it does, one after the other, what netstack/iperf.h has, and
 *
 *   ping_ms=T ping_rate=R    sends echo requests to to=A.B.C.D (10.0.0.2) for T ms, R (100) a
 *                            second, at random times that follow from seed=S (else from the VM's
 *                            own seed). It does not wait for answers
 *
 * netstack/start.h has more words. The exit code is 0 if the server has taken all of TCP and has
 * reported on the datagrams, and if an echo request was answered. */
#include <guest/arrivals.h>
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/sort.h>
#include <guest/thread.h>
#include <netstack/iperf.h>
#include <netstack/ping.h>
#include <netstack/socket.h>
#include <netstack/start.h>

static u32 to;

/* ---- echo requests: all in interrupts of vCPU 0, where the bottom half runs ---- */

#define MOST 8192

static struct {
    u64 sent[MOST]; /* the time at which request number i was sent; 0: it was answered */
    u64 rtt[MOST];  /* round-trip times in ns; sorted at the end */
    u32 requests, answers;
    u64 end;
    struct arrivals next;
    struct timer timer;
    struct semaphore over;
} echo;

/* Counts an echo answer, only once for each request; the bottom half calls it. */
static void on_reply(u32 ip, u16 id, u16 seq) {
    if (ip != to || seq >= echo.requests || !echo.sent[seq]) return;
    echo.rtt[echo.answers++] = time_ns() - echo.sent[seq];
    echo.sent[seq] = 0;
}

/* Sends the next echo request, runs the bottom half so that it goes out at once, and sets the timer
 * for the one after it. */
static void on_echo_timer(struct timer *t) {
    if (echo.requests == MOST || echo.next.next >= echo.end) {
        sem_up(&echo.over);
        return;
    }
    echo.sent[echo.requests] = time_ns();
    net_ping(to, (u16)takt_vm_id(), (u16)echo.requests++);
    net_guest_run();
    arrivals_advance(&echo.next);
    timer_start(t, echo.next.next, on_echo_timer, NULL);
}

/* Sends echo requests at random times for `ns` and prints the distribution of the round-trip times.
 * Returns false if no answer came. Interrupts are off where it touches what the handlers use. */
static bool ping(u64 ns, u64 rate) {
    u64 sum = 0, flags = irq_save();

    sem_init(&echo.over, 0);
    echo.next = arrivals_begin(cmdline_u64("seed", takt_seed()), rate, time_ns());
    echo.end = time_ns() + ns;
    net_ping_on_reply(on_reply);
    timer_start(&echo.timer, echo.next.next, on_echo_timer, NULL);
    irq_restore(flags);
    sem_down(&echo.over);
    sleep_ns(NS_PER_S / 2); /* time for answers that are on their way */
    flags = irq_save();
    net_ping_on_reply(NULL);
    irq_restore(flags);
    sort_u64(echo.rtt, echo.answers);
    for (u32 i = 0; i < echo.answers; i++) sum += echo.rtt[i];
    if (!echo.answers) {
        printf("load: echo %u requests, no answer\n", echo.requests);
        return false;
    }
    printf("load: echo %u requests, %u answers, rtt ns p50 %lu p99 %lu max %lu mean %lu\n",
           echo.requests, echo.answers, echo.rtt[(echo.answers - 1) / 2],
           echo.rtt[(echo.answers * 99 + 99) / 100 - 1], echo.rtt[echo.answers - 1],
           sum / echo.answers);
    return true;
}

/* Makes the traffic that the command line asks for. Returns 1 if any of it failed. */
int main(void) {
    bool ok;

    to = net_cmdline_ip("to", 0x0a000002);
    if (net_start(8 * net_bufs_for(NET_RCVBUF_MIN))) guest_panic("load: there is no network");
    sleep_ns(cmdline_u64("start_ms", 0) * NS_PER_MS + 1);
    ok = iperf_client("load");
    if (cmdline_has("ping_ms"))
        ok &= ping(cmdline_u64("ping_ms", 0) * NS_PER_MS, cmdline_u64("ping_rate", 100));
    sleep_ns(NS_PER_S / 4); /* time for the last acknowledgement to go out */
    return !ok;
}
