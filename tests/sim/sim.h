/* A discrete-event simulation around hv/sched: pCPUs, time and vCPU workloads are modelled, the
 * scheduler is the very source that the image has. One simulation at a time. Virtual time is in
 * ns from 0. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <guest/arrivals.h>
#include <guest/duty.h>
#include <guest/phase.h>
#include "config.h"
#include "sched/core.h"
#include "trace/trace.h"

#define SIM_MAX_VCPUS 64 /* a VM */

enum work_kind {
    WORK_IDLE,   /* never wakes */
    WORK_HOG,    /* never sleeps */
    WORK_DUTY,   /* computes for percent of the time, in periods: <guest/duty.h> */
    WORK_WAKER,  /* wakes every period and computes for work_ns */
    WORK_SERVER, /* requests come at random, rate a second; each takes work_ns */
    WORK_EVADER, /* sleeps from margin_ns before each tick of its pCPU to rest_ns after it */
    WORK_SELF,   /* computes work_ns, sleeps rest_ns, and so on: its own alarm clock */
    WORK_YIELD,  /* computes work_ns, yields, and so on */
    /* computes as DUTY, if percent is not 0; on its first vCPU events interrupt that, each of which
     * takes work_ns. With more vCPUs the first one only serves. */
    WORK_MIXED,
    /* the client of a MIXED: wakes at random, computes for work_ns and sends an event */
    WORK_CLIENT,
};

struct sim_work {
    enum work_kind kind;
    u64 period_ns, work_ns, margin_ns, rest_ns, tick_ns;
    u32 percent, rate;
    bool closed;    /* DUTY, MIXED: the closed loop of <guest/duty.h>, */
    u64 jitter_pct; /* and its jitter */
    /* When a vCPU begins: start_ns after it was made, and if start_span is not 0, as phase_of()
     * says of start_seed for vCPU number start_first of the guest and those after it. */
    u64 start_ns, start_span, start_seed;
    u32 start_first;
    struct arrivals due;      /* MIXED, CLIENT: when events are to be raised */
    struct sim_vcpu **server; /* CLIENT: whose events they are, when it is there */
};

/* How late events were done with, in ns: of those that were raised since sim_mark, in the order
 * in which they were done. */
struct sim_late {
    u64 *ns;
    u32 nr, max;
};

/* What a vCPU did in one part of a measurement. A wait and an event belong to the part in which
 * they end. */
struct sim_span {
    u64 state_ns[RS_NR];
    u64 switches, wakes, migrations, preemptions, boosts, grants, granted_ns;
    u64 wait_max;            /* longest time runnable at a stretch, ns */
    struct hist wake;        /* from wake to run, ns */
    u32 first_late, nr_late; /* its events: late.ns[first_late] and those behind it */
    i64 credit_sum;          /* of the samples of its credit, ns; see sim_sample_credit */
    u32 credit_samples;
};

struct sim_vcpu {
    struct sched_vcpu s; /* first */
    struct sim_work work;
    struct timer done, alarm;
    u64 remaining;       /* of the present burst, ~0 endless */
    u64 until;           /* the burst ends at this time whatever is left, ~0: not */
    u64 started;         /* since when it computes on a pCPU, ~0: it does not */
    u64 next;            /* when the next period begins, or began */
    struct duty duty;    /* DUTY, MIXED */
    u64 requests;        /* waiting or being served */
    struct arrivals due; /* the events not yet done */
    bool leaving;        /* its pCPU, and its state is not yet saved */
    bool serving;        /* one of them; the burst that it interrupted: */
    u64 rest, rest_until;
    struct sim_late late;
    u64 marked;
    u64 rng;
    u64 computed;            /* ns of work done, without the cost of switches */
    u64 served;              /* of that, for events */
    u64 runnable_since;      /* ~0: it is not runnable */
    struct sched_times mark; /* when the present part of the measurement began */
    u64 wait_max;            /* in that part: longest time runnable at a stretch */
    u32 mark_late;           /* late.nr when it began */
    i64 credit_sum;          /* in that part, as in struct sim_span */
    u32 credit_samples;
    struct sim_span first;      /* the first half; all 0 unless sim_halfway was called */
    struct {                    /* rules.c */
        enum run_state state;   /* before the present one */
        u64 ran;                /* state_ns[RS_RUNNING] then */
        bool beside_idle, told; /* ready while idle_cpu idles, since `since` */
        u32 idle_cpu;
        u64 since;
    } rules;
};

struct sim_dom {
    struct sched_dom d; /* first */
    char name[32];
    struct sched_vcpu *slot[SIM_MAX_VCPUS];
    struct sim_vcpu *vcpu[SIM_MAX_VCPUS];
    u32 nr_vcpus;
};

struct sim_options {
    u32 cpus;
    u64 seed;
    u64 kick_ns; /* from a kick to sched_run */
    /* from sched_run to the new vCPU, charged to it; the old one's state is saved half-way */
    u64 switch_ns;
    bool governed; /* pools change by themselves, if they are told to */
    bool quiet;    /* no trace: the hash says nothing */
    /* a panic is a sentence and exit status 1, as the policy is under test, not this */
    bool rules;
    bool keep; /* keep all trace records, of the classes in mask */
    u32 mask;  /* 0: TRACE_CLASS_SCHED | TRACE_CLASS_REPLAY */
};

