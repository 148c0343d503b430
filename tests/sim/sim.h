/* A discrete-event simulation of a machine around hv/sched. The scheduler is the same source that
 * the image has; pCPUs, time, and what the guests compute are models. So an experiment of minutes
 * takes seconds, and the same seed gives the same result to the byte.
 *
 * There is one simulation at a time, in the variable `sim`. Virtual time is in ns and starts at 0.
 * It only passes in sim_run_until(), which handles one event after another: a timer fires, a kick
 * arrives, a burst of computing ends. Functions without a return value end the program with a
 * sentence if they cannot do what they are asked for, because a test then makes no sense. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <guest/arrivals.h>
#include <guest/duty.h>
#include <guest/phase.h>
#include "check.h"
#include "config.h"
#include "sched/core.h"
#include "trace/trace.h"

#define SIM_MAX_VCPUS 64 /* of one VM */

/* What a vCPU does. A burst is what it computes at a stretch, if nobody preempts it. */
enum work_kind {
    WORK_IDLE,   /* never wakes */
    WORK_HOG,    /* never sleeps */
    WORK_DUTY,   /* computes for percent of the time, in periods: <guest/duty.h> */
    WORK_WAKER,  /* wakes every period and computes for work_ns */
    WORK_SERVER, /* requests come at random, rate a second; each takes work_ns */
    WORK_EVADER, /* sleeps from margin_ns before each tick of its pCPU to rest_ns after it */
    WORK_SELF,   /* computes work_ns, sleeps rest_ns, and so on: it wakes itself */
    WORK_YIELD,  /* computes work_ns, yields, and so on */
    /* Computes as DUTY does, if percent is not 0. On the VM's first vCPU events interrupt that, and
     * each of them takes work_ns. If the VM has more vCPUs, the first one does nothing else. */
    WORK_MIXED,
    /* Is the client of a MIXED: it wakes at random, computes for work_ns and sends an event. */
    WORK_CLIENT,
};

struct sim_work {
    enum work_kind kind;
    u64 period_ns, work_ns, margin_ns, rest_ns, tick_ns;
    u32 percent, rate;
    bool closed;    /* DUTY, MIXED: in the closed loop of <guest/duty.h> */
    u64 jitter_pct; /* DUTY, MIXED: as in <guest/duty.h> */
    /* A vCPU begins start_ns after it was made. If start_span is not 0, it begins later by a random
     * part of that: phase_of() of start_seed for the vCPU's number in the guest. The first vCPU of
     * the VM has number start_first there. */
    u64 start_ns, start_span, start_seed;
    u32 start_first;
    struct arrivals due;      /* MIXED, CLIENT: when events are to be raised */
    struct sim_vcpu **server; /* CLIENT: *server gets the events, unless it is NULL */
};

/* For each event that was raised since sim_mark, in the order in which they were done: how many ns
 * passed from raising it until the work for it was done. */
struct sim_late {
    u64 *ns;
    u32 nr, max;
};

/* What a vCPU did in one part of a measurement. A wait counts for the part in which it ends, and so
 * does an event. */
struct sim_span {
    u64 state_ns[RS_NR];
    u64 switches, wakes, migrations, preemptions, boosts, grants, granted_ns;
    u64 wait_max;            /* longest time runnable at a stretch, ns */
    struct hist wake;        /* from wake to run, ns */
    u32 first_late, nr_late; /* its events: so many entries from late.ns[first_late] on */
    i64 credit_sum;          /* of all samples of its credit, ns; see sim_sample_credit */
    u32 credit_samples;      /* how many samples that are */
};

struct sim_vcpu {
    struct sched_vcpu s; /* what the scheduler knows of it */
    struct sim_work work;
    u64 rng;

    /* The present burst. `done` fires when it ends. */
    struct timer done;
    u64 remaining; /* ns that it has still to compute; ~0: it never ends */
    u64 until;     /* it ends at this time, whatever remains; ~0: it does not */
    u64 started;   /* since when the vCPU computes on a pCPU; ~0: it does not */
    bool leaving;  /* the vCPU was switched out, and its state is not yet saved */

    /* What comes after it. `alarm` fires when the vCPU has to be woken. */
    struct timer alarm;
    u64 next;            /* when the next period begins, or began */
    struct duty duty;    /* DUTY, MIXED */
    u64 requests;        /* SERVER: those that wait, and the one that is served */
    struct arrivals due; /* MIXED, CLIENT: the events that are not yet done */
    bool serving;        /* MIXED: it serves an event, which interrupted a burst: */
    u64 rest;            /* `remaining` of that burst */
    u64 rest_until;      /* `until` of that burst */

