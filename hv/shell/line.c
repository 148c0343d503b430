/* The line editor: takes what the operator types, key by key, and shows the line that results. It
 * knows the keys of most Unix shells: the cursor keys, a history, and completion by the Tab key. A
 * change in the middle of a line draws the whole line again. That is simple, and right on any
 * terminal. */
#include "shell/line.h"

#include "lib/printf.h"
#include "common/string.h"

#define CTRL(c) ((c)&0x1f)
#define ESC     0x1b
#define DEL     0x7f

/* Prints text. */
static void line_emit(struct line *l, const char *s) { l->emit(s, strlen(s)); }

/* Draws the prompt and the line that is being edited. First it draws the text, and then it moves
 * the cursor back to its place, by the terminal's own sequence. */
void line_show(struct line *l) {
    char back[16];

    line_emit(l, LINE_CLEAR);
    line_emit(l, l->prompt);
    line_emit(l, l->text);
    if (l->at == l->len) return;
    hv_snprintf(back, sizeof(back), "\x1b[%uD", l->len - l->at);
    line_emit(l, back);
}

/* Begins a new, empty line, and draws the prompt. */
void line_start(struct line *l) {
    l->len = l->at = 0;
    l->text[0] = l->escape = 0;
    l->history_at = l->history_nr;
    line_emit(l, l->prompt);
}

/* Puts `s` in the place of the `gone` characters from position `from` on, and the cursor behind it.
 * Text that does not fit is dropped as a whole. If it was only added at the end, it is only sent to
 * the terminal; otherwise the whole line is drawn anew. */
static void line_replace(struct line *l, u32 from, u32 gone, const char *s) {
    u32 n = (u32)strlen(s);
    bool append = from == l->len && n;

    if (l->len - gone + n >= LINE_MAX) return;
    memmove(l->text + from + n, l->text + from + gone, l->len - from - gone + 1);
    memcpy(l->text + from, s, n);
    l->len += n - gone;
    l->at = from + n;
    if (append)
        line_emit(l, s);
    else
        line_show(l);
}

/* Puts text where the cursor is. */
static void insert_text(struct line *l, const char *s) { line_replace(l, l->at, 0, s); }

/* Moves the cursor to a position, if there is one. */
static void move_cursor(struct line *l, u32 to) {
    if (to > l->len) return;
    l->at = to;
    line_show(l);
}

/* Takes away the word before the cursor, and the blanks between it and the cursor. */
static void drop_word(struct line *l) {
    u32 from = l->at;

    while (from && l->text[from - 1] == ' ') from--;
    while (from && l->text[from - 1] != ' ') from--;
    if (from < l->at) line_replace(l, from, l->at - from, "");
}

/* ---- history ---- */

/* Shows line number `which` of the history, or an empty line behind the last one. */
static void line_recall(struct line *l, u32 which) {
    const char *text = "";
    u32 oldest = 0;

    if (l->history_nr > LINE_HISTORY) oldest = l->history_nr - LINE_HISTORY;
    if (which < oldest || which > l->history_nr) return;
    if (which < l->history_nr) text = l->history[which % LINE_HISTORY];
    l->history_at = which;
    line_replace(l, 0, l->len, text);
}

/* Adds the line to the history, unless it is empty or the same as the last one. */
static void line_remember(struct line *l) {
    if (!l->len ||
        (l->history_nr && strcmp(l->history[(l->history_nr - 1) % LINE_HISTORY], l->text) == 0))
        return;
    memcpy(l->history[l->history_nr++ % LINE_HISTORY], l->text, LINE_MAX);
}

/* ---- completion ---- */

/* Completes the word before the cursor by what all candidates have in common, and a blank if there
 * is only one. If that adds nothing, shows all candidates. */
static void line_complete(struct line *l) {
    char word[LINE_MAX], common[LINE_MAX] = "";
    u32 start = l->at, n, len;
    const char *c;

    while (start && l->text[start - 1] != ' ') start--;
    len = l->at - start;
    memcpy(word, l->text + start, len);
    word[len] = 0;
    for (n = 0; (c = l->candidate(word, start == 0, n)); n++) {
        u32 same = 0;

        if (n == 0) hv_snprintf(common, sizeof(common), "%s", c);
        while (common[same] && common[same] == c[same]) same++;
        common[same] = 0;
    }
    if (n == 0) return;
    insert_text(l, common + len);
    if (n == 1) {
        insert_text(l, " ");
    } else if (strlen(common) == len) {
        for (u32 i = 0; (c = l->candidate(word, start == 0, i)); i++) {
            const char *before = "  ";

            if (i == 0) before = "\n";
            line_emit(l, before);
            line_emit(l, c);
        }
        line_emit(l, "\n");
        line_show(l);
    }
}

/* ---- keys ---- */

/* Does what a special key means. Such a key sends an escape sequence, as "ESC [ A" or "ESC O A";
 * `key` is the last letter of it. */
static void special_key(struct line *l, char key) {
    switch (key) {
    case 'A': line_recall(l, l->history_at - 1); break;
    case 'B': line_recall(l, l->history_at + 1); break;
    case 'C': move_cursor(l, l->at + 1); break;
    case 'D': move_cursor(l, l->at - 1); break;
    case 'H': move_cursor(l, 0); break;
    case 'F': move_cursor(l, l->len); break;
    }
}

/* Takes a byte of an escape sequence: after ESC comes '[' or 'O', then perhaps digits and other
 * characters below '@', then a letter that ends it. */
static void in_escape(struct line *l, char c) {
    bool goes_on;

    if (l->escape == ESC) {
        goes_on = c == '[' || c == 'O';
    } else {
        goes_on = c >= ' ' && c < '@';
        if (!goes_on) special_key(l, c);
    }
    l->escape = 0;
    if (goes_on) l->escape = c;
}

/* Does what one byte means that does not belong to an escape sequence: a control character edits
 * the line, and a printable character is put into it. */
static void ordinary_key(struct line *l, char c) {
    switch (c) {
    case ESC: l->escape = ESC; break;
    case CTRL('A'): move_cursor(l, 0); break;
    case CTRL('E'): move_cursor(l, l->len); break;
    case CTRL('U'): line_replace(l, 0, l->len, ""); break;
    case CTRL('W'): drop_word(l); break;
    case CTRL('L'):
        line_emit(l, SCREEN_CLEAR);
        line_show(l);
        break;
    case CTRL('H'):
    case DEL:
        if (l->at) line_replace(l, l->at - 1, 1, "");
        break;
    case '\t': line_complete(l); break;
    default:
        if (c >= ' ') insert_text(l, (char[]){ c, 0 });
    }
}

/* Takes one byte that was typed, and says what came of it. A terminal may send CR, LF or both for
 * the Enter key; an LF after a CR does nothing. */
enum line_event line_feed(struct line *l, char c) {
    bool after_cr = l->was_cr;

    l->was_cr = c == '\r';
    if (c == '\n' && after_cr) return LINE_MORE;
    if (c == '\r' || c == '\n') {
        line_remember(l);
        line_emit(l, "\n");
        return LINE_DONE;
    }
    if (c == CTRL('C')) {
        line_emit(l, "^C\n");
        return LINE_CANCEL;
    }
    if (l->escape)
        in_escape(l, c);
    else
        ordinary_key(l, c);
    return LINE_MORE;
}
