/* The scheduler core, which all policies share: the states of vCPUs, switching, waking, blocking,
 * pausing, affinity (which pCPUs a vCPU may use), migration to another pCPU. A pool is a set of
 * pCPUs with a policy, the code that decides which vCPU runs next and for how long; VMs belong to a
 * pool. A vCPU is "current" on the pCPU that runs it, "queued" if it waits in the policy's queue,
 * "blocked" if it sleeps, and "parked" if its VM has used up its cap. Before each input,
 * record_input() writes it to the trace, so that a simulation can replay all decisions.
 *
 * Flags say what a vCPU may do: blocked, parked, migrating, and its VM's pause count. After each
 * change of a flag sched_update() draws the consequences for the vCPU's state and for the policy's
 * queue. A vCPU that is current on a pCPU is the exception: its registers are in that pCPU, so
 * nobody else touches it. The pCPU is kicked (interrupted), and its sched_run() takes the vCPU
 * off. */
#include <takt/errno.h>
#include "common/string.h"
#include "sched/core.h"
#include "sched/machine.h"

struct spinlock sched_lock;
struct sched_cpu *sched_cpus[TAKT_MAX_CPUS];
void (*sched_state_hook)(struct sched_vcpu *v, u64 now);

/* Locks the pool that *where points to, and returns it; returns NULL, with nothing locked, if there
 * is none. `where` is the member `pool` of a VM or of a pCPU. The pool of a VM or of a pCPU changes
 * only under the locks of both pools. So if *where still names this pool when its lock has been
 * taken, it will not change until the lock is given back. The pool's time `now` is brought up to
 * the present; it stays the same while the lock is held. */
struct sched_pool *sched_enter(struct sched_pool *const *where) {
    struct sched_pool *p;

    while ((p = __atomic_load_n(where, __ATOMIC_ACQUIRE))) {
        spin_lock(&p->lock);
        if (__atomic_load_n(where, __ATOMIC_RELAXED) == p) {
            u64 now = machine_now();

            if (now > p->now) p->now = now;
            return p;
        }
        spin_unlock(&p->lock);
    }
    return NULL;
}

/* ---- tracing and recording ---- */

static u32 sequence; /* number of the last input to any pool */
static u32 nr_known; /* 1 + the highest pCPU that the scheduler was told of */

/* Writes a trace record about a vCPU of the pool. */
void sched_trace_slow(const struct sched_pool *p, const struct sched_vcpu *v, u16 event, u32 a,
                      u32 b, u64 c) {
    trace_write(machine_cpu(), p->now, event, v ? sched_who(v) : TRACE_NOBODY, a, b, (u32)c,
                (u32)(c >> 32));
}

/* Writes a record of an input to the scheduler, or of its decision, by which a run can be
 * replayed. */
void sched_record(struct sched_pool *p, u16 event, u32 kind, u32 who, u32 small, u64 arg) {
    /* The pool that stands for "no pool" has no lock. */
    if (p->id < SCHED_MAX_POOLS) ASSERT_HELD(&p->lock);
    if (event == TRC_SCHED_INPUT && kind != IN_WORD)
        p->sequence = __atomic_add_fetch(&sequence, 1, __ATOMIC_RELAXED);
    trace_write(machine_cpu(), p->now, event, who, kind | p->id << 8 | small << 16, p->sequence,
                (u32)arg, (u32)(arg >> 32));
}

/* Writes a record of an input that has a set of pCPUs. A record has room for one word of the set,
 * so further words follow in records of their own. Words whose pCPUs this machine does not have are
 * left out, because nothing depends on them. */
void sched_record_set(struct sched_pool *p, u32 kind, u32 who, const struct cpumask *m) {
    sched_record(p, TRC_SCHED_INPUT, kind, who, 0, m->word[0]);
    for (u32 w = 1; w * CPUMASK_WORD < nr_known; w++)
        sched_record(p, TRC_SCHED_INPUT, IN_WORD, who, w, m->word[w]);
}

/* ---- states ---- */

/* Changes the state of a vCPU, and adds the time that it has spent in the old state to the sum for
 * that state. */
static void set_run_state(struct sched_pool *p, struct sched_vcpu *v, enum run_state state) {
    u64 spent = p->now - v->since;

    if (state == v->state) return;
    sched_trace(p, v, TRC_RUNSTATE, v->state, state, spent);
    v->state_ns[v->state] += spent;
    v->since = p->now;
    v->state = state;
    if (sched_state_hook && !sched_is_idle(v)) sched_state_hook(v, p->now);
}

