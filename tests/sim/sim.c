/* The machine of the simulation: a queue of timers, which are all events that there are; pCPUs,
 * which switch between vCPUs in virtual time; and what vCPUs do while they run (enum work_kind). A
 * *burst* is what a vCPU computes at a stretch if nobody interrupts it. hv/sched calls the
 * functions of sched/machine.h here, as it calls those of hv/sched/machine.c in the image. sim.h
 * has the contracts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>
#include "lib/printf.h"
#include "sched/machine.h"
#include "sched/core.h"
#include "sched/credit.h"
#include "sched/governor.h"
#include "sim.h"

struct sim sim;
u32 trace_mask;

struct pcpu {
    struct timer kick;     /* fires when a kick arrives */
    struct timer switched; /* fires half-way through a switch, and at its end */
    bool kicked;           /* a kick is under way, or waits for the end of the switch */
    bool switching;
    struct sched_vcpu *current;
    struct sched_vcpu *leaving; /* in the first half of a switch: its state is not yet saved */
};

static struct timerq queue;
static struct pcpu pcpus[TAKT_MAX_CPUS];
static struct sched_cpu cpu_memory[TAKT_MAX_CPUS]; /* what the scheduler knows of each */
static struct sim_vm *vms[4096];
static u32 nr_vms;

/* Returns the next random number (xorshift64*: fast, and the same on every computer). */
u64 sim_random(u64 *s) {
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 0x2545f4914f6cdd1dull;
}

/* Returns the first state of a generator of random numbers. Similar seeds give states that have
 * nothing in common; a state must not be 0. */
static u64 rng_seed(u64 seed) {
    u64 z = seed + 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) | 1;
}

/* ---- the machine that hv/sched asks for ---- */

u64 machine_now(void) { return sim.now; }

u32 machine_cpu(void) { return sim.cpu; }

/* Sets the timer, for pCPU `cpu`; a time that has passed becomes now. */
static void queue_at(struct timer *t, u32 cpu, u64 when) {
    timerq_remove(&queue, t);
    t->cpu = (u16)cpu;
    timerq_insert(&queue, t, MAX(when, sim.now));
}

/* Has a pCPU ask the scheduler anew. A kick that is under way already is not repeated. One that
 * comes in the middle of a switch takes effect when the switch is over. */
void machine_kick(u32 cpu) {
    struct pcpu *c = &pcpus[cpu];

    if (c->kicked || sim.replaying) return;
    c->kicked = true;
    if (c->switching) return;
    if (cpu == sim.cpu)
        queue_at(&c->kick, cpu, sim.now);
    else
        queue_at(&c->kick, cpu, sim.now + sim.opt.kick_ns);
}

/* Sets a timer of a pCPU. In a replay the recording says when timers fire. */
void machine_timer_set(u32 cpu, struct timer *t, u64 when) {
    if (!sim.replaying) queue_at(t, cpu, when);
}

void machine_timer_cancel(struct timer *t) { timerq_remove(&queue, t); }

/* Adds the first `bytes` of this record to the hash of all records. */
static void hash_words(const struct trace_record *r, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof(u64); i++) {
        sim.hash = (sim.hash ^ ((const u64 *)r)[i]) * 0x9e3779b97f4a7c15ull;
        sim.hash ^= sim.hash >> 32;
    }
}

/* Takes a trace record that the scheduler writes; it has the place of the hypervisor's own
 * function. The record goes into the hash, which tells whether two runs were the same, and is kept
 * if the options say so. */
void trace_write(unsigned cpu, u64 ns, u16 event, u32 who, u32 a, u32 b, u32 c, u32 d) {
    struct trace_record r = { ns, event, (u16)cpu, who, { a, b, c, d } };
    u32 input = 0;

    if (event == TRC_SCHED_INPUT) input = a & 0xff;
    /* The record of a pool's creation has the seed in it. That is not hashed, because two seeds
     * that change nothing are to have the same hash. */
    if (input == IN_POOL_CREATE)
        hash_words(&r, offsetof(struct trace_record, arg[2]));
    else
        hash_words(&r, sizeof(r));
    sim.records++;
    if (input == IN_TIMER) sim.policy_timers++;
    if (!sim.opt.keep) return;
    if (sim.nr_kept == sim.max_kept) {
        sim.max_kept = MAX(2 * sim.max_kept, 4096ul);
        sim.kept = realloc(sim.kept, sim.max_kept * sizeof(r));
    }
    sim.kept[sim.nr_kept++] = r;
}

