/* Formatted output and the log. */
#ifndef HV_LIB_PRINTF_H
#define HV_LIB_PRINTF_H

#include <stdarg.h>
#include <takt/types.h>

#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* %d %u %x %c %s %% with the flags '-', '0' and '#', a width, l and ll; no precision. Always terminates;
 * returns the length it would have had, as C's snprintf does. Named apart so that the host build can test it
 * beside libc's. */
int hv_vsnprintf(char *buf, size_t size, const char *fmt, va_list ap);
int hv_snprintf(char *buf, size_t size, const char *fmt, ...) PRINTF(3, 4);

/* The ending of a noun that is counted: "" for one thing, else "s", as in "%u VM%s", n, plural(n). */
static inline const char *plural(u64 n) { return n == 1 ? "" : "s"; }

enum log_level { LOG_ERR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* One line to the log: time stamped, kept for `dmesg`, sent to the console if `level` is at most the
 * console's. May be called from anywhere in root mode; never waits after boot. */
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
