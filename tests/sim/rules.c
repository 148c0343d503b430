/* The option -C of build/sim: checks the rules that a scheduling policy has to keep, and tells its
 * author in sentences which of them it breaks. docs/writing-a-policy.md lists the rules.
 *
 * After some breaches the simulation makes no sense any more: a vCPU runs on two pCPUs at once, or
 * where it may not run, or although it is blocked. These end the program. The others are counted,
 * and the first few are told. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "lib/printf.h"
#include "sim.h"

#define MS(ns)   ((double)(ns) / 1e6)
#define MAX_TOLD 5 /* sentences about one run */

/* How long in ns a vCPU may be ready while a pCPU is idle: until the kick arrives, and switches
 * that are under way end. 1 ms is many times what these take. It is a tenth of a tick, too, so a
 * policy that lets a vCPU wait for its next tick is told. */
#define PATIENCE (NS_PER_MS + 4 * (sim.opt.kick_ns + sim.opt.switch_ns))

static u64 breaches;
static u64 ran[TAKT_MAX_CPUS]; /* ns that vCPUs were charged for running on a pCPU */
/* The sched_state_hook of sim.c. */
static void (*next_hook)(struct sched_vcpu *v, u64 now);

static struct sim_vcpu *of(const struct sched_vcpu *v) {
    return container_of(v, struct sim_vcpu, s);
}

/* Prints a sentence. If v is not NULL, the sentence begins with the name of that vCPU. */
static void tell(const struct sched_vcpu *v, const char *fmt, va_list ap) {
    fprintf(stderr, "sim: at %.3f ms: ", MS(sim.now));
    if (v)
        fprintf(stderr, "VM %s, vCPU %u (pool %s, policy %s) ", v->vm->name, v->id,
                v->vm->pool->name, v->vm->pool->policy->name);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
}

/* Counts a breach of a rule, and tells the first few. */
static PRINTF(2, 3) void breach(const struct sched_vcpu *v, const char *fmt, ...) {
    va_list ap;

    if (++breaches > MAX_TOLD) return;
    va_start(ap, fmt);
    tell(v, fmt, ap);
    va_end(ap);
}

/* Tells a breach after which the simulation makes no sense, and ends the program. */
static __attribute__((noreturn))
PRINTF(2, 3) void last_breach(const struct sched_vcpu *v, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    tell(v, fmt, ap);
    va_end(ap);
    exit(1);
}

/* ---- checks when a vCPU changes its state ---- */

/* Checks the change of a vCPU's state, and then calls the hook of sim.c. It is the scheduler's
 * sched_state_hook: v->state and the sums of times are new already, rules.state is the state
 * before. */
static void on_state(struct sched_vcpu *v, u64 now) {
    struct sim_vcpu *s = of(v);
    enum run_state before = s->rules.state;
    u64 running = v->state_ns[RS_RUNNING] - s->rules.ran;

    if (v->state == RS_RUNNING && before != RS_RUNNABLE) {
        const char *is = "paused";

        if (before == RS_BLOCKED) is = "blocked";
        last_breach(v,
                    "is to run on pCPU %u although it is %s: `pick` may take only a vCPU that is "
                    "queued (v->queued)",
                    sim.cpu, is);
    }
    if (before == RS_RUNNING && v->on_cpu < TAKT_MAX_CPUS) {
        ran[v->on_cpu] += running;
        if (ran[v->on_cpu] > now)
            breach(NULL,
                   "pCPU %u was given away for %.3f ms: more than 100 %%. The core adds these "
                   "times up; a policy may not write v->since or v->state_ns",
                   v->on_cpu, MS(ran[v->on_cpu]));
    }
    s->rules.state = v->state;
    s->rules.ran = v->state_ns[RS_RUNNING];
    next_hook(v, now);
}

/* ---- checks between events ---- */

/* Checks where a vCPU runs. Any of these breaches makes everything after it nonsense, so they end
 * the program. */
static void check_running(const struct sched_vcpu *v, u32 cpu, u32 times) {
    if (times > 1)
        last_breach(v,
                    "runs on %u pCPUs at once: `pick` may take only a vCPU that is queued and "
                    "that sched_may_run() allows",
                    times);
    if (v->cpu != cpu)
        last_breach(v,
                    "runs on pCPU %u but is assigned to pCPU %u: `pick` has to call sched_move()",
                    cpu, v->cpu);
    if (!cpumask_test(&v->affinity, cpu) && !v->migrating)
        last_breach(v,
                    "runs on pCPU %u, which is not in its affinity: `pick` may take only a vCPU "
                    "that sched_may_run() allows, and `place` only a pCPU of sched_allowed()",
                    cpu);
}