/* Ends the program with a sentence, because something is wrong that must never be. With the option
 * `rules` the fault is in a policy that somebody is writing, and a sentence is enough; otherwise it
 * is a fault of the scheduler or of the simulation, and abort() keeps what a debugger needs. */
void panic(const char *fmt, ...) {
    char text[512];
    va_list ap;

    if (sim.opt.rules) fprintf(stderr, "sim: the scheduler's books are wrong: ");
    va_start(ap, fmt);
    hv_vsnprintf(text, sizeof(text), fmt, ap); /* in its formats an "l" always means 64 bits */
    va_end(ap);
    fprintf(stderr, "%s (at %llu ns, seed %llu)\n", text, (unsigned long long)sim.now,
            (unsigned long long)sim.opt.seed);
    if (sim.opt.rules) exit(1);
    abort();
}

/* Tests look at the last line of the log. */
void log_at(enum log_level level, const char *fmt, ...) {
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(sim.said, sizeof(sim.said), fmt, ap);
    va_end(ap);
    sim.lines++;
}

/* ---- pCPUs ---- */

static struct sim_vcpu *of(struct sched_vcpu *s) { return container_of(s, struct sim_vcpu, s); }

/* Takes off the vCPU's burst what it has computed of it, because it is no longer on its pCPU. */
static void stop_computing(struct sched_vcpu *s) {
    struct sim_vcpu *v = of(s);

    if (sched_is_idle(s) || v->started == ~0ull) return;
    u64 ns = sim.now - v->started;

    v->computed += ns;
    if (v->serving) v->served += ns;
    if (v->remaining != ~0ull) v->remaining -= MIN(ns, v->remaining);
    v->started = ~0ull;
    timerq_remove(&queue, &v->done);
}

/* Lets the vCPU go on with its burst on this pCPU; `done` will fire at the burst's end. */
static void start_computing(struct sched_vcpu *s, u32 cpu) {
    struct sim_vcpu *v = of(s);
    u64 end;

    if (sched_is_idle(s) || s->blocked) return;
    v->started = sim.now;
    end = v->until;
    if (v->remaining != ~0ull) end = MIN(end, sim.now + v->remaining);
    if (end != ~0ull) queue_at(&v->done, cpu, end);
}

static void resched(u32 cpu);
static void burst_over(struct timer *t, u64 now);
static void alarm_rings(struct timer *t, u64 now);
static void govern(struct timer *t, u64 now);

/* Ends a switch, so that the new vCPU computes. */
static void arrive(u32 cpu) {
    struct pcpu *c = &pcpus[cpu];

    c->switching = false;
    start_computing(c->current, cpu);
    if (c->kicked) queue_at(&c->kick, cpu, sim.now);
}

/* Goes on with a switch whose timer has fired. Half-way through the switch the old vCPU's state is
 * saved, and the timer is set once more; at the end the new vCPU computes. An image takes time for
 * both as well, and other pCPUs see the state in between. */
static void switched(struct timer *t, u64 now) {
    struct pcpu *c = container_of(t, struct pcpu, switched);
    u32 cpu = (u32)(c - pcpus);

    if (c->leaving) {
        struct sched_vcpu *leaving = c->leaving;

        c->leaving = NULL;
        if (!sched_is_idle(leaving)) of(leaving)->leaving = false;
        sim.inputs++;
        sched_saved(cpu, leaving);
        queue_at(&c->switched, cpu, sim.now + sim.opt.switch_ns - sim.opt.switch_ns / 2);
        return;
    }
    arrive(cpu);
}

