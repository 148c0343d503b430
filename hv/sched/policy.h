/* What a scheduling policy is: one const struct sched_policy, in one file that includes this header and
 * nothing of the machine. How to write one: docs/writing-a-policy.md. All hooks run under the pool's lock;
 * p->now is the time. Those marked "may be NULL" a small policy does without.
 *
 * A policy keeps the runnable, not running vCPUs of its pool in queues of its own; the core keeps everything
 * else. `pick` returns what is to run. What the policy knows of a pool, a pCPU, a VM and a vCPU is in the
 * `priv` of each.
 *
 * Below: the parameter table, the one way to set anything that schedules. The VM file, the command line, the
 * shell and the store bind to it.
 */
#ifndef HV_SCHED_POLICY_H
#define HV_SCHED_POLICY_H

#include "sched/sched.h"
#include "trace/trace.h"

struct sched_pick {
    struct sched_vcpu *vcpu; /* NULL: nothing, the pCPU idles */
    u64 slice;               /* ns until sched_run is called again; SCHED_NEVER */
};

/* Why a vCPU became runnable: it decides what that earns. */
enum sched_why { SCHED_WAKE, SCHED_UNPAUSE, SCHED_UNPARK, SCHED_MIGRATE };

enum param_scope { PARAM_POOL, PARAM_DOM };

/* A number, a u32 in the private data of a pool or VM. */
struct param {
    const char *name; /* as in the VM file: "weight", "tslice_us" */
    const char *unit; /* "us", "%", "" */
    const char *help; /* one line */
    enum param_scope scope;
    u32 offset;               /* in `priv` */
    u32 min, max;             /* inclusive */
    const char *const *names; /* NULL, or the values 0 to max by word, NULL-terminated */
};

/* max and names of a parameter whose values are words. */
#define PARAM_WORDS(...)                                                                                     \
    ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ })) - 1, (const char *const[]) { __VA_ARGS__, NULL }

/* The core's own entries, which the table of every policy has: behind what is the policy's in an object. */
#define PARAM_OF(type, field) offsetof(struct type, field) - offsetof(struct type, priv)
#define SCHED_VM_PARAMS                                                                                      \
    {                                                                                                        \
        "route", "",                                                                                         \
            "Which vCPU gets an event. fixed: the one that the guest has chosen; spread: each in turn; "     \
            "running: that one if it runs, else one that does.",                                             \
            PARAM_DOM, PARAM_OF(sched_dom, route), 0, PARAM_WORDS("fixed", "spread", "running")              \
    }
