/* The console: the serial port (or the screen and keyboard) that the operator sits at. It carries
 * two things in turn: the log, which is what the hypervisor and its guests report, and the output
 * of the shell. During boot each writer waits until the port has sent its text. After that, when
 * guests run, no code may wait for a slow port: output is queued, and a work item, console_pump(),
 * moves it in short steps on the housekeeping pCPU: the pCPU with the number WORK_CPU, which does
 * the work that belongs to no VM. */
#include "platform/console.h"

#include "lib/parse.h"
#include "common/string.h"
#include "platform/crashlog.h"
#include "platform/irq.h"
#include "platform/keyboard.h"
#include "platform/screen.h"
#include "platform/serial.h"
#include "platform/timer.h"
#include "trace/trace.h"
#include "common/insn.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

/* how often the port's receiver lost bytes because they were not read in time */
DEFINE_COUNTER(console_overruns);

#define OUT_SIZE 16384u
#define LOG_LINE 252
/* Lines that a log keeps. The hypervisor and the guests have one each, so that what guests print
 * never pushes out what the hypervisor has said. */
#define LOG_LINES 512u
/* How many lines of guests may wait for the console. Guests that print more than the serial port
 * can send keep the rest in their own rings, and lose it there. */
#define GUESTS_AHEAD 8u
/* The log is sent in pieces, and after each piece the shell has its turn. A piece ends with the
 * line that reaches this number of bytes. */
#define LOG_PIECE 512u
/* How often we look at a transmitter that takes no byte before we give it up. Each look takes about
 * a microsecond, so this is a second. It has to be that long: we have seen a busy BMC stall its
 * port for 0.3 s. */
#define PATIENCE 1000000u

enum { OF_HYPERVISOR, OF_GUESTS, LOGS };

struct line {
    u64 number; /* in both logs together: the order in which the lines came */
    enum log_level level;
    char text[LOG_LINE];
};

static struct log {
    struct line line[LOG_LINES];
    u64 end;   /* number of lines that were ever added to this log */
    u64 shown; /* how many of these were sent to the console, or have too low a level for it */
} logs[LOGS];

static struct serial serial; /* the port, and where it is */
static bool async;
/* The port did not take the last output in time. We wait for it only briefly until it takes
 * something again. */
static bool uart_stuck;
static enum log_level level = LOG_INFO;
static u64 lines_ever, dropped;

/* The shell and the logs share the serial port. Bytes of the shell wait in out_buf; of the logs,
 * one piece at a time is copied to `piece`. A piece is sent between two lines of the shell. If both
 * have something to send all the time, each gets half of the port's time. */
static char out_buf[OUT_SIZE];
static u64 out_head, out_tail; /* number of bytes of the shell that were ever queued; ever sent */
static char piece[LOG_PIECE + 2 * LOG_LINE];
static u32 piece_len, piece_at;
static u32 shell_sent;        /* bytes of the shell since the last piece */
static char last_sent = '\n'; /* the shell's last byte that was sent */
static bool held;
bool console_raw;

void (*console_input)(const char *s, unsigned n);
bool (*console_redraw)(void);

/* One lock protects the logs and the output. `owner` is the CPU that holds it. It is not a ticket
 * lock, because NMI handlers and exceptions log, too. If one of them interrupts the holder, it goes
 * on without the lock, since a garbled line is better than none. If one interrupts a CPU that waits
 * for the lock, it must be able to get the lock first; with tickets it would wait for ever behind
 * the ticket of the code that it interrupted. */
#define NOBODY ~0u
static volatile u32 owner = NOBODY;
static volatile bool panicking;

/* Takes the lock of the logs and the output. Returns false if it was not taken, and must not be
 * given back: this CPU holds it already, or the machine panics. */
static bool take_lock(void) {
    u32 me = this_cpu()->id;

    if (panicking || owner == me) return false;
    while (owner != NOBODY || !__sync_bool_compare_and_swap(&owner, NOBODY, me)) cpu_relax();
    return true;
}

