/* The program build/sched-cost MODE VCPUS [POLICY]: does the same scheduling again and again on one
 * pCPU. What is to be measured is inside the functions measured_*(), so that callgrind counts the
 * instructions of these alone, exactly (tools/sched-cost.py). Without arguments it prints the names
 * of the policies.
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

u32 trace_mask;
static u64 clock_ns;

void trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d) {}

void log_at(enum log_level level, const char *fmt, ...) {}

void panic(const char *fmt, ...) { abort(); }

u64 machine_now(void) { return clock_ns; }

u32 machine_cpu(void) { return 0; }

void machine_kick(u32 cpu) {}

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

/* Lets the pCPU decide, and says at once that the old vCPU's state is saved. */
static void run(void) {
    struct sched_vcpu *prev = sched_current(0), *next = sched_run(0);

    if (next != prev) sched_saved(0, prev);
}

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
    static struct sched_cpu cpus[2];
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
    u32 n = 0, policy = 0;

    if (argc >= 3) n = (u32)atoi(argv[2]);
    while (argc == 4 && policy < ARRAY_SIZE(policies) && strcmp(policies[policy].name, argv[3]))
        policy++;
    for (u32 i = 0; argc == 1 && i < ARRAY_SIZE(policies); i++) printf("%s\n", policies[i].name);
    if (argc == 1) return 0;
    if (n < 2 || policy == ARRAY_SIZE(policies)) {
        fprintf(stderr, "usage: sched-cost [decision|handover|pass|exchange VCPUS [POLICY]]\n");
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
