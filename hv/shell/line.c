/* The line editor. A change in the middle of a line draws all of it again: short, and right on any terminal.
 */
#include "shell/line.h"

#include "lib/printf.h"
#include "lib/string.h"

#define CTRL(c) ((c)&0x1f)
#define ESC     0x1b
#define DEL     0x7f

static void emit(struct line *l, const char *s) { l->emit(s, strlen(s)); }

void line_show(struct line *l) {
    char back[16];

    emit(l, LINE_CLEAR);
    emit(l, l->prompt);
    emit(l, l->text);
    if (l->at == l->len) return;
    hv_snprintf(back, sizeof(back), "\x1b[%uD", l->len - l->at);
    emit(l, back);
}

void line_start(struct line *l) {
    l->len = l->at = 0;
    l->text[0] = l->escape = 0;
    l->history_at = l->history_nr;
    emit(l, l->prompt);
}

/* Puts `s` in the place of `gone` characters from `from` on; the cursor ends up behind it. */
static void replace(struct line *l, u32 from, u32 gone, const char *s) {
    u32 n = (u32)strlen(s);
    bool append = from == l->len && n;

    if (l->len - gone + n >= LINE_MAX) return;
    memmove(l->text + from + n, l->text + from + gone, l->len - from - gone + 1);
    memcpy(l->text + from, s, n);
    l->len += n - gone;
    l->at = from + n;
    if (append)
        emit(l, s);
    else
        line_show(l);
}

static void insert(struct line *l, const char *s) { replace(l, l->at, 0, s); }

static void move(struct line *l, u32 to) {
    if (to > l->len) return;
    l->at = to;
    line_show(l);
}

/* Takes the word before the cursor away, and the blanks behind it. */
static void drop_word(struct line *l) {
    u32 from = l->at;

    while (from && l->text[from - 1] == ' ') from--;
    while (from && l->text[from - 1] != ' ') from--;
    if (from < l->at) replace(l, from, l->at - from, "");
}

/* ---- history ---- */

static void recall(struct line *l, u32 which) {
    u32 oldest = l->history_nr > LINE_HISTORY ? l->history_nr - LINE_HISTORY : 0;

    if (which < oldest || which > l->history_nr) return;
    l->history_at = which;
    replace(l, 0, l->len, which == l->history_nr ? "" : l->history[which % LINE_HISTORY]);
}

static void keep(struct line *l) {
    if (!l->len || (l->history_nr && strcmp(l->history[(l->history_nr - 1) % LINE_HISTORY], l->text) == 0))
        return;
    memcpy(l->history[l->history_nr++ % LINE_HISTORY], l->text, LINE_MAX);
}

/* ---- completion ---- */

/* Adds what all candidates have in common; a single one gets a blank behind it; if there is nothing to add,
 * shows them all. */
static void complete(struct line *l) {
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
    insert(l, common + len);
    if (n == 1) {
        insert(l, " ");
    } else if (strlen(common) == len) {
        for (u32 i = 0; (c = l->candidate(word, start == 0, i)); i++) {
            emit(l, i ? "  " : "\n");
            emit(l, c);
        }
        emit(l, "\n");
        line_show(l);
    }
}

/* ---- keys ---- */

/* A key by the last letter of its sequence, "ESC [ A" or "ESC O A". */
static void special(struct line *l, char key) {
    switch (key) {
    case 'A': recall(l, l->history_at - 1); break;
    case 'B': recall(l, l->history_at + 1); break;
    case 'C': move(l, l->at + 1); break;
    case 'D': move(l, l->at - 1); break;
    case 'H': move(l, 0); break;
    case 'F': move(l, l->len); break;
    }
}

/* A byte of an escape sequence: '[' or 'O', then digits and the like, then a letter. */
static void in_escape(struct line *l, char c) {
    bool begins = l->escape == ESC, goes_on = begins ? c == '[' || c == 'O' : c >= ' ' && c < '@';

    l->escape = goes_on ? c : 0;
    if (!begins && !goes_on) special(l, c);
}

static void plain(struct line *l, char c) {
    switch (c) {
    case ESC: l->escape = ESC; break;
    case CTRL('A'): move(l, 0); break;
    case CTRL('E'): move(l, l->len); break;
    case CTRL('U'): replace(l, 0, l->len, ""); break;
    case CTRL('W'): drop_word(l); break;
    case CTRL('L'):
        emit(l, SCREEN_CLEAR);
        line_show(l);
        break;
    case CTRL('H'):
    case DEL:
        if (l->at) replace(l, l->at - 1, 1, "");
        break;
    case '\t': complete(l); break;
    default:
        if (c >= ' ') insert(l, (char[]){ c, 0 });
    }
}

enum line_event line_feed(struct line *l, char c) {
    bool after_cr = l->was_cr;

    l->was_cr = c == '\r';
    if (c == '\n' && after_cr) return LINE_MORE;
    if (c == '\r' || c == '\n') {
        keep(l);
        emit(l, "\n");
        return LINE_DONE;
    }
    if (c == CTRL('C')) {
        emit(l, "^C\n");
        return LINE_CANCEL;
    }
    if (l->escape)
        in_escape(l, c);
    else
        plain(l, c);
    return LINE_MORE;
}