extern struct sim {
    struct sim_options opt;
    u64 now;
    u32 cpu; /* that executes */
    u64 hash;
    u64 events, records, policy_timers;
    u64 decisions; /* calls of sched_run */
    /* whatever the scheduler is told: that, wakes, blocks, yields, saved states, its timers */
    u64 inputs;
    /* how many there were when a scenario's warm-up was over */
    u64 marked_decisions, marked_inputs;
    struct trace_record *kept;
    size_t nr_kept, max_kept;
    u64 rng;
    void (*check)(void); /* after each event */
    bool replaying;      /* timers and kicks go nowhere */
    char said[256];      /* the last line of the log */
    u32 lines;
} sim;

void sim_start(const struct sim_options *o); /* from nothing: forgets what was before */
void sim_stop(void);                         /* frees what sim_ functions made */
void sim_run_until(u64 ns);
/* Create Pool-0 of `policy` with all CPUs of `cpus`, or another pool. Ends the program if it
 * cannot. */
struct sched_pool *sim_pool(const char *name, const char *policy, struct cpumask cpus);
/* A VM with `vcpus` vCPUs that do `work` and start now. */
struct sim_dom *sim_vm(struct sched_pool *p, const char *name, u32 vcpus, struct cpumask affinity,
                       struct sim_work work);
/* Gives it a turbo vCPU, which is a sim_dom of its own, in its pool's turbo pool. */
struct sim_dom *sim_turbo(struct sim_dom *d, struct sim_work work);
void sim_vm_destroy(struct sim_dom *d); /* stops it, which takes virtual time, and removes it */
void sim_vm_stop(struct sim_dom *d);    /* pause and wait */
void sim_param(struct sched_pool *p, void *object, const char *name, i64 value);
/* until it is done, or an error other than -EAGAIN */
int sim_remove_cpu(struct sched_pool *p, u32 cpu);
int sim_move_vm(struct sched_pool *p, struct sim_dom *d);

u64 sim_random(u64 *state); /* xorshift64* */
static inline u64 sim_below(u64 *state, u64 n) { return sim_random(state) % n; }
struct cpumask sim_cpus(u32 first, u32 last);
/* measure.c */
void sim_mark(struct sim_dom *d); /* start to measure here */
/* the first half of the measurement ends here, and the second begins */
void sim_halfway(struct sim_dom *d);
/* Notes the credit that its vCPUs have now, for the mean in struct sim_span. Only if its pool
 * runs Credit. */
void sim_sample_credit(struct sim_dom *d);
/* The first half (0), the second up to now (1), or both together (2). The present wait counts,
 * too. */
void sim_span(struct sim_vcpu *v, u32 half, struct sim_span *out);
u64 sim_ran(struct sim_vcpu *v);   /* ns running since sim_mark */
u64 sim_waits(struct sim_vcpu *v); /* longest wait since sim_mark, the present one included */

/* check.c: what must hold between any two events (P2, P5, and the sums of P6); aborts with a
 * sentence. */
void sim_check(void);
void sim_check_work_conserving(void); /* P3, call it when no kick is under way */

/* rules.c: what a policy may not do, told in sentences on standard error. Call it after
 * sim_start and before the first VM is made. */
void rules_start(void);
/* The exit status: 1 if any rule was broken. Says how often. */
int rules_end(void);

/* replay.c */
struct sim_difference {
    size_t record; /* of the input whose decision differs */
    char what[160];
};
/* Feeds the inputs among `n` records to the scheduler. 0: all records came again, bit for bit; 1
 * and *d: they did not; -1 and *d: the stream cannot be replayed. */
int sim_replay(struct trace_record *r, size_t n, struct sim_difference *d);

/* scenario.c: runs the VMs of a file (docs/config.md) and prints a table. Exit status. */
struct scenario {
    const char *file, *cmdline; /* the latter: overrides as from GRUB; may be NULL */
    u32 cpus;
    u64 warm_up_ns, run_ns, kick_ns, switch_ns;
    bool json, quiet; /* quiet: no trace */
    bool rules;       /* tells what the policy breaks; the exit status is 1 if it does */
    bool check;       /* only see whether it can be set up */
    const char *record_to;
};
int scenario_run(const struct scenario *sc);
void sim_measurement_begins(void); /* scenario.c's own; tools/compare.py knows its name */

/* report.c: what a scenario prints. */
struct report_vm {
    const struct config_vm *config;
    struct sim_dom *d, *turbo; /* NULL: it was not started; it has no turbo vCPU */
    u32 label_changes;         /* by the I/O monitor, since the start */
    u64 label_changed;         /* when the last one was, ns */
};
void report(const struct scenario *sc, const struct report_vm *vm, u32 nr_vms);

#endif