/* Asks the scheduler what the pCPU shall run, and begins to switch if that is another vCPU. */
static void resched(u32 cpu) {
    struct pcpu *c = &pcpus[cpu];
    struct sched_vcpu *prev = c->current, *next;

    c->kicked = false;
    timerq_remove(&queue, &c->kick);
    stop_computing(prev);
    sim.decisions++;
    sim.inputs++;
    next = sched_run(cpu);
    if (!sched_is_idle(next) && of(next)->leaving)
        panic("pCPU %u gets vCPU %x, whose state is still on another one", cpu, sched_who(next));
    c->current = next;
    if (next == prev) {
        start_computing(next, cpu);
        return;
    }
    c->switching = true;
    if (sim.opt.switch_ns == 0) {
        sim.inputs++;
        sched_saved(cpu, prev);
        arrive(cpu);
        return;
    }
    c->leaving = prev;
    if (!sched_is_idle(prev)) of(prev)->leaving = true;
    queue_at(&c->switched, cpu, sim.now + sim.opt.switch_ns / 2);
}

/* Has the pCPU at which a kick has arrived ask the scheduler anew. */
static void kicked(struct timer *t, u64 now) {
    struct pcpu *c = container_of(t, struct pcpu, kick);

    if (c->kicked && !c->switching) resched((u32)(c - pcpus));
}

/* Lets virtual time pass until `end`. Only here virtual time passes: it jumps to the time of the
 * next event. */
void sim_run_until(u64 end) {
    struct timer *t;

    while ((t = timerq_pop(&queue, end))) {
        sim.now = MAX(sim.now, t->when);
        sim.cpu = t->cpu;
        sim.events++;
        sim.inputs += t->fn != kicked && t->fn != switched && t->fn != burst_over &&
                      t->fn != alarm_rings && t->fn != govern;
        t->fn(t, sim.now);
        if (sim.check) sim.check();
    }
    sim.now = end;
}

/* ---- workloads ---- */

/* Sets the time at which the vCPU has to be woken. */
static void alarm_at(struct sim_vcpu *v, u64 when) { queue_at(&v->alarm, v->s.cpu, when); }

/* Returns when the next tick of the vCPU's pCPU is, after the time `after`. The credit policy
 * shifts the ticks of each pCPU a little, so that not all of them come at once. */
static u64 next_tick(const struct sim_vcpu *v, u64 after) {
    u64 tick = v->work.tick_ns, shift = credit_shift(tick, v->s.cpu);

    if (after < shift) return shift;
    return shift + ((after - shift) / tick + 1) * tick;
}

/* Returns a random time whose distribution is about exponential: the function counts trials until
 * the first one succeeds, with probability 1/64 each. That is good enough, and needs integers only,
 * so it is the same on each machine. */
static u64 exponential(u64 *rng, u64 mean) {
    u64 x = 0;

    while (sim_below(rng, 64)) x++;
    return x * mean / 63 + 1;
}

/* Puts a vCPU whose burst is over to sleep until `when`, or for ever if that is ~0. */
static void go_to_sleep(struct sim_vcpu *v, u64 when) {
    u32 cpu = v->s.cpu;

    sim.inputs++;
    sched_block(&v->s);
    if (when != ~0ull) alarm_at(v, when);
    resched(cpu);
}

/* Computes how much the vCPU has to compute now by its duty, and when it has to look at that
 * again. */
static void duty_burst(struct sim_vcpu *v, u64 *remaining, u64 *until) {
    u64 worked = v->computed - v->served;

    v->duty.percent = v->work.percent; /* a test may have changed it */
    duty_look(&v->duty, sim.now, worked);
    *remaining = duty_left(&v->duty, worked);
    *until = v->duty.next;
}

