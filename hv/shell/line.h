/* A line editor: it takes the bytes of a terminal and gives finished lines. It knows nothing of the
 * machine and writes through `emit`. Keys: cursor keys, Home, End, Backspace, Tab, ^A ^E ^U ^W ^L
 * ^C. */
#ifndef HV_SHELL_LINE_H
#define HV_SHELL_LINE_H

#include <takt/types.h>

#define LINE_MAX     256 /* bytes of a line, with the terminator */
#define LINE_HISTORY 16

enum line_event {
    LINE_MORE,   /* the line is not finished */
    LINE_DONE,   /* Enter: the line is finished */
    LINE_CANCEL, /* ^C: the line is given up */
};

struct line {
    /* set once */
    const char *prompt;
    void (*emit)(const char *s, size_t n);
    /* Returns the n-th word (from 0) that begins with `word`, for Tab; NULL: there are not so many.
     * `first` says that `word` is the first one of the line. The text is valid until the next
     * call. */
    const char *(*candidate)(const char *word, bool first, unsigned n);

    char text[LINE_MAX]; /* always terminated */
    u32 len, at;         /* characters of `text`; which of them the cursor is on */
    char escape;         /* the last byte of an unfinished escape sequence; 0: there is none */
    /* the last byte was a carriage return: a line feed after it is not another line */
    bool was_cr;
    char history[LINE_HISTORY][LINE_MAX];
    u32 history_nr; /* how many lines were ever kept; line i is in history[i % LINE_HISTORY] */
    u32 history_at; /* which of them is shown; history_nr: none */
};

/* Takes one byte. After LINE_DONE `text` holds the line until line_start(). */
enum line_event line_feed(struct line *l, char c);
/* Begins a new, empty line, and draws the prompt. */
void line_start(struct line *l);
/* Draws prompt and line again. The cursor may be on an empty line of the screen, or on the line
 * that is being edited, which is then overwritten. */
void line_show(struct line *l);

#define LINE_CLEAR   "\r\x1b[K"      /* takes the line off the screen */
#define SCREEN_CLEAR "\x1b[H\x1b[2J" /* an empty screen, with the cursor at its beginning */

#endif
