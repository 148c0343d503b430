/* The console: a serial port that the log and the shell share, and the screen as a copy of it. Output is
 * queued and leaves as the port takes it; nothing waits after boot. */
#ifndef HV_PLATFORM_CONSOLE_H
#define HV_PLATFORM_CONSOLE_H

#include <takt/types.h>

/* Queues `n` bytes; returns how many were taken, fewer when the queue is full. "\n" is sent as "\r\n". */
unsigned console_write(const char *s, unsigned n);
unsigned console_room(void); /* bytes that console_write would take now */

/* While held, lines of the log wait in the log's ring, so that they do not cut into what the shell writes. A
 * panic does not care. */
void console_hold(bool hold);

/* The shell's. Hears what was typed, on WORK_CPU from its loop; NULL: input is thrown away. */
extern void (*console_input)(const char *s, unsigned n);
/* The shell's. Called before (false) and after (true) lines of the log go to the console, to take away and to
 * draw again the line that is being edited. NULL: none. */
extern void (*console_log_line)(bool after);

/* Copies whole lines of the log from *position on (0: the oldest there is) and moves it; returns how many
 * bytes, 0 at the end. Lines that were overwritten meanwhile are skipped. */
size_t log_read(u64 *position, char *buf, size_t size);

#endif