/* Says how long the vCPU computes next (`remaining`), and up to what time at most (`until`). */
static void next_burst(struct sim_vcpu *v) {
    struct sim_work *w = &v->work;

    v->remaining = w->work_ns;
    v->until = ~0ull;
    switch (w->kind) {
    case WORK_IDLE: v->remaining = 0; break;
    case WORK_HOG: v->remaining = ~0ull; break;
    case WORK_MIXED:
    case WORK_DUTY: duty_burst(v, &v->remaining, &v->until); break;
    case WORK_EVADER:
        v->remaining = ~0ull;
        v->until = next_tick(v, sim.now + w->margin_ns) - w->margin_ns;
        break;
    default: break;
    }
}

/* Begins the next burst at `when`, or at once if that has passed, because the last one is over. */
static void burst_at(struct sim_vcpu *v, u64 when) {
    if (when > sim.now) {
        go_to_sleep(v, when);
        return;
    }
    next_burst(v);
    start_computing(&v->s, v->s.cpu);
}

/* Wakes the vCPU if it sleeps, and lets it go on with its burst, which has changed because its
 * alarm rang or an event came. */
static void go_on(struct sim_vcpu *v) {
    bool here = pcpus[v->s.cpu].current == &v->s && !pcpus[v->s.cpu].switching;

    if (!v->s.blocked) {
        if (here) start_computing(&v->s, v->s.cpu);
        return;
    }
    sim.inputs++;
    sched_wake(&v->s);
    if (here && v->s.cpu == sim.cpu)
        resched(v->s.cpu); /* it kept its pCPU while it slept, and now that no longer halts */
}

/* ---- events: a client raises them, and they interrupt a vCPU of a mixed workload ---- */

/* Counts an event for the VM, for the I/O monitor, even if the VM's turbo vCPU gets it. */
static void count_event(struct sim_vcpu *v) {
    struct sched_vm *d = v->s.vm;

    if (d->id & SCHED_TURBO) d = d->peer;
    sched_io_events(d, 1);
}

/* Returns whether the vCPU's port is pending. The handler takes the port when it begins, as soon as
 * the vCPU runs. As in the image, an event that comes before that does not count for the monitor
 * again. */
static bool pending(const struct sim_vcpu *v) {
    return v->serving && (pcpus[v->s.cpu].current != &v->s || pcpus[v->s.cpu].switching);
}

/* Raises an event, which interrupts the vCPU's burst or ends its sleep. While it serves events, it
 * only notes the next one (v->due). */
static void raise_event(struct sim_vcpu *v) {
    if (!pending(v)) count_event(v);
    if (v->serving || v->due.next > sim.now) return;
    stop_computing(&v->s);
    v->serving = true;
    v->rest = 0;
    if (!v->s.blocked) v->rest = MAX(v->remaining, 1);
    v->rest_until = v->until;
    v->remaining = v->work.work_ns;
    v->until = ~0ull;
    go_on(v);
}

/* Keeps how long an event took, in an array that grows. */
static void remember(struct sim_late *l, u64 ns) {
    if (l->nr == l->max) {
        l->max = MAX(2 * l->max, 1024u);
        l->ns = realloc(l->ns, l->max * sizeof(*l->ns));
    }
    l->ns[l->nr++] = ns;
}

/* Ends the work for an event. The vCPU goes on with the next event that is due, or with the burst
 * that was interrupted, or sleeps. */
static void event_done(struct sim_vcpu *v) {
    if (v->due.next >= v->marked) remember(&v->late, sim.now - v->due.next);
    arrivals_advance(&v->due);
    v->remaining = v->work.work_ns;
    if (v->due.next > sim.now) {
        v->serving = false;
        v->remaining = v->rest;
        v->until = v->rest_until;
    }
    if (v->remaining)
        start_computing(&v->s, v->s.cpu);
    else
        go_to_sleep(v, ~0ull); /* its alarm stays set */
}

/* Sends a client's event, and lets the client sleep until the next one is due. One that is late
 * sends the next one at once. */
static void client_sends(struct sim_vcpu *v) {
    struct sim_work *w = &v->work;

    if (*w->server) raise_event(*w->server);
    arrivals_advance(&v->due);
    v->remaining = w->work_ns;
    if (v->due.next <= sim.now)
        start_computing(&v->s, v->s.cpu);
    else
        go_to_sleep(v, v->due.next);
}

