/* build/sched-cost MODE VCPUS: does a fixed trace of scheduling on one pCPU, the part to be measured inside
 * measured_*(), so that callgrind counts its instructions exactly (tools/sched-cost.py).
 *
 *   decision   a blocked vCPU wakes and the pCPU decides anew: wake + insert + charge the current one + pick
 *   handover   a vCPU yields to the next: sched_yield + sched_run + sched_saved
 *   pass       an accounting pass and the tick that sorts the queue, all vCPUs active */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/printf.h"
#include "sched/core.h"
#include "sched/machine.h"
#include "trace/trace.h"

#define ROUNDS 1000

void measured_decision(struct sched_vcpu *v);
void measured_handover(void);
void measured_pass(void);

u32 trace_mask;
static u64 clock_ns;

void trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d) {}

void panic(const char *fmt, ...) { abort(); }

u64 machine_now(void) { return clock_ns; }

u32 machine_cpu(void) { return 0; }

void machine_kick(u32 cpu) {}

void machine_timer_set(u32 cpu, struct timer *t, u64 when) {
    t->when = when;
    t->queued = true;
}

void machine_timer_cancel(struct timer *t) { t->queued = false; }

static void timers(void) {
    for (u32 k = SCHED_TIMERS; k-- > 0;) {
        struct timer *t = &sched_cpus[0].timer[k].t;

        if (t->queued && t->when <= clock_ns) {
            t->queued = false;
            sched_timer_fire(0, k);
        }
    }
}

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

__attribute__((noinline)) void measured_pass(void) {
    sched_timer_fire(0, 1);
    sched_timer_fire(0, 0);
}

static void block_current(void) {
    sched_block(sched_current(0));
    run();
}

static struct sched_vcpu **vcpus;

static void make(u32 n) {
    struct sched_pool *p;
    struct cpumask all;

    cpumask_fill(&all);
    sched_init();
    sched_cpu_online(0);
    if (sched_pool_create("Pool-0", "credit", &p) || sched_pool_add_cpu(p, 0)) exit(2);
    vcpus = calloc(n, sizeof(*vcpus));
    for (u32 i = 0; i < n; i++) {
        struct sched_dom *d = calloc(1, sizeof(*d));

        vcpus[i] = calloc(1, sizeof(**vcpus));
        if (sched_dom_init(d, i, "", &vcpus[i], p) || sched_vcpu_init(vcpus[i], d, 0, &all)) exit(2);
        sched_unpause(d);
        sched_wake(vcpus[i]);
    }
    run();
}

/* Let everybody run, so that all are active. */
static void warm_up(u32 n) {
    for (u32 i = 0; i < 4 * n; i++) {
        clock_ns += 2 * NS_PER_MS;
        timers();
        sched_yield(sched_current(0));
        run();
    }
}

int main(int argc, char **argv) {
    u32 n = argc == 3 ? (u32)atoi(argv[2]) : 0;

    if (n < 2) {
        fprintf(stderr, "usage: sched-cost decision|handover|pass VCPUS\n");
        return 2;
    }
    make(n);
    warm_up(n);
    for (u32 i = 0; i < ROUNDS; i++) {
        clock_ns += 2 * NS_PER_MS;
        if (strcmp(argv[1], "decision") == 0) {
            struct sched_vcpu *v = sched_current(0);

            block_current();
            clock_ns += 2 * NS_PER_MS;
            measured_decision(v);
            timers();
        } else if (strcmp(argv[1], "handover") == 0) {
            measured_handover();
            timers();
        } else {
            clock_ns += 28 * NS_PER_MS;
            run();
            for (u32 k = 0; k < SCHED_TIMERS; k++) sched_cpus[0].timer[k].t.queued = false;
            measured_pass();
        }
    }
    printf("%d\n", ROUNDS);
    return 0;
}
