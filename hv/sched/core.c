/* The scheduler core: states, switching, waking, blocking, pausing, affinity, migration.
 *
 * What a vCPU may do is told by its flags (blocked, parked, migrating, its VM's pause count); sched_update()
 * draws the consequences for its state and for the policy's queue. A vCPU that is current on a pCPU is left
 * alone by everybody else: that pCPU is kicked, and sched_run() takes it off. */
#include <takt/errno.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "sched/machine.h"
#include "sched/record.h"

struct spinlock sched_lock;
struct sched_cpu sched_cpus[TAKT_MAX_CPUS];
void (*sched_state_hook)(struct sched_vcpu *v, u64 now);

/* ---- locking ---- */

/* The pool of a dom or of a pCPU changes under the locks of both pools, so it is looked at again once
 * locked. */
static struct sched_pool *lock_pool_of(struct sched_pool *const *where) {
    for (;;) {
        struct sched_pool *p = __atomic_load_n(where, __ATOMIC_ACQUIRE);

        if (!p) return NULL;
        spin_lock(&p->lock);
        if (__atomic_load_n(where, __ATOMIC_RELAXED) == p) return p;
        spin_unlock(&p->lock);
    }
}

struct sched_pool *sched_lock_dom(struct sched_dom *d) {
    return lock_pool_of(&d->pool);
}

u64 sched_clock(struct sched_pool *p) {
    u64 now = machine_now();

    if (now > p->clock) p->clock = now;
    return p->clock;
}

/* ---- states ---- */

void sched_set_state(struct sched_vcpu *v, enum run_state state, u64 now) {
    u64 spent = now - v->since;

    if (state == v->state) return;
    sched_trace(v, now, TRC_RUNSTATE, v->state, state, (u32)spent, (u32)(spent >> 32));
    v->state_ns[v->state] += spent;
    v->since = now;
    v->state = state;
    if (sched_state_hook) sched_state_hook(v, now);
}

/* The state of a vCPU that is not running. */
static enum run_state state_off_cpu(const struct sched_vcpu *v) {
    if (v->blocked) return RS_BLOCKED;
    return v->parked || v->dom->paused ? RS_OFFLINE : RS_RUNNABLE;
}

void sched_update(struct sched_pool *p, struct sched_vcpu *v, enum sched_why why, u64 now) {
    bool may = sched_runnable(v);

    if (sched_cpus[v->cpu].current == v) {
        if (!may) sched_kick(p, v->cpu, now);
        return;
    }
    sched_set_state(v, state_off_cpu(v), now);
    if (may == v->queued) return;
    v->queued = may;
    if (may)
        p->policy->wake(p, v, why, now);
    else
        p->policy->sleep(p, v, now);
}

/* ---- running ---- */

static void slice_end(struct timer *t, u64 now) {
    machine_kick((u32)(container_of(t, struct sched_cpu, slice) - sched_cpus));
}

static void set_slice(struct sched_cpu *c, u32 cpu, u64 slice, u64 now) {
    if (slice != SCHED_NEVER)
        machine_timer_set(cpu, &c->slice, now + slice);
    else if (c->slice.queued)
        machine_timer_cancel(&c->slice);
}

static void switch_to(struct sched_pool *p, struct sched_cpu *c, u32 cpu, struct sched_vcpu *next, u64 slice,
                      u64 now) {
    struct sched_vcpu *prev = c->current;

    sched_trace(next, now, TRC_SWITCH, sched_who(prev), (u32)MIN(now - prev->since, 0xffffffffu), (u32)slice,
                (u32)(slice >> 32));
    if (sched_is_idle(prev)) {
        cpumask_clear(&p->idlers, cpu);
        sched_set_state(prev, RS_RUNNABLE, now);
    } else {
        sched_set_state(prev, state_off_cpu(prev), now);
    }
    if (next->woken_at) {
        hist_add(&next->wake_latency, now - next->woken_at);
        next->woken_at = 0;
    }
    if (sched_is_idle(next) && !c->leaving) cpumask_set(&p->idlers, cpu);
    sched_set_state(next, RS_RUNNING, now);
    next->switches++;
    next->on_cpu = cpu;
    c->current = next;
}

