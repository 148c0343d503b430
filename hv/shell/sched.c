/* Commands that set how things are scheduled: sched-credit as xl has it, and param for every entry of the
 * parameter table. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "vm/vm.h"

struct sched_pool *shell_pool(struct shell_call *c, const char *name) {
    struct sched_pool *p = sched_pool_find(name);

    if (!p) shell_fail(c, -ENOENT, "there is no pool %s", name);
    return p;
}

/* The value of a parameter as text: its word, or its number. */
static const char *value_text(const struct param *p, struct sched_pool *pool, const void *object, char *buf,
                              size_t size) {
    i64 v = param_get(p, pool, object);

    if (p->names) {
        for (i64 i = 0; p->names[i]; i++) {
            if (i == v) return p->names[i];
        }
    }
    hv_snprintf(buf, size, "%ld", v);
    return buf;
}

static i64 value_of(struct sched_pool *pool, const char *name, const void *object) {
    const struct param *p = param_find(pool, name);

    return p ? param_get(p, pool, object) : 0;
}

static int set_text(struct shell_call *c, struct sched_pool *pool, const char *name, void *object,
                    const char *text) {
    const struct param *p = param_find(pool, name);
    const char *why = NULL;
    int error;

    if (!p)
        return shell_fail(c, -ENOENT, "pool %s, which runs %s, has no parameter %s", pool->name,
                          pool->policy->name, name);
    error = param_set_text(p, pool, object, text, &why);
    return error ? shell_fail(c, error, "%s", why ? why : "the value is not allowed") : 0;
}

/* Sets two parameters or none; a text that is NULL leaves its parameter alone. */
static int set_pair(struct shell_call *c, struct sched_pool *pool, void *object, const char *const name[2],
                    const char *const text[2]) {
    const struct param *first = param_find(pool, name[0]);
    i64 old = first ? param_get(first, pool, object) : 0;
    int error = text[0] ? set_text(c, pool, name[0], object, text[0]) : 0;
    const char *why;

    if (error || !text[1]) return error;
    error = set_text(c, pool, name[1], object, text[1]);
    if (error && first && text[0]) param_set(first, pool, object, old, &why);
    return error;
}

/* ---- sched-credit ---- */

COLUMNS(pool_columns, COL("Cpupool", "pool", 's', -24), COL("Sched", "sched", 's', 10),
        COL("Tslice(us)", "tslice_us", 'd', 10), COL("Ratelimit(us)", "ratelimit_us", 'd', 13));

COLUMNS(weight_columns, COL("Name", "name", 's', -24), COL("ID", "id", 'u', 5),
        COL("Weight", "weight", 'd', 6), COL("Cap", "cap", 'd', 5), COL("Cpupool", "pool", 's', 0));

static int credit_check(struct shell_call *c) {
    const char *const *o = c->opt;

    if ((o['s'] || o['p']) && (o['d'] || o['w'] || o['c']))
        return shell_fail(c, -EINVAL, "-s and -p do not go with -d, -w and -c");
    if (!o['d'] && (o['w'] || o['c'])) return shell_fail(c, -EINVAL, "-w and -c want a VM: -d VM");
    if (!o['s'] && (o['t'] || o['r'])) return shell_fail(c, -EINVAL, "-t and -r set a pool: they go with -s");
    c->only = o['d'];
    if (o['d'] && !(c->vm = shell_vm(c, o['d']))) return -ENOENT;
    if ((o['s'] || o['p']) && !(c->pool = shell_pool(c, o['p'] ? o['p'] : "Pool-0"))) return -ENOENT;
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
            return shell_fail(c, -EINVAL, "expected a number of milliseconds, not %s", texts[0]);
        hv_snprintf(us, sizeof(us), "%lu", ns / 1000);
        texts[0] = us;
    }
    if (texts[0] || texts[1]) return set_pair(c, p, p, names, texts);
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
        if (!shell_vm_has_pool(c, c->vm)) return -EAGAIN;
        return set_pair(c, c->vm->sched.pool, &c->vm->sched, names, texts);
    }
    c->columns = weight_columns;
    if (!shell_next_vm(c)) return 0;
    pool = c->vm->sched.pool;
    if (!pool) return SHELL_AGAIN; /* still being made, or on its way out */
    if (!c->pool || pool == c->pool)
        table_row(c, CELLS(S(c->vm->name), U(c->vm->id), D(value_of(pool, "weight", &c->vm->sched)),
                           D(value_of(pool, "cap", &c->vm->sched)), S(pool->name)));
    return SHELL_AGAIN;
}

