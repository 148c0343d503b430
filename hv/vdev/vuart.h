/* A 16550 whose output goes to the VM's console ring; also the console ring itself. */
#ifndef HV_VDEV_VUART_H
#define HV_VDEV_VUART_H

#include "lib/spinlock.h"
#include "vdev/bus.h"

#define CONSOLE_RING 4096

struct vconsole {
    char out[CONSOLE_RING], in[256];
    u32 out_head, out_tail, in_head, in_tail; /* free-running */
    u64 dropped;                              /* bytes of output that found the ring full */
    struct spinlock lock;
    void (*more)(struct vconsole *c); /* output came. Called without the lock; may be NULL */
};

void vconsole_init(struct vconsole *c);
/* Each returns how many bytes went. */
unsigned vconsole_put(struct vconsole *c, const char *s, unsigned len);  /* from the guest */
unsigned vconsole_take(struct vconsole *c, char *s, unsigned max);       /* to the operator */
unsigned vconsole_type(struct vconsole *c, const char *s, unsigned len); /* from the operator */
unsigned vconsole_get(struct vconsole *c, char *s, unsigned max);        /* to the guest */
bool vconsole_typed(const struct vconsole *c);                           /* is there something to get? */

/* A guest whose vCPUs race for it sees nonsense, as on hardware; that hurts nobody else. */
struct vuart {
    struct vconsole *console;
    u8 ier, lcr, mcr, scr, fcr, dll, dlm;
    bool thr_pending;                   /* the transmitter ran empty and nobody has read IIR since */
    bool line;                          /* of the interrupt */
    void (*irq)(void *ctx, bool level); /* the line changed. May be NULL */
    void *ctx;
};

void vuart_init(struct vuart *u, struct vconsole *c, void (*irq)(void *, bool), void *ctx);
/* a->addr: TAKT_UART_PORT + 0..7; a wider access is one of each byte. */
void vuart_access(void *dev, const struct bus_access *a, u64 *value);
void vuart_input(struct vuart *u); /* the operator typed */

#endif
