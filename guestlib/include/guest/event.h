/* Event channels: ports joined in pairs with ports of other VMs. Only on Takt. */
#ifndef GUEST_EVENT_H
#define GUEST_EVENT_H

#include <takt/abi.h>

typedef void (*event_handler)(u32 port, void *arg);

int event_alloc(u32 remote_vm);                 /* a port that remote_vm may bind; negative errno */
int event_bind(u32 remote_vm, u32 remote_port); /* own port, joined; negative errno */
int event_close(u32 port);
int event_send(u32 port);
int event_mask(u32 port, bool masked);
/* Calls fn(port, arg) in an interrupt handler of `vcpu`, and of no other, for each event, also for
 * one that is pending already; fn NULL: none, to poll. */
int event_set_handler(u32 port, u32 vcpu, event_handler fn, void *arg);

/* Was it pending? Clears it. */
bool event_take(u32 port);
bool event_is_pending(u32 port);
/* Blocks the vCPU until the port is pending, or for at most `timeout_ns` (0: as long as it takes). 0;
 * -ETIMEDOUT. The bit is left for event_take(). */
int event_poll(u32 port, u64 timeout_ns);
/* Puts the whole vCPU to sleep, other threads too, until time_ns() reaches the deadline or an event comes:
 * two exits in place of the seven of a timer interrupt. Off Takt as sleep_until(). */
void nap_until(u64 deadline_ns);

struct takt_shared *event_shared(void);
void event_init(void); /* start-up only */

#endif