/* Decides what a vCPU that has computed its burst does next, which depends on the kind of its
 * work. */
static void burst_over(struct timer *t, u64 now) {
    struct sim_vcpu *v = container_of(t, struct sim_vcpu, done);
    struct sim_work *w = &v->work;
    u32 cpu = v->s.cpu;

    stop_computing(&v->s);
    if (v->serving) {
        event_done(v);
        return;
    }
    switch (w->kind) {
    case WORK_IDLE: go_to_sleep(v, ~0ull); break;
    case WORK_CLIENT: client_sends(v); break;
    case WORK_MIXED:
        v->remaining = 0;
        if (!w->percent) {
            go_to_sleep(v, ~0ull);
            break;
        }
        __attribute__((fallthrough));
    case WORK_DUTY: burst_at(v, v->duty.next); break;
    case WORK_WAKER:
        v->next = MAX(v->next + w->period_ns, sim.now); /* it does not make up for lost time */
        burst_at(v, v->next);
        break;
    case WORK_SERVER:
        if (--v->requests) {
            next_burst(v);
            start_computing(&v->s, cpu);
        } else {
            sim.inputs++;
            sched_block(&v->s);
            resched(cpu);
        }
        break;
    /* The tick may have passed while the vCPU was not running. */
    case WORK_EVADER: burst_at(v, v->until + w->margin_ns + w->rest_ns); break;
    case WORK_SELF: go_to_sleep(v, sim.now + w->rest_ns); break;
    case WORK_YIELD:
        next_burst(v);
        sim.inputs++;
        sched_yield(&v->s);
        resched(cpu);
        break;
    default: break;
    }
}

/* Handles the alarm of a vCPU: a request arrives, or a new period begins. The vCPU wakes if it
 * sleeps. */
static void alarm_rings(struct timer *t, u64 now) {
    struct sim_vcpu *v = container_of(t, struct sim_vcpu, alarm);

    if (v->work.kind == WORK_SERVER) {
        alarm_at(v, sim.now + exponential(&v->rng, NS_PER_S / v->work.rate));
        count_event(v);
        if (v->requests++) return;
    }
    if (v->serving) { /* it begins its next period when it has served the events */
        duty_burst(v, &v->rest, &v->rest_until);
        return;
    }
    next_burst(v);
    go_on(v);
}

/* ---- putting a machine together ---- */

/* Measures how long vCPUs wait. It is the scheduler's sched_state_hook, which is called whenever
 * the state of a vCPU changes. */
static void on_state(struct sched_vcpu *s, u64 now) {
    if (sched_is_idle(s)) return;
    struct sim_vcpu *v = of(s);

    if (v->runnable_since != ~0ull) v->wait_max = MAX(v->wait_max, now - v->runnable_since);
    v->runnable_since = ~0ull;
    if (s->state == RS_RUNNABLE) v->runnable_since = now;
}

static struct timer governor;

/* Has the governor look at the pools, and sets its timer for when it wants to do that again. */
static void govern(struct timer *t, u64 now) {
    sim.cpu = 0;
    timerq_insert(&queue, t, MAX(governor_step(now), now + NS_PER_US));
}

int sim_cpu_online(u32 cpu) {
    if (cpu >= TAKT_MAX_CPUS) return -EINVAL;
    return sched_cpu_online(cpu, &cpu_memory[cpu]);
}

/* Starts a simulation without pools and VMs. Everything that an earlier simulation has left is
 * cleared, so that a process can run several, one after the other, and each gives the result that
 * it would give alone. */
