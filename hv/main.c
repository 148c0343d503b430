/* The boot, from top to bottom. hv_main() is called by boot.asm on the boot CPU; boot_go() is what
 * that CPU does after the other CPUs have started. This is also the place where the rooms of the
 * hypervisor are put together: what a VM is made of, and what is initialised in which order. */
#include "boot/layout.h"
#include "config.h"
#include "devices/devices.h"
#include "lib/printf.h"
#include "lib/version.h"
#include "mm/frame.h"
#include "nodes/nodes.h"
#include "passthrough/give.h"
#include "passthrough/pcbus.h"
#include "passthrough/quiesce.h"
#include "pci/sriov.h"
#include "passthrough/vtd.h"
#include "platform/acpi_power.h"
#include "platform/apic.h"
#include "platform/clock.h"
#include "platform/console.h"
#include "platform/crashlog.h"
#include "platform/hostmap.h"
#include "platform/power.h"
#include "platform/rtc.h"
#include "platform/screen.h"
#include "platform/smp.h"
#include "platform/timer.h"
#include "platform/watchdog.h"
#include "preflight.h"
#include "probe.h"
#include "sched/governor.h"
#include "sched/setup.h"
#include "selftest/selftest.h"
#include "shell/shell.h"
#include "vcpu/vcpu.h"
#include "virt/virt.h"
#include "x86/cpu.h"
#include "x86/topology.h"
#include "x86/tsc.h"

static struct boot_info boot;
static struct acpi_info acpi;
static struct memmap all_ram; /* what the loader said; boot.ram loses what is used already */
static hpa_t trampoline_page;
static bool crashlog_there; /* there is RAM for it, and the loader has put no module there */

static struct config config;
static const char *no_iommu; /* why no IOMMU is in use; NULL: one is */
static volatile bool boot_done;

void hv_main(u32 magic, u64 mbi);

#define LAST_LOW_PAGE 0x9f000u /* below 640 KiB, where the RAM of the first PCs ended */
#define FIRST_MIB     0x100000u

/* Reads what the boot loader tells, and takes out of boot.ram all memory that is used already: boot
 * modules, the image, the place where the log survives a crash, and the first MiB. What is left is
 * handed out to VMs later, so anything that is forgotten here would be overwritten. */
static void read_boot_info(u32 magic, u64 mbi) {
    const char *why;

    if (magic != MB2_BOOT_MAGIC)
        stop_machine(
            "The loader is no multiboot2 loader: boot Takt with GRUB's multiboot2 command.");
    why = bootinfo_parse(hpa_to_va(mbi), BOOT_MAX_SIZE, &boot);
    if (why) stop_machine(why);
    all_ram = boot.ram;

    for (u32 i = 0; i < boot.nr_modules; i++)
        memmap_remove(&boot.ram, ALIGN_DOWN(boot.module[i].start, PAGE_SIZE),
                      ALIGN_UP(boot.module[i].end, PAGE_SIZE));
    memmap_remove(&boot.ram, LOAD_BASE, (u64)image_end - LINK_BASE);
    crashlog_there = memmap_contains(&boot.ram, CRASHLOG_AT, CRASHLOG_AT + CRASHLOG_SIZE);
    memmap_remove(&boot.ram, CRASHLOG_AT, CRASHLOG_AT + CRASHLOG_SIZE);
    /* An AP starts in real mode, so its first page has to be in low memory. */
    for (hpa_t pa = LAST_LOW_PAGE; pa && !trampoline_page; pa -= PAGE_SIZE)
        if (memmap_contains(&boot.ram, pa, pa + PAGE_SIZE)) trampoline_page = pa;
    memmap_remove(&boot.ram, 0, FIRST_MIB); /* the firmware's and the trampoline's */
}

