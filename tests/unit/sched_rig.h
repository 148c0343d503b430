/* What the tests of the scheduler share: CMocka, the simulation, and short words for what their
 * VMs do. */
#ifndef SCHED_RIG_H
#define SCHED_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "sched/credit.h"
#include "sim.h"

#define HOG  ((struct sim_work){ .kind = WORK_HOG })
#define IDLE ((struct sim_work){ .kind = WORK_IDLE })
#define ALL  sim_cpus(0, TAKT_MAX_CPUS - 1)
#define MS   NS_PER_MS
#define US   NS_PER_US

/* A new simulation, whose every step is checked. */
static inline void start_sim(struct sim_options o) {
    sim_start(&o);
    sim.check = sim_check;
}

/* One whose first pool has all CPUs and runs credit by a preset. */
static inline struct sched_pool *start_credit(u32 cpus, u64 seed, const char *preset) {
    start_sim((struct sim_options){ .cpus = cpus, .seed = seed, .kick_ns = 1000 });
    struct sched_pool *p = sim_pool("Pool-0", "credit", sim_cpus(0, cpus - 1));

    assert_int_equal(param_preset(p, preset), 0);
    return p;
}

/* What its first vCPU ran since sim_mark, as percent of `ns`. */
static inline double share(struct sim_vm *d, u64 ns) {
    return 100.0 * (double)sim_ran(d->vcpu[0]) / (double)ns;
}

static inline void near(double is, double want, double within, const char *what) {
    if (is < want - within || is > want + within)
        fail_msg("%s: %.3f, expected %.3f within %.3f (seed %lu)", what, is, want, within,
                 (unsigned long)sim.opt.seed);
}

#endif