void sim_start(const struct sim_options *o) {
    memset(&sim, 0, sizeof(sim));
    memset(pcpus, 0, sizeof(pcpus));
    queue = (struct timerq){ 0 };
    nr_vms = 0;
    sim.opt = *o;
    sim.hash = 0xcbf29ce484222325ull;
    sim.rng = rng_seed(o->seed);
    trace_mask = TRACE_CLASS_SCHED | TRACE_CLASS_REPLAY;
    if (o->mask) trace_mask = o->mask;
    if (o->quiet) trace_mask = 0;
    sched_init();
    sched_set_seed(o->seed);
    sched_state_hook = on_state;
    for (u32 cpu = 0; cpu < o->cpus; cpu++) {
        sim_cpu_online(cpu);
        pcpus[cpu].current = sched_current(cpu);
        timer_init(&pcpus[cpu].kick, kicked);
        timer_init(&pcpus[cpu].switched, switched);
    }
    governor_reset();
    timer_init(&governor, govern);
    if (o->governed) timerq_insert(&queue, &governor, NS_PER_S);
}

/* Ends the program with a sentence if there is an error. */
static void must(int error, const char *what, const char *name) {
    if (!error) return;
    fprintf(stderr, "sim: %s %s: error %d\n", what, name, error);
    abort();
}

struct sched_pool *sim_pool(const char *name, const char *policy, struct cpumask cpus) {
    struct sched_pool *p = NULL;

    must(sched_pool_create(name, policy, &p), "pool", name);
    cpumask_for_each(cpu, &cpus) must(sched_pool_add_cpu(p, cpu), "a CPU of pool", name);
    return p;
}

/* Returns how many ns after it was made the VM's vCPU number i begins. */
static u64 start_of(const struct sim_work *w, u32 i) {
    return w->start_ns + phase_of(w->start_seed, w->start_first + i, w->start_span);
}

/* Wakes a new vCPU now, or sets its alarm for the time when it has to begin. */
static void begin_work(struct sim_vcpu *v) {
    switch (v->work.kind) {
    case WORK_SERVER:
    case WORK_IDLE:
    case WORK_CLIENT: break; /* an event or their own alarm wakes them */
    default:
        if (v->next > sim.now)
            alarm_at(v, v->next);
        else
            sched_wake(&v->s);
    }
}

/* Makes the vCPUs of a new VM and starts it. Each gets random numbers of its own, which follow from
 * the seed, the VM's number and its own. */
static struct sim_vm *populate(struct sim_vm *d, u32 vcpus, struct cpumask affinity,
                               struct sim_work work) {
    if (work.kind == WORK_EVADER && !work.tick_ns) work.tick_ns = 10 * NS_PER_MS;
    for (u32 i = 0; i < vcpus; i++) {
        struct sim_vcpu *v = calloc(1, sizeof(*v));

        v->work = work;
        if (work.kind == WORK_MIXED && vcpus > 1) { /* vCPU 0 serves, the others compute */
            if (i == 0)
                v->work.percent = 0;
            else
                v->work.kind = WORK_DUTY;
        }
        v->due = work.due;
        v->started = v->runnable_since = ~0ull;
        v->rng = rng_seed(sim.opt.seed ^ (u64)(nr_vms + 1) << 32 ^ i);
        timer_init(&v->done, burst_over);
        timer_init(&v->alarm, alarm_rings);
        must(sched_vcpu_init(&v->s, &d->d, i, &affinity), "vCPU of", d->name);
        v->next = sim.now + start_of(&v->work, i);
        v->duty =
            (struct duty){ work.period_ns, v->work.percent, work.jitter_pct, .open = !work.closed };
        duty_begin(&v->duty, v->next, 0, seed_of(work.start_seed, work.start_first + i));
        next_burst(v);
        if (work.kind == WORK_SERVER)
            alarm_at(v, sim.now + exponential(&v->rng, NS_PER_S / work.rate));
        if (work.kind == WORK_CLIENT) alarm_at(v, work.due.next);
        d->vcpu[i] = v;
    }
    d->nr_vcpus = vcpus;
    vms[nr_vms++] = d;
    sched_unpause(&d->d);
    for (u32 i = 0; i < vcpus; i++) begin_work(d->vcpu[i]);
    return d;
}

