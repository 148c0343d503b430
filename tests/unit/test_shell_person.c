/* What a person sees of the shell: tables that fit a terminal of 80 columns, and texts that
 * explain themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include "fake_log.h"
#include "platform/crashlog.h"
#include "shell_rig.h"

static struct config cfg;

#define LONGEST "the_longest_name_that_a_vm_has1" /* CONFIG_NAME - 1 characters */

static int setup(void **state) {
    fake_machine("credit");
    rig_start(&cfg, "[hypervisor]\n[vm " LONGEST "]\nimage = null\nmemory = 2M\nvcpus = 2\n"
                    "[vm short]\nimage = null\nmemory = 2M\nnet = " LONGEST "\n");
    assert_string_equal(rig_say("create " LONGEST), "takt> ");
    assert_string_equal(rig_say("create short"), "takt> ");
    return 0;
}

static void says(const char *line, const char *expected) {
    const char *said = rig_say(line);

    if (!strstr(said, expected)) fail_msg("%s\n  said: %s\n  expected: %s", line, said, expected);
}

/* ---- 80 columns ---- */

/* Each line of the answer; the prompt behind it is one as well. */
static void fits(const char *command) {
    const char *said = rig_say(command);

    for (const char *line = said; *line;) {
        size_t n = strcspn(line, "\n");

        if (n > SHELL_COLUMNS) fail_msg("%s: %zu columns: %.*s", command, n, (int)n, line);
        line += n + (line[n] != 0);
    }
}

static void tables_fit(void **state) {
    static const char *const commands[] = {
        "list",           "vcpu-list",       "pcpu-list",    "devices", "pci-list",
        "sched-credit",   "sched-credit -s", "cpupool-list", "help",    "version",
        "topology",       "counters",        "info",         "trace",   "param",
        "param -d short", "nodes",           "store ls /",   "dmesg"
    };
    const struct shell_command *c;
    char line[64];

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) fits(commands[i]);
    for (u32 i = 0; (c = shell_command_at(i)); i++) {
        snprintf(line, sizeof(line), "help %s", c->name);
        fits(line);
    }
    assert_non_null(strstr(rig_say("vcpu-list"), "the_longest_nam~    "));
    assert_non_null(strstr(rig_say("vcpu-list -l"), LONGEST " "));
    assert_null(strstr(rig_say("vcpu-list"), "Boost"));
    assert_non_null(strstr(rig_say("vcpu-list -l"), "Boost"));
    assert_null(strstr(rig_say("devices"), "Resets"));
    assert_non_null(strstr(rig_say("devices -l"), "Resets"));
    assert_non_null(strstr(rig_say("vcpu-list -j"), "\"vm\": \"" LONGEST "\""));
    assert_non_null(strstr(rig_say("vcpu-list -j"), "\"boost\": "));
}

/* The text of a parameter goes on below where it began. */
static void texts_are_wrapped(void **state) {
    const char *said = rig_say("param"), *line = strstr(said, "\nweight_scope "), *text, *more;
    char number[24];

    assert_non_null(line);
    text = param_at(shell_pool("Pool-0"), 0)->help;
    for (u32 i = 0; i < 100 && param_at(shell_pool("Pool-0"), i); i++) {
        const struct param *p = param_at(shell_pool("Pool-0"), i);

        if (strcmp(p->name, "boost_hold_us") == 0) text = p->help;
    }
    snprintf(number, sizeof(number), "%.12s", text);
    line = strstr(said, "\nboost_hold_us ") + 1;
    more = strchr(line, '\n') + 1;
    assert_non_null(strstr(line, number));
    assert_true(strlen(text) > 45);
    assert_int_equal(strspn(more, " "), strstr(line, number) - line);
    assert_non_null(strstr(rig_say("param -j boost_hold_us"), text)); /* whole */
}

/* What a crash left of the trace, with the widest numbers that there are. */
static void crash_records_fit(void **state) {
    const struct trace_record records[] = {
        { 1234567890123456, TRC_SCHED_DECISION, 511, 0xfffe0001, { ~0u, ~0u, ~0u, ~0u } },
        { 77, TRC_SWITCH, 1, TRACE_NOBODY, { 1, 2, 3, 4 } },
        { 78, 0x7777, 1, 3 << 16 | 1, { 0 } },
    };
    void *ram = calloc(1, CRASHLOG_SIZE);

    crashlog_open(ram);
    crashlog_report();
    crashlog_records(records, ARRAY_SIZE(records));
    crashlog_open(ram);
    fits("crash -t");
    says("crash -t", "511 sched decision 65534    1 4294967295 4294967295");
    says("crash -t", "\n                                                4294967295 4294967295\n");
    says("crash -t", "  77    1 switch            -1   -1 1 2 3 4\n");
    says("crash -t", "    1 ?                  3    1 0 0 0 0\n");
    says("crash -t -j",
         "{\"ns\": 77, \"cpu\": 1, \"event\": 258, \"event_name\": \"switch\", \"vm\": -1, ");
    says("crash -t -j", "\"arg0\": 1, \"arg1\": 2, \"arg2\": 3, \"arg3\": 4}");
    memset(ram, 0, CRASHLOG_SIZE);
    crashlog_open(ram);
}

