/* Commands about the machine, and help. A function cmd_...() is called again as long as it returns
 * SHELL_AGAIN, and does a short step each time: guests on this pCPU wait meanwhile. */
#include <takt/errno.h>
#include "common/string.h"
#include "lib/version.h"
#include "mm/frame.h"
#include "platform/console.h"
#include "platform/crashlog.h"
#include "passthrough/assign.h"
#include "platform/power.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "trace/trace.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"
#include "x86/topology.h"
#include "x86/tsc.h"

/* ---- help ---- */

COLUMNS(help_columns, COL("Command", "name", 's', -19), COL(NULL, "usage", 's', 0),
        COL("", "help", 's', 0));

/* Shows a command as a row of the list. Only the first line of its help is shown. */
static void help_row(struct shell_call *c, const struct shell_command *cmd) {
    size_t length = strlen(cmd->help);
    const char *end = strchr(cmd->help, '\n');
    char line[HELP_WIDTH + 1];

    if (end) length = (size_t)(end - cmd->help);
    hv_snprintf(line, MIN(length + 1, sizeof(line)), "%s", cmd->help);
    table_row(c, CELLS(S(cmd->name), S(cmd->usage), S(line)));
}

/* Returns the command whose name follows `after` in the order of the alphabet, or NULL if there is
 * none. */
static const struct shell_command *next_by_name(const char *after) {
    const struct shell_command *next = NULL, *cmd;

    for (u32 i = 0; (cmd = shell_command_at(i)); i++) {
        bool behind = strcmp(cmd->name, after) > 0;

        if (behind && (!next || strcmp(cmd->name, next->name) < 0)) next = cmd;
    }
    return next;
}

/* Explains one command: its arguments, what it does, and what there is to say about it. */
static int help_for(struct shell_call *c) {
    const struct shell_command *cmd = shell_command_find(c->argv[1]);

    if (!cmd) return shell_fail(-ENOENT, "there is no command %s; help lists them all", c->argv[1]);
    if (c->json) {
        c->columns = help_columns;
        table_row(c, CELLS(S(cmd->name), S(cmd->usage), S(cmd->help)));
    } else {
        out("%s ", cmd->name);
        out_wrapped(cmd->usage, (u32)strlen(cmd->name) + 1, "\n");
        out("\n%s\n", cmd->help);
    }
    return 0;
}

/* Lists one command at each step. */
static int cmd_help(struct shell_call *c) {
    static const char *last; /* the name that was listed last */
    const struct shell_command *cmd;

    if (c->argc > 1) return help_for(c);
    if (c->step == 0) last = "";
    cmd = next_by_name(last);
    c->columns = help_columns;
    if (!cmd) return 0;
    last = cmd->name;
    help_row(c, cmd);
    return SHELL_AGAIN;
}

/* ---- version, info ---- */

/* Shows which version of Takt this is. */
static int cmd_version(struct shell_call *c) {
    COLUMNS(columns, COL("version", "version", 's', 0), COL("commit", "commit", 's', 0),
            COL("date", "date", 's', 0));

    record(c, columns, CELLS(S(TAKT_VERSION), S(version_commit), S(version_date)));
    return 0;
}

/* Returns how many pCPUs are in no pool. */
static u32 free_cpus(void) {
    u32 n = 0;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        if (!sched_pool_of_cpu(cpu)) n++;
    return n;
}

/* Shows what the machine and this build are. */
static int cmd_info(struct shell_call *c) {
    COLUMNS(columns, COL("version", "version", 's', 0), COL("virt", "virt", 's', 0),
            COL("nr_cpus", "nr_cpus", 'u', 0), COL("free_cpus", "free_cpus", 'u', 0),
            COL("cpu_mhz", "cpu_mhz", 'f', 0), COL("total_memory MiB", "total_memory_mib", 'u', 0),
            COL("free_memory MiB", "free_memory_mib", 'u', 0), COL(NULL, "free_frames", 'u', 0),
            COL(NULL, "heap_bytes", 'u', 0), COL("scheduler", "scheduler", 's', 0),
            COL("uptime s", "uptime_s", 't', 0), COL("output lost", "console_dropped", 'u', 0),
            COL("last session", "last_session", 's', 0));
    static const char *const last[] = { [CRASH_NONE] = "not known",
                                        [CRASH_SILENT] = "was reset while it ran",
                                        [CRASH_STOPPED] = "could not go on",
                                        [CRASH_ORDERLY] = "ended in order" };
    const char *vendor = "none";

    if (virt) vendor = virt->name;
    record(c, columns,
           /* 'f' is in hundredths; memory is counted in frames, 2^8 of which are 1 MiB */
           CELLS(S(TAKT_VERSION), S(vendor), U(nr_cpus), U(free_cpus()), U(tsc_khz / 10),
                 U(frame_total() >> 8), U(frame_free_count() >> 8), U(frame_free_count()),
                 U(heap_in_use()), S(sched_pool_find("Pool-0")->policy->name), U(machine_now()),
                 U(console_dropped()), S(last[crashlog_last()])));
    return 0;
}

