/* The console rings of a VM, and a 16550 UART on them. */
#ifndef HV_VDEV_VUART_H
#define HV_VDEV_VUART_H

#include "lib/spinlock.h"
#include "vdev/bus.h"

#define CONSOLE_RING 4096

struct console_ring {
    u32 head, tail; /* free-running */
    struct spinlock lock;
    char data[CONSOLE_RING];
};

struct vconsole {
    struct console_ring out, in; /* from the guest, to the guest; all zeros: empty */
};

/* Put bytes in, and take them out. Each returns how many it moved; what does not fit is dropped.
 * They take the ring's lock. */
unsigned ring_put(struct console_ring *r, const char *s, unsigned len);
unsigned ring_get(struct console_ring *r, char *s, unsigned max);
/* Takes one line out, with its end. Takes nothing while the line has no end and does not fill
 * `max`. */
unsigned ring_get_line(struct console_ring *r, char *s, unsigned max);
/* Puts output of the guest in, and counts what is dropped. */
unsigned vconsole_put(struct vconsole *c, const char *s, unsigned len);

/* The registers that drivers of a 16550 look for. If vCPUs of a guest race for it they see
 * nonsense, as on hardware. */
struct vuart {
    struct vconsole *console;
    u8 reg[8], divisor[2];
    bool thr_pending; /* the transmitter ran empty, and IIR was not read since */
    u32 irq;          /* not 0: it wants an interrupt; vuart_update() keeps it */
};

/* Sets u->irq anew: after each access, and when somebody has typed. From any pCPU. */
void vuart_update(struct vuart *u);
/* bus_fn of a struct vuart. a->addr is TAKT_UART_PORT + 0 to 7; a wider access is one of each
 * byte. */
void vuart_access(void *dev, const struct bus_access *a, u64 *value);

#endif
