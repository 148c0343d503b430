/* The scheduler core: run states and how long they last, slices, switching, affinity, migration,
 * pools. Queues and credit belong to the policies (policy.h).
 *
 * Locks: sched_lock (which pools there are, which pCPU and which VM is in which pool) ->
 * pool->lock (everything about scheduling in that pool). The locks of two pools are taken in the
 * order of their ids. Unless it says otherwise a function here is called without any of them and
 * takes what it needs.
 *
 * Every entry point reads the clock once, under the pool's lock, into pool->now, so that all
 * that one call decides is decided for one instant. With recording on that time is written down
 * together with the call (core.h), so a run can be replayed.
 *
 * Nothing here allocates: what the core and the policies know of a vCPU, a VM, a pCPU and a pool
 * is in the structures below.
 *
 * Neither this header nor any other file of hv/sched but machine.c includes an x86 header,
 * because the simulation on the host compiles the same sources. */
#ifndef HV_SCHED_SCHED_H
#define HV_SCHED_SCHED_H

#include "common/hist.h"
#include "lib/cpumask.h"
#include "lib/list.h"
#include "lib/spinlock.h"
#include "lib/timerq.h"

#define SCHED_NEVER     (~0ull) /* a slice without end */
#define SCHED_NO_CPU    (~0u)
#define SCHED_MAX_POOLS 32
#define POOL_NAME       32
/* Set in the id of that part of a VM which is in a turbo pool. */
#define SCHED_TURBO 0x8000
/* Words that a policy has in each object for data of its own, four sets of pCPUs among them. They
 * are 0 when the object comes to it. */
#define SCHED_PRIV (40 + 4 * CPUMASK_WORDS)

/* The values are those of enum takt_state, in which guests see them. */
enum run_state { RS_RUNNING, RS_RUNNABLE, RS_BLOCKED, RS_OFFLINE, RS_NR };

struct sched_vcpu {
    /* set by sched_vcpu_init, then constant */
    struct sched_vm *vm; /* NULL: an idle vCPU */
    u32 id;
    /* under the pool's lock */
    u32 cpu; /* the pCPU that it is assigned to */
    /* The pCPU whose registers hold its state, or SCHED_NO_CPU if the state has been saved in
     * memory. No other pCPU may run the vCPU before that: it would run on with old registers. */
    u32 on_cpu;
    enum run_state state;
    /* The guest has halted it, or it waits for an event. Pausing is apart from this. Written
     * under the lock; also read without it, so always atomically. */
    bool blocked;
    bool parked;    /* the policy keeps it from running, because of a cap */
    bool migrating; /* it will be moved as soon as its state has been saved */
    bool queued;    /* it can run, does not run, and is in the policy's hands */
    struct cpumask affinity;
    u64 since;           /* ns: when it entered `state` */
    u64 state_ns[RS_NR]; /* ns spent in each state, without the time since `since` */
    /* ns: when a wake made it runnable; 0 if it has run since, or sleeps */
    u64 woken_at;
    struct hist wake_latency; /* ns from a wake until it runs */
    u64 switches;             /* how often a pCPU switched to it */
    u64 wakes, migrations;
    u64 preemptions; /* how often another vCPU got its pCPU before its slice was over */
    u64 boosts;      /* how many of its wakes the policy boosted */
    u64 grants;      /* how often the policy granted it credit */
    u64 granted_ns;  /* and how much in all */
    bool yielded;    /* it has yielded since it was picked */
    u64 priv[SCHED_PRIV];
};

