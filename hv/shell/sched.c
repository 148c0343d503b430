/* Commands that set how things are scheduled: sched-credit and cpupool-* as xl has them, and param
 * for every entry of the parameter table. A pool is a set of pCPUs with a scheduling policy; a
 * parameter belongs to a pool or to a VM. A function cmd_...() is called again as long as it
 * returns SHELL_AGAIN, and does a short step each time. */
#include <takt/errno.h>
#include "lib/choose.h"
#include "common/string.h"
#include "mm/frame.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "vcpu/vcpu.h"
#include "x86/percpu.h"
#include "x86/topology.h"

/* Returns the value of a parameter as a number; 0 if the pool's policy has none of that name. */
i64 shell_param(struct sched_pool *pool, const char *name, const void *object) {
    const struct param *p = param_find(pool, name);

    if (!p) return 0;
    return param_get(p, pool, object);
}

/* Returns a parameter as it is shown: a word or a number. Returns "" if the pool's policy has no
 * parameter of that name. */
static const char *text_of(struct sched_pool *pool, const char *name, const void *object,
                           char number[24]) {
    const struct param *p = param_find(pool, name);

    if (!p) return "";
    return param_text(p, pool, object, number);
}

/* ---- several at once ---- */

struct setting {
    const struct param *param;
    const char *text;
    i64 old;
};

/* Sets all `n` settings or none. A value may be refused because of the old value of another
 * parameter (a minimum above the maximum, say). So one that is refused is tried again after the
 * others, until all those that are left were refused in turn; then those that were set get their
 * old values back. */
static int set_all(struct sched_pool *pool, void *object, struct setting *s, u32 n) {
    char why[PARAM_WHY];
    const char *unused;
    u32 done = 0, refused = 0;

    /* Settings before number `done` are set; the last `refused` of them were refused since then. */
    while (done < n && refused < n - done) {
        struct setting x = s[done];

        x.old = param_get(x.param, pool, object);
        if (param_set_text(x.param, pool, object, x.text, why)) {
            refused++;
            memmove(&s[done], &s[done + 1], (n - done - 1) * sizeof(*s));
            s[n - 1] = x;
        } else {
            refused = 0;
            s[done++] = x;
        }
    }
    if (done == n) return 0;
    shell_fail(-EINVAL, "%s", why);
    while (done--) param_set(s[done].param, pool, object, s[done].old, &unused);
    return -EINVAL;
}

/* Appends the setting NAME = TEXT to the *n that are in `s`, unless `text` is NULL. `object` is the
 * pool itself, or the scheduling part of a VM in it. */
static int add_setting(struct sched_pool *pool, void *object, const char *name, const char *text,
                       struct setting *s, u32 *n) {
    const struct param *p = param_find(pool, name);
    const bool of_pool = object == pool;

    if (!text) return 0;
    if (!p)
        return shell_fail(-ENOENT, "pool %s, which runs %s, has no parameter %s", pool->name,
                          pool->policy->name, name);
    if (p->scope == PARAM_POOL && !of_pool)
        return shell_fail(-EINVAL, "%s is a parameter of pools: give -s -p POOL", name);
    if (p->scope != PARAM_POOL && of_pool)
        return shell_fail(-EINVAL, "%s is a parameter of VMs: give -d VM", name);
    for (u32 i = 0; i < *n; i++)
        if (s[i].param == p) return shell_fail(-EINVAL, "%s is given twice", name);
    s[(*n)++] = (struct setting){ p, text, 0 };
    return 0;
}

/* ---- sched-credit ---- */

COLUMNS(pool_columns, COL("Cpupool", "pool", 'n', -12), COL("Sched", "sched", 's', 6),
        COL("Tslice(us)", "tslice_us", 'd', 10), COL("Ratelimit(us)", "ratelimit_us", 'd', 13),
        COL("Boost", "boost", 's', 12), COL("Slicer", "slicer", 's', 9),
        COL("Share", "share", 's', 7), COL("ACA", "aca", 's', 3),
        MORE("IO threshold", "io_threshold", 's', 12));

