/* A line editor: bytes of a terminal in, finished lines out. Knows nothing of the machine: it writes through
 * `emit`. Keys: cursor keys, Home, End, Backspace, Tab, ^A ^E ^U ^W ^L
 * ^C. */
#ifndef HV_SHELL_LINE_H
#define HV_SHELL_LINE_H

#include <takt/types.h>

#define LINE_MAX     256 /* with the terminator */
#define LINE_HISTORY 16

enum line_event { LINE_MORE, LINE_DONE, LINE_CANCEL };

struct line {
    /* set once */
    const char *prompt;
    void (*emit)(const char *s, size_t n);
    /* The `n`-th word (from 0) that could stand where the line has `word`, itself included; NULL: no more.
     * `first` tells that it is the line's first word. */
    const char *(*candidate)(const char *word, bool first, unsigned n);

    char text[LINE_MAX]; /* always terminated */
    u32 len, at;
    char escape; /* the last byte of an escape sequence that goes on; 0: none does */
    bool was_cr; /* the line feed after a carriage return is not another line */
    char history[LINE_HISTORY][LINE_MAX];
    u32 history_nr, history_at; /* lines ever kept; which one is shown, history_nr: none */
};

/* One byte. After LINE_DONE `text` holds the line until line_start. */
enum line_event line_feed(struct line *l, char c);
/* Begins a new line: draws the prompt. */
void line_start(struct line *l);
/* Draws prompt and line again, on an empty line of the screen or over itself. */
void line_show(struct line *l);

#define LINE_CLEAR   "\r\x1b[K"      /* takes the line off the screen */
#define SCREEN_CLEAR "\x1b[H\x1b[2J" /* an empty screen, with the cursor at its beginning */

#endif
