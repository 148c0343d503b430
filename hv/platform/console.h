/* The console: a serial port that the log and the shell share. The screen shows a copy of the log
 * during boot and in a panic. In between, it becomes a second terminal of the shell as soon as
 * somebody presses a key, or at once if there is no serial port. After boot, output is queued and a
 * work item sends it at the speed of the port, so that no caller ever waits for the port. */
#ifndef HV_PLATFORM_CONSOLE_H
#define HV_PLATFORM_CONSOLE_H

#include "lib/printf.h"
#include "platform/firmware.h"

/* Queues `n` bytes; returns how many were taken, fewer when the queue is full. "\n" is sent as
 * "\r\n". */
unsigned console_write(const char *s, unsigned n);
unsigned console_room(void); /* bytes that console_write would take now */

/* Tells whether the shell is in the middle of an answer. While `hold` is set, the log does not
 * write behind an unfinished line of the shell; it still writes between two lines. A panic ignores
 * this. */
void console_hold(bool hold);
/* The shell sets this while a guest's program draws on the terminal. "\n" is then sent as it is,
 * and the log waits, except in a panic. */
extern bool console_raw;

/* A hook that the shell sets before console_set_async(). It is called on WORK_CPU, from the loop or
 * from an interrupt handler, with the `n` bytes that somebody has typed. */
extern void (*console_input)(const char *s, unsigned n);
/* Another hook of the shell. It is called when lines of the log are about to be sent while the
 * terminal shows an unfinished line. If that is the line which the operator is editing, the shell
 * queues the text that draws it again, and returns true. The console then erases the line before it
 * sends the lines of the log. */
extern bool (*console_redraw)(void);

/* ---- set-up (main.c) ---- */

/* Moves the console to `spec`, as parse_console() reads it. `acpi` is NULL before ACPI has been
 * read. A port that does not answer is reported, and the console stays where it was. */
void console_init(const char *spec, const struct acpi_info *acpi);
bool console_is_port(u16 port); /* is the console at this port? */
bool console_is_pci(u32 bdf);   /* is it this PCI device? */
/* Until this call each writer waits until the port has taken its output. From now on output is
 * buffered, and a work item sends it. Also starts the port's interrupt, and the keyboard, whose
 * interrupt is looked up in `acpi`. On the boot CPU. */
void console_set_async(const struct acpi_info *acpi);
/* For a panic: each writer waits for the port again, and the console's lock is not taken any more,
 * since a CPU that has stopped may hold it. */
void console_set_panic(void);
/* Lines of the log up to this level are sent to the console. */
void console_set_level(enum log_level level);
/* Returns how many lines of the log were overwritten before they were sent. */
u64 console_dropped(void);
/* Sends all that is queued, and the lines of the log that were not sent yet. Waits for that, but
 * only for a bounded time. */
void console_flush(void);

/* ---- the log ---- */

/* Copies whole lines of the log to `buf`, which has room for `size` bytes. Begins with line number
 * *position (0: the oldest line that is kept), and sets *position to the number behind the last
 * line that was copied. Lines that were overwritten meanwhile are skipped. Lines of guests are
 * among them, in the order in which all lines came. Returns the number of bytes, 0 at the end of
 * the log. */
size_t log_read(u64 *position, char *buf, size_t size);
/* Returns the number that the next line of the log will have. */
u64 log_next(void);

/* Logs a line that a guest has printed. The text must be safe for a terminal already. Guests have a
 * log of their own, so that they cannot push out the hypervisor's lines. */
void log_of_guest(const char *fmt, ...) PRINTF(1, 2);
/* May another line of a guest be logged now? If not, guests have to wait, since the serial port
 * cannot send more. */
bool log_takes_guests(void);

#endif
