/* What a scheduling policy is: one const struct sched_policy, in one file that includes this
 * header and nothing of the machine. docs/writing-a-policy.md tells how to write one. All hooks
 * run under the pool's lock, and p->now is the time. A policy may leave out the hooks marked
 * "may be NULL".
 *
 * A policy keeps the vCPUs of its pool that can run and do not in queues of its own; the core
 * keeps everything else. `pick` returns what is to run. What the policy knows of a pool, a pCPU,
 * a VM and a vCPU is in the `priv` of each.
 *
 * The second half is the parameter table, the only way to set anything about scheduling. The VM
 * file, the command line, the shell and the store all use it, so a value that one of them
 * refuses is refused by all, with the same sentence. */
#ifndef HV_SCHED_POLICY_H
#define HV_SCHED_POLICY_H

#include "sched/sched.h"
#include "trace/trace.h"

struct sched_pick {
    struct sched_vcpu *vcpu; /* NULL: none, the pCPU idles */
    u64 slice;               /* ns until the pCPU has to decide again, or SCHED_NEVER */
};

/* Why a vCPU became runnable. A policy may favour a vCPU that was woken, for example. */
enum sched_why { SCHED_WAKE, SCHED_UNPAUSE, SCHED_UNPARK, SCHED_MIGRATE };

enum param_scope { PARAM_POOL, PARAM_DOM };

/* A parameter: a u32 in the private data of a pool or of a VM. */
struct param {
    const char *name; /* as in the VM file: "weight", "tslice_us" */
    const char *unit; /* "us", "%", "" */
    const char *help; /* one line */
    enum param_scope scope;
    u32 offset;               /* of the value in `priv`, in bytes */
    u32 min, max;             /* both are allowed */
    const char *const *names; /* NULL, or a word for each value from 0 to max, and a NULL */
};

/* The members max and names of a parameter whose values are words. */
#define PARAM_WORDS(...)                                                                           \
    ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ })) - 1, (const char *const[]) {                \
        __VA_ARGS__, NULL                                                                          \
    }

/* The core's own parameters, which the table of every policy has to list. Their values are not
 * in the `priv` of the object but behind it, so their offset is larger than all of a policy's
 * own. */
#define PARAM_OF(type, field) offsetof(struct type, field) - offsetof(struct type, priv)
#define SCHED_VM_PARAMS                                                                            \
    {                                                                                              \
        "route", "",                                                                               \
            "Which vCPU gets an event. fixed: the one that the guest has chosen; spread: each in " \
            "turn; "                                                                               \
            "running: that one if it runs, else one that does.",                                   \
            PARAM_DOM, PARAM_OF(sched_vm, route), 0, PARAM_WORDS("fixed", "spread", "running")     \
    }
