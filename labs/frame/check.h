/* Tests of a lab that run on this computer. A test is a function; a check that fails prints what
 * was expected and what came, and ends the program. The grader reads that. */
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

/* Both values are printed in hexadecimal, as in the manuals. */
static inline void expect(const char *what, u64 came, u64 expected) {
    if (came == expected) return;
    printf("%s\t%#llx\t%#llx\n", what, (unsigned long long)expected, (unsigned long long)came);
    exit(1);
}

/* The same for what a function returned, 0 or a negative error number. */
static inline void expect_result(const char *what, int came, int expected) {
    if (came == expected) return;
    printf("%s\t%d\t%d\n", what, expected, came);
    exit(1);
}

/* Runs the test that the first argument names; without one, all of them. Returns the exit
 * status. */
static inline int run_tests(const struct test *tests, int argc, char **argv) {
    bool found = false;

    for (const struct test *t = tests; t->name; t++) {
        if (argc > 1 && strcmp(t->name, argv[1]) != 0) continue;
        t->run();
        printf("%s: as expected\n", t->name);
        found = true;
    }
    if (!found) fprintf(stderr, "there is no test %s\n", argv[1]);
    return found ? 0 : 2;
}

#endif
