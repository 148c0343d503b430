/* The scan codes and the controller of the keyboard, the escape sequences of the terminal, and
 * how the screen draws it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include <takt/io.h>
#include "fake_log.h"

static u8 model_in(u16 port);
static void model_out(u16 port, u8 v);
static int model_alloc(void (*fn)(void *arg), void *arg);
static void model_free(int vector);
static int model_connect(u32 gsi, int vector, u32 flags);
static void model_mask(u32 gsi, bool masked);
static volatile void *model_map(u64 pa, u64 len);

#include "platform/hostmap.h"
#include "platform/irq.h"

#define inb             model_in
#define outb            model_out
#define irq_alloc       model_alloc
#define irq_free        model_free
#define irq_pin_connect model_connect
#define irq_pin_mask    model_mask
#define mmio_map_wc     model_map
#include "platform/keyboard.c"
#include "platform/screen.c"

/* ---- scan codes ---- */

static struct keys k;

static void types(const char *codes, size_t n, const char *expected) {
    char all[64] = "", out[KEY_BYTES];

    for (size_t i = 0; i < n; i++) {
        keys_feed(&k, (u8)codes[i], out);
        strcat(all, out);
    }
    assert_string_equal(all, expected);
}

#define TYPES(codes, expected) types(codes, sizeof(codes) - 1, expected)

static void scan_codes(void **state) {
    TYPES("\x26\xa6\x17\x97\x1f\x9f\x14\x94\x1c\x9c", "list\r");
    TYPES("\x2a\x1e\x9e\xaa\x1e\x9e", "Aa"); /* Shift held, let go */
    TYPES("\x36\x02\x82\x35\x0c\xb6", "!?_");
    TYPES("\x3a\xba\x1e\x02\x2a\x1e\xaa\x3a\xba\x1e", "A1aa"); /* Caps Lock is for letters alone */
    TYPES("\x1d\x2e\x1b\x9d\x2e", "\x03\x1d"
                                  "c"); /* ^C, ^], c */
    TYPES("\xe0\x1d\x26\xe0\x9d\x26", "\x0cl");
    TYPES("\x0e\x0f\x39\x01", "\x7f\t \x1b");
    TYPES("\xe0\x48\xe0\xc8\xe0\x50\xe0\x4b\xe0\x4d", "\x1b[A\x1b[B\x1b[D\x1b[C");
    TYPES("\xe0\x47\xe0\x4f\xe0\x53\x4a\x4e", "\x1b[H\x1b[F\x1b[3~-+");
    /* Keyboards send this Shift by themselves, around the arrow keys. */
    TYPES("\xe0\x2a\xe0\x48\xe0\xc8\xe0\xaa\x1e", "\x1b[Aa");
    TYPES("\xe1\x1d\x45\xe1\x9d\xc5\x1e", "a"); /* Pause */
    /* Pause holds codes that look like a release of Ctrl. Ctrl stays held all the same. */
    TYPES("\x1d\xe1\x1d\x45\xe1\x9d\xc5\x2e\x9d", "\x03");
    /* F keys, Alt and the Windows key give nothing. The keypad gives its characters. */
    TYPES("\x3b\x3c\x58\x38\x1e\xb8\xe0\x5b\xe0\x1c\xe0\x35", "a\r/");
    /* Nothing is written behind the end. */
    for (u32 code = 0; code < 256 * 256; code++) {
        char out[KEY_BYTES];

        keys_feed(&k, (u8)(code >> 8), out);
        keys_feed(&k, (u8)code, out);
        assert_true(strlen(out) < KEY_BYTES);
    }
}

/* ---- the controller ---- */

static struct {
    bool absent, silent;
    u8 config, command, queue[8];
    u32 waiting, enabled;
    u32 accesses; /* of its two ports */
    void (*fn)(void *arg);
    bool masked;
    u32 gsi;
} ctl;

static u8 model_in(u16 port) {
    u8 v = ctl.queue[0];

    ctl.accesses++;
    if (ctl.absent) return 0xff;
    if (port == 0x64) return ctl.waiting ? 0x01 : 0;
    if (ctl.waiting) memmove(ctl.queue, ctl.queue + 1, --ctl.waiting);
    return v;
}

