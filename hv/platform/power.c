#include "platform/power.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "platform/clock.h"
#include "platform/console.h"
#include "platform/smp.h"
#include "x86/percpu.h"

#define READING_TIME (5 * NS_PER_S) /* before a machine that panicked starts again */

bool noreboot;

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

/* By the chipset's reset register, the keyboard controller's line, and an exception without an IDT (SDM 3A
 * 6.15), whichever comes first. */
static void __attribute__((noreturn)) reset(void) {
    static const u8 no_idt[10];

    outb(0xcf9, 2);
    outb(0xcf9, 6);
    outb(0x64, 0xfe);
    delay_ns(NS_PER_S);
    __asm__ volatile("lidt %0; ud2" : : "m"(no_idt));
    __builtin_unreachable();
}

void platform_poweroff(void) {
    log_info("The machine may be switched off.");
    last_words();
    emulator_off(0);
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
