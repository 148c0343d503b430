/* Console ring, and a 16550 on it that is always ready to send (data sheet: National PC16550D). */
#include <takt/abi.h>
#include "vdev/vuart.h"

/* ---- console ring ---- */

void vconsole_init(struct vconsole *c) {
    c->out_head = c->out_tail = c->in_head = c->in_tail = 0;
    c->dropped = 0;
    c->lock = (struct spinlock){ 0 };
    c->more = NULL;
}

/* Both rings' sizes are powers of two. */
static unsigned ring_put(char *ring, u32 size, u32 *head, u32 tail, const char *s, unsigned len) {
    unsigned n = MIN(len, size - (*head - tail));

    for (unsigned i = 0; i < n; i++) ring[(*head)++ & (size - 1)] = s[i];
    return n;
}

static unsigned ring_get(const char *ring, u32 size, u32 head, u32 *tail, char *s, unsigned max) {
    unsigned n = MIN(max, head - *tail);

    for (unsigned i = 0; i < n; i++) s[i] = ring[(*tail)++ & (size - 1)];
    return n;
}

unsigned vconsole_put(struct vconsole *c, const char *s, unsigned len) {
    unsigned n;

    spin_lock(&c->lock);
    n = ring_put(c->out, sizeof(c->out), &c->out_head, c->out_tail, s, len);
    c->dropped += len - n;
    spin_unlock(&c->lock);
    if (c->more && n) c->more(c);
    return n;
}

unsigned vconsole_take(struct vconsole *c, char *s, unsigned max) {
    unsigned n;

    spin_lock(&c->lock);
    n = ring_get(c->out, sizeof(c->out), c->out_head, &c->out_tail, s, max);
    spin_unlock(&c->lock);
    return n;
}

unsigned vconsole_type(struct vconsole *c, const char *s, unsigned len) {
    unsigned n;

    spin_lock(&c->lock);
    n = ring_put(c->in, sizeof(c->in), &c->in_head, c->in_tail, s, len);
    spin_unlock(&c->lock);
    return n;
}

unsigned vconsole_get(struct vconsole *c, char *s, unsigned max) {
    unsigned n;

    spin_lock(&c->lock);
    n = ring_get(c->in, sizeof(c->in), c->in_head, &c->in_tail, s, max);
    spin_unlock(&c->lock);
    return n;
}

bool vconsole_typed(const struct vconsole *c) {
    return __atomic_load_n(&c->in_head, __ATOMIC_RELAXED) != __atomic_load_n(&c->in_tail, __ATOMIC_RELAXED);
}

/* ---- 16550 ---- */

enum { RBR, IER, IIR, LCR, MCR, LSR, MSR, SCR };

#define IER_RDA     0x01
#define IER_THRE    0x02
#define IIR_NONE    0x01
#define IIR_THRE    0x02
#define IIR_RDA     0x04
#define FCR_ENABLE  0x01
#define FCR_CLEAR_R 0x02
#define LCR_DLAB    0x80
#define MCR_OUT2    0x08 /* on a PC it lets the interrupt through */
#define MCR_LOOP    0x10
#define LSR_READY   0x01
#define LSR_EMPTY   0x60 /* holding register and transmitter */
#define MSR_PRESENT 0xb0 /* carrier, data set ready, clear to send */

static u8 cause(const struct vuart *u) {
    if ((u->ier & IER_RDA) && vconsole_typed(u->console)) return IIR_RDA;
    if ((u->ier & IER_THRE) && u->thr_pending) return IIR_THRE;
    return IIR_NONE;
}

static void update_line(struct vuart *u) {
    bool level = cause(u) != IIR_NONE && (u->mcr & MCR_OUT2);

    if (level == u->line) return;
    u->line = level;
    if (u->irq) u->irq(u->ctx, level);
}

static u8 modem_status(const struct vuart *u) {
    u8 m = u->mcr;

    if (!(m & MCR_LOOP)) return MSR_PRESENT;
    /* RTS, DTR, OUT1, OUT2 come back as CTS, DSR, RI, DCD. */
    return (u8)((m & 2) << 3 | (m & 1) << 5 | (m & 4) << 4 | (m & 8) << 4);
}

static u8 read_reg(struct vuart *u, unsigned reg) {
    char c = 0;
    u8 v;

    switch (reg) {
    case RBR:
        if (u->lcr & LCR_DLAB) return u->dll;
        vconsole_get(u->console, &c, 1);
        return (u8)c;
    case IER: return u->lcr & LCR_DLAB ? u->dlm : u->ier;
    case IIR:
        v = cause(u);
        if (v == IIR_THRE) u->thr_pending = false;
        return v | (u->fcr & FCR_ENABLE ? 0xc0 : 0);
    case LCR: return u->lcr;
    case MCR: return u->mcr;
    case LSR: return LSR_EMPTY | (vconsole_typed(u->console) ? LSR_READY : 0);
    case MSR: return modem_status(u);
    default: return u->scr;
    }
}

static void send(struct vuart *u, char c) {
    if (u->mcr & MCR_LOOP)
        vconsole_type(u->console, &c, 1);
    else
        vconsole_put(u->console, &c, 1);
    u->thr_pending = true;
}

static void write_fcr(struct vuart *u, u8 v) {
    char c;

    u->fcr = v & 0xc9;
    while ((v & FCR_CLEAR_R) && vconsole_get(u->console, &c, 1))
        ;
}

static void write_reg(struct vuart *u, unsigned reg, u8 v) {
    switch (reg) {
    case RBR:
        if (u->lcr & LCR_DLAB)
            u->dll = v;
        else
            send(u, (char)v);
        break;
    case IER:
        if (u->lcr & LCR_DLAB) {
            u->dlm = v;
            break;
        }
        u->thr_pending |= (v & IER_THRE) && !(u->ier & IER_THRE);
        u->ier = v & 0xf;
        break;
    case IIR: write_fcr(u, v); break;
    case LCR: u->lcr = v; break;
    case MCR: u->mcr = v & 0x1f; break;
    case SCR: u->scr = v; break;
    }
}

void vuart_init(struct vuart *u, struct vconsole *c, void (*irq)(void *, bool), void *ctx) {
    *u = (struct vuart){ .console = c, .irq = irq, .ctx = ctx, .dll = 1 };
}

void vuart_access(void *dev, const struct bus_access *a, u64 *value) {
    struct vuart *u = dev;
    bool quiet = !a->write && a->addr > TAKT_UART_PORT + IIR; /* reading those changes nothing */

    for (unsigned i = 0; i < a->size; i++) {
        unsigned reg = (unsigned)(a->addr - TAKT_UART_PORT + i) & 7;

        if (a->write)
            write_reg(u, reg, (u8)(*value >> (8 * i)));
        else
            *value |= (u64)read_reg(u, reg) << (8 * i);
    }
    if (!quiet) update_line(u);
}

void vuart_input(struct vuart *u) { update_line(u); }
