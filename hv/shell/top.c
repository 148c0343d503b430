/* The command `top`: the live table, and measurements of an exact interval for scripts.
 *
 * A look goes over all pCPUs and vCPUs, notes the counters of each, and prints how much they grew
 * since the look before; the first look prints nothing. The share of a vCPU is the time that it ran
 * divided by the time that passed, both by its own clock of run states. So it does not matter how
 * long a look takes. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "common/string.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/entitle.h"
#include "shell/line.h"
#include "shell/shell.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"

#define ROWS 256 /* vCPUs that a table can show */

struct cpu_sample {
    u64 guest, hv, idle; /* TSC ticks */
};

struct sample {
    u32 vm, vcpu;
    u64 total, run; /* ns since the vCPU was made; ns of these in which it ran */
    u64 switches, exits;
};

struct look {
    u64 began; /* when, ns */
    u32 nr;    /* vCPUs that it has seen */
    struct cpu_sample cpu[TAKT_MAX_CPUS];
    struct sample sample[ROWS];
    struct claim claim[ROWS];
};

static struct {
    enum { WAIT, CPUS, VCPUS } phase;
    u64 interval, next; /* ns; when the next look begins */
    bool first;         /* there is no look before this one: it prints nothing */
    /* the pCPU that this look comes to next, or where it is in the samples of the last look */
    u32 row;
} top;

/* What this look sees, and what the look before saw. */
static struct look looks[2], *seen = &looks[0], *before = &looks[1];

/* Returns part / whole in hundredths of a per cent. */
static u64 percent(u64 part, u64 whole) {
    if (!whole) return 0;
    return part * 10000 / whole;
}

/* Returns events a second, in hundredths of an event. Computes in units of 10 us, so that nothing
 * overflows. */
static u64 per_second(u64 events, u64 ns) {
    if (ns < 10000) return 0;
    return events * (100 * NS_PER_S / 10000) / (ns / 10000);
}

/* ---- pCPUs ---- */

COLUMNS(cpu_columns, COL("pCPU", "cpu", 'u', 4), COL("guest %", "guest_pct", 'f', 10),
        COL("hyp %", "hv_pct", 'f', 10), COL("idle %", "idle_pct", 'f', 10));

/* Notes the times of a pCPU, and prints how they are divided since the look before. */
static void look_at_cpu(struct shell_call *c, u32 cpu) {
    const struct percpu *p = percpu_of[cpu];
    const struct cpu_sample *old = &before->cpu[cpu],
                            now = { p->guest_tsc, p->hv_tsc, p->idle_tsc };
    u64 guest = now.guest - old->guest, hv = now.hv - old->hv, idle = now.idle - old->idle;
    u64 all = guest + hv + idle;

    seen->cpu[cpu] = now;
    if (!top.first)
        table_row(
            c, CELLS(U(cpu), U(percent(guest, all)), U(percent(hv, all)), U(percent(idle, all))));
}

/* ---- vCPUs ---- */

/* Returns what the vCPU may claim of the CPUs (hv/shell/entitle.h): on which it may run, its part
 * of its VM's weight, and the most that it can use, by the cap and by what the VM file says it
 * demands. The factor 4096 keeps the division of a small weight among many vCPUs exact enough. */
static struct claim claim_of(struct vcpu *v) {
    const struct sched_vm *d = &v->vm->sched, *turbo = &v->vm->turbo;
    struct cpumask cpus = cpumask_and(&v->sched.affinity, &v->sched.vm->pool->cpus);
    u64 n = v->vm->nr_vcpus, weight = (u64)shell_param(d->pool, "weight", d);
    u64 cap = (u64)shell_param(d->pool, "cap",
                               d); /* per cent of one pCPU that all its vCPUs may have together */
    u64 limit = MIN(v->vm->config.demand_permille * 1000, SHARE_ONE);

    /* A VM with a turbo vCPU is in two pools, but gets no more than one share. */
    if (turbo->pool) {
        cpus = cpumask_or(&cpus, &d->pool->cpus);
        cpus = cpumask_or(&cpus, &turbo->pool->cpus);
    }
    if (cap) limit = MIN(limit, cap * (SHARE_ONE / 100) / n);
    return (struct claim){ .cpus = cpus, .weight = MAX(weight, 1) * 4096 / n, .limit = (u32)limit };
}