static void top_fits(void **state) {
    const char *line;
    u32 rows = 0;

    fake_console_reset();
    fake_console_type("top -b -d 0.01\r");
    rig_run(30 * NS_PER_MS);
    for (line = strchr(fake_console_text, '\n'); line && *++line; line = strchr(line, '\n'), rows++)
        assert_in_range(strcspn(line, "\n"), 0, SHELL_COLUMNS);
    assert_true(rows > 5);
    assert_non_null(strstr(fake_console_text, "the_longest_n~    0"));
    assert_null(strstr(fake_console_text, "switch/s"));
    fake_console_type("\x03top -b -l -d 0.01\r");
    rig_run(30 * NS_PER_MS);
    assert_non_null(strstr(fake_console_text, "switch/s"));
    fake_console_type("\x03");
    rig_run(NS_PER_MS);
}

/* ---- what explains itself ---- */

/* One style: a sentence without subject and full stop, as "lists ...", that fits beside the
 * name. */
static void help_is_of_one_style(void **state) {
    const struct shell_command *c;

    for (u32 i = 0; (c = shell_command_at(i)); i++) {
        size_t first = strcspn(c->help, " "), line = strcspn(c->help, "\n");

        if (line > HELP_WIDTH) fail_msg("%s: its help is %zu characters wide", c->name, line);
        if (c->help[first - 1] != 's')
            fail_msg("%s: its help begins with no verb: %s", c->name, c->help);
        if (c->help[line - 1] == '.') fail_msg("%s: its help ends with a full stop", c->name);
        assert_ptr_equal(shell_command_find(c->name), c);
        for (const char *more = c->help; *more; more += strcspn(more, "\n"), more += *more != 0)
            assert_in_range(strcspn(more, "\n"), 1, SHELL_COLUMNS);
    }
}

/* The names with which scripts are checked before a boot are cut out of the sources. */
static void command_names(void **state) {
    static const char *const names[] = {
#include "commands.inc"
    };
    u32 nr = 0;

    for (; shell_command_at(nr); nr++) continue;
    assert_int_equal(nr, ARRAY_SIZE(names));
    for (u32 i = 0; i < nr; i++) assert_non_null(shell_command_find(names[i]));
}

static void help_is_sorted(void **state) {
    const char *said = rig_say("help");
    char last[32] = "", name[32];
    u32 rows = 0;

    for (const char *line = strchr(said, '\n');
         line && sscanf(line, " %31s", name) == 1 && strcmp(name, "takt>");
         line = strchr(line + 1, '\n'), rows++) {
        assert_true(strcmp(last, name) < 0);
        strcpy(last, name);
    }
    for (u32 i = 0; shell_command_at(i); i++) rows--;
    assert_int_equal(rows, 0);
    assert_null(strstr(said, "-w SECONDS"));
}

/* Every name must fit into its column. */
static void help_in_columns(void **state) {
    const char *text = rig_say("help"), *line;
    const struct shell_command *c;
    long column = 0;

    for (u32 i = 0; (c = shell_command_at(i)); i++) {
        char start[64], help[HELP_WIDTH + 1];

        snprintf(start, sizeof(start), "\n%s ", c->name);
        snprintf(help, sizeof(help), "%.*s", (int)strcspn(c->help, "\n"), c->help);
        line = strstr(text, start);
        assert_non_null(line);
        if (!column) column = strstr(line, help) - line;
        assert_int_equal(strstr(line, help) - line, column);
    }
}

static void help_of_one(void **state) {
    says("help nosuch", "help: there is no command nosuch; help lists them all\n");
    says("help -j nosuch", "\"error\": -2, ");
    says("help list", "list [VM]\nlists VMs, their memory, state and CPU time\nState: r running, b "
                      "blocked, p paused,");
    says("help top", "top [-b] [-l] [-d SECONDS] [-w SECONDS]\nshows what each vCPU gets");
    says("help top", "\n-w SECONDS  measures nothing before");
    says("help -j pause",
         "[{\"name\": \"pause\", \"usage\": \"VM\", \"help\": \"keeps a VM from running\"}]");
    says("help trace",
         "\nstart   records until the rings are full, which keeps the oldest records:\n");
    says("help trace", "`trace keep` beside it");
    says("?", "cpupool-migrate ");
    says("? pause", "pause VM\nkeeps a VM from running\n");
    says("list", "\nState: r running, b blocked, p paused, s shut down, c crashed, d dying\n");
    assert_null(strstr(rig_say("list -j"), "State:"));
}

/* The meaning of each parameter is told in sentences. */
static void params_are_explained(void **state) {
    for (u32 k = 0; sched_policies[k]; k++)
        for (const struct param *e = sched_policies[k]->params; e && e->name; e++) {
            size_t n = strlen(e->help);

            if (n < 30 || e->help[n - 1] != '.') fail_msg("%s: no sentence: %s", e->name, e->help);
        }
}

static void version(void **state) {
    says("version",
         "version         : 0.1\ncommit          : 0123456789+\ndate            : 2026-01-31\n");
    says("version -j",
         "{\"version\": \"0.1\", \"commit\": \"0123456789+\", \"date\": \"2026-01-31\"}");
}

/* ---- top ---- */

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
        cmocka_unit_test(tables_fit),
        cmocka_unit_test(texts_are_wrapped),
        cmocka_unit_test(crash_records_fit),
        cmocka_unit_test(top_fits),
        cmocka_unit_test(help_is_of_one_style),
        cmocka_unit_test(command_names),
        cmocka_unit_test(help_is_sorted),
        cmocka_unit_test(help_in_columns),
        cmocka_unit_test(help_of_one),
        cmocka_unit_test(params_are_explained),
        cmocka_unit_test(version),
        cmocka_unit_test(top_tells_of_vms_not_made),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
