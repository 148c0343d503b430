/* The MC146818 that PCs have since the AT (its data sheet has the registers). It is read once, and
 * from then on the TSC tells the time. */
#include "platform/rtc.h"

#include <takt/io.h>
#include "lib/log.h"
#include "x86/tsc.h"

#define PORT_INDEX   0x70
#define PORT_DATA    0x71

#define REG_SECOND   0x00u
#define REG_MINUTE   0x02u
#define REG_HOUR     0x04u
#define REG_DAY      0x07u
#define REG_MONTH    0x08u
#define REG_YEAR     0x09u
#define REG_STATUS_A 0x0au
#define REG_STATUS_B 0x0bu

#define A_UPDATING   BIT(7) /* the registers change within the next 2 ms */
#define B_24_HOURS   BIT(1)
#define B_BINARY     BIT(2)
#define HOUR_PM      BIT(7) /* of the hour register, where a day has twice 12 hours */

#define UPDATE_MOST  (10 * NS_PER_MS) /* an update takes 2.2 ms; any clock is ready by then */
#define DAY_S        86400u
#define EPOCH_YEAR   70u /* of the two digits that the clock has: 70 to 99 are 1970 to 1999 */

static u64 boot_ns; /* the time of day at now_ns() == 0; 0: not known */

/* ---- what the registers mean ---- */

static bool leap(u32 year) { return year % 4 == 0; } /* right from 1901 to 2099 */

/* Returns how many days a month has; January is 1. */
static u32 days_of_month(u32 month, u32 year) {
    static const u8 days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

    if (month == 2 && leap(year)) return 29;
    return days[month - 1];
}

/* Returns the number that a register holds: as a binary number or, on most machines, as two decimal
 * digits of four bits each. */
static u32 rtc_number(const struct rtc_regs *r, u8 value) {
    if (r->status_b & B_BINARY) return value;
    return (value >> 4) * 10u + (value & 0xf);
}

/* Returns the hour from 0 to 23. On a clock with twice 12 hours, 12 is the first hour of its half
 * of the day. */
static u32 hour_of(const struct rtc_regs *r) {
    u32 hour;

    if (r->status_b & B_24_HOURS) return rtc_number(r, r->hour);
    hour = rtc_number(r, r->hour & (u8)~HOUR_PM) % 12;
    if (r->hour & HOUR_PM) hour += 12;
    return hour;
}

/* Returns the seconds since 1970 that the clock's registers mean, or 0 if they are no date. */
u64 rtc_seconds(const struct rtc_regs *r) {
    u32 year = rtc_number(r, r->year), month = rtc_number(r, r->month), day = rtc_number(r, r->day);
    u32 hour = hour_of(r), minute = rtc_number(r, r->minute), second = rtc_number(r, r->second);
    u64 days = day - 1;

    if (year > 99 || month < 1 || month > 12 || day < 1 || day > days_of_month(month, year))
        return 0;
    if (hour > 23 || minute > 59 || second > 59) return 0;
    if (year < EPOCH_YEAR) year += 100;
    for (u32 y = EPOCH_YEAR; y < year; y++) days += 365 + leap(y);
    for (u32 m = 1; m < month; m++) days += days_of_month(m, year);
    return days * DAY_S + hour * 3600 + minute * 60 + second;
}

/* ---- the clock ---- */

/* Reads a register of the clock. */
static u8 read_register(u8 reg) {
    outb(PORT_INDEX, reg);
    return inb(PORT_DATA);
}

/* Waits until no update is going on. Returns false if there is no clock: then nothing answers at
 * its ports, all bits read 1, and so the update never seems to end. */
static bool is_ready(void) {
    u64 deadline = now_ns() + UPDATE_MOST;

    while (read_register(REG_STATUS_A) & A_UPDATING)
        if (now_ns() >= deadline) return false;
    return true;
}

/* Reads all registers of the clock that make up the date and the time. */
static struct rtc_regs read_all(void) {
    return (struct rtc_regs){ .second = read_register(REG_SECOND),
                              .minute = read_register(REG_MINUTE),
                              .hour = read_register(REG_HOUR),
                              .day = read_register(REG_DAY),
                              .month = read_register(REG_MONTH),
                              .year = read_register(REG_YEAR),
                              .status_b = read_register(REG_STATUS_B) };
}

/* Reads the date and the time of the machine's clock. An update that begins between two reads can
 * leave a part of the old time and a part of the new one, which may be no date at all. Two results
 * that agree have no update between them. The clock changes once in a second, so of four results in
 * a row at most one is such a mixture. */
void rtc_init(void) {
    u64 seconds = 0, before;

    for (u32 i = 0; i < 4 && is_ready(); i++) {
        struct rtc_regs r = read_all();

        before = seconds;
        seconds = rtc_seconds(&r);
        if (seconds && seconds == before) {
            boot_ns = seconds * NS_PER_S - now_ns();
            return;
        }
    }
    log_info("no clock tells the time of day: VMs begin in 1970");
}

u64 rtc_at(u64 ns) { return boot_ns + ns; }
