/* The console of a VM: two rings of bytes, what the guest has printed and what the operator has
 * typed, and a 16550 (a PC's serial port) on them for guests that expect one. It is always ready to
 * send (data sheet: National PC16550D). */
#include <takt/abi.h>
#include "trace/trace.h"
#include "vdev/vuart.h"
#include "x86/percpu.h"

DEFINE_COUNTER(console_bytes_dropped); /* output that found its ring full */

/* Puts bytes into a ring, as many as fit. Returns how many. */
unsigned ring_put(struct console_ring *r, const char *s, unsigned len) {
    spin_lock(&r->lock);
    len = MIN(len, CONSOLE_RING - (r->head - r->tail));
    for (unsigned i = 0; i < len; i++) r->data[r->head++ % CONSOLE_RING] = s[i];
    spin_unlock(&r->lock);
    return len;
}

/* Takes at most `max` bytes out of a ring. Returns how many. */
unsigned ring_get(struct console_ring *r, char *s, unsigned max) {
    spin_lock(&r->lock);
    max = MIN(max, r->head - r->tail);
    for (unsigned i = 0; i < max; i++) s[i] = r->data[r->tail++ % CONSOLE_RING];
    spin_unlock(&r->lock);
    return max;
}

/* Takes the next line out of a ring, and returns its length, 0 if there is none. The log takes
 * whole lines. A ring that holds only the beginning of a line waits for the rest. */
unsigned ring_get_line(struct console_ring *r, char *s, unsigned max) {
    unsigned n = 0;
    bool whole = false;

    spin_lock(&r->lock);
    while (n < max && !whole && r->tail + n != r->head) {
        s[n] = r->data[(r->tail + n) % CONSOLE_RING];
        whole = s[n] == '\n';
        n++;
    }
    if (n < max && !whole) n = 0;
    r->tail += n;
    spin_unlock(&r->lock);
    return n;
}

/* Takes bytes as output of the guest. What does not fit into the ring is counted as dropped.
 * Returns how many were taken. */
unsigned vconsole_put(struct vconsole *c, const char *s, unsigned len) {
    unsigned n = ring_put(&c->out, s, len);

    console_bytes_dropped.value[this_cpu()->id] += len - n;
    return n;
}

/* ---- 16550 ---- */

enum { DATA, IER, IIR, LCR, MCR, LSR, MSR, SCR, FCR = IIR };

#define FIFO        16u /* bytes that a driver sends without looking at LSR between them */
#define IER_RDA     0x01
#define IER_THRE    0x02
#define IIR_NONE    0x01
#define IIR_THRE    0x02
#define IIR_RDA     0x04
#define FCR_ENABLE  0x01
#define FCR_CLEAR_R 0x02
#define IIR_FIFOS   0xc0 /* the FIFOs are on */
#define LCR_DLAB    0x80
#define MCR_DTR     0x01
#define MCR_RTS     0x02
#define MCR_OUT1    0x04
#define MCR_OUT2    0x08
#define MCR_LOOP    0x10
#define LSR_READY   0x01
#define LSR_BREAK   0x10
#define LSR_EMPTY   0x60 /* holding register and transmitter */
#define MSR_CTS     0x10
#define MSR_DSR     0x20
#define MSR_RI      0x40
#define MSR_DCD     0x80

/* A BREAK comes as a byte 0. The first look at LSR while that byte is the next one tells that it
 * was a BREAK. */
enum { BREAK_NONE, BREAK_UNTOLD, BREAK_TOLD };

static u8 break_of(const struct vuart *u) {
    return __atomic_load_n(&u->line_break, __ATOMIC_ACQUIRE);
}

static void set_break(struct vuart *u, u8 line_break) {
    __atomic_store_n(&u->line_break, line_break, __ATOMIC_RELEASE);
}

/* Is there something that the guest has not read? */
static bool typed(const struct vuart *u) {
    if (break_of(u) != BREAK_NONE) return true;
    return __atomic_load_n(&u->console->in.head, __ATOMIC_RELAXED) != u->console->in.tail;
}

/* May the guest send a whole FIFO? */
static bool has_room(const struct vuart *u) {
    const struct console_ring *r = &u->console->out;

    if (!u->waits) return true;
    return __atomic_load_n(&r->head, __ATOMIC_RELAXED) -
               __atomic_load_n(&r->tail, __ATOMIC_RELAXED) <=
           CONSOLE_RING - FIFO;
}

/* Does a driver of the guest use the UART? It does if it has set DTR ("data terminal ready"), not
 * in loop mode. */
bool vuart_is_open(const struct vuart *u) {
    return (u->reg[MCR] & (MCR_DTR | MCR_LOOP)) == MCR_DTR;
}

/* Sends a BREAK and a byte behind it. The BREAK is set first, so the guest never sees the byte
 * alone. */