struct sched_vcpu *sched_run(u32 cpu) {
    struct sched_cpu *c = &sched_cpus[cpu];
    struct sched_pool *p = lock_pool_of(&c->pool);

    if (!p) return c->current;
    u64 now = sched_clock(p);
    struct sched_vcpu *prev = c->current, *next;
    struct sched_pick pick;
    bool idle = sched_is_idle(prev);

    record_input(p, IN_RUN, now, TRACE_NOBODY, 0, cpu);
    if (!idle) prev->queued = sched_runnable(prev);
    pick = p->policy->pick(p, cpu, idle ? NULL : prev, now);
    next = pick.vcpu ? pick.vcpu : &c->idle;
    next->queued = false;
    record_decision(p, DEC_PICK, now, pick.vcpu ? sched_who(next) : TRACE_NOBODY, pick.slice);
    if (next != prev) switch_to(p, c, cpu, next, pick.slice, now);
    set_slice(c, cpu, pick.slice, now);
    spin_unlock(&p->lock);
    return next;
}

void sched_saved(u32 cpu, struct sched_vcpu *prev) {
    if (sched_is_idle(prev)) return;
    struct sched_pool *p = sched_lock_dom(prev->dom);
    u64 now = sched_clock(p);

    record_input(p, IN_SAVED, now, sched_who(prev), 0, cpu);
    if (sched_cpus[cpu].current != prev && prev->on_cpu == cpu) {
        prev->on_cpu = SCHED_NO_CPU;
        if (prev->migrating) {
            prev->migrating = false;
            sched_place(p, prev, now);
            sched_update(p, prev, SCHED_MIGRATE, now);
        } else if (prev->queued && p->policy->saved) {
            p->policy->saved(p, prev, now);
        }
    }
    spin_unlock(&p->lock);
}

struct sched_vcpu *sched_current(u32 cpu) {
    return sched_cpus[cpu].current;
}

/* ---- what vCPUs do ---- */

void sched_wake(struct sched_vcpu *v) {
    struct sched_pool *p = sched_lock_dom(v->dom);

    if (v->blocked) {
        u64 now = sched_clock(p);

        record_input(p, IN_WAKE, now, sched_who(v), 0, 0);
        sched_trace(v, now, TRC_WAKE, v->cpu, 0, 0, 0);
        v->blocked = false;
        if (sched_cpus[v->cpu].current != v) {
            v->wakes++;
            if (state_off_cpu(v) == RS_RUNNABLE) v->woken_at = now;
            sched_update(p, v, SCHED_WAKE, now);
        } else if (v->cpu != machine_cpu()) {
            sched_kick(p, v->cpu, now); /* it may be waiting in place */
        }
    }
    spin_unlock(&p->lock);
}

void sched_block(struct sched_vcpu *v) {
    struct sched_pool *p = sched_lock_dom(v->dom);
    u64 now = sched_clock(p);

    record_input(p, IN_BLOCK, now, sched_who(v), 0, 0);
    sched_trace(v, now, TRC_BLOCK, 0, 0, 0, 0);
    v->blocked = true;
    if (sched_cpus[v->cpu].current != v) /* stopped in the meantime */
        sched_update(p, v, SCHED_WAKE, now);
    spin_unlock(&p->lock);
}

void sched_yield(struct sched_vcpu *v) {
    struct sched_pool *p = sched_lock_dom(v->dom);
    u64 now = sched_clock(p);

    record_input(p, IN_YIELD, now, sched_who(v), 0, 0);
    sched_trace(v, now, TRC_YIELD, 0, 0, 0, 0);
    if (p->policy->yield && sched_cpus[v->cpu].current == v) p->policy->yield(p, v, now);
    spin_unlock(&p->lock);
}

/* ---- pausing ---- */

static void update_all(struct sched_pool *p, struct sched_dom *d, u64 now) {
    for (u32 i = 0; i < d->nr_vcpus; i++)
        if (d->vcpu[i]) sched_update(p, d->vcpu[i], SCHED_UNPAUSE, now);
}

void sched_pause(struct sched_dom *d) {
    struct sched_pool *p = sched_lock_dom(d);
    u64 now = sched_clock(p);

    record_input(p, IN_PAUSE, now, d->id << 16, 0, 0);
    if (d->paused++ == 0) update_all(p, d, now);
    spin_unlock(&p->lock);
}

