/* The log of unit tests and fuzzers: kept, for tests that ask what was said; printed with TAKT_TEST_LOG set.
 */
#include "fake_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char fake_log_last[256];
unsigned fake_log_lines;

void log_at(enum log_level level, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(fake_log_last, sizeof(fake_log_last), fmt, ap);
    va_end(ap);
    fake_log_lines++;
    if (getenv("TAKT_TEST_LOG")) fprintf(stderr, "<%d> %s\n", level, fake_log_last);
}

void panic(const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}