COLUMNS(columns, COL("VM", "vm", 'n', -14), COL("vCPU", "vcpu", 'u', 4),
        COL("pCPU", "pcpu", 'u', 4), COL("state", "state", 's', -8),
        COL("CPU %", "cpu_pct", 'f', 6), COL("entitled", "entitled_pct", 'f', 8),
        COL(NULL, "wake_us", '{', 0), COL(NULL, "count", 'u', 0), COL("wake p50", "p50", 'f', 9),
        COL("p99", "p99", 'f', 9), COL("max us", "max", 'f', 9), COL(NULL, NULL, '}', 0),
        MORE("switch/s", "switches_per_s", 'f', 9), MORE("exit/s", "exits_per_s", 'f', 9),
        MORE("class", "class", 's', -5), MORE("micro us", "micro_us", 'u', 8),
        MORE("turbo %", "turbo_pct", 'f', 7), MORE("moved us", "moved_us", 'd', 8),
        MORE("boost", "boost", 'u', 5));

/* Returns the sample of the same vCPU from the look before. Returns NULL if the vCPU is new; the
 * next look will show it. Both looks go over VMs and vCPUs in the order of their numbers, so the
 * search goes on where it stopped. */
static const struct sample *sample_before(const struct sample *s) {
    const struct sample *old = &before->sample[top.row], *end = &before->sample[before->nr];

    while (old < end && (old->vm < s->vm || (old->vm == s->vm && old->vcpu < s->vcpu))) old++;
    top.row = (u32)(old - before->sample);
    if (old == end || old->vm != s->vm || old->vcpu != s->vcpu) return NULL;
    return old;
}

/* Notes the counters of a vCPU, and prints how much they grew since the look before. The first look
 * also resets the latencies, so that they are those of the measured time alone. */
static void look_at_vcpu(struct shell_call *c, struct vcpu *v) {
    struct sample *s = &seen->sample[seen->nr];
    const struct sample *old;
    struct sched_times t;
    u64 ns;

    if (seen->nr == ROWS) return;
    if (top.first) sched_reset_latency(&v->sched);
    sched_times(&v->sched, &t);
    *s = (struct sample){ v->vm->id, v->id, 0, t.state_ns[RS_RUNNING], t.switches, v->exits };
    for (u32 i = 0; i < RS_NR; i++) s->total += t.state_ns[i];
    seen->claim[seen->nr++] = claim_of(v);
    if (top.first) return;
    old = sample_before(s);
    if (!old) return;
    ns = MAX(s->total - old->total, 1u);
    table_row(c,
              CELLS(S(v->vm->name), U(v->id), U(t.cpu), S(run_state_name(t.state)),
                    U(percent(s->run - old->run, ns)),
                    U(before->claim[old - before->sample].share / 100), S("{"), U(t.wake_count),
                    U(t.wake_p50 / 10), U(t.wake_p99 / 10), U(t.wake_max / 10), S("}"),
                    U(per_second(s->switches - old->switches, ns)),
                    U(per_second(s->exits - old->exits, ns)), S(t.kind), U(t.micro_ns / NS_PER_US),
                    U(t.turbo_pct), D(t.moved_ns / (i64)NS_PER_US), U(t.boost)));
}

/* ---- a look ---- */

static u32 not_made; /* VMs of the configuration that could not be made */

/* Notes that a VM of the configuration could not be made, for a line of `top`. */
void shell_vm_not_made(void) { not_made++; }

/* Puts the line above the table. */
static void heading(struct shell_call *c, u64 up) {
    if (c->live) out("\x1b[H");
    out("Takt, up %lu s", up);
    if (not_made) out("; %u VM%s could not be made: dmesg", not_made, plural(not_made));
    if (c->live) out("; any key leaves for the shell");
    out("%s", c->eol);
}

/* Begins a look at all pCPUs and vCPUs: the look that was the newest becomes the one before, since
 * the table shows what has changed in between. Then come the pCPUs. */