int sched_unpause(struct sched_dom *d) {
    struct sched_pool *p = sched_lock_dom(d);
    u64 now = sched_clock(p);
    int error = -EINVAL;

    if (d->paused) {
        record_input(p, IN_UNPAUSE, now, d->id << 16, 0, 0);
        if (--d->paused == 0) update_all(p, d, now);
        error = 0;
    }
    spin_unlock(&p->lock);
    return error;
}

bool sched_dom_stopped(struct sched_dom *d) {
    struct sched_pool *p = sched_lock_dom(d);
    bool stopped = d->paused > 0;

    for (u32 i = 0; i < d->nr_vcpus; i++)
        if (d->vcpu[i] && d->vcpu[i]->on_cpu != SCHED_NO_CPU) stopped = false;
    spin_unlock(&p->lock);
    return stopped;
}

/* ---- affinity and migration ---- */

void sched_place(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    struct cpumask allowed = cpumask_and(&v->affinity, &p->cpus);
    u32 from = v->cpu;

    if (cpumask_empty(&allowed))
        cpumask_fill(&v->affinity); /* the last pCPU that it could use has left the pool */
    v->cpu = p->policy->place(p, v);
    if (v->cpu == from) return;
    v->migrations++;
    sched_trace(v, now, TRC_MIGRATE, from, v->cpu, 0, 0);
    record_decision(p, DEC_MOVE, now, sched_who(v), v->cpu);
}

void sched_send_away(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    if (v->on_cpu != SCHED_NO_CPU) {
        v->migrating = true;
        sched_update(p, v, SCHED_MIGRATE, now);
        return;
    }
    if (v->queued) {
        v->queued = false;
        p->policy->sleep(p, v, now);
    }
    sched_place(p, v, now);
    sched_update(p, v, SCHED_MIGRATE, now);
}

int sched_set_affinity(struct sched_vcpu *v, const struct cpumask *m) {
    struct sched_pool *p = sched_lock_dom(v->dom);
    u64 now = sched_clock(p);
    struct cpumask allowed = cpumask_and(m, &p->cpus);
    int error = -EINVAL;

    if (!cpumask_empty(&allowed)) {
        record_input(p, IN_AFFINITY, now, sched_who(v), 0, m->bits);
        v->affinity = *m;
        if (!cpumask_test(&allowed, v->cpu))
            sched_send_away(p, v, now);
        else if (p->policy->affinity)
            p->policy->affinity(p, v, now);
        error = 0;
    }
    spin_unlock(&p->lock);
    return error;
}

/* ---- services for policies ---- */

void sched_trace_slow(const struct sched_vcpu *v, u64 now, u16 event, u32 a, u32 b, u32 c, u32 d) {
    trace_write(machine_cpu(), now, event, v ? sched_who(v) : TRACE_NOBODY, a, b, c, d);
}

void *sched_cpu_priv(const struct sched_pool *p, u32 cpu) { return sched_cpus[cpu].priv; }

struct sched_vcpu *sched_current_locked(const struct sched_pool *p, u32 cpu) {
    struct sched_vcpu *v = sched_cpus[cpu].current;

    return sched_is_idle(v) ? NULL : v;
}

void sched_kick(struct sched_pool *p, u32 cpu, u64 now) {
    sched_trace(sched_cpus[cpu].current, now, TRC_KICK, cpu, 0, 0, 0);
    record_decision(p, DEC_KICK, now, TRACE_NOBODY, cpu);
    machine_kick(cpu);
}

bool sched_may_run(const struct sched_pool *p, const struct sched_vcpu *v, u32 cpu) {
    return cpumask_test(&v->affinity, cpu) && cpumask_test(&p->cpus, cpu) &&
           (v->on_cpu == SCHED_NO_CPU || v->on_cpu == cpu);
}

void sched_move(struct sched_pool *p, struct sched_vcpu *v, u32 cpu, u64 now) {
    ASSERT(sched_may_run(p, v, cpu));
    sched_trace(v, now, TRC_MIGRATE, v->cpu, cpu, 0, 0);
    record_decision(p, DEC_MOVE, now, sched_who(v), cpu);
    v->cpu = cpu;
    v->migrations++;
}

