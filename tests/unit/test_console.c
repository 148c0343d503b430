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
#include <takt/errno.h>
#include "fake_machine.h"
#include "platform/hostmap.h"
#include "platform/irq.h"
#include "platform/keyboard.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "uart_model.h"
#include "x86/tsc.h"

/* ---- interrupts, and registers in memory ---- */

static void (*irq_fn)(void *arg);
static bool irq_masked = true, irq_dead, irq_none;
static u32 irq_gsi;

static int model_irq_alloc(void (*fn)(void *arg), void *arg) {
    irq_fn = fn;
    return irq_none ? -ENOSPC : 0x40;
}

static void model_irq_free(int vector) { irq_fn = NULL; }

static int model_irq_pin_connect(u32 gsi, int vector, u32 flags) {
    irq_gsi = gsi;
    return 0;
}

static void model_irq_pin_mask(u32 gsi, bool masked) { irq_masked = masked; }

static u64 mapped;

static volatile void *model_mmio_map(hpa_t pa, u64 len) {
    static u8 page[4096];

    mapped = pa;
    return page;
}

static u32 pci_address, pci_space[3][64]; /* configuration space of 00:00.0, 00:01.0, 00:02.0 */

static void model_outl(u16 port, u32 v) {
    u32 device = pci_address >> 11 & 31, reg = pci_address >> 2 & 63;

    if (port == 0xcf8) pci_address = v;
    if (port == 0xcfc && pci_address >> 31 && device < 3) pci_space[device][reg] = v;
}

static u32 model_inl(u16 port) {
    u32 device = pci_address >> 11 & 31, reg = pci_address >> 2 & 63;

    return port == 0xcfc && pci_address >> 31 && device < 3 ? pci_space[device][reg] : ~0u;
}

#define now_ns()        machine_now() /* of fake_machine.h: it does not end after 4 s */
#define irq_alloc       model_irq_alloc
#define irq_free        model_irq_free
#define irq_pin_connect model_irq_pin_connect
#define irq_pin_mask    model_irq_pin_mask
#define mmio_map        model_mmio_map
#define inl             model_inl
#define outl            model_outl
#include "platform/serial.c"
#include "platform/console.c"
#undef inl
#undef mmio_map
#undef irq_alloc
#undef irq_free
#undef irq_pin_connect
#undef irq_pin_mask
#undef outl
#include "platform/power.h"
#undef now_ns

#define BYTES_PER_S 11520u
#define PASS_NS     (250 * NS_PER_US) /* how often the pCPUs come along */

/* ---- what else the shell and the console need ---- */

void platform_poweroff(void) { abort(); }

void platform_reboot(void) { abort(); }

const char fault_words[] = "none";

int fault_inject(const char *what) { return -1; }

/* These are called at boot and in a panic, and by the terminal of the shell. */
static char on_screen[1 << 16], terminal_text[1 << 16];
static bool has_screen = true, terminal_began;
/* The function that gets what is typed at the keyboard, or NULL if there is no keyboard. */
static void (*typed)(const char *s, unsigned n);
static bool has_keyboard;

static void keep(char *all, size_t size, const char *s, size_t n) {
    size_t len = strlen(all);

    if (len + n >= size) len = 0;
    memcpy(all + len, s, n);
    all[len + n] = 0;
}

void screen_write(const char *s, size_t n) { keep(on_screen, sizeof(on_screen), s, n); }

bool screen_there(void) { return has_screen; }

void screen_start_terminal(void) { terminal_began = true; }

void screen_feed(const char *s, size_t n) {
    if (terminal_began) keep(terminal_text, sizeof(terminal_text), s, n);
}

bool screen_step(void) { return false; }

bool keyboard_start(const struct acpi_info *a, void (*input)(const char *s, unsigned n)) {
    typed = input;
    return has_keyboard;
}

void panic(const char *fmt, ...) {
    fputs(fmt, stderr);
    abort();
}

/* ---- the rig ---- */

static struct config cfg;
static struct config_vm cfg_vms[CONFIG_MAX_VMS];
static struct acpi_info acpi = { .nr_overrides = 1,
                                 .override = { { 20, 0xf, 3 } } }; /* line 3: pin 20, low, level */
