/* Formatted text, for the hypervisor (lib/printf.h) and for guests (guest/printf.h).
 *
 * Conversions: %d %i %u %x %c %s %p %%. Flags: '-' and '0'. Width, also as '*'. Precision, also as
 * '*', of %s only. Lengths: l, ll and z, all of which mean 64 bits. %p writes 16 digits without
 * "0x". There is no floating point. */
#ifndef COMMON_FORMAT_H
#define COMMON_FORMAT_H

#include <stdarg.h>
#include <takt/types.h>

#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Writes at most `size` bytes to `buf`. The text is terminated unless `size` is 0; what does not
 * fit is left out. Returns the length that the whole text has, as C's vsnprintf() does. */
int format_text(char *buf, size_t size, const char *fmt, va_list args) PRINTF(3, 0);

#endif