void sched_migrate(struct sched_pool *p, struct sched_vcpu *v, u64 now) {
    v->migrating = true;
    sched_update(p, v, SCHED_MIGRATE, now);
}

void sched_park(struct sched_pool *p, struct sched_vcpu *v, bool parked, u64 now) {
    sched_trace(v, now, TRC_PARK, parked, 0, 0, 0);
    v->parked = parked;
    sched_update(p, v, SCHED_UNPARK, now);
}

void sched_timer_set(struct sched_pool *p, u32 cpu, u32 kind, u64 when) {
    struct policy_timer *t = &sched_cpus[cpu].timer[kind];

    t->armed = true;
    machine_timer_set(cpu, &t->t, when);
}

void sched_timer_cancel(struct sched_pool *p, u32 cpu, u32 kind) {
    struct policy_timer *t = &sched_cpus[cpu].timer[kind];

    t->armed = false;
    machine_timer_cancel(&t->t);
}

/* A timer may have been moved or cancelled by another CPU while this one waited for the lock. */
void sched_timer_fire(u32 cpu, u32 kind) {
    struct sched_cpu *c = &sched_cpus[cpu];
    struct policy_timer *t = &c->timer[kind];
    struct sched_pool *p = lock_pool_of(&c->pool);

    if (!p) return;
    u64 now = sched_clock(p);

    if (t->armed && !t->t.queued) {
        record_input(p, IN_TIMER, now, TRACE_NOBODY, kind, cpu);
        t->armed = false;
        p->policy->timer(p, cpu, kind, now);
    }
    spin_unlock(&p->lock);
}

static void policy_timer(struct timer *t, u64 now) {
    struct policy_timer *pt = container_of(t, struct policy_timer, t);

    sched_timer_fire(pt->cpu, pt->kind);
}

/* ---- start-up and reading ---- */

int sched_init(void) {
    memset(sched_cpus, 0, sizeof(sched_cpus));
    memset(sched_pools, 0, sizeof(sched_pools));
    return 0;
}

int sched_cpu_online(u32 cpu) {
    struct sched_cpu *c = sched_cpus + cpu;

    if (cpu >= TAKT_MAX_CPUS || c->online) return -EINVAL;
    c->idle = (struct sched_vcpu){ .id = cpu, .cpu = cpu, .on_cpu = cpu, .state = RS_RUNNING };
    c->idle.since = machine_now();
    c->current = &c->idle;
    timer_init(&c->slice, slice_end);
    for (u32 i = 0; i < SCHED_TIMERS; i++) {
        c->timer[i] = (struct policy_timer){ .cpu = cpu, .kind = i };
        timer_init(&c->timer[i].t, policy_timer);
    }
    c->online = true;
    record_input(NULL, IN_CPU_ONLINE, c->idle.since, TRACE_NOBODY, 0, cpu);
    return 0;
}

void sched_times(struct sched_vcpu *v, struct sched_times *out) {
    struct sched_pool *p = sched_lock_dom(v->dom);
    u64 now = sched_clock(p);

    memcpy(out->state_ns, v->state_ns, sizeof(out->state_ns));
    out->state_ns[v->state] += now - v->since;
    out->state = v->state;
    out->cpu = v->cpu;
    out->switches = v->switches;
    out->wakes = v->wakes;
    out->migrations = v->migrations;
    out->wake_p50 = hist_percentile(&v->wake_latency, 500);
    out->wake_p99 = hist_percentile(&v->wake_latency, 990);
    out->wake_max = v->wake_latency.max;
    out->wake_count = v->wake_latency.count;
    spin_unlock(&p->lock);
}

void sched_reset_latency(struct sched_vcpu *v) {
    struct sched_pool *p = sched_lock_dom(v->dom);

    hist_reset(&v->wake_latency);
    spin_unlock(&p->lock);
}

u64 sched_idle_ns(u32 cpu) {
    struct sched_cpu *c = &sched_cpus[cpu];
    struct sched_pool *p = lock_pool_of(&c->pool);
    u64 now = p ? sched_clock(p) : machine_now();
    u64 ns = c->idle.state_ns[RS_RUNNING];

    if (c->current == &c->idle && now > c->idle.since) ns += now - c->idle.since;
    if (p) spin_unlock(&p->lock);
    return ns;
}
