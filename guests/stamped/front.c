/* Stamps in a guest with the network stack and one vCPU.
 *
 *   I i  around an interrupt
 *   R r  around a frame's way through the stack
 *   P p  around TCP's part of that
 *   Y y  around net_poll()
 *   N n  around the bottom half
 *   < >  around a copy of 1,000 bytes or more
 *   Q q  around QueueNotify */
#include <guest/guest.h>
#include <guest/trap.h>
#include <netstack/guest.h>
#include "drivers/virtio_dev.h"
#include "guests/stamped/stamps.h"

struct pbuf;
struct netif;

void __wrap_trap(struct trap_frame *f);
void __real_trap(struct trap_frame *f);
void __wrap_net_rx(struct net_buf *nb, u32 offset, u32 len);
void __real_net_rx(struct net_buf *nb, u32 offset, u32 len);
void __wrap_tcp_input(struct pbuf *p, struct netif *in);
void __real_tcp_input(struct pbuf *p, struct netif *in);
u64 __wrap_net_poll(void);
u64 __real_net_poll(void);
void __wrap_net_guest_run(void);
void __real_net_guest_run(void);
bool __wrap_virtio_kick(struct virtio_dev *d, u32 queue, struct vring_front *r);
bool __real_virtio_kick(struct virtio_dev *d, u32 queue, struct vring_front *r);

void __wrap_trap(struct trap_frame *f) {
    stamp('I');
    __real_trap(f);
    stamp('i');
}

void __wrap_net_rx(struct net_buf *nb, u32 offset, u32 len) {
    stamp('R');
    __real_net_rx(nb, offset, len);
    stamp('r');
}

void __wrap_tcp_input(struct pbuf *p, struct netif *in) {
    stamp('P');
    __real_tcp_input(p, in);
    stamp('p');
}

/* Runs net_poll() with a stamp before and a stamp behind it. */
u64 __wrap_net_poll(void) {
    u64 next;

    stamp('Y');
    next = __real_net_poll();
    stamp('y');
    return next;
}

void __wrap_net_guest_run(void) {
    stamp('N');
    __real_net_guest_run();
    stamp('n');
}

/* Runs virtio_kick() with a stamp before and a stamp behind it. */
bool __wrap_virtio_kick(struct virtio_dev *d, u32 queue, struct vring_front *r) {
    bool told;

    stamp('Q');
    told = __real_virtio_kick(d, queue, r);
    stamp('q');
    return told;
}
