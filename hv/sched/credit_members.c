/* The Credit scheduler's administration: pCPUs, VMs and vCPUs that join a pool and leave it, the
 * parameters of pools and VMs, and what tables show of them. None of this is on the way of a
 * decision, which credit.c makes.
 *
 * A VM with a turbo vCPU has two parts (vturbo.c): one in its own pool, which is then called the
 * regular pool, and one with the turbo vCPU in the turbo pool. Each part is a struct sched_vm, and
 * its `peer` is the other part. */
#include <takt/errno.h>
#include "common/string.h"
#include "sched/credit.h"

#define TICK_LEAST_US      1000 /* the shortest tick that is chosen for a pool */
#define RATELIMIT_LEAST_US 100  /* as in Xen */

/* A pCPU joins the pool, with empty queues. The first one of a pool becomes the one whose timer
 * does the pool's accounting. It need not sort its queue before the next accounting pass, so it
 * takes over the pool's count of passes (`epoch`). Any vCPU that waits may be one that it can
 * take. */
void credit_cpu_add(struct sched_pool *p, u32 cpu) {
    struct credit_pool *cp = credit_pool(p);

    for (int q = 0; q < Q_NR; q++) list_init(&credit_cpu(cpu)->queue[q]);
    credit_cpu(cpu)->epoch = cp->epoch;
    credit_cpu(cpu)->offers = cp->news = p->cpus;
    cpumask_for_each(peer, &p->cpus) cpumask_set(&credit_cpu(peer)->offered_to, cpu);
    if (p->nr_cpus == 1) cp->master = cpu;
    credit_set_over(p);
}

/* A pCPU leaves the pool; it is no longer in p->cpus. If it did the pool's accounting, another one
 * of the pool has to do it now. If it was the last one, nobody does. */
void credit_cpu_remove(struct sched_pool *p, u32 cpu) {
    struct credit_pool *cp = credit_pool(p);

    cpumask_clear(&cp->kicked, cpu);
    credit_set_over(p);
    if (cp->master != cpu) return;
    cp->master = cpumask_next(&p->cpus, 0);
    cp->accounting &= p->nr_cpus > 0;
    if (cp->accounting) credit_set_accounting(p);
}

/* A VM joins the pool. Its part in a turbo pool takes over the values of the VM itself. */
void credit_vm_add(struct sched_pool *p, struct sched_vm *d) {
    struct credit_vm *cd = credit_vm(d);

    cd->weight = CREDIT_DEFAULT_WEIGHT;
    if (d->id & SCHED_TURBO) vturbo_copy(d->peer, d);
    cd->io = d->io;
    list_init(&cd->active);
    list_init(&cd->link);
}

/* A vCPU joins the pool. It has no credit yet, but is not in debt either, so it is UNDER. It
 * becomes active at the first tick that finds it running or, with activate = burn, when it is first
 * charged. */
void credit_vcpu_add(struct sched_pool *p, struct sched_vcpu *v) {
    struct credit_vcpu *cv = credit_vcpu(v);

    cv->vcpu = v;
    cv->cls = CLASS_UNDER;
    list_init(&cv->link);
    list_init(&cv->active);
}

/* A vCPU leaves the pool, and with it what its weight counts there. */
void credit_vcpu_remove(struct sched_pool *p, struct sched_vcpu *v) {
    if (credit_is_active(credit_vcpu(v))) credit_set_active(p, credit_vcpu(v), false);
}

/* Decides whether a VM counts as I/O-intensive: by its label, which the I/O monitor has set, or by
 * what the administrator says instead. With the parameter aca, all vCPUs of an I/O-intensive VM are
 * granted credit from then on, also while they sleep (`kept`). Without a turbo pool there is also
 * nothing that the VM uses of one. */
static void classify(struct sched_pool *p, struct sched_vm *d) {
    struct credit_vm *cd = credit_vm(d);

    if (!p->turbo) cd->share_ns = cd->turbo_ns = 0;
    cd->io = cd->io_setting == IO_AUTO ? d->io : cd->io_setting == IO_YES;
    cd->kept = credit_pool(p)->knob.aca && cd->io;
    for (u32 i = 0; i < d->nr_vcpus && cd->kept; i++)
        if (d->vcpu[i] && !credit_is_active(credit_vcpu(d->vcpu[i])))
            credit_set_active(p, credit_vcpu(d->vcpu[i]), true);
}

/* The I/O monitor has changed the VM's label. */
void credit_label(struct sched_pool *p, struct sched_vm *d) {
    classify(p, d);
    vslicer_recount(p);
}

/* A parameter of a VM of this regular pool was set, so the part of the VM in the turbo pool gets
 * it, too. param_set() has locked both pools. */
static void copy_to_turbo(struct sched_pool *p) {
    ASSERT_HELD(&p->turbo->lock);
    list_for_each(d, &p->vms, struct sched_vm, in_pool) {
        if (d->peer) vturbo_copy(d, d->peer);
    }
    credit_weights_changed(p->turbo);
}

/* Returns why the times do not go together, a sentence, or NULL if they do. `tick` and `period` are
 * those in use, in us. */
