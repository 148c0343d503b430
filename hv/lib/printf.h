/* Formatted output and the log. */
#ifndef HV_LIB_PRINTF_H
#define HV_LIB_PRINTF_H

#include "common/format.h"

/* snprintf() and vsnprintf() of the image: common/format.h lists the conversions. They have
 * names of their own so that the host build can compare them with libc's. */
int hv_vsnprintf(char *buf, size_t size, const char *fmt, va_list ap) PRINTF(3, 0);
int hv_snprintf(char *buf, size_t size, const char *fmt, ...) PRINTF(3, 4);

/* Returns the ending of a noun of which there are n, as in "%u VM%s", n, plural(n). */
static inline const char *plural(u64 n) {
    if (n == 1) return "";
    return "s";
}

enum log_level { LOG_ERR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* One line to the log: time stamped, kept for `dmesg`, sent to the console if `level` is at most
 * the console's. May be called from anywhere in root mode; never waits after boot. */
void log_at(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#define log_err(...)  log_at(LOG_ERR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)

/* A broken invariant of the hypervisor itself: prints, dumps, stops or reboots. */
void panic(const char *fmt, ...) PRINTF(1, 2) __attribute__((noreturn));

#define ASSERT(cond)                                                                                         \
    do {                                                                                                     \
        if (__builtin_expect(!(cond), 0)) panic("%s:%d: %s does not hold", __FILE__, __LINE__, #cond);       \
    } while (0)

#endif