COLUMNS(weight_columns, COL("Name", "name", 'n', -16), COL("ID", "id", 'u', 4),
        COL("Weight", "weight", 'd', 6), COL("Cap", "cap", 'd', 5),
        COL("Micro(us)", "micro_us", 'd', 9), COL("Latency(us)", "latency_us", 'd', 11),
        COL("Share(%)", "share_pct", 'd', 8), COL("I/O", "io", 's', 4),
        COL("Cpupool", "pool", 'n', -8));

/* Checks that the options may be given together, and finds the VM and the pool that they name. */
static int credit_check(struct shell_call *c) {
    const char *const *o = c->opt, *pool = "Pool-0";

    if (o['d'] && (o['s'] || o['p'])) return shell_usage();
    if (!o['d'] && (o['w'] || o['c'])) return shell_usage();
    if (!o['s'] && (o['t'] || o['r'] || o['m'])) return shell_usage();
    if (c->nr_settings && !o['d'] && !o['s']) return shell_usage();
    if (o['d']) {
        c->only = true;
        c->vm = shell_vm(o['d']);
        if (!c->vm) return -ENOENT;
    }
    if (o['s'] || o['p']) {
        if (o['p']) pool = o['p'];
        c->pool = shell_pool(pool);
        if (!c->pool) return -ENOENT;
    }
    return 0;
}

/* Sets all parameters of a pool to those of a preset, a named set. */
static int set_preset(struct sched_pool *pool, const char *preset) {
    char why[PARAM_WHY];
    int error = param_preset_why(pool, preset, why);

    if (error) return shell_fail(error, "%s", why);
    return 0;
}

/* Sets what the options say. `us` is the value of -t in microseconds, or NULL. */
static int credit_set(struct shell_call *c, struct sched_pool *pool, void *object, const char *us) {
    static const struct {
        char letter;
        const char *name;
    } letters[] = {
        { 'w', "weight" }, { 'c', "cap" }, { 'r', "ratelimit_us" }, { 'm', "migration_delay_us" }
    };
    struct setting s[SHELL_ARGS + ARRAY_SIZE(letters) + 1];
    u32 n = 0;
    int error = add_setting(pool, object, "tslice_us", us, s, &n);

    for (u32 i = 0; !error && i < ARRAY_SIZE(letters); i++)
        error = add_setting(pool, object, letters[i].name, c->opt[(u8)letters[i].letter], s, &n);
    for (u32 i = 0; !error && i < c->nr_settings; i++) {
        if (strcmp(c->setting[i].name, "policy"))
            error = add_setting(pool, object, c->setting[i].name, c->setting[i].value, s, &n);
        else if (object != pool || c->nr_settings > 1 || n)
            error = shell_fail(
                -EINVAL, "--policy sets all parameters of a pool: it goes alone, with -s -p POOL");
        else
            return set_preset(pool, c->setting[i].value);
    }
    if (error) return error;
    return set_all(pool, object, s, n);
}

/* Do the options of sched-credit set a parameter, instead of showing some? */
static bool sets_something(const struct shell_call *c) {
    const char *const *o = c->opt;

    return c->nr_settings || o['w'] || o['c'] || o['t'] || o['r'] || o['m'];
}

