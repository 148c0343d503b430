/* CPU pools, with xl's names: cpupool-create -list -destroy -rename -cpu-add -cpu-remove -migrate. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "sched/machine.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "vm/vm.h"
#include "x86/percpu.h"

/* A list of CPUs that are there. */
static int parse_online(struct shell_call *c, const char *text, struct cpumask *m) {
    if (parse_cpus(text, m, NULL))
        return shell_fail(c, -EINVAL, "expected a list of CPUs such as 2-5,^3, not %s", text);
    if (strncmp(text, "all", 3) == 0 || text[0] == '^') { /* of those there are */
        for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++)
            if (cpu >= nr_cpus) cpumask_clear(m, cpu);
    }
    cpumask_for_each(cpu, m) {
        if (cpu >= nr_cpus) return shell_fail(c, -EINVAL, "there is no CPU %u", cpu);
    }
    return cpumask_empty(m) ? shell_fail(c, -EINVAL, "%s names no CPU", text) : 0;
}

static int add_cpus(struct shell_call *c, struct sched_pool *p, const struct cpumask *m) {
    cpumask_for_each(cpu, m) {
        struct sched_pool *owner = sched_pool_of_cpu(cpu);
        int error = sched_pool_add_cpu(p, cpu);

        if (error)
            return shell_fail(
                c, error, error == -EBUSY && owner ? "CPU %u is in pool %s" : "CPU %u cannot join pool %s",
                cpu, owner ? owner->name : p->name);
    }
    return 0;
}

/* ---- cpupool-create ---- */

/* The pool's name, alone or as name=, and the other words. */
static int create_words(struct shell_call *c, const char **name, const char **sched, struct cpumask *cpus) {
    for (int i = 1; i < c->argc; i++) {
        char *value = strchr(c->argv[i], '=');
        const char *key = value ? c->argv[i] : "name";

        if (!value && i > 1) return shell_usage(c);
        if (value) *value++ = 0;
        if (strcmp(key, "name") == 0)
            *name = value ? value : c->argv[i];
        else if (strcmp(key, "sched") == 0)
            *sched = value;
        else if (strcmp(key, "cpus") != 0)
            return shell_fail(c, -EINVAL, "expected name=, sched= or cpus=, not %s=", key);
        else if (parse_online(c, value, cpus))
            return -EINVAL;
    }
    return *name ? 0 : shell_usage(c);
}

static int cmd_create(struct shell_call *c) {
    const char *name = NULL, *sched = sched_pool_find("Pool-0")->policy->name;
    struct sched_pool *p;
    struct cpumask cpus;
    int error;

    cpumask_zero(&cpus);
    error = create_words(c, &name, &sched, &cpus);
    if (error) return error;
    if (!valid_name(name))
        return shell_fail(c, -EINVAL,
                          "%s is no name: expected letters, digits, '-', '_' or '.', and not a number", name);
    error = sched_pool_create(name, sched, &p);
    if (error)
        return shell_fail(c, error,
                          error == -EEXIST   ? "there is a pool %s already"
                          : error == -ENOMEM ? "there is not enough memory for pool %s"
                                             : "pool %s cannot be created: there is no scheduler %s",
                          name, sched);
    error = add_cpus(c, p, &cpus);
    if (!error) return 0;
    cpumask_for_each(cpu, &cpus) { /* all or nothing */
        if (sched_pool_of_cpu(cpu) == p) sched_pool_remove_cpu(p, cpu);
    }
    sched_pool_destroy(p);
    return error;
}

/* ---- cpupool-list ---- */

COLUMNS(columns, COL("Name", "name", 's', -20), COL(NULL, "id", 'u', 0), COL("CPUs", "nr_cpus", 'u', 5),
        COL("Sched", "sched", 's', 10), COL("VMs", "vms", 'u', 5), COL("CPU list", "cpus", 's', 0));

static int cmd_list(struct shell_call *c) {
    char cpus[128];

    c->columns = columns;
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p)) {
        if (c->pool && p != c->pool) continue;
        format_cpus(&p->cpus, cpus, sizeof(cpus));
        table_row(c, CELLS(S(p->name), U(p->id), U(cpumask_weight(&p->cpus)), S(p->policy->name),
                           U(p->nr_doms), S(cpus)));
    }
    return 0;
}

/* ---- the others ---- */

/* A CPU that is to leave has yet to save its vCPU. */
static int later(struct shell_call *c) {
    c->at = machine_now() + NS_PER_MS;
    return SHELL_AGAIN;
}

