/* The log of unit tests and fuzzers. It is kept, so that a test can ask what was logged, and
 * printed if TAKT_TEST_LOG is set. */
#include "fake_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT 64

char fake_log_last[256];
unsigned fake_log_lines;
static char kept[KEPT][sizeof(fake_log_last)];

bool fake_log_said(const char *text) {
    for (unsigned i = 0; i < KEPT; i++)
        if (strstr(kept[i], text)) return true;
    return false;
}

void fake_log_forget(void) { memset(kept, 0, sizeof(kept)); }

void log_at(enum log_level level, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(fake_log_last, sizeof(fake_log_last), fmt, ap);
    va_end(ap);
    strcpy(kept[fake_log_lines++ % KEPT], fake_log_last);
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
