/* The console of a VM: two rings of bytes, and a 16550 UART by which guests can use them. */
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
    struct console_ring out, in; /* from the guest, to the guest. All zeros means empty */
};

/* The next four move bytes into a ring or out of it, and return how many. They take the ring's
 * lock, and may be called from any pCPU.
 *
 * ring_put() drops the bytes that do not fit; ring_get() takes out at most `max` bytes. */
unsigned ring_put(struct console_ring *r, const char *s, unsigned len);
unsigned ring_get(struct console_ring *r, char *s, unsigned max);
/* Takes out one line with its newline. If the ring holds no newline, takes nothing, unless there
 * are `max` bytes, which it takes then. */
unsigned ring_get_line(struct console_ring *r, char *s, unsigned max);
/* Puts output of the guest into the ring `out`, and counts the bytes that do not fit. */
unsigned vconsole_put(struct vconsole *c, const char *s, unsigned len);

/* A 16550, with the registers that drivers look for. There is no lock: if several vCPUs of a guest
 * use it at once, the guest reads nonsense, as it would on hardware. */
struct vuart {
    struct vconsole *console;
    u8 reg[8], divisor[2];
    u8 line_break;    /* BREAK_* of vuart.c; the operator sets it, from any pCPU */
    bool thr_pending; /* the transmitter has become empty, and IIR was not read since then */
    bool waits; /* a guest that has sent too much has to wait, so that no byte is lost. Constant */
    u32 irq;    /* not 0 if it wants an interrupt; set by vuart_update() */
};

/* Returns whether a program has the port open: the guest's driver has set DTR. */
bool vuart_is_open(const struct vuart *u);
/* The operator interrupts the line for a moment (BREAK), and then sends `c`. Returns false, and
 * does nothing, if the guest has not read yet what was typed before. From any pCPU. */
bool vuart_break(struct vuart *u, char c);
/* Computes u->irq. To be called after each access, and when the operator has typed something. From
 * any pCPU. */
void vuart_update(struct vuart *u);
/* The bus_fn (vdev/bus.h) of a struct vuart at the ports TAKT_UART_PORT to TAKT_UART_PORT + 7. A
 * wider access is done as one access to each byte. */
void vuart_access(void *dev, const struct bus_access *a, u64 *value);

#endif
