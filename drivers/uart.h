/* A 16550 serial port, whose registers are I/O ports or lie in memory. No function waits without a
 * bound. */
#ifndef DRIVERS_UART_H
#define DRIVERS_UART_H

#include <takt/types.h>

#define UART_FIFO 16

struct uart {
    u16 port;          /* of the first register; 0: it is not reached by ports */
    volatile u8 *regs; /* the first register in memory; NULL: it is not in memory */
    /* bytes from one register in memory to the next: 1, or 4 with 32-bit accesses */
    u8 stride;
    u32 baud;     /* as uart_open() found or set it */
    u32 overruns; /* times that the receiver lost bytes because nobody read them in time */
};

/* Returns the I/O port of "com1" to "com4"; 0 for another number. */
u16 uart_port(unsigned com);
/* Looks for a 16550 where `where` (which may be `u`) says by port, or regs and stride, and sets it
 * up: 8n1, FIFO on, interrupts off. `baud` is 50 to 115200 and supposes the usual clock of 1.8432
 * MHz; 0 keeps the rate that the firmware has set. Returns false, and *u is all zeros, if nothing
 * answers there. */
bool uart_open(struct uart *u, const struct uart *where, u32 baud);
/* The same for the 16550 whose first I/O port is `port`; `baud` 0 is 115200. */
bool uart_init(struct uart *u, u16 port, u32 baud);
bool uart_there(const struct uart *u); /* Returns whether uart_open() has found a port. */
/* Switches interrupts on. They come when half a FIFO of bytes has come, or when the line falls
 * silent. Until uart_interrupted() there is also one as soon as the port has nothing to send: it
 * shows whether interrupts of the port arrive at all. */
void uart_listen(struct uart *u);
/* Call this in the handler of the port's interrupts, which then reads all bytes that there are. */
void uart_interrupted(struct uart *u);
/* Gives the transmitter as many of `n` bytes as it takes now, at most one FIFO. Returns how many it
 * took. */
unsigned uart_write(struct uart *u, const char *s, unsigned n);
/* Returns whether the last bit has left. It is also true if there is no port. */
bool uart_drained(struct uart *u);
/* Returns the next byte that was received, or -1 if there is none. */
int uart_read(struct uart *u);

#endif
