/* A guest test ends with one line `RESULT: SUCCESS|SKIP|ERROR|FAILURE reason`, and with the
 * enum's value as the VM's exit code. ERROR: the test is broken, or what it stands
 * on. FAILURE: Takt is. An exception that nobody expects, and any panic, is a FAILURE.
 *
 *     int main(void)
 *     {
 *         test_begin();
 *         CHECK(1 + 1 == 2, "1 + 1 is %d", 1 + 1);
 *         return test_end("arithmetic works");
 *     }
 *
 * What the runner has to know is in comment lines at the top of the file: docs/writing-a-guest.md.
 */
#ifndef GUEST_TEST_H
#define GUEST_TEST_H

#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/trap.h>

enum test_result { TEST_SUCCESS = 0, TEST_SKIP = 1, TEST_ERROR = 2, TEST_FAILURE = 3 };

void test_begin(void);
/* One thing went wrong: printed, and the test goes on. */
void test_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The last line of main(): SUCCESS with this reason if nothing failed, else FAILURE. */
int test_end(const char *reason);
void test_skip(const char *reason) __attribute__((noreturn));
void test_error(const char *reason) __attribute__((noreturn));
/* Ends at once as FAILURE. */
void test_fatal(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* For tests that are meant to be killed: they should never get here. */
void test_survived(void) __attribute__((noreturn));

#define CHECK(cond, ...)                                                                                     \
    do {                                                                                                     \
        if (!(cond)) test_fail(__VA_ARGS__);                                                                 \
    } while (0)

/* `got` must be the exception `want` (a vector, or EXC_NONE). */
void check_exception(u8 got, u8 want, const char *what);

/* Is this the platform of that name (`platform=` of the command line, from the runner)? For checks that an
 * emulator cannot show, because its CPU forgets them; say which at the place. */
bool test_on(const char *platform);
/* Skips unless Takt is below. */
void test_needs_takt(void);

#endif
