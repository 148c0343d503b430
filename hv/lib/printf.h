/* Formatted text for the hypervisor. */
#ifndef HV_LIB_PRINTF_H
#define HV_LIB_PRINTF_H

#include "common/format.h"
#include "lib/log.h"

/* snprintf() and vsnprintf() of the image: common/format.h lists the conversions. They have
 * names of their own so that the host build can compare them with libc's. */
int hv_vsnprintf(char *buf, size_t size, const char *fmt, va_list ap) PRINTF(3, 0);
int hv_snprintf(char *buf, size_t size, const char *fmt, ...) PRINTF(3, 4);

/* Returns the ending of a noun of which there are n, as in "%u VM%s", n, plural(n). */
static inline const char *plural(u64 n) {
    if (n == 1) return "";
    return "s";
}

#endif