/* Maps the RAM in [from, to), and gives it to the allocator. */
static void add_ram(hpa_t from, hpa_t to) {
    for (u32 i = 0; i < boot.ram.nr; i++) {
        hpa_t start = MAX(boot.ram.range[i].start, from), end = MIN(boot.ram.range[i].end, to);

        if (start >= end) continue;
        hostmap_direct(start, end);
        frame_add(start, end);
    }
}

/* Gives all RAM to the allocator. RAM below 4 GiB comes first, because the page tables that map the
 * rest are allocated from it. */
static void memory_init(void) {
    add_ram(0, BIT(32));
    hostmap_image();
    add_ram(BIT(32), BOOT_RAM_LIMIT);
}

/* Tells the allocator which frames are near which CPUs. From here on a VM gets memory that is near
 * its CPUs. */
static void nodes_init(void) {
    struct frame_node node[ACPI_MAX_MEM_NODES];

    _Static_assert(ACPI_MAX_NODES <= FRAME_MAX_NODES && ACPI_MAX_MEM_NODES <= FRAME_MAX_NODE_RANGES,
                   "frames have a list for each node that the firmware may name");
    for (u32 i = 0; i < acpi.nr_mem_nodes; i++)
        node[i] = (struct frame_node){ acpi.mem_node[i].start, acpi.mem_node[i].end,
                                       acpi.mem_node[i].node };
    if (acpi.nr_nodes < 2) return;
    frame_set_nodes(node, acpi.nr_mem_nodes);
    for (u32 from = 0; from < acpi.nr_nodes; from++)
        for (u32 to = 0; to < acpi.nr_nodes; to++)
            frame_set_distance(from, to, acpi_distance(&acpi, from, to));
    log_info("%u NUMA nodes of memory", acpi.nr_nodes);
}

/* Reads ACPI's tables. This comes before the configuration, which may ask for the console that the
 * firmware's tables name. */
static void read_firmware(void) {
    if (acpi_parse(&acpi, boot.rsdp, boot.rsdp_len) < 0)
        log_warn("no usable ACPI tables were found: only the boot CPU is used");
    acpi_power_init(&acpi.power);
    if (acpi.bad_tables)
        log_warn("ACPI tables left out, as they are malformed: %u", acpi.bad_tables);
    if (acpi.repeated_tables)
        log_warn("ACPI tables left out, as one of their kind came before: %u",
                 acpi.repeated_tables);
}

/* Sets up the boot CPU's interrupt controller, clock, timers and stacks. The clock comes before the
 * timers, which need its rate. */
static void platform_init(void) {
    if (apic_init(&acpi) < 0)
        stop_machine("This CPU has no local APIC, which Takt needs for its timers.");
    apic_init_cpu();
    boot_cpu.p.apic_id = apic_id();
    acpi_boot_cpu(&acpi, boot_cpu.p.apic_id);
    boot_cpu.p.node = acpi_node_of_cpu(&acpi, boot_cpu.p.apic_id);
    nodes_init();
    if (clock_calibrate(&acpi) < 0)
        stop_machine("No clock counts by which the TSC and the APIC timer could be measured.");
    rtc_init();
    timers_init_cpu();
    if (cpu_give_stacks(&boot_cpu) < 0)
        stop_machine("There is not enough memory for the stacks of a CPU.");
    cpu_load_tables(&boot_cpu);
}

/* Finds the PCI devices, enables virtual functions of cards that have them (SR-IOV), and switches
 * the IOMMUs on. Firmware may have left devices that write to memory; pci_quiesce() stops these
 * before a VM can get that memory. */
static void devices_init(void) {
    const char *how = pci_space_init(&acpi, &all_ram);

    pci_enumerate();
    iommu_read(&acpi, config.relax_rmrr);
    pci_quiesce();
    if (sriov_enable(config.vfs)) {
        delay_ns(SRIOV_SETTLE_NS);
        sriov_find();
    }
    give_init(&acpi, &all_ram);
    log_info("%u PCI device%s, by %s", pci_count(), plural(pci_count()), how);
    no_iommu = iommu_init(&acpi, &all_ram);
}

