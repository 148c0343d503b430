/* The credit engine's entries in the parameter table, and the presets. */
#include "sched/credit.h"

#define VM(field, unit, help, min, max)                                                                      \
    { #field, unit, help, PARAM_DOM, offsetof(struct credit_dom, field), min, max, NULL }
#define POOL(field, unit, help, ...)                                                                         \
    { #field, unit, help, PARAM_POOL, offsetof(struct credit_pool, knob.field), __VA_ARGS__ }
#define NUM(field, unit, help, min, max) POOL(field, unit, help, min, max, NULL)
#define WORD(field, help, ...)           POOL(field, "", help, 0, PARAM_WORDS(__VA_ARGS__))

const struct param credit_params[] = {
    VM(weight, "", "share relative to other VMs", 1, 65535),
    VM(cap, "%", "of one pCPU, 0 none", 0, 100 * TAKT_MAX_CPUS),
    VM(micro_us, "us", "micro-slice wanted (slicer), 0 none", 0, 1000000),
    VM(latency_us, "us", "the latency that is to give a micro-slice, 0 none", 0, 1000000),
    VM(share_pct, "%", "of its credit may be lent to I/O-intensive VMs", 0, 100),
    VM(queues, "", "I/O queues that it serves at a time, 0: its vCPUs", 0, 64),
    { "io", "", "I/O-intensive: as counted, or as said", PARAM_DOM, offsetof(struct credit_dom, io_setting),
      0, PARAM_WORDS("auto", "io", "cpu") },
    SCHED_VM_PARAMS,
    NUM(tslice_us, "us", "how long a pick runs", 50, 1000000),
    NUM(tick_us, "us", "sampling, 0: a third of the slice", 0, 1000000),
    NUM(period_us, "us", "accounting period, 0: the slice", 0, 1000000),
    NUM(ratelimit_us, "us", "no preemption before, 0 off", 0, 500000),
    NUM(ratelimit_exact, "", "1: never delays a yield, waits for the rest only", 0, 1),
    NUM(migration_delay_us, "us", "who ran so shortly ago is not stolen", 0, 100000),
    WORD(debit, "who pays: found at the tick, or by time", "tick", "time"),
    WORD(weight_scope, "a weight belongs to the VM or to each of its vCPUs", "dom", "vcpu"),
    WORD(inactive_reset, "credit on becoming inactive", "zero", "half"),
    WORD(tickle, "which idle pCPUs a wake kicks", "all", "one", "smart"),
    WORD(activate, "active again when a tick or when any debit finds it", "tick", "burn"),
    WORD(demote, "OVER at accounting only, or as soon as credit is gone", "account", "burn"),
    WORD(boost, "what a wake earns", "off", "stock", "aggressive", "anticipatory"),
    NUM(boost_levels, "", "of an anticipatory boost", 1, 16),
    NUM(boost_hold_us, "us", "of sleep that cost an anticipatory boost one level, 0: none do", 0, 1000000),
    NUM(boost_on_migrate, "", "1: a migration counts as a wake", 0, 1),
    NUM(yield_hint, "", "1: a yield also lets one of the next class go first", 0, 1),
    WORD(balance, "idle pCPUs look for work: when told, or never missing any", "events", "full"),
    WORD(overflow, "credit above the limit: lost and out of the grants, or handed to others", "inactive",
         "hand_on"),
    WORD(requeue, "where a preempted vCPU goes; head: to finish its slice", "tail", "head"),
    WORD(order, "within a class: first come, first served, or by remaining credit", "fifo", "credit"),
    WORD(slicer, "micro-slices for VMs that want them", "off", "vslicer", "edf", "frequency"),
    NUM(slicer_infer_us, "us", "micro-slice of an I/O-intensive VM that asks for none, 0 none", 0, 1000000),
    WORD(share, "VMs that compute lend credit to I/O-intensive ones, as share_pct allows", "off", "prorata",
         "sequential"),
    NUM(aca, "", "1: I/O-intensive VMs are granted credit also while they sleep", 0, 1),
    NUM(aca_shorten, "", "1: aca shortens the period instead of keeping credit back", 0, 1),
    NUM(turbo_max, "", "a turbo pool's cores by load up to so many, 0: as they are", 0, TAKT_MAX_CPUS),
    NUM(turbo_low, "%", "one turbo core less if the others would be busy for less", 0, 100),
    NUM(turbo_high, "%", "one turbo core more if they are busy for more", 0, 100),
    NUM(auto_io, "", "1: I/O-intensive VMs move here, and pCPUs come and go by load", 0, 1),
    NUM(credit_unit_us, "us", "credit is counted in whole units of so much, 0: to the ns", 0, 10000),
    WORD(fault, "a built-in fault, for tests", "none", "ignore_weight"),
    SCHED_POOL_PARAMS,
    { 0 },
};

/* What is not named is 0, the oldest. */
#define BOOST(kind)                                                                                          \
    .boost = kind, .boost_levels = 3, .boost_hold_us = 10000, .turbo_low = 40, .turbo_high = 80
#define TIMES(slice, limit) .tslice_us = slice, .ratelimit_us = limit
#define RULES                                                                                                \
    .ratelimit_exact = 1, .debit = DEBIT_TIME, .weight_scope = SCOPE_DOM, .inactive_reset = RESET_HALF,      \
    .tickle = TICKLE_SMART, .activate = ACTIVATE_BURN, .demote = DEMOTE_BURN, .yield_hint = 1,               \
    .balance = BALANCE_FULL, .overflow = OVERFLOW_HAND_ON, .requeue = REQUEUE_HEAD
/* Without a slicer, which has an order of its own. */
#define RANKED   RULES, .order = ORDER_CREDIT
#define HARDENED TIMES(30000, 1000), BOOST(BOOST_STOCK), RANKED
#define XEN      BOOST(BOOST_STOCK), .boost_on_migrate = 1, .credit_unit_us = CREDIT_XEN_UNIT / 1000
#define XEN_41                                                                                               \
    XEN, .debit = DEBIT_TIME, .weight_scope = SCOPE_VCPU, .inactive_reset = RESET_HALF, .yield_hint = 1,     \
         .tickle = TICKLE_ONE
#define PRESET(name, ...)                                                                                    \
    {                                                                                                        \
        name, &(const struct credit_knobs) { __VA_ARGS__ }                                                   \
    }

const struct sched_preset credit_presets[] = {
    PRESET("hardened", HARDENED),
    PRESET("faithful-3.4", TIMES(30000, 0), XEN),
    PRESET("faithful-4.0", TIMES(30000, 0), XEN, .debit = DEBIT_TIME),
    PRESET("faithful-4.1", TIMES(30000, 0), XEN_41),
    PRESET("faithful-4.2", TIMES(30000, 1000), XEN_41),
    PRESET("uniform-1ms", TIMES(1000, 500), BOOST(BOOST_STOCK), RANKED),
    PRESET("aggressive", TIMES(30000, 1000), BOOST(BOOST_AGGRESSIVE), RANKED),
    PRESET("anticipatory", TIMES(30000, 1000), BOOST(BOOST_ANTICIPATORY), RANKED),
    PRESET("vslicer", TIMES(30000, 1000), BOOST(BOOST_OFF), RULES, .slicer = SLICER_VSLICER),
    PRESET("vslicer-paper-prototype", TIMES(30000, 0), XEN, .debit = DEBIT_TIME, .slicer = SLICER_VSLICER),
    PRESET("sc", HARDENED, .share = SHARE_PRORATA),
    PRESET("aca", HARDENED, .aca = 1),
    PRESET("sc+aca", HARDENED, .share = SHARE_PRORATA, .aca = 1),
    /* "Coexisting scheduling policies", section 4: slices of 3 ms and ten times the accounting */
    PRESET("pool-io", TIMES(3000, 500), BOOST(BOOST_STOCK), RANKED),
    /* a turbo pool: short slices, and accounting as often (VT-22); who has credit goes round, nobody is
     * boosted */
    PRESET("turbo", TIMES(100, 0), .tick_us = 100, .period_us = 100, BOOST(BOOST_OFF), RULES),
    { NULL, NULL },
};

const char *credit_conflict(const struct sched_pool *p) {
    const struct credit_knobs *k = &credit_pool(p)->knob;
    bool pair = p->turbo || p->regular;
    const struct {
        bool conflict;
        const char *why;
    } rules[] = {
        { k->slicer && k->boost > BOOST_STOCK,
          "with a slicer boost is off or stock: it is built on slices that are not cut" },
        { k->slicer && k->debit == DEBIT_TICK, "with a slicer debit is time: no tick sees a micro-slice" },
        { k->slicer && k->share,
          "slicer and share exclude each other: a round is by weight, whatever credit was moved" },
        { k->slicer && k->aca, "slicer and aca exclude each other: who sleeps would be counted in a round" },
        { pair && k->debit == DEBIT_TICK,
          "in a turbo pool, and one that has one, debit is time: both are charged for use" },
        { pair && k->weight_scope == SCOPE_VCPU,
          "in a turbo pool, and one that has one, weight_scope is dom: shares are a VM's" },
        { pair && (k->share || k->aca),
          "vTurbo goes with neither share nor aca: it would take back what they move" },
        { p->regular && k->slicer, "in a turbo pool slicer is off: all its slices are short" },
    };

    for (u32 i = 0; i < ARRAY_SIZE(rules); i++)
        if (rules[i].conflict) return rules[i].why;
    return NULL;
}
