/* The boot, from top to bottom. */
#include "boot/layout.h"
#include "lib/printf.h"
#include "platform/bootinfo.h"
#include "platform/console.h"
#include "platform/hostmap.h"
#include "platform/power.h"
#include "x86/cpu.h"
#include "x86/insn.h"
#include "x86/trap.h"
#include "x86/tsc.h"

static struct boot_info boot;
extern const u8 image_end[];

void hv_main(u32 magic, u64 mbi);

static void read_boot_info(u32 magic, u64 mbi)
{
    const char *why;

    if (magic != MB2_BOOT_MAGIC)
        stop_machine("The loader is no multiboot2 loader: boot Takt with GRUB's multiboot2 command.");
    if (bootinfo_parse(hpa_to_va(mbi), BOOT_MAX_SIZE, &boot, &why) < 0) {
        log_err("%s", why);
        stop_machine("The loader's information cannot be used.");
    }
    memmap_remove(&boot.ram, 0, 0x100000); /* left to the firmware and to the trampoline */
    memmap_remove(&boot.ram, LOAD_BASE, (u64)image_end - LINK_BASE);
    for (u32 i = 0; i < boot.nr_modules; i++)
        memmap_remove(&boot.ram, boot.module[i].start, ALIGN_UP(boot.module[i].end, PAGE_SIZE));
}

static void memory_init(void)
{
    for (u32 i = 0; i < boot.ram.nr; i++)
        if (boot.ram.range[i].start < BIT(32))
            frame_add(boot.ram.range[i].start, MIN(boot.ram.range[i].end, BIT(32)));
    hostmap_image();
    for (u32 i = 0; i < boot.ram.nr; i++) {
        u64 start = MAX(boot.ram.range[i].start, BIT(32)), end = boot.ram.range[i].end;

        if (start < end) {
            hostmap_direct(start, end);
            frame_add(start, end);
        }
    }
}

void hv_main(u32 magic, u64 mbi)
{
    directmap_base = DIRECTMAP;
    traps_init();
    cpu_load_tables(&boot_cpu);
    console_early();
    log_info("Takt, a small hypervisor");
    read_boot_info(magic, mbi);
    memory_init();
    log_info("%lu MiB of RAM, %u modules", frame_total() >> 8, boot.nr_modules);
    stop_machine("The end of what there is.");
}
