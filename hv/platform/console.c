#include "platform/console.h"

#include "drivers/uart.h"
#include "lib/parse.h"
#include "lib/string.h"
#include "platform/screen.h"
#include "platform/timer.h"
#include "x86/insn.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

#define LOG_LINES 512u
#define OUT_SIZE  16384u
#define LOG_LINE  252
#define PATIENCE  200000 /* polls of a transmitter that stays busy, before it is given up */

static struct uart uart;
static bool async, uart_stuck;
static enum log_level level = LOG_INFO;
static struct line {
    enum log_level level;
    char text[LOG_LINE];
} lines[LOG_LINES];
static char out_buf[OUT_SIZE];
static u64 log_end;            /* lines ever logged */
static u64 out_head, out_tail; /* bytes ever queued, bytes ever sent */
static u64 shown;              /* lines of the log that went to the console or were not meant for it */
static u64 dropped;
static bool held;

void (*console_input)(const char *s, unsigned n);
void (*console_log_line)(bool after);

/* One lock for log and output: the CPU that holds it. An NMI or exception that hits the holder goes on
 * without it, since a garbled line is better than none; one that hits a CPU which waits takes its turn
 * before that, which a lock with tickets would not let it. */
#define NOBODY ~0u
static volatile u32 owner = NOBODY;
static volatile bool panicking;

static bool take_lock(void) {
    u32 me = this_cpu()->id;

    if (panicking || owner == me) return false;
    while (owner != NOBODY || !__sync_bool_compare_and_swap(&owner, NOBODY, me)) cpu_relax();
    return true;
}

static void drop_lock(bool taken) {
    if (taken) __atomic_store_n(&owner, NOBODY, __ATOMIC_RELEASE);
}

/* ---- output ---- */

/* Gives the transmitter what it takes now. */
static unsigned push_some(void) {
    u64 at = out_tail % OUT_SIZE;
    unsigned sent = uart_write(&uart, out_buf + at, (unsigned)MIN(out_head - out_tail, OUT_SIZE - at));

    out_tail += sent;
    return sent;
}

/* Sends all that is queued. A transmitter that does not move is waited for no more, once and for all. */
static void push_all(void) {
    for (int idle = 0; out_tail < out_head && uart.port && !uart_stuck; cpu_relax()) {
        idle = push_some() ? 0 : idle + 1;
        uart_stuck = idle == PATIENCE;
    }
    if (uart_stuck || !uart.port) out_tail = out_head;
}

/* Each might be a "\n". */
unsigned console_room(void) { return (unsigned)(OUT_SIZE - (out_head - out_tail)) / 2; }

/* Before console_set_async() it makes room by waiting. */
static unsigned write_locked(const char *s, unsigned n) {
    unsigned i;

    for (i = 0; i < n; i++) {
        if (!async && !console_room()) push_all();
        if (!console_room()) break;
        if (s[i] == '\n') out_buf[out_head++ % OUT_SIZE] = '\r';
        out_buf[out_head++ % OUT_SIZE] = s[i];
    }
    if (!async) push_all();
    return i;
}

unsigned console_write(const char *s, unsigned n) {
    bool taken = take_lock();
    unsigned done = write_locked(s, n);

    drop_lock(taken);
    return done;
}

void console_hold(bool hold) { held = hold; }

/* ---- the log ---- */

/* The oldest line from `line` on that is still kept. */
static u64 kept(u64 line) { return log_end > LOG_LINES ? MAX(line, log_end - LOG_LINES) : line; }

/* Sends lines from the log to the console while there is room for a long one. */
static void show_log(void) {
    dropped += kept(shown) - shown;
    for (shown = kept(shown); shown < log_end && (!async || console_room() > LOG_LINE); shown++) {
        const struct line *l = &lines[shown % LOG_LINES];
        size_t n = strnlen(l->text, LOG_LINE);

        if (l->level > level) continue;
        write_locked(l->text, (unsigned)n);
        if (!async) screen_write(l->text, n);
    }
}

void log_at(enum log_level at, const char *fmt, ...) {
    u64 us = tsc_khz ? now_ns() / 1000 : 0;
    struct line l = { .level = at };
    bool taken;
    va_list ap;
    int n;

    n = hv_snprintf(l.text, LOG_LINE, "[%5lu.%06lu] ", us / 1000000, us % 1000000);
    va_start(ap, fmt);
    n += hv_vsnprintf(l.text + n, (size_t)(LOG_LINE - n), fmt, ap);
    va_end(ap);
    l.text[MIN(n, LOG_LINE - 2)] = '\n';
    l.text[MIN(n, LOG_LINE - 2) + 1] = 0;

    taken = take_lock();
    lines[log_end++ % LOG_LINES] = l;
    if (!async) show_log();
    drop_lock(taken);
}

size_t log_read(u64 *position, char *buf, size_t size) {
    bool taken = take_lock();
    size_t n = 0, len;

    for (*position = kept(*position); *position < log_end; ++*position, n += len) {
        const char *text = lines[*position % LOG_LINES].text;

        len = strnlen(text, LOG_LINE);
        if (len > size - n) break;
        memcpy(buf + n, text, len);
    }
    drop_lock(taken);
    return n;
}

u64 console_dropped(void) { return dropped; }

void console_set_level(enum log_level l) { level = l; }

/* ---- set-up, and the end ---- */

void console_init(const char *spec) {
    struct console_spec want = { 0, 0 };
    struct uart wanted = { 0 };

    parse_console(spec, &want, NULL);
    console_flush();
    if (!want.com || uart_init(&wanted, uart_port(want.com), want.baud))
        uart = wanted;
    else
        log_warn("no serial port answers as com%u: the console stays %s", want.com,
                 uart.port ? "where it is" : "the log and the screen");
}

void console_flush(void) {
    bool taken = take_lock();

    show_log();
    push_all();
    for (int i = 0; i < PATIENCE && !uart_drained(&uart); i++) cpu_relax();
    drop_lock(taken);
}

void console_set_panic(void) {
    panicking = true;
    async = false;
}

/* ---- after boot: a work item moves what is queued ---- */

#define PUMP_IDLE_NS (10 * NS_PER_MS)
#define PUMP_BUSY_NS 1300000ull /* a FIFO takes 1.4 ms at 115200 baud */

static void take_input(void) {
    char in[UART_FIFO];
    unsigned n = 0;
    int c;

    while (n < sizeof(in) && (c = uart_read(&uart)) >= 0) in[n++] = (char)c;
    if (n) console_input(in, n);
}

static bool pump(struct work *w) {
    bool logs = !held && shown < log_end, taken;

    take_input();
    if (logs) console_log_line(false);
    taken = take_lock();
    if (logs) show_log();
    for (int i = 0; i < 16 && out_tail < out_head && push_some(); i++)
        ;
    if (!uart.port) out_tail = out_head;
    w->not_before = now_ns() + (out_tail < out_head ? PUMP_BUSY_NS : PUMP_IDLE_NS);
    drop_lock(taken);
    if (logs) console_log_line(true);
    return true;
}

void console_set_async(void) {
    static struct work work = { .step = pump };

    async = true;
    work_add(&work);
}