static const char script[] = "@6s list -j=timed\n";
static const struct module script_module = { "script", script, sizeof(script) - 1 };
static void (*guests)(void); /* what guests do at each pass */

static void run(u64 ns) {
    for (u64 end = fake_now + ns; fake_now < end; fake_clock(fake_now + PASS_NS)) {
        if (guests) guests();
        if (irq_fn && !irq_masked && !irq_dead && model_interrupts()) irq_fn(NULL);
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
    config_defaults(&cfg, cfg_vms, CONFIG_MAX_VMS);
    ASSERT(config_parse(&cfg, "rig", text, strlen(text), param_name_at, NULL, NULL) == 0);
    console_init("com1,115200", &acpi);
    shell_init(&cfg);
    has_keyboard = true;
    console_set_async(&acpi);
    run_until(0, "takt> ", NS_PER_S);
    return 0;
}

#define CHATTY 9
static struct vm *chatty[CHATTY];

/* Each VM prints as fast as it can. What finds its ring full is lost. */
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

/* A command gets its answer. The prompt is drawn again only after lines of the log. */
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
    /* Other lines of the log do not wait until the guests have ended theirs. */
    log_warn("a line of the hypervisor");
    run_until(from, "a line of the hypervisor", limit);
    assert_int_equal(console_dropped(), 0);
    end_chatty();
}

static void one_guest_cannot_lock_the_operator_out(void **state) {
    operator_gets_through(1, 500 * NS_PER_MS);
}

static void nine_guests_cannot_either(void **state) {
    operator_gets_through(CHATTY, 500 * NS_PER_MS);
}

/* However much guests print, they do not push the hypervisor's own lines out of the log. */
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
/* A program of a guest that draws on the terminal gets its bytes there as they are, and no line of
 * the log comes between them. The log comes when the operator has left. */
static void a_drawing_is_left_alone(void **state) {
    u32 from = model.len, drawn;

    make_chatty(1);
    guests = NULL;
    model_type("console -r chatty-0\r");
    run_until(from, "Connected to chatty-0. ^] leaves.\r\n", 500 * NS_PER_MS);
    from = drawn = model.len;
    for (int i = 0; i < 10; i++) {
        log_warn("a line of the log");
        vconsole_put(&chatty[0]->console, "\x1b[5;6Hx\n\b", 9);
        run(50 * NS_PER_MS);
    }
    assert_int_equal(count(model.text + from, "\x1b[5;6Hx\n\b"), 10);
    assert_int_equal(model.len - drawn, 90);
    model_type("\x1d");
    run_until(from, "Disconnected from chatty-0.\r\n", 500 * NS_PER_MS);
    run(NS_PER_S);
    assert_int_equal(count(model.text + from, "a line of the log\r\n"), 10);
    end_chatty();
}

static void timed_commands_are_not_late(void **state) {
    make_chatty(CHATTY);
    while (fake_now < 6 * NS_PER_S - 100 * NS_PER_MS) run(NS_PER_MS);
    run_until(model.len, "{\"id\": \"timed\", \"command\": \"list\", \"error\": 0",
              700 * NS_PER_MS);
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
    assert_null(
        memchr(strstr(model.text + from, "\x1e{"), '\n',
               (size_t)(strstr(model.text + from, "]}\r\n") - strstr(model.text + from, "\x1e{"))));
    end_chatty();
}

/* ---- what is typed ---- */

/* A script of commands comes without pauses, while the transmitter stands still and a guest prints.
 * No command is lost. */
static void script_loses_nothing(void) {
    static char text[8192];
    u32 n = 300, from, lost = model.lost;
    size_t len = 0;

    for (u32 i = 0; i < n; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, "list x -j=%u\r", i);
    make_chatty(1);
    run(100 * NS_PER_MS);
    from = model.len;
    model_type(text);
    for (int i = 0; i < 5; i++) {
        model_stall(300 * NS_PER_MS);
        run(400 * NS_PER_MS);
    }
    run_until(from,
              "\x1e{\"id\": \"299\", \"command\": \"list\", \"error\": -2, \"message\": \"there is "
              "no VM x\"",
              60 * NS_PER_S);
    assert_int_equal(model.lost, lost);
    assert_int_equal(count(model.text + from, "\"message\": \"there is no VM x\""), n);
    end_chatty();
}