/* Gives back what take_lock() took, if it took it. */
static void drop_lock(bool taken) {
    if (taken) __atomic_store_n(&owner, NOBODY, __ATOMIC_RELEASE);
}

/* ---- the logs ---- */

/* Returns the number of the oldest line of this log that is still kept and is not before `line`. */
static u64 oldest_kept(const struct log *l, u64 line) {
    if (l->end <= LOG_LINES) return line;
    return MAX(line, l->end - LOG_LINES);
}

static const struct line *line_at(const struct log *l, u64 at) { return &l->line[at % LOG_LINES]; }

/* Returns the log that holds the older one of two lines: line at[i] of each log i. Returns LOGS if
 * both positions are at the end. */
static u32 older_line(const u64 at[LOGS]) {
    bool own = at[OF_HYPERVISOR] < logs[OF_HYPERVISOR].end,
         guests = at[OF_GUESTS] < logs[OF_GUESTS].end;

    if (own && guests) {
        u64 a = line_at(&logs[OF_HYPERVISOR], at[OF_HYPERVISOR])->number;
        u64 b = line_at(&logs[OF_GUESTS], at[OF_GUESTS])->number;

        if (a < b) return OF_HYPERVISOR;
        return OF_GUESTS;
    }
    if (own) return OF_HYPERVISOR;
    if (guests) return OF_GUESTS;
    return LOGS;
}

/* Returns the next line for the console and counts it as shown; NULL if there is none. */
static const struct line *next_to_show(void) {
    for (;;) {
        u64 at[LOGS];
        const struct line *l;
        u32 which;

        for (u32 i = 0; i < LOGS; i++) {
            at[i] = oldest_kept(&logs[i], logs[i].shown);
            dropped += at[i] - logs[i].shown;
            logs[i].shown = at[i];
        }
        which = older_line(at);
        if (which == LOGS) return NULL;
        l = line_at(&logs[which], logs[which].shown++);
        if (l->level <= level) return l;
    }
}

/* Does some line wait to be sent to the console? */
static bool log_waits(void) {
    return logs[OF_HYPERVISOR].shown < logs[OF_HYPERVISOR].end ||
           logs[OF_GUESTS].shown < logs[OF_GUESTS].end;
}

/* Copies whole lines of the log to `buf`, beginning with line *position. Returns the number of
 * bytes; 0 means the end of the log. There are two logs, the hypervisor's and that of guests. Both
 * are read at once, the line with the lower number first, so that the reader sees all lines in the
 * order in which they came. */
size_t log_read(u64 *position, char *buf, size_t size) {
    bool taken = take_lock();
    size_t n = 0;
    u64 at[LOGS];
    u32 which;

    for (u32 i = 0; i < LOGS; i++) {
        at[i] = oldest_kept(&logs[i], 0);
        while (at[i] < logs[i].end && line_at(&logs[i], at[i])->number < *position) at[i]++;
    }
    while ((which = older_line(at)) != LOGS) {
        const struct line *l = line_at(&logs[which], at[which]);
        size_t len = strnlen(l->text, LOG_LINE);

        if (len > size - n) break;
        memcpy(buf + n, l->text, len);
        n += len;
        at[which]++;
        *position = l->number + 1;
    }
    drop_lock(taken);
    return n;
}

/* Returns the number that the next line of the log will have. */
u64 log_next(void) { return lines_ever; }

/* Returns how many lines the console did not show, because newer ones pushed them out of the
 * log. */
u64 console_dropped(void) { return dropped; }

/* Sets up to which level lines of the log are shown on the console. */
void console_set_level(enum log_level l) { level = l; }

/* ---- output ---- */

/* Appends text to the piece; a serial terminal wants "\r" before each "\n". */
static void add_to_piece(const char *s) {
    for (; *s; s++) {
        if (*s == '\n') piece[piece_len++] = '\r';
        piece[piece_len++] = *s;
    }
}

