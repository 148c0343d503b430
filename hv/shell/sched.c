/* Commands that set how things are scheduled: sched-credit and cpupool-* as xl has them, and param for every
 * entry of the parameter table. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "vm/vm.h"

static i64 value_of(struct sched_pool *pool, const char *name, const void *object) {
    const struct param *p = param_find(pool, name);

    return p ? param_get(p, pool, object) : 0;
}

static int set(struct sched_pool *pool, const char *name, void *object, const char *text) {
    const struct param *p = param_find(pool, name);
    const char *why = NULL;
    int error;

    if (!p)
        return shell_fail(-ENOENT, "pool %s, which runs %s, has no parameter %s", pool->name,
                          pool->policy->name, name);
    error = param_set_text(p, pool, object, text, &why);
    return error ? shell_fail(error, "%s", why ? why : "the value is not allowed") : 0;
}

/* Sets two parameters or none; a text that is NULL leaves its parameter alone. */
static int set_pair(struct sched_pool *pool, void *object, const char *const name[2],
                    const char *const text[2]) {
    i64 old = value_of(pool, name[0], object);
    int error = text[0] ? set(pool, name[0], object, text[0]) : 0;
    const char *why;

    if (error || !text[1]) return error;
    error = set(pool, name[1], object, text[1]);
    if (error && text[0]) param_set(param_find(pool, name[0]), pool, object, old, &why);
    return error;
}

/* ---- sched-credit ---- */

COLUMNS(pool_columns, COL("Cpupool", "pool", 's', -24), COL("Sched", "sched", 's', 10),
        COL("Tslice(us)", "tslice_us", 'd', 10), COL("Ratelimit(us)", "ratelimit_us", 'd', 13));

COLUMNS(weight_columns, COL("Name", "name", 's', -24), COL("ID", "id", 'u', 5),
        COL("Weight", "weight", 'd', 6), COL("Cap", "cap", 'd', 5), COL("Cpupool", "pool", 's', 0));

static int credit_check(struct shell_call *c) {
    const char *const *o = c->opt;

    if (o['d'] ? o['s'] || o['p'] : o['w'] || o['c']) return shell_usage();
    if (!o['s'] && (o['t'] || o['r'])) return shell_usage();
    c->only = o['d'];
    if (o['d'] && !(c->vm = shell_vm(o['d']))) return -ENOENT;
    if ((o['s'] || o['p']) && !(c->pool = shell_pool(o['p'] ? o['p'] : "Pool-0"))) return -ENOENT;
    return 0;
}

static int credit_pool(struct shell_call *c) {
    static const char *const names[] = { "tslice_us", "ratelimit_us" };
    const char *texts[] = { c->opt['t'], c->opt['r'] };
    struct sched_pool *p = c->pool;
    char us[24];
    u64 ns = 0;

    if (texts[0]) { /* xl's milliseconds, here perhaps with a fraction */
        hv_snprintf(us, sizeof(us), "%sms", texts[0]);
        if (parse_time(us, &ns, NULL))
            return shell_fail(-EINVAL, "expected a number of milliseconds, not %s", texts[0]);
        hv_snprintf(us, sizeof(us), "%lu", ns / 1000);
        texts[0] = us;
    }
    if (texts[0] || texts[1]) return set_pair(p, p, names, texts);
    c->columns = pool_columns;
    table_row(c, CELLS(S(p->name), S(p->policy->name), D(value_of(p, "tslice_us", p)),
                       D(value_of(p, "ratelimit_us", p))));
    return 0;
}

static int cmd_sched_credit(struct shell_call *c) {
    static const char *const names[] = { "weight", "cap" };
    const char *const texts[] = { c->opt['w'], c->opt['c'] };
    int error = c->step ? 0 : credit_check(c);
    struct sched_pool *pool;

    if (error) return error;
    if (c->opt['s']) return credit_pool(c);
    if (texts[0] || texts[1]) {
        error = shell_vm_pool(c->vm, &pool);
        return error ? error : set_pair(pool, &c->vm->sched, names, texts);
    }
    c->columns = weight_columns;
    if (!shell_next_vm(c)) return 0;
    pool = c->vm->sched.pool; /* NULL: still being made, or on its way out */
    if (pool && (!c->pool || pool == c->pool))
        table_row(c, CELLS(S(c->vm->name), U(c->vm->id), D(value_of(pool, "weight", &c->vm->sched)),
                           D(value_of(pool, "cap", &c->vm->sched)), S(pool->name)));
    return SHELL_AGAIN;
}