struct sched_vm {
    u32 id;
    const char *name;        /* owned by the caller, constant */
    struct sched_pool *pool; /* NULL before sched_vm_init() and after sched_vm_fini() */
    struct list in_pool;
    u32 nr_vcpus;             /* 1 + the number of the last vCPU that exists */
    struct sched_vcpu **vcpu; /* an array of the caller; NULL where a vCPU is gone */
    struct sched_vm *peer;    /* the other part of a VM that has one in a turbo pool; else NULL */
    u32 paused;               /* no vCPU runs while this count is not 0 */
    /* The I/O monitor's (monitor.c). */
    bool io;       /* the VM is labelled I/O-intensive */
    u64 io_rate;   /* events in 1000 s, smoothed */
    u64 io_doubt;  /* us since when the VM claims more events than Takt sees */
    u64 io_events; /* events of this window that Takt saw; changed atomically, without a lock */
    u64 io_report; /* events of this window that the VM reported; likewise */
    bool io_says;  /* the VM's driver says that it is I/O-intensive; likewise */
    u64 priv[SCHED_PRIV];
    /* A parameter of every policy: which vCPU gets an event, enum sched_route. */
    u32 route;
};

enum sched_route {
    ROUTE_FIXED,  /* the vCPU that the event is bound to */
    ROUTE_SPREAD, /* each vCPU in turn */
    /* the one that it is bound to if that runs, else one that does, else the first again */
    ROUTE_RUNNING
};

/* Pools live in a static table. So a pool that was found without sched_lock is still memory of a
 * pool when its lock has been taken, and the caller can then look whether it is the one that it
 * wants. */
struct sched_pool {
    u32 id;
    char name[POOL_NAME];
    const struct sched_policy *policy; /* NULL: this entry of the table is free */
    struct spinlock lock;
    struct cpumask cpus;
    u32 nr_cpus;           /* how many `cpus` has */
    struct cpumask idlers; /* those of `cpus` whose current vCPU is the idle one */
    struct list vms;
    u32 nr_vms;
    struct sched_pool *turbo;   /* its turbo pool, or NULL; changes under the locks of both */
    struct sched_pool *regular; /* of a turbo pool: the pool that it serves; else NULL */
    u32 rotor;                  /* where the search for a pCPU for the next new vCPU begins */
    u32 sequence;               /* number of the last input, for recordings */
    u64 random;                 /* state of sched_random() */
    u64 now;                    /* ns: when the lock was last taken; never goes back */
    u64 window_start;           /* monitor.c */
    struct timer window;
    u64 priv[SCHED_PRIV];
    /* Parameters of every policy, for monitor.c. */
    u32 io_threshold;  /* events a second */
    u32 io_window_ms;  /* ms */
    u32 io_smoothing;  /* % */
    u32 io_hysteresis; /* % */
};

/* ---- start-up and CPUs ---- */

/* Forgets everything. There is no pool yet; the first one that is created becomes Pool-0. */
void sched_init(void);
/* Sets the seed of the random numbers of pools that are created from now on. 0 after
 * sched_init(). */
void sched_set_seed(u64 seed);
/* Brings a pCPU to the scheduler: in no pool, with its idle vCPU as the current one. `c` is memory
 * for what the scheduler knows of it (policy.h), which stays in use until sched_init(). Returns 0,
 * or -EINVAL if there can be no such pCPU or it is known already. */
struct sched_cpu;
int sched_cpu_online(u32 cpu, struct sched_cpu *c);
/* Returns the vCPU that `cpu` is to run from now on, its idle vCPU if none can run, and sets the
 * timer that ends the slice. The pCPU itself calls this: after it was kicked, or after its
 * current vCPU blocked, yielded or was paused. It has to clear the request (need_resched) before
 * the call, never after it: each call lets vCPUs of equal rank take turns, so a needless second
 * call would cost the new vCPU its slice.
 *
 * Never returns a vCPU whose state another pCPU still holds. In a pool that runs `null` with
 * `sleepless` it may return a vCPU that is `blocked`: the pCPU then halts with that vCPU's state
 * loaded, until the vCPU is woken. */
struct sched_vcpu *sched_run(u32 cpu);
/* Says that the state of `prev` has been saved, so that other pCPUs may run it; carries out a
 * migration that waited for that. To be called after sched_run() has returned another vCPU, and
 * before it is called again. */
void sched_saved(u32 cpu, struct sched_vcpu *prev);
/* The vCPU that `cpu` runs. Takes no lock, so of another pCPU it may be out of date at once. */
struct sched_vcpu *sched_current(u32 cpu);
static inline bool sched_is_idle(const struct sched_vcpu *v) { return v->vm == NULL; }

