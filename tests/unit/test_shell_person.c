/* What a person sees of the shell: tables that fit a terminal of 80 columns, and texts that explain
 * themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "fake_log.h"
#include "shell_rig.h"

static struct config cfg;

static int setup(void **state) {
    fake_machine("credit");
    rig_start(&cfg, "[hypervisor]\n");
    return 0;
}

/* The first line of the live table after `ns`, and of the plain one. */
static const char *first_line(const char *command, u64 ns) {
    char *line, *end;

    fake_console_reset();
    fake_console_type(command);
    rig_run(ns);
    fake_console_type("\x03");
    rig_run(NS_PER_MS);
    line = strstr(fake_console_text, "Takt, up ");
    assert_non_null(line);
    end = strpbrk(line, "\x1b\n");
    if (end) *end = 0;
    return line;
}

/* The live table covers the log, where it says that a VM could not be made. */
static void top_tells_of_vms_not_made(void **state) {
    const u64 two_looks = 2100 * NS_PER_MS;

    assert_null(strstr(first_line("top\r", two_looks), "could not be made"));
    assert_non_null(strstr(rig_say("top -j -d 0.01"), "\"vms_not_made\": 0, "));
    shell_vm_not_made();
    assert_non_null(strstr(first_line("top\r", two_looks), "; 1 VM could not be made: dmesg"));
    shell_vm_not_made();
    assert_non_null(strstr(first_line("top\r", two_looks), "; 2 VMs could not be made: dmesg"));
    assert_non_null(strstr(first_line("top -b\r", two_looks), "; 2 VMs could not be made: dmesg"));
    assert_non_null(strstr(rig_say("top -j -d 0.01"), "\"vms_not_made\": 2, "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_tells_of_vms_not_made),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