/* ---- topology, nodes ---- */

/* Lists where each pCPU is in the machine: one pCPU at each step. */
static int cmd_topology(struct shell_call *c) {
    COLUMNS(columns, COL("CPU", "cpu", 'u', 4), COL("Socket", "socket", 'u', 7),
            COL("Core", "core", 'u', 5), COL("Thread", "thread", 'u', 7),
            COL("Cache", "cache", 'u', 6), COL("Node", "node", 'u', 5),
            COL("APIC id", "apic_id", 'u', 8));
    u32 cpu = c->index++;
    struct place at;

    c->columns = columns;
    if (cpu >= nr_cpus) return 0;
    at = cpu_place(cpu);
    table_row(c, CELLS(U(cpu), U(at.socket), U(at.core), U(at.thread), U(cpu_cache(cpu)),
                       U(percpu_of[cpu]->node), U(percpu_of[cpu]->apic_id)));
    return SHELL_AGAIN;
}

/* Lists the free memory of each NUMA node: one node at each step. Nodes other than 0 that have no
 * free memory are left out. */
static int cmd_nodes(struct shell_call *c) {
    COLUMNS(columns, COL("Node", "node", 'u', 4), COL("Free MiB", "free_mib", 'u', 9),
            COL(NULL, "free_frames", 'u', 0));
    u32 node = c->index++;

    c->columns = columns;
    if (node >= FRAME_MAX_NODES) return 0;
    if (node > 0 && !frame_node_free(node)) return SHELL_AGAIN;
    table_row(c, CELLS(U(node), U(frame_node_free(node) >> 8), U(frame_node_free(node))));
    return SHELL_AGAIN;
}

/* ---- dmesg, counters ---- */

/* Prints the log: as many lines at each step as fit into a piece of 1 KiB. */
static int cmd_dmesg(struct shell_call *c) {
    COLUMNS(columns, COL("Log", "line", 's', 0));
    /* What is logged after the command began is not shown. Otherwise the command might never
     * end. */
    static u64 position, last;
    char lines[1024];
    size_t n, end;

    if (c->step == 0) {
        position = 0;
        last = log_next();
    }
    c->columns = columns;
    if (position >= last) return 0;
    n = log_read(&position, lines, sizeof(lines));
    if (n == 0) return 0;
    for (size_t i = 0; i < n; i = end + 1) {
        end = i;
        while (end + 1 < n && lines[end] != '\n') end++;
        lines[end] = 0;
        table_row(c, CELLS(S(lines + i)));
    }
    return SHELL_AGAIN;
}

/* ---- crash ---- */

/* Lists one trace record of the last session at each step. A person gets the name of the event, and
 * its arguments in one column; a program gets the event's number, and a column for each
 * argument. */
static int crash_records(struct shell_call *c) {
    COLUMNS(columns, COL("Time ns", "ns", 'u', 16), COL("pCPU", "cpu", 'u', 4),
            COL(NULL, "event", 'u', 0), COL("Event", "event_name", 's', -14),
            COL("VM", "vm", 'd', 5), COL("vCPU", "vcpu", 'd', 4), COL("Arguments", NULL, 'w', 0),
            COL(NULL, "arg0", 'u', 0), COL(NULL, "arg1", 'u', 0), COL(NULL, "arg2", 'u', 0),
            COL(NULL, "arg3", 'u', 0));
    struct trace_record r;
    i64 vm = -1, vcpu = -1;
    char args[48];

    c->columns = columns;
    if (!crashlog_last_record(&c->index, &r)) return 0;
    if (r.who != TRACE_NOBODY) {
        vm = r.who >> 16;
        vcpu = r.who & 0xffff;
    }
    hv_snprintf(args, sizeof(args), "%u %u %u %u", r.arg[0], r.arg[1], r.arg[2], r.arg[3]);
    table_row(c, CELLS(U(r.ns), U(r.cpu), U(r.event), S(trace_event_name(r.event)), D(vm), D(vcpu),
                       S(args), U(r.arg[0]), U(r.arg[1]), U(r.arg[2]), U(r.arg[3])));
    return SHELL_AGAIN;
}

/* Shows what was kept of the last session: the log, one line at each step, or with -t the trace
 * records. */
