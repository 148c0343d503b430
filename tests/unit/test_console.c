/* The console on a serial line that carries 11,520 bytes a second: shell, log and guests share it.
 * The shell, the guests' consoles and the UART's driver are the real ones; the UART is a model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "fake_machine.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "uart_model.h"
#include "x86/tsc.h"

#define now_ns() machine_now() /* of fake_machine.h: it does not end after 4 s */
#include "platform/console.c"
#include "platform/power.h"
#undef now_ns

#define BYTES_PER_S 11520u
#define PASS_NS     (250 * NS_PER_US) /* how often the pCPUs come along */

/* ---- what else the shell and the console need ---- */

void platform_poweroff(void) { abort(); }

void platform_reboot(void) { abort(); }

const char fault_words[] = "none";

int fault_inject(const char *what) { return -1; }

void screen_write(const char *s, size_t n) {}

void panic(const char *fmt, ...) {
    fputs(fmt, stderr);
    abort();
}

/* ---- the rig ---- */

static struct config cfg;
static const char script[] = "@6s list -j=timed\n";
static const struct module script_module = { "script", script, sizeof(script) - 1 };
static void (*guests)(void); /* what guests do at each pass */

static void run(u64 ns) {
    for (u64 end = fake_now + ns; fake_now < end; fake_clock(fake_now + PASS_NS)) {
        if (guests) guests();
        fake_advance(0);
        for (u32 cpu = 0; cpu < FAKE_CPUS; cpu++) fake_pass(cpu);
        fake_cpu(0);
        fake_work_due();
        model_update();
    }
}

/* Runs until the line has carried `what` behind `from`; returns how long that took, or fails. */
static u64 run_until(u32 from, const char *what, u64 limit) {
    u64 began = fake_now;

    while (!strstr(model.text + from, what)) {
        if (fake_now - began > limit)
            fail_msg("no \"%s\" within %lu ms; the line carried: %s", what, limit / NS_PER_MS,
                     model.text + MAX(from, model.len > 500 ? model.len - 500 : 0));
        run(NS_PER_MS);
    }
    return fake_now - began;
}