static void model_out(u16 port, u8 v) {
    ctl.accesses++;
    if (port == 0x64) {
        ctl.command = v;
        if (v == 0x20 && !ctl.silent) ctl.queue[ctl.waiting++] = ctl.config;
        return;
    }
    if (ctl.command == 0x60) {
        ctl.config = v;
    } else if (v == 0xf4) {
        ctl.enabled++;
        ctl.queue[ctl.waiting++] = 0xfa;
    }
    ctl.command = 0;
}

static int model_alloc(void (*fn)(void *arg), void *arg) {
    ctl.fn = fn;
    return 0x50;
}

static void model_free(int vector) { ctl.fn = NULL; }

static int model_connect(u32 gsi, int vector, u32 flags) {
    ctl.gsi = gsi;
    return gsi < 24 ? 0 : -ENODEV;
}

static void model_mask(u32 gsi, bool masked) { ctl.masked = masked; }

static char got[64];

static void hear(const char *s, unsigned n) { strncat(got, s, n); }

static void controller(void **state) {
    struct acpi_info a = { .no_keyboard_controller = true };

    assert_false(keyboard_start(&a, hear)); /* the ports may be another device's */
    assert_int_equal(ctl.accesses, 0);
    a.no_keyboard_controller = false;
    ctl.absent = true;
    assert_false(keyboard_start(&a, hear));
    ctl.absent = false;
    ctl.silent = true;
    assert_false(keyboard_start(&a, hear));
    ctl.silent = false;
    ctl.config = 0x12; /* keyboard off, the mouse interrupts */
    ctl.masked = true;
    ctl.queue[ctl.waiting++] = 0x9c; /* of the key that chose the boot entry */
    assert_true(keyboard_start(&a, hear));
    assert_int_equal(ctl.config, 0x41);
    assert_int_equal(ctl.enabled, 1);
    assert_int_equal(ctl.gsi, 1);
    assert_false(ctl.masked);
    assert_int_equal(ctl.waiting, 0);
    memset(&keys, 0, sizeof(keys));
    memcpy(ctl.queue, "\x23\xa3\x17", ctl.waiting = 3);
    ctl.fn(NULL);
    assert_string_equal(got, "hi");
    a.nr_overrides = 1;
    a.override[0] = (struct acpi_override){ 99, 0, 1 };
    assert_false(keyboard_start(&a, hear)); /* no such pin */
    assert_null(ctl.fn);
}

/* ---- the terminal ---- */

static struct terminal t;

static void write(const char *s) { terminal_write(&t, s, strlen(s)); }

static void shows(u32 row, const char *expected) {
    char line[TERMINAL_COLUMNS + 1] = "";

    for (u32 x = 0; x < t.columns; x++) line[x] = terminal_at(&t, row, x);
    for (size_t n = strlen(line); n && line[n - 1] == ' ';) line[--n] = 0;
    assert_string_equal(line, expected);
}

static void escapes(void **state) {
    terminal_init(&t, 10, 3);
    write("one\r\ntwo\r\nthree\r\nfour");
    shows(0, "two"); /* scrolled */
    shows(1, "three");
    shows(2, "four");
    write("\r\x1b[Ktakt> ab\x1b[1Dc"); /* as the line editor draws */
    shows(2, "takt> ac");
    write("\x1b[H\x1b[2Jtop\x1b[K\r\nx\x1b[J");
    shows(0, "top");
    shows(1, "x");
    shows(2, "");
    write("\x1b[2;3Hyz\x1b[1Aq\x1b[1Bw\b\x1b[9D!\x1b[3C?");
    shows(0, "top q");
    shows(1, "! yz?w");
    write("\x1b[H0123456789");
    shows(1, "! yz?w"); /* not before another character comes */
    write("A");
    shows(1, "A yz?w");
    write("\x1b[1;1Hab\x1b[J");
    shows(0, "ab");
    shows(1, "");
    write("\x1b[31;1mred\x1b(B\x07\x80"); /* colours and the like are left out */
    shows(0, "abredB");
    write("\x1b[99;99H#\x1b[999999999999A\x1b[;H$\x1b[0;0H%");
    shows(0, "%bredB");
    shows(2, "         #");
}

