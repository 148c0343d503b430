#include "platform/power.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "platform/clock.h"
#include "platform/console.h"
#include "platform/hostmap.h"
#include "platform/smp.h"
#include "x86/percpu.h"

#define READING_TIME (5 * NS_PER_S) /* before a machine that panicked starts again */

bool noreboot;
static const struct acpi_info *acpi;
static volatile u8 *reset_register; /* if it is in memory: mapped while there is memory for tables */

void power_init(const struct acpi_info *a) {
    acpi = a;
    if (a->reset.space == 0) reset_register = mmio_map(a->reset.addr, 1);
}

static void __attribute__((noreturn)) halt(void) {
    for (;;) __asm__ volatile("cli; hlt");
}

/* The other CPUs stand still from here on, and all that the console has goes out. */
static void last_words(void) {
    smp_stop_others();
    console_set_panic();
    console_flush();
}

/* Bochs ends at the bytes "Shutdown" on port 0x8900, QEMU at a write to isa-debug-exit. A real machine has
 * nothing there. */
static void emulator_off(u8 code) {
    for (const char *p = "Shutdown"; *p; p++) outb(0x8900, (u8)*p);
    outb(0xf4, code);
}

static void __attribute__((noreturn)) reset(void) {
    if (acpi && acpi->reset.space == 1) outb((u16)acpi->reset.addr, acpi->reset.value);
    if (reset_register) *reset_register = acpi->reset.value;
    outb(0xcf9, 2); /* the chipset's reset register, then the keyboard controller's line */
    outb(0xcf9, 6);
    outb(0x64, 0xfe);
    halt();
}

void platform_poweroff(void) {
    last_words();
    emulator_off(0);
    /* SLP_TYP and SLP_EN (ACPI 6.5, 4.8.3.2.1) */
    if (acpi && acpi->pm1a_control)
        outw(acpi->pm1a_control,
             (u16)((inw(acpi->pm1a_control) & 0xc3ff) | acpi->sleep_type << 10 | BIT(13)));
    halt();
}

void platform_reboot(void) {
    last_words();
    reset();
}

void stop_machine(const char *why) {
    log_err("%s", why);
    last_words();
    if (!noreboot) emulator_off(1);
    halt();
}

void panic(const char *fmt, ...) {
    static u32 depth;
    char text[192];
    va_list ap;

    if (__atomic_fetch_add(&depth, 1, __ATOMIC_SEQ_CST) > 0) halt();
    last_words();
    va_start(ap, fmt);
    hv_vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_err("PANIC on CPU %u: %s", this_cpu()->id, text);
    if (noreboot) stop_machine("Stopped, since noreboot is set.");
    log_err("Rebooting.");
    console_flush();
    emulator_off(1);
    delay_ns(READING_TIME);
    reset();
}