/* ---- param ---- */

COLUMNS(param_columns, COL("Name", "name", 's', -20), COL("Value", "value", 's', 10),
        COL("Unit", "unit", 's', -4), COL("", "help", 's', 0));

static void param_row(struct shell_call *c, const struct param *p, const void *object) {
    i64 v = param_get(p, c->pool, object);
    char number[24];

    hv_snprintf(number, sizeof(number), "%ld", v);
    table_row(c, CELLS(S(p->name), S(p->names ? p->names[v] : number), S(p->unit), S(p->help)));
}

static int cmd_param(struct shell_call *c) {
    const char *name = c->argv[1], *preset = c->opt['P'];
    const struct param *p;
    void *object;
    int error;

    if (!c->step && c->opt['d'] && !(c->vm = shell_vm(c->opt['d']))) return -ENOENT;
    if (c->vm) { /* at each step: it may go meanwhile */
        error = shell_vm_pool(c->vm, &c->pool);
        if (error) return error;
    } else if (!(c->pool = shell_pool(c->opt['p'] ? c->opt['p'] : "Pool-0"))) {
        return -ENOENT;
    }
    if (preset) {
        if (c->vm || name) return shell_usage();
        error = param_preset(c->pool, preset);
        return error ? shell_fail(error, "%s has no preset %s", c->pool->policy->name, preset) : 0;
    }
    p = name ? param_find(c->pool, name) : param_at(c->pool, c->index++);
    object = !p || (p->scope == PARAM_POOL) == !!c->vm ? NULL : c->vm ? (void *)&c->vm->sched : c->pool;
    if (name && !object)
        return shell_fail(-ENOENT, "%s has no parameter %s", c->vm ? c->vm->name : c->pool->name, name);
    if (c->argc > 2) return set(c->pool, name, object, c->argv[2]);
    c->columns = param_columns;
    if (object) param_row(c, p, object);
    return p && !name ? SHELL_AGAIN : 0;
}

/* ---- pools ---- */

struct sched_pool *shell_pool(const char *name) {
    struct sched_pool *p = sched_pool_find(name);

    if (!p) shell_fail(-ENOENT, "there is no pool %s", name);
    return p;
}

static int cpu_done(int error, u32 cpu) {
    char number[12];

    hv_snprintf(number, sizeof(number), "%u", cpu);
    return shell_done(error, "CPU", number);
}

static int cmd_cpu_add(struct shell_call *c) {
    cpumask_for_each(cpu, &c->cpus) {
        int error = sched_pool_add_cpu(c->pool, cpu);

        if (error) return cpu_done(error, cpu);
    }
    return 0;
}

/* Also called again: those that an earlier call took out are not in the pool any more. */
static int cmd_cpu_remove(struct shell_call *c) {
    cpumask_for_each(cpu, &c->cpus) {
        bool gone = c->step && sched_pool_of_cpu(cpu) != c->pool;
        int error = gone ? 0 : sched_pool_remove_cpu(c->pool, cpu);

        if (error) return cpu_done(error, cpu);
    }
    return 0;
}

/* The pool's name, alone or as name=, and the other words. */
static int create_words(struct shell_call *c, const char **name, const char **sched) {
    for (int i = 1; i < c->argc; i++) {
        char *value = strchr(c->argv[i], '=');
        const char *key = value || i > 1 ? c->argv[i] : "name";

        if (value) *value++ = 0;
        if (strcmp(key, "name") == 0)
            *name = value ? value : c->argv[i];
        else if (value && strcmp(key, "sched") == 0)
            *sched = value;
        else if (!value || strcmp(key, "cpus") != 0 || parse_cpus(value, &c->cpus, NULL) ||
                 cpumask_empty(&c->cpus))
            return shell_usage();
    }
    return *name ? shell_new_name(*name) : shell_usage();
}

