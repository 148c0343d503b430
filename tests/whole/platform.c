/* The parts of hv/platform, hv/x86 and hv/pci that touch hardware, for a machine that has no
 * hardware but CPUs and RAM: the console is standard output, and there are no PCI devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "drivers/uart.h"
#include "lib/printf.h"
#include "lib/version.h"
#include "pci/pci.h"
#include "platform/apic.h"
#include "platform/clock.h"
#include "platform/console.h"
#include "platform/hostmap.h"
#include "platform/irq.h"
#include "platform/power.h"
#include "platform/rtc.h"
#include "tests/whole/whole.h"
#include "x86/cpu.h"
#include "x86/topology.h"
#include "x86/trap.h"
#include "x86/tsc.h"

#define ROOM 65536u /* how much the console says that it takes: standard output takes all */

const char version_commit[] = "simulation", version_date[] = "2026-01-01";

/* ---- console and log ---- */

void (*console_input)(const char *s, unsigned n);
bool (*console_redraw)(void);

unsigned console_room(void) { return ROOM; }

bool whole_json, whole_serial;

/* Takes a character that the shell writes, and prints it when its line is complete. Otherwise lines
 * of the log could come in the middle of a line. */
static void put_serial(char c) {
    static char *line;
    static size_t used, room;

    if (used == room) {
        room += ROOM;
        line = realloc(line, room);
    }
    if (c != '\r') line[used++] = c;
    if (c != '\n') return;
    fwrite(line, 1, used, stdout);
    used = 0;
}

/* Takes what the shell writes, in place of a serial port: prints the answer to the one command of
 * the script, and ends the simulation after it. The first line is left out, because it has the
 * prompt and the command. An answer in JSON is one line behind the byte RS (0x1e), and a table ends
 * with an empty line. With --script, all is printed, and the simulation goes on. */
unsigned console_write(const char *s, unsigned n) {
    static bool answer, ended, at_start;

    for (unsigned i = 0; whole_serial && i < n; i++) put_serial(s[i]);
    if (whole_serial) return n;
    for (unsigned i = 0; i < n && !ended; i++) {
        bool newline = s[i] == '\n';

        if (answer && s[i] != '\x1e' && !record_answer(s[i])) putchar(s[i]);
        ended = answer && newline && (whole_json || at_start);
        answer |= newline;
        at_start = newline;
    }
    if (ended) engine_stop();
    return n;
}

bool console_raw;
void console_hold(bool hold) {}
u64 console_dropped(void) { return 0; }
void console_flush(void) { fflush(stdout); }
bool console_is_port(u16 port) { return false; }
bool console_is_pci(u32 bdf) { return false; }
u64 log_next(void) { return 0; }
size_t log_read(u64 *position, char *buf, size_t size) { return 0; }
bool log_takes_guests(void) { return true; }

FILE *whole_log;

/* As in the image, a line begins with the time in seconds. */
static void say(bool of_guest, const char *fmt, va_list ap) {
    u64 us = rdtsc() / NS_PER_US;
    char text[512];

    format_text(text, sizeof(text), fmt, ap);
    fprintf(whole_log, "[%5lu.%06lu] %s\n", us / 1000000, us % 1000000, text);
    record_line(us, of_guest, text);
}

void log_at(enum log_level level, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    if (level <= LOG_INFO) say(false, fmt, ap);
    va_end(ap);
}

void log_of_guest(const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    say(true, fmt, ap);
    va_end(ap);
}

/* ---- the end ---- */

void panic(const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    fprintf(whole_log, "panic: ");
    say(false, fmt, ap);
    va_end(ap);
    whole_trace_panic();
    fflush(NULL);
    abort();
}

void stop_machine(const char *why) {
    printf("%s\n", why);
    fflush(stdout);
    exit(2);
}

/* The shell's commands that end the machine end the program. */
static __attribute__((noreturn)) void end(void) {
    record_end();
    whole_trace_end();
    fflush(stdout);
    exit(0);
}

void platform_poweroff(void) { end(); }
void platform_reboot(void) { end(); }
void platform_halt(void) { end(); }

const char fault_words[] = "none";
int fault_inject(const char *what) { return -1; }
void (*dump_hook)(void);

/* ---- CPUs ---- */

bool apic_x2 = true, apic_tsc_deadline = true;
u64 apic_timer_khz;

void apic_timer_count(u32 ticks) { panic("the APIC's timer has no deadline mode"); }

/* What the CPUs can do: a vendor's name, and what each CPU of 64 bits has. */
struct cpuid cpuid(u32 leaf, u32 sub) {
    switch (leaf) {
    case 0:
        return (struct cpuid){ .eax = 1, .ebx = 0x756e6547, .ecx = 0x6c65746e, .edx = 0x49656e69 };
    case 1: return (struct cpuid){ .edx = 0x078bfbff };
    case 0x80000000u: return (struct cpuid){ .eax = 0x80000008u };
    case 0x80000001u: return (struct cpuid){ .edx = 0x28100800 };
    case 0x80000008u: return (struct cpuid){ .eax = 48 << 8 | 40 };
    default: return (struct cpuid){ 0 };
    }
}

/* Four pCPUs share a cache, as in tests/sim. */
u32 cpu_cache(u32 cpu) { return cpu / 4; }

/* The nodes are the sockets of [model]; without that there is one. */
u32 cpu_node(u32 cpu) { return sockets_of(cpu); }

const struct cpu_places cpu_places = { cpu_cache, cpu_node };

struct place cpu_place(u32 cpu) {
    return (struct place){ .core = cpu };
}

void cache_write_back(const void *p, u64 len) {}

u64 rtc_at(u64 ns) { return ns; }

void delay_ns(u64 ns) { whole_charge(ns * PS_PER_NS); }

/* ---- devices: there are none ---- */

u32 pci_read(u32 bdf, u32 offset, u32 size) { return ~0u >> (32 - 8 * size); }
void pci_write(u32 bdf, u32 offset, u32 size, u32 value) {}
u32 pci_next_bus(u32 bus) { return PCI_NO_BUS; }
volatile void *mmio_map(hpa_t pa, u64 len) { return NULL; }
const void *acpi_map(u64 pa, u64 len) { return NULL; }

int (*irq_remap_pin)(u32 id, u32 vector, bool level);
void (*irq_eoi)(void);
int irq_alloc(void (*fn)(void *), void *arg) { return -1; }
void irq_free(int vector) {}
void irq_init(const struct acpi_info *a) {}
int irq_message(int vector, u32 cpu, struct irq_message *m) { return -1; }
int irq_pin_connect(u32 gsi, int vector, u32 flags) { return -1; }
void irq_pin_mask(u32 gsi, bool masked) {}

u16 uart_port(unsigned com) { return 0; }
bool uart_init(struct uart *u, u16 port, u32 baud) { return false; }
int uart_read(struct uart *u) { return -1; }
unsigned uart_write(struct uart *u, const char *s, unsigned n) { return n; }