/* Copies the next lines of the log to `piece`, whose former contents have been sent. */
static void fill_piece(void) {
    const struct line *l;

    while (piece_len < LOG_PIECE && (l = next_to_show())) {
        add_to_piece(l->text);
        if (!async) screen_write(l->text, strnlen(l->text, LOG_LINE));
    }
    shell_sent = 0;
}

/* ---- the screen: after the first key it is a terminal that shows what the port sends ---- */

#define STALL_NS     NS_PER_S
#define SCREEN_TAKES 256u /* bytes that the screen takes at once if no port sets the pace */

static bool keyboard;                  /* there is one */
static volatile bool keyboard_is_used; /* a key was pressed, so the screen is a terminal */
static u64 stalled_at; /* when the port was first seen to take no bytes, in ns; 0: it takes some */
static bool without_port; /* the port has taken none for long, so the screen goes on alone */

/* Writes to the port as many bytes as it takes now, and the same bytes to the screen. Returns their
 * number. If there is no port, or it takes nothing for long, the screen alone takes some bytes; if
 * there is no screen either, these bytes are lost. */
static unsigned port_give(const char *s, unsigned n) {
    unsigned taken = uart_write(&serial.uart, s, n);

    if (taken) without_port = false;
    if (!taken && (!uart_there(&serial.uart) || without_port)) taken = MIN(n, SCREEN_TAKES);
    screen_feed(s, taken);
    return taken;
}

/* Sends as many bytes as the port takes now: of the log's piece if some of it is left, or else of
 * the shell's output. Of the latter it sends at most one line, so that the log can be sent between
 * two lines. Returns the number of bytes. */
static unsigned push_some(void) {
    u64 at = out_tail % OUT_SIZE;
    unsigned n = (unsigned)MIN(out_head - out_tail, OUT_SIZE - at);
    unsigned line = 0; /* bytes of the shell up to the end of a line */

    if (piece_at < piece_len) {
        n = port_give(piece + piece_at, piece_len - piece_at);
        piece_at += n;
        return n;
    }
    if (!n) return 0;
    while (line < n && out_buf[at + line++] != '\n') {
    }
    n = port_give(out_buf + at, line);
    if (n) last_sent = out_buf[at + n - 1];
    out_tail += n;
    shell_sent += n;
    return n;
}

/* Is there something that was not sent yet? */
static bool anything_queued(void) { return piece_at < piece_len || out_tail < out_head; }

/* Drops all that is queued. */
static void forget_queue(void) {
    piece_at = piece_len = 0;
    if (out_tail < out_head) last_sent = out_buf[(out_head - 1) % OUT_SIZE];
    out_tail = out_head;
}

/* Returns how often to look at a transmitter that takes no byte before we give it up: PATIENCE, and
 * the time that it needs to send a full FIFO at its rate. If it is stuck already, it gets the time
 * of two FIFOs, in case it has recovered. */
static u32 port_patience(void) {
    u32 fifo = 1400 * (115200 / MAX(serial.uart.baud, 50u));

    if (uart_stuck) return 2 * fifo;
    return PATIENCE + fifo;
}

/* Sends all that is queued, and waits for it. If the transmitter is stuck, the rest is lost. */
static void push_all(void) {
    for (u32 idle = 0; anything_queued() && uart_there(&serial.uart); cpu_relax()) {
        if (push_some()) {
            idle = 0;
            uart_stuck = false;
        } else if (++idle >= port_patience()) {
            uart_stuck = true;
            break;
        }
    }
    forget_queue();
}

/* Returns how many bytes of the shell's output there is room for. Each byte that is written might
 * be a "\n", which takes two bytes of the buffer. */
unsigned console_room(void) { return (unsigned)(OUT_SIZE - (out_head - out_tail)) / 2; }

/* Queues `n` bytes of the shell, and returns how many there was room for. Before
 * console_set_async() it sends them at once, so there is always room. */