/* Returns the state of a vCPU that is not running. */
static enum run_state state_off_cpu(const struct sched_vcpu *v) {
    if (v->blocked) return RS_BLOCKED;
    if (v->parked) return RS_OFFLINE;
    if (!sched_is_idle(v) && v->vm->paused) return RS_OFFLINE;
    return RS_RUNNABLE;
}

/* Does a pCPU run this vCPU now, so that nobody else may touch it? */
static bool is_current(const struct sched_vcpu *v) { return sched_cpus[v->cpu]->current == v; }

/* Brings the state of a vCPU in line with its flags, one of which has changed: queues it, or takes
 * it off its queue. A vCPU that is current on a pCPU is not touched here. Its pCPU is kicked if the
 * vCPU must not run on, and takes it off itself. */
void sched_update(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why) {
    bool may = sched_runnable(v);

    ASSERT_HELD(&p->lock);
    if (is_current(v)) {
        if (!may) sched_kick(p, v->cpu);
        return;
    }
    set_run_state(p, v, state_off_cpu(v));
    if (!may) {
        sched_unqueue(p, v);
    } else if (!v->queued) {
        v->queued = true;
        p->policy->wake(p, v, why);
    }
}

/* Takes a vCPU off the policy's queue, if it is in one. */
void sched_unqueue(struct sched_pool *p, struct sched_vcpu *v) {
    ASSERT_HELD(&p->lock);
    if (v->queued && p->policy->sleep) p->policy->sleep(p, v);
    v->queued = false;
}

/* ---- running ---- */

/* Called at the end of a slice: makes the pCPU decide anew. */
static void slice_over(struct timer *t, u64 now) {
    machine_kick(container_of(t, struct sched_cpu, slice)->idle.cpu);
}

/* Returns whether `prev`, which could run on, loses the pCPU before its slice is over. The timer of
 * the slice is queued until then. */
static bool is_preempted(const struct sched_cpu *c, const struct sched_vcpu *prev) {
    return !sched_is_idle(prev) && sched_runnable(prev) && !prev->yielded && c->slice.queued;
}

/* Makes `next` the current vCPU of the pCPU, and counts what reports show: states, switches,
 * preemptions, and how long `next` has waited since it was woken. */
static void switch_to(struct sched_pool *p, struct sched_cpu *c, u32 cpu, struct sched_vcpu *next,
                      u64 slice) {
    struct sched_vcpu *prev = c->current;

    sched_trace(p, next, TRC_SWITCH, sched_who(prev), (u32)MIN(p->now - prev->since, 0xffffffffu),
                slice);
    if (is_preempted(c, prev)) prev->preemptions++;
    set_run_state(p, prev, state_off_cpu(prev));
    if (next->woken_at) {
        hist_add(&next->wake_latency, p->now - next->woken_at);
        next->woken_at = 0;
    }
    set_run_state(p, next, RS_RUNNING);
    next->switches++;
    __atomic_store_n(&next->on_cpu, cpu, __ATOMIC_RELAXED);
    c->current = next;
}

/* Returns the vCPU that `cpu` is to run from now on, as the pool's policy chooses it, and sets the
 * timer that ends its slice. The old vCPU is only taken off here; its state is saved later, and
 * until then no other pCPU may run it (sched_saved()). */
struct sched_vcpu *sched_run(u32 cpu) {
    struct sched_cpu *c = sched_cpus[cpu];
    struct sched_vcpu *prev = c->current, *next;
    struct sched_pool *p = sched_enter(&c->pool);
    struct sched_pick pick;
    u32 who;

    if (!p) return prev;
    record_input(p, IN_RUN, TRACE_NOBODY, 0, cpu);
    if (sched_is_idle(prev)) {
        /* A pCPU that decides is not idle. If it were marked so, a policy that looks for an idle
         * pCPU for another vCPU could kick this one: it would decide twice, and an idle pCPU would
         * sleep on. */
        cpumask_clear(&p->idlers, cpu);
        pick = p->policy->pick(p, cpu, NULL);
    } else {
        prev->queued = sched_runnable(prev);
        pick = p->policy->pick(p, cpu, prev);
    }
    if (pick.vcpu) {
        next = pick.vcpu;
        who = sched_who(next);
    } else {
        next = &c->idle;
        who = TRACE_NOBODY;
        if (!c->leaving) cpumask_set(&p->idlers, cpu);
    }
    next->queued = false;
    record_decision(p, DEC_PICK, who, pick.slice);
    if (next != prev) switch_to(p, c, cpu, next, pick.slice);
    prev->yielded = false;
    if (pick.slice != SCHED_NEVER)
        machine_timer_set(cpu, &c->slice, p->now + pick.slice);
    else if (c->slice.queued)
        machine_timer_cancel(&c->slice);
    spin_unlock(&p->lock);
    return next;
}