static int cmd_destroy(struct shell_call *c) {
    struct sched_pool *p = c->pool;
    int error;

    if (p->nr_doms) return shell_fail(c, -EBUSY, "pool %s has %u VMs", p->name, p->nr_doms);
    if (p->id == 0) return shell_fail(c, -EBUSY, "Pool-0 stays");
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) { /* as xl: what it had becomes free */
        error = sched_pool_of_cpu(cpu) == p ? sched_pool_remove_cpu(p, cpu) : 0;
        if (error == -EAGAIN) return later(c);
        if (error) return shell_fail(c, error, "CPU %u does not leave pool %s", cpu, p->name);
    }
    error = sched_pool_destroy(p);
    return error ? shell_fail(c, error, "pool %s is in use", c->argv[1]) : 0;
}

static int cmd_rename(struct shell_call *c) {
    int error;

    if (c->pool->id == 0) return shell_fail(c, -EINVAL, "Pool-0 keeps its name");
    if (!valid_name(c->argv[2])) return shell_fail(c, -EINVAL, "%s is no name", c->argv[2]);
    error = sched_pool_rename(c->pool, c->argv[2]);
    return error ? shell_fail(c, error, "there is a pool %s already", c->argv[2]) : 0;
}

static int cmd_cpu_add(struct shell_call *c) {
    struct cpumask m;
    int error = parse_online(c, c->argv[2], &m);

    return error ? error : add_cpus(c, c->pool, &m);
}

static int cmd_cpu_remove(struct shell_call *c) {
    struct sched_pool *p = c->pool;
    struct cpumask m;
    int error = parse_online(c, c->argv[2], &m);

    if (error) return error;
    cpumask_for_each(cpu, &m) {
        if (sched_pool_of_cpu(cpu) != p) { /* one that is leaving still counts as its own */
            if (c->step) continue;         /* gone since an earlier call */
            return shell_fail(c, -EINVAL, "CPU %u is not in pool %s", cpu, p->name);
        }
        error = sched_pool_remove_cpu(p, cpu);
        if (error == -EAGAIN) return later(c);
        if (error)
            return shell_fail(c, error,
                              p->id == 0 && cpu == 0
                                  ? "CPU %u always belongs to pool %s"
                                  : "CPU %u cannot leave pool %s, which has VMs that may run nowhere else",
                              cpu, p->name);
    }
    return 0;
}

static void let_go(struct shell_call *c) {
    if (c->vm->sched.pool) sched_unpause(&c->vm->sched); /* it may be gone by now */
}

/* The VM stands still while it moves: it is held, tried again until no pCPU has its state, and let go. */
static int cmd_migrate(struct shell_call *c) {
    int error;

    if (c->step == 0) {
        c->pool = shell_pool(c, c->argv[2]);
        if (!c->pool) return -ENOENT;
        if (!shell_vm_has_pool(c, c->vm)) return -EAGAIN;
        sched_pause(&c->vm->sched);
        c->end = let_go;
    }
    error = c->vm->state == VM_DYING ? -EBUSY : sched_pool_move_dom(c->pool, &c->vm->sched);
    if (!error) return 0;
    if (error == -EAGAIN) return later(c);
    return shell_fail(c, error,
                      error == -EINVAL   ? "pool %s has no CPUs"
                      : error == -ENOMEM ? "there is not enough memory in pool %s"
                                         : "the VM does not move to pool %s",
                      c->pool->name);
}

const struct shell_command pool_commands[] = {
    { "cpupool-create", "[name=]NAME [sched=POLICY] [cpus=CPUS]",
      "creates a pool; its scheduler is Pool-0's if not given", cmd_create, 1, 3, TAKES_WORDS, NULL },
    { "cpupool-list", "[-c] [POOL]", "pools and their CPUs", cmd_list, 0, 1, TAKES_POOL,
      "c" /* xl's: here the CPUs are always shown */ },
    { "cpupool-destroy", "POOL", "ends a pool without VMs; its CPUs become free", cmd_destroy, 1, 1,
      TAKES_POOL, NULL },
    { "cpupool-rename", "POOL NAME", "gives it another name", cmd_rename, 2, 2, TAKES_POOL, NULL },
    { "cpupool-cpu-add", "POOL CPUS", "adds free CPUs", cmd_cpu_add, 2, 2, TAKES_POOL, NULL },
    { "cpupool-cpu-remove", "POOL CPUS", "takes CPUs out; they become free", cmd_cpu_remove, 2, 2, TAKES_POOL,
      NULL },
    { "cpupool-migrate", "VM POOL", "moves a VM to another pool", cmd_migrate, 2, 2, TAKES_VM, NULL },
    { 0 },
};
