/* The log on the screen, from boot.asm's first page table to the loop, and again in a panic. */
#ifndef HV_PLATFORM_SCREEN_H
#define HV_PLATFORM_SCREEN_H

#include "platform/firmware.h"

/* Uses the text mode or the 32-bit frame buffer that the loader left, if any. */
void screen_init(const struct boot_screen *b);
/* Writes text; a newline starts a line and blanks it and the next. At the bottom it goes on at the top:
 * nothing is scrolled, since reading a frame buffer back is slow. */
void screen_write(const char *s, size_t n);

#endif
