/* The driver of a 16550 serial port. The hypervisor uses it for its console, and guests on a bare
 * machine do. A FIFO of 16 bytes buffers each direction. No function waits without a bound, because
 * a port whose other end is stuck must not stop the machine. Source: PC16550D data sheet, section
 * 8. */
#include "drivers/uart.h"

#include <takt/io.h>

enum {
    REG_DATA,
    REG_IER,
    REG_IIR,
    REG_FCR = REG_IIR,
    REG_LCR,
    REG_MCR,
    REG_LSR,
    REG_MSR,
    REG_SCRATCH
};
enum { REG_DIVISOR_LOW, REG_DIVISOR_HIGH }; /* while LCR_DLAB is set */

#define IER_RECEIVED 0x01
#define IER_EMPTY    0x02 /* the transmit FIFO is empty */
#define LCR_8N1      0x03
#define LCR_DLAB     0x80
#define MCR_ON       0x0b /* DTR, RTS, OUT2: lets its interrupt through */
#define LSR_DATA     0x01
#define LSR_OVERRUN  0x02
#define LSR_EMPTY    0x20 /* the transmit FIFO is empty */
#define LSR_IDLE     0x40 /* the transmit FIFO and the shift register are empty */
#define LSR_GONE     0xff /* nothing drives the bus: no 16550 has all bits set */
#define BASE_RATE    115200u

/* Switches the FIFOs on and empties them. The receiver's interrupt would come at 14 bytes. QEMU
 * keeps that many bytes ready for a driver that polls; with a level of 1 each poll would find one
 * byte. */
#define FCR_EMPTY_AT_14 0xc7
/* Leaves the FIFOs as they are. The interrupt comes at 8 bytes, which leaves time until 8 more have
 * come: 0.7 ms at 115,200 baud. */
#define FCR_AT_8 0x81

static volatile u8 *in_memory(const struct uart *u, unsigned reg) {
    return u->regs + reg * u->stride;
}

static u8 uart_get(const struct uart *u, unsigned reg) {
    if (!u->regs) return inb((u16)(u->port + reg));
    if (u->stride == 4) return (u8)mmio_read32(in_memory(u, reg));
    return mmio_read8(in_memory(u, reg));
}

/* Writes a register of the UART: by port, or in memory with 1 or 4 bytes for each register. Some
 * machines take only 4-byte accesses there. */
static void uart_set(const struct uart *u, unsigned reg, u8 v) {
    if (!u->regs)
        outb((u16)(u->port + reg), v);
    else if (u->stride == 4)
        mmio_write32(in_memory(u, reg), v);
    else
        mmio_write8(in_memory(u, reg), v);
}

u16 uart_port(unsigned com) {
    static const u16 port[] = { 0x3f8, 0x2f8, 0x3e8, 0x2e8 };

    if (com < 1 || com > 4) return 0;
    return port[com - 1];
}

bool uart_there(const struct uart *u) { return u->port || u->regs; }

/* Sets the rate, or keeps it if baud is 0, and returns it. If the firmware left the divisor at 0 or
 * 65535, it has set no rate: then the divisor is 1. */
static u32 set_rate(const struct uart *u, u32 baud) {
    u32 divisor = 0;

    if (baud) divisor = BASE_RATE / baud;
    uart_set(u, REG_LCR, LCR_DLAB);
    if (!divisor) divisor = uart_get(u, REG_DIVISOR_LOW) | (u32)uart_get(u, REG_DIVISOR_HIGH) << 8;
    if (divisor == 0 || divisor == 0xffff) divisor = 1;
    uart_set(u, REG_DIVISOR_LOW, (u8)divisor);
    uart_set(u, REG_DIVISOR_HIGH, (u8)(divisor >> 8));
    uart_set(u, REG_LCR, LCR_8N1);
    return BASE_RATE / divisor;
}

/* Looks for a 16550 at the place that `where` names, and sets it up. Returns false if there is
 * none. *u stays all zeros until the scratch register has given back what was written to it. That
 * shows that there is a UART: at an empty place no register keeps what is written. */
bool uart_open(struct uart *u, const struct uart *where, u32 baud) {
    struct uart at = { .port = where->port, .regs = where->regs, .stride = where->stride };

    *u = (struct uart){ 0 };
    if (!uart_there(&at)) return false;
    uart_set(&at, REG_LCR, LCR_8N1); /* so that the next write is not one of the divisor */
    uart_set(&at, REG_IER, 0);
    uart_set(&at, REG_SCRATCH, 0x5a);
    if (uart_get(&at, REG_SCRATCH) != 0x5a || uart_get(&at, REG_LSR) == LSR_GONE) return false;
    at.baud = set_rate(&at, baud);
    uart_set(&at, REG_FCR, FCR_EMPTY_AT_14);
    uart_set(&at, REG_MCR, MCR_ON);
    *u = at;
    return true;
}

bool uart_init(struct uart *u, u16 port, u32 baud) {
    if (!baud) baud = BASE_RATE;
    return uart_open(u, &(struct uart){ .port = port }, baud);
}

void uart_listen(struct uart *u) {
    if (!uart_there(u)) return;
    uart_set(u, REG_FCR, FCR_AT_8);
    uart_set(u, REG_IER, IER_RECEIVED | IER_EMPTY);
}

void uart_interrupted(struct uart *u) {
    (void)uart_get(u, REG_IIR);
    uart_set(u, REG_IER, IER_RECEIVED);
}

unsigned uart_write(struct uart *u, const char *s, unsigned n) {
    if (!uart_there(u) || !(uart_get(u, REG_LSR) & LSR_EMPTY)) return 0;
    if (n > UART_FIFO) n = UART_FIFO;
    for (unsigned i = 0; i < n; i++) uart_set(u, REG_DATA, (u8)s[i]);
    return n;
}

bool uart_drained(struct uart *u) { return !uart_there(u) || (uart_get(u, REG_LSR) & LSR_IDLE); }

/* Returns the next byte that was received, or -1 if there is none. Reading LSR clears its error
 * bits, so an overrun is counted here, or it would be lost. */
int uart_read(struct uart *u) {
    u8 lsr;

    if (!uart_there(u)) return -1;
    lsr = uart_get(u, REG_LSR);
    if (lsr == LSR_GONE) return -1;
    if (lsr & LSR_OVERRUN) u->overruns++;
    if (!(lsr & LSR_DATA)) return -1;
    return uart_get(u, REG_DATA);
}