/* Notes that the state of `prev` is saved, so that other pCPUs may run it now. The vCPU may be
 * current again by now. Then its state belongs to that pCPU, and nothing is done. */
void sched_saved(u32 cpu, struct sched_vcpu *prev) {
    if (sched_is_idle(prev)) return;
    struct sched_pool *p = sched_enter(&prev->vm->pool);

    record_input(p, IN_SAVED, sched_who(prev), 0, cpu);
    if (sched_cpus[cpu]->current != prev && prev->on_cpu == cpu) {
        __atomic_store_n(&prev->on_cpu, SCHED_NO_CPU, __ATOMIC_RELAXED);
        if (prev->migrating) {
            prev->migrating = false;
            sched_migrate(p, prev);
        } else if (prev->queued && p->policy->saved) {
            p->policy->saved(p, prev);
        }
    }
    spin_unlock(&p->lock);
}

/* Returns the vCPU that `cpu` runs, maybe its idle one. */
struct sched_vcpu *sched_current(u32 cpu) {
    return sched_cpus[cpu]->current;
}

/* ---- what vCPUs do ---- */

/* Makes a blocked vCPU ready to run. Does nothing if the vCPU is awake. If it is still current on
 * its pCPU, that pCPU is only kicked, because it may be halted with this vCPU (a sleepless pool).
 * Otherwise the policy queues the vCPU. */
void sched_wake(struct sched_vcpu *v) {
    struct sched_pool *p;

    /* Most wakes find a vCPU that does not sleep. They cost no lock. */
    if (!sched_blocked(v)) return;
    p = sched_enter(&v->vm->pool);

    if (v->blocked) {
        record_input(p, IN_WAKE, sched_who(v), 0, 0);
        sched_trace(p, v, TRC_WAKE, v->cpu, 0, 0);
        __atomic_store_n(&v->blocked, false, __ATOMIC_RELAXED);
        if (!is_current(v)) {
            v->wakes++;
            if (state_off_cpu(v) == RS_RUNNABLE) v->woken_at = p->now;
            sched_update(p, v, SCHED_WAKE);
        } else if (v->cpu != machine_cpu()) {
            sched_kick(p, v->cpu); /* it may be halted there with its state loaded */
        }
    }
    spin_unlock(&p->lock);
}

/* Puts the current vCPU to sleep: sets a flag, because of which it leaves its pCPU in the
 * sched_run() that follows. Normally the caller runs on that pCPU. If the vCPU was taken off its
 * pCPU before, the change of the flag has to be acted upon at once. */
void sched_block(struct sched_vcpu *v) {
    struct sched_pool *p = sched_enter(&v->vm->pool);

    record_input(p, IN_BLOCK, sched_who(v), 0, 0);
    sched_trace(p, v, TRC_BLOCK, 0, 0, 0);
    __atomic_store_n(&v->blocked, true, __ATOMIC_RELAXED);
    if (!is_current(v)) sched_update(p, v, SCHED_WAKE);
    spin_unlock(&p->lock);
}

/* Notes for the policy that the current vCPU lets others go first. A vCPU that was taken off its
 * pCPU meanwhile has yielded already. */
void sched_yield(struct sched_vcpu *v) {
    struct sched_pool *p = sched_enter(&v->vm->pool);

    record_input(p, IN_YIELD, sched_who(v), 0, 0);
    sched_trace(p, v, TRC_YIELD, 0, 0, 0);
    v->yielded = is_current(v);
    if (p->policy->yield && v->yielded) p->policy->yield(p, v);
    spin_unlock(&p->lock);
}

/* ---- pausing ---- */

/* Keeps all vCPUs of the VM from running. for_each_vcpu applies the new count of pauses to each
 * vCPU. One that runs is kicked, and goes at its pCPU's next sched_run(). */
void sched_pause(struct sched_vm *d) {
    struct sched_pool *p = sched_enter(&d->pool);

    record_input(p, IN_PAUSE, d->id << 16, 0, 0);
    if (d->paused++ == 0)
        for_each_vcpu(v, d) sched_update(p, v, SCHED_UNPAUSE);
    spin_unlock(&p->lock);
}

