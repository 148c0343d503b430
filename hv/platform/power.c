#include "platform/power.h"

#include <takt/io.h>
#include "lib/printf.h"
#include "platform/console.h"

bool noreboot;

static void halt_for_ever(void)
{
    for (;;)
        __asm__ volatile("cli; hlt");
}

/* Emulators: Bochs and Bochs' BIOS end at the bytes "Shutdown" on port 0x8900; QEMU at a write to isa-debug-exit. A
 * real machine has nothing there. */
static void emulator_off(void)
{
    for (const char *p = "Shutdown"; *p; p++)
        outb(0x8900, (u8)*p);
    outb(0xf4, 0);
}

void platform_poweroff(void)
{
    console_flush(true);
    emulator_off();
    halt_for_ever();
    __builtin_unreachable();
}

void platform_reboot(void)
{
    console_flush(true);
    outb(0xcf9, 2); /* the chipset's reset register, then the keyboard controller's line */
    outb(0xcf9, 6);
    outb(0x64, 0xfe);
    halt_for_ever();
    __builtin_unreachable();
}

void stop_machine(const char *why)
{
    log_err("%s", why);
    console_flush(true);
    if (!noreboot)
        emulator_off();
    halt_for_ever();
    __builtin_unreachable();
}