static void look_begin(struct shell_call *c) {
    struct look *old = seen;
    u64 now = machine_now(), ns = now - old->began;
    const char *vendor = "none";

    if (virt) vendor = virt->name;
    seen = before;
    before = old;
    seen->began = now;
    seen->nr = top.row = 0;
    top.phase = CPUS;
    top.next = now + top.interval;
    if (top.first) return;
    if (c->json)
        out("{\"seconds\": %lu.%03lu, \"vendor\": \"%s\", \"vms_not_made\": %u, \"pcpus\": ",
            ns / 1000000000, ns / 1000000 % 1000, vendor, not_made);
    else
        heading(c, now / NS_PER_S);
    c->columns = cpu_columns;
}

/* Goes on to the vCPUs, after all pCPUs were looked at. */
static void look_at_vcpus(struct shell_call *c) {
    top.row = 0;
    top.phase = VCPUS;
    if (top.first) return;
    table_end(c);
    if (c->json) out(", \"vcpus\": ");
    c->columns = columns;
}

/* Ends a look. For a program, one measured interval is the whole answer; for a person, the next
 * look follows after the interval. */
static int look_end(struct shell_call *c) {
    top.phase = WAIT;
    if (!top.first) {
        table_end(c);
        if (c->json) {
            out("}");
            return 0;
        }
        if (c->live)
            out("\x1b[J"); /* clears what is left of a longer table */
        else
            out("\n");
    }
    top.first = false;
    return SHELL_AGAIN;
}

/* ---- the command ---- */

/* Reads a number of seconds, such as 0.5. Returns 0, or an error after shell_fail(). */
static int seconds(const char *text, u64 *ns) {
    char buf[24];

    hv_snprintf(buf, sizeof(buf), "%ss", text);
    if (!parse_time(buf, ns, NULL) && *ns <= 1000000 * NS_PER_S) return 0;
    return shell_fail(-EINVAL, "expected a number of seconds, not %s", text);
}

/* Reads the options. The first look, which prints nothing, comes after the warm-up time of -w. */
static int top_begin(struct shell_call *c) {
    const char *interval = c->opt['d'], *warm_up = c->opt['w'];
    u64 wait = 0;

    memset(&top, 0, sizeof(top));
    top.interval = NS_PER_S;
    top.first = true;
    seen->nr = 0; /* so that entitle_step() has no claims before the first look */
    if ((interval && seconds(interval, &top.interval)) || (warm_up && seconds(warm_up, &wait)))
        return -EINVAL;
    if (!top.interval) return shell_fail(-EINVAL, "the interval cannot be 0");
    top.next = machine_now() + wait;
    c->live = !c->json && !c->opt['b'];
    if (c->live) {
        c->eol = "\x1b[K\n"; /* also clears the rest of the longer line that stood there */
        out(SCREEN_CLEAR);
    }
    return SHELL_AGAIN;
}

/* Looks at one pCPU or one vCPU at each step. */
static int cmd_top(struct shell_call *c) {
    struct vcpu *v;

    if (c->step == 0) return top_begin(c);
    if (c->live && shell_key() >= 0) return 0;
    switch (top.phase) {
    case WAIT:
        if (entitle_step(seen->claim, seen->nr)) break;
        if (machine_now() >= top.next)
            look_begin(c);
        else
            c->at = top.next;
        break;
    case CPUS:
        look_at_cpu(c, top.row++);
        if (top.row == nr_cpus) look_at_vcpus(c);
        break;
    case VCPUS:
        v = shell_next_vcpu(c);
        if (!v) return look_end(c);
        look_at_vcpu(c, v);
    }
    return SHELL_AGAIN;
}

const struct shell_command top_commands[] = {
    { "top", "[-b] [-l] [-d SECONDS] [-w SECONDS]",
      "shows what each vCPU gets, until a key is pressed\n"
      "-d SECONDS  refreshes it so often (1)\n"
      "-w SECONDS  measures nothing before so much time has passed\n"
      "-b          prints plain tables one after another, until ^C\n"
      "-l          shows all columns, also where they are wider than a terminal\n"
      "-j          measures one interval",
      cmd_top, "", "bld:w:" },
    { 0 },
};
