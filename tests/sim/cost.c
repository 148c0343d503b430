/* The program build/sched-cost MODE VCPUS [POLICY]: does the same scheduling again and again on one
 * pCPU. What is to be measured is inside the functions measured_*(), so that callgrind counts the
 * instructions of these alone, exactly (tools/sched-cost.py). Without arguments it prints the names
 * of the policies. With "wide POLICY" it measures wakes on many pCPUs (see `cases`).
 *
 *   decision   a blocked vCPU wakes and the pCPU decides anew: wake, insert, charge the current
 *              vCPU, pick
 *   handover   a vCPU yields to the next one: sched_yield, sched_run, sched_saved
 *   pass       an accounting pass and the tick that sorts the queue, with all vCPUs active
 *   exchange   vTurbo brings the shares of a pool and its turbo pool together, once a period */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/printf.h"
#include "sched/core.h"
#include "sched/credit.h"
#include "sched/machine.h"
#include "trace/trace.h"

#define ROUNDS 1000

void measured_decision(struct sched_vcpu *v);
void measured_handover(void);
void measured_pass(void);
void measured_exchange(void);
void measured_wake(struct sched_vcpu *v);
void measured_case(void);

/* A preset of credit, and perhaps one more parameter of the pool. Every second VM gets the
 * parameter in `vm`, if there is one. */
static const struct {
    const char *name, *preset;
    struct {
        const char *name;
        i64 value;
    } pool, vm;
} policies[] = {
    { "credit", "hardened", { 0 }, { 0 } },
    { "faithful-3.4", "faithful-3.4", { 0 }, { 0 } },
    { "faithful-4.2", "faithful-4.2", { 0 }, { 0 } },
    { "uniform-1ms", "uniform-1ms", { 0 }, { 0 } },
    { "aggressive", "aggressive", { 0 }, { 0 } },
    { "anticipatory", "anticipatory", { 0 }, { 0 } },
    { "vslicer", "vslicer", { 0 }, { "micro_us", 5000 } },
    { "vslicer-edf", "vslicer", { "slicer", SLICER_EDF }, { "micro_us", 5000 } },
    { "vslicer-frequency", "vslicer", { "slicer", SLICER_FREQUENCY }, { "micro_us", 5000 } },
    { "sc", "sc", { 0 }, { "io", IO_YES } },
    { "aca", "aca", { 0 }, { "io", IO_YES } },
    { "sc+aca", "sc+aca", { 0 }, { "io", IO_YES } },
    { "order-fifo", "hardened", { "order", ORDER_FIFO }, { 0 } },
    { "pool-io", "pool-io", { 0 }, { 0 } },
    { "turbo", "turbo", { 0 }, { 0 } },
};

/* Wakes on many pCPUs. On each of the busy ones there are `hogs` vCPUs that compute. A further one,
 * the sleeper, wakes on pCPU 0, runs and blocks. Every loop over pCPUs or waiting vCPUs into which
 * a wake can get makes one of these cases grow. */
enum busy { BUSY_ALL, BUSY_ALL_BUT_ONE, BUSY_HALF };
static const u32 wide_sizes[] = { 2, 16, 64, 256 };
static const struct wide {
    const char *name;
    u32 hogs;
    enum busy busy;
    u32 may_use;  /* how many pCPUs a vCPU may use; 0: all */
    bool in_debt; /* those that wait have no credit any more, but the queues are not sorted yet */
    bool later;   /* each vCPU is pinned to the pCPU where it is, but only when all of them wait */
} cases[] = {
    { "pinned", 16, BUSY_ALL, 1, false, false },
    { "pinned, one idle", 16, BUSY_ALL_BUT_ONE, 1, false, false },
    { "pinned, half idle", 16, BUSY_HALF, 1, false, false },
    { "pinned, in debt", 16, BUSY_ALL, 1, true, false },
    { "pinned later", 16, BUSY_ALL, 0, false, true },
    { "free", 16, BUSY_ALL, 0, false, false },
    { "free, one idle", 1, BUSY_ALL_BUT_ONE, 0, false, false },
    { "free, half idle", 1, BUSY_HALF, 0, false, false },
    { "free, in debt", 16, BUSY_ALL, 0, true, false },
    { "bound to two", 16, BUSY_ALL, 2, false, false },
    { "bound to two, half idle", 16, BUSY_HALF, 2, false, false },
};
#define WIDE_ROUNDS 100