/* Ids of VMs follow the order in which they are made, so that a run can be repeated. */
struct sim_vm *sim_vm(struct sched_pool *p, const char *name, u32 vcpus, struct cpumask affinity,
                      struct sim_work work) {
    struct sim_vm *d = calloc(1, sizeof(*d));

    snprintf(d->name, sizeof(d->name), "%s", name);
    must(sched_vm_init(&d->d, nr_vms + 1, d->name, d->slot, p), "VM", name);
    return populate(d, vcpus, affinity, work);
}

struct sim_vm *sim_turbo(struct sim_vm *d, struct sim_work work) {
    struct sim_vm *t = calloc(1, sizeof(*t));

    snprintf(t->name, sizeof(t->name), "%s", d->name);
    must(sched_vm_init_turbo(&t->d, &d->d, t->slot), "turbo vCPU of", d->name);
    return populate(t, 1, sim_cpus(0, TAKT_MAX_CPUS - 1), work);
}

void sim_vm_stop(struct sim_vm *d) {
    sched_pause(&d->d);
    while (!sched_vm_stopped(&d->d))
        sim_run_until(sim.now + MAX(sim.opt.kick_ns + 2 * sim.opt.switch_ns, 1000));
}

/* Stops the VM and frees it, in the order in which the hypervisor does it: first nothing runs any
 * more, then the timers are removed, and at last the scheduler forgets the VM. */
void sim_vm_destroy(struct sim_vm *d) {
    sim_vm_stop(d);
    for (u32 i = 0; i < d->nr_vcpus; i++) {
        timerq_remove(&queue, &d->vcpu[i]->alarm);
        timerq_remove(&queue, &d->vcpu[i]->done);
        sched_vcpu_fini(&d->vcpu[i]->s);
        free(d->vcpu[i]->late.ns);
        free(d->vcpu[i]);
    }
    sched_vm_fini(&d->d);
    for (u32 i = 0; i < nr_vms; i++)
        if (vms[i] == d) vms[i] = NULL;
    free(d);
}

/* Ends a simulation, so that the next one can begin in the same process. VMs are not destroyed
 * as in the hypervisor, step by step: their memory is freed. The pools are static data of the
 * scheduler, and sched_init() makes it forget them. */
void sim_stop(void) {
    for (u32 i = 0; i < nr_vms; i++) {
        struct sim_vm *d = vms[i];

        if (!d) continue;
        for (u32 k = 0; k < d->nr_vcpus; k++) {
            free(d->vcpu[k]->late.ns);
            free(d->vcpu[k]);
        }
        free(d);
    }
    sched_init();
    free(sim.kept);
    sim.kept = NULL;
    sim.nr_kept = sim.max_kept = 0;
    nr_vms = 0;
}

/* Sets a parameter of a pool or of a VM. A test that names a wrong parameter is a wrong test, so it
 * ends with a sentence. */
void sim_param(struct sched_pool *p, void *object, const char *name, i64 value) {
    const struct param *e = param_find(p, name);
    const char *why = "there is no such parameter";

    if (e && param_set(e, p, object, value, &why) == 0) return;
    fprintf(stderr, "sim: %s = %lld: %s\n", name, (long long)value, why);
    abort();
}

int sim_remove_cpu(struct sched_pool *p, u32 cpu) {
    int error;

    while ((error = sched_pool_remove_cpu(p, cpu)) == -EAGAIN)
        sim_run_until(sim.now + MAX(sim.opt.kick_ns + 2 * sim.opt.switch_ns, 1000));
    return error;
}

/* Stops the VM, moves it to another pool and starts it again. Returns 0, or an error. Only a VM
 * that does not run can move, as in the hypervisor. */
int sim_move_vm(struct sched_pool *p, struct sim_vm *d) {
    int error;

    sim_vm_stop(d);
    error = sched_pool_move_vm(p, &d->d);
    sched_unpause(&d->d);
    return error;
}

struct cpumask sim_cpus(u32 first, u32 last) {
    struct cpumask m;

    cpumask_zero(&m);
    for (u32 cpu = first; cpu <= last; cpu++) cpumask_set(&m, cpu);
    return m;
}
