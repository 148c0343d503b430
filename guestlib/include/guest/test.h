/* A guest test ends with one line `RESULT: SUCCESS|SKIP|ERROR|FAILURE reason`, and with a value of
 * enum test_result as the VM's exit code. ERROR means that the test itself or its environment is
 * broken; FAILURE means that Takt is broken. A panic, or an exception that was not expected, is a
 * FAILURE.
 *
 *     int main(void)
 *     {
 *         test_begin();
 *         CHECK(1 + 1 == 2, "1 + 1 is %d", 1 + 1);
 *         return test_end("arithmetic works");
 *     }
 *
 * The comment at the top of the file tells the runner what the test needs: docs/writing-a-guest.md.
 */
#ifndef GUEST_TEST_H
#define GUEST_TEST_H

#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/trap.h>

enum test_result { TEST_SUCCESS = 0, TEST_SKIP = 1, TEST_ERROR = 2, TEST_FAILURE = 3 };

/* Begins a test, as the first call of main(). */
void test_begin(void);
/* Prints what went wrong and counts it. The test goes on. */
void test_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* For the last line of main(): prints SUCCESS with this reason if nothing failed, or else FAILURE.
 * Returns the exit code. */
int test_end(const char *reason);
/* Ends the test at once, with the reason: as SKIP if it cannot be done here, or as ERROR if what it
 * needs is not in order. */
void test_skip(const char *reason) __attribute__((noreturn));
void test_error(const char *reason) __attribute__((noreturn));
/* Ends the test at once, as FAILURE. */
void test_fatal(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
/* For tests that Takt has to stop: ends the test as FAILURE, because the VM should not have come
 * here. */
void test_survived(void) __attribute__((noreturn));

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) test_fail(__VA_ARGS__);                                                       \
    } while (0)

/* Checks that `got` is the exception `want` (a vector, or EXC_NONE). `what` names the instruction.
 */
void check_exception(u8 got, u8 want, const char *what);

/* Returns whether the test runs on that platform, which the runner names on the command line
 * (`platform=`). This is for checks that fail on an emulator because it does not do what a CPU
 * does. A comment beside the check says what is different. */
bool test_on(const char *platform);
/* Skips the test if the VM does not run on Takt. */
void test_needs_takt(void);

#endif
