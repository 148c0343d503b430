/* vSlicer: latency-sensitive VMs (LS) run more often and for less long, with an equal share of
 * the CPU (C. Xu et al., HPDC 2012, sections 3.1 and 4, Algorithm 1). So a packet or a key for such
 * a VM waits for a shorter time. It is a part of the policy Credit (credit.c). A round is the time
 * in which each vCPU of a pCPU has its share; a micro-slice is the short time for which an LS runs,
 * several times in a round. For m LS and n other vCPUs (NL) of a pCPU:
 *
 *   T_N = tslice_us           an NL's slice, once in a round of T_P = (m + n) T_N; it is never cut
 *   T_n = T_N / n             an LS's time in each T_S = m T_n, between two slices of NL
 *   T_m = T_n / r             its micro-slice. r = ceil(T_n / what it asks for): that is
 *                             micro_us, or, for a latency_us of T_l, at most T_l / (m - 1)
 *   the longest wait of an LS is T_N + (m - 1) T_m
 *
 * How we read the paper where it leaves something open:
 * - An LS that has used up its T_n gets the next one at once, but first waits until one NL has run.
 *   It waits in Q_LATER, which is served after the first vCPU of Q_UNDER and then becomes part of
 *   Q_MICRO.
 * - m and n count active vCPUs. T_n and T_N are by weight, relative to the heaviest NL.
 * - The classes of credit stay, so that weights and caps hold. But OVER begins a slice below 0,
 *   because credit goes up and down by as much within a round.
 * - With n = 0 the LS take turns by what they ask for. With m = 0 this is plain credit.
 *
 * Micro-slices of different sizes (section 6): with `edf` the LS whose next micro-slice is due
 * first goes first; one is due T_S / r after the last. With `frequency` the LS goes first that
 * has used least of its T_n, so that the number of runs in a T_S is inverse to T_m. */
#include "sched/credit.h"

struct micro {
    u64 budget; /* T_n, ns */
    u64 slice;  /* T_m, ns */
};

/* Below this part of a micro-slice what is left of a T_n counts as used up. */
#define MICRO_REST 16

/* Returns the micro-slice in ns that a VM asks for, or for which its label asks (section 6: the
 * class is inferred). Returns 0 if neither asks for one. */
static u64 micro_wanted(const struct credit_pool *cp, const struct credit_vm *cd) {
    bool inferred = cd->io && !cd->micro_us && !cd->latency_us;

    if (inferred) return cp->knob.slicer_infer_us * NS_PER_US;
    return cd->micro_us * NS_PER_US;
}

/* Returns the micro-slice in ns that a VM with micro-slices asks for: directly, or by how long it
 * may wait. An LS waits while each other LS of its pCPU runs for one micro-slice, so that time is
 * divided among them. */
static u64 asked_for(const struct credit_pool *cp, const struct credit_cpu *cc,
                     const struct credit_vm *cd) {
    u64 ns = micro_wanted(cp, cd);

    if (!ns) {
        ns = cp->tslice;
        if (cc->ls > 1) ns = cd->latency_us * NS_PER_US / (cc->ls - 1);
    }
    return MAX(ns, VSLICER_LEAST_US * NS_PER_US); /* a latency among many VMs may ask for less */
}

/* Returns the time that cv has in a round: T_N for the heaviest NL. A vCPU that is not active
 * has no weight in the round yet. It gets a whole T_N: with less, no tick would ever find it
 * running, and with `activate = tick` it would never become active. */
static u64 round_time(const struct credit_pool *cp, const struct credit_cpu *cc,
                      const struct credit_vcpu *cv) {
    if (!cc->nl_weight || !cv->counted) return cp->tslice;
    return MAX(cp->tslice * cv->counted_weight / cc->nl_weight, VSLICER_LEAST_US * NS_PER_US);
}

/* Returns how long a vCPU with micro-slices may run in a T_S (its budget), and how long each of its
 * micro-slices is. The budget is divided into equal micro-slices, none longer than the VM has asked
 * for. With no NL on the pCPU nobody has to be waited for, so there is no budget to divide. */
static inline struct micro micro_of(const struct credit_pool *cp, const struct credit_cpu *cc,
                                    const struct credit_vcpu *cv) {
    const struct credit_vm *cd = credit_vm(cv->vcpu->vm);
    u64 ns = asked_for(cp, cc, cd), budget;

    if (!cc->nl) return (struct micro){ ns, ns };
    budget = MAX(round_time(cp, cc, cv) / cc->nl, 1);
    return (struct micro){ budget, budget / ((budget + ns - 1) / ns) };
}

/* Returns whether the vCPU gets micro-slices. */
static bool is_ls(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    const struct credit_vm *cd = credit_vm(cv->vcpu->vm);

    return cp->knob.slicer && (micro_wanted(cp, cd) || cd->latency_us);
}

/* Takes a vCPU out of the counts of the pCPU where it was counted. cv->counted is the number of
 * that pCPU plus 1, and 0 if the vCPU is not counted. */