/* Returns whether the pCPU idles, or halts in the place of a vCPU that is blocked (`sleepless` of
 * the policy null). */
static bool has_nothing_to_do(u32 cpu) {
    const struct sched_vcpu *current = sched_cpus[cpu]->current;

    return sched_is_idle(current) || current->blocked;
}

/* Returns a pCPU that has nothing to do although v is ready and may run there, or SCHED_NO_CPU if
 * there is none. */
static u32 idle_for(const struct sched_pool *p, const struct sched_vcpu *v) {
    if (!v->queued || p->policy->not_work_conserving) return SCHED_NO_CPU;
    cpumask_for_each(cpu, &p->cpus) {
        if (has_nothing_to_do(cpu) && sched_may_run(p, v, cpu)) return cpu;
    }
    return SCHED_NO_CPU;
}

/* Reports a breach if the vCPU v has been ready for too long while a pCPU where it may run was
 * idle. Nothing changes between events, so it is enough to look after each of them. */
static void check_waiting(const struct sched_pool *p, const struct sched_vcpu *v) {
    struct sim_vcpu *s = of(v);
    u32 cpu = idle_for(p, v);

    if (cpu != SCHED_NO_CPU && !s->rules.beside_idle) {
        s->rules.beside_idle = true;
        s->rules.idle_cpu = cpu;
        s->rules.since = sim.now;
        s->rules.told = false;
    }
    if (!s->rules.beside_idle) return;
    if (!s->rules.told && sim.now - s->rules.since > PATIENCE) {
        s->rules.told = true;
        breach(v,
               "has been ready for %.3f ms while pCPU %u, where it may run, has nothing to do: "
               "`wake` has to kick such a pCPU, and `pick` has to find the vCPUs that are ready",
               MS(sim.now - s->rules.since), s->rules.idle_cpu);
    }
    s->rules.beside_idle = cpu != SCHED_NO_CPU;
}

/* Finds out where the vCPU runs, if it does, and checks that; and whether it waits too long. */
static void check_vcpu(const struct sched_pool *p, const struct sched_vcpu *v) {
    u32 times = 0, cpu = SCHED_NO_CPU;

    for (u32 i = 0; i < sim.opt.cpus; i++) {
        if (sched_cpus[i]->current != v) continue;
        times++;
        cpu = i;
    }
    if (times) check_running(v, cpu, times);
    check_waiting(p, v);
}

/* Checks all rules; the simulation calls it after each event. */
static void check_all(void) {
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p))
        list_for_each(d, &p->vms, struct sched_vm, in_pool)
            for_each_vcpu(v, d) check_vcpu(p, v);
    sim_check();
}

/* ---- for scenario.c ---- */

/* Begins to check the rules. The hook of sim.c is called by that of this file, so that both get
 * their turn. */
void rules_start(void) {
    breaches = 0;
    for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++) ran[cpu] = 0;
    next_hook = sched_state_hook;
    sched_state_hook = on_state;
    sim.check = check_all;
}

/* Tells that a vCPU never ran. That breaks no rule: its weight may be so low that its turn comes
 * later. But a policy that forgot a vCPU looks the same, and while others keep the pCPUs busy no
 * rule shows it. */
static void note_starved(const struct sched_vcpu *v) {
    u64 elapsed = sim.now - of(v)->marked;
    struct sim_span all;

    sim_span(of((struct sched_vcpu *)v), 2, &all);
    if (v->vm->pool->policy->not_work_conserving || all.state_ns[RS_RUNNABLE] < elapsed) return;
    fprintf(stderr,
            "sim: note: VM %s, vCPU %u (pool %s, policy %s) was ready for the whole %g s and never "
            "ran\n",
            v->vm->name, v->id, v->vm->pool->name, v->vm->pool->policy->name,
            (double)elapsed / 1e9);
}

/* Says how often rules were broken, and returns the exit status. Checks once more before that,
 * because something may be wrong since the last event. */
int rules_end(void) {
    check_all();
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p))
        list_for_each(d, &p->vms, struct sched_vm, in_pool)
            for_each_vcpu(v, d) note_starved(v);
    if (breaches == 0) {
        fprintf(stderr, "sim: no rule was broken in %llu events\n", (unsigned long long)sim.events);
        return 0;
    }
    fprintf(stderr, "sim: rules were broken %llu times\n", (unsigned long long)breaches);
    return 1;
}
