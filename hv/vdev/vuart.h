/* A 16550 whose output goes to the VM's console rings; also these rings themselves. */
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

/* Each returns how many bytes went; what does not fit is dropped. */
unsigned ring_put(struct console_ring *r, const char *s, unsigned len);
unsigned ring_get(struct console_ring *r, char *s, unsigned max);
/* The same of one line, with its end; nothing until it has one, or fills `max`. */
unsigned ring_get_line(struct console_ring *r, char *s, unsigned max);
unsigned vconsole_put(struct vconsole *c, const char *s, unsigned len); /* into `out` */

/* Registers 16550 drivers look for, without the interrupt line: there is no controller that it could lead to.
 * A guest whose vCPUs race for it sees nonsense, as on hardware; that hurts nobody else. */
struct vuart {
    struct vconsole *console;
    u8 reg[8], divisor[2];
    bool thr_pending; /* the transmitter ran empty and nobody has read IIR since */
};

/* a->addr: TAKT_UART_PORT + 0..7; a wider access is one of each byte. */
void vuart_access(void *dev, const struct bus_access *a, u64 *value);

#endif
