/* Reads a VM file, and boots its pools and VMs as hv/main.c does. whole.h has the contracts. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "devices/devices.h"
#include "lib/printf.h"
#include "mm/frame.h"
#include "nodes/nodes.h"
#include "platform/timer.h"
#include "sched/governor.h"
#include "sched/setup.h"
#include "shell/shell.h"
#include "tests/whole/whole.h"
#include "vcpu/vcpu.h"
#include "x86/topology.h"
#include "x86/tsc.h"

/* When pCPU 0 boots, after all pCPUs have their timers; and when all enter their loops, in ns. */
#define BOOT_AT    1000u
#define LOOP_AT    2000u
#define CONSOLE_NS (10 * NS_PER_MS)

static struct config cfg;
static struct config_vm cfg_vms[CONFIG_MAX_VMS];
static const struct whole_options *options;
static struct whole_machine machine;
static bool complained;

static __attribute__((noreturn)) void fail(const char *what, const char *name, const char *why) {
    fprintf(stderr, "sim-whole: %s %s: %s\n", what, name, why);
    exit(2);
}

/* Reads a file as a whole; the memory is never freed. */
static void *read_file(const char *what, const char *name, size_t *size) {
    FILE *f = fopen(name, "rb");
    char *data = NULL;
    size_t room = 0, got;

    if (!f) fail(what, name, strerror(errno));
    *size = 0;
    do {
        room += 1 << 20;
        data = realloc(data, room);
        got = fread(data + *size, 1, room - *size, f);
        *size += got;
    } while (got);
    if (ferror(f)) fail(what, name, strerror(errno));
    fclose(f);
    return data;
}

static void hear(void *ctx, bool fatal, const char *text) {
    fprintf(stderr, "%s%s\n", text, fatal ? "" : " (warning)");
    complained |= fatal;
}

static void end_if_complained(void) {
    if (complained) fail("VM file", options->file, "cannot be used: see above");
}

/* An image of the VM file is a boot module, as GRUB would load it. */
static void load_image(const char *name) {
    struct module m = { .name = name };
    char path[512];

    if (module_find(name)) return;
    snprintf(path, sizeof(path), "%s/%s.elf", options->guests, name);
    m.data = read_file("there is no guest for the simulation:", path, &m.size);
    if (module_add(&m) < 0) fail("image", name, "there are too many");
}

/* Gives the shell a script, as a boot module: the one of --script, or else one that types the
 * command `top` for the measurement. */
static void load_script(void) {
    static char text[128];
    const char *json = "-b";
    struct module m = { .name = "sim-whole.script", .data = text };

    if (whole_json) json = "-j=sim";
    if (options->script)
        m.data = read_file("script", options->script, &m.size);
    else
        m.size = (size_t)snprintf(text, sizeof(text), "@0ms top %s -w %g -d %g\n", json,
                                  (double)options->warm_up_ns / 1e9, (double)options->run_ns / 1e9);
    if (module_add(&m) < 0) fail("module", m.name, "there are too many");
    snprintf(cfg.script, sizeof(cfg.script), "%s", m.name);
    cfg.top = false;
}

/* Reads the VM file and the command line with the hypervisor's own parser, finds out what the
 * machine is like, and loads all images and the script. Ends the program with sentences if
 * something is wrong. */
static void check_nic(void) {
    const struct config_model *m = &cfg.model;

    if (!m->nic[0] && !m->itr) return;
    for (u32 i = 0; i < cfg.nr_vms; i++)
        if (strcmp(cfg.vm[i].head.name, m->nic) == 0) return;
    fail("[model]", "nic", "expected the name of the VM that plays the network card");
}

static void read_config(void) {
    size_t size;
    char *text = read_file("VM file", options->file, &size);

    config_defaults(&cfg, cfg_vms, CONFIG_MAX_VMS);
    config_parse(&cfg, options->file, text, size, param_name_at, hear, NULL);
    if (options->cmdline) config_cmdline(&cfg, options->cmdline, param_name_at, hear, NULL);
    end_if_complained();
    check_nic();
    machine = model_machine(options, &cfg.model);
    config_check_machine(&cfg, machine.cpus, machine.memory, hear, NULL);
    for (u32 i = 0; i < cfg.nr_vms; i++) load_image(config_vm_image(&cfg.vm[i]));
    load_script();
    cfg.guest_console_log = true;
}