/* Does sched-credit -s: sets parameters of the pool, or shows them if the options set none. */
static int credit_pool(struct shell_call *c) {
    const char *ms = c->opt['t'], *tslice_us = NULL;
    struct sched_pool *p = c->pool;
    char time[24], text[5][24];
    u64 ns = 0;

    if (ms) { /* milliseconds as xl has them, but a fraction is allowed */
        hv_snprintf(time, sizeof(time), "%sms", ms);
        if (parse_time(time, &ns, NULL))
            return shell_fail(-EINVAL, "expected a number of milliseconds, not %s", ms);
        hv_snprintf(time, sizeof(time), "%lu", ns / 1000);
        tslice_us = time;
    }
    if (sets_something(c)) return credit_set(c, p, p, tslice_us);
    c->columns = pool_columns;
    table_row(c,
              CELLS(S(p->name), S(p->policy->name), D(shell_param(p, "tslice_us", p)),
                    D(shell_param(p, "ratelimit_us", p)), S(text_of(p, "boost", p, text[0])),
                    S(text_of(p, "slicer", p, text[1])), S(text_of(p, "share", p, text[2])),
                    S(text_of(p, "aca", p, text[3])), S(text_of(p, "io_threshold", p, text[4]))));
    return 0;
}

/* The command sched-credit. With -s it is about a pool, otherwise about VMs. If its options set
 * parameters, these are set in one step; if not, what there is is listed, one VM at each step. A VM
 * that is being made or destroyed is in no pool and is left out. */
static int cmd_sched_credit(struct shell_call *c) {
    struct sched_pool *pool;
    struct sched_vm *d;
    int error = 0;
    char io[24];

    if (c->step == 0) error = credit_check(c);
    if (error) return error;
    if (c->opt['s']) return credit_pool(c);
    if (sets_something(c)) {
        error = shell_vm_pool(c->vm, &pool);
        if (error) return error;
        return credit_set(c, pool, &c->vm->sched, NULL);
    }
    c->columns = weight_columns;
    if (!shell_next_vm(c)) return 0;
    d = &c->vm->sched;
    pool = d->pool; /* NULL while the VM is being made, and while it is being destroyed */
    if (pool && (!c->pool || pool == c->pool))
        table_row(c,
                  CELLS(S(c->vm->name), U(c->vm->id), D(shell_param(pool, "weight", d)),
                        D(shell_param(pool, "cap", d)), D(shell_param(pool, "micro_us", d)),
                        D(shell_param(pool, "latency_us", d)), D(shell_param(pool, "share_pct", d)),
                        S(text_of(pool, "io", d, io)), S(pool->name)));
    return SHELL_AGAIN;
}

/* ---- param ---- */

COLUMNS(param_columns, COL("Name", "name", 's', -20), COL("Value", "value", 's', 10),
        COL("Unit", "unit", 's', -4), COL("", "help", 'w', 0));

/* Finds the VM that -d names and its pool, or the pool that -p names; Pool-0 without either.
 * *object becomes what the parameters belong to, *owner its name; *of_pool tells whether that is a
 * pool. Called at each step, because VM and pool may go between two of them. */
static int param_owner(struct shell_call *c, void **object, const char **owner, bool *of_pool) {
    const char *pool = "Pool-0";
    int error;

    if (c->opt['d']) {
        if (!c->step) c->vm = shell_vm(c->opt['d']);
        if (!c->vm) return -ENOENT;
        error = shell_vm_pool(c->vm, &c->pool);
        *object = &c->vm->sched;
        *owner = c->vm->name;
        *of_pool = false;
        return error;
    }
    if (c->opt['p']) pool = c->opt['p'];
    c->pool = shell_pool(pool);
    if (!c->pool) return -ENOENT;
    *object = c->pool;
    *owner = c->pool->name;
    *of_pool = true;
    return 0;
}

/* Shows one parameter as a row of the table. */
static void param_row(struct shell_call *c, const struct param *p, const void *object) {
    char number[24];

    table_row(
        c, CELLS(S(p->name), S(text_of(c->pool, p->name, object, number)), S(p->unit), S(p->help)));
}

/* Lists all parameters of a pool or of a VM, one at each step, or shows or sets the one that is
 * named. */