u32 trace_mask;
static u64 clock_ns;
static struct sched_cpu cpus[TAKT_MAX_CPUS];
static u32 here; /* the pCPU that executes */

/* The pCPUs that were kicked and have not decided yet. */
static struct cpumask kicked;

void trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d) {}

void log_at(enum log_level level, const char *fmt, ...) {}

void panic(const char *fmt, ...) { abort(); }

u64 machine_now(void) { return clock_ns; }

u32 machine_cpu(void) { return here; }

void machine_kick(u32 cpu) { cpumask_set(&kicked, cpu); }

void machine_timer_set(u32 cpu, struct timer *t, u64 when) {
    t->when = when;
    t->queued = true;
}

void machine_timer_cancel(struct timer *t) { t->queued = false; }

/* Calls the scheduler for the timers that are due. */
static void timers(void) {
    for (u32 k = SCHED_TIMERS; k-- > 0;) {
        struct timer *t = &sched_cpus[0]->timer[k].t;

        if (t->queued && t->when <= clock_ns) {
            t->queued = false;
            sched_timer_fire(0, k);
        }
    }
}

/* Lets a pCPU decide, and says at once that the old vCPU's state is saved. */
static void run_on(u32 cpu) {
    struct sched_vcpu *prev = sched_current(cpu), *next;

    here = cpu;
    next = sched_run(cpu);
    if (next != prev) sched_saved(cpu, prev);
}

static void run(void) { run_on(0); }

__attribute__((noinline)) void measured_decision(struct sched_vcpu *v) {
    sched_wake(v);
    run();
}

__attribute__((noinline)) void measured_handover(void) {
    sched_yield(sched_current(0));
    run();
}

/* One accounting pass, and the tick that sorts the queue after it. */
__attribute__((noinline)) void measured_pass(void) {
    sched_timer_fire(0, 1);
    sched_timer_fire(0, 0);
}

__attribute__((noinline)) void measured_exchange(void) { vturbo_exchange(&sched_pools[0]); }

/* Lets pCPU `cpu`, and all others that were kicked, decide until none is kicked any more. */
static void decide(u32 cpu) {
    for (; cpu < TAKT_MAX_CPUS; cpu = cpumask_next(&kicked, 0)) {
        cpumask_clear(&kicked, cpu);
        run_on(cpu);
    }
}

/* The vCPU wakes, runs on the pCPU that is kicked for it, and blocks again. */
__attribute__((noinline)) void measured_wake(struct sched_vcpu *v) {
    sched_wake(v);
    decide(cpumask_next(&kicked, 0));
    sched_block(v);
    decide(v->cpu);
}

/* A case begins or ends: callgrind writes down what it has counted, and begins at 0. */
__attribute__((noinline)) void measured_case(void) { __asm__ volatile(""); }

/* Blocks the vCPU that runs, and has its pCPU decide what runs next. */
static void block_current(void) {
    sched_block(sched_current(0));
    run();
}

/* Gives the current vCPU some credit, not always the same. Otherwise all of them would be OVER
 * after a while, and the queue would have only one list. */
static void give_credit(u32 round) {
    struct credit_vcpu *cv = credit_vcpu(sched_current(0));

    cv->credit = round * 37 % 100 * 300000;
    cv->cls = CLASS_UNDER;
}

static struct sched_vcpu **vcpus;

/* Sets a parameter, unless `name` is NULL. A mistake in the table above ends the program. */
static void set(struct sched_pool *p, void *object, const char *name, i64 value) {
    const char *why = "";

    if (name && param_set(param_find(p, name), p, object, value, &why)) {
        fprintf(stderr, "%s: %s\n", name, why);
        exit(2);
    }
}

/* Sets up what is measured: Pool-0 on pCPU 0 with `n` VMs of one vCPU each, under policies[policy].
 * With `pair`, each VM also has a turbo vCPU in a turbo pool on pCPU 1. The vCPUs of Pool-0 are
 * runnable. */