/* Undoes one sched_pause(). Returns 0, or -EINVAL if the VM is not paused. When the last pause is
 * undone, each vCPU that is not blocked is queued again. */
int sched_unpause(struct sched_vm *d) {
    struct sched_pool *p = sched_enter(&d->pool);
    int error = 0;

    if (!d->paused) {
        error = -EINVAL;
    } else {
        record_input(p, IN_UNPAUSE, d->id << 16, 0, 0);
        if (--d->paused == 0)
            for_each_vcpu(v, d) sched_update(p, v, SCHED_UNPAUSE);
    }
    spin_unlock(&p->lock);
    return error;
}

/* Returns whether the VM is paused and no pCPU holds the state of one of its vCPUs any more. on_cpu
 * is set until the state of a vCPU has been saved, which is later than its last instruction. */
bool sched_vm_stopped(struct sched_vm *d) {
    struct sched_pool *p = sched_enter(&d->pool);
    bool stopped = d->paused > 0;

    for_each_vcpu(v, d)
        if (v->on_cpu != SCHED_NO_CPU) stopped = false;
    spin_unlock(&p->lock);
    return stopped;
}

/* ---- affinity and migration ---- */

/* Assigns a vCPU, which is not queued, to pCPU `cpu`. */
void sched_move(struct sched_pool *p, struct sched_vcpu *v, u32 cpu) {
    ASSERT_HELD(&p->lock);
    if (cpu == v->cpu) return;
    sched_trace(p, v, TRC_MIGRATE, v->cpu, cpu, 0);
    record_decision(p, DEC_MOVE, sched_who(v), cpu);
    v->cpu = cpu;
    v->migrations++;
}

/* Assigns a vCPU to a pCPU of the pool that it may use. It is called also when a pCPU leaves the
 * pool, so that there may be no pCPU left that the affinity allows. */
void sched_place(struct sched_pool *p, struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    ASSERT_HELD(&p->lock);
    /* The last pCPU that it could use has left the pool. It would never run again with its
     * affinity. */
    if (cpumask_empty(&allowed)) cpumask_fill(&v->affinity);
    sched_move(p, v, p->policy->place(p, v));
}

/* Sends a vCPU away from its pCPU to another one. If a pCPU still holds its state, it cannot be
 * placed yet: `migrating` then keeps it from running until sched_saved() has placed it. */
void sched_migrate(struct sched_pool *p, struct sched_vcpu *v) {
    ASSERT_HELD(&p->lock);
    if (v->on_cpu == SCHED_NO_CPU) {
        sched_unqueue(p, v);
        sched_place(p, v);
    } else {
        v->migrating = true;
    }
    sched_update(p, v, SCHED_MIGRATE);
}

/* Sets on which pCPUs a vCPU may run. Returns 0, or -EINVAL if none of them is in the pool. If the
 * vCPU may stay where it is, the policy is only told, because another pCPU may take it now. */
int sched_set_affinity(struct sched_vcpu *v, const struct cpumask *m) {
    struct sched_pool *p = sched_enter(&v->vm->pool);
    struct cpumask allowed = cpumask_and(m, &p->cpus);
    int error = 0;

    if (cpumask_empty(&allowed)) {
        error = -EINVAL;
    } else {
        if (RECORDING) sched_record_set(p, IN_AFFINITY, sched_who(v), m);
        v->affinity = *m;
        if (!cpumask_test(&allowed, v->cpu))
            sched_migrate(p, v);
        else if (p->policy->affinity)
            p->policy->affinity(p, v);
    }
    spin_unlock(&p->lock);
    return error;
}

/* ---- services for policies ---- */

/* Makes a pCPU of the pool decide anew what it runs. */
void sched_kick(struct sched_pool *p, u32 cpu) {
    ASSERT_HELD(&p->lock);
    sched_trace(p, sched_cpus[cpu]->current, TRC_KICK, cpu, 0, 0);
    record_decision(p, DEC_KICK, TRACE_NOBODY, cpu);
    machine_kick(cpu);
}

/* Keeps a vCPU from running, or lets it run again, for the policy: Credit does so while a VM has
 * used up its cap. */
void sched_park(struct sched_pool *p, struct sched_vcpu *v, bool parked) {
    ASSERT_HELD(&p->lock);
    sched_trace(p, v, TRC_PARK, parked, 0, 0);
    v->parked = parked;
    sched_update(p, v, SCHED_UNPARK);
}

