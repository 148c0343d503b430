/* vSlicer: latency-sensitive VMs (LS) run more often for less long, at an equal share of the CPU (C. Xu et
 * al., HPDC 2012, sections 3.1 and 4, Algorithm 1). For m LS and n other vCPUs (NL) of a pCPU:
 *
 *   T_N = tslice_us           an NL's slice, once a round of T_P = (m + n) T_N; it is not cut
 *   T_n = T_N / n             an LS's time in each T_S = m T_n, between two NL slices
 *   T_m = T_n / r             its micro-slice, r = ceil(T_n / what it asks for): micro_us, or for a
 *                             latency_us of T_l at most T_l / (m - 1)
 *   worst wait of an LS = T_N + (m - 1) T_m
 *
 * Our reading where the paper leaves it open: an LS whose T_n is used up gets the next one and waits for
 * one NL to run first (Q_LATER, which follows Q_UNDER's first and then is Q_MICRO); m and n count active
 * vCPUs; T_n and T_N are by weight, relative to the heaviest NL; the classes of credit stay, so that
 * weights and caps hold, but OVER begins a slice below 0, for a round swings credit by as much. With n = 0
 * the LS take turns by what they ask for; with m = 0 this is plain credit. Micro-slices of different sizes
 * (section 6): `edf` runs first whose next is due first, T_S / r after the last; `frequency` who has used
 * least of its T_n, so that runs in a T_S are inverse to T_m.
 */
#include "sched/credit.h"

struct micro {
    u64 budget, slice; /* T_n, T_m: ns */
};

/* The micro-slice that a VM asks for, or that its label asks for (section 6: the class inferred); 0: none. */
static u64 micro_wanted(const struct credit_pool *cp, const struct credit_dom *cd) {
    bool inferred = cd->io && !cd->micro_us && !cd->latency_us;

    return (inferred ? cp->knob.slicer_infer_us : cd->micro_us) * NS_PER_US;
}

static u64 asked_for(const struct credit_pool *cp, const struct credit_cpu *cc, const struct credit_dom *cd) {
    u64 ns = micro_wanted(cp, cd);

    if (!ns) ns = cc->ls > 1 ? cd->latency_us * NS_PER_US / (cc->ls - 1) : cp->tslice;
    return MAX(ns, VSLICER_LEAST_US * NS_PER_US); /* a latency among many VMs may ask for less */
}

/* What cv has in a round: T_N for the heaviest NL. A vCPU that is not active has no weight in the round yet.
 * It gets a whole T_N: with less, no tick would ever find it running, and with `activate = tick` it would
 * never become active. */
static u64 round_time(const struct credit_pool *cp, const struct credit_cpu *cc,
                      const struct credit_vcpu *cv) {
    if (!cc->nl_weight || !cv->counted) return cp->tslice;
    return MAX(cp->tslice * cv->counted_weight / cc->nl_weight, VSLICER_LEAST_US * NS_PER_US);
}

static inline struct micro micro_of(const struct credit_pool *cp, const struct credit_cpu *cc,
                                    const struct credit_vcpu *cv) {
    const struct credit_dom *cd = credit_dom(cv->vcpu->dom);
    u64 ns = asked_for(cp, cc, cd), budget;

    if (!cc->nl) return (struct micro){ ns, ns };
    budget = MAX(round_time(cp, cc, cv) / cc->nl, 1);
    return (struct micro){ budget, budget / ((budget + ns - 1) / ns) };
}

static bool is_ls(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    const struct credit_dom *cd = credit_dom(cv->vcpu->dom);

    return cp->knob.slicer && (micro_wanted(cp, cd) || cd->latency_us);
}

/* Takes cv out of the counts of the pCPU where it was, and into those of the one where it is now if it is
 * active. To be called whenever one of these has changed, or what its VM asks for. */
