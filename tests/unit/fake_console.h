/* The console and the second serial port of tests. They keep what is written to them, and the
 * shell gets what the test types. */
#ifndef FAKE_CONSOLE_H
#define FAKE_CONSOLE_H

#include <setjmp.h>
#include "platform/console.h"

extern char fake_console_text[1 << 20]; /* what was written, terminated */
extern size_t fake_console_len;
extern unsigned fake_console_limit; /* bytes that console_write takes */
extern bool fake_console_full;      /* what it took counts against the limit */
extern bool fake_console_held;
extern char fake_uart_text[1 << 16];
extern size_t fake_uart_len;
extern bool fake_uart_there;
/* Whether the machine was told to switch off. It then goes on where fake_power_exit was set. */
extern bool fake_power_off, fake_rebooted;
extern jmp_buf fake_power_exit;

void fake_console_reset(void);
void fake_console_type(const char *s);

#endif
