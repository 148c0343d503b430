/* Tests of a lab that run on this computer. A test is a function; a check that fails prints what
 * was expected and what came, and ends the program. The grader reads that line. */
#ifndef LAB_CHECK_H
#define LAB_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <takt/types.h>

struct test {
    const char *name;
    void (*run)(void);
};

static const char *current_test = "";

/* Ends the program, because something is not as expected. */
static inline __attribute__((noreturn)) void differs(const char *what, const char *expected,
                                                     const char *came) {
    fprintf(stderr, "test %s fails:\n", current_test);
    printf("%s\texpected %s\tcame %s\n", what, expected, came);
    exit(1);
}

/* Both values are printed in hexadecimal, as in the manuals. */
static inline void expect(const char *what, u64 came, u64 expected) {
    char texts[2][20];

    if (came == expected) return;
    snprintf(texts[0], sizeof(texts[0]), "%#llx", (unsigned long long)expected);
    snprintf(texts[1], sizeof(texts[1]), "%#llx", (unsigned long long)came);
    differs(what, texts[0], texts[1]);
}

/* The same for what a function returned, 0 or a negative error number. */
static inline void expect_result(const char *what, int came, int expected) {
    char texts[2][20];

    if (came == expected) return;
    snprintf(texts[0], sizeof(texts[0]), "%d", expected);
    snprintf(texts[1], sizeof(texts[1]), "%d", came);
    differs(what, texts[0], texts[1]);
}

/* Runs the test that the first argument names; without one, all of them. Returns the exit
 * status. */
static inline int run_tests(const struct test *tests, int argc, char **argv) {
    bool found = false;

    for (const struct test *t = tests; t->name; t++) {
        if (argc > 1 && strcmp(t->name, argv[1]) != 0) continue;
        current_test = t->name;
        t->run();
        printf("%s: as expected\n", t->name);
        found = true;
    }
    if (!found) fprintf(stderr, "there is no test %s\n", argv[1]);
    return found ? 0 : 2;
}

#endif
