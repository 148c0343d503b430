/* A 16550 whose output goes to the VM's console ring; also the console ring itself, and debugcon. */
#ifndef HV_VDEV_VUART_H
#define HV_VDEV_VUART_H

#include "lib/spinlock.h"
#include "vdev/bus.h"

#define CONSOLE_RING 4096

struct vconsole {
    char out[CONSOLE_RING], in[256];
    u32 out_head, out_tail, in_head, in_tail; /* free-running */
    u64 dropped;                              /* bytes that found the ring full */
    struct spinlock lock;
    void (*more)(struct vconsole *c); /* output came: hv/shell drains it as a work item. May be NULL */
};

void vconsole_init(struct vconsole *c);
unsigned vconsole_put(struct vconsole *c, const char *s,
                      unsigned len); /* from the guest; returns how many fitted */
unsigned vconsole_take(struct vconsole *c, char *s, unsigned max);       /* to the operator */
unsigned vconsole_type(struct vconsole *c, const char *s, unsigned len); /* from the operator */
unsigned vconsole_get(struct vconsole *c, char *s, unsigned max);        /* to the guest */

struct vuart {
    struct vconsole *console;
    u8 ier, lcr, mcr, scr, fcr, dll, dlm;
    bool thr_pending;
    void (*irq)(void *ctx, bool level);
    void *ctx;
};

void vuart_init(struct vuart *u, struct vconsole *c, void (*irq)(void *, bool), void *ctx);
void vuart_access(void *dev, const struct bus_access *a, u64 *value); /* a->addr: TAKT_UART_PORT + 0..7 */
void vuart_input(struct vuart *u);                                    /* the operator typed */

#endif