static int cmd_param(struct shell_call *c) {
    const char *name = c->argv[1], *owner;
    const struct param *p;
    bool of_pool;
    void *object;
    int error = param_owner(c, &object, &owner, &of_pool);

    if (error) return error;
    c->columns = param_columns;
    if (!name) { /* all of them, one at each step */
        p = param_at(c->pool, c->index++);
        if (!p) return 0;
        if ((p->scope == PARAM_POOL) == of_pool) param_row(c, p, object);
        return SHELL_AGAIN;
    }
    p = param_find(c->pool, name);
    if (!p || (p->scope == PARAM_POOL) != of_pool)
        return shell_fail(-ENOENT, "%s has no parameter %s", owner, name);
    if (c->argc > 2) {
        c->columns = NULL;
        return set_all(c->pool, object, &(struct setting){ p, c->argv[2], 0 }, 1);
    }
    param_row(c, p, object);
    return 0;
}

/* ---- pools ---- */

/* Returns the pool of that name, or NULL after shell_fail(). */
struct sched_pool *shell_pool(const char *name) {
    struct sched_pool *p = sched_pool_find(name);

    if (!p) shell_fail(-ENOENT, "there is no pool %s", name);
    return p;
}

/* Returns what a command has to return after a CPU was added or removed. */
static int cpu_result(u32 cpu, int error) {
    char number[12];

    hv_snprintf(number, sizeof(number), "%u", cpu);
    return shell_done(error, "CPU", number);
}

/* Adds the CPUs one by one. At the first error it stops; those that were added before stay in the
 * pool. */
static int cmd_cpu_add(struct shell_call *c) {
    cpumask_for_each(cpu, &c->cpus) {
        int error = sched_pool_add_cpu(c->pool, cpu);

        if (error) return cpu_result(cpu, error);
    }
    return 0;
}

/* Takes CPUs out of a pool. It is called again while a CPU cannot go yet. The CPUs that an earlier
 * call removed are not in the pool any more; to remove them again would be an error. */
static int cmd_cpu_remove(struct shell_call *c) {
    cpumask_for_each(cpu, &c->cpus) {
        int error;

        if (c->step && sched_pool_of_cpu(cpu) != c->pool) continue;
        error = sched_pool_remove_cpu(c->pool, cpu);
        if (error) return cpu_result(cpu, error);
    }
    return 0;
}

/* The KEY=VALUE words of cpupool-create. */
enum { NAME, SCHED, CPUS, TURBO_OF, PRESET, NR_KEYS };

/* Sorts the words of cpupool-create by their keys. The first word may be the pool's name alone. */
static int create_words(struct shell_call *c, const char *word[NR_KEYS]) {
    static const char *const keys[NR_KEYS] = { "name", "sched", "cpus", "turbo_of", "preset" };

    for (int i = 1; i < c->argc; i++) {
        char *value = strchr(c->argv[i], '=');
        u32 k = 0;

        if (!value) {
            if (i > 1) return shell_usage();
            word[NAME] = c->argv[i];
            continue;
        }
        *value++ = 0;
        while (k < NR_KEYS && strcmp(keys[k], c->argv[i]) != 0) k++;
        if (k == NR_KEYS) return shell_usage();
        word[k] = value;
    }
    if (!word[NAME]) return shell_usage();
    return shell_new_name(word[NAME]);
}

/* Sets c->cpus, the CPUs of a new pool. `text` is a list of CPUs, or says how many to choose of
 * those in no pool: "random:N" at random, "cache:N" spread over the caches, "node:N" all of a NUMA
 * node. NULL: it says nothing, and c->cpus stays as it is. */