/* ---- configuration ---- */

/* Tells the operator of an error in the configuration. */
static void boot_report(void *ctx, bool fatal, const char *text) {
    if (fatal)
        log_err("%s", text);
    else
        log_warn("%s", text);
}

/* Makes an empty configuration with room for the descriptions of `max` VMs. */
static void give_config_room(u32 max) {
    hpa_t pa = frame_alloc(frame_order(max * sizeof(struct config_vm)));

    if (pa == HPA_NONE) stop_machine("There is no memory for the descriptions of the VMs.");
    config_defaults(&config, hpa_to_va(pa), max);
}

/* Reads the configuration, which is the first boot module, and after it the command line, which
 * overrides it. The other modules are images of guests, by name. */
static void read_boot_config(void) {
    const struct boot_module *m = &boot.module[0];
    const char *text = hpa_to_va(m->start);
    size_t len = m->end - m->start;

    if (!boot.nr_modules)
        stop_machine(
            "There is no configuration: it must be the first boot module (docs/config.md).");
    give_config_room(config_room(text, len));
    if (config_parse(&config, m->name, text, len, param_name_at, boot_report, NULL) ||
        config_cmdline(&config, boot.cmdline, param_name_at, boot_report, NULL))
        stop_machine("The configuration cannot be used.");
    if (config.model.head.line)
        log_info("%s:%u: [model] is for the simulation of the whole machine, and is ignored here",
                 m->name, config.model.head.line);
    noreboot = config.noreboot;
    smp_fault_tsc = config.boot_fault != BOOT_FAULT_NONE;
    smp_fault_no_adjust = config.boot_fault == BOOT_FAULT_TSC_STUCK;
    console_init(config.console, &acpi);
    console_set_level((enum log_level)config.loglvl);
    if (!crashlog_there) log_info("no log of a crash will be kept: there is no free RAM at 64 MiB");
    if (crashlog_there) crashlog_open(hpa_to_va(CRASHLOG_AT));
    crashlog_report();
    for (m++; m < boot.module + boot.nr_modules; m++) {
        struct module image = { m->name, hpa_to_va(m->start), m->end - m->start };

        if (module_add(&image) < 0)
            log_warn("boot module %s is left out: its name is taken, or there are too many",
                     m->name);
    }
}

/* ---- what a VM is made of ---- */

/* A VM is made of these parts in this order, and loses them in the opposite one. What can reach
 * a VM's RAM comes after that RAM, and has gone when the RAM is freed. Each room defines its
 * parts; its init function registers its hypercalls. */
static const struct vm_part *const vm_parts[] = {
    &pci_claim_part, /* hv/passthrough: devices of the machine are the VM's from here on */
    &memory_part,    /* hv/vm: the table of RAM, the second-level page table */
    &ram_part,       /* hv/vm: RAM, scrubbed and mapped */
    &sched_part,     /* hv/vm: its place in a pool */
    &vcpus_part,     /* hv/vcpu */
    &events_part,    /* hv/vcpu: event channels, and how they reach vCPUs */
    &board_part,     /* hv/vcpu: LAPIC page, UART, debug ports */
    &pc_part,        /* hv/vcpu: what a VM has for an operating system: IOAPIC, ACPI tables */
    &pcbus_part,     /* hv/passthrough: its PCI bus, if it is a PC */
    &devices_part,   /* hv/devices: virtio devices that other VMs serve */
    &params_part,    /* hv/vm: scheduling parameters of the VM file */
    &nodes_part,     /* hv/nodes: its home in the store */
    &pci_part,       /* hv/passthrough: devices of the machine, with its RAM and its events */
    &image_part,     /* hv/vcpu: its image, and the registers of vCPU 0 */
    &offers_part,    /* hv/devices: an operating system needs its devices when it starts */
    &run_part,       /* hv/vcpu */
    NULL,
};

