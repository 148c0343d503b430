/* The client of mixed.c, in a VM of its own. It raises events at random, rate=R (300) a second,
 * beginning start_ms=M (1000) after the boot of the hypervisor. The times follow from seed=S, or
 * else from the machine's seed. The events go to port=P (1) of VM server=ID (1). */
#include <guest/arrivals.h>
#include <guest/event.h>
#include <guest/guest.h>
#include <guest/time.h>

/* Sends each event when it is due by the hypervisor's clock, which the server knows as well. */
int main(void) {
    u32 server = cmdline_u64("server", 1), port = cmdline_u64("port", 1);
    u64 seed = cmdline_u64("seed", arrivals_seed(takt_machine_seed(), server));
    struct arrivals due =
        arrivals_begin(seed, cmdline_u64("rate", 300), cmdline_u64("start_ms", 1000) * NS_PER_MS);
    u64 offset = hypercall0(TAKT_HC_TIME) - time_ns();
    int own;

    while ((own = event_bind(server, port)) < 0)
        nap_until(time_ns() + NS_PER_MS); /* the server may not have made the port yet */
    for (;; arrivals_advance(&due)) {
        while (time_ns() + offset < due.next) nap_until(due.next - offset);
        event_send(own);
    }
}