static int cmd_pool_create(struct shell_call *c) {
    const char *name = NULL, *sched = sched_pool_find("Pool-0")->policy->name;
    int error = create_words(c, &name, &sched);

    if (error) return error;
    error = sched_pool_create(name, sched, &c->pool);
    if (error == -EINVAL) return shell_fail(error, "there is no scheduler %s", sched);
    if (error) return shell_done(error, "pool", name);
    error = cmd_cpu_add(c);
    if (!error) return 0;
    cpumask_for_each(cpu, &c->cpus) { /* all or nothing */
        if (sched_pool_of_cpu(cpu) == c->pool) sched_pool_remove_cpu(c->pool, cpu);
    }
    sched_pool_destroy(c->pool);
    return error;
}

COLUMNS(columns, COL("Name", "name", 's', -20), COL(NULL, "id", 'u', 0), COL("CPUs", "nr_cpus", 'u', 5),
        COL("Sched", "sched", 's', 10), COL("VMs", "vms", 'u', 5), COL("CPU list", "cpus", 's', 0));

static int cmd_pool_list(struct shell_call *c) {
    char cpus[CPUS_TEXT];

    c->columns = columns;
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p)) {
        if (c->pool && p != c->pool) continue;
        format_cpus(&p->cpus, cpus);
        table_row(c, CELLS(S(p->name), U(p->id), U(cpumask_weight(&p->cpus)), S(p->policy->name),
                           U(p->nr_doms), S(cpus)));
    }
    return 0;
}

/* As xl: the CPUs that it had become free. */
static int cmd_pool_destroy(struct shell_call *c) {
    struct sched_pool *p = c->pool;
    int error;

    if (p->nr_doms || p->id == 0) return shell_done(-EBUSY, "pool", p->name);
    c->cpus = p->cpus;
    error = cmd_cpu_remove(c);
    return error ? error : shell_done(sched_pool_destroy(p), "pool", c->argv[1]);
}

static int cmd_pool_rename(struct shell_call *c) {
    if (c->pool->id == 0) return shell_fail(-EINVAL, "Pool-0 keeps its name");
    if (shell_new_name(c->argv[2])) return -EINVAL;
    return shell_done(sched_pool_rename(c->pool, c->argv[2]), "pool", c->argv[2]);
}

static void let_go(struct shell_call *c) {
    if (c->vm->sched.pool) sched_unpause(&c->vm->sched); /* it may be gone by now */
}

/* The VM stands still while it moves: it is held, tried again until no pCPU has its state, and let go. */
static int cmd_pool_migrate(struct shell_call *c) {
    struct sched_pool *from;
    int error;

    if (c->step == 0) {
        error = shell_vm_pool(c->vm, &from);
        if (error) return error;
        sched_pause(&c->vm->sched);
        c->end = let_go;
    }
    error = c->vm->state == VM_DYING ? -EBUSY : sched_pool_move_dom(c->pool, &c->vm->sched);
    if (error == -EINVAL) return shell_fail(error, "pool %s has no CPUs", c->pool->name);
    return shell_done(error, "VM", c->vm->name);
}

const struct shell_command sched_commands[] = {
    { "sched-credit", "[-d VM [-w WEIGHT] [-c CAP]] | [-p POOL] | -s [-p POOL] [-t MS] [-r US]",
      "shows or sets weights and caps; with -s a pool's slice and rate limit", cmd_sched_credit, "",
      "d:w:c:p:st:r:" },
    { "param", "[-p POOL | -d VM] [NAME [VALUE]] | [-p POOL] -P PRESET",
      "shows or sets any entry of the parameter table", cmd_param, "?ww", "d:p:P:" },
    { "cpupool-create", "[name=]NAME [sched=POLICY] [cpus=CPUS]",
      "creates a pool; its scheduler is Pool-0's if not given", cmd_pool_create, "w*", "" },
    { "cpupool-list", "[-c] [POOL]", "pools and their CPUs", cmd_pool_list, "?P",
      "c" /* xl's: here the CPUs are always shown */ },
    { "cpupool-destroy", "POOL", "ends a pool without VMs; its CPUs become free", cmd_pool_destroy, "P", "" },
    { "cpupool-rename", "POOL NAME", "gives it another name", cmd_pool_rename, "Pw", "" },
    { "cpupool-cpu-add", "POOL CPUS", "adds free CPUs", cmd_cpu_add, "PC", "" },
    { "cpupool-cpu-remove", "POOL CPUS", "takes CPUs out; they become free", cmd_cpu_remove, "PC", "" },
    { "cpupool-migrate", "VM POOL", "moves a VM to another pool", cmd_pool_migrate, "VP", "" },
    { 0 },
};