/* Sets up what VMs are made of, before the first of them is made. */
static void vms_init(void) {
    vm_seed = config.seed;
    vm_init(vm_parts);
    vcpu_init();
    back_ends_init();
    storelink_init();
}

/* ---- what runs ---- */

/* Lets the CPU deliver the interrupts of guests, if that is configured and the CPU can. */
static void use_apicv(void) {
    if (config.apicv != APICV_ON) return;
    if (vmx_use_apicv())
        log_info("apicv = on: the CPU delivers interrupts to guests");
    else
        log_warn("apicv = on: this CPU cannot deliver interrupts to guests: they are injected");
}

/* Tells what this machine offers. The boot ends here if no guest can run on it. */
static void check_machine(void) {
    const char *why;

    svm_allow(config.decode_assists, config.flush_by_asid);
    why = preflight(no_iommu);
    svm_use_virtual_irqs(config.virtual_irqs);
    if (config.probe) probe_run(&acpi, why);
    if (why) {
        log_err("%s", why);
        stop_machine("Guests cannot run on this machine.");
    }
    if (virt_cpu_enable() < 0) stop_machine("Guests cannot run on this CPU.");
    use_apicv();
}

/* Makes pool number i of the configuration, and gives it its CPUs. Returns 0, or -EINVAL after an
 * error was reported. */
static int make_pool(u32 i) {
    const struct config_pool *c = &config.pool[i];
    struct sched_pool *p;
    int error = setup_pool(&config, i, &p, boot_report, NULL);

    if (error) return error;
    cpumask_for_each(cpu, &c->cpus) {
        /* config_check_machine() has warned of CPUs that this machine does not have. */
        if (cpu < nr_cpus) sched_pool_add_cpu(p, cpu);
    }
    return 0;
}

/* Tells the operator what config_check_machine() has found. What is fatal for a VM, such as a CPU
 * that this machine does not have, is only a warning here, because other VMs can still run. */
static void boot_warn(void *ctx, bool fatal, const char *text) { log_warn("%s", text); }

/* The step of the governor's work item, which moves pCPUs and VMs between pools. */
static bool govern_step(struct work *w) {
    w->not_before = governor_step(now_ns());
    return true;
}

/* Tells the operator which pools do not get the CPUs that they ask for: those of a NUMA node that
 * has none for them, or a number of CPUs when pools of a node have taken too many. VMs in a pool
 * without CPUs wait until it gets one. */
static void warn_of_missing_cpus(void) {
    for (u32 i = 1; i < config.nr_pools; i++) {
        const struct config_pool *p = &config.pool[i];
        u32 has = cpumask_weight(&p->cpus);

        if (p->choice.how == CHOOSE_NODE && !has)
            log_warn("pool %s has no CPUs: there is none in node %u that it can have", p->head.name,
                     p->choice.node);
        if (has < p->choice.nr)
            log_warn("pool %s wants %u CPUs and has %u: other pools have the rest", p->head.name,
                     p->choice.nr, has);
    }
}

/* Makes the pools of the configuration: sets of CPUs, each with a scheduling policy of its own. All
 * pools are made before it ends on an error, so that the operator sees all errors at once. */
static void pools_init(void) {
    static struct work governor = { .step = govern_step };
    struct cpumask there = { 0 };
    struct sched_pool *p0;
    int error = 0;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++) cpumask_set(&there, cpu);
    config_check_machine(&config, nr_cpus, frame_total() * PAGE_SIZE, boot_warn, NULL);
    sched_init();
    sched_set_seed(config.seed);
    config_choose_cpus(&config, &there, &cpu_places);
    warn_of_missing_cpus();
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
        struct sched_cpu *c = heap_alloc(sizeof(*c));

        if (!c) stop_machine("There is not enough memory for the CPUs of this machine.");
        sched_cpu_online(cpu, c);
    }
    /* Pool-0 has CPU 0, and at the end gets all CPUs that are in no other pool. */
    config.pool[0].cpus = cpumask_of(0);
    for (u32 i = 0; i < config.nr_pools; i++) error |= make_pool(i);
    if (setup_check_vms(&config, boot_report, NULL) || error)
        stop_machine("The configuration cannot be used.");
    p0 = sched_pool_find("Pool-0");
    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        if (!sched_pool_of_cpu(cpu)) sched_pool_add_cpu(p0, cpu);
    work_add(&governor);
}

