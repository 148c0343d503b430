/* The credit engine's entries in the parameter table, which the shell, the store and the
 * configuration file use, and the presets: named sets of values, such as those of a certain version
 * of Xen. A "knob" is a parameter of a pool. */
#include "sched/credit.h"

#define VM(field, unit, help, min, max)                                                            \
    { #field, unit, help, PARAM_DOM, offsetof(struct credit_vm, field), min, max, NULL }
#define POOL(field, unit, help, ...)                                                               \
    { #field, unit, help, PARAM_POOL, offsetof(struct credit_pool, knob.field), __VA_ARGS__ }
#define NUM(field, unit, help, min, max) POOL(field, unit, help, min, max, NULL)
#define WORD(field, help, ...)           POOL(field, "", help, 0, PARAM_WORDS(__VA_ARGS__))

const struct param credit_params[] = {
    VM(weight, "", "CPU time is divided in proportion to the weights of VMs.", 1, 65535),
    VM(cap, "%", "Most CPU time that the VM may use: 100 is one whole pCPU. 0: no limit.", 0,
       100 * TAKT_MAX_CPUS),
    VM(micro_us, "us",
       "With a slicer: length of the short, frequent slices that the VM asks for. 0: it asks for "
       "none.",
       0, 1000000),
    VM(latency_us, "us",
       "With a slicer: the VM asks for short slices by how long it may wait for a CPU. 0: it does "
       "not.",
       0, 1000000),
    VM(share_pct, "%", "With share: so much of its credit may be lent to I/O-intensive VMs.", 0,
       100),
    VM(queues, "",
       "With share: I/O queues that the VM serves at the same time. It wants the credit of one "
       "pCPU for "
       "each. 0: as many as it has active vCPUs.",
       0, 64),
    { "io", "",
      "Is the VM I/O-intensive? auto: if Takt counts many events for it; io: yes; cpu: no.",
      PARAM_DOM, offsetof(struct credit_vm, io_setting), 0, PARAM_WORDS("auto", "io", "cpu") },
    SCHED_VM_PARAMS,
    NUM(tslice_us, "us", "Slice: how long a vCPU may run until the scheduler chooses again.", 50,
        1000000),
    NUM(tick_us, "us",
        "How often the vCPU that runs is looked at: it pays, and a boost ends. 0: derived from the "
        "slice.",
        0, 1000000),
    NUM(period_us, "us", "How often credit is granted. 0: once a slice.", 0, 1000000),
    NUM(ratelimit_us, "us",
        "A vCPU that was chosen runs at least so long before another one may preempt it. 0: no "
        "such limit.",
        0, 500000),
    NUM(ratelimit_exact, "",
        "1: a vCPU waits only for what is left of the other one's ratelimit_us, and not at all if "
        "that one "
        "yields. 0: as in Xen.",
        0, 1),
    NUM(migration_delay_us, "us",
        "A vCPU that ran so recently is not moved to another pCPU that has nothing to do.", 0,
        100000),
    WORD(debit,
         "Which vCPU pays for CPU time. tick: the one that runs at a tick; time: each for the time "
         "that it "
         "ran.",
         "tick", "time"),
    WORD(weight_scope, "dom: the vCPUs of a VM share its weight; vcpu: each of them has all of it.",
         "dom", "vcpu"),
    WORD(inactive_reset,
         "Credit that a vCPU keeps when it becomes inactive (with overflow = inactive).", "zero",
         "half"),
    WORD(tickle,
         "Which idle pCPUs are kicked when a vCPU wakes. all; one; smart: one, and the vCPU that "
         "runs on its "
         "own pCPU is not preempted.",
         "all", "one", "smart"),
    WORD(activate,
         "When an inactive vCPU is active again. tick: when a tick finds it running; burn: as soon "
         "as it "
         "pays.",
         "tick", "burn"),
    WORD(demote,
         "When a vCPU goes behind those that have credit. account: when credit is granted next; "
         "burn: as "
         "soon as its own is used up.",
         "account", "burn"),
    WORD(boost,
         "What a vCPU gains by waking. stock: it goes first if it has credit; aggressive: always, "
         "for a "
         "whole slice; anticipatory: more, the more often it wakes.",
         "off", "stock", "aggressive", "anticipatory"),
    NUM(boost_levels, "", "With boost = anticipatory: how many levels there are.", 1, 16),
    NUM(boost_hold_us, "us",
        "With boost = anticipatory: a vCPU loses one level by sleeping so long. 0: it loses none.",
        0, 1000000),
    NUM(boost_on_migrate, "", "1: a vCPU that moves to another pCPU is boosted as if it had woken.",
        0, 1),
    NUM(yield_hint, "", "1: a vCPU that yields lets one of the next class go first, too.", 0, 1),
    WORD(balance,
         "When an idle pCPU takes vCPUs that wait for others. events: when it is told to look; "
         "full: "
         "whenever there are any.",
         "events", "full"),
    WORD(overflow,
         "Credit above the limit. inactive: it is lost, and the vCPU gets no more until it runs "
         "again; "
         "hand_on: other vCPUs get it.",
         "inactive", "hand_on"),
    WORD(requeue,
         "Where a preempted vCPU waits. tail: behind those of its class; head: before them, to "
         "finish its "
         "slice.",
         "tail", "head"),
    WORD(order,
         "Which vCPU of a class goes first. fifo: the one that came first; credit: the one with "
         "most credit "
         "left. round: on one pCPU all take turns, whatever their class.",
         "fifo", "credit", "round"),
    WORD(slicer,
         "Short slices for VMs that ask for them (micro_us). vslicer: in turn; edf: by deadline; "
         "frequency: "
         "the one that has used least.",
         "off", "vslicer", "edf", "frequency"),
    NUM(slicer_infer_us, "us",
        "With a slicer: length of the short slices of I/O-intensive VMs that ask for none. 0: they "
        "get none.",
        0, 1000000),
    WORD(share,
         "VMs that compute lend credit to I/O-intensive ones, as share_pct allows. prorata: all of "
         "them a "
         "part; sequential: one after the other.",
         "off", "prorata", "sequential"),
    NUM(aca, "", "1: I/O-intensive VMs are granted credit also while they sleep.", 0, 1),
    NUM(aca_shorten, "", "1: aca makes accounting periods shorter instead of keeping credit back.",
        0, 1),
    NUM(turbo_max, "",
        "A turbo pool gets and loses pCPUs by load, up to so many. 0: it keeps those that it has.",
        0, TAKT_MAX_CPUS),
    NUM(turbo_low, "%", "A turbo pool loses a pCPU if the others would be busy for less than this.",
        0, 100),
    NUM(turbo_high, "%", "A turbo pool gets a pCPU if its own are busy for more than this.", 0,
        100),
    NUM(auto_io, "", "1: I/O-intensive VMs move to this pool, and it gets and loses pCPUs by load.",
        0, 1),
    NUM(credit_unit_us, "us",
        "Credit is counted in whole units of this length. 0: to the nanosecond.", 0, 10000),
    WORD(fault, "A fault that is built in, so that tests can show that they notice it.", "none",
         "ignore_weight"),
    SCHED_POOL_PARAMS,
    { 0 },
};

/* The presets. A knob that a preset does not name is 0, which is what the oldest Xen does. */
#define BOOST(kind)                                                                                \
    .boost = kind, .boost_levels = 3, .boost_hold_us = 10000, .turbo_low = 40, .turbo_high = 80
#define TIMES(slice, limit) .tslice_us = slice, .ratelimit_us = limit
#define RULES                                                                                      \
    .ratelimit_exact = 1, .debit = DEBIT_TIME, .weight_scope = SCOPE_DOM,                          \
    .inactive_reset = RESET_HALF, .tickle = TICKLE_SMART, .activate = ACTIVATE_BURN,               \
    .demote = DEMOTE_BURN, .yield_hint = 1, .balance = BALANCE_FULL, .overflow = OVERFLOW_HAND_ON, \
    .requeue = REQUEUE_HEAD
/* For presets without a slicer. With a slicer, micro-slices have an order of their own. */
#define RANKED   RULES, .order = ORDER_CREDIT
#define HARDENED TIMES(30000, 1000), BOOST(BOOST_STOCK), RANKED
#define XEN      BOOST(BOOST_STOCK), .boost_on_migrate = 1, .credit_unit_us = CREDIT_XEN_UNIT / 1000
#define XEN_41                                                                                     \
    XEN, .debit = DEBIT_TIME, .weight_scope = SCOPE_VCPU, .inactive_reset = RESET_HALF,            \
         .yield_hint = 1, .tickle = TICKLE_ONE
#define PRESET(name, ...)                                                                          \
    {                                                                                              \
        name, &(const struct credit_knobs) { __VA_ARGS__ }                                         \
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
    PRESET("vslicer-paper-prototype", TIMES(30000, 0), XEN, .debit = DEBIT_TIME,
           .slicer = SLICER_VSLICER),
    PRESET("sc", HARDENED, .share = SHARE_PRORATA),
    PRESET("aca", HARDENED, .aca = 1),
    PRESET("sc+aca", HARDENED, .share = SHARE_PRORATA, .aca = 1),
    /* "Coexisting scheduling policies", section 4: slices of 3 ms, and accounting ten times as
     * often. */
    PRESET("pool-io", TIMES(3000, 500), BOOST(BOOST_STOCK), RANKED),
    /* A turbo pool has short slices and is accounted for as often (VT-22). All its vCPUs take
     * turns, and none is boosted. */
    PRESET("turbo", TIMES(100, 0), .tick_us = 100, .period_us = 100, BOOST(BOOST_OFF), RULES,
           .order = ORDER_ROUND),
    { NULL, NULL },
};

/* Returns the sentence that says why the pool's knobs do not go together, or NULL if they do. Each
 * rule below is a combination that does not work. */
const char *credit_conflict(const struct sched_pool *p) {
    const struct credit_knobs *k = &credit_pool(p)->knob;
    bool pair = p->turbo || p->regular;
    const struct {
        bool conflict;
        const char *why;
    } rules[] = {
        { k->slicer && k->boost > BOOST_STOCK,
          "with a slicer, boost must be off or stock: other boosts would cut slices short" },
        { k->slicer && k->debit == DEBIT_TICK,
          "with a slicer, debit must be time: a tick would miss most micro-slices" },
        { k->slicer && k->share,
          "slicer and share exclude each other: a round is by weight, whatever credit was moved" },
        { k->slicer && k->aca,
          "slicer and aca exclude each other: aca would count VMs that sleep into a round" },
        { pair && k->debit == DEBIT_TICK,
          "with a turbo pool, debit must be time: its short slices pass between two ticks" },
        { pair && k->weight_scope == SCOPE_VCPU,
          "with a turbo pool, weight_scope must be dom: the two pools divide time between VMs" },
        { pair && (k->share || k->aca),
          "with a turbo pool, share and aca must be off: vTurbo would take back what they move" },
        { p->regular && k->slicer,
          "in a turbo pool, slicer must be off: all its slices are short already" },
        { k->slicer && k->order == ORDER_ROUND,
          "with a slicer, order must be fifo or credit: micro-slices have an order of their own" },
    };

    for (u32 i = 0; i < ARRAY_SIZE(rules); i++)
        if (rules[i].conflict) return rules[i].why;
    return NULL;
}
