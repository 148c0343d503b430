/* 16550 serial port. Never waits without a bound. */
#ifndef DRIVERS_UART_H
#define DRIVERS_UART_H

#include <takt/types.h>

#define UART_FIFO 16

struct uart {
    u16 port; /* 0: there is none */
};

/* The port of "com1".."com4"; 0 for another number. */
u16 uart_port(unsigned com);
/* 8n1, FIFO on, interrupts off. False, and u->port 0, if nothing answers at `port`. Baud is 50 to 115200. */
bool uart_init(struct uart *u, u16 port, u32 baud);
/* Gives the transmitter what it takes now, at most one FIFO: how many bytes went. */
unsigned uart_write(struct uart *u, const char *s, unsigned n);
/* Has the last bit left? Also true where there is no port. */
bool uart_drained(struct uart *u);
/* The next byte received, -1 if there is none. */
int uart_read(struct uart *u);

#endif