/* ---- VMs ---- */

/* Adds a VM without vCPUs to `pool`, paused once. `name` and the array `vcpu` stay the caller's
 * and have to live as long as `d`. Returns 0, or -EINVAL if the pool is gone. */
int sched_vm_init(struct sched_vm *d, u32 id, const char *name, struct sched_vcpu **vcpu,
                  struct sched_pool *pool);
/* Adds the second part of the VM `d`, the one that holds its turbo vCPU, to the turbo pool of
 * d's pool: with SCHED_TURBO in its id, and paused once. It has to end before `d` does. Returns
 * 0, or -EINVAL if d's pool has no turbo pool. */
int sched_vm_init_turbo(struct sched_vm *t, struct sched_vm *d, struct sched_vcpu **vcpu);
/* Takes a VM out of its pool. All its vCPUs have to be gone. */
void sched_vm_fini(struct sched_vm *d);
/* Adds vCPU `id`, which has to be the next number, in the blocked state. Returns 0, or -EINVAL if
 * `affinity` has no pCPU of the pool. */
int sched_vcpu_init(struct sched_vcpu *v, struct sched_vm *d, u32 id,
                    const struct cpumask *affinity);
/* Removes a vCPU. No pCPU may hold its state: pause the VM first, and wait for
 * sched_vm_stopped(). */
void sched_vcpu_fini(struct sched_vcpu *v);
/* Keeps all vCPUs of the VM from running and kicks the pCPUs that run one. Calls are counted. */
void sched_pause(struct sched_vm *d);
/* Undoes one sched_pause(). Returns 0, or -EINVAL if the VM is not paused. */
int sched_unpause(struct sched_vm *d);
/* Is the VM paused, and does no pCPU hold the state of one of its vCPUs any more? */
bool sched_vm_stopped(struct sched_vm *d);
/* Returns 0, or -EINVAL with nothing changed if `m` has no pCPU of the pool. */
int sched_set_affinity(struct sched_vcpu *v, const struct cpumask *m);

/* ---- what vCPUs do ---- */

/* Wakes a vCPU. May be called from anywhere. A wake of one that is awake does no harm and takes
 * no lock. The caller has first written down what `v` is woken for, with a full barrier behind
 * that write; see sched_block(). */
void sched_wake(struct sched_vcpu *v);
/* The current vCPU wants to sleep. After the call the caller executes a full barrier and looks
 * whether something is pending for the vCPU after all; if so it calls sched_wake(). Then it
 * calls sched_run(). Since both sides write before they read, at least one of them sees what the
 * other has written, and no wake is lost (docs/architecture.md, "Why no wake is lost"). */
void sched_block(struct sched_vcpu *v);
/* Does it sleep? Takes no lock. The answer may be out of date, unless the caller is the vCPU's
 * own pCPU or has a barrier as above. */
static inline bool sched_blocked(const struct sched_vcpu *v) {
    return __atomic_load_n(&v->blocked, __ATOMIC_RELAXED);
}
/* The current vCPU lets others go first: a hint for the next sched_run(). */
void sched_yield(struct sched_vcpu *v);

/* Counts `n` events that others (its devices, other VMs) raised for a VM. May be called from
 * anywhere, and takes no lock. */
void sched_io_events(struct sched_vm *d, u32 n);
/* Counts `n` events that the VM reports and nobody else saw. The same. */
void sched_io_report(struct sched_vm *d, u32 n);
/* Notes whether the VM's driver says that the VM is I/O-intensive. The same. */
void sched_io_says(struct sched_vm *d, bool io);

/* ---- pools ---- */

/* Creates a pool without pCPUs and returns it in *out. Returns
 *   0
 *   -EINVAL  there is no such policy, or the name is not valid
 *   -EEXIST  there is a pool of that name
 *   -ENOSPC  there are SCHED_MAX_POOLS pools */