/* ---- what a VM is made of: as in hv/main.c, without devices of the machine ---- */

static const struct vm_part no_pci = { "none", NULL, NULL };
static const struct vm_part *const vm_parts[] = {
    &no_pci,     &memory_part, &ram_part,     &sched_part,  &vcpus_part, &events_part,
    &board_part, &pc_part,     &devices_part, &params_part, &nodes_part, &no_pci,
    &image_part, &offers_part, &run_part,     NULL,
};

/* Does nothing, every 10 ms. On a machine the hypervisor looks then whether its console has
 * anything to send (console_pump() in hv/platform/console.c), and the VM that runs on pCPU 0 has an
 * exit. */
static bool console_step(struct work *w) {
    w->not_before = now_ns() + CONSOLE_NS;
    return true;
}

static bool govern_step(struct work *w) {
    w->not_before = governor_step(now_ns());
    return true;
}

/* Makes the pools of the VM file, as the hypervisor does at its boot. Pool-0 gets all CPUs that are
 * in no other pool. */
static void make_pools(void) {
    static struct work governor = { .step = govern_step };
    static struct sched_cpu sched_cpu[TAKT_MAX_CPUS];
    struct cpumask there = { 0 };
    struct sched_pool *p;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++) cpumask_set(&there, cpu);
    sched_init();
    sched_set_seed(cfg.seed);
    config_choose_cpus(&cfg, &there, &cpu_places);
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) sched_cpu_online(cpu, &sched_cpu[cpu]);
    cfg.pool[0].cpus = cpumask_of(0);
    for (u32 i = 0; i < cfg.nr_pools; i++) {
        if (setup_pool(&cfg, i, &p, hear, NULL)) continue;
        cpumask_for_each(cpu, &cfg.pool[i].cpus) {
            if (cpu < nr_cpus) sched_pool_add_cpu(p, cpu);
        }
    }
    setup_check_vms(&cfg, hear, NULL);
    end_if_complained();
    p = sched_pool_find("Pool-0");
    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        if (!sched_pool_of_cpu(cpu)) sched_pool_add_cpu(p, cpu);
    work_add(&governor);
}

static void made(void *ctx, struct vm *vm, int error, const char *why) {
    const struct config_vm *c = ctx;

    if (error && options->faults)
        whole_inject_again(c);
    else if (error)
        fail("VM cannot be made:", c->head.name, why ? why : "there is no memory");
}

/* Boots the hypervisor on pCPU 0: sets its rooms up in their order, and makes the VMs of the file.
 * Then pCPU 0 enters its loop. No virtual time passes meanwhile. */
static void boot(void) {
    static struct work console = { .step = console_step };

    virt = &whole_ops;
    virt_counts_pauses = true;
    make_pools();
    vm_seed = cfg.seed;
    vm_init(vm_parts);
    vcpu_init();
    back_ends_init();
    storelink_init();
    shell_init(&cfg);
    if (options->faults) whole_inject_boot(&cfg);
    for (u32 i = 0; i < cfg.nr_vms; i++) {
        if (cfg.vm[i].start && vm_create(&cfg.vm[i], made, &cfg.vm[i]))
            fail("VM", cfg.vm[i].head.name, "cannot be made");
    }
    work_add(&console);
}

static void pcpu(void) {
    timers_init_cpu();
    engine_wait(BOOT_AT, false);
    if (this_cpu()->id == 0) boot();
    engine_wait(LOOP_AT, false);
    cpu_loop();
}

/* Runs the whole simulation as the options say: sets the machine up, lets virtual time pass until
 * the measurement is over, and writes the results. Returns the exit status, which is 0; mistakes in
 * the input end the program earlier. */
int whole_run(const struct whole_options *o) {
    options = o;
    whole_guests = o->guests;
    whole_json = o->json || o->json_file;
    whole_serial = o->script;
    whole_log = stdout;
    if (o->json) whole_log = stderr;
    read_config();
    if (o->json_file) record_begin(o, &cfg, &machine);
    if (o->faults) whole_inject_begin(o->seed);
    memory_start(machine.memory);
    engine_start(machine.cpus, pcpu);
    whole_trace_begin(o->trace);
    engine_run_until(o->warm_up_ns + o->run_ns + NS_PER_S / 2);
    if (o->faults) whole_inject_end();
    record_end();
    whole_trace_end();
    fflush(stdout);
    return 0;
}
