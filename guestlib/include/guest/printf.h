/* Text to the VM's console. common/format.h lists the conversions. */
#ifndef GUEST_PRINTF_H
#define GUEST_PRINTF_H

#include <stdarg.h>
#include <takt/types.h>

/* As in C, with the conversions of common/format.h. printf() and vprintf() write to the console.
 * They return how long the whole text is, in characters. */
int printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int vprintf(const char *fmt, va_list ap);
int snprintf(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int vsnprintf(char *buf, size_t size, const char *fmt, va_list ap);

/* Writes to the console: by a hypercall on Takt, else to the debug console, else to the UART. If
 * there is no room, it waits for a while; then it drops the rest. */
void console_write(const char *s, size_t len);
/* Reads what was typed, up to `max` characters, without waiting. Returns how many characters there
 * were. */
size_t console_read(char *s, size_t max);
void console_init(void); /* for the start of the guest */

#endif