static unsigned console_queue(const char *s, unsigned n) {
    unsigned i;

    for (i = 0; i < n; i++) {
        if (!async && !console_room()) push_all();
        if (!console_room()) break;
        if (s[i] == '\n' && !console_raw) out_buf[out_head++ % OUT_SIZE] = '\r';
        out_buf[out_head++ % OUT_SIZE] = s[i];
    }
    if (!async) push_all();
    return i;
}

/* Queues `n` bytes of the shell's output. Returns how many were taken. */
unsigned console_write(const char *s, unsigned n) {
    bool taken = take_lock();
    unsigned done = console_queue(s, n);

    drop_lock(taken);
    return done;
}

/* Says whether the shell is in the middle of an answer, so that no line of the log may come
 * between. */
void console_hold(bool hold) { held = hold; }

/* Sends all lines of the log that the console has not shown, and waits until they are sent. */
static void show_log(void) {
    push_all();
    while (log_waits()) {
        piece_at = piece_len = 0;
        fill_piece();
        push_all();
    }
}

/* ---- to the log ---- */

/* Adds a line to a log: the time, the text of `fmt`, and a newline. A line that is too long is
 * cut. */
static void add_line(u32 which, enum log_level at, const char *fmt, va_list ap) {
    struct line l = { .level = at };
    struct log *log = &logs[which];
    bool taken;
    u64 us = 0;
    int n;

    if (tsc_khz) us = now_ns() / 1000; /* before that there is no clock */
    n = hv_snprintf(l.text, LOG_LINE, "[%5lu.%06lu] ", us / 1000000, us % 1000000);
    n += hv_vsnprintf(l.text + n, (size_t)(LOG_LINE - n), fmt, ap);
    l.text[MIN(n, LOG_LINE - 2)] = '\n';
    l.text[MIN(n, LOG_LINE - 2) + 1] = 0;

    taken = take_lock();
    l.number = lines_ever++;
    log->line[log->end++ % LOG_LINES] = l;
    if (which == OF_HYPERVISOR) crashlog_line(l.text);
    if (!async) show_log();
    drop_lock(taken);
}

/* Writes one line to the hypervisor's log. */
void log_at(enum log_level at, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    add_line(OF_HYPERVISOR, at, fmt, ap);
    va_end(ap);
}

/* Writes a line that a guest has printed to the guests' log. */
void log_of_guest(const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    add_line(OF_GUESTS, LOG_INFO, fmt, ap);
    va_end(ap);
}

/* May another line of a guest be added to the log now? If too many wait for the console, the
 * guest's text stays in the guest's own ring. */
bool log_takes_guests(void) {
    const struct log *l = &logs[OF_GUESTS];

    return l->end - l->shown < GUESTS_AHEAD;
}

/* ---- set-up, and the end ---- */

/* Moves the console to the port that `spec` names. The port that is used so far gets all that is
 * queued before the console moves. A port that does not answer is not used: otherwise a typing
 * error on the command line would leave the operator without any output. */
void console_init(const char *spec, const struct acpi_info *acpi) {
    struct console_spec want;
    struct serial found;
    const char *why, *stays = "the log and the screen";

    parse_console(spec, &want, NULL);
    console_flush();
    if (want.where == AT_NOTHING) {
        serial = (struct serial){ .name = "none" };
        return;
    }
    why = serial_find(&want, acpi, &found);
    if (!why && !uart_open(&found.uart, &found.uart, found.baud))
        why = "no serial port answers there";
    if (why) {
        if (uart_there(&serial.uart)) stays = "where it is";
        log_warn("console = %s: %s: the console stays %s", spec, why, stays);
        return;
    }
    serial = found;
    if (acpi) log_info("console: %s, %u baud", serial.name, serial.uart.baud);
}

/* Returns whether the console is the serial port at this I/O port. */
bool console_is_port(u16 port) { return port && serial.uart.port == port; }

