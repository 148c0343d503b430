/* Checks the scheduler's books between two events: what its structures say about a vCPU has to
 * agree with each other, and with where vCPUs are. A mistake in them shows at the event that made
 * it, and not seconds later in a share that is a little wrong. */
#include "check.h"
#include "sched/core.h"
#include "sched/credit.h"

static u32 nr_pcpus; /* of the machine that is checked */

static u32 times_current(const struct sched_vcpu *v) {
    u32 n = 0;

    for (u32 cpu = 0; cpu < nr_pcpus; cpu++) n += sched_cpus[cpu]->current == v;
    return n;
}

/* Checks what must hold for a vCPU that runs, and for one that does not. */
static void check_vcpu(const struct sched_pool *p, const struct sched_vcpu *v) {
    u32 id = sched_who(v), running = times_current(v);
    const struct sched_cpu *c = sched_cpus[v->cpu];

    MUST(running <= 1, "vCPU %x on %u pCPUs", id, running);
    MUST(c->pool == p, "vCPU %x is assigned to pCPU %u of another pool", id, v->cpu);
    if (running) {
        MUST(c->current == v && v->on_cpu == v->cpu, "vCPU %x runs where it is not assigned", id);
        MUST(v->state == RS_RUNNING && !v->queued, "vCPU %x runs in state %d", id, v->state);
        MUST(cpumask_test(&v->affinity, v->cpu) || v->migrating,
             "vCPU %x runs outside its affinity", id);
        return;
    }
    MUST(v->state != RS_RUNNING, "vCPU %x does not run", id);
    MUST(v->queued == sched_runnable(v), "vCPU %x: queued %d", id, v->queued);
    MUST(!v->queued || v->state == RS_RUNNABLE, "vCPU %x is queued in state %d", id, v->state);
    MUST(v->on_cpu == SCHED_NO_CPU || v->on_cpu == v->cpu,
         "vCPU %x was moved with its state elsewhere", id);
    MUST(!v->queued || cpumask_test(&v->affinity, v->cpu), "vCPU %x waits outside its affinity",
         id);
}

/* Checks that each pCPU that may take v from its queue can find it there: it has v's pCPU in its
 * `offers`. What a pCPU is offered, and to which ones a pCPU offers, has to agree. */
static void check_offer(const struct sched_pool *p, const struct sched_vcpu *v) {
    struct cpumask allowed = sched_allowed(p, v);

    cpumask_for_each(cpu, &allowed) {
        MUST(cpumask_test(&credit_cpu(cpu)->offers, v->cpu), "pCPU %u does not know of vCPU %x",
             cpu, sched_who(v));
        MUST(cpumask_test(&credit_cpu(v->cpu)->offered_to, cpu), "pCPU %u", cpu);
    }
}

/* Checks that pass_on() misses nothing if it leaves out this pCPU, where `first` is the first one
 * that waits: the vCPU that runs there is not of a lower class, and no idle pCPU may take one of
 * those that wait. */
static void check_no_news(const struct sched_pool *p, u32 cpu, const struct credit_vcpu *first) {
    struct cpumask takers = cpumask_and(&credit_cpu(cpu)->offered_to, &p->idlers);
    const struct sched_vcpu *current = sched_cpus[cpu]->current;

    MUST(!sched_is_idle(current), "pCPU %u idles", cpu);
    MUST(first->cls >= credit_vcpu(current)->cls, "pCPU %u", cpu);
    MUST(cpumask_empty(&takers), "pCPU %u", cpu);
}

/* Checks the queue of a pCPU whose pool runs Credit. Its vCPUs are of three classes: BOOST is
 * better than UNDER (it has credit), and that is better than OVER (it has none left); a better
 * class has a smaller number. The queue consists of Q_NR lists, in the order in which they are
 * served; a class may have several.
 *
 * What is kept beside the lists must agree with them: the pCPU's word `queues` has a bit for each
 * list that is not empty, the pool's set `waiting` has the pCPUs with any vCPU queued, and its set
 * `ahead` those with one in a list before OVER's. In `ahead` a pCPU may be missing whose first vCPU
 * is OVER, because only better ones are looked for there. Each accounting pass increases the pool's
 * `epoch` and changes classes; a pCPU sorts its vCPUs into the right lists later, and then its own
 * `epoch` is the pool's. Adds to *queued how many vCPUs are in the lists. */