int sched_pool_create(const char *name, const char *policy, struct sched_pool **out);
/* Returns 0, or -EBUSY while the pool has VMs, pCPUs or a turbo pool, or is one. Always -EBUSY for
 * Pool-0. */
int sched_pool_destroy(struct sched_pool *p);
/* Makes `t` the turbo pool of `p` (vTurbo): VMs of `p` may have a turbo vCPU there, and the two
 * pools divide CPU time together. With `p` NULL, `t` is nobody's turbo pool any more. Returns
 *   0
 *   -EINVAL  a policy of the two, or a setting, does not allow it, or `t` is not the newer pool
 *   -EBUSY   one of them is in a pair already, or `t` has VMs
 * After an error *why is a sentence for the operator, and nothing has changed. */
int sched_pool_pair_why(struct sched_pool *t, struct sched_pool *p, const char **why);
/* The same, for callers that need no sentence. */
static inline int sched_pool_pair(struct sched_pool *t, struct sched_pool *p) {
    const char *why;

    return sched_pool_pair_why(t, p, &why);
}
/* Returns 0, -EINVAL if the name is not valid, or -EEXIST if another pool has it. */
int sched_pool_rename(struct sched_pool *p, const char *name);
/* Returns 0, -ENODEV if there is no such pCPU, or -EBUSY if it is in a pool. */
int sched_pool_add_cpu(struct sched_pool *p, u32 cpu);
/* Takes a pCPU out of its pool. Returns
 *   0
 *   -EINVAL  it is not in this pool
 *   -EBUSY   it is the last pCPU of a pool that has VMs, or CPU 0 of Pool-0
 *   -EAGAIN  it still holds a vCPU. It takes no new ones, and those that waited there have been
 *            sent elsewhere: call again until the result is another one
 * A vCPU that could run nowhere else loses its affinity. */
int sched_pool_remove_cpu(struct sched_pool *p, u32 cpu);
/* Moves a VM to another pool. Its parameters go back to their defaults (param_move_vm() keeps
 * them) and its vCPUs' affinity to all pCPUs. Returns 0, or with nothing changed
 *   -EINVAL  the pool has no pCPU
 *   -EAGAIN  a pCPU holds the state of one of its vCPUs: pause the VM and try again
 *   -EBUSY   the VM has a part in a turbo pool */
int sched_pool_move_vm(struct sched_pool *p, struct sched_vm *d);
/* The pool of that name, or NULL. */
struct sched_pool *sched_pool_find(const char *name);
/* The pool that a pCPU is in, or NULL if it is in none. */
struct sched_pool *sched_pool_of_cpu(u32 cpu);
/* The pool after `after`, the first one if that is NULL; NULL at the end. */
struct sched_pool *sched_pool_next(struct sched_pool *after);

/* ---- reading ---- */

struct sched_times {
    u64 state_ns[RS_NR]; /* ns in each state, up to now */
    enum run_state state;
    u32 cpu;
    u64 switches, wakes, migrations, preemptions;
    u64 boosts, grants, granted_ns;               /* 0 if the policy has no such thing */
    u64 wake_p50, wake_p99, wake_max, wake_count; /* ns from a wake until it runs */
    /* What the vCPU's policy says of it; 0 or "" if the policy has no such thing. */
    const char *kind; /* LS or NL (vSlicer), io (labelled), LS+io, turbo */
    u64 micro_ns;     /* length of its micro-slice */
    /* how much its VM used of turbo cores in the last period, 1/10000 of a pCPU */
    u64 turbo_pct;
    /* credit that sharing gave to its VM in the last period (below 0: took from it) */
    i64 moved_ns;
    u32 boost; /* level of its boost */
};
void sched_times(struct sched_vcpu *v, struct sched_times *out);
/* Forgets the times from wake to run that were measured so far. */
void sched_reset_latency(struct sched_vcpu *v);
/* Called at every change of state of a vCPU of a VM, with the pool's lock held. It publishes the
 * vCPU's info page. NULL: there is no such function. */
extern void (*sched_state_hook)(struct sched_vcpu *v, u64 now);

#endif
