/* A terminal in memory: a grid of characters and a cursor, which text and escape sequences change.
 * An escape sequence is ESC [, numbers, and a letter, such as ESC [ 2 J to clear the screen
 * (ECMA-48, 5.4 and 8.3). Only those that the shell and common programs use are known. screen.c
 * draws the grid. */
#include "platform/terminal.h"

#include "common/string.h"

#define ESC 0x1b

enum { TEXT, AFTER_ESC, IN_SEQUENCE };

/* Returns the characters of a row. The rows are a ring that begins with t->first, so that scrolling
 * moves no text. */
static char *row_of(struct terminal *t, u32 row) { return t->cell[(t->first + row) % t->rows]; }

/* Returns the character at a place of the grid. */
char terminal_at(const struct terminal *t, u32 row, u32 column) {
    return t->cell[(t->first + row) % t->rows][column];
}

/* Clears columns [from, to) of a row. */
static void terminal_blank(struct terminal *t, u32 row, u32 from, u32 to) {
    memset(row_of(t, row) + from, ' ', to - from);
}

/* Makes an empty terminal with that many rows and columns. */
void terminal_init(struct terminal *t, u32 columns, u32 rows) {
    memset(t, 0, sizeof(*t));
    t->columns = MIN(columns, TERMINAL_COLUMNS);
    t->rows = MIN(rows, TERMINAL_ROWS);
    for (u32 i = 0; i < t->rows; i++) terminal_blank(t, i, 0, t->columns);
}

/* Moves the cursor down. In the last row everything moves up instead. */
static void next_line(struct terminal *t) {
    if (t->row + 1 < t->rows) {
        t->row++;
        return;
    }
    t->first = (t->first + 1) % t->rows;
    terminal_blank(t, t->row, 0, t->columns);
}

/* Takes a byte outside of escape sequences: a character to show, or a control character. A
 * character behind the last column goes to the next line. */
static void terminal_plain(struct terminal *t, char c) {
    switch (c) {
    case ESC: t->state = AFTER_ESC; break;
    case '\r': t->column = 0; break;
    case '\n': next_line(t); break;
    case '\b':
        if (t->column) t->column--;
        break;
    default:
        if (c < ' ' || c > '~') break;
        if (t->column == t->columns) {
            t->column = 0;
            next_line(t);
        }
        row_of(t, t->row)[t->column++] = c;
    }
}

/* Returns number n of the sequence, from 0 on, or `missing` if it is 0 or not there. */
static u32 sequence_number(const struct terminal *t, u32 n, u32 missing) {
    if (n >= t->nr || !t->number[n]) return missing;
    return t->number[n];
}

/* Clears a part of the display (ED, ECMA-48 8.3.39): with 0 from the cursor to the end, with 2 all.
 * The form 1, from the beginning to the cursor, is left out, because no program here uses it. */
static void erase_display(struct terminal *t) {
    u32 from = MIN(t->column, t->columns - 1), what = sequence_number(t, 0, 0), row = 0;

    if (what == 1) return;
    if (what == 0) {
        terminal_blank(t, t->row, from, t->columns);
        row = t->row + 1;
    }
    for (; row < t->rows; row++) terminal_blank(t, row, 0, t->columns);
}

/* Clears a part of the line (EL, ECMA-48 8.3.41): with 2 the whole line, otherwise from the cursor
 * on. */
static void erase_line(struct terminal *t) {
    u32 from = t->column;

    if (from >= t->columns) return;
    if (sequence_number(t, 0, 0) == 2) from = 0;
    terminal_blank(t, t->row, from, t->columns);
}

/* Does what an escape sequence says, whose letter is `c`: moves the cursor (A up, B down, C right,
 * D left, H to a place) or clears (J, K). The cursor stops at the edges. Unknown letters do
 * nothing. */
static void finish_sequence(struct terminal *t, char c) {
    u32 n = sequence_number(t, 0, 1), last = t->columns - 1;

    switch (c) {
    case 'A': t->row -= MIN(n, t->row); break;
    case 'B': t->row = MIN(t->row + MIN(n, t->rows), t->rows - 1); break;
    case 'C': t->column = MIN(t->column + MIN(n, t->columns), last); break;
    case 'D': t->column -= MIN(n, t->column); break;
    case 'H':
        t->row = MIN(n, t->rows) - 1;
        t->column = MIN(sequence_number(t, 1, 1), t->columns) - 1;
        break;
    case 'J': erase_display(t); break;
    case 'K': erase_line(t); break;
    }
}

/* Takes a byte of an escape sequence, which consists of numbers with ';' between them, and then a
 * letter. */
static void in_sequence(struct terminal *t, char c) {
    u32 *n = &t->number[t->nr - 1]; /* a sequence begins with nr = 1, and it stays at 2 */

    if (c >= '0' && c <= '9') {
        *n = MIN(*n * 10 + (u32)(c - '0'), 9999u);
    } else if (c == ';') {
        if (t->nr < 2) t->number[t->nr++] = 0;
    } else if (c >= '@') {
        t->state = TEXT;
        finish_sequence(t, c);
    }
}

/* Shows text on the terminal. `t->state` remembers between calls where in an escape sequence the
 * text is, because a sequence may come in pieces. */
void terminal_write(struct terminal *t, const char *s, size_t n) {
    for (; n; n--, s++) {
        if (t->state == TEXT) {
            terminal_plain(t, *s);
        } else if (t->state == AFTER_ESC) {
            t->state = TEXT;
            if (*s == '[') t->state = IN_SEQUENCE;
            t->nr = 1;
            t->number[0] = 0;
        } else {
            in_sequence(t, *s);
        }
    }
}