void vslicer_count(struct sched_pool *p, struct credit_vcpu *cv, bool active) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc;

    if (cv->counted) {
        cc = credit_cpu(cv->counted - 1);
        cp->nr_ls -= cv->counted_ls;
        cc->ls -= cv->counted_ls;
        cc->nl -= !cv->counted_ls;
    }
    cv->counted = active ? cv->vcpu->cpu + 1 : 0;
    if (active) {
        struct credit_dom *cd = credit_dom(cv->vcpu->dom);

        cc = credit_cpu(cv->vcpu->cpu);
        cv->counted_ls = is_ls(cp, cv);
        cv->counted_weight = MAX((u32)(cd->counted / cd->nr_active), 1);
        cp->nr_ls += cv->counted_ls;
        cc->ls += cv->counted_ls;
        cc->nl += !cv->counted_ls;
        if (!cv->counted_ls) cc->nl_weight = MAX(cc->nl_weight, cv->counted_weight);
    }
    credit_set_over(p);
}

/* All anew, once an accounting period and when what the counts are made of has changed. */
void vslicer_recount(struct sched_pool *p) {
    struct credit_pool *cp = credit_pool(p);

    cpumask_for_each(cpu, &p->cpus) credit_cpu(cpu)->nl_weight = 0;
    list_for_each(cd, &cp->active, struct credit_dom, link) {
        list_for_each(cv, &cd->active, struct credit_vcpu, active) {
            vslicer_count(p, cv, true);
        }
    }
}

/* How long a pick of cv runs. */
u64 vslicer_slice(const struct credit_pool *cp, const struct credit_cpu *cc, const struct credit_vcpu *cv) {
    struct micro m;

    if (!is_ls(cp, cv)) return cc->ls && cv->counted ? MIN(round_time(cp, cc, cv), cp->tslice) : cp->tslice;
    m = micro_of(cp, cc, cv);
    if (cv->micro < m.slice / 16) return m.slice; /* boosted, or OVER: it has none left */
    return MIN(m.slice, cv->micro);
}

const char *vslicer_refuses(const struct sched_pool *p) {
    const struct credit_pool *cp = credit_pool(p);

    if (cp->knob.slicer_infer_us && cp->knob.slicer_infer_us < VSLICER_LEAST_US)
        return "slicer_infer_us is 0 or at least 50";
    list_for_each(d, &p->doms, struct sched_dom, in_pool) {
        u32 us = credit_dom(d)->micro_us;

        if (us && us < VSLICER_LEAST_US) return "micro_us is 0 or at least 50";
    }
    return NULL;
}

u64 vslicer_micro(const struct credit_pool *cp, const struct credit_vcpu *cv) {
    return is_ls(cp, cv) ? micro_of(cp, credit_cpu(cv->vcpu->cpu), cv).slice : 0;
}

/* The queue for a runnable cv of class UNDER. A T_n is for one T_S: who has used it up has the next one,
 * and waits. */
enum credit_queue vslicer_queue(struct sched_pool *p, struct credit_vcpu *cv) {
    struct credit_pool *cp = credit_pool(p);
    struct credit_cpu *cc = credit_cpu(cv->vcpu->cpu);
    struct micro m;
    bool used_up;

    if (cv->counted && cv->counted != cv->vcpu->cpu + 1) vslicer_count(p, cv, true);
    if (!is_ls(cp, cv)) return Q_UNDER;
    m = micro_of(cp, cc, cv);
    used_up = cv->round == cc->round && cv->micro < m.slice / 16;
    if (used_up || (i32)(cv->round - cc->round) < 0) {
        cv->micro = m.budget;
        cv->round = cc->round + used_up;
        sched_trace(p, cv->vcpu, TRC_MICRO, cc->ls, cc->nl, m.budget);
    }
    cv->key = cp->knob.slicer == SLICER_EDF ? p->now + cc->ls * m.slice : m.budget - MIN(cv->micro, m.budget);
    return cv->round == cc->round ? Q_MICRO : Q_LATER;
}
