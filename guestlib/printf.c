/* printf() and its like for guests. The formatting itself is in common/format.c, which the
 * hypervisor uses as well; here it is joined with the guest's console. */
#include <guest/printf.h>
#include "common/format.h"

int vsnprintf(char *buf, size_t size, const char *fmt, va_list args) {
    return format_text(buf, size, fmt, args);
}

/* Returns how long the text would have been without the limit. */
int snprintf(char *buf, size_t size, const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(buf, size, fmt, ap);
    va_end(ap);
    return n;
}

/* Prints formatted text on the console, and returns its length. Text of more than 511 characters is
 * cut off. */
int vprintf(const char *fmt, va_list ap) {
    char buf[512];
    int n = vsnprintf(buf, sizeof(buf), fmt, ap);

    console_write(buf, MIN((size_t)n, sizeof(buf) - 1));
    return n;
}

/* Prints one piece of text at a time, so that lines of two vCPUs do not mix, and cuts off what is
 * longer than vprintf()'s buffer. Returns how long the text would have been. */
int printf(const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vprintf(fmt, ap);
    va_end(ap);
    return n;
}
