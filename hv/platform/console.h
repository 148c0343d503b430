/* The console: a serial port that the log and the shell share. The screen shows a copy of the log
 * during boot and in a panic. Between these it is a second terminal of the shell once somebody has
 * pressed a key, or at once if there is no port. Output is queued and leaves as the port takes it;
 * nothing waits after boot. */
#ifndef HV_PLATFORM_CONSOLE_H
#define HV_PLATFORM_CONSOLE_H

#include "lib/printf.h"
#include "platform/firmware.h"

/* Queues `n` bytes; returns how many were taken, fewer when the queue is full. "\n" is sent as
 * "\r\n". */
unsigned console_write(const char *s, unsigned n);
unsigned console_room(void); /* bytes that console_write would take now */

/* While held, lines of the log do not go out behind what the shell wrote last, since that is the
 * middle of an answer. They still go between two lines of the shell. A panic does not care. */
void console_hold(bool hold);

/* The shell's, set before console_set_async(). Hears what was typed, on WORK_CPU from its loop. */
extern void (*console_input)(const char *s, unsigned n);
/* The shell's as well. Called when lines of the log are about to go out, and the line of the
 * terminal is not empty. If that is the line that is being edited, queues what draws it again and
 * returns true: the console takes it away before the log's lines. */
extern bool (*console_redraw)(void);

/* ---- set-up (main.c) ---- */

/* Moves the console to `spec`, as parse_console() reads it. `acpi` is NULL before ACPI has been
 * read. A port that does not answer is reported, and the console stays where it was. */
void console_init(const char *spec, const struct acpi_info *acpi);
bool console_is_port(u16 port); /* is the console at this port? */
bool console_is_pci(u32 bdf);   /* is it this PCI device? */
/* Until here output waits for the port; from now on it is buffered, and sent by a work item. The
 * keyboard's interrupt is looked up in `acpi`. */
void console_set_async(const struct acpi_info *acpi);
/* All output waits for the port again, and locks are not taken any more. */
void console_set_panic(void);
void console_set_level(enum log_level level); /* what goes from the log to the console */
/* lines of the log that were overwritten before they left */
u64 console_dropped(void);
/* Sends all that is queued and what the log has not shown yet, within a bounded time. */
void console_flush(void);

/* ---- the log ---- */

/* Copies whole lines from number *position on (0: the oldest there is) and moves it; returns how
 * many bytes, 0 at the end. Lines that were overwritten meanwhile are skipped. Those of guests are
 * among them, in their order. */
size_t log_read(u64 *position, char *buf, size_t size);
u64 log_next(void); /* the number that the next line will have */

/* A line that a guest printed, as text that is safe for a terminal. Guests have a log of their own,
 * so that they cannot push out the hypervisor's lines. */
void log_of_guest(const char *fmt, ...) PRINTF(1, 2);
/* Is the console waiting for lines of guests? If not, they are to wait: the line carries no more.
 * */
bool log_takes_guests(void);

#endif