static void uncount(struct credit_pool *cp, struct credit_vcpu *cv) {
    struct credit_cpu *cc = credit_cpu(cv->counted - 1);

    if (cv->counted_ls) {
        cp->nr_ls--;
        cc->ls--;
    } else {
        cc->nl--;
    }
    cv->counted = 0;
}

/* Counts a vCPU on the pCPU where it is now, and no longer where it was counted before. These
 * counts decide how a round is divided, so they have to fit what the pCPU has to run. */
void vslicer_count(struct sched_pool *p, struct credit_vcpu *cv, bool active) {
    struct credit_pool *cp = credit_pool(p);

    if (cv->counted) uncount(cp, cv);
    if (active) {
        struct credit_vm *cd = credit_vm(cv->vcpu->vm);
        struct credit_cpu *cc = credit_cpu(cv->vcpu->cpu);

        cv->counted = cv->vcpu->cpu + 1;
        cv->counted_ls = is_ls(cp, cv);
        cv->counted_weight = MAX((u32)(cd->counted / cd->nr_active), 1);
        if (cv->counted_ls) {
            cp->nr_ls++;
            cc->ls++;
        } else {
            cc->nl++;
            cc->nl_weight = MAX(cc->nl_weight, cv->counted_weight);
        }
    }
    credit_set_over(p);
}

/* Computes the counts of all pCPUs anew. The largest weight of a pCPU can only be found anew:
 * vslicer_count() lets it grow, but cannot know what the second largest is. */
void vslicer_recount(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);

    cpumask_for_each(cpu, &p->cpus) credit_cpu(cpu)->nl_weight = 0;
    list_for_each(cd, &cp->active, struct credit_vm, link) {
        list_for_each(cv, &cd->active, struct credit_vcpu, active) {
            vslicer_count(p, cv, true);
        }
    }
}

/* Returns how long cv runs if it is picked now (ns). A vCPU with micro-slices (LS) runs for one
 * micro-slice, or for what is left of its T_n, its budget in a round. One without (NL) runs for its
 * share of a round if it shares its pCPU with an LS, and otherwise for a whole slice. */
u64 vslicer_slice(const struct credit_pool *cp, const struct credit_cpu *cc,
                  const struct credit_vcpu *cv) {
    struct micro m;

    if (!is_ls(cp, cv)) {
        if (!cc->ls || !cv->counted) return cp->tslice;
        return MIN(round_time(cp, cc, cv), cp->tslice);
    }
    m = micro_of(cp, cc, cv);
    /* It runs although it has used up its T_n, because it is boosted or OVER. */
    if (cv->micro < m.slice / MICRO_REST) return m.slice;
    return MIN(m.slice, cv->micro);
}

/* Returns the sentence that says why the micro-slices of the pool's VMs cannot be, or NULL if they
 * can. A slice that is too short would cost more in switches than it is long. */
const char *vslicer_refuses(const struct sched_pool *p) {
    const struct credit_pool *cp = credit_pool(p);

    if (cp->knob.slicer_infer_us && cp->knob.slicer_infer_us < VSLICER_LEAST_US)
        return "slicer_infer_us must be 0 or at least 50";
    list_for_each(d, &p->vms, struct sched_vm, in_pool) {
        u32 us = credit_vm(d)->micro_us;

        if (us && us < VSLICER_LEAST_US) return "micro_us must be 0 or at least 50";
    }
    return NULL;
}

/* Returns how long the vCPU's micro-slice is, in ns; 0 if it has none. */
u64 vslicer_micro(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    if (!is_ls(cp, cv)) return 0;
    return micro_of(cp, credit_cpu(cv->vcpu->cpu), cv).slice;
}

/* Returns the queue for a vCPU of class UNDER. T_S is the time between two slices of vCPUs without
 * micro-slices, and T_n is what a vCPU with micro-slices may run in each T_S; cv->micro is what is
 * left of it in T_S number cv->round. One that has used it up, or whose T_S is over, gets a new
 * T_n. The queue is
 *   Q_MICRO  if it may run in this T_S,
 *   Q_LATER  if its new T_n is for the next T_S,
 *   Q_UNDER  if it has no micro-slices.
 * cv->key orders Q_MICRO: when its next micro-slice is due, or how much of T_n it has used. */
enum credit_queue vslicer_queue(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc = credit_cpu(cv->vcpu->cpu);
    struct micro m;
    bool used_up;

    if (cv->counted && cv->counted != cv->vcpu->cpu + 1) vslicer_count(p, cv, true);
    if (!is_ls(cp, cv)) return Q_UNDER;
    m = micro_of(cp, cc, cv);
    used_up = cv->round == cc->round && cv->micro < m.slice / MICRO_REST;
    if (used_up || (i32)(cv->round - cc->round) < 0) {
        cv->micro = m.budget;
        cv->round = cc->round;
        if (used_up) cv->round++;
        sched_trace(p, cv->vcpu, TRC_MICRO, cc->ls, cc->nl, m.budget);
    }
    if (cp->knob.slicer == SLICER_EDF)
        cv->key = p->now + cc->ls * m.slice;
    else
        cv->key = m.budget - MIN(cv->micro, m.budget);
    if (cv->round != cc->round) return Q_LATER;
    return Q_MICRO;
}