    /* The measurement: sim_mark, sim_halfway, sim_span. */
    u64 marked;              /* when it began */
    u64 computed;            /* ns of work done since the vCPU was made, without switches */
    u64 served;              /* how much of that was for events */
    u64 runnable_since;      /* ~0: it is not runnable */
    struct sim_late late;    /* since it began */
    struct sim_span first;   /* the first half; all 0 unless sim_halfway was called */
    struct sched_times mark; /* when the present half began */
    u32 mark_late;           /* late.nr then */
    u64 wait_max;            /* in the present half: longest time runnable at a stretch */
    i64 credit_sum;          /* in the present half, as in struct sim_span */
    u32 credit_samples;

    /* For rules.c. */
    struct {
        enum run_state state; /* the state before the present one */
        u64 ran;              /* state_ns[RS_RUNNING] when that changed */
        bool beside_idle;     /* it is ready, and idle_cpu has been idle, since `since` */
        bool told;            /* a sentence about that was printed */
        u32 idle_cpu;
        u64 since;
    } rules;
};

struct sim_vm {
    struct sched_vm d; /* what the scheduler knows of it */
    char name[32];
    struct sched_vcpu *slot[SIM_MAX_VCPUS];
    struct sim_vcpu *vcpu[SIM_MAX_VCPUS];
    u32 nr_vcpus;
};

struct sim_options {
    u32 cpus;
    u64 seed;
    u64 kick_ns; /* passes from a kick until its pCPU calls sched_run */
    /* Passes from sched_run until the new vCPU computes, and is charged to that one. The state of
     * the old vCPU is saved half-way. */
    u64 switch_ns;
    bool governed; /* the governor runs: pools with turbo = auto change by themselves */
    bool quiet;    /* writes no trace, which is faster; then the hash says nothing */
    /* A panic prints a sentence and ends the program with status 1, instead of abort(): a policy
     * that somebody writes is under test, and not the simulation. */
    bool rules;
    bool keep; /* keeps all trace records of the classes in `mask` */
    u32 mask;  /* 0 stands for TRACE_CLASS_SCHED | TRACE_CLASS_REPLAY */
};

extern struct sim {
    struct sim_options opt;
    u64 now;
    u32 cpu;           /* the pCPU that executes */
    u64 hash;          /* of all trace records: equal hashes are equal runs */
    u64 events;        /* that sim_run_until handled */
    u64 records;       /* of the trace */
    u64 policy_timers; /* how often a timer of a policy fired */
    u64 decisions;     /* calls of sched_run */
    u64 inputs;        /* all calls that tell the scheduler something: decisions, wakes, blocks,
                         * yields, saved states, and its timers */
    u64 marked_decisions, marked_inputs; /* how many there were when the warm-up was over */
    struct trace_record *kept;
    size_t nr_kept, max_kept;
    u64 rng;
    void (*check)(void); /* is called after each event */
    bool replaying;      /* the recording has the timers and kicks, so own ones do nothing */
    char said[256];      /* the last line of the log */
    u32 lines;           /* how many lines the log got */
} sim;

/* Starts a simulation. There are no pools and VMs, and all of the one before is forgotten. */
void sim_start(const struct sim_options *o);
/* Brings a pCPU to the scheduler, as sched_cpu_online(). sim_start() has done so for its pCPUs. */
int sim_cpu_online(u32 cpu);
/* Frees all that the functions below made. */
void sim_stop(void);
/* Lets time pass up to `ns`. */
void sim_run_until(u64 ns);
/* Creates a pool of `policy` with the CPUs of `cpus`. The first one is Pool-0. */
struct sched_pool *sim_pool(const char *name, const char *policy, struct cpumask cpus);
/* Makes a VM whose `vcpus` vCPUs do `work`, and starts it. Returns the VM; sim_stop frees it. */
struct sim_vm *sim_vm(struct sched_pool *p, const char *name, u32 vcpus, struct cpumask affinity,
                      struct sim_work work);
/* Gives the VM a turbo vCPU in the turbo pool of its pool. That is a sim_vm of its own. */
struct sim_vm *sim_turbo(struct sim_vm *d, struct sim_work work);
/* Pauses the VM and waits until none of its vCPUs runs, which takes virtual time. */
void sim_vm_stop(struct sim_vm *d);
/* Stops the VM and frees it. */
void sim_vm_destroy(struct sim_vm *d);
/* Sets a parameter. `object` is the pool itself, or the struct sched_vm of a VM. */
void sim_param(struct sched_pool *p, void *object, const char *name, i64 value);
/* Takes a CPU out of a pool, which takes virtual time. Returns 0 or an error of
 * sched_pool_remove_cpu, but never -EAGAIN. */
int sim_remove_cpu(struct sched_pool *p, u32 cpu);
/* Stops the VM, moves it to pool `p` and starts it again. Returns what sched_pool_move_vm does. */
int sim_move_vm(struct sched_pool *p, struct sim_vm *d);

