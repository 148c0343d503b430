#include "platform/console.h"

#include <takt/errno.h>
#include "drivers/uart.h"
#include "lib/parse.h"
#include "lib/spinlock.h"
#include "lib/string.h"
#include "platform/screen.h"
#include "platform/work.h"
#include "x86/cpu.h"
#include "x86/insn.h"
#include "x86/tsc.h"

#define LOG_SIZE 65536u
#define OUT_SIZE 16384u
#define LOG_LINE 256u
#define PATIENCE 200000 /* polls of a transmitter that stays busy, before it is given up */

static struct uart uart;
static bool async, uart_stuck;
static enum log_level level = LOG_INFO;
static char log_buf[LOG_SIZE], out_buf[OUT_SIZE];
static u64 log_end;            /* bytes ever logged */
static u64 out_head, out_tail; /* bytes ever queued, bytes ever sent */
static u64 shown;              /* bytes of the log that went to the console or were not meant for it */
static u64 dropped;
static bool held;

void (*console_input)(const char *s, unsigned n);
void (*console_log_line)(bool after);

/* One lock for log and output. An NMI or exception that hits its holder goes on without it: a garbled line is
 * better than none. */
static struct spinlock lock;
static volatile u32 lock_owner = ~0u; /* CPU */
static volatile bool panicking;

static bool take_lock(void) {
    if (panicking || lock_owner == this_cpu()->id) return false;
    spin_lock(&lock);
    lock_owner = this_cpu()->id;
    return true;
}

static void drop_lock(bool taken) {
    if (!taken) return;
    lock_owner = ~0u;
    spin_unlock(&lock);
}

/* ---- output ---- */

static unsigned push_some(void) {
    char chunk[UART_FIFO];
    unsigned n = 0, sent;

    while (n < UART_FIFO && out_tail + n < out_head) {
        chunk[n] = out_buf[(out_tail + n) % OUT_SIZE];
        n++;
    }
    sent = uart_write(&uart, chunk, n);
    out_tail += sent;
    return sent;
}

/* Sends all that is queued. A transmitter that does not move is given up, once and for all. */
static void push_all(void) {
    for (int idle = 0; out_tail < out_head && uart.port && !uart_stuck;) {
        if (push_some())
            idle = 0;
        else if (++idle == PATIENCE)
            uart_stuck = true;
        else
            cpu_relax();
    }
    if (uart_stuck || !uart.port) out_tail = out_head;
}

/* False: no room. Before console_set_async() it makes room by waiting. */
static bool queue(char c) {
    if (out_head - out_tail == OUT_SIZE) {
        if (async) {
            dropped++;
            return false;
        }
        push_all();
    }
    out_buf[out_head++ % OUT_SIZE] = c;
    return true;
}

static unsigned write_locked(const char *s, unsigned n) {
    unsigned i;

    for (i = 0; i < n; i++)
        if ((s[i] == '\n' && !queue('\r')) || !queue(s[i])) break;
    if (!async) push_all();
    return i;
}

unsigned console_write(const char *s, unsigned n) {
    bool taken = take_lock();
    unsigned done = write_locked(s, n);

    drop_lock(taken);
    return done;
}

u64 console_dropped(void) { return dropped; }

unsigned console_room(void) {
    return (unsigned)(OUT_SIZE - (out_head - out_tail)) / 2; /* each might be a "\n" */
}

void console_hold(bool hold) { held = hold; }

/* ---- the log: lines, each after a byte that tells its level ---- */

static char log_byte(u64 at) { return log_buf[at % LOG_SIZE]; }

/* The start of the first line at or after `pos` that is still kept. */
static u64 line_from(u64 pos) {
    if (log_end - pos <= LOG_SIZE) return pos;
    for (pos = log_end - LOG_SIZE; pos < log_end && log_byte(pos) != '\n'; pos++)
        ;
    return pos + 1;
}