static int create_cpus(struct shell_call *c, const char *text) {
    struct cpumask free = { 0 };
    struct cpu_choice choice;

    for (u32 cpu = 0; cpu < nr_cpus; cpu++)
        if (!sched_pool_of_cpu(cpu)) cpumask_set(&free, cpu);
    if (!text) return 0;
    if (!parse_choice(text, &choice)) {
        if (cpumask_weight(&free) < choice.nr)
            return shell_fail(-EBUSY, "too few CPUs are free: %u of the %u that are wanted",
                              cpumask_weight(&free), choice.nr);
        c->cpus = cpus_choose(&choice, &free, shell_config()->seed, &cpu_places);
        if (cpumask_empty(&c->cpus))
            return shell_fail(-ENOENT, "node %u has no CPU that is free", choice.node);
        return 0;
    }
    if (!parse_cpus(text, &c->cpus, NULL) && !cpumask_empty(&c->cpus)) return 0;
    return shell_usage();
}

/* Moves the CPUs of a NUMA node from Pool-0 to a pool of their own, which is made for the first of
 * them. CPUs that are in no pool go there as well. The node of CPU 0 stays, because CPU 0 always
 * belongs to Pool-0. Returns 0, or as cpu_result(). */
static int split_node(struct sched_pool *p0, u32 node) {
    struct sched_pool *p;
    char name[POOL_NAME];
    int error;

    if (node == cpu_node(0)) return 0;
    hv_snprintf(name, sizeof(name), "Pool-node%u", node);
    for (u32 cpu = 0; cpu < nr_cpus; cpu++) {
        if (cpu_node(cpu) != node) continue;
        p = sched_pool_find(name);
        if (!p) {
            error = sched_pool_create(name, p0->policy->name, &p);
            if (error) return shell_done(error, "pool", name);
        }
        if (sched_pool_of_cpu(cpu) == p) continue;
        if (sched_pool_of_cpu(cpu) == p0) {
            error = sched_pool_remove_cpu(p0, cpu);
            if (error) return cpu_result(cpu, error);
        }
        sched_pool_add_cpu(p, cpu);
    }
    return 0;
}

/* Gives each NUMA node a pool, as xl's command of this name does. It is called again while a CPU
 * cannot go yet; c->index is the node that it has come to. */
static int cmd_numa_split(struct shell_call *c) {
    struct sched_pool *p0 = sched_pool_find("Pool-0");

    if (c->step == 0 && sched_pool_next(p0))
        return shell_fail(-EBUSY, "there are other pools than Pool-0");
    for (; c->index < FRAME_MAX_NODES; c->index++) {
        int error = split_node(p0, c->index);

        if (error) return error;
    }
    return 0;
}

/* Makes `turbo` the turbo pool of `pool`, or ends that if `pool` is NULL. An error becomes a
 * sentence that names the pools. */
static int pair_pools(struct sched_pool *turbo, struct sched_pool *pool) {
    int error = sched_pool_pair(turbo, pool);

    if (error == -EBUSY && (!pool || turbo->nr_vms))
        return shell_fail(error, "pool %s has VMs", turbo->name);
    if (error == -EBUSY)
        return shell_fail(error, "%s or %s is in a pair already", turbo->name, pool->name);
    if (!error) return 0;
    return shell_fail(
        error,
        "%s cannot be the turbo pool of %s: both have to run credit with debit time and "
        "weight_scope dom, "
        "without share and aca, and the turbo pool is the newer one and without a slicer",
        turbo->name, pool->name);
}

/* Makes a pool the turbo pool of another one. Without a second pool it becomes a pool like the
 * others again. */
static int cmd_pool_turbo(struct shell_call *c) {
    struct sched_pool *pool = NULL;

    if (c->argc > 2) {
        pool = shell_pool(c->argv[2]);
        if (!pool) return -ENOENT;
    }
    return pair_pools(c->pool, pool);
}

/* Sets up the pool that was just created. `served` is the pool that it is the turbo pool of, or
 * NULL. */
static int create_settings(struct shell_call *c, struct sched_pool *served, const char *preset) {
    int error = 0;

    if (served && !preset) preset = "turbo";
    if (preset) error = set_preset(c->pool, preset);
    if (!error && served) error = pair_pools(c->pool, served);
    if (error) return error;
    return cmd_cpu_add(c);
}

