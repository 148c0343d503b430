/* The line editor of the shell, and how a line is split into words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "shell/line.h"
#include "shell/shell.h"

static void split(void **state) {
    static const struct {
        const char *line;
        int n;
        const char *word[4];
    } cases[] = {
        { "", 0, { 0 } },
        { "   \t ", 0, { 0 } },
        { "list", 1, { "list" } },
        { " a  b\tc ", 3, { "a", "b", "c" } },
        { "\"a b\" 'c \"d'", 2, { "a b", "c \"d" } },
        { "a\"b c\"d \"\"", 2, { "ab cd", "" } },
        { "list # -j", 1, { "list" } },
        { "a#b", 1, { "a#b" } },
        { "\"open", -EINVAL, { 0 } },
        { "1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7", -E2BIG, { 0 } },
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char line[64], *argv[SHELL_ARGS + 1];
        int n;

        strcpy(line, cases[i].line);
        n = shell_split(line, argv);
        assert_int_equal(n, cases[i].n);
        for (int k = 0; k < n; k++) assert_string_equal(argv[k], cases[i].word[k]);
        if (n >= 0) assert_null(argv[n]);
    }
}

/* ---- the line editor ---- */

static char screen[8192];

static void keep(const char *s, size_t n) {
    size_t len = strlen(screen);

    if (len + n < sizeof(screen)) {
        memcpy(screen + len, s, n);
        screen[len + n] = 0;
    }
}

static const char *names(const char *word, bool first, unsigned n) {
    static const char *const first_words[] = { "pause", "param", "list", NULL }, *const others[] = {
        "vm-a", "vm-b", NULL
    };

    for (const char *const *w = first ? first_words : others; *w; w++) {
        if (strncmp(*w, word, strlen(word)) == 0 && n-- == 0) return *w;
    }
    return NULL;
}

/* Feeds keys up to and with the end of a line; returns the line. */
static const char *edit(struct line *l, const char *keys) {
    enum line_event e = LINE_MORE;

    line_start(l);
    screen[0] = 0;
    for (; *keys && e == LINE_MORE; keys++) e = line_feed(l, *keys);
    if (e != LINE_DONE) fail_msg("no end: \"%s\"", l->text);
    assert_int_equal(strlen(l->text), l->len);
    return l->text;
}

static void editing(void **state) {
    static struct line l = { .prompt = "> ", .emit = keep, .candidate = names };

    assert_string_equal(edit(&l, "list\r"), "list");
    assert_string_equal(edit(&l, "lit\x1b[Ds\r"), "list");                 /* left */
    assert_string_equal(edit(&l, "ist\x1b[Hl\r"), "list");                 /* Home */
    assert_string_equal(edit(&l, "ist\x01l\x05x\r"), "listx");             /* ^A ^E */
    assert_string_equal(edit(&l, "lisst\x1b[D\x7f\r"), "list");            /* backspace */
    assert_string_equal(edit(&l, "nonsense\x1b[D\x15list\r"), "list");     /* ^U */
    assert_string_equal(edit(&l, "lst\x01\x1b[C\x1bOC\x1b[Di\r"), "list"); /* right */
    assert_string_equal(edit(&l, "\x1b[A\r"), "list");                     /* history */
    assert_string_equal(edit(&l, "new\x1b[A\x1b[A\x1b[B\x1b[B\r"), "");
    /* Keys that the editor does not know do nothing. */
    assert_string_equal(edit(&l, "a\xc3\xa4\x1b[99;5Z\x1bxb\x07\r"), "ab");
}

/* ^W takes the word before the cursor, and the blanks behind it; ^L clears the screen and keeps
 * the line. */
static void words_and_screen(void **state) {
    static struct line l = { .prompt = "> ", .emit = keep, .candidate = names };

    assert_string_equal(edit(&l, "pause vm-a  \x17vm-b\r"), "pause vm-b");
    assert_string_equal(edit(&l, "pause\x17list\r"), "list");
    assert_string_equal(edit(&l, "one two\x1b[D\x17\x17\x17\r"), "o");
    assert_string_equal(edit(&l, "\x17\r"), "");
    assert_string_equal(edit(&l, "lit\x1b[D\x0cs\r"), "list");
    assert_non_null(strstr(screen, "\x1b[H\x1b[2J\r\x1b[K> lit\x1b[1D"));
}

static void editing_limits(void **state) {
    static struct line l = { .prompt = "> ", .emit = keep, .candidate = names };
    char keys[LINE_MAX * 2];

    memset(keys, 'x', sizeof(keys));
    keys[sizeof(keys) - 2] = '\r';
    keys[sizeof(keys) - 1] = 0;
    assert_int_equal(strlen(edit(&l, keys)), LINE_MAX - 1);
    for (int i = 0; i < 40; i++) {
        char line[16];

        sprintf(line, "cmd%d\r", i);
        edit(&l, line);
    }
    assert_string_equal(edit(&l, "\x1b[A\x1b[A\x1b[A\r"), "cmd37");
    memset(keys, 0, sizeof(keys));
    for (int i = 0; i < 30; i++) memcpy(keys + 3 * i, "\x1b[A", 3);
    strcat(keys, "\r");
    assert_string_equal(edit(&l, keys), "cmd25"); /* sixteen are kept: 25 to 39, and 37 again */
    assert_int_equal(line_feed(&l, 'x'), LINE_MORE);
    assert_int_equal(line_feed(&l, 3), LINE_CANCEL);
    line_start(&l);
    assert_int_equal(line_feed(&l, '\r'), LINE_DONE);
    line_start(&l);
    assert_int_equal(line_feed(&l, '\n'), LINE_MORE); /* belongs to the \r */
    assert_int_equal(line_feed(&l, '\n'), LINE_DONE);
}

static void completion(void **state) {
    static struct line l = { .prompt = "> ", .emit = keep, .candidate = names };

    assert_string_equal(edit(&l, "l\t\r"), "list ");
    assert_string_equal(edit(&l, "pau\tv\ta\t\r"), "pause vm-a ");
    assert_string_equal(edit(&l, "pa\t\r"), "pa");
    assert_non_null(strstr(screen, "pause  param"));
    assert_string_equal(edit(&l, "zzz\t\r"), "zzz");
    /* It completes the word that is left of the cursor. */
    assert_string_equal(edit(&l, "st\x01li\t\r"), "list st");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split),
        cmocka_unit_test(editing),
        cmocka_unit_test(words_and_screen),
        cmocka_unit_test(editing_limits),
        cmocka_unit_test(completion),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
