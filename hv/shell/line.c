/* The line editor. A change in the middle of a line draws all of it again: short, and right on any terminal.
 */
#include "shell/line.h"

#include "lib/printf.h"
#include "lib/string.h"

#define CTRL(c) ((c)&0x1f)
#define ESC     0x1b
#define DEL     0x7f

enum { PLAIN, AFTER_ESC, AFTER_BRACKET };

static void emit(struct line *l, const char *s) { l->emit(l->ctx, s, strlen(s)); }

void line_hide(struct line *l) { emit(l, "\r\x1b[K"); }

void line_show(struct line *l) {
    char back[16];

    emit(l, "\r");
    emit(l, l->prompt);
    l->emit(l->ctx, l->text, l->len);
    emit(l, "\x1b[K");
    if (l->at < l->len) {
        hv_snprintf(back, sizeof(back), "\x1b[%uD", l->len - l->at);
        emit(l, back);
    }
}

void line_start(struct line *l) {
    l->len = l->at = 0;
    l->text[0] = 0;
    l->escape = PLAIN;
    l->history_at = l->history_nr;
    emit(l, l->prompt);
}

static void insert(struct line *l, const char *s, u32 n) {
    if (l->len + n >= LINE_MAX) return;
    memmove(l->text + l->at + n, l->text + l->at, l->len - l->at + 1);
    memcpy(l->text + l->at, s, n);
    l->len += n;
    l->at += n;
    if (l->at == l->len)
        l->emit(l->ctx, s, n);
    else
        line_show(l);
}

/* Removes `n` characters from `from` on; the cursor ends up there. */
static void cut(struct line *l, u32 from, u32 n) {
    if (!n) return;
    memmove(l->text + from, l->text + from + n, l->len - from - n + 1);
    l->len -= n;
    l->at = from;
    line_show(l);
}

static void move(struct line *l, u32 to) {
    if (to > l->len) return;
    l->at = to;
    line_show(l);
}

static u32 word_start(const struct line *l) {
    u32 i = l->at;

    while (i && l->text[i - 1] == ' ') i--;
    while (i && l->text[i - 1] != ' ') i--;
    return i;
}

/* ---- history ---- */

static void recall(struct line *l, u32 which) {
    u32 oldest = l->history_nr > LINE_HISTORY ? l->history_nr - LINE_HISTORY : 0;

    if (which < oldest || which > l->history_nr || which == l->history_at) return;
    l->history_at = which;
    if (which == l->history_nr)
        l->text[0] = 0;
    else
        memcpy(l->text, l->history[which % LINE_HISTORY], LINE_MAX);
    l->len = l->at = (u32)strlen(l->text);
    line_show(l);
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
    char word[LINE_MAX], common[LINE_MAX];
    u32 start = l->at, n = 0, len;
    const char *c;
    bool first;

    while (start && l->text[start - 1] != ' ') start--;
    len = l->at - start;
    memcpy(word, l->text + start, len);
    word[len] = 0;
    first = strnlen(l->text, start) == start;
    for (u32 i = 0; i < start; i++) first &= l->text[i] == ' ';

    for (common[0] = 0; l->candidate && (c = l->candidate(l->ctx, word, first, n)); n++) {
        u32 same = 0;

        if (n == 0) hv_snprintf(common, sizeof(common), "%s", c);
        while (common[same] && common[same] == c[same]) same++;
        common[same] = 0;
    }
    if (n == 0) return;
    if (strlen(common) > len) insert(l, common + len, (u32)strlen(common) - len);
    if (n == 1) {
        insert(l, " ", 1);
    } else if (strlen(common) == len) {
        for (u32 i = 0; (c = l->candidate(l->ctx, word, first, i)); i++) {
            emit(l, i ? "  " : "\n");
            emit(l, c);
        }
        emit(l, "\n");
        line_show(l);
    }
}

/* ---- keys ---- */

/* A key by the last letter of its sequence, "ESC [ A" or "ESC O A", or by its number, "ESC [ 3 ~". */
static void special(struct line *l, char key) {
    switch (key) {
    case 'A': recall(l, l->history_at - 1); break;
    case 'B': recall(l, l->history_at + 1); break;
    case 'C': move(l, l->at + 1); break;
    case 'D': move(l, l->at - 1); break;
    case 'H':
    case '1':
    case '7': move(l, 0); break;
    case 'F':
    case '4':
    case '8': move(l, l->len); break;
    case '3': cut(l, l->at, l->at < l->len); break;
    }
}

static void in_escape(struct line *l, char c) {
    u8 state = l->escape;

    l->escape = PLAIN;
    if (state == AFTER_ESC) {
        l->number = 0;
        if (c == '[' || c == 'O') l->escape = AFTER_BRACKET;
    } else if ((c >= '0' && c <= '9') || c == ';') {
        if (!l->number) l->number = c;
        l->escape = AFTER_BRACKET;
    } else {
        special(l, c == '~' ? l->number : c);
    }
}

static void control(struct line *l, char c) {
    static const char same[] = { CTRL('A'), 'H',       CTRL('E'), 'F',       CTRL('B'), 'D',       CTRL('F'),
                                 'C',       CTRL('P'), 'A',       CTRL('N'), 'B',       CTRL('D'), '3' };
    u32 start = word_start(l);

    for (u32 i = 0; i < sizeof(same); i += 2) {
        if (same[i] == c) special(l, same[i + 1]);
    }
    switch (c) {
    case CTRL('H'):
    case DEL: cut(l, l->at - 1, l->at > 0); break;
    case CTRL('K'): cut(l, l->at, l->len - l->at); break;
    case CTRL('U'): cut(l, 0, l->at); break;
    case CTRL('W'): cut(l, start, l->at - start); break;
    case CTRL('L'):
        emit(l, "\x1b[H\x1b[2J");
        line_show(l);
        break;
    case '\t': complete(l); break;
    }
}

enum line_event line_feed(struct line *l, char c) {
    bool after_cr = l->was_cr;

    l->was_cr = c == '\r';
    if (c == '\n' && after_cr) return LINE_MORE;
    if (c == '\r' || c == '\n') {
        keep(l);
        l->escape = PLAIN;
        emit(l, "\n");
        return LINE_DONE;
    }
    if (c == CTRL('C')) {
        emit(l, "^C\n");
        return LINE_CANCEL;
    }
    if (c == ESC)
        l->escape = AFTER_ESC;
    else if (l->escape)
        in_escape(l, c);
    else if ((unsigned char)c < ' ' || c == DEL)
        control(l, c);
    else if ((unsigned char)c < DEL)
        insert(l, &c, 1);
    return LINE_MORE;
}
