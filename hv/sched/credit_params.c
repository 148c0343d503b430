/* The credit engine's entries in the parameter table, and the presets. */
#include <takt/errno.h>
#include "sched/credit.h"

/* ---- pools ---- */

static struct credit_knobs *knobs_of(const void *pool) {
    return &((struct credit_pool *)((const struct sched_pool *)pool)->priv)->knob;
}

#define KNOB(field)                                                                                          \
    static i64 get_##field(const void *pool) { return knobs_of(pool)->field; }                               \
    static int set_##field(void *pool, i64 value, const char **why) {                                        \
        struct credit_knobs k = *knobs_of(pool);                                                             \
                                                                                                             \
        k.field = value;                                                                                     \
        return credit_apply(pool, &k, why);                                                                  \
    }

KNOB(tslice_us)
KNOB(tick_us)
KNOB(period_us)
KNOB(ratelimit_us)
KNOB(ratelimit_exact)
KNOB(migration_delay_us)
KNOB(debit)
KNOB(weight_scope)
KNOB(inactive_reset)
KNOB(tickle)
KNOB(activate)
KNOB(demote)
KNOB(boost)
KNOB(boost_on_migrate)
KNOB(yield_hint)
KNOB(balance)
KNOB(overflow)
KNOB(requeue)
KNOB(fault)

static const char *const debit_names[] = { "tick", "time", NULL };
static const char *const scope_names[] = { "dom", "vcpu", NULL };
static const char *const reset_names[] = { "zero", "half", NULL };
static const char *const tickle_names[] = { "all", "one", "smart", NULL };
static const char *const activate_names[] = { "tick", "burn", NULL };
static const char *const demote_names[] = { "account", "burn", NULL };
static const char *const balance_names[] = { "events", "full", NULL };
static const char *const overflow_names[] = { "inactive", "hand_on", NULL };
static const char *const requeue_names[] = { "tail", "head", NULL };
static const char *const fault_names[] = { "none", "ignore_weight", NULL };

/* ---- VMs ---- */

static i64 get_weight(const void *dom) {
    return ((struct credit_dom *)((const struct sched_dom *)dom)->priv)->weight;
}

static int set_weight(void *dom, i64 value, const char **why) {
    struct sched_dom *d = dom;

    ((struct credit_dom *)d->priv)->weight = (u32)value;
    credit_weights_changed(d->pool->priv);
    return 0;
}

static i64 get_cap(const void *dom) {
    return ((struct credit_dom *)((const struct sched_dom *)dom)->priv)->cap;
}

static int set_cap(void *dom, i64 value, const char **why) {
    ((struct credit_dom *)((struct sched_dom *)dom)->priv)->cap = (u32)value;
    return 0;
}

