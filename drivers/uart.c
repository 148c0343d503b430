/* Source: PC16550D data sheet, section 8. */
#include "drivers/uart.h"

#include <takt/io.h>

enum { REG_DATA, REG_IER, REG_FCR, REG_LCR, REG_MCR, REG_LSR, REG_MSR, REG_SCRATCH };

/* On, and empty. It would interrupt when it has received 14 bytes, and QEMU has no more ready than that:
 * where somebody polls, a byte a poll if that is 1. */
#define FCR_FIFOS 0xc7
#define LSR_DATA  0x01
#define LSR_EMPTY 0x20 /* the transmit FIFO is empty */
#define LSR_IDLE  0x40 /* and the shift register too */

u16 uart_port(unsigned com) {
    static const u16 port[] = { 0x3f8, 0x2f8, 0x3e8, 0x2e8 };

    return com >= 1 && com <= 4 ? port[com - 1] : 0;
}

bool uart_init(struct uart *u, u16 port, u32 baud) {
    u32 divisor = 115200 / (baud ? baud : 115200);

    u->port = 0;
    if (!port) return false;
    outb(port + REG_IER, 0);
    outb(port + REG_SCRATCH, 0x5a);
    if (inb(port + REG_SCRATCH) != 0x5a || inb(port + REG_LSR) == 0xff) return false;
    outb(port + REG_LCR, 0x80);
    outb(port + REG_DATA, (u8)divisor);
    outb(port + REG_IER, (u8)(divisor >> 8));
    outb(port + REG_LCR, 3);
    outb(port + REG_FCR, FCR_FIFOS);
    outb(port + REG_MCR, 0x0b); /* DTR, RTS, OUT2: lets its interrupt through */
    u->port = port;
    return true;
}

unsigned uart_write(struct uart *u, const char *s, unsigned n) {
    if (!u->port || !(inb(u->port + REG_LSR) & LSR_EMPTY)) return 0;
    n = n < UART_FIFO ? n : UART_FIFO;
    for (unsigned i = 0; i < n; i++) outb(u->port + REG_DATA, (u8)s[i]);
    return n;
}

bool uart_drained(struct uart *u) { return !u->port || (inb(u->port + REG_LSR) & LSR_IDLE); }

int uart_read(struct uart *u) {
    u8 lsr = u->port ? inb(u->port + REG_LSR) : 0xff;

    if (lsr == 0xff || !(lsr & LSR_DATA)) /* 0xff: it went away */
        return -1;
    return inb(u->port + REG_DATA);
}
