#include "fake_console.h"

#include <stdio.h>
#include <string.h>
#include "drivers/uart.h"
#include "platform/power.h"

char fake_console_text[1 << 20], fake_uart_text[1 << 16];
size_t fake_console_len, fake_uart_len;
unsigned fake_console_limit = 1 << 20;
bool fake_console_held, fake_console_full, fake_uart_there = true;
bool fake_power_off, fake_rebooted;
void (*console_input)(const char *s, unsigned n);
bool (*console_redraw)(void);
bool console_raw;

void fake_console_reset(void) {
    fake_console_len = fake_uart_len = 0;
    fake_console_text[0] = fake_uart_text[0] = 0;
}

void fake_console_type(const char *s) { console_input(s, (unsigned)strlen(s)); }

unsigned console_room(void) { return fake_console_limit; }

unsigned console_write(const char *s, unsigned n) {
    n = MIN(n, fake_console_limit);
    if (fake_console_full) fake_console_limit -= n;
    if (fake_console_len + n >= sizeof(fake_console_text)) /* a fuzzer does not look at it */
        fake_console_len = 0;
    memcpy(fake_console_text + fake_console_len, s, n);
    fake_console_text[fake_console_len += n] = 0;
    return n;
}

void console_hold(bool hold) { fake_console_held = hold; }

u64 console_dropped(void) { return 0; }

bool console_is_port(u16 port) { return port == 1; } /* com1 */

bool console_is_pci(u32 bdf) { return false; }

u64 log_next(void) { return 3; }

bool log_takes_guests(void) { return true; }

void log_of_guest(const char *fmt, ...) {
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_info("%s", text);
}

size_t log_read(u64 *position, char *buf, size_t size) {
    static const char *const lines[] = { "[    0.000001] first\n", "[    0.000002] \"second\"\n",
                                         "[    0.000003] third\n" };

    if (*position >= ARRAY_SIZE(lines) || strlen(lines[*position]) > size) return 0;
    strcpy(buf, lines[*position]);
    return strlen(lines[(*position)++]);
}

/* ---- power: declared to end the program's way ---- */

void platform_poweroff(void) {
    fake_power_off = true;
    longjmp(fake_power_exit, 1);
}

void platform_reboot(void) {
    fake_rebooted = true;
    longjmp(fake_power_exit, 1);
}

jmp_buf fake_power_exit;

const char fault_words[] = "none";

int fault_inject(const char *what) { return -1; }

/* ---- the second serial port ---- */

u16 uart_port(unsigned com) { return com >= 1 && com <= 4 ? (u16)com : 0; }

bool uart_init(struct uart *u, u16 port, u32 baud) {
    u->port = fake_uart_there ? port : 0;
    return u->port;
}

int uart_read(struct uart *u) { return -1; }

unsigned uart_write(struct uart *u, const char *s, unsigned n) {
    n = MIN(n, 16u);
    if (fake_uart_len + n >= sizeof(fake_uart_text)) fake_uart_len = 0;
    memcpy(fake_uart_text + fake_uart_len, s, n);
    fake_uart_len += n;
    return n;
}
