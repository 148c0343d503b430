/* pcpu-list: what each pCPU did since boot, in totals that only grow, as tools/metrics.py wants
 * them. */
#include "sched/policy.h"
#include "shell/shell.h"
#include "x86/percpu.h"
#include "x86/tsc.h"

COLUMNS(columns, COL("CPU", "cpu", 'u', 4), COL("Pool", "pool", 's', -24),
        COL("Guests(s)", "guest_s", 't', 12), COL(NULL, "guest_ns", 'u', 0),
        COL("Takt(s)", "hv_s", 't', 12), COL(NULL, "hv_ns", 'u', 0),
        COL("Idle(s)", "idle_s", 't', 12), COL(NULL, "idle_ns", 'u', 0));

/* Lists one pCPU at each step, with the time that it has spent in guests, in Takt itself, and
 * idle. Each of the three stands in the row twice, because of the columns above: a person sees
 * seconds, and a program that asked for JSON also gets nanoseconds. */
static int cmd_pcpu_list(struct shell_call *c) {
    u32 cpu = c->index++;
    const struct sched_pool *pool;
    const char *name = "";
    u64 guest, hv, idle;

    c->columns = columns;
    if (cpu >= nr_cpus) return 0;
    pool = sched_pool_of_cpu(cpu);
    if (pool) name = pool->name;
    guest = tsc_to_ns(percpu_of[cpu]->guest_tsc);
    hv = tsc_to_ns(percpu_of[cpu]->hv_tsc);
    idle = tsc_to_ns(percpu_of[cpu]->idle_tsc);
    table_row(c, CELLS(U(cpu), S(name), U(guest), U(guest), U(hv), U(hv), U(idle), U(idle)));
    return SHELL_AGAIN;
}

const struct shell_command cpu_commands[] = {
    { "pcpu-list", "", "lists pCPUs and their time since boot: guests, Takt, idle", cmd_pcpu_list,
      "", "" },
    { 0 },
};