static u32 count(const char *text, const char *what) {
    u32 n = 0;

    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

static int setup(void **state) {
    static const char text[] = "[hypervisor]\nguest_console = log\nscript = script\n";

    fake_machine("credit");
    module_add(&script_module);
    config_defaults(&cfg);
    ASSERT(config_parse(&cfg, "rig", text, strlen(text), param_kind, NULL, NULL) == 0);
    console_init("com1,115200");
    shell_init(&cfg);
    console_set_async();
    run_until(0, "takt> ", NS_PER_S);
    return 0;
}

#define CHATTY 9
static struct vm *chatty[CHATTY];

/* Each prints as fast as it can: what finds its ring full is lost to it. */
static void print_all(void) {
    static char line[160];

    memset(line, 1, 158);
    line[158] = '\n';
    for (u32 i = 0; i < CHATTY; i++)
        if (chatty[i]) vconsole_put(&chatty[i]->console, line, 159);
}

static void make_chatty(u32 n) {
    char name[] = "chatty-0";

    for (u32 i = 0; i < n; i++) {
        struct config_vm c;

        name[7] = (char)('0' + i);
        c = fake_config(name, 1);
        assert_int_equal(vm_create(&c, NULL, NULL), 0);
        run(10 * NS_PER_MS);
        chatty[i] = vm_find(name);
        assert_non_null(chatty[i]);
    }
    guests = print_all;
}

static void end_chatty(void) {
    guests = NULL;
    for (u32 i = 0; i < CHATTY; i++) {
        if (!chatty[i]) continue;
        vm_destroy(chatty[i], NULL, NULL);
        vm_put(chatty[i]);
        chatty[i] = NULL;
    }
    run(6 * NS_PER_S); /* their last words */
}

/* A command gets its answer, and the prompt is drawn for lines of the log and not for nothing. */
static void operator_gets_through(u32 vms, u64 limit) {
    u32 from, prompts, lines;

    make_chatty(vms);
    run(2 * NS_PER_S);
    from = model.len;
    model_type("info\r");
    run_until(from, "uptime s", limit);
    run(2 * NS_PER_S);
    prompts = count(model.text + from, "takt> ");
    lines = count(model.text + from, "chatty-");
    assert_in_range(lines, 20, 1000); /* the guests have their part of the line, too */
    assert_in_range(prompts, 1, lines + 2);
    /* the log's other lines do not wait until the guests have ended */
    log_warn("a line of the hypervisor");
    run_until(from, "a line of the hypervisor", limit);
    assert_int_equal(console_dropped(), 0);
    end_chatty();
}

static void one_guest_cannot_lock_the_operator_out(void **state) {
    operator_gets_through(1, 500 * NS_PER_MS);
}

static void nine_guests_cannot_either(void **state) { operator_gets_through(CHATTY, 500 * NS_PER_MS); }

/* What guests print in all does not push the hypervisor's own lines out of the log. */
static void guests_leave_the_log_to_the_hypervisor(void **state) {
    static char text[1 << 20];
    u64 position = 0;
    size_t n = 0, got;

    log_info("said before");
    make_chatty(CHATTY);
    run(20 * NS_PER_S);
    end_chatty();
    while ((got = log_read(&position, text + n, sizeof(text) - n - 1))) n += got;
    text[n] = 0;
    assert_non_null(strstr(text, "said before"));
    assert_non_null(strstr(text, "chatty-8: "));
    for (const char *s = text, *end; (end = strchr(s, '\n')) && strchr(end, '['); s = end + 1)
        assert_true(strncmp(s, end + 1, 14) <= 0); /* in the order of time */
}

/* Timed commands run when they are due. */
static void timed_commands_are_not_late(void **state) {
    make_chatty(CHATTY);
    while (fake_now < 6 * NS_PER_S - 100 * NS_PER_MS) run(NS_PER_MS);
    run_until(model.len, "{\"id\": \"timed\", \"command\": \"list\", \"error\": 0", 700 * NS_PER_MS);
    end_chatty();
}

/* A command that prints without end does not keep the log from the line. */
static void shell_leaves_room_for_the_log(void **state) {
    u32 from = model.len;

    model_type("top -b -d 0.02\r");
    run(NS_PER_S);
    log_warn("said meanwhile");
    run_until(from, "said meanwhile", 2 * NS_PER_S);
    model_type("\x03");
    run(3 * NS_PER_S);
    from = model.len;
    model_type("\r");
    run_until(from, "takt> ", NS_PER_S);
}

/* What is between the braces of an answer in JSON is never cut. */
static void answers_stay_whole(void **state) {
    u32 from;

    make_chatty(3);
    run(NS_PER_S);
    from = model.len;
    model_type("counters -j=whole\r");
    run_until(from, "]}\r\n", 4 * NS_PER_S);
    for (const char *s = strstr(model.text + from, "\x1e{"); s && *s != '\n'; s++)
        assert_int_not_equal(*s, 0x1b);
    assert_null(memchr(strstr(model.text + from, "\x1e{"), '\n',
                       (size_t)(strstr(model.text + from, "]}\r\n") - strstr(model.text + from, "\x1e{"))));
    end_chatty();
}

/* The line stands still for a while, as behind a BMC: a panic is told all the same. */
static void panic_after_a_stall(void **state) {
    u32 from = model.len;
    u64 began;

    model_stall(300 * NS_PER_MS);
    console_set_panic();
    log_err("PANIC: first");
    console_flush();
    assert_non_null(strstr(model.text + from, "PANIC: first"));
    /* a line that is dead costs about a second, once */
    model_stall(FOREVER);
    began = fake_now;
    for (int i = 0; i < 30; i++) log_err("PANIC: unheard");
    console_flush();
    assert_in_range(fake_now - began, NS_PER_S, 2 * NS_PER_S);
    /* and is tried again */
    model_stall(0);
    model.sent_at = fake_now;
    log_err("PANIC: after");
    console_flush();
    assert_non_null(strstr(model.text + from, "PANIC: after"));
    /* with all patience, once it has moved */
    model_stall(300 * NS_PER_MS);
    log_err("PANIC: again");
    console_flush();
    assert_non_null(strstr(model.text + from, "PANIC: again"));
    assert_int_equal(model.overwritten, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timed_commands_are_not_late),
        cmocka_unit_test(one_guest_cannot_lock_the_operator_out),
        cmocka_unit_test(nine_guests_cannot_either),
        cmocka_unit_test(guests_leave_the_log_to_the_hypervisor),
        cmocka_unit_test(shell_leaves_room_for_the_log),
        cmocka_unit_test(answers_stay_whole),
        cmocka_unit_test(panic_after_a_stall),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
