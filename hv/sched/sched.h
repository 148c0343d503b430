/* The scheduler core: run states and their times, slices, switching, affinity, migration, pools. Policies own
 * queues and credit (policy.h).
 *
 * Locks: sched_lock (pools, which CPU and which VM is in which) -> pool->lock (everything about scheduling in
 * that pool). Two pool locks are taken in the order of their ids. Callers hold none. Every entry point reads
 * the clock once, under the lock, into pool->now; with recording on it is written down as an input (core.h),
 * so a run can be replayed.
 *
 * Nothing here allocates: what the core and the policies know of a vCPU, a VM, a pCPU and a pool is in these
 * structures.
 *
 * This header and all of hv/sched include no x86 header: the simulation on the host compiles the same
 * sources.
 */
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
#define SCHED_TURBO     0x8000 /* in the id of the part of a VM that is in a turbo pool */
#define SCHED_PRIV      56 /* words of room for what the policy knows of an object; 0 when that comes to it */

enum run_state { RS_RUNNING, RS_RUNNABLE, RS_BLOCKED, RS_OFFLINE, RS_NR }; /* as enum takt_state */

struct sched_vcpu {
    /* set by sched_vcpu_init, then constant */
    struct sched_dom *dom; /* NULL: an idle vCPU */
    u32 id;
    /* under the pool's lock */
    u32 cpu;    /* the pCPU it is assigned to */
    u32 on_cpu; /* the pCPU that holds its state, SCHED_NO_CPU once saved: nobody else may run it before */
    enum run_state state;
    /* Halted or waiting: what the guest asked for, apart from pausing. Written under the lock; also
     * read without it, so atomically. */
    bool blocked;
    bool parked;    /* kept from running by the policy (a cap) */
    bool migrating; /* to be moved as soon as its state is saved */
    bool queued;    /* runnable, not running, handed to the policy */
    struct cpumask affinity;
    u64 since;                /* when `state` was entered */
    u64 state_ns[RS_NR];      /* without the time since then */
    u64 woken_at;             /* when it became runnable by a wake; 0 otherwise */
    struct hist wake_latency; /* from wake to run, ns */
    u64 switches;             /* times it was switched to */
    u64 wakes, migrations;
    u64 preemptions;        /* times another one got its pCPU before its slice was over */
    u64 boosts;             /* wakes that the policy boosted */
    u64 grants, granted_ns; /* times the policy granted it credit, and how much */
    bool yielded;           /* since it was picked */
    u64 priv[SCHED_PRIV];   /* the policy's */
};

struct sched_dom {
    u32 id;
    const char *name;        /* the caller's, constant */
    struct sched_pool *pool; /* NULL before sched_dom_init and after sched_dom_fini */
    struct list in_pool;
    u32 nr_vcpus;             /* up to the last one that exists */
    struct sched_vcpu **vcpu; /* the caller's array; NULL where a vCPU is gone */
    struct sched_dom *peer;   /* the VM's other part, where one is in a turbo pool; NULL */
    u32 paused;               /* count: no vCPU runs while it is not 0 */
    bool io;                  /* labelled I/O-intensive (monitor.c) */
    u64 io_rate;              /* events in 1000 s, smoothed */
    u64 io_doubt;             /* us that the VM has said more than Takt sees */
    u64 io_events, io_report; /* in this window, atomically: seen, and told by the VM */
    bool io_says;             /* what its driver says, atomically */
    u64 priv[SCHED_PRIV];
    /* a parameter of every policy: which vCPU takes an event, enum sched_route */
    u32 route;
};

/* The one that it is bound to; each in turn; one that runs, else the one that it is bound to. */
enum sched_route { ROUTE_FIXED, ROUTE_SPREAD, ROUTE_RUNNING };

/* Pools live in a static table, so that a pool that was found a moment ago can be locked, and looked at
 * again, without holding sched_lock. */