static void check_credit_cpu(const struct sched_pool *p, u32 cpu, u32 *queued) {
    const struct credit_pool *cp = credit_pool(p);
    const struct credit_cpu *cc = credit_cpu(cpu);
    const struct credit_vcpu *first = NULL;
    u32 n = 0;

    for (int q = 0; q < Q_NR; q++)
        list_for_each(cv, &cc->queue[q], struct credit_vcpu, link) {
            if (!first) first = cv;
            check_offer(p, cv->vcpu);
            MUST(cv->vcpu->queued && cv->vcpu->cpu == cpu, "vCPU %x in a queue",
                 sched_who(cv->vcpu));
            /* After sorting no vCPU is in a better list than its class allows. It may be in a worse
             * one after a yield. With another `demote` than DEMOTE_ACCOUNT, classes also change
             * between two passes, and the list follows later. */
            if (cc->epoch == cp->epoch && cp->knob.demote == DEMOTE_ACCOUNT)
                MUST(cv->cls <= class_of_queue(q), "vCPU %x of class %d in list %d",
                     sched_who(cv->vcpu), cv->cls, q);
            MUST((int)cv->queue == q, "vCPU %x in list %d, not %d", sched_who(cv->vcpu), q,
                 cv->queue);
            n++;
        }
    for (int q = 0; q < Q_NR; q++)
        MUST(!(cc->queues & BIT(q)) == list_empty(&cc->queue[q]), "list %d", q);
    MUST(cpumask_test(&cp->waiting, cpu) == (n > 0), "pCPU %u", cpu);
    if (cpumask_test(&cp->ahead, cpu))
        MUST(cc->queues & QUEUES_AHEAD, "pCPU %u", cpu);
    else
        MUST(!(cc->queues & QUEUES_AHEAD) || first->cls == CLASS_OVER, "pCPU %u", cpu);
    if (first && !cpumask_test(&cp->news, cpu)) check_no_news(p, cpu, first);
    *queued += n;
}

/* Returns the weight by which a VM takes part in the next accounting pass. It is computed anew
 * here, from what is known of the VM, and compared with the sum that the policy keeps. */
static u64 credit_weight(const struct credit_pool *cp, const struct credit_vm *cd, u32 active) {
    u64 weight = cd->weight;

    if (active == 0) return 0;
    if (cp->knob.fault == FAULT_IGNORE_WEIGHT) weight = CREDIT_DEFAULT_WEIGHT;
    if (cd->share_ns) weight = MAX(cd->share_ns / NS_PER_US, 1);
    if (cp->knob.weight_scope == SCOPE_VCPU) weight *= active;
    return weight;
}

/* Compares each sum that the policy Credit keeps for a pool with what it is a sum of: active vCPUs,
 * weights, vCPUs that wait. Credit gives CPU time to vCPUs in an accounting pass, which comes once
 * in a period and looks at those only that are "active": on a list of vCPUs that have run lately. A
 * vCPU that has used up the cap of its VM is "parked", and does not run. It has to be active,
 * because only an accounting pass lets it run again. */
static void check_credit(const struct sched_pool *p) {
    const struct credit_pool *cp = credit_pool(p);
    u32 queued = 0, waiting = 0;
    u64 weight = 0;

    cpumask_for_each(cpu, &p->cpus) check_credit_cpu(p, cpu, &queued);
    list_for_each(d, &p->vms, struct sched_vm, in_pool) {
        const struct credit_vm *cd = credit_vm(d);
        u32 active = 0;

        for (u32 i = 0; i < d->nr_vcpus; i++) {
            const struct sched_vcpu *v = d->vcpu[i];
            const struct credit_vcpu *cv;

            if (!v) continue;
            cv = credit_vcpu(v);
            waiting += v->queued;
            active += !list_empty(&cv->active);
            MUST(!v->parked || !list_empty(&cv->active), "vCPU %x is parked for ever",
                 sched_who(v));
        }
        MUST(active == cd->nr_active, "VM %u has %u active vCPUs, counted %u", d->id, active,
             cd->nr_active);
        weight += credit_weight(cp, cd, active);
    }
    MUST(queued == waiting, "%u queued, %u in queues", waiting, queued);
    MUST(weight == cp->weight, "weight %u, counted %u", (u32)weight, (u32)cp->weight);
    MUST(weight == 0 || cp->accounting, "active vCPUs and no accounting");
}

/* Checks, for all pools, VMs and pCPUs of the scheduler, what must hold between two events, and
 * ends the test if anything does not. No lock is held then, all lists and counts agree, and each
 * vCPU is where its state says. */
void sched_check(u32 cpus) {
    nr_pcpus = cpus;
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p)) {
        u32 n = 0;

        MUST(!spin_is_locked(&p->lock), "pool %s", p->name);
        list_for_each(d, &p->vms, struct sched_vm, in_pool) {
            MUST(d->pool == p, "VM %u", d->id);
            for (u32 i = 0; i < d->nr_vcpus; i++)
                if (d->vcpu[i]) check_vcpu(p, d->vcpu[i]);
            n++;
        }
        MUST(n == p->nr_vms, "pool %s has %u VMs, counted %u", p->name, n, p->nr_vms);
        cpumask_for_each(cpu, &p->cpus) {
            bool idle = sched_is_idle(sched_cpus[cpu]->current);

            MUST(cpumask_test(&p->idlers, cpu) == idle, "pCPU %u", cpu);
            MUST(sched_cpus[cpu]->pool == p, "pCPU %u", cpu);
        }
        if (p->policy == &credit_policy) check_credit(p);
    }
}

/* Ends the test if a vCPU waits while a pCPU where it may run is idle. That holds only when no kick
 * is under way. */
void sched_check_work_conserving(void) {
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p))
        list_for_each(d, &p->vms, struct sched_vm, in_pool) {
            for (u32 i = 0; i < d->nr_vcpus; i++) {
                const struct sched_vcpu *v = d->vcpu[i];

                if (!v || !v->queued) continue;
                struct cpumask idle = cpumask_and(&p->idlers, &v->affinity);

                MUST(cpumask_empty(&idle), "vCPU %x waits while pCPU %u is idle", sched_who(v),
                     cpumask_next(&idle, 0));
            }
        }
}
