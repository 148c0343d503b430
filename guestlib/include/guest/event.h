/* Event channels: a port of this VM is joined with a port of another VM. Only on Takt. Functions
 * that return int return 0 (or a port), or the negative errno of the hypercall, which takt/abi.h
 * describes. */
#ifndef GUEST_EVENT_H
#define GUEST_EVENT_H

#include <takt/abi.h>

typedef void (*event_handler)(u32 port, void *arg);

/* Makes a port that remote_vm may bind. Returns the port. */
int event_alloc(u32 remote_vm);
/* Makes a port that is joined with remote_port of remote_vm. Returns the port. */
int event_bind(u32 remote_vm, u32 remote_port);
/* Closes a port, and raises an event at the port that it is joined with. */
int event_close(u32 port);
/* Raises an event at the port that this port is joined with. */
int event_send(u32 port);
/* While a port is masked, its events stay pending and do not interrupt. */
int event_mask(u32 port, bool masked);
/* Calls fn(port, arg) in an interrupt handler of `vcpu`, and of no other, for each event, also for
 * one that is pending already. If `fn` is NULL, events do not interrupt; event_take() polls them.
 */
int event_set_handler(u32 port, u32 vcpu, event_handler fn, void *arg);

/* Returns whether an event was pending, and clears it. */
bool event_take(u32 port);
/* Returns whether an event is pending, and leaves it so. */
bool event_is_pending(u32 port);
/* Blocks the vCPU until the port is pending, or for timeout_ns (0: without a limit). Returns 0, or
 * -ETIMEDOUT. The event stays pending until event_take(). */
int event_poll(u32 port, u64 timeout_ns);
/* Blocks the whole vCPU, with all its threads, until time_ns() reaches the deadline or an event
 * comes. That takes two exits, where a timer interrupt takes seven. Without Takt it is
 * sleep_until(). */
void nap_until(u64 deadline_ns);

/* Returns the page that Takt shares with this VM. */
struct takt_shared *event_shared(void);
void event_init(void); /* for the start of the guest */

#endif