static void any_bytes(void **state) {
    u32 seed = 1;

    terminal_init(&t, 1000, 1000);
    assert_int_equal(t.columns, TERMINAL_COLUMNS);
    assert_int_equal(t.rows, TERMINAL_ROWS);
    terminal_init(&t, 20, 4);
    for (u32 i = 0; i < 1000000; i++) {
        static const char some[] = "\x1b[[[0123456789;;;ABCDHJKKm\r\n\n\b xyz";
        char c;

        seed = seed * 1103515245 + 12345;
        c = some[(seed >> 16) % (sizeof(some) - 1)];
        terminal_write(&t, &c, 1);
        assert_true(t.row < t.rows && t.column <= t.columns);
    }
    for (u32 y = 0; y < 4; y++)
        for (u32 x = 0; x < 20; x++) assert_in_range(terminal_at(&t, y, x), ' ', '~');
}

/* ---- drawing ---- */

static u8 frame[1280 * 720 * 4];

static volatile void *model_map(u64 pa, u64 len) { return len <= sizeof(frame) ? frame : NULL; }

static char text_at(u32 y, u32 x) { return (char)frame[(y * 80 + x) * 2]; }

static void draws_text(void **state) {
    const struct boot_screen b = {
        .addr = 0xb8000, .pitch = 160, .width = 80, .height = 25, .kind = SCREEN_TEXT
    };
    u32 steps = 0;

    screen_init(&b);
    assert_true(screen_there());
    screen_write("boot", 4);
    assert_int_equal(text_at(0, 0), 'b');
    assert_false(screen_step()); /* as long as nobody uses it */
    screen_feed("x", 1);
    assert_int_equal(text_at(0, 1), 'o');
    screen_start_terminal();
    screen_feed("takt> ", 6);
    while (steps < 10000 && screen_step()) steps++;
    assert_in_range(steps, 3, 10); /* 2,000 characters, 512 at once */
    assert_int_equal(text_at(0, 0), 't');
    assert_int_equal(text_at(0, 5), ' ');
    assert_int_equal(frame[6 * 2 + 1], 0x70); /* the cursor */
    assert_int_equal(text_at(1, 0), ' ');
    memset(frame, 0xee, 160); /* what has not changed is not drawn again */
    screen_feed("list", 4);
    while (steps < 10000 && screen_step()) steps++;
    assert_int_equal(text_at(0, 6), 'l');
    assert_int_equal(frame[6 * 2 + 1], 0x07);
    assert_int_equal((u8)text_at(0, 0), 0xee);
    assert_int_equal(frame[10 * 2 + 1], 0x70);
    assert_false(screen_step());
}

static u32 lit(u32 row) {
    u32 n = 0;

    for (u32 i = 0; i < 1280 * 18; i++) n += ((u32 *)frame)[row * 18 * 1280 + i] != 0;
    return n;
}

static void draws_pixels(void **state) {
    const struct boot_screen b = { .addr = 0xc0000000,
                                   .pitch = 1280 * 4,
                                   .width = 1280,
                                   .height = 720,
                                   .bits = 32,
                                   .kind = SCREEN_PIXELS };
    u32 steps = 0;

    memset(frame, 0, sizeof(frame));
    is_terminal = false;
    screen_init(&b);
    screen_start_terminal();
    while (steps < 10000 && screen_step()) steps++;
    /* The whole screen is drawn once, because nobody knows what the loader left there. */
    assert_in_range(steps, 40 * 106 / PIXELS_AT_ONCE, 40 * 106 / PIXELS_AT_ONCE + 1);
    /* Only the cursor is drawn, at twice its size. */
    assert_in_range(lit(0), 12 * 18, 12 * 18);
    /* 5 a character and row of its 7 */
    for (int i = 0; i < 200; i++) screen_feed("##########\r\n", 12);
    steps = 0;
    while (steps < 10000 && screen_step()) steps++;
    assert_true(steps >= 38 * 10 / PIXELS_AT_ONCE);
    assert_in_range(lit(5), 10 * 4 * 15, 10 * 4 * 25);
    /* The text has scrolled to its end, however many lines went by. */
    assert_int_equal(lit(0), lit(30));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scan_codes), cmocka_unit_test(controller), cmocka_unit_test(escapes),
        cmocka_unit_test(any_bytes),  cmocka_unit_test(draws_text), cmocka_unit_test(draws_pixels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
