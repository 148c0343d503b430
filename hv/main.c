/* The boot, from top to bottom. */
#include "boot/layout.h"
#include "lib/printf.h"
#include "platform/apic.h"
#include "platform/bootinfo.h"
#include "platform/clock.h"
#include "platform/console.h"
#include "platform/hostmap.h"
#include "platform/power.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "x86/cpu.h"
#include "x86/insn.h"
#include "x86/trap.h"
#include "x86/tsc.h"

static struct boot_info boot;
static struct acpi_info acpi;
static hpa_t trampoline_page;
extern const u8 image_end[];

void hv_main(u32 magic, u64 mbi);

/* A free page below 640 KiB, where an AP can start; 0 if there is none. */
static hpa_t low_page(void)
{
    for (hpa_t pa = 0x9f000; pa; pa -= PAGE_SIZE)
        if (memmap_contains(&boot.ram, pa, pa + PAGE_SIZE))
            return pa;
    return 0;
}

static void read_boot_info(u32 magic, u64 mbi)
{
    const char *why;

    if (magic != MB2_BOOT_MAGIC)
        stop_machine("The loader is no multiboot2 loader: boot Takt with GRUB's multiboot2 command.");
    if (bootinfo_parse(hpa_to_va(mbi), BOOT_MAX_SIZE, &boot, &why) < 0) {
        log_err("%s", why);
        stop_machine("The loader's information cannot be used.");
    }
    trampoline_page = low_page();
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

static const void *map_table(void *ctx, u64 pa, u64 len)
{
    if (pa + len < pa)
        return NULL;
    return pa + len <= BIT(32) ? hpa_to_va(pa) : (const void *)mmio_map(pa, len);
}

static void platform_init(void)
{
    if (acpi_parse(&acpi, boot.rsdp_len ? boot.rsdp : NULL, boot.rsdp_len, map_table, NULL) < 0)
        log_warn("no usable ACPI tables: one CPU, and no way to power off");
    if (acpi.bad_tables)
        log_warn("%u ACPI tables are malformed and were left out", acpi.bad_tables);
    if (apic_init(&acpi) < 0)
        stop_machine("This CPU has no local APIC, which Takt needs for its timers.");
    apic_init_cpu();
    if (clock_calibrate(&acpi) < 0)
        stop_machine("No clock counts by which the TSC and the APIC timer could be measured.");
    timers_init_cpu();
    if (cpu_give_stacks(&boot_cpu) < 0)
        stop_machine("There is not enough memory for the stacks of a CPU.");
    cpu_load_tables(&boot_cpu);
}

static void ap_start(void)
{
    smp_watch();
    for (;;)
        cpu_halt();
}

static void start_guests(void)
{
    smp_watch();
    log_info("boot done");
    for (int i = 0; i < 20; i++) {
        timers_run();
        lapic_timer_arm(MIN(timers_next(), now_ns() + 100 * NS_PER_MS));
        cpu_halt();
        if (i % 4 == 0)
            log_info("tick %d", i);
    }
    platform_poweroff();
}

void hv_main(u32 magic, u64 mbi)
{
    tsc_boot = rdtsc();
    directmap_base = DIRECTMAP;
    traps_init();
    cpu_load_tables(&boot_cpu);
    console_early();
    log_info("Takt, a small hypervisor");
    read_boot_info(magic, mbi);
    memory_init();
    log_info("%lu MiB of RAM, %u modules", frame_total() >> 8, boot.nr_modules);
    platform_init();
    smp_start(&acpi, trampoline_page, ap_start);
    stack_switch(boot_cpu.p.stack_top, start_guests);
}
