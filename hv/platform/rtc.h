/* The battery-backed clock of a PC, which knows the time of day. */
#ifndef HV_PLATFORM_RTC_H
#define HV_PLATFORM_RTC_H

#include <takt/types.h>

/* What the clock's registers hold, in binary or in BCD as `status_b` says. */
struct rtc_regs {
    u8 second, minute, hour, day, month, year, status_b;
};

/* Returns the seconds since the beginning of 1970 (UTC) that these registers mean, with years from
 * 1970 to 2069; or 0 if they are no date, as where there is no such clock. */
u64 rtc_seconds(const struct rtc_regs *r);

/* Reads the clock. Call it once at boot. */
void rtc_init(void);
/* Returns the time of day at `ns`, a time of now_ns(), in ns since the beginning of 1970 (UTC); or
 * `ns` itself if the machine has no clock. The result is exact to a second, as the clock is. After
 * that it goes as fast or as slow as the TSC does. */
u64 rtc_at(u64 ns);

#endif
