/* What vCPUs did in a measurement, and in each half of it. The halves agree if the machine had
 * settled when the measurement began, so a reader of a result can judge whether the warm-up was
 * long enough. */
#include <string.h>
#include "sched/credit.h"
#include "sim.h"

/* Begins a new half of the measurement for a vCPU: the sums so far become the marks from which that
 * half counts. */
static void begin_part(struct sim_vcpu *v) {
    sched_times(&v->s, &v->mark);
    sched_reset_latency(&v->s);
    v->wait_max = 0;
    v->mark_late = v->late.nr;
    v->credit_sum = 0;
    v->credit_samples = 0;
}

/* Begins the measurement of a VM. A wait that began before counts from now on. */
void sim_mark(struct sim_vm *d) {
    for (u32 i = 0; i < d->nr_vcpus; i++) {
        struct sim_vcpu *v = d->vcpu[i];

        v->first = (struct sim_span){ 0 };
        v->late.nr = 0;
        v->marked = sim.now;
        if (v->runnable_since != ~0ull) v->runnable_since = sim.now;
        begin_part(v);
    }
}

/* Returns how long the vCPU has been waiting for a pCPU by now, ns; 0 if it does not wait. */
static u64 present_wait(const struct sim_vcpu *v) {
    if (v->runnable_since == ~0ull) return 0;
    return sim.now - v->runnable_since;
}

/* Stores what the vCPU did from the last sim_mark() or sim_halfway() to now, by the difference of
 * the scheduler's sums to the marks. */
static void part_so_far(struct sim_vcpu *v, struct sim_span *out) {
    struct sched_times t;

    sched_times(&v->s, &t);
    for (u32 i = 0; i < RS_NR; i++) out->state_ns[i] = t.state_ns[i] - v->mark.state_ns[i];
    out->switches = t.switches - v->mark.switches;
    out->wakes = t.wakes - v->mark.wakes;
    out->migrations = t.migrations - v->mark.migrations;
    out->preemptions = t.preemptions - v->mark.preemptions;
    out->boosts = t.boosts - v->mark.boosts;
    out->grants = t.grants - v->mark.grants;
    out->granted_ns = t.granted_ns - v->mark.granted_ns;
    out->wait_max = MAX(v->wait_max, present_wait(v));
    out->wake = v->s.wake_latency;
    out->first_late = v->mark_late;
    out->nr_late = v->late.nr - v->mark_late;
    out->credit_sum = v->credit_sum;
    out->credit_samples = v->credit_samples;
}

/* Takes a sample of the credit of each vCPU of the VM. The mean of the samples shows whether credit
 * drifts, which means that the system has not settled. */
void sim_sample_credit(struct sim_vm *d) {
    if (d->d.pool->policy != &credit_policy) return;
    for (u32 i = 0; i < d->nr_vcpus; i++) {
        struct sim_vcpu *v = d->vcpu[i];

        v->credit_sum += credit_vcpu(&v->s)->credit;
        v->credit_samples++;
    }
}

/* Keeps what was counted in the first half, and begins anew. */
void sim_halfway(struct sim_vm *d) {
    for (u32 i = 0; i < d->nr_vcpus; i++) {
        struct sim_vcpu *v = d->vcpu[i];

        part_so_far(v, &v->first);
        v->first.wait_max = v->wait_max; /* the present wait counts for the second half */
        begin_part(v);
    }
}

/* Adds the figures of one half of the measurement to those of the other. Of maxima the larger one
 * is taken; all else is summed. */
static void add(struct sim_span *to, const struct sim_span *more) {
    for (u32 i = 0; i < RS_NR; i++) to->state_ns[i] += more->state_ns[i];
    to->switches += more->switches;
    to->wakes += more->wakes;
    to->migrations += more->migrations;
    to->preemptions += more->preemptions;
    to->boosts += more->boosts;
    to->grants += more->grants;
    to->granted_ns += more->granted_ns;
    to->wait_max = MAX(to->wait_max, more->wait_max);
    to->wake.count += more->wake.count;
    to->wake.sum += more->wake.sum;
    to->wake.max = MAX(to->wake.max, more->wake.max);
    for (u32 b = 0; b < HIST_BUCKETS; b++) to->wake.bucket[b] += more->wake.bucket[b];
    to->nr_late += more->nr_late;
    to->credit_sum += more->credit_sum;
    to->credit_samples += more->credit_samples;
}

/* Writes into *out what the vCPU did in the first half (0), in the second one up to now (1), or in
 * both together (2). Everything but the first half is computed at the moment of the call. */
void sim_span(struct sim_vcpu *v, u32 half, struct sim_span *out) {
    struct sim_span second;

    *out = v->first;
    if (half == 0) return;
    part_so_far(v, &second);
    if (half == 1)
        *out = second;
    else
        add(out, &second);
}

u64 sim_ran(struct sim_vcpu *v) {
    struct sched_times t;

    sched_times(&v->s, &t);
    return v->first.state_ns[RS_RUNNING] + t.state_ns[RS_RUNNING] - v->mark.state_ns[RS_RUNNING];
}

u64 sim_waits(struct sim_vcpu *v) {
    return MAX(MAX(v->first.wait_max, v->wait_max), present_wait(v));
}