#define SCHED_POOL_PARAM(field, unit, help, min, max)                                                        \
    { #field, unit, help, PARAM_POOL, PARAM_OF(sched_pool, field), min, max, NULL }
#define SCHED_POOL_PARAMS                                                                                    \
    SCHED_POOL_PARAM(io_threshold, "/s", "A VM that gets more events than this is I/O-intensive.", 1,        \
                     1000000),                                                                               \
        SCHED_POOL_PARAM(io_window_ms, "ms", "How long events are counted for one rate.", 10, 10000),        \
        SCHED_POOL_PARAM(io_smoothing, "%", "How much of the rate before is kept in the next. 0: nothing.",  \
                         0, 90),                                                                             \
        SCHED_POOL_PARAM(io_hysteresis, "%",                                                                 \
                         "A VM is no longer I/O-intensive when its rate is so far below io_threshold.", 0,   \
                         100)

/* A named group of the pool's parameters, e.g. "faithful-4.2": what its private data then begins with. */
struct sched_preset {
    const char *name;
    const void *values;
};

struct sched_policy {
    const char *name;
    const struct param *params;         /* ends with a NULL name; may be NULL */
    const struct sched_preset *presets; /* ends with a NULL name; may be NULL */
    u32 preset_size;

    void (*pool_init)(struct sched_pool *p);                    /* may be NULL */
    void (*cpu_add)(struct sched_pool *p, u32 cpu);             /* may be NULL */
    void (*cpu_remove)(struct sched_pool *p, u32 cpu);          /* its queue is empty by then; may be NULL */
    void (*dom_add)(struct sched_pool *p, struct sched_dom *d); /* may be NULL */
    void (*vcpu_add)(struct sched_pool *p, struct sched_vcpu *v); /* before place(); may be NULL */
    void (*vcpu_remove)(struct sched_pool *p,
                        struct sched_vcpu *v); /* not queued, not running; may be NULL */

    /* Runnable now, on v->cpu: queue it, kick whoever should run it. */
    void (*wake)(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why);
    /* A queued vCPU is no longer runnable, or leaves v->cpu: off the queue. May be NULL: there is none, and
     * `pick` looks at v->queued of all. */
    void (*sleep)(struct sched_pool *p, struct sched_vcpu *v);
    void (*yield)(struct sched_pool *p, struct sched_vcpu *v); /* the current one; may be NULL */
    /* Charge `current` (idle: NULL) up to now, put it back if it is sched_runnable(), take and return the
     * next. Only a current vCPU that is no more than blocked may be kept although it cannot run. */
    struct sched_pick (*pick)(struct sched_pool *p, u32 cpu, struct sched_vcpu *current);
    /* The pCPU for v, within p->cpus and its affinity (their meeting is not empty). v is not queued; the core
     * assigns it there. */
    u32 (*place)(struct sched_pool *p, struct sched_vcpu *v);
    /* The state of v is in memory: other pCPUs may take it, if it is queued. May be NULL. */
    void (*saved)(struct sched_pool *p, struct sched_vcpu *v);
    /* v->affinity has changed, and v->cpu is still within it. May be NULL. */
    void (*affinity)(struct sched_pool *p, struct sched_vcpu *v);
    /* A timer of the policy, set by sched_timer_set, fired. May be NULL. */
    void (*timer)(struct sched_pool *p, u32 cpu, u32 kind);
    /* A parameter was set, or (NULL) all the pool's were by a preset: take it into use. With a
     * parameter the pool's turbo pool, if it has one, is locked, too. -EINVAL and *why, a
     * sentence, if it does not go with the others; its old value is then put back. May be NULL. */
    int (*changed)(struct sched_pool *p, const struct param *e, const char **why);
    /* A pCPU may idle though a vCPU is ready that may run there: build/sim -C then does not complain. */
    bool not_work_conserving;
    /* The policy can run a turbo pool and its regular one: timers of kind SCHED_TIMER_BOTH of the latter have
     * the locks of both. */
    bool pairs;
    const char *(*conflict)(
        const struct sched_pool *p); /* with `pairs`: why p cannot be in a pair; NULL: it can */
    /* d->io, whether the VM is I/O-intensive, has changed. May be NULL. */
    void (*label)(struct sched_pool *p, struct sched_dom *d);
    /* Adds to *out what it has to say of v. May be NULL. */
    void (*view)(struct sched_pool *p, struct sched_vcpu *v, struct sched_times *out);
};

extern const struct sched_policy credit_policy, null_policy;
extern const struct sched_policy *const sched_policies[]; /* NULL at the end */

/* ---- the core's services for policies ---- */

#define SCHED_TIMERS     4
#define SCHED_TIMER_BOTH 1

struct sched_cpu {
    /* under sched_lock and the pool's lock */
    struct sched_pool *pool; /* NULL: free, and then idle */
    bool online, leaving;    /* leaving: no longer in pool->cpus, but not yet rid of its last vCPU */
    u64 priv[SCHED_PRIV];
    /* under the pool's lock; `current` is changed by the CPU itself alone */
    struct sched_vcpu *current;
    struct sched_vcpu idle;
    struct timer slice; /* set and run by the CPU itself alone */
    struct policy_timer {
        struct timer t;
        u32 cpu, kind;
        bool armed;
    } timer[SCHED_TIMERS];
};
extern struct sched_cpu sched_cpus[TAKT_MAX_CPUS];

static inline struct sched_vcpu *sched_current_locked(u32 cpu) { /* NULL: idle */
    struct sched_vcpu *v = sched_cpus[cpu].current;

    return sched_is_idle(v) ? NULL : v;
}

/* A VM's vCPUs; the VMs of a pool are in its list `doms`, by in_pool. */
#define for_each_vcpu(v, d)                                                                                  \
    for (u32 v##_at = 0; v##_at < (d)->nr_vcpus; v##_at++)                                                   \
        for (struct sched_vcpu *v = (d)->vcpu[v##_at]; v; v = NULL)

static inline bool sched_runnable(const struct sched_vcpu *v) {
    return !v->blocked && !v->parked && !v->migrating && v->dom->paused == 0;
}

/* Within affinity and pool, and its state is saved, or held by `cpu` itself. */
static inline bool sched_may_run(const struct sched_pool *p, const struct sched_vcpu *v, u32 cpu) {
    return cpumask_test(&v->affinity, cpu) && cpumask_test(&p->cpus, cpu) &&
           (v->on_cpu == SCHED_NO_CPU || v->on_cpu == cpu);
}

/* The pCPUs of the pool that v may use. */
static inline struct cpumask sched_allowed(const struct sched_pool *p, const struct sched_vcpu *v) {
    return cpumask_and(&v->affinity, &p->cpus);
}

static inline u32 sched_who(const struct sched_vcpu *v) {
    return v->dom ? v->dom->id << 16 | v->id : 0xffff0000u | v->id;
}

/* A record of class TRACE_CLASS_SCHED; v may be NULL. A macro: arguments cost nothing while that is off. */
void sched_trace_slow(const struct sched_pool *p, const struct sched_vcpu *v, u16 event, u32 a, u32 b, u64 c);
#define sched_trace(...)                                                                                     \
    do {                                                                                                     \
        if (__builtin_expect(trace_mask & TRACE_CLASS_SCHED, 0)) sched_trace_slow(__VA_ARGS__);              \
    } while (0)

/* Random numbers for the policy: 64 bits, or one from 0 to n - 1 (n > 0). Each pool has a sequence
 * of its own, which follows from the seed of the VM file and the pool's id alone. A replay sees the
 * same numbers, as long as the policy asks for them only in hooks, and its asking depends on
 * nothing but what hooks are told. */
u64 sched_random(struct sched_pool *p);
u64 sched_random_below(struct sched_pool *p, u64 n);

void sched_kick(struct sched_pool *p, u32 cpu); /* that CPU decides anew */
/* Assigns a vCPU that the policy has taken off its queue to the pCPU that is about to run it, e.g. because it
 * steals it. */
void sched_move(struct sched_pool *p, struct sched_vcpu *v, u32 cpu);
/* v may not stay on v->cpu, or had better not: it is placed anew and, if it can run, woken (SCHED_MIGRATE);
 * now or, if its state is on a pCPU, as soon as it is taken off and saved. */
void sched_migrate(struct sched_pool *p, struct sched_vcpu *v);
/* Keep from running, whatever its state; calls sleep or wake. */
void sched_park(struct sched_pool *p, struct sched_vcpu *v, bool parked);

/* Timers of the policy, named by (pCPU, kind); setting one that is set moves it. The core cancels them when
 * the pCPU leaves the pool. */
void sched_timer_set(u32 cpu, u32 kind, u64 when);

/* ---- parameters, for everybody ---- */

/* The entry of `name` for the policy that `pool` runs, NULL if there is none. */
const struct param *param_find(const struct sched_pool *pool, const char *name);
/* All of a pool's entries in turn: index from 0, NULL at the end. */
const struct param *param_at(const struct sched_pool *pool, unsigned index);
/* Is `name` a parameter of any policy: 'p' pool, 'v' VM, 0 no. */
char param_kind(const char *name);
/* All parameters of all policies, by name, for the configuration parser: config_param_at in config.h. */
const char *param_name_at(u32 i, char *scope);
/* `object`: the struct sched_pool or sched_dom. A value with words is their index. Setting is
 * atomic under the pool's lock: 0, or -EINVAL with nothing changed and *why a sentence. */
i64 param_get(const struct param *e, struct sched_pool *pool, const void *object);
int param_set(const struct param *e, struct sched_pool *pool, void *object, i64 value, const char **why);
/* Room for a sentence that tells a person why something cannot be set. All words about what is expected
 * come from here, so that the VM file, the shell, the store and the simulation say the same. */
#define PARAM_WHY 256
/* What the values of `e` are: "a whole number from 1 to 65535 (us)", "tick or time". */
void param_expected(const struct param *e, char text[PARAM_WHY]);
/* Is `text` a value of `e`, in any pool? 0, or -EINVAL and why. */
int param_check(const struct param *e, const char *text, char why[PARAM_WHY]);
/* As param_set, from text: a word of `names`, or a decimal number. -EINVAL: `why` tells parameter and
 * value. */
int param_set_text(const struct param *e, struct sched_pool *pool, void *object, const char *text,
                   char why[PARAM_WHY]);
/* The value as it is shown: a word, or decimal in `number`. */
const char *param_text(const struct param *e, struct sched_pool *pool, const void *object, char number[24]);
/* Parameters of a VM and their values. */
#define PARAM_OF_VM 32u /* at most */
struct param_values {
    u32 nr;
    struct {
        const struct param *param;
        i64 value;
    } of[PARAM_OF_VM];
};
/* Moves a VM as sched_pool_move_dom() does, on WORK_CPU alone, and gives it the parameters that it had,
 * by their names. `lost` then holds those with a value other than 0 that the other pool does not have or
 * refuses. Any error is that of sched_pool_move_dom(), and nothing has changed. */
int param_move_dom(struct sched_pool *to, struct sched_dom *d, struct param_values *lost);
/* Called, perhaps with locks of pools, when something by that name is another one: of a VM, or (d NULL) of
 * the pool; name NULL: all that it has. Beside parameters: a VM's "pool" and "class" (what the monitor says),
 * a pool's "name" and "policy". NULL: nobody listens. */
extern void (*param_hook)(struct sched_pool *p, struct sched_dom *d, const char *name);
static inline void param_changed(struct sched_pool *p, struct sched_dom *d, const char *name) {
    if (param_hook) param_hook(p, d, name);
}
/* NULL: the image has no policy of this name; `why` then tells those that it has. */
const struct sched_policy *sched_policy_find(const char *name, char why[PARAM_WHY]);
/* Sets a named group of pool parameters at once. -ENOENT: there is none of that name; -EINVAL: it does not
 * go with what the pool is, and nothing is changed. */
int param_preset_why(struct sched_pool *pool, const char *preset, char why[PARAM_WHY]);
static inline int param_preset(struct sched_pool *pool, const char *preset) {
    char why[PARAM_WHY];

    return param_preset_why(pool, preset, why);
}

#endif