static int cmd_crash(struct shell_call *c) {
    COLUMNS(columns, COL("Log of the last session", "line", 's', 0));
    const char *text;

    if (crashlog_last() == CRASH_NONE)
        return shell_fail(-ENOENT, "nothing is kept of the last session: see docs/lab.md");
    if (c->opt['t']) return crash_records(c);
    c->columns = columns;
    if (!crashlog_last_line(&c->index, &text)) return 0;
    table_row(c, CELLS(S(text)));
    return SHELL_AGAIN;
}

/* Lists all counters, one at each step, each as the sum over all pCPUs. */
static int cmd_counters(struct shell_call *c) {
    COLUMNS(columns, COL("Counter", "name", 's', -32), COL("Count", "value", 'u', 20));
    const struct counter *counter = &__start_counters[c->index++];
    u64 sum = 0;

    c->columns = columns;
    if (counter >= __stop_counters) return 0;
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) sum += counter->value[cpu];
    table_row(c, CELLS(S(counter->name), U(sum)));
    return SHELL_AGAIN;
}

/* ---- reboot and power-off: they happen in c->end, because all that the command prints has to go
 * out before the machine ends ---- */

/* Logs what guests have printed and nobody has read yet. */
static void log_last_words(void) {
    for (struct vm *vm = vm_next(NULL); vm; vm = vm_next(vm)) guestcon_rest(vm);
}

/* Resets the machine, at the end of the command reboot. */
static void end_by_reboot(struct shell_call *c) {
    log_last_words();
    platform_reboot();
}

/* Switches the machine off, at the end of the command poweroff. */
static void end_by_poweroff(struct shell_call *c) {
    log_last_words();
    platform_poweroff();
}

/* The machine is reset when the command's answer has been printed. */
static int cmd_reboot(struct shell_call *c) {
    c->end = end_by_reboot;
    return 0;
}

/* The machine is switched off when the command's answer has been printed. */
static int cmd_poweroff(struct shell_call *c) {
    c->end = end_by_poweroff;
    return 0;
}

/* ---- fault ---- */

/* Does the fault `what` to the call's VM. Returns false if there is no such fault, or no VM was
 * given. */
static bool fault_of_vm(struct shell_call *c, const char *what) {
    if (!c->vm) return false;
    if (strcmp(what, "npt") == 0) {
        npt_damage(&c->vm->virt.npt, 0);
        return true;
    }
    if (strcmp(what, "entry") == 0) {
        vcpu_notify(c->vm->vcpu[0], TODO_BREAK);
        return true;
    }
    if (strcmp(what, "flr") == 0 && c->vm->nr_pci && c->vm->pci[0]) {
        c->vm->pci[0]->pci->mute = true;
        return true;
    }
    return false;
}

/* Makes a fault on purpose, so that tests see how Takt handles it: a fault of the machine, or one
 * of a VM that is given. */
static int cmd_fault(struct shell_call *c) {
    const char *what = c->argv[1];

    if (c->vm && c->vm->state != VM_RUNNING)
        return shell_fail(-EINVAL, "%s does not run", c->vm->name);
    if (!fault_of_vm(c, what) && fault_inject(what))
        return shell_fail(-EINVAL, "expected one of %s, or npt, entry or flr and a VM, not %s",
                          fault_words, what);
    return 0;
}

const struct shell_command host_commands[] = {
    { "help", "[COMMAND]",
      "lists the commands, or explains one\n"
      "Nearly all commands answer in JSON with -j.",
      cmd_help, "?w", "" },
    { "?", "[COMMAND]", "does what help does", cmd_help, "?w", "" },
    { "info", "", "shows the machine: CPUs, memory, scheduler", cmd_info, "", "" },
    { "version", "", "shows which Takt this is", cmd_version, "", "" },
    { "topology", "", "lists pCPUs with their socket, core, thread, cache and node", cmd_topology,
      "", "" },
    { "nodes", "",
      "lists nodes of memory and what is free of each\n"
      "A VM's RAM is of the node of its first pCPU.",
      cmd_nodes, "", "" },
    { "dmesg", "", "shows the hypervisor's log", cmd_dmesg, "", "" },
    { "crash", "[-t]",
      "shows the last session's log, kept over a reset\n"
      "-t  shows its last trace records instead",
      cmd_crash, "", "t" },
    { "counters", "", "lists named counters, summed over pCPUs", cmd_counters, "", "" },
    { "fault", "WORD [VM]",
      "makes a fault of the hypervisor, to see it reported\n"
      "WORD  docs/shell.md explains them; a wrong one makes the shell list them\n"
      "VM    does the fault to this VM: npt, entry or flr",
      cmd_fault, "w?V", "" },
    { "reboot", "", "restarts the machine", cmd_reboot, "", "" },
    { "poweroff", "", "ends the machine, also an emulated one", cmd_poweroff, "", "" },
    { 0 },
};
