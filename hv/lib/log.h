/* The log, and the end of the hypervisor. Every room writes to the log, so it is declared down
 * here. The functions themselves are above: log_at() in hv/platform/console.c, panic() in
 * hv/platform/power.c. In the host build tests/unit/fake_log.c has both. */
#ifndef HV_LIB_LOG_H
#define HV_LIB_LOG_H

#include "common/format.h"

enum log_level { LOG_ERR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Writes one line to the log, with the time. `dmesg` shows it, and so does the console if
 * `level` is at most the console's. May be called from anywhere in root mode, also in an NMI;
 * after boot it never waits for the console's device. */
void log_at(enum log_level level, const char *fmt, ...) PRINTF(2, 3);

#define log_err(...)  log_at(LOG_ERR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)

/* Ends the hypervisor because one of its own invariants is broken: prints the sentence and what
 * all pCPUs were doing, then stops or reboots the machine. What a guest does wrong never leads
 * here: that is vm_crash(). */
void panic(const char *fmt, ...) PRINTF(1, 2) __attribute__((noreturn));

/* States an invariant. It handles no error that can happen. */
#define ASSERT(cond)                                                                               \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            panic("%s:%d: %s does not hold", __FILE__, __LINE__, #cond);                           \
    } while (0)

#endif