struct sched_pool {
    u32 id;
    char name[POOL_NAME];
    const struct sched_policy *policy; /* NULL: this entry of the table is free */
    struct spinlock lock;
    struct cpumask cpus, idlers; /* idlers: members whose current vCPU is idle */
    struct list doms;
    u32 nr_doms;
    struct sched_pool *turbo;   /* its turbo pool; NULL. Changes under both locks */
    struct sched_pool *regular; /* a turbo pool's: the one that it serves; NULL */
    u32 rotor;                  /* where the next new vCPU is put */
    u32 sequence;               /* of the last input, for recording */
    u64 random;                 /* state of sched_random() */
    u64 now;                    /* when the lock was last taken; does not go back */
    u64 window_start;           /* monitor.c */
    struct timer window;
    u64 priv[SCHED_PRIV];
    /* parameters of every policy: events a second, ms, %, % (monitor.c) */
    u32 io_threshold, io_window_ms, io_smoothing, io_hysteresis;
};

/* ---- start-up and CPUs ---- */
void sched_init(void);         /* Pool-0 does not exist yet: the first pool created is it */
void sched_set_seed(u64 seed); /* of the random numbers of pools created from now on; 0 after sched_init */
int sched_cpu_online(u32 cpu); /* free, with its idle vCPU current */
/* The vCPU that is to run on `cpu` from now on, an idle one if nothing can; sets the slice timer. Called by
 * the pCPU itself when it was kicked for it, or its current vCPU blocked, yielded or was paused. The request
 * (need_resched) is cleared before the call, never after: each call lets equals take turns, so one too many
 * costs the new vCPU its slice. Never returns a vCPU whose state another pCPU still holds.
 * A pool that runs `null` with `sleepless` gets back a vCPU that is `blocked`: the pCPU then halts in place,
 * its state loaded, until the vCPU is woken. */
struct sched_vcpu *sched_run(u32 cpu);
/* The state of `prev` is saved; completes a migration that waited for that. After sched_run returned another
 * vCPU and before it is called again. */
void sched_saved(u32 cpu, struct sched_vcpu *prev);
struct sched_vcpu *sched_current(u32 cpu);
static inline bool sched_is_idle(const struct sched_vcpu *v) { return v->dom == NULL; }

/* ---- VMs ---- */
/* Adds a dom without vCPUs to `pool`, paused once. -EINVAL: the pool is gone. */
int sched_dom_init(struct sched_dom *d, u32 id, const char *name, struct sched_vcpu **vcpu,
                   struct sched_pool *pool);
/* The part of the VM of `d` that holds its turbo vCPU: in the turbo pool of d's pool, with SCHED_TURBO in its
 * id, paused once. -EINVAL: there is none. Ends before d does. */
int sched_dom_init_turbo(struct sched_dom *t, struct sched_dom *d, struct sched_vcpu **vcpu);
void sched_dom_fini(struct sched_dom *d); /* after all its vCPUs are gone */
/* Adds vCPU `id` (the next number), blocked. `affinity` must meet the pool's CPUs: -EINVAL otherwise. */
int sched_vcpu_init(struct sched_vcpu *v, struct sched_dom *d, u32 id, const struct cpumask *affinity);
/* It must not be on a pCPU: pause first and wait for sched_dom_stopped. */
void sched_vcpu_fini(struct sched_vcpu *v);
void sched_pause(struct sched_dom *d);       /* counts; its pCPUs are kicked */
int sched_unpause(struct sched_dom *d);      /* -EINVAL if it is not paused */
bool sched_dom_stopped(struct sched_dom *d); /* paused, and no pCPU holds the state of one of its vCPUs */
int sched_set_affinity(struct sched_vcpu *v, const struct cpumask *m); /* -EINVAL: misses the pool's CPUs */

/* ---- what vCPUs do ---- */
/* From anywhere; redundant wakes are harmless, and take no lock while v does not sleep. The caller
 * has first written down what v is woken for, with a full barrier behind it. */
void sched_wake(struct sched_vcpu *v);
/* The current vCPU wants to sleep. The caller then has a full barrier, looks whether something is
 * pending after all, and if so wakes it; then sched_run. So of who wakes and who falls asleep one
 * sees what the other wrote, and no wake is lost. */