/* Creates a pool with its CPUs and settings. If one of these is refused, the pool goes again, so
 * that a command that fails leaves nothing behind. */
static int cmd_pool_create(struct shell_call *c) {
    const char *word[NR_KEYS] = { [SCHED] = sched_pool_find("Pool-0")->policy->name };
    struct sched_pool *served = NULL;
    char why[PARAM_WHY];
    int error = create_words(c, word);

    if (!error) error = create_cpus(c, word[CPUS]);
    if (error) return error;
    if (word[TURBO_OF]) {
        served = shell_pool(word[TURBO_OF]);
        if (!served) return -ENOENT;
    }
    if (!sched_policy_find(word[SCHED], why)) return shell_fail(-EINVAL, "%s", why);
    error = sched_pool_create(word[NAME], word[SCHED], &c->pool);
    if (error) return shell_done(error, "pool", word[NAME]);
    error = create_settings(c, served, word[PRESET]);
    if (!error) return 0;
    cpumask_for_each(cpu, &c->cpus) { /* all or nothing */
        if (sched_pool_of_cpu(cpu) == c->pool) sched_pool_remove_cpu(c->pool, cpu);
    }
    sched_pool_pair(c->pool, NULL);
    sched_pool_destroy(c->pool);
    return error;
}

COLUMNS(columns, COL("Name", "name", 's', -20), COL(NULL, "id", 'u', 0),
        COL("CPUs", "nr_cpus", 'u', 5), COL("Sched", "sched", 's', 10), COL("VMs", "vms", 'u', 5),
        COL("CPU list", "cpus", 's', -12), COL("Turbo pool", "turbo", 's', 0),
        COL(NULL, "turbo_of", 's', 0));

/* Lists the pools. All of them are listed in one step, because there are at most
 * SCHED_MAX_POOLS. */
static int cmd_pool_list(struct shell_call *c) {
    char cpus[CPUS_TEXT];

    c->columns = columns;
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p)) {
        const char *turbo = "", *turbo_of = "";

        if (c->pool && p != c->pool) continue;
        if (p->turbo) turbo = p->turbo->name;
        if (p->regular) turbo_of = p->regular->name;
        format_cpus(&p->cpus, cpus);
        table_row(c, CELLS(S(p->name), U(p->id), U(cpumask_weight(&p->cpus)), S(p->policy->name),
                           U(p->nr_vms), S(cpus), S(turbo), S(turbo_of)));
    }
    return 0;
}

/* Destroys a pool. As with xl, the CPUs that the pool had become free. */
static int cmd_pool_destroy(struct shell_call *c) {
    struct sched_pool *p = c->pool, *turbo = p;
    int error;

    if (p->turbo) turbo = p->turbo; /* the turbo pool of the pair, if there is a pair */
    if (p->nr_vms || p->id == 0) return shell_done(-EBUSY, "pool", p->name);
    if (p->turbo || p->regular)
        return shell_fail(-EBUSY, "pool %s is half of a pair: cpupool-turbo %s ends that", p->name,
                          turbo->name);
    c->cpus = p->cpus;
    error = cmd_cpu_remove(c);
    if (error) return error;
    return shell_done(sched_pool_destroy(p), "pool", c->argv[1]);
}

/* Gives a pool another name. Pool-0 keeps its own, because other pools refer to it by that. */
static int cmd_pool_rename(struct shell_call *c) {
    if (c->pool->id == 0) return shell_fail(-EINVAL, "Pool-0 keeps its name");
    if (shell_new_name(c->argv[2])) return -EINVAL;
    return shell_done(sched_pool_rename(c->pool, c->argv[2]), "pool", c->argv[2]);
}

/* Lets the VM go on that was paused for cpupool-migrate, when the command ends. */
static void end_migration(struct shell_call *c) {
    if (c->vm->sched.pool) sched_unpause(&c->vm->sched); /* NULL: the VM was destroyed meanwhile */
}

