/* Commands about the machine: help info dmesg counters dump reboot poweroff. */
#include <takt/errno.h>
#include "lib/string.h"
#include "mm/frame.h"
#include "platform/console.h"
#include "platform/fault.h"
#include "platform/power.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "trace/trace.h"
#include "vm/vm.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

#define TAKT_VERSION "0.1"

/* ---- help ---- */

static int help_one(struct shell_call *c)
{
    const struct shell_command *cmd = shell_command_find(c->argv[1]);

    if (!cmd)
        return shell_fail(c, -ENOENT, "there is no command %s", c->argv[1]);
    if (!c->json) {
        out("%s %s\n    %s\n", cmd->name, cmd->usage, cmd->help);
        return 0;
    }
    out("{\"name\": \"%s\", \"usage\": ", cmd->name);
    out_json_string(cmd->usage);
    out(", \"help\": ");
    out_json_string(cmd->help);
    out("}");
    return 0;
}

static int cmd_help(struct shell_call *c)
{
    const struct shell_command *cmd;

    if (c->argc > 1)
        return help_one(c);
    for (u32 i = c->step * 8; i < c->step * 8 + 8; i++) {
        cmd = shell_command_at(i);
        if (!cmd) {
            if (c->json)
                out("]");
            else
                out("Nearly all answer in JSON with -j. help COMMAND tells the arguments.\n");
            return 0;
        }
        if (c->json)
            out("%s\"%s\"", i ? ", " : "[", cmd->name);
        else
            out("%-20s %s\n", cmd->name, cmd->help);
    }
    return SHELL_AGAIN;
}

/* ---- info ---- */

static u32 free_cpus(void)
{
    u32 n = 0;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        n += percpu_of[cpu]->online && !sched_pool_of_cpu(cpu);
    return n;
}

static int cmd_info(struct shell_call *c)
{
    const struct sched_pool *pool0 = sched_pool_find("Pool-0");
    const char *sched = pool0 ? pool0->policy->name : "none", *vendor = virt ? virt->name : "none";
    u64 up = machine_now() / (NS_PER_S / 100);
    u64 total = frame_total() * PAGE_SIZE >> 20, free = frame_free_count() * PAGE_SIZE >> 20;

    if (c->json) {
        out("{\"version\": \"%s\", \"virt\": \"%s\", \"nr_cpus\": %u, \"free_cpus\": %u, \"cpu_khz\": %lu, ",
            TAKT_VERSION, vendor, nr_cpus, free_cpus(), tsc_khz);
        out("\"total_memory_mib\": %lu, \"free_memory_mib\": %lu, \"free_frames\": %lu, \"heap_bytes\": "
            "%lu, ",
            total, free, frame_free_count(), heap_in_use());
        out("\"scheduler\": \"%s\", \"uptime_s\": %s, \"console_dropped\": %lu}", sched, fixed2(up).s,
            console_dropped());
        return 0;
    }
    out("%-16s: %s\n%-16s: %s\n", "version", TAKT_VERSION, "virt", vendor);
    out("%-16s: %u\n%-16s: %u\n%-16s: %s\n", "nr_cpus", nr_cpus, "free_cpus", free_cpus(), "cpu_mhz",
        fixed2(tsc_khz / 10).s);
    out("%-16s: %lu MiB\n%-16s: %lu MiB\n", "total_memory", total, "free_memory", free);
    out("%-16s: %s\n%-16s: %s s\n", "scheduler", sched, "uptime", fixed2(up).s);
    return 0;
}

/* ---- dmesg ---- */

static int cmd_dmesg(struct shell_call *c)
{
    static u64 position;
    char lines[1024];
    size_t n;

    if (c->step == 0)
        position = 0;
    if (c->json && c->step == 0)
        out("[");
    n = c->stop ? 0 : log_read(&position, lines, sizeof(lines));
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end + 1 < n && lines[end] != '\n'; end++)
            ;
        lines[end] = 0;
        if (!c->json) {
            out("%s\n", lines + i);
            continue;
        }
        out("%s", c->step || i ? ", " : "");
        out_json_string(lines + i);
    }
    if (n)
        return SHELL_AGAIN;
    if (c->json)
        out("]");
    return 0;
}

/* ---- counters ---- */