/* ---- param ---- */

/* Sets c->vm and c->pool, and *vcpu, to what -d VM, -d VM/VCPU or -p POOL names. At each step: a VM may go
 * meanwhile. */
static int find_target(struct shell_call *c, struct sched_vcpu **vcpu) {
    char name[VM_NAME], *slash;
    u64 n;

    *vcpu = NULL;
    if (!c->opt['d']) {
        c->pool = shell_pool(c, c->opt['p'] ? c->opt['p'] : "Pool-0");
        return c->pool ? 0 : -ENOENT;
    }
    hv_snprintf(name, sizeof(name), "%s", c->opt['d']);
    slash = strchr(name, '/');
    if (slash) *slash++ = 0;
    if (c->vm) vm_put(c->vm);
    c->vm = shell_vm(c, name);
    if (!c->vm) return -ENOENT;
    if (!shell_vm_has_pool(c, c->vm)) return -EAGAIN;
    c->pool = c->vm->sched.pool;
    if (!slash) return 0;
    if (parse_u64(slash, &n, NULL) || n >= c->vm->nr_vcpus || !c->vm->vcpu[n])
        return shell_fail(c, -EINVAL, "%s has no vCPU %s", name, slash);
    *vcpu = &c->vm->vcpu[n]->sched;
    return 0;
}

/* The object that `p` belongs to, NULL if the target has none such. */
static void *object_of(const struct shell_call *c, struct sched_vcpu *vcpu, const struct param *p) {
    switch (p->scope) {
    case PARAM_POOL: return c->vm ? NULL : c->pool;
    case PARAM_DOM: return c->vm && !vcpu ? &c->vm->sched : NULL;
    case PARAM_VCPU: return vcpu;
    }
    return NULL;
}

COLUMNS(param_columns, COL("Name", "name", 's', -20), COL("Value", "value", 's', 10),
        COL("Unit", "unit", 's', -4), COL("", "help", 's', 0));

static int cmd_param(struct shell_call *c) {
    const char *name = c->argc > 1 ? c->argv[1] : NULL, *preset = c->opt['P'];
    const struct param *p;
    struct sched_vcpu *vcpu;
    void *object;
    char buf[24];
    int error = find_target(c, &vcpu);

    if (error) return error;
    if (preset) {
        if (c->vm || name) return shell_usage(c);
        error = param_preset(c->pool, preset);
        return error ? shell_fail(c, error, "%s has no preset %s", c->pool->policy->name, preset) : 0;
    }
    p = name ? param_find(c->pool, name) : param_at(c->pool, c->index++);
    object = p ? object_of(c, vcpu, p) : NULL;
    if (name && !object)
        return shell_fail(c, -ENOENT, "%s has no parameter %s", c->vm ? c->vm->name : c->pool->name, name);
    if (c->argc > 2) return set_text(c, c->pool, name, object, c->argv[2]);
    c->columns = param_columns;
    if (object)
        table_row(c, CELLS(S(p->name), S(value_text(p, c->pool, object, buf, sizeof(buf))), S(p->unit),
                           S(p->help)));
    return p && !name ? SHELL_AGAIN : 0;
}

const struct shell_command sched_commands[] = {
    { "sched-credit", "[-d VM [-w WEIGHT] [-c CAP]] | [-p POOL] | -s [-p POOL] [-t MS] [-r US]",
      "shows or sets weights and caps; with -s a pool's slice and rate limit", cmd_sched_credit, 0, 0,
      TAKES_WORDS, "d:w:c:p:st:r:" },
    { "param", "[-p POOL | -d VM[/VCPU]] [NAME [VALUE]] | [-p POOL] -P PRESET",
      "shows or sets any entry of the parameter table", cmd_param, 0, 2, TAKES_WORDS, "d:p:P:" },
    { 0 },
};