/* Sets the policy's timer of this kind for the pCPU. `armed` is what sched_timer_fire() goes by. */
void sched_timer_set(u32 cpu, u32 kind, u64 when) {
    sched_cpus[cpu]->timer[kind].armed = true;
    machine_timer_set(cpu, &sched_cpus[cpu]->timer[kind].t, when);
}

/* Calls the policy because its timer of this kind is due on pCPU `cpu`. Another pCPU may have moved
 * or cancelled the timer while this one waited for the lock. So it counts only if it is still armed
 * and not queued again. */
void sched_timer_fire(u32 cpu, u32 kind) {
    struct policy_timer *t = &sched_cpus[cpu]->timer[kind];
    struct sched_pool *p = sched_enter(&sched_cpus[cpu]->pool), *turbo = NULL;

    if (!p) return;
    if (kind == SCHED_TIMER_BOTH) turbo = sched_enter(&p->turbo);
    if (t->armed && !t->t.queued) {
        if (turbo) p->now = turbo->now = MAX(p->now, turbo->now);
        record_input(p, IN_TIMER, TRACE_NOBODY, kind, cpu);
        t->armed = false;
        p->policy->timer(p, cpu, kind);
    }
    if (turbo) spin_unlock(&turbo->lock);
    spin_unlock(&p->lock);
}

/* The function of the policies' timers; it only finds out which of them is due. */
static void policy_timer_due(struct timer *t, u64 now) {
    struct policy_timer *pt = container_of(t, struct policy_timer, t);

    sched_timer_fire(pt->cpu, pt->kind);
}

/* ---- start-up and reading ---- */

/* Forgets all pools, pCPUs and VMs, as at boot. */
void sched_init(void) {
    memset(sched_cpus, 0, sizeof(sched_cpus));
    memset(sched_pools, 0, sizeof(sched_pools));
    sequence = nr_known = 0;
    sched_set_seed(0);
}

/* Brings a pCPU to the scheduler, in no pool yet. Returns 0 or -EINVAL. A recording names the pool
 * of each input, and this pCPU has none, so `none` stands for it. */
int sched_cpu_online(u32 cpu, struct sched_cpu *c) {
    static struct sched_pool none = { .id = 0xff }; /* stands for no pool in the recording */

    if (cpu >= TAKT_MAX_CPUS || sched_cpus[cpu]) return -EINVAL;
    memset(c, 0, sizeof(*c));
    none.now = machine_now();
    record_input(&none, IN_CPU_ONLINE, TRACE_NOBODY, 0, cpu);
    nr_known = MAX(nr_known, cpu + 1);
    c->idle = (struct sched_vcpu){ .id = cpu, .cpu = cpu, .on_cpu = cpu, .since = none.now };
    c->current = &c->idle;
    timer_init(&c->slice, slice_over);
    for (u32 i = 0; i < SCHED_TIMERS; i++) {
        c->timer[i] = (struct policy_timer){ .cpu = cpu, .kind = i };
        timer_init(&c->timer[i].t, policy_timer_due);
    }
    sched_cpus[cpu] = c;
    return 0;
}

/* Fills in how long a vCPU has been in each state. The time in the present state is not in state_ns
 * yet, so it is added. */
void sched_times(struct sched_vcpu *v, struct sched_times *out) {
    struct sched_pool *p = sched_enter(&v->vm->pool);

    memcpy(out->state_ns, v->state_ns, sizeof(out->state_ns));
    out->state_ns[v->state] += p->now - v->since;
    out->state = v->state;
    out->cpu = v->cpu;
    out->switches = v->switches;
    out->wakes = v->wakes;
    out->migrations = v->migrations;
    out->preemptions = v->preemptions;
    out->boosts = v->boosts;
    out->grants = v->grants;
    out->granted_ns = v->granted_ns;
    out->wake_p50 = hist_percentile(&v->wake_latency, 500);
    out->wake_p99 = hist_percentile(&v->wake_latency, 990);
    out->wake_max = v->wake_latency.max;
    out->wake_count = v->wake_latency.count;
    out->kind = "";
    out->micro_ns = out->turbo_pct = 0;
    out->moved_ns = out->boost = 0;
    if (p->policy->view) p->policy->view(p, v, out);
    spin_unlock(&p->lock);
}

/* Forgets the times from wake to run of a vCPU that were measured so far. */
void sched_reset_latency(struct sched_vcpu *v) {
    struct sched_pool *p = sched_enter(&v->vm->pool);

    v->wake_latency = (struct hist){ 0 };
    spin_unlock(&p->lock);
}
