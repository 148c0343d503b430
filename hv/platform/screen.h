/* The screen. It shows the log while the machine boots, and again in a panic. In between it is a
 * terminal of the shell, if the operator uses the keyboard. Except for screen_init(), only
 * console.c calls these functions. */
#ifndef HV_PLATFORM_SCREEN_H
#define HV_PLATFORM_SCREEN_H

#include "platform/firmware.h"

/* Uses the text mode or the 32-bit frame buffer that the loader left, if any. */
void screen_init(const struct boot_screen *b);
/* Draws text at once. A newline begins a new line, and clears that line and the next one. Behind
 * the lowest line it goes on at the top of the screen: nothing is scrolled, because to read a frame
 * buffer is slow. */
void screen_write(const char *s, size_t n);
/* Is there a screen that Takt can use? */
bool screen_there(void);

/* Clears the screen, which is a terminal from now on. */
void screen_start_terminal(void);
/* Sends text to the terminal (platform/terminal.h). screen_step() draws it later. Does nothing if
 * the screen is no terminal. */
void screen_feed(const char *s, size_t n);
/* Draws some of the characters that have changed. Returns true if there may be more to draw. */
bool screen_step(void);

#endif
