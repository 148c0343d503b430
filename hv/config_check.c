/* Checks of the configuration that need more than one line of it: whether its sections go together,
 * and whether this machine has the CPUs and the memory for it. A pool is a set of CPUs with a
 * scheduling policy; Pool-0 has all CPUs that no other pool names. */
#include <takt/errno.h>
#include "config.h"
#include "lib/printf.h"
#include "common/string.h"

/* Reports a problem at a place in the VM file or, if the line is 0, in the boot loader's command
 * line. Returns -EINVAL if the problem is fatal, else 0.
 * All such sentences begin with a place, "file:line:column: ", as those of compilers do. Editors
 * can then jump there. */
int config_complain(const struct config *c, struct config_place at, bool fatal,
                    config_report report, void *ctx, const char *fmt, ...) {
    const bool on_command_line = !at.line && at.column;
    const char *file = "the file";
    char text[512];
    va_list ap;
    int n;

    if (c->file) file = c->file;
    if (on_command_line)
        n = hv_snprintf(text, sizeof(text), "command line:1:%u: ", at.column);
    else
        n = hv_snprintf(text, sizeof(text), "%s:%u:%u: ", file, MAX(at.line, 1), MAX(at.column, 1));
    if (n >= (int)sizeof(text)) n = 0; /* a very long name of a file: the sentence matters more */
    va_start(ap, fmt);
    hv_vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    va_end(ap);
    if (report) report(ctx, fatal, text);
    if (fatal) return -EINVAL;
    return 0;
}

/* The configuration that is checked, and the function that is told of each problem. */
struct check {
    struct config *c;
    config_report report;
    void *ctx;
    int error; /* becomes -EINVAL with the first fatal report */
};

/* Reports a sentence about the value of `key` in the section `head`, or about the whole section if
 * `key` is NULL. */
#define ERROR(k, head, key, ...)                                                                   \
    ((k)->error = config_complain((k)->c, config_place_of(head, key), true, (k)->report, (k)->ctx, \
                                  __VA_ARGS__))
#define WARNING(k, head, key, ...)                                                                 \
    config_complain((k)->c, config_place_of(head, key), false, (k)->report, (k)->ctx, __VA_ARGS__)

/* Checks one pool, fills in its policy, and takes its CPUs from Pool-0. Pools are checked in their
 * order, so a CPU that is missing in Pool-0 belongs to an earlier pool. */
static void check_pool(struct check *k, struct config_pool *p) {
    struct cpumask *left = &k->c->pool[0].cpus, taken = cpumask_minus(&p->cpus, left);
    const struct config_pool *served = config_find_pool(k->c, p->turbo_of);

    /* As with xl, a pool that names no policy has that of Pool-0. */
    if (!*p->sched) memcpy(p->sched, k->c->pool[0].sched, sizeof(p->sched));
    if (cpumask_test(&p->cpus, 0))
        ERROR(k, &p->head, "cpus", "pool %s cannot have CPU 0, which always belongs to Pool-0",
              p->head.name);
    if (!cpumask_empty(&taken))
        ERROR(k, &p->head, "cpus", "CPU %u is in pool %s and in one before it",
              cpumask_next(&taken, 0), p->head.name);
    if (*p->turbo_of && (!served || served >= p))
        ERROR(k, &p->head, "turbo_of",
              "pool %s is to be the turbo pool of %s, which is not described before it",
              p->head.name, p->turbo_of);
    if (cpumask_empty(&p->cpus) && p->choice.how == CHOOSE_NONE)
        WARNING(k, &p->head, NULL, "pool %s has no CPUs: no VM can run there until it gets one",
                p->head.name);
    *left = cpumask_minus(left, &p->cpus);
}

/* Has `pool` a turbo pool, that is, one with very short slices that serves it (vTurbo)? */
static bool has_turbo_pool(const struct config *c, const char *pool) {
    for (const struct config_pool *p = c->pool; p < c->pool + c->nr_pools; p++)
        if (strcmp(p->turbo_of, pool) == 0) return true;
    return false;
}