#define SCHED_POOL_PARAM(field, unit, help, min, max)                                              \
    { #field, unit, help, PARAM_POOL, PARAM_OF(sched_pool, field), min, max, NULL }
#define SCHED_POOL_PARAMS                                                                          \
    SCHED_POOL_PARAM(io_threshold, "/s", "A VM that gets more events than this is I/O-intensive.", \
                     1, 1000000),                                                                  \
        SCHED_POOL_PARAM(io_window_ms, "ms", "How long events are counted for one rate.", 10,      \
                         10000),                                                                   \
        SCHED_POOL_PARAM(io_smoothing, "%",                                                        \
                         "How much of the rate before is kept in the next. 0: nothing.", 0, 90),   \
        SCHED_POOL_PARAM(                                                                          \
            io_hysteresis, "%",                                                                    \
            "A VM is no longer I/O-intensive when its rate is so far below io_threshold.", 0, 100)

/* A named set of values for all parameters of a pool, such as "faithful-4.2". Setting it copies
 * `values` over the first preset_size bytes of the pool's private data. */
struct sched_preset {
    const char *name;
    const void *values;
};

/* What a pool wants the governor (governor.c) to do for it. */
struct sched_wishes {
    u32 turbo_max;  /* a turbo pool may have up to so many pCPUs; 0: it keeps those that it has */
    u32 turbo_low;  /* % of load below which it gives one back */
    u32 turbo_high; /* % of load above which it wants one more */
    bool auto_io;   /* I/O-intensive VMs shall move to this pool */
};

struct sched_policy {
    const char *name;
    const struct param *params;         /* ends with a NULL name; may be NULL */
    const struct sched_preset *presets; /* ends with a NULL name; may be NULL */
    u32 preset_size;

    /* Called when a pool is created, before it has pCPUs or VMs. May be NULL. */
    void (*pool_init)(struct sched_pool *p);
    void (*cpu_add)(struct sched_pool *p, u32 cpu); /* may be NULL */
    /* Called when a pCPU leaves; its queue is empty by then. May be NULL. */
    void (*cpu_remove)(struct sched_pool *p, u32 cpu);
    void (*vm_add)(struct sched_pool *p, struct sched_vm *d); /* may be NULL */
    /* Called before place(). May be NULL. */
    void (*vcpu_add)(struct sched_pool *p, struct sched_vcpu *v);
    /* Called when a vCPU leaves the pool; it is neither queued nor running. May be NULL. */
    void (*vcpu_remove)(struct sched_pool *p, struct sched_vcpu *v);

    /* v can run from now on, on v->cpu: queue it, and kick the pCPU that should run it. */
    void (*wake)(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why);
    /* A queued vCPU can no longer run, or leaves v->cpu: take it off the queue. May be NULL if the
     * policy has no queues, and its pick() looks at v->queued of all vCPUs. */
    void (*sleep)(struct sched_pool *p, struct sched_vcpu *v);
    /* The current vCPU yields. May be NULL. */
    void (*yield)(struct sched_pool *p, struct sched_vcpu *v);
    /* Decides what `cpu` runs. Charge `current` (NULL if the pCPU idled) for its time up to now,
     * put it back into a queue if it is sched_runnable(), then take the next vCPU off its queue
     * and return it. A vCPU that cannot run may be returned only if it is `current` and nothing
     * but blocked. */
    struct sched_pick (*pick)(struct sched_pool *p, u32 cpu, struct sched_vcpu *current);
    /* Returns the pCPU that v is to be assigned to, one that is both in p->cpus and in its
     * affinity (at least one is). v is not queued. */
    u32 (*place)(struct sched_pool *p, struct sched_vcpu *v);
    /* The state of v is in memory: from now on other pCPUs may take v, if it is queued. May be
     * NULL. */
    void (*saved)(struct sched_pool *p, struct sched_vcpu *v);
    /* v->affinity has changed, and v->cpu is still within it. May be NULL. */
    void (*affinity)(struct sched_pool *p, struct sched_vcpu *v);
    /* A timer that the policy has set by sched_timer_set() is due. May be NULL. */
    void (*timer)(struct sched_pool *p, u32 cpu, u32 kind);
    /* Parameter `e` was set, or (e NULL) all of the pool's were by a preset: take the new values
     * into use. With `e`, the pool's turbo pool, if it has one, is locked as well. Returns 0, or
     * -EINVAL with a sentence in *why if the values do not go together; the core then puts the
     * old value back. May be NULL. */
    int (*changed)(struct sched_pool *p, const struct param *e, const char **why);
    /* With this policy a pCPU may idle although a vCPU is ready that may run there. build/sim -C
     * then does not complain about that. */
    bool not_work_conserving;
    /* The policy can run a pair of a turbo pool and its regular pool. Timers of kind
     * SCHED_TIMER_BOTH of the regular pool are then called with the locks of both pools. */
    bool pairs;
    /* With `pairs`: returns why p cannot be in a pair, a sentence, or NULL if it can. */
    const char *(*conflict)(const struct sched_pool *p);
    /* d->io, whether the VM is I/O-intensive, has changed. May be NULL. */
    void (*label)(struct sched_pool *p, struct sched_vm *d);
    /* Returns whether the VM counts as I/O-intensive, by d->io and by what the administrator has
     * set. May be NULL: then it is d->io. */
    bool (*is_io)(const struct sched_vm *d);
    /* Says what the pool wants of the governor. Called without the pool's lock. May be NULL:
     * nothing. */
    void (*wishes)(const struct sched_pool *p, struct sched_wishes *out);
    /* Fills in those members of *out that only the policy knows. May be NULL. */
    void (*view)(struct sched_pool *p, struct sched_vcpu *v, struct sched_times *out);
};

extern const struct sched_policy credit_policy, null_policy;
extern const struct sched_policy *const sched_policies[]; /* NULL at the end */

/* ---- the core's services for policies: to be called in hooks alone, as they need the pool's
 * lock ---- */

#define SCHED_TIMERS     4
#define SCHED_TIMER_BOTH 1

struct sched_cpu {
    /* under sched_lock and the pool's lock */
    struct sched_pool *pool; /* NULL: it is in none, and idles */
    bool leaving;            /* it is no longer in pool->cpus, but still holds a vCPU of the pool */
    u64 priv[SCHED_PRIV];
    /* under the pool's lock; only the pCPU itself changes `current` */
    struct sched_vcpu *current;
    struct sched_vcpu idle;
    struct timer slice; /* ends the slice; only the pCPU itself sets it and runs it */
    struct policy_timer {
        struct timer t;
        u32 cpu, kind;
        bool armed;
    } timer[SCHED_TIMERS];
};
/* By the number of a pCPU; NULL where the machine has none. */
extern struct sched_cpu *sched_cpus[TAKT_MAX_CPUS];

/* The vCPU that `cpu` runs, or NULL if it idles. The lock of the pCPU's pool is held. */
static inline struct sched_vcpu *sched_current_locked(u32 cpu) {
    struct sched_vcpu *v = sched_cpus[cpu]->current;

    ASSERT_HELD(&sched_cpus[cpu]->pool->lock);
    if (sched_is_idle(v)) return NULL;
    return v;
}

/* Visits the vCPUs of a VM. (The VMs of a pool are in its list `vms`, linked by in_pool.) */
#define for_each_vcpu(v, d)                                                                        \
    for (u32 v##_at = 0; v##_at < (d)->nr_vcpus; v##_at++)                                         \
        for (struct sched_vcpu *v = (d)->vcpu[v##_at]; v; v = NULL)

/* Does nothing keep the vCPU from running: no sleep, no cap, no move to another pCPU, no pause? */
static inline bool sched_runnable(const struct sched_vcpu *v) {
    return !v->blocked && !v->parked && !v->migrating && v->vm->paused == 0;
}

/* May `cpu` run v? It has to be in v's affinity and in the pool, and no other pCPU may hold v's
 * state. */
static inline bool sched_may_run(const struct sched_pool *p, const struct sched_vcpu *v, u32 cpu) {
    return cpumask_test(&v->affinity, cpu) && cpumask_test(&p->cpus, cpu) &&
           (v->on_cpu == SCHED_NO_CPU || v->on_cpu == cpu);
}

/* The pCPUs of the pool that v may use. */
static inline struct cpumask sched_allowed(const struct sched_pool *p, const struct sched_vcpu *v) {
    return cpumask_and(&v->affinity, &p->cpus);
}

/* How a vCPU is called in traces and recordings. */
static inline u32 sched_who(const struct sched_vcpu *v) {
    if (sched_is_idle(v)) return 0xffff0000u | v->id;
    return v->vm->id << 16 | v->id;
}

/* Writes a trace record of class TRACE_CLASS_SCHED; v may be NULL. sched_trace() is a macro so that
 * its arguments are not even computed while that class is off. */
void sched_trace_slow(const struct sched_pool *p, const struct sched_vcpu *v, u16 event, u32 a,
                      u32 b, u64 c);
#define sched_trace(...)                                                                           \
    do {                                                                                           \
        if (__builtin_expect(trace_mask & TRACE_CLASS_SCHED, 0)) sched_trace_slow(__VA_ARGS__);    \
    } while (0)

/* Random numbers: 64 bits, or a number from 0 to n - 1 (n > 0). Each pool has a sequence of its
 * own, which follows from the seed of the VM file and the pool's id alone. A replay sees the
 * same numbers as long as the policy asks for them only in hooks, and as long as nothing but
 * what hooks are told decides whether it asks. */
u64 sched_random(struct sched_pool *p);
u64 sched_random_below(struct sched_pool *p, u64 n);

/* Makes `cpu` decide anew. */
void sched_kick(struct sched_pool *p, u32 cpu);
/* Assigns v, which the policy has taken off its queue, to the pCPU that is about to run it. A
 * policy calls this when one pCPU takes a vCPU that waited on another one. */
void sched_move(struct sched_pool *p, struct sched_vcpu *v, u32 cpu);
/* Sends v away from v->cpu: it is placed anew and, if it can run, woken with SCHED_MIGRATE. That
 * happens now, or, if a pCPU holds its state, as soon as the state has been saved. */
void sched_migrate(struct sched_pool *p, struct sched_vcpu *v);
/* Keeps v from running, or no longer does, whatever else its state is; calls sleep() or wake(). */
void sched_park(struct sched_pool *p, struct sched_vcpu *v, bool parked);
/* Sets the policy's timer (cpu, kind) to `when` (ns); moves it if it is set. The core cancels the
 * timers of a pCPU that leaves the pool. */
void sched_timer_set(u32 cpu, u32 kind, u64 when);

/* ---- parameters, for everybody; the caller holds no lock of a pool ---- */

/* Returns the parameter `name` of the policy that `pool` runs, or NULL if it has none. */
const struct param *param_find(const struct sched_pool *pool, const char *name);
/* Returns the parameter number `index`, from 0, of the policy that `pool` runs; NULL at the end. */
const struct param *param_at(const struct sched_pool *pool, unsigned index);
/* Returns 'p' if some policy has a parameter `name` of pools, 'v' if one of VMs, 0 if none has. */
char param_kind(const char *name);
/* Returns the name of parameter number `i`, counted over all policies, and its kind in *scope;
 * NULL at the end. The configuration parser calls it (config_param_at in config.h). */
const char *param_name_at(u32 i, char *scope);
/* Returns the value of `e` in `object`, a struct sched_pool or sched_vm. A value that has words is
 * the index of its word. */
i64 param_get(const struct param *e, struct sched_pool *pool, const void *object);
/* Sets `e` in `object`, at once for all that look under the pool's lock. Returns 0, or -EINVAL with
 * nothing changed and a sentence in *why. */
int param_set(const struct param *e, struct sched_pool *pool, void *object, i64 value,
              const char **why);
/* Room for a sentence that tells a person why something cannot be set. All words about what is
 * expected come from the functions below, so that the VM file, the shell, the store and the
 * simulation say the same. */
#define PARAM_WHY 256
/* Writes what the values of `e` are: "a whole number from 1 to 65535 (us)", "tick or time". */
void param_expected(const struct param *e, char text[PARAM_WHY]);
/* Is `text` a value that `e` can have in some pool? Returns 0, or -EINVAL with a sentence in
 * `why`. */
int param_check(const struct param *e, const char *text, char why[PARAM_WHY]);
/* As param_set(), from text: a word, or a decimal number. The sentence in `why` names parameter and
 * value. */
int param_set_text(const struct param *e, struct sched_pool *pool, void *object, const char *text,
                   char why[PARAM_WHY]);
/* Returns the value as a person reads it: a word, or a number, which is written to `number`. */
const char *param_text(const struct param *e, struct sched_pool *pool, const void *object,
                       char number[24]);
/* Parameters of a VM, with values. */
#define PARAM_OF_VM 32u /* no policy has more for VMs */
struct param_values {
    u32 nr;
    struct {
        const struct param *param;
        i64 value;
    } of[PARAM_OF_VM];
};
/* Moves a VM as sched_pool_move_vm() does, and then sets those of its former parameters that
 * the new pool's policy has by the same name. In `lost` are afterwards those that the new pool
 * does not have or refuses, unless their value was 0. Runs on WORK_CPU alone. Returns 0, or an
 * error of sched_pool_move_vm(), with nothing changed. */
int param_move_vm(struct sched_pool *to, struct sched_vm *d, struct param_values *lost);
/* Called after something that has a name changed: of the VM `d`, or of the pool if `d` is NULL.
 * If `name` is NULL, anything of it may have changed. Names are those of parameters, and beside
 * them "pool" and "class" (the monitor's label) of a VM, "name" and "policy" of a pool. Locks of
 * pools may be held. NULL: nobody wants to know. */
extern void (*param_hook)(struct sched_pool *p, struct sched_vm *d, const char *name);
/* Calls param_hook, if there is one. */
static inline void param_changed(struct sched_pool *p, struct sched_vm *d, const char *name) {
    if (param_hook) param_hook(p, d, name);
}
/* Returns the policy of that name. If the image has none, returns NULL, and `why` says which it
 * has. */
const struct sched_policy *sched_policy_find(const char *name, char why[PARAM_WHY]);
/* Sets all parameters of a pool to those of a preset, at once. Returns 0, or with nothing
 * changed and a sentence in `why`
 *   -ENOENT  the policy has no preset of that name
 *   -EINVAL  the preset does not go with what the pool is */
int param_preset_why(struct sched_pool *pool, const char *preset, char why[PARAM_WHY]);
/* The same, for callers that need no sentence. */
static inline int param_preset(struct sched_pool *pool, const char *preset) {
    char why[PARAM_WHY];

    return param_preset_why(pool, preset, why);
}

#endif
