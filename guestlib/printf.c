/* printf() for guests. The formatting itself is in common/format.c. */
#include <guest/printf.h>
#include "common/format.h"

int vsnprintf(char *buf, size_t size, const char *fmt, va_list args) {
    return format_text(buf, size, fmt, args);
}

int snprintf(char *buf, size_t size, const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(buf, size, fmt, ap);
    va_end(ap);
    return n;
}

int vprintf(const char *fmt, va_list ap) {
    char buf[512];
    int n = vsnprintf(buf, sizeof(buf), fmt, ap);

    console_write(buf, MIN((size_t)n, sizeof(buf) - 1));
    return n;
}

int printf(const char *fmt, ...) {
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vprintf(fmt, ap);
    va_end(ap);
    return n;
}