/* Returns the CPUs that VM `v` may use of its pool, which exists. */
static struct cpumask cpus_of(const struct config *c, const struct config_vm *v) {
    const struct config_pool *pool = config_find_pool(c, v->pool);

    if (pool->choice.how != CHOOSE_NONE)
        return v->cpus; /* chosen at boot: which ones is not known yet */
    return cpumask_and(&v->cpus, &pool->cpus);
}

/* Returns the key that an error about the VM's CPUs points at: `cpus`, or `pool` if the section
 * does not set `cpus`, whose place is then that of the heading. */
static const char *cpus_or_pool(const struct config_vm *v) {
    struct config_place at = config_place_of(&v->head, "cpus");

    if (at.line == v->head.line) return "pool";
    return "cpus";
}

/* Checks one VM: its image, its devices, its pool and its CPUs. `pools_are_good` says that no pool
 * has an error. If one has, its CPUs may be wrong. A VM's CPUs are not looked at then: that would
 * report the same mistake twice. */
static void check_config_vm(struct check *k, const struct config_vm *v, bool pools_are_good) {
    struct cpumask cpus;

    if (!*config_vm_image(v))
        ERROR(k, &v->head, NULL,
              "VM %s has no image: expected image = NAME or kernel = NAME of a boot module",
              v->head.name);
    if (*v->image && *v->kernel)
        ERROR(k, &v->head, "kernel", "VM %s has both an image and a kernel: expected one of them",
              v->head.name);
    if (*v->ramdisk && !*v->kernel)
        ERROR(k, &v->head, "ramdisk", "VM %s has a ramdisk without a kernel that could use it",
              v->head.name);
    for (const struct config_device *d = v->device; d < v->device + v->nr_devices; d++) {
        if (strcmp(d->back, v->head.name) == 0)
            ERROR(k, &v->head, NULL, "VM %s cannot serve its own devices", v->head.name);
        else if (!config_find_vm(k->c, d->back))
            WARNING(k, &v->head, NULL,
                    "VM %s waits for VM %s, which this file does not describe, to serve it",
                    v->head.name, d->back);
    }
    if (!config_find_pool(k->c, v->pool)) {
        ERROR(k, &v->head, "pool", "VM %s wants pool %s, which this file does not describe",
              v->head.name, v->pool);
        return;
    }
    if (v->turbo && !has_turbo_pool(k->c, v->pool))
        ERROR(k, &v->head, "turbo", "VM %s is to have a turbo vCPU, but pool %s has no turbo pool",
              v->head.name, v->pool);
    cpus = cpus_of(k->c, v);
    if (pools_are_good && cpumask_empty(&cpus))
        ERROR(k, &v->head, cpus_or_pool(v), "VM %s may run on none of the CPUs of pool %s",
              v->head.name, v->pool);
}

/* Checks the section [model], the costs that the simulation of the whole machine goes by. A model
 * of which only a part is given would be off, or would need a guess. */
static void check_model(struct check *k, const struct config_model *m) {
    if (m->cpi && !m->clock)
        ERROR(k, &m->head, "cpi", "cpi is given without clock, the rate of the cycles");
    if ((m->cache || m->warm || m->refill) && !(m->cache && m->warm && m->refill))
        ERROR(k, &m->head, NULL, "cache, warm and refill are one model: all three are needed");
    if (!m->socket != !m->remote)
        ERROR(k, &m->head, NULL, "socket and remote are one model: both are needed");
}

/* Checks whether the sections of the file go together. Returns 0, or -EINVAL after an error was
 * reported. */
int config_check(struct config *c, config_report report, void *ctx) {
    struct check k = { c, report, ctx, 0 };
    bool pools_are_good;

    for (u32 i = 1; i < c->nr_pools; i++) check_pool(&k, &c->pool[i]);
    pools_are_good = !k.error;
    for (u32 i = 0; i < c->nr_vms; i++) check_config_vm(&k, &c->vm[i], pools_are_good);
    check_model(&k, &c->model);
    return k.error;
}

/* ---- the machine ---- */

/* Checks whether the machine has the CPUs that a pool names, and enough for a pool that only says
 * how many it wants; `left` is how many are left for such pools. */