/* Copies the line at *pos, without its level, and moves on. 0: it does not fit in `size`. */
static size_t line_copy(u64 *pos, char *buf, size_t size) {
    size_t n = 0;

    do {
        if (n == size) return 0;
        buf[n] = log_byte(*pos + 1 + n);
    } while (buf[n++] != '\n');
    *pos += n + 1;
    return n;
}

/* Sends lines from the log to the console while there is room for a long one. */
static void show_log(void) {
    char line[LOG_LINE];

    for (shown = line_from(shown); shown < log_end && (!async || console_room() > sizeof(line));) {
        enum log_level at = (enum log_level)log_byte(shown);
        size_t n = line_copy(&shown, line, sizeof(line));

        if (at > level) continue;
        write_locked(line, (unsigned)n);
        if (!async) screen_write(line, n);
    }
}

void log_at(enum log_level at, const char *fmt, ...) {
    u64 us = tsc_khz ? now_ns() / 1000 : 0;
    char line[LOG_LINE];
    bool taken;
    va_list ap;
    int n, m;

    line[0] = (char)at;
    n = 1 + hv_snprintf(line + 1, sizeof(line) - 1, "[%5lu.%06lu] ", us / 1000000, us % 1000000);
    va_start(ap, fmt);
    m = hv_vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
    va_end(ap);
    n = MIN(n + m, (int)sizeof(line) - 1);
    line[n++] = '\n';

    taken = take_lock();
    for (int i = 0; i < n; i++) log_buf[log_end++ % LOG_SIZE] = line[i];
    if (!async) show_log();
    drop_lock(taken);
}

void console_flush(bool last) {
    bool taken = take_lock();

    if (last) show_log();
    push_all();
    for (int i = 0; last && i < PATIENCE && !uart_drained(&uart); i++) cpu_relax();
    drop_lock(taken);
}

size_t log_read(u64 *position, char *buf, size_t size) {
    bool taken = take_lock();
    size_t n = 0, one;

    *position = line_from(*position);
    while (*position < log_end && (one = line_copy(position, buf + n, size - n))) n += one;
    drop_lock(taken);
    return n;
}

void console_set_level(enum log_level l) { level = l; }

/* ---- set-up ---- */

void console_early(void) { uart_init(&uart, uart_port(1), 115200); }

int console_init(const char *spec) {
    struct console_spec want;
    struct uart wanted;

    if (parse_console(spec, &want, NULL)) return -EINVAL;
    console_flush(true);
    if (!want.com) {
        uart.port = 0;
        return 0;
    }
    if (!uart_init(&wanted, uart_port(want.com), want.baud)) {
        log_warn("no serial port answers as com%u: the console stays %s", want.com,
                 uart.port ? "where it is" : "the log and the screen");
        return -ENODEV;
    }
    uart = wanted;
    return 0;
}

/* ---- after boot: a work item moves what is queued ---- */

#define PUMP_IDLE_NS (10 * NS_PER_MS)
#define PUMP_BUSY_NS 1300000ull /* a FIFO takes 1.4 ms at 115200 baud */

static void poll_input(void) {
    char in[UART_FIFO];
    unsigned n = 0;
    int c;

    while (n < sizeof(in) && (c = uart_read(&uart)) >= 0) in[n++] = (char)c;
    if (n && console_input) console_input(in, n);
}

static void pump_log(void) {
    bool taken;

    if (held || line_from(shown) == log_end) return;
    if (console_log_line) console_log_line(false);
    taken = take_lock();
    show_log();
    drop_lock(taken);
    if (console_log_line) console_log_line(true);
}

static bool pump(struct work *w) {
    bool taken;

    poll_input();
    pump_log();
    taken = take_lock();
    for (int i = 0; i < 16 && out_tail < out_head && push_some(); i++)
        ;
    if (!uart.port) out_tail = out_head;
    w->not_before = now_ns() + (out_tail < out_head ? PUMP_BUSY_NS : PUMP_IDLE_NS);
    drop_lock(taken);
    return true;
}

void console_set_async(void) {
    static struct work work = { .step = pump };

    async = true;
    work_add(&work);
}

void console_set_panic(void) {
    panicking = true;
    async = false;
}
