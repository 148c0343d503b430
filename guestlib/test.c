/* How a guest test reports its result: one last line `RESULT: ...` on its console, and an exit
 * code, by which tests/guest/runner.py judges it. test.h explains the four results. */
#include <guest/printf.h>
#include <guest/string.h>
#include <guest/test.h>

static unsigned failures;

/* Prints the last line of the test. Returns the exit code that belongs to the result. */
static int result(enum test_result r, const char *reason) {
    static const char *const names[] = { "SUCCESS", "SKIP", "ERROR", "FAILURE" };

    printf("RESULT: %s %s\n", names[r], reason);
    return r;
}

/* A guest that gives up has failed its test; without this, its run would look like a crash that the
 * test wanted. */
static void on_panic(const char *why) { guest_exit(result(TEST_FAILURE, why)); }

void test_begin(void) { guest_panic_hook = on_panic; }

/* Prints what went wrong, and counts it. */
void test_fail(const char *fmt, ...) {
    va_list ap;

    /* The first wrong checks tell enough. A loop that goes wrong must not flood the console. */
    if (++failures > 20) return;
    printf("  wrong: ");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

int test_end(const char *reason) {
    char buf[64];

    if (!failures) return result(TEST_SUCCESS, reason);
    snprintf(buf, sizeof(buf), "%u checks failed", failures);
    return result(TEST_FAILURE, buf);
}

void test_skip(const char *reason) { guest_exit(result(TEST_SKIP, reason)); }

void test_error(const char *reason) { guest_exit(result(TEST_ERROR, reason)); }

/* Ends the test as FAILURE, after a failure after which it makes no sense to go on. */
void test_fatal(const char *fmt, ...) {
    char buf[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    guest_exit(result(TEST_FAILURE, buf));
}

void test_survived(void) { test_fatal("went on after what should have ended the VM"); }

void check_exception(u8 got, u8 want, const char *what) {
    CHECK(got == want, "%s: %s instead of %s", what, exception_name(got), exception_name(want));
}

bool test_on(const char *platform) {
    char name[16];

    return cmdline_str("platform", name, sizeof(name)) && !strcmp(name, platform);
}

void test_needs_takt(void) {
    if (!on_takt()) test_skip("needs Takt");
}