bool vuart_break(struct vuart *u, char c) {
    if (typed(u)) return false;
    set_break(u, BREAK_UNTOLD);
    ring_put(&u->console->in, &c, 1);
    return true;
}

/* Returns why the UART wants an interrupt, as a value of IIR. */
static u8 cause(const struct vuart *u) {
    if (typed(u) && u->reg[IER] & IER_RDA) return IIR_RDA;
    if (u->thr_pending && u->reg[IER] & IER_THRE && has_room(u)) return IIR_THRE;
    return IIR_NONE;
}

/* Sets the UART's interrupt line as the state of the UART wants it. u->irq says whether the
 * interrupt line is asserted. */
void vuart_update(struct vuart *u) {
    bool wants;

    /* Somebody may type between the look and the store. The second look sees that. */
    do {
        wants = cause(u) != IIR_NONE;
        __atomic_store_n(&u->irq, wants, __ATOMIC_SEQ_CST);
    } while (wants != (cause(u) != IIR_NONE));
}

/* Returns why the UART wants an interrupt, as the guest reads it in IIR. To read there that the
 * transmitter is empty acknowledges it. */
static u8 take_cause(struct vuart *u) {
    u8 why = cause(u);

    if (why == IIR_THRE) u->thr_pending = false;
    return why;
}

/* Returns the register MSR: what the other end of the line says. That end is always there and
 * ready. In loop mode RTS, DTR, OUT1 and OUT2 come back as CTS, DSR, RI and DCD. */
static u8 modem_status(u8 mcr) {
    u8 status = 0;

    if (!(mcr & MCR_LOOP)) return MSR_DCD | MSR_DSR | MSR_CTS;
    if (mcr & MCR_RTS) status |= MSR_CTS;
    if (mcr & MCR_DTR) status |= MSR_DSR;
    if (mcr & MCR_OUT1) status |= MSR_RI;
    if (mcr & MCR_OUT2) status |= MSR_DCD;
    return status;
}

/* Reads register n as the guest sees it. LCR_DLAB exchanges the first two for the rate's divisor,
 * which is kept and means nothing here. */
static u8 read_reg(struct vuart *u, unsigned n) {
    char c = 0;

    if (n <= IER && u->reg[LCR] & LCR_DLAB) return u->divisor[n];
    switch (n) {
    case DATA:
        if (break_of(u) == BREAK_NONE)
            ring_get(&u->console->in, &c, 1);
        else
            set_break(u, BREAK_NONE);
        return (u8)c;
    case IIR:
        if (u->reg[FCR] & FCR_ENABLE) return take_cause(u) | IIR_FIFOS;
        return take_cause(u);
    case LSR:
        if (has_room(u)) c = LSR_EMPTY;
        if (typed(u)) c |= LSR_READY;
        if (break_of(u) != BREAK_UNTOLD) return (u8)c;
        set_break(u, BREAK_TOLD);
        return (u8)c | LSR_BREAK;
    case MSR: return modem_status(u->reg[MCR]);
    default: return u->reg[n];
    }
}

/* Writes register n. A written byte is sent at once, so the transmitter is empty again, which is
 * noted as a reason for an interrupt. In loop mode the byte comes back as input. */
static void write_reg(struct vuart *u, unsigned n, u8 v) {
    static const u8 writable[8] = {
        [IER] = 0xf, [FCR] = 0xc9, [LCR] = 0xff, [MCR] = 0x1f, [SCR] = 0xff
    };
    char c = (char)v;

    if (n <= IER && u->reg[LCR] & LCR_DLAB) {
        u->divisor[n] = v;
        return;
    }
    if (n == DATA) {
        if (u->reg[MCR] & MCR_LOOP)
            ring_put(&u->console->in, &c, 1);
        else
            vconsole_put(u->console, &c, 1);
        u->thr_pending = true;
    }
    if (n == IER && v & ~u->reg[IER] & IER_THRE) u->thr_pending = true;
    if (n == FCR && v & FCR_CLEAR_R) set_break(u, BREAK_NONE);
    if (n == FCR && v & FCR_CLEAR_R)
        while (ring_get(&u->console->in, &c, 1))
            ;
    u->reg[n] = v & writable[n];
}

/* Carries out a guest's access to a register of its UART. Called when the guest has exited because
 * it accesses one of the UART's ports. `*value` is what it writes, or becomes what it reads; it is
 * 0 before a read. */
void vuart_access(void *dev, const struct bus_access *a, u64 *value) {
    for (unsigned i = 0; i < a->size; i++) {
        unsigned n = (unsigned)(a->addr - TAKT_UART_PORT + i) & 7;

        if (a->write)
            write_reg(dev, n, (u8)(*value >> (8 * i)));
        else
            *value |= (u64)read_reg(dev, n) << (8 * i);
    }
}
