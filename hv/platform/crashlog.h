/* The log and the last trace records of this session, kept in a place of RAM that outlives a warm
 * reset. So the next boot can say what a session said last that ended by a crash.
 *
 * Every line is written there when it is logged, and its cache lines are written back at once: a
 * CPU that hangs, and is reset by a watchdog, has no time to save anything. Each line and each
 * record has a checksum of its own, so that a place which firmware has overwritten in part still
 * gives what is left. There are two banks: this session writes to one, the last session's stays
 * in the other.
 *
 * Whether RAM outlives a reset is up to the firmware. Some clears it, always or after a watchdog's
 * reset, and memory with ECC may be cleared to set its check bits. Then there is nothing to show. A
 * power-off loses it on every machine. */
#ifndef HV_PLATFORM_CRASHLOG_H
#define HV_PLATFORM_CRASHLOG_H

#include <takt/types.h>
#include "trace/trace.h"

/* The place is fixed, so that the next boot finds it. It is above what GRUB and the firmware we
 * have seen use for themselves before they start us, and below the end of every machine's RAM. */
#define CRASHLOG_AT   0x4000000ull /* physical: 64 MiB */
#define CRASHLOG_SIZE (256u << 10) /* bytes: both banks */

#define CRASHLOG_LINE 248 /* longest line, with its 0 */

enum crash_end {
    CRASH_NONE,    /* there is no record of a session */
    CRASH_SILENT,  /* it was still running when the machine was reset */
    CRASH_STOPPED, /* it panicked, or could not go on: its last line says why */
    CRASH_ORDERLY, /* it was told to reboot or to switch off */
};

/* Looks at `at`, CRASHLOG_SIZE bytes that belong to nobody else for ever, for the last session,
 * and begins this one's record. Once, on the boot CPU. Without it, all of the functions below do
 * nothing and find nothing. */
void crashlog_open(void *at);
/* Logs how the last session ended and its last lines, unless it ended in an orderly way. What it
 * logs is not kept again. From then on lines are kept. */
void crashlog_report(void);

/* Keeps a line, up to its newline. Calls must not overlap: the log's lock is held. */
void crashlog_line(const char *text);
/* Keeps `n` records. Calls must not overlap: on WORK_CPU, or with the others stopped. */
void crashlog_records(const struct trace_record *r, u32 n);
/* Keeps what is in the trace rings and has not been read, in the order of time: there is more
 * than room for, and what happened last on any CPU is what tells why the machine stopped. With
 * the others stopped. */
void crashlog_drain_trace(void);
/* Notes how this session ends. */
void crashlog_end(enum crash_end how);

/* The last session. */
enum crash_end crashlog_last(void);
/* Give the first line (record) of the last session from number *at on that is whole, and move *at
 * beyond it. Begin with 0. False: there are no more. The text is valid for ever. */
bool crashlog_last_line(u32 *at, const char **text);
bool crashlog_last_record(u32 *at, struct trace_record *out);

#endif