/* Returns whether the console is at the PCI device with this bdf. */
bool console_is_pci(u32 bdf) { return serial.is_pci && serial.bdf == bdf; }

/* Sends all that waits for the console, and waits until it is sent. */
void console_flush(void) {
    bool taken = take_lock();

    show_log();
    for (u32 i = 0; i < port_patience() && !uart_drained(&serial.uart); i++) cpu_relax();
    drop_lock(taken);
}

/* Prepares the console for a panic: from now on it takes no lock, and each writer waits until its
 * text is sent. */
void console_set_panic(void) {
    panicking = true;
    async = false;
    uart_stuck = false; /* it may have recovered: a panic is worth another try */
}

/* ---- after boot: a work item moves what is queued ---- */

#define PUMP_IDLE_NS (10 * NS_PER_MS)
#define PUMP_BUSY_NS 1300000ull /* a FIFO takes 1.4 ms at 115200 baud */
#define PUMP_FIFOS   16         /* that one step fills at most: emulated ports take bytes at once */

/* The receiver's FIFO of 16 bytes is full after 1.4 ms at 115200 baud, and then bytes are lost. So
 * the port raises an interrupt when bytes have arrived, and the handler reads them at once; the
 * shell has room for all of them. If we do not know the port's interrupt, or it does not come, we
 * look at the port every millisecond instead. That is the second choice, because it costs the guest
 * on this pCPU an exit every millisecond. */
#define INTERRUPT_NS (50 * NS_PER_MS) /* how long we wait for the first interrupt */
static volatile bool interrupted;     /* an interrupt has come, so the port can interrupt */
static bool listening;                /* the interrupt is connected */
static u64 listen_until;              /* if no interrupt has come by this time (ns), none will */

/* Reads all bytes that have arrived, passes them to the shell, and counts the bytes that the
 * receiver lost. */
static void take_input(void) {
    u32 lost = serial.uart.overruns;
    char in[UART_FIFO];
    unsigned n = 0;
    int c;

    do {
        for (n = 0; n < sizeof(in) && (c = uart_read(&serial.uart)) >= 0;) in[n++] = (char)c;
        if (n) console_input(in, n);
    } while (n == sizeof(in));
    for (; lost != serial.uart.overruns; lost++) counter_inc(&console_overruns, WORK_CPU);
}

/* The handler of the port's interrupt. It runs on WORK_CPU at a point where no other code of the
 * hypervisor is in the middle of something there, so it can call the shell. */
static void on_interrupt(void *arg) {
    interrupted = true;
    uart_interrupted(&serial.uart);
    take_input();
}

/* Connects the port's interrupt. An empty transmitter raises it, too. The transmitter is empty now,
 * so the first interrupt has to come at once; if it does not, we know that interrupts do not
 * work. */
static void port_listen(void) {
    int vector = -1;

    if (!uart_there(&serial.uart)) return;
    if (serial.has_gsi) vector = irq_alloc(on_interrupt, NULL);
    if (vector >= 0 && irq_pin_connect(serial.gsi, vector, serial.irq_flags)) {
        irq_free(vector);
        vector = -1;
    }
    if (vector < 0) {
        log_info("console: the interrupt of %s is not known: Takt looks at it every millisecond",
                 serial.name);
        return;
    }
    listening = true;
    listen_until = now_ns() + INTERRUPT_NS;
    irq_pin_mask(serial.gsi, false);
    uart_listen(&serial.uart);
}

/* If the first interrupt did not come in time, stops waiting for interrupts and says so. */
static void check_interrupts(u64 now) {
    if (!listening || interrupted || now < listen_until) return;
    listening = false;
    irq_pin_mask(serial.gsi, true);
    log_info("console: %s does not interrupt: Takt looks at it every millisecond", serial.name);
}