static void make(u32 n, u32 policy, bool pair) {
    struct sched_pool *p, *t;
    struct cpumask all;

    cpumask_fill(&all);
    sched_init();
    sched_cpu_online(0, &cpus[0]);
    sched_cpu_online(1, &cpus[1]);
    if (sched_pool_create("Pool-0", "credit", &p) || sched_pool_add_cpu(p, 0)) exit(2);
    if (param_preset(p, policies[policy].preset)) exit(2);
    if (pair && (sched_pool_create("turbo", "credit", &t) || sched_pool_add_cpu(t, 1) ||
                 sched_pool_pair(t, p)))
        exit(2);
    set(p, p, policies[policy].pool.name, policies[policy].pool.value);
    vcpus = calloc(2 * n, sizeof(*vcpus));
    for (u32 i = 0; i < n; i++) {
        struct sched_vm *d = calloc(2, sizeof(*d));

        vcpus[i] = calloc(1, sizeof(**vcpus));
        if (sched_vm_init(d, i, "", &vcpus[i], p) || sched_vcpu_init(vcpus[i], d, 0, &all)) exit(2);
        if (i % 2) set(p, d, policies[policy].vm.name, policies[policy].vm.value);
        sched_unpause(d);
        sched_wake(vcpus[i]);
        if (!pair) continue;
        vcpus[n + i] = calloc(1, sizeof(**vcpus));
        if (sched_vm_init_turbo(d + 1, d, &vcpus[n + i]) ||
            sched_vcpu_init(vcpus[n + i], d + 1, 0, &all))
            exit(2);
        sched_unpause(d + 1);
    }
    run();
}

/* Adds a VM with one vCPU to the pool. If w->may_use is not 0, the pCPUs are divided into groups of
 * so many, and the vCPU may use the group of `cpu`. */
static struct sched_vcpu *add_vcpu(struct sched_pool *p, u32 policy, const struct wide *w,
                                   u32 cpu) {
    struct sched_vcpu **v = calloc(1, sizeof(*v));
    struct sched_vm *d = calloc(1, sizeof(*d));
    struct cpumask affinity = { 0 };

    *v = calloc(1, sizeof(**v));
    if (!w->may_use) cpumask_fill(&affinity);
    for (u32 i = 0; i < w->may_use; i++) cpumask_set(&affinity, cpu - cpu % w->may_use + i);
    if (sched_vm_init(d, p->nr_vms, "", v, p) || sched_vcpu_init(*v, d, 0, &affinity)) exit(2);
    if (d->id % 2) set(p, d, policies[policy].vm.name, policies[policy].vm.value);
    sched_unpause(d);
    vcpus[d->id] = *v;
    return *v;
}

/* Sets up Pool-0 with `n` pCPUs and the vCPUs that compute. Returns the sleeper. A case takes so
 * little virtual time that it has no tick and no accounting, so each vCPU keeps the class that it
 * gets here. Those that compute have credit left, but those of pCPU 0 (and of its group) have
 * none: when the sleeper blocks, pCPU 0 looks whether a better vCPU waits elsewhere. */
static struct sched_vcpu *make_wide(u32 n, u32 policy, const struct wide *w) {
    const u32 busy[] = { [BUSY_ALL] = n, [BUSY_ALL_BUT_ONE] = n - 1, [BUSY_HALF] = n / 2 };
    struct sched_vcpu *sleeper;
    struct sched_pool *p;

    cpumask_zero(&kicked);
    sched_init();
    for (u32 cpu = 0; cpu < n; cpu++) sched_cpu_online(cpu, &cpus[cpu]);
    if (sched_pool_create("Pool-0", "credit", &p)) exit(2);
    for (u32 cpu = 0; cpu < n; cpu++)
        if (sched_pool_add_cpu(p, cpu)) exit(2);
    if (param_preset(p, policies[policy].preset)) exit(2);
    set(p, p, policies[policy].pool.name, policies[policy].pool.value);
    vcpus = calloc(1 + busy[w->busy] * w->hogs, sizeof(*vcpus));
    sleeper = add_vcpu(p, policy, w, 0);
    decide(cpumask_next(&kicked, 0));
    for (u32 i = 0; i < busy[w->busy] * w->hogs; i++) {
        struct sched_vcpu *v = add_vcpu(p, policy, w, n - 1 - i % busy[w->busy]);

        credit_vcpu(v)->credit = 10 * (i64)NS_PER_S;
        if (v->cpu < MAX(w->may_use, 1)) credit_vcpu(v)->credit *= -1;
        credit_vcpu(v)->cls = credit_class_of(credit_pool(p), credit_vcpu(v));
        sched_wake(v);
        decide(cpumask_next(&kicked, 0));
    }
    for (u32 i = 0; i < p->nr_vms && w->later; i++) {
        struct cpumask own = cpumask_of(vcpus[i]->cpu);

        if (sched_set_affinity(vcpus[i], &own)) exit(2);
        decide(cpumask_next(&kicked, 0));
    }
    for (u32 i = 1; i < p->nr_vms && w->in_debt; i++) credit_vcpu(vcpus[i])->cls = CLASS_OVER;
    return sleeper;
}

