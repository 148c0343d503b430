/* The console of a guest. On Takt, text goes to the hypervisor by a hypercall, and waits there in a
 * ring of the VM. On a bare machine it goes to the debug console of an emulator, or to the serial
 * port. */
#include <guest/guest.h>
#include <guest/printf.h>
#include <guest/sync.h>
#include <takt/io.h>

#define UART_LSR (TAKT_UART_PORT + 5)
/* Bits of the line status register of a 16550: there is a byte to read; a byte can be written. */
#define LSR_DATA  0x01
#define LSR_EMPTY 0x20
/* How often a write is tried before output is dropped. The terminal may be slow, but a guest must
 * not wait for it for ever. */
#define RETRIES 100000

static bool have_debugcon, have_uart;
static struct spinlock lock;

/* Finds out which devices a bare machine has: an emulator's debug console answers with its own port
 * number, and where no UART is, all bits of its register read as 1. */
void console_init(void) {
    have_debugcon = inb(TAKT_DEBUGCON_PORT) == TAKT_DEBUGCON_PORT;
    have_uart = inb(UART_LSR) != 0xff;
}

/* Writes text to the console by a hypercall. If the ring of the VM is full (-EAGAIN), other VMs get
 * the CPU, so that one of them may empty the ring. After RETRIES the rest is dropped. */
static void write_takt(const char *s, size_t len) {
    unsigned tries = 0;

    while (len) {
        i64 n = hypercall2(TAKT_HC_CONSOLE_WRITE, (u64)s, MIN(len, (size_t)4096));

        if (n > 0) {
            s += n;
            len -= n;
            tries = 0;
        } else if (n != -EAGAIN || ++tries == RETRIES) {
            return;
        } else {
            hypercall0(TAKT_HC_YIELD);
        }
    }
}

/* Writes to the debug console, which takes every byte at once, or to the UART, which may be busy.
 */
static void write_ports(const char *s, size_t len) {
    for (; len; len--, s++) {
        if (have_debugcon) {
            outb(TAKT_DEBUGCON_PORT, *s);
        } else if (have_uart) {
            for (unsigned i = 0; i < RETRIES && !(inb(UART_LSR) & LSR_EMPTY); i++) cpu_relax();
            outb(TAKT_UART_PORT, *s);
        }
    }
}

/* Writes `len` characters to the console. The lock keeps the lines of two vCPUs apart. */
void console_write(const char *s, size_t len) {
    u64 f = spin_lock_irqsave(&lock);

    if (on_takt())
        write_takt(s, len);
    else
        write_ports(s, len);
    spin_unlock_irqrestore(&lock, f);
}

/* Returns at once with what is there; 0 if nothing was typed. */
size_t console_read(char *s, size_t max) {
    size_t n = 0;

    if (on_takt()) {
        i64 got = hypercall2(TAKT_HC_CONSOLE_READ, (u64)s, MIN(max, (size_t)4096));

        return (size_t)MAX(got, 0);
    }
    while (have_uart && n < max && inb(UART_LSR) & LSR_DATA) s[n++] = inb(TAKT_UART_PORT);
    return n;
}
