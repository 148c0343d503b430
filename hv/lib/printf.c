/* Formatted text for the hypervisor. The formatting itself is in common/format.c. */
#include "lib/printf.h"

int hv_vsnprintf(char *buf, size_t size, const char *fmt, va_list args) {
    return format_text(buf, size, fmt, args);
}

/* Writes formatted text of at most `size` bytes to `buf`. Returns the length of the whole text,
 * also if it did not fit, as C's snprintf() does. */
int hv_snprintf(char *buf, size_t size, const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = format_text(buf, size, fmt, ap);
    va_end(ap);
    return n;
}
