/* Source: PC16550D data sheet, section 8. */
#include "drivers/uart.h"

#include <takt/io.h>

enum { REG_DATA, REG_IER, REG_IIR, REG_FCR = REG_IIR, REG_LCR, REG_MCR, REG_LSR, REG_MSR, REG_SCRATCH };
enum { REG_DIVISOR_LOW, REG_DIVISOR_HIGH }; /* while LCR_DLAB is set */

#define IER_RECEIVED 0x01
#define IER_EMPTY    0x02 /* the transmit FIFO is empty */
#define LCR_8N1      0x03
#define LCR_DLAB     0x80
#define MCR_ON       0x0b /* DTR, RTS, OUT2: lets its interrupt through */
#define LSR_DATA     0x01
#define LSR_OVERRUN  0x02
#define LSR_EMPTY    0x20 /* the transmit FIFO is empty */
#define LSR_IDLE     0x40 /* and the shift register too */
#define LSR_GONE     0xff /* nothing drives the bus: no 16550 has all bits set */
#define BASE_RATE    115200u

/* The FIFOs on, and what was in them dropped. The receiver's interrupt would come at 14 bytes. QEMU
 * keeps that many ready for somebody who polls; at a level of 1 it would hand out one byte a poll.
 * */
#define FCR_EMPTY_AT_14 0xc7
/* On as they are. The interrupt comes at 8 bytes: there is time for 8 more, 0.7 ms at 115,200 baud.
 * */
#define FCR_AT_8 0x81

static volatile u8 *in_memory(const struct uart *u, unsigned reg) { return u->regs + reg * u->stride; }

static u8 get(const struct uart *u, unsigned reg) {
    if (!u->regs) return inb((u16)(u->port + reg));
    if (u->stride == 4) return (u8)mmio_read32(in_memory(u, reg));
    return mmio_read8(in_memory(u, reg));
}

static void set(const struct uart *u, unsigned reg, u8 v) {
    if (!u->regs)
        outb((u16)(u->port + reg), v);
    else if (u->stride == 4)
        mmio_write32(in_memory(u, reg), v);
    else
        mmio_write8(in_memory(u, reg), v);
}

u16 uart_port(unsigned com) {
    static const u16 port[] = { 0x3f8, 0x2f8, 0x3e8, 0x2e8 };

    return com >= 1 && com <= 4 ? port[com - 1] : 0;
}

bool uart_there(const struct uart *u) { return u->port || u->regs; }

/* Sets the rate, or reads it if baud is 0. A divisor that the firmware left at 0 or 65535 is none.
 * */
static u32 set_rate(const struct uart *u, u32 baud) {
    u32 divisor = baud ? BASE_RATE / baud : 0;

    set(u, REG_LCR, LCR_DLAB);
    if (!divisor) divisor = get(u, REG_DIVISOR_LOW) | (u32)get(u, REG_DIVISOR_HIGH) << 8;
    if (divisor == 0 || divisor == 0xffff) divisor = 1;
    set(u, REG_DIVISOR_LOW, (u8)divisor);
    set(u, REG_DIVISOR_HIGH, (u8)(divisor >> 8));
    set(u, REG_LCR, LCR_8N1);
    return BASE_RATE / divisor;
}

bool uart_open(struct uart *u, const struct uart *where, u32 baud) {
    struct uart at = { .port = where->port, .regs = where->regs, .stride = where->stride };

    *u = (struct uart){ 0 };
    if (!uart_there(&at)) return false;
    set(&at, REG_LCR, LCR_8N1); /* so that the next write is not one of the divisor */
    set(&at, REG_IER, 0);
    set(&at, REG_SCRATCH, 0x5a);
    if (get(&at, REG_SCRATCH) != 0x5a || get(&at, REG_LSR) == LSR_GONE) return false;
    at.baud = set_rate(&at, baud);
    set(&at, REG_FCR, FCR_EMPTY_AT_14);
    set(&at, REG_MCR, MCR_ON);
    *u = at;
    return true;
}

bool uart_init(struct uart *u, u16 port, u32 baud) {
    return uart_open(u, &(struct uart){ .port = port }, baud ? baud : BASE_RATE);
}

void uart_listen(struct uart *u) {
    if (!uart_there(u)) return;
    set(u, REG_FCR, FCR_AT_8);
    set(u, REG_IER, IER_RECEIVED | IER_EMPTY);
}

void uart_interrupted(struct uart *u) {
    (void)get(u, REG_IIR);
    set(u, REG_IER, IER_RECEIVED);
}

unsigned uart_write(struct uart *u, const char *s, unsigned n) {
    if (!uart_there(u) || !(get(u, REG_LSR) & LSR_EMPTY)) return 0;
    n = n < UART_FIFO ? n : UART_FIFO;
    for (unsigned i = 0; i < n; i++) set(u, REG_DATA, (u8)s[i]);
    return n;
}

bool uart_drained(struct uart *u) { return !uart_there(u) || (get(u, REG_LSR) & LSR_IDLE); }

int uart_read(struct uart *u) {
    u8 lsr = uart_there(u) ? get(u, REG_LSR) : LSR_GONE;

    if (lsr == LSR_GONE) return -1;
    if (lsr & LSR_OVERRUN) u->overruns++;
    return lsr & LSR_DATA ? get(u, REG_DATA) : -1;
}