static const char *times_conflict(const struct credit_knobs *k, u32 tick, u32 period) {
    if (tick > period) return "tick_us is longer than period_us";
    if (k->ratelimit_us > k->tslice_us) return "ratelimit_us is longer than tslice_us";
    if (k->ratelimit_us && k->ratelimit_us < RATELIMIT_LEAST_US)
        return "ratelimit_us must be 0 or at least 100";
    if (k->credit_unit_us && period % k->credit_unit_us)
        return "the accounting period is not a multiple of credit_unit_us";
    return NULL;
}

/* Returns the tick in us that is used if tick_us is 0: three ticks a slice, as in Xen, or one if
 * the slice is too short for three. A tick more often than every TICK_LEAST_US would cost more than
 * it gains. */
static u32 derived_tick(u32 slice_us) {
    if (slice_us >= 3 * TICK_LEAST_US) slice_us /= 3;
    return MAX(slice_us, TICK_LEAST_US);
}

/* Takes the pool's knobs into use. Timers that are set begin anew with the new lengths, and each
 * pCPU decides anew, because the slice that runs now has the old length. */
static void use_knobs(struct sched_pool *p, u32 tick_us, u32 period_us) {
    struct credit_pool *cp = credit_pool(p);
    const struct credit_knobs *k = &cp->knob;

    cp->tslice = k->tslice_us * NS_PER_US;
    cp->tick = tick_us * NS_PER_US;
    cp->period = cp->this_period = period_us * NS_PER_US;
    cp->ratelimit = k->ratelimit_us * NS_PER_US;
    cp->unit = k->credit_unit_us * NS_PER_US;
    cp->boost = boost_policies[k->boost];
    credit_set_over(p);
    cpumask_for_each(cpu, &p->cpus) {
        if (credit_cpu(cpu)->ticking) credit_start_tick(p, cpu);
        sched_kick(p, cpu);
    }
    if (cp->accounting) credit_set_accounting(p);
}

/* The parameter `e` was set, or a preset was (`e` is NULL). Checks whether all values go together
 * before any is taken into use. If they do not, the core puts the old value back. A parameter of a
 * VM needs no new times, but a turbo pool needs a copy of it. */
int credit_changed(struct sched_pool *p, const struct param *e, const char **why) {
    const struct credit_knobs *k = &credit_pool(p)->knob;
    u32 tick = k->tick_us, period = k->period_us;

    if (!tick) tick = derived_tick(k->tslice_us);
    if (!period) period = MAX(k->tslice_us, tick);
    *why = times_conflict(k, tick, period);
    if (!*why) *why = credit_conflict(p);
    if (!*why) *why = vslicer_refuses(p);
    if (*why) return -EINVAL;
    list_for_each(d, &p->vms, struct sched_vm, in_pool) classify(p, d);
    credit_weights_changed(p);
    vslicer_recount(p);
    if (!e || e->scope == PARAM_POOL)
        use_knobs(p, tick, period);
    else if (p->turbo)
        copy_to_turbo(p);
    return 0;
}

/* Does the VM count as I/O-intensive? See classify(). */
bool credit_is_io(const struct sched_vm *d) { return credit_vm(d)->io; }

/* Tells the governor (governor.c), which moves pCPUs and VMs between pools, what this pool's
 * parameters want of it. */
void credit_wishes(const struct sched_pool *p, struct sched_wishes *out) {
    const struct credit_knobs *k = &credit_pool(p)->knob;

    *out = (struct sched_wishes){ .turbo_max = k->turbo_max,
                                  .turbo_low = k->turbo_low,
                                  .turbo_high = k->turbo_high,
                                  .auto_io = k->auto_io };
}

/* Returns how tables name a vCPU: what its VM is, and whether it has micro-slices. */
static const char *credit_kind_of(const struct credit_pool *cp, bool is_turbo, bool is_io,
                                  bool is_ls) {
    if (is_turbo) return "turbo";
    if (is_ls && is_io) return "LS+io";
    if (is_ls) return "LS";
    if (is_io) return "io";
    if (cp->nr_ls) return "NL";
    return "";
}

/* Fills in what tables show of a vCPU: its kind, its micro-slice, how much of a period its VM has
 * used of the turbo pool (in hundredths of a per cent), what shared credit has moved, and its
 * boost. A turbo vCPU shows what its VM has in the regular pool. */
void credit_view(struct sched_pool *p, struct sched_vcpu *v, struct sched_times *out) {
    const struct credit_pool *cp = credit_pool(p);
    const struct credit_vcpu *cv = credit_vcpu(v);
    const struct sched_vm *regular = v->vm;
    const struct credit_vm *cd;
    u64 period_us;

    if (v->vm->id & SCHED_TURBO) regular = v->vm->peer;
    cd = credit_vm(regular);
    period_us = MAX(credit_pool(regular->pool)->period / NS_PER_US, 1);
    out->micro_ns = vslicer_micro(cp, cv);
    out->kind = credit_kind_of(cp, regular != v->vm, cd->io, out->micro_ns != 0);
    out->turbo_pct = cd->turbo_ns / NS_PER_US * 10000 / period_us;
    if (cp->knob.share) out->moved_ns = cd->moved;
    if (cv->cls == CLASS_BOOST) out->boost = MAX(cv->level, 1);
}

/* A pool is new: takes the first preset, which is the default, into use. It goes together, so there
 * is no error. */
void credit_pool_init(struct sched_pool *p) {
    const char *why;

    list_init(&credit_pool(p)->active);
    memcpy(p->priv, credit_presets[0].values, sizeof(struct credit_knobs));
    credit_changed(p, NULL, &why);
}