static void check_pool_cpus(struct check *k, const struct config_pool *p,
                            const struct cpumask *there, u32 *left) {
    struct cpumask have = cpumask_and(&p->cpus, there), missing = cpumask_minus(&p->cpus, there);
    u32 nr = cpumask_weight(there);

    if (p->choice.nr > *left)
        ERROR(k, &p->head, "cpus",
              "pool %s wants %u CPU%s, but of the machine's %u it can have only %u", p->head.name,
              p->choice.nr, plural(p->choice.nr), nr, *left);
    *left -= MIN(*left, p->choice.nr);
    if (cpumask_empty(&missing)) return;
    if (cpumask_empty(&have))
        ERROR(k, &p->head, "cpus", "pool %s has none of the machine's CPUs, which are 0 to %u",
              p->head.name, nr - 1);
    else if (!cpumask_test(&missing,
                           TAKT_MAX_CPUS - 1)) /* if that is set, the value was "all but": ^1 */
        WARNING(k, &p->head, "cpus", "pool %s names CPU %u, but the machine's are 0 to %u",
                p->head.name, cpumask_next(&missing, 0), nr - 1);
}

/* Checks whether the machine has a CPU on which the VM can run. `there` are the machine's CPUs. */
static void check_vm_cpus(struct check *k, const struct config_vm *v, const struct cpumask *there) {
    struct cpumask missing = cpumask_minus(&v->cpus, there), cpus, have;
    u32 last = cpumask_weight(there) - 1;

    if (!config_find_pool(k->c, v->pool)) return; /* config_check() has reported it */
    cpus = cpus_of(k->c, v);
    have = cpumask_and(&cpus, there);
    if (cpumask_empty(&cpus)) return; /* reported as well */
    if (cpumask_empty(&have))
        ERROR(k, &v->head, cpus_or_pool(v), "VM %s can run on no CPU: the machine's are 0 to %u",
              v->head.name, last);
    else if (!cpumask_empty(&missing) &&
             !cpumask_test(&missing, TAKT_MAX_CPUS - 1)) /* which is in it if the file says "all" */
        WARNING(k, &v->head, "cpus", "VM %s names CPU %u, but the machine's are 0 to %u",
                v->head.name, cpumask_next(&missing, 0), last);
}

/* Checks whether a machine with `nr_cpus` CPUs and `memory` bytes of RAM can have the pools and the
 * VMs of the file. Returns 0, or -EINVAL after a fatal report. First finds out which CPUs the
 * machine has, then checks the pools, and then the VMs: their CPUs, and whether the memory is
 * enough for all that start. VMs that the file only describes (start = no) need none yet. */
int config_check_machine(const struct config *config, u32 nr_cpus, u64 memory, config_report report,
                         void *ctx) {
    struct check k = { (struct config *)config, report, ctx, 0 };
    struct cpumask there = { 0 }, free;
    bool pools_are_good;
    u64 taken = 0;
    u32 left;

    for (u32 cpu = 0; cpu < MIN(nr_cpus, (u32)TAKT_MAX_CPUS); cpu++) cpumask_set(&there, cpu);
    free = cpumask_and(&config->pool[0].cpus, &there);
    cpumask_clear(&free, 0); /* CPU 0 stays in Pool-0 */
    left = cpumask_weight(&free);
    for (const struct config_pool *p = config->pool + 1; p < config->pool + config->nr_pools; p++)
        check_pool_cpus(&k, p, &there, &left);
    pools_are_good = !k.error;
    for (const struct config_vm *v = config->vm; v < config->vm + config->nr_vms; v++) {
        if (pools_are_good) check_vm_cpus(&k, v, &there);
        if (!v->start) continue;
        if (taken + v->memory > memory) {
            ERROR(
                &k, &v->head, "memory",
                "VM %s wants %lu MiB after the VMs before it took %lu, but the machine has %lu MiB",
                v->head.name, v->memory >> 20, taken >> 20, memory >> 20);
            break; /* the VMs after it do not fit either */
        }
        taken += v->memory;
    }
    return k.error;
}