#define POOL(field, unit, help, min, max)                                                                    \
    { #field, unit, help, PARAM_POOL, min, max, NULL, get_##field, set_##field }
#define WORD(field, help, names)                                                                             \
    { #field, "", help, PARAM_POOL, 0, 0, names, get_##field, set_##field }

const struct param credit_params[] = {
    { "weight", "", "share relative to other VMs", PARAM_DOM, 1, 65535, NULL, get_weight, set_weight },
    { "cap", "%", "of one pCPU, 0 none", PARAM_DOM, 0, 100 * TAKT_MAX_CPUS, NULL, get_cap, set_cap },
    POOL(tslice_us, "us", "how long a pick runs", 50, 1000000),
    POOL(tick_us, "us", "sampling, 0: a third of the slice", 0, 1000000),
    POOL(period_us, "us", "accounting period, 0: the slice", 0, 1000000),
    POOL(ratelimit_us, "us", "no preemption before, 0 off", 0, 500000),
    POOL(ratelimit_exact, "", "1: never delays a yield, waits for the rest only", 0, 1),
    POOL(migration_delay_us, "us", "who ran so shortly ago is not stolen", 0, 100000),
    WORD(debit, "who pays: found at the tick, or by time", debit_names),
    WORD(weight_scope, "a weight belongs to the VM or to each of its vCPUs", scope_names),
    WORD(inactive_reset, "credit on becoming inactive", reset_names),
    WORD(tickle, "which idle pCPUs a wake kicks", tickle_names),
    WORD(activate, "active again when a tick or when any debit finds it", activate_names),
    WORD(demote, "OVER at accounting only, or as soon as credit is gone", demote_names),
    WORD(boost, "what a wake earns", boost_names),
    POOL(boost_on_migrate, "", "1: a migration counts as a wake", 0, 1),
    POOL(yield_hint, "", "1: a yield also lets one of the next class go first", 0, 1),
    WORD(balance, "idle pCPUs look for work: when told, or never missing any", balance_names),
    WORD(overflow, "credit above the limit: lost and out of the grants, or handed to others", overflow_names),
    WORD(requeue, "where a preempted vCPU goes; head: to finish its slice", requeue_names),
    WORD(fault, "a built-in fault, for tests", fault_names),
    { 0 },
};

/* ---- presets: every one sets every knob of the rules; times go back to their defaults ---- */

const struct credit_knobs credit_defaults = {
    .tslice_us = 30000,
    .ratelimit_us = 1000,
    .ratelimit_exact = 1,
    .debit = DEBIT_TIME,
    .weight_scope = SCOPE_DOM,
    .inactive_reset = RESET_HALF,
    .tickle = TICKLE_SMART,
    .activate = ACTIVATE_BURN,
    .demote = DEMOTE_BURN,
    .boost = BOOST_STOCK,
    .yield_hint = 1,
    .balance = BALANCE_FULL,
    .overflow = OVERFLOW_HAND_ON,
    .requeue = REQUEUE_HEAD,
};

#define TIMES(ratelimit)                                                                                     \
    { "ratelimit_us", 0 }, { "tick_us", 0 }, { "period_us", 0 }, { "tslice_us", 30000 },                     \
        { "ratelimit_us", ratelimit }, {                                                                     \
        "migration_delay_us", 0                                                                              \
    }
#define RULES(debit_, scope, reset, tickle_, activate_, demote_, migrate, hint, exact, balance_, overflow_,  \
              requeue_)                                                                                      \
    { "debit", debit_ }, { "weight_scope", scope }, { "inactive_reset", reset }, { "tickle", tickle_ },      \
        { "activate", activate_ }, { "demote", demote_ }, { "boost_on_migrate", migrate },                   \
        { "yield_hint", hint }, { "ratelimit_exact", exact }, { "balance", balance_ },                       \
        { "overflow", overflow_ }, { "requeue", requeue_ }, { "boost", BOOST_STOCK }, {                      \
        NULL, 0                                                                                              \
    }

static const struct sched_setting hardened[] = {
    TIMES(1000),
    RULES(DEBIT_TIME, SCOPE_DOM, RESET_HALF, TICKLE_SMART, ACTIVATE_BURN, DEMOTE_BURN, 0, 1, 1, BALANCE_FULL,
          OVERFLOW_HAND_ON, REQUEUE_HEAD),
};
static const struct sched_setting faithful_34[] = {
    TIMES(0),
    RULES(DEBIT_TICK, SCOPE_DOM, RESET_ZERO, TICKLE_ALL, ACTIVATE_TICK, DEMOTE_ACCOUNT, 1, 0, 0,
          BALANCE_EVENTS, OVERFLOW_INACTIVE, REQUEUE_TAIL),
};
static const struct sched_setting faithful_40[] = {
    TIMES(0),
    RULES(DEBIT_TIME, SCOPE_DOM, RESET_ZERO, TICKLE_ALL, ACTIVATE_TICK, DEMOTE_ACCOUNT, 1, 0, 0,
          BALANCE_EVENTS, OVERFLOW_INACTIVE, REQUEUE_TAIL),
};
static const struct sched_setting faithful_41[] = {
    TIMES(0),
    RULES(DEBIT_TIME, SCOPE_VCPU, RESET_HALF, TICKLE_ONE, ACTIVATE_TICK, DEMOTE_ACCOUNT, 1, 1, 0,
          BALANCE_EVENTS, OVERFLOW_INACTIVE, REQUEUE_TAIL),
};
static const struct sched_setting faithful_42[] = {
    TIMES(1000),
    RULES(DEBIT_TIME, SCOPE_VCPU, RESET_HALF, TICKLE_ONE, ACTIVATE_TICK, DEMOTE_ACCOUNT, 1, 1, 0,
          BALANCE_EVENTS, OVERFLOW_INACTIVE, REQUEUE_TAIL),
};

const struct sched_preset credit_presets[] = {
    { "hardened", hardened },        { "faithful-3.4", faithful_34 }, { "faithful-4.0", faithful_40 },
    { "faithful-4.1", faithful_41 }, { "faithful-4.2", faithful_42 }, { NULL, NULL },
};