/* Measures all cases under one policy, and prints the name, the number of pCPUs and the number of
 * wakes of each. A wake comes whenever a rate limit is over. */
static int measure_wide(u32 policy) {
    for (u32 i = 0; i < ARRAY_SIZE(cases) * ARRAY_SIZE(wide_sizes); i++) {
        const struct wide *w = &cases[i / ARRAY_SIZE(wide_sizes)];
        u32 n = wide_sizes[i % ARRAY_SIZE(wide_sizes)];
        struct sched_vcpu *sleeper = make_wide(n, policy, w);

        measured_case(); /* nothing of the preparations counts */
        for (u32 round = 0; round < WIDE_ROUNDS; round++) {
            clock_ns += 2 * NS_PER_MS;
            measured_wake(sleeper);
        }
        measured_case();
        printf("%s %u %u\n", w->name, n, WIDE_ROUNDS);
    }
    return 0;
}

/* Makes it look as if all VMs had used a little of both pools, so that no step is skipped. */
static void use_both(u32 n) {
    for (u32 i = 0; i < 2 * n; i++) {
        credit_vm(vcpus[i]->vm)->used += (i + 1) * 100 * NS_PER_US;
        if (list_empty(&credit_vcpu(vcpus[i])->active))
            credit_set_active(vcpus[i]->vm->pool, credit_vcpu(vcpus[i]), true);
    }
}

/* Lets all vCPUs run, so that all are active: only active ones take part in accounting, and the
 * costs of the first rounds would be others. */
static void warm_up(u32 n) {
    for (u32 i = 0; i < 4 * n; i++) {
        clock_ns += 2 * NS_PER_MS;
        timers();
        sched_yield(sched_current(0));
        run();
    }
}

/* Measures what each function of the scheduler costs. Each round prepares what is needed, and then
 * calls one measured function. */
int main(int argc, char **argv) {
    bool wide = argc == 3 && strcmp(argv[1], "wide") == 0;
    const char *name = policies[0].name;
    u32 n = 0, policy = 0;

    if (argc >= 3) n = (u32)atoi(argv[2]);
    if (argc == 4 || wide) name = argv[argc - 1];
    while (policy < ARRAY_SIZE(policies) && strcmp(policies[policy].name, name)) policy++;
    for (u32 i = 0; argc == 1 && i < ARRAY_SIZE(policies); i++) printf("%s\n", policies[i].name);
    if (argc == 1) return 0;
    if (wide && policy < ARRAY_SIZE(policies)) return measure_wide(policy);
    if (n < 2 || policy == ARRAY_SIZE(policies)) {
        fprintf(stderr, "usage: sched-cost [decision|handover|pass|exchange VCPUS [POLICY]]\n"
                        "       sched-cost wide POLICY\n");
        return 2;
    }
    make(n, policy, strcmp(argv[1], "exchange") == 0);
    warm_up(n);
    for (u32 i = 0; i < ROUNDS; i++) {
        if (strcmp(argv[1], "decision") == 0) {
            struct sched_vcpu *v = sched_current(0);

            clock_ns += NS_PER_MS / 10;
            block_current();
            clock_ns += 4 * NS_PER_MS;
            give_credit(i);
            measured_decision(v);
            timers();
        } else if (strcmp(argv[1], "handover") == 0) {
            clock_ns += 2 * NS_PER_MS;
            give_credit(i);
            measured_handover();
            timers();
        } else if (strcmp(argv[1], "exchange") == 0) {
            clock_ns += 2 * NS_PER_MS;
            use_both(n);
            measured_exchange();
        } else {
            clock_ns += 30 * NS_PER_MS;
            run();
            for (u32 k = 0; k < SCHED_TIMERS; k++) sched_cpus[0]->timer[k].t.queued = false;
            measured_pass();
        }
    }
    printf("%d\n", ROUNDS);
    return 0;
}