static void interrupts_bring_input(void **state) {
    assert_int_equal(irq_gsi, 4);
    assert_true(interrupted);
    script_loses_nothing();
}

/* Returns how long the console rests when there is nothing to do. */
static u64 rest(void) {
    struct work w = { 0 };
    u64 now = fake_now;

    console_pump(&w);
    return w.not_before - now;
}

/* A port that interrupts is looked at rarely. A port that does not is looked at before its FIFO can
 * be full. */
static void idle_console_rests(void **state) {
    run(NS_PER_S);
    assert_int_equal(rest(), 10 * NS_PER_MS);
    interrupted = listening = false;
    assert_in_range(rest(), 1, 1300000);
    interrupted = listening = true;
}

static void without_interrupts_it_is_polled(void **state) {
    u32 from = model.len;

    irq_dead = true;
    interrupted = listening = false;
    port_listen();
    run_until(from, "com1 does not interrupt: Takt looks at it every millisecond", NS_PER_S);
    assert_true(irq_masked);
    script_loses_nothing();
    irq_dead = false;
}

static void unknown_interrupt_is_polled(void **state) {
    interrupted = listening = false;
    serial.has_gsi = false;
    port_listen();
    script_loses_nothing();
    serial.has_gsi = irq_none = true;
    port_listen();
    assert_false(listening);
    script_loses_nothing();
    irq_none = false;
    port_listen();
    run(100 * NS_PER_MS);
    assert_true(interrupted);
}

/* If more is typed than the shell keeps, the shell says so. */
static void too_much_is_told(void **state) {
    static char text[40001];
    u32 from = model.len;

    memset(text, '#', sizeof(text) - 1);
    memcpy(text, "wait Pool 2s\r", 13);
    memcpy(text, "top -b -d 1\r", 12);
    for (u32 i = 100; i < sizeof(text) - 1; i += 100) text[i] = '\r';
    model_type(text);
    run(5 * NS_PER_S);
    model_type("\x03");
    run_until(from, "bytes came too early and got lost", 20 * NS_PER_S);
}

/* ---- where it is ---- */

static const char *find(const char *spec, const struct acpi_info *a, struct serial *s) {
    struct console_spec want;

    assert_int_equal(parse_console(spec, &want, NULL), 0);
    return serial_find(&want, a, s);
}

static void places(void **state) {
    static const struct {
        const char *spec, *name;
        u16 port;
        u32 baud, gsi;
    } good[] = {
        { "com1", "com1", 0x3f8, 115200, 4 },
        { "com3,9600", "com3", 0x3e8, 9600, 4 },
        { "0x2f8", "com2", 0x2f8, 115200, 20 },
        { "0x3220,57600", "port 0x3220", 0x3220, 57600, 0 },
        { "pci:00:01.0", "pci:00:01.0", 0xc040, 0, 0 },
    };
    struct serial s;

    memset(pci_space[0], 0xff, sizeof(pci_space[0]));
    pci_space[1][0] = 0x00031b36; /* QEMU's pci-serial */
    pci_space[1][1] = 0x02900000;
    pci_space[1][2] = 0x07000201;
    pci_space[1][4] = 0xc041;
    pci_space[2][0] = 0x12348086;
    pci_space[2][2] = 0x07000200;
    pci_space[2][4] = 0x80000004;
    pci_space[2][5] = 2;
    for (u32 i = 0; i < ARRAY_SIZE(good); i++) {
        assert_null(find(good[i].spec, &acpi, &s));
        assert_string_equal(s.name, good[i].name);
        assert_int_equal(s.uart.port, good[i].port);
        assert_int_equal(s.baud, good[i].baud);
        assert_int_equal(s.has_gsi, good[i].gsi != 0);
        assert_int_equal(s.gsi, good[i].gsi);
    }
    assert_int_equal(pci_space[1][1], 1); /* decodes ports; no bit of the status is cleared */
    assert_int_equal(s.is_pci && s.bdf == 8, true);
    find("com2", &acpi, &s);
    assert_int_equal(s.irq_flags, IRQ_LOW | IRQ_LEVEL);
    assert_null(find("pci:00:02.0,9600", &acpi, &s));
    assert_int_equal(mapped, 0x280000000ull);
    assert_int_equal(pci_space[2][1], 2);
    assert_null(find("mmio32:0xfe03e000", &acpi, &s));
    assert_int_equal(mapped, 0xfe03e000);
    assert_int_equal(s.uart.stride, 4);
    assert_int_equal(s.uart.port, 0);
    assert_string_equal(find("pci:00:00.0", &acpi, &s), "there is no such PCI device");
    pci_space[2][4] = 0;
    pci_space[2][5] = 0;
    assert_string_equal(find("pci:00:02.0", &acpi, &s),
                        "the firmware gave that PCI device no address");
    pci_space[2][2] = 0x02000000;
    assert_string_equal(find("pci:00:02.0", &acpi, &s), "that PCI device is no serial port");
}

