/* What a terminal shows: text in, a grid of characters out. Knows nothing of how it is drawn.
 * Understands what the shell and the log send: "\r", "\n", "\b", and ESC [ ... with A B C D H J
 * K; other sequences are left out. */
#ifndef HV_PLATFORM_TERMINAL_H
#define HV_PLATFORM_TERMINAL_H

#include <takt/types.h>

#define TERMINAL_COLUMNS 256u /* at most */
#define TERMINAL_ROWS    128u

struct terminal {
    u32 columns, rows; /* set by terminal_init() */
    u32 row, column;   /* of the cursor; column == columns: the next character begins a line */
    u32 first;         /* which row of `cell` is the uppermost: scrolling moves this */
    char cell[TERMINAL_ROWS][TERMINAL_COLUMNS];
    u8 state;          /* of an escape sequence */
    u32 number[2], nr; /* its numbers; how many there are */
};

/* Empty, with the cursor in the upper left corner. Sizes beyond the limits are cut. */
void terminal_init(struct terminal *t, u32 columns, u32 rows);
void terminal_write(struct terminal *t, const char *s, size_t n);
/* The character there, ' ' to '~'. */
char terminal_at(const struct terminal *t, u32 row, u32 column);

#endif