/* The next number of the generator xorshift64*; *state may not be 0. */
u64 sim_random(u64 *state);
static inline u64 sim_below(u64 *state, u64 n) { return sim_random(state) % n; }
/* The set of the CPUs from `first` to `last`. */
struct cpumask sim_cpus(u32 first, u32 last);

/* measure.c: what the vCPUs of a VM did since a certain time. */

/* The measurement begins now. */
void sim_mark(struct sim_vm *d);
/* Its first half ends now, and the second one begins. */
void sim_halfway(struct sim_vm *d);
/* Takes a sample of the credit of each vCPU, for the mean in struct sim_span. Does nothing unless
 * the VM's pool runs credit. */
void sim_sample_credit(struct sim_vm *d);
/* What the vCPU did in the first half (0), in the second one up to now (1), or in both together
 * (2). If it waits at present, that counts as well. */
void sim_span(struct sim_vcpu *v, u32 half, struct sim_span *out);
/* How many ns it ran since sim_mark. */
u64 sim_ran(struct sim_vcpu *v);
/* The longest time in ns that it was runnable without running, since sim_mark, up to now. */
u64 sim_waits(struct sim_vcpu *v);

/* sched_check() of check.h, for this machine. */
static inline void sim_check(void) { sched_check(sim.opt.cpus); }

/* rules.c: tells on standard error, in sentences, which rules a policy breaks. */

/* Call it after sim_start and before the first VM is made. */
void rules_start(void);
/* Says how often rules were broken. Returns the exit status: 1 if any was. */
int rules_end(void);

/* replay.c: makes the scheduler decide again what it decided in a recording. */
struct sim_difference {
    size_t record; /* the number of the input whose decision differs */
    char what[160];
};
/* Feeds the inputs among the `n` records of a recording to the scheduler, and compares what it
 * records now. Sorts `r`. Returns 0 if all records came again, bit for bit; 1 if they did not; -1
 * if the recording cannot be replayed. *d then says where and why. */
int sim_replay(struct trace_record *r, size_t n, struct sim_difference *d);

/* scenario.c: runs the VMs of a file (docs/config.md), and prints what they did. */
struct scenario {
    const char *file;
    const char *cmdline; /* overrides settings of the file, as the one of GRUB does; may be NULL */
    u32 cpus;
    u64 warm_up_ns, run_ns, kick_ns, switch_ns;
    bool json;               /* prints JSON instead of a table */
    bool quiet;              /* writes no trace */
    bool rules;              /* tells which rules a policy breaks (rules.c) */
    bool check;              /* only looks whether the file can be used */
    const char *record_to;   /* a file for the trace records, or NULL */
    const char *timeline_to; /* a file for pictures (timeline.c), or NULL */
};
/* Returns the exit status: 1 if a rule was broken. Ends the program with 2 if the file is not
 * good. */
int scenario_run(const struct scenario *sc);
/* Returns the name of the image number `i`, from 0, of which there is a model; NULL at the end. */
const char *scenario_image(u32 i);
/* Only scenario.c calls it. It is here because tools/compare.py knows its name. */
void sim_measurement_begins(void);

/* report.c: what a scenario prints. */
struct report_vm {
    const struct config_vm *config;
    struct sim_vm *d;     /* NULL if it was not started */
    struct sim_vm *turbo; /* its turbo vCPU, or NULL */
    u32 label_changes;    /* how often the I/O monitor changed its label */
    u64 label_changed;    /* when it last did, ns */
};
void report(const struct scenario *sc, const struct report_vm *vm, u32 nr_vms);
/* Prints a string in quotes, with the characters escaped that JSON does not allow. */
void json_string(const char *text);

/* list.c: prints policies, presets, parameters and images as JSON (docs/simulation.md). */
void list_choices(void);

/* timeline.c: what each vCPU did, for pictures. */

/* The state of one vCPU from `ns` on, until its next record. Little-endian, as in memory. */
struct timeline_record {
    u64 ns;
    u16 vcpu; /* its place in the list "vcpus" of the JSON result */
    u16 cpu;  /* the pCPU that it is assigned to */
    u8 state; /* enum run_state, or TIMELINE_UNKNOWN before the first record */
    u8 cls;   /* enum credit_class, or TIMELINE_NO_CLASS if its pool does not run credit */
    u8 io;    /* 1: the monitor labels its VM I/O-intensive */
    u8 zero;
    i64 credit;    /* ns, as it was last counted; 0 if its pool does not run credit */
    u64 slice_end; /* ns: when the slice ends, if it runs and the slice has an end; else 0 */
};
#define TIMELINE_UNKNOWN  0xff
#define TIMELINE_NO_CLASS 0xff

/* Opens the file `to` and writes the first records. All VMs have been made, and no virtual time has
 * passed. Errors of the file end the program with status 2. */
void timeline_start(const char *to, const struct report_vm *vm, u32 nr_vms);
/* Closes the file. */
void timeline_end(void);

#endif