COLUMNS(lost_columns, COL("Not kept", "name", 's', -20), COL("Value", "value", 'd', 10));

/* Moves a VM to another pool. The VM is paused while it moves. The move is tried until no pCPU
 * holds the state of a vCPU any more; then the VM is unpaused. It keeps its parameters; those that
 * it cannot have in the other pool are the answer of the command. */
static int cmd_pool_migrate(struct shell_call *c) {
    struct param_values lost;
    struct sched_pool *from;
    int error;

    if (c->step == 0) {
        error = shell_vm_pool(c->vm, &from);
        if (error) return error;
        if (c->vm->turbo.pool)
            return shell_fail(-EBUSY, "%s has a turbo vCPU, so it cannot leave its pool",
                              c->vm->name);
        sched_pause(&c->vm->sched);
        c->end = end_migration;
    }
    error = -EBUSY;
    if (c->vm->state != VM_DYING) error = param_move_vm(c->pool, &c->vm->sched, &lost);
    if (error == -EINVAL) return shell_fail(error, "pool %s has no CPUs", c->pool->name);
    if (error) return shell_done(error, "VM", c->vm->name);
    if (lost.nr) c->columns = lost_columns;
    for (u32 i = 0; i < lost.nr; i++)
        table_row(c, CELLS(S(lost.of[i].param->name), D(lost.of[i].value)));
    return 0;
}

const struct shell_command sched_commands[] = {
    { "sched-credit",
      "[-d VM [-w WEIGHT] [-c CAP] [--NAME VALUE...]] | [-l] [-p POOL] "
      "| -s [-p POOL] [-t MS] [-r US] [-m US] [--NAME VALUE...] "
      "| -s [-p POOL] --policy PRESET",
      "shows or sets what VMs have, or with -s what a pool has\n"
      "--NAME VALUE  sets any parameter, as in --micro-us 5000\n"
      "-l            shows all columns, also where they are wider than a terminal",
      cmd_sched_credit, "", "ld:w:c:p:st:r:m:-" },
    { "param", "[-p POOL | -d VM] [NAME [VALUE]]", "shows or sets any entry of the parameter table",
      cmd_param, "?ww", "d:p:" },
    { "cpupool-create",
      "[name=]NAME [sched=POLICY] [preset=PRESET] [turbo_of=POOL] "
      "[cpus=CPUS|random:N|cache:N|node:N]",
      "creates a pool, with Pool-0's scheduler unless told", cmd_pool_create, "w*", "" },
    { "cpupool-turbo", "POOL [SERVED]", "makes POOL the turbo pool of another, or of none",
      cmd_pool_turbo, "P?w", "" },
    { "cpupool-numa-split", "",
      "makes a pool of each NUMA node's CPUs\n"
      "Pool-0 keeps the node of CPU 0. The others get Pool-0's scheduler.",
      cmd_numa_split, "", "" },
    /* xl has -c to show the CPUs. Here they are always shown, so -c changes nothing. */
    { "cpupool-list", "[-c] [POOL]", "lists pools and their CPUs", cmd_pool_list, "?P", "c" },
    { "cpupool-destroy", "POOL", "ends a pool without VMs; its CPUs become free", cmd_pool_destroy,
      "P", "" },
    { "cpupool-rename", "POOL NAME", "gives a pool another name", cmd_pool_rename, "Pw", "" },
    { "cpupool-cpu-add", "POOL CPUS", "adds free CPUs to a pool", cmd_cpu_add, "PC", "" },
    { "cpupool-cpu-remove", "POOL CPUS", "takes CPUs out of a pool; they become free",
      cmd_cpu_remove, "PC", "" },
    { "cpupool-migrate", "VM POOL",
      "moves a VM to another pool\n"
      "It keeps weight, cap and the like; what is not kept is listed.\n"
      "Its vCPUs may then run on all CPUs of the pool.",
      cmd_pool_migrate, "VP", "" },
    { 0 },
};