void sched_block(struct sched_vcpu *v);
/* Does it sleep? Takes no lock: the answer may be old unless the caller is its pCPU, or has a
 * barrier as above. */
static inline bool sched_blocked(const struct sched_vcpu *v) {
    return __atomic_load_n(&v->blocked, __ATOMIC_RELAXED);
}
void sched_yield(struct sched_vcpu *v); /* a hint for the next sched_run */

/* Others raised n events for a VM: its devices, or other VMs. From anywhere, without a lock. */
void sched_io_events(struct sched_dom *d, u32 n);
/* A VM tells of n that nobody saw, or that it is I/O-intensive. The same. */
void sched_io_report(struct sched_dom *d, u32 n);
void sched_io_says(struct sched_dom *d, bool io);

/* ---- pools ---- */
/* -EEXIST name, -EINVAL unknown policy or bad name, -ENOSPC. Without CPUs. */
int sched_pool_create(const char *name, const char *policy, struct sched_pool **out);
/* -EBUSY while it has VMs, CPUs or a turbo pool or is one, and always for Pool-0. */
int sched_pool_destroy(struct sched_pool *p);
/* Makes t the turbo pool of p (vTurbo): VMs of p may have a turbo vCPU there, and the two divide CPU time
 * together. NULL: of none. -EINVAL unless both run a policy that can with the settings that they have, and
 * t was created after p; -EBUSY if one of them is in such a pair already, or t has VMs. */
int sched_pool_pair_why(struct sched_pool *t, struct sched_pool *p, const char **why); /* *why: a sentence */
static inline int sched_pool_pair(struct sched_pool *t, struct sched_pool *p) {
    const char *why;

    return sched_pool_pair_why(t, p, &why);
}
int sched_pool_rename(struct sched_pool *p, const char *name);
int sched_pool_add_cpu(struct sched_pool *p, u32 cpu); /* -EBUSY if it is in a pool; -ENODEV */
/* -EBUSY last one with VMs, or Pool-0's CPU 0; -EINVAL not in this pool. -EAGAIN: its vCPUs have been sent
 * elsewhere, and it takes no more, but is not yet rid of the current one: call again until it is 0. A vCPU
 * that could run nowhere else loses its affinity. */
int sched_pool_remove_cpu(struct sched_pool *p, u32 cpu);
/* -EINVAL no CPU there; -EAGAIN a vCPU is still on a pCPU (pause the VM, try again): nothing changed.
 * Parameters go back to their defaults, affinity to all; see param_move_dom(). */
int sched_pool_move_dom(struct sched_pool *p, struct sched_dom *d);
struct sched_pool *sched_pool_find(const char *name);
struct sched_pool *sched_pool_of_cpu(u32 cpu);                /* NULL: free */
struct sched_pool *sched_pool_next(struct sched_pool *after); /* NULL: the first; returns NULL at the end */

/* ---- reading ---- */
struct sched_times {
    u64 state_ns[RS_NR]; /* with the time since `since` added */
    enum run_state state;
    u32 cpu;
    u64 switches, wakes, migrations, preemptions;
    u64 boosts, grants, granted_ns;               /* 0 if the policy has no such thing */
    u64 wake_p50, wake_p99, wake_max, wake_count; /* ns */
    /* what its policy says of it; 0 and "" where that has no meaning */
    const char *kind; /* LS or NL (vSlicer), io (labelled), LS+io, turbo */
    u64 micro_ns;     /* its micro-slice */
    u64 turbo_pct;    /* what its VM used of turbo cores in the last period, 1/10000 of a pCPU */
    i64 moved_ns;     /* credit that sharing gave to its VM in the last period, or took */
    u32 boost;        /* level */
};
void sched_times(struct sched_vcpu *v, struct sched_times *out);
void sched_reset_latency(struct sched_vcpu *v);
/* Called under the pool's lock at every change of state of a VM's vCPU (hv/vcpu publishes its info page
 * with it). NULL: none. */
extern void (*sched_state_hook)(struct sched_vcpu *v, u64 now);

#endif