/* "auto": what SPCR says, else com1. */
static void firmwares_place(void **state) {
    struct acpi_info a = acpi;
    struct serial s;

    assert_null(find("auto", NULL, &s));
    assert_string_equal(s.name, "com1");
    assert_null(find("auto", &a, &s));
    assert_string_equal(s.name, "com1");
    assert_int_equal(s.baud, 115200);
    a.serial = (struct acpi_serial){ .there = true,
                                     .addr = 0x2f8,
                                     .has_irq = true,
                                     .irq = 3,
                                     .has_gsi = true,
                                     .gsi = 3,
                                     .baud = 57600 };
    assert_null(find("auto", &a, &s));
    assert_string_equal(s.name, "com2 (SPCR)");
    assert_int_equal(s.uart.port, 0x2f8);
    assert_int_equal(s.baud, 57600);
    assert_int_equal(s.gsi, 20);
    assert_null(find("com1", &a, &s)); /* who names a port gets that */
    assert_string_equal(s.name, "com1");
    a.serial = (struct acpi_serial){ .there = true,
                                     .in_memory = true,
                                     .addr = 0xfe036000,
                                     .stride = 4,
                                     .has_gsi = true,
                                     .gsi = 33 };
    assert_null(find("auto", &a, &s));
    assert_string_equal(s.name, "mmio32:0xfe036000 (SPCR)");
    assert_int_equal(s.baud, 0);
    assert_int_equal(s.gsi, 33);
    assert_int_equal(s.irq_flags, IRQ_LOW | IRQ_LEVEL);
}

/* Registers in memory, one byte or four apart. */
static void registers_in_memory(void **state) {
    static u32 memory[8];
    u8 *bytes = (u8 *)memory;
    struct uart u, at = { .regs = bytes, .stride = 4 };

    memory[5] = 0x60;
    memory[0] = 8; /* read as the divisor: 14,400 baud */
    assert_true(uart_open(&u, &at, 0));
    assert_int_equal(u.baud, 14400);
    assert_int_equal(memory[3], 3);
    assert_int_equal(memory[4], 0x0b);
    assert_int_equal(uart_write(&u, "ab", 2), 2);
    assert_int_equal(memory[0], 'b');
    memset(memory, 0, sizeof(memory));
    at.stride = 1;
    bytes[5] = 0x61;
    assert_true(uart_open(&u, &at, 9600));
    assert_int_equal(bytes[0], 12);
    assert_int_equal(bytes[3], 3);
    bytes[0] = 'x';
    assert_int_equal(uart_read(&u), 'x');
    bytes[5] = 0xff;
    assert_false(uart_open(&u, &at, 9600));
    assert_false(uart_there(&u));
}

/* A port that does not answer leaves the console where it is. */
static void absent_port(void **state) {
    u32 from = model.len;

    console_init("0x3e0", &acpi); /* nothing is there */
    assert_true(console_is_port(0x3f8));
    run_until(from, "console = 0x3e0: no serial port answers there: the console stays where it is",
              NS_PER_S);
}

/* ---- screen and keyboard ---- */

static void type_key(const char *s) { typed(s, (unsigned)strlen(s)); }

