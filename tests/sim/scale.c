/* The program build/release/scale[-wide] [SECONDS]: how fast the simulation is, in a release build
 * and without a trace. There are four VMs for each core: three compute, and one is mixed and has a
 * client. Measured is the CPU time of this process, so other programs disturb it little. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include "sim.h"

/* Returns the CPU time that this process has used. */
static double cpu_seconds(void) {
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Returns the most memory that this process has had. */
static double resident_mib(void) {
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}

/* Returns the work of a VM that computes 40 % and serves 300 events a second. */
static struct sim_work mixed(u64 seed) {
    return (struct sim_work){ .kind = WORK_MIXED,
                              .percent = 40,
                              .period_ns = 10 * NS_PER_MS,
                              .work_ns = 50 * NS_PER_US,
                              .start_span = 10 * NS_PER_MS,
                              .start_seed = seed,
                              .due = arrivals_begin(seed, 300, 0) };
}

/* Makes `vms` VMs for each of `cores`, with `vcpus` vCPUs each. Every fourth one serves, on a turbo
 * vCPU if there is a turbo pool (`turbo`, or NULL); its client is in the pool `world`. */
static void four_a_core(struct sched_pool *p, u32 cores, u32 vms, u32 vcpus,
                        struct sched_pool *turbo, struct sched_pool *world) {
    static struct sim_vcpu *server[4096];
    struct cpumask all;

    cpumask_fill(&all);
    for (u32 i = 0; i < cores * vms; i++) {
        struct sim_work w = mixed(i), serve = w, compute = w, client = { .kind = WORK_CLIENT };

        if (i % 4 != 0) {
            sim_vm(p, "vm", vcpus, all, (struct sim_work){ .kind = WORK_HOG });
            continue;
        }
        if (turbo) {
            serve.percent = 0;
            compute.kind = WORK_DUTY;
            server[i] = sim_turbo(sim_vm(p, "vm", vcpus, all, compute), serve)->vcpu[0];
        } else {
            server[i] = sim_vm(p, "vm", vcpus, all, w)->vcpu[0];
        }
        client.work_ns = 20 * NS_PER_US;
        client.due = w.due;
        client.server = &server[i];
        sim_vm(world, "client", 1, all, client);
    }
}

/* Runs the simulation for half a second and then for `seconds`, prints how fast the latter was, and
 * ends it. */
static void measure(const char *what, u64 seconds) {
    double before, took;
    u64 inputs;

    sim_run_until(NS_PER_S / 2);
    inputs = sim.inputs;
    before = cpu_seconds();
    sim_run_until(sim.now + seconds * NS_PER_S);
    took = cpu_seconds() - before;
    printf("%-52s %8.2f million events/s  %9.1f virtual s/s  %7.1f MiB\n", what,
           (double)(sim.inputs - inputs) / took / 1e6, (double)seconds / took, resident_mib());
    fflush(stdout);
    sim_stop();
}

/* Starts a simulation of so many cores, all in Pool-0, and `extra` ones that are in no pool yet. */
static struct sched_pool *start(u32 cores, u32 extra) {
    sim_start(&(struct sim_options){
        .cpus = cores + extra, .seed = 1, .kick_ns = 2000, .switch_ns = 2000, .quiet = true });
    return sim_pool("Pool-0", "credit", sim_cpus(0, cores - 1));
}

/* Measures how the cost of decisions grows with the machine. Built with a TAKT_MAX_CPUS of 512, the
 * program measures a machine of so many cores, otherwise small ones. */
int main(int argc, char **argv) {
    struct sched_pool *p;
    u64 seconds = 100;

    if (argc > 1) seconds = strtoull(argv[1], NULL, 0);
#if TAKT_MAX_CPUS >= 512
    /* A rack of machines. The clients are on the last pCPU. */
    p = start(511, 1);
    four_a_core(p, 1, 64, 64, NULL, sim_pool("world", "credit", sim_cpus(511, 511)));
    measure("512 cores, 4096 vCPUs, credit", MAX(seconds / 50, 1ull));
#else
    struct sched_pool *turbo;

    p = start(4, 1);
    four_a_core(p, 4, 4, 1, NULL, sim_pool("world", "credit", sim_cpus(4, 4)));
    measure("4 cores, 16 VMs, credit", 10 * seconds);
    p = start(4, 2);
    turbo = sim_pool("turbo", "credit", sim_cpus(4, 4));
    param_preset(turbo, "turbo");
    sched_pool_pair(turbo, p);
    four_a_core(p, 4, 4, 1, turbo, sim_pool("world", "credit", sim_cpus(5, 5)));
    measure("the same and a turbo core, vturbo", 10 * seconds);
#endif
    return 0;
}
