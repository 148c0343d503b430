/* Keeps the log and the last trace records of this session in a part of RAM that survives a warm
 * reset. A session is the time from one boot to the next. If a session ended by a crash, the next
 * boot can show its last lines.
 *
 * Every line is written there when it is logged, and its cache lines are written back to memory at
 * once. A CPU that hangs until the watchdog resets the machine has no time to save anything
 * later. Each line and each record has its own checksum, so that the rest can still be read if the
 * firmware has overwritten a part. There are two banks: this session writes to one, and the record
 * of the last session stays in the other.
 *
 * It depends on the firmware whether RAM survives a reset. Some firmware always clears RAM, or
 * clears it after the watchdog's reset. Memory with ECC may be cleared to set its check bits. Then
 * there is nothing to show. If the machine is switched off, the contents are lost in any case. */
#ifndef HV_PLATFORM_CRASHLOG_H
#define HV_PLATFORM_CRASHLOG_H

#include <takt/types.h>
#include "trace/trace.h"

/* The address is fixed, so that the next boot finds the record. It is above the memory that GRUB
 * and the firmware we have seen use before they start Takt, and below the end of every machine's
 * RAM. */
#define CRASHLOG_AT   0x4000000ull /* physical: 64 MiB */
#define CRASHLOG_SIZE (256u << 10) /* bytes: both banks */

#define CRASHLOG_LINE 248 /* bytes of the longest line, with its terminating 0 */

enum crash_end {
    CRASH_NONE,    /* there is no record of a session */
    CRASH_SILENT,  /* the session was still running when the machine was reset */
    CRASH_STOPPED, /* it panicked, or it could not go on: its last line says why */
    CRASH_ORDERLY, /* the machine was told to reboot, to halt or to switch itself off */
};

/* Looks for the record of the last session in the CRASHLOG_SIZE bytes at `at`, and begins the
 * record of this session. The memory must never be used for anything else. To be called once, on
 * the boot CPU. If it was not called, the functions below do nothing and find nothing. */
void crashlog_open(void *at);
/* Logs how the last session ended, and its last lines, unless its end was orderly. The lines that
 * it logs for this are not kept again; all lines that are logged later are kept. */
void crashlog_report(void);

/* Keeps a line, up to its newline. Two calls must not overlap, so the caller holds the log's
 * lock. */
void crashlog_line(const char *text);
/* Keeps `n` records. Two calls must not overlap, so it is called on WORK_CPU, or when all other
 * CPUs have stopped. */
void crashlog_records(const struct trace_record *r, u32 n);
/* Keeps the records that are in the trace rings of the CPUs and that nobody has read, in the order
 * of time. There is not room for all of them, and the newest records of all CPUs tell best why the
 * machine stopped, so the oldest are lost. To be called when all other CPUs have stopped. */
void crashlog_drain_trace(void);
/* Notes how this session ends. */
void crashlog_end(enum crash_end how);

/* Returns how the last session ended. */
enum crash_end crashlog_last(void);
/* Find the next line, or record, of the last session whose checksum is right. The search begins
 * with number *at, which is 0 for the first call, and *at becomes the number behind the one that
 * was found. Return false if there is none. The text stays valid for ever. */
bool crashlog_last_line(u32 *at, const char **text);
bool crashlog_last_record(u32 *at, struct trace_record *out);

#endif