/* Called when a VM is made, or cannot be made. Only an error needs words. */
static void report_vm_made(void *ctx, struct vm *vm, int err, const char *why) {
    const struct config_vm *c = ctx;

    if (!err) return;
    if (why)
        log_err("VM %s cannot be made: %s", c->head.name, why);
    else
        log_err("VM %s cannot be made (error %d)", c->head.name, -err);
    shell_vm_not_made();
}

/* Begins to make the VMs of the configuration. They are made in the background, step by step, while
 * the first of them may run already. */
static void make_vms(void) {
    for (struct config_vm *c = config.vm; c < config.vm + config.nr_vms; c++) {
        int err;

        if (!c->start) continue;
        err = vm_create(c, report_vm_made, c);
        if (err) report_vm_made(c, NULL, err, NULL);
    }
}

/* What every other CPU does when it has started. It waits until the boot CPU is ready and kicks it.
 * It halts meanwhile: 255 CPUs of an emulator that turned in a loop would leave the boot CPU hardly
 * any time. A self test gives it jobs and measures kicks itself, so then it looks all the time. */
static void ap_start(void) {
    smp_watch();
    if (virt_cpu_enable() < 0) panic("CPU %u cannot run guests as the others can", this_cpu()->id);
    while (!boot_done) {
        if (config.selftest) {
            selftest_serve();
            cpu_relax();
        } else {
            cpu_halt();
        }
    }
    cpu_loop();
}

/* The second half of the boot, on the boot CPU's own stack and with the other CPUs running. The
 * console stops waiting for its port only here, so all that was logged before is complete. */
static void boot_go(void) {
    smp_watch();
    if (config.selftest) selftest_run(&acpi, no_iommu);
    if (config.record) traces_record(&config);
    pools_init();
    vms_init();
    shell_init(&config);
    make_vms();
    log_info("%u pool%s, %u VM%s; boot took %lu us", config.nr_pools, plural(config.nr_pools),
             config.nr_vms, plural(config.nr_vms), now_ns() / 1000);
    console_set_async(&acpi);
    watchdog_init(&acpi, config.watchdog);
    boot_done = true;
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) cpu_kick(cpu);
    cpu_loop();
}

/* Boots the machine; boot.asm calls it on the boot CPU. It does not return. `magic` and `mbi` are
 * what the boot loader leaves in two registers: which loader it is, and where its information lies.
 * The console comes first, so that each later failure can be reported. */
void hv_main(u32 magic, u64 mbi) {
    tsc_boot = rdtsc();
    directmap_base = DIRECTMAP;
    cpu_load_tables(&boot_cpu);
    console_init("com1", NULL);
    log_info("Takt, a small hypervisor, %s (%s, %s)", TAKT_VERSION, version_commit, version_date);
    read_boot_info(magic, mbi);
    memory_init();
    screen_init(&boot.screen);
    log_info("%lu MiB of RAM, %u module%s", frame_total() >> 8, boot.nr_modules,
             plural(boot.nr_modules));
    read_firmware();
    read_boot_config();
    platform_init();
    devices_init();
    check_machine();
    smp_start(&acpi, trampoline_page, config.smt, config.max_cpus, ap_start);
    tlbgen_cpus = nr_cpus;
    stack_switch(boot_cpu.p.stack_top, boot_go);
}