/* Lets the log send its next piece, if it has lines to send and may send them now. If the shell has
 * output queued, the log may send between two lines of the shell, once the shell has sent as many
 * bytes as the log's last piece had. If the shell has nothing queued, the log may send unless the
 * shell is in the middle of an answer. The line that the operator is editing is erased, and drawn
 * again behind the log's lines. While a guest's program draws on the terminal, the log waits. */
static void log_turn(void) {
    bool edited = false, taken;

    if (piece_at < piece_len || console_raw || !log_waits()) return;
    if (out_tail < out_head) {
        if (last_sent != '\n' || shell_sent < piece_len) return;
    } else if (last_sent != '\n') {
        if (held) return;
        edited = console_redraw(); /* its text is queued, so it is sent behind the piece */
    }
    taken = take_lock();
    piece_at = piece_len = 0;
    if (edited) add_to_piece("\r\x1b[K");
    fill_piece();
    drop_lock(taken);
}

/* Takes the bytes of a key that was pressed on the keyboard, in an interrupt handler. The first key
 * turns the screen into a terminal. */
static void on_keys(const char *s, unsigned n) {
    if (!keyboard_is_used) {
        screen_start_terminal();
        keyboard_is_used = true;
        console_redraw(); /* the prompt was drawn when the screen was no terminal yet */
    }
    console_input(s, n);
}

/* Tells on the screen where the shell can be reached. */
static void tell_screen(void) {
    const char *here = "There is no keyboard that Takt knows.";
    char text[160];

    if (keyboard) here = "To have it here as well, press a key.";
    if (uart_there(&serial.uart))
        hv_snprintf(text, sizeof(text), "The shell is on %s, %u baud, 8N1. %s\n", serial.name,
                    serial.uart.baud, here);
    else
        hv_snprintf(text, sizeof(text), "There is no serial port for the shell. %s\n", here);
    screen_write(text, strnlen(text, sizeof(text)));
}

/* Starts the keyboard. If there is a screen and a keyboard but no serial port, the shell is on the
 * screen from the beginning; otherwise it comes there when the first key is pressed. */
static void start_screen(const struct acpi_info *acpi) {
    keyboard = screen_there() && keyboard_start(acpi, on_keys);
    if (!keyboard || uart_there(&serial.uart)) {
        tell_screen();
        return;
    }
    screen_start_terminal();
    keyboard_is_used = true;
    log_info("console: the shell is on the screen");
}

/* Notes whether the port has taken no byte for STALL_NS although there is something to send. If the
 * keyboard is in use, the screen then goes on without the port: otherwise a port that nobody reads
 * would also stop the shell on the screen. */
static void watch_port(bool moves, u64 now) {
    if (moves || !anything_queued()) {
        stalled_at = 0;
        return;
    }
    if (!stalled_at) stalled_at = now;
    without_port = keyboard_is_used && now - stalled_at > STALL_NS;
}

/* The step of the console's work item: reads input, sends output, draws the screen. It never ends,
 * so it always returns true. */
static bool console_pump(struct work *w) {
    u64 now = now_ns(), wait = NS_PER_MS; /* until the next step */
    bool taken, moves = false;

    if (interrupted || !uart_there(&serial.uart)) wait = PUMP_IDLE_NS;
    check_interrupts(now);
    take_input();
    for (u32 i = 0, sent = 1; i < PUMP_FIFOS && sent; i++) {
        log_turn();
        taken = take_lock();
        sent = push_some();
        drop_lock(taken);
        moves |= sent;
    }
    watch_port(moves, now);
    if (screen_step()) wait = MIN(wait, NS_PER_MS);
    if (anything_queued()) wait = MIN(wait, PUMP_BUSY_NS);
    w->not_before = now + wait;
    return true;
}

/* Makes the console buffer its output from now on, so that writers do not wait for the port. */
void console_set_async(const struct acpi_info *acpi) {
    static struct work work = { .step = console_pump };

    async = true;
    port_listen();
    start_screen(acpi);
    work_add(&work);
}