static int cmd_counters(struct shell_call *c)
{
    struct counter *all = __start_counters;
    u32 nr = (u32)(__stop_counters - __start_counters), i;

    if (c->json && c->step == 0)
        out("{");
    for (i = c->step * 16; i < nr && i < c->step * 16 + 16; i++) {
        u64 sum = 0;

        for (u32 cpu = 0; cpu < nr_cpus; cpu++)
            sum += all[i].value[cpu];
        if (c->json)
            out("%s\"%s\": %lu", i ? ", " : "", all[i].name, sum);
        else if (sum || c->argc > 1)
            out("%-32s %lu\n", all[i].name, sum);
    }
    if (i < nr)
        return SHELL_AGAIN;
    if (c->json)
        out("}");
    return 0;
}

/* ---- dump: what a pCPU or a VM's vCPUs are doing ---- */

static void dump_cpu(u32 cpu)
{
    const struct percpu *p = percpu_of[cpu];
    const struct sched_pool *pool = sched_pool_of_cpu(cpu);
    const struct sched_vcpu *v = sched_current(cpu);

    out("pCPU %u: apic %u, pool %s, ", cpu, p->apic_id, pool ? pool->name : "none");
    if (v && !sched_is_idle(v))
        out("runs %s vCPU %u", v->dom->name, v->id);
    else
        out("idle");
    out(", guest %s s, hypervisor %s s, idle %s s\n", fixed2(tsc_to_ns(p->guest_tsc) / 10000000).s,
        fixed2(tsc_to_ns(p->hv_tsc) / 10000000).s, fixed2(tsc_to_ns(p->idle_tsc) / 10000000).s);
}

static void dump_vcpu(const struct vcpu *v)
{
    out("%s vCPU %u: rip %016lx rflags %lx, on pCPU %d, exits %lu; the last:", v->vm->name, v->id,
        v->virt.regs.rip, v->virt.regs.rflags, (int)v->sched.on_cpu, v->exits);
    for (u32 i = 0; i < ARRAY_SIZE(v->last); i++) {
        const struct exit_log *e = &v->last[(v->exits + i) % ARRAY_SIZE(v->last)];

        out(" %u@%lx", e->reason, e->rip);
    }
    out("\n");
}

static int cmd_dump(struct shell_call *c)
{
    struct vm *vm = c->cursor;

    if (c->json)
        return shell_fail(c, -EINVAL, "a dump is for a person: there is no JSON of it");
    if (c->argc == 1) {
        for (u32 cpu = c->step * 8; cpu < nr_cpus && cpu < c->step * 8 + 8; cpu++)
            dump_cpu(cpu);
        return c->step * 8 + 8 < nr_cpus ? SHELL_AGAIN : 0;
    }
    if (c->step == 0)
        c->cursor = vm = vm_find(c->argv[1]);
    if (!vm)
        return shell_fail(c, -ENOENT, "there is no VM %s", c->argv[1]);
    if (!c->stop && vm->state != VM_DYING && c->step < vm->nr_vcpus && vm->vcpu[c->step]) {
        dump_vcpu(vm->vcpu[c->step]);
        return SHELL_AGAIN;
    }
    if (vm->why[0])
        out("%s\n", vm->why);
    vm_put(vm);
    return 0;
}

/* ---- the end ---- */

static int cmd_reboot(struct shell_call *c)
{
    shell_at_end(platform_reboot);
    return 0;
}

static int cmd_poweroff(struct shell_call *c)
{
    shell_at_end(platform_poweroff);
    return 0;
}

static int cmd_fault(struct shell_call *c)
{
    if (c->argc != 2)
        return shell_usage(c);
    if (fault_inject(c->argv[1]))
        return shell_fail(c, -EINVAL, "expected one of %s, not %s", fault_words, c->argv[1]);
    return 0;
}

const struct shell_command host_commands[] = {
    { "help", "[COMMAND]", "lists the commands, or tells one's arguments", cmd_help, false },
    { "info", "", "the machine: CPUs, memory, scheduler", cmd_info, false },
    { "dmesg", "", "the hypervisor's log", cmd_dmesg, false },
    { "counters", "[-a]", "named counters, summed over pCPUs; -a: those at zero too", cmd_counters, false },
    { "dump", "[VM]", "what every pCPU, or every vCPU of a VM, is doing", cmd_dump, true },
    { "fault", "WORD", "a fault of the hypervisor itself, to see it reported", cmd_fault, false },
    { "reboot", "", "restarts the machine", cmd_reboot, false },
    { "poweroff", "", "ends the machine (also an emulator)", cmd_poweroff, false },
    { NULL, NULL, NULL, NULL, false },
};
