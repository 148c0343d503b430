/* The screen: the log from boot.asm's first page table to the loop, and again in a panic; and a
 * terminal between these, if somebody is there who uses it. */
#ifndef HV_PLATFORM_SCREEN_H
#define HV_PLATFORM_SCREEN_H

#include "platform/firmware.h"

/* Uses the text mode or the 32-bit frame buffer that the loader left, if any. */
void screen_init(const struct boot_screen *b);
/* Writes text at once; a newline starts a line and blanks it and the next. At the bottom it goes
 * on at the top: nothing is scrolled, since reading a frame buffer back is slow. */
void screen_write(const char *s, size_t n);
bool screen_there(void);

/* From now on it is an empty terminal. */
void screen_start_terminal(void);
/* Text for the terminal, as platform/terminal.h has it; it is drawn later. */
void screen_feed(const char *s, size_t n);
/* Draws a little of what has changed. True: there is more to draw. */
bool screen_step(void);

#endif