static void run_until_shown(const char *what, u64 limit) {
    u64 began = fake_now;

    while (!strstr(terminal_text, what)) {
        if (fake_now - began > limit)
            fail_msg("no \"%s\" on the screen, but: %s", what, terminal_text);
        run(NS_PER_MS);
    }
}

/* The screen says where the shell is. With the first key on the keyboard, the shell is on the
 * screen as well. */
static void first_key_brings_the_shell(void **state) {
    assert_non_null(
        strstr(on_screen,
               "The shell is on com1, 115200 baud, 8N1. To have it here as well, press a key.\n"));
    assert_string_equal(terminal_text, "");
    type_key("i");
    run_until_shown("takt> ", NS_PER_S);
    type_key("nfo\r");
    run_until_shown("takt> info\r\n", NS_PER_S);
    run_until_shown("uptime s", NS_PER_S);
    run(100 * NS_PER_MS);
    assert_string_equal(terminal_text + strlen(terminal_text) - 6, "takt> ");
}

/* A port that stands still does not keep the screen from going on. When the port moves again, it
 * shows again what comes from then on. */
static void screen_goes_on_without_the_port(void **state) {
    u32 from = model.len;

    terminal_text[0] = 0;
    model_stall(FOREVER);
    type_key("counters\r");
    run_until_shown("console_overruns", 5 * NS_PER_S);
    model_stall(0);
    model.sent_at = fake_now;
    run(100 * NS_PER_MS);
    type_key("list\r");
    run_until(from, "list\r\nName ", NS_PER_S); /* the prompt before it went to the screen alone */
    run(NS_PER_S);
}

/* Without a port the shell is on the screen from the beginning; without a keyboard the screen
 * says so. */
static void without_a_port(void **state) {
    on_screen[0] = terminal_text[0] = 0;
    console_init("none", &acpi);
    keyboard_is_used = terminal_began = has_keyboard = false;
    start_screen(&acpi);
    assert_string_equal(
        on_screen,
        "There is no serial port for the shell. There is no keyboard that Takt knows.\n");
    has_keyboard = true;
    start_screen(&acpi);
    assert_true(terminal_began);
    type_key("\r");
    run_until_shown("takt> ", NS_PER_S);
    type_key("info\r");
    run_until_shown("uptime s", NS_PER_S);
    console_init("com1", &acpi);
}

/* The line stands still for a while, as behind a BMC. The text of a panic comes out all the
 * same. */
static void panic_after_a_stall(void **state) {
    u32 from = model.len;
    u64 began;

    model_stall(300 * NS_PER_MS);
    console_set_panic();
    log_err("PANIC: first");
    console_flush();
    assert_non_null(strstr(model.text + from, "PANIC: first"));
    /* A line that is dead costs about a second, once. */
    model_stall(FOREVER);
    began = fake_now;
    for (int i = 0; i < 30; i++) log_err("PANIC: unheard");
    console_flush();
    assert_in_range(fake_now - began, NS_PER_S, 2 * NS_PER_S);
    /* When the line moves again, the next message is tried and goes out. */
    model_stall(0);
    model.sent_at = fake_now;
    log_err("PANIC: after");
    console_flush();
    assert_non_null(strstr(model.text + from, "PANIC: after"));
    /* A line that has moved once gets the whole patience again. */
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
        cmocka_unit_test(a_drawing_is_left_alone),
        cmocka_unit_test(shell_leaves_room_for_the_log),
        cmocka_unit_test(answers_stay_whole),
        cmocka_unit_test(interrupts_bring_input),
        cmocka_unit_test(idle_console_rests),
        cmocka_unit_test(without_interrupts_it_is_polled),
        cmocka_unit_test(unknown_interrupt_is_polled),
        cmocka_unit_test(too_much_is_told),
        cmocka_unit_test(places),
        cmocka_unit_test(firmwares_place),
        cmocka_unit_test(registers_in_memory),
        cmocka_unit_test(absent_port),
        cmocka_unit_test(first_key_brings_the_shell),
        cmocka_unit_test(screen_goes_on_without_the_port),
        cmocka_unit_test(without_a_port),
        cmocka_unit_test(panic_after_a_stall),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
