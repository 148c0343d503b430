/* Commands that set how things are scheduled: sched-credit as xl has it, and param for every entry of the
 * parameter table. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/string.h"
#include "sched/policy.h"
#include "shell/shell.h"
#include "vm/vm.h"

#define ROWS 2 /* of a list, in one step */

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

struct credit_options {
    const char *vm, *pool, *weight, *cap, *tslice, *ratelimit;
    bool schedule; /* -s */
};

static int credit_options(struct shell_call *c, struct credit_options *o) {
    const char *value;
    int at = 1, letter;

    memset(o, 0, sizeof(*o));
    while ((letter = shell_option(c, "d:w:c:p:st:r:", &at, &value))) {
        const char **to = letter == 'd'   ? &o->vm
                          : letter == 'w' ? &o->weight
                          : letter == 'c' ? &o->cap
                          : letter == 'p' ? &o->pool
                          : letter == 't' ? &o->tslice
                          : letter == 'r' ? &o->ratelimit
                                          : NULL;

        if (letter == '?') return -EINVAL;
        if (to)
            *to = value;
        else
            o->schedule = true;
    }
    if (at < c->argc) return shell_usage(c);
    if ((o->schedule || o->pool) && (o->vm || o->weight || o->cap))
        return shell_fail(c, -EINVAL, "-s and -p do not go with -d, -w and -c");
    if (!o->vm && (o->weight || o->cap)) return shell_fail(c, -EINVAL, "-w and -c want a VM: -d VM");
    if (!o->schedule && (o->tslice || o->ratelimit))
        return shell_fail(c, -EINVAL, "-t and -r set a pool: they go with -s");
    return 0;
}

COLUMNS(pool_columns, COL("Cpupool", "pool", 's', -24), COL("Sched", "sched", 's', 10),
        COL("Tslice(us)", "tslice_us", 'd', 10), COL("Ratelimit(us)", "ratelimit_us", 'd', 13));

COLUMNS(weight_columns, COL("Name", "name", 's', -24), COL("ID", "id", 'u', 5),
        COL("Weight", "weight", 'd', 6), COL("Cap", "cap", 'd', 5), COL("Cpupool", "pool", 's', 0));

static void pool_rows(struct shell_call *c, const struct sched_pool *only) {
    table_begin(c, pool_columns);
    for (struct sched_pool *p = sched_pool_next(NULL); p; p = sched_pool_next(p)) {
        if (!only || p == only)
            table_row(c, pool_columns,
                      CELLS(S(p->name), S(p->policy->name), D(value_of(p, "tslice_us", p)),
                            D(value_of(p, "ratelimit_us", p))));
    }
    table_end(c);
    c->rows = 0;
}

static void weight_row(struct shell_call *c, struct vm *vm) {
    struct sched_pool *pool = vm->sched.pool;

    table_row(c, weight_columns,
              CELLS(S(vm->name), U(vm->id), D(value_of(pool, "weight", &vm->sched)),
                    D(value_of(pool, "cap", &vm->sched)), S(pool->name)));
}

static int credit_vm(struct shell_call *c, const struct credit_options *o) {
    static const char *const names[] = { "weight", "cap" };
    const char *const texts[] = { o->weight, o->cap };
    struct vm *vm = shell_vm(c, o->vm);
    int error;

    if (!vm) return -ENOENT;
    error = set_pair(c, vm->sched.pool, &vm->sched, names, texts);
    if (!error && !o->weight && !o->cap) {
        table_begin(c, weight_columns);
        weight_row(c, vm);
        table_end(c);
    }
    vm_put(vm);
    return error;
}

static int credit_pool(struct shell_call *c, const struct credit_options *o) {
    static const char *const names[] = { "tslice_us", "ratelimit_us" };
    struct sched_pool *p = shell_pool(c, o->pool ? o->pool : "Pool-0");
    const char *texts[] = { o->tslice, o->ratelimit };
    char us[24];
    u64 ns = 0;

    if (!p) return -ENOENT;
    if (o->tslice) { /* xl's milliseconds, here perhaps with a fraction */
        hv_snprintf(us, sizeof(us), "%sms", o->tslice);
        if (parse_time(us, &ns, NULL))
            return shell_fail(c, -EINVAL, "expected a number of milliseconds, not %s", o->tslice);
        hv_snprintf(us, sizeof(us), "%lu", ns / 1000);
        texts[0] = us;
    }
    if (o->tslice || o->ratelimit) return set_pair(c, p, p, names, texts);
    pool_rows(c, p);
    return 0;
}

/* The pools, then all VMs, or those of one pool. */
static int credit_all(struct shell_call *c, const char *name) {
    struct sched_pool *only = name ? shell_pool(c, name) : NULL;
    struct vm *vm = c->cursor;

    if (name && !only) return -ENOENT;
    if (c->step == 0) {
        out(c->json ? "{\"pools\": " : "");
        pool_rows(c, only);
        out(c->json ? ", \"vms\": " : "\n");
        table_begin(c, weight_columns);
    }
    for (int i = 0; !c->stop && i < ROWS; i++) {
        c->cursor = vm = vm_next(vm);
        if (!vm) break;
        if (!only || vm->sched.pool == only) weight_row(c, vm);
    }
    if (vm && !c->stop) return SHELL_AGAIN;
    if (vm) vm_put(vm);
    table_end(c);
    out(c->json ? "}" : "");
    return 0;
}

static int cmd_sched_credit(struct shell_call *c) {
    struct credit_options o;
    int error = credit_options(c, &o);

    if (error) return error;
    return o.vm ? credit_vm(c, &o) : o.schedule ? credit_pool(c, &o) : credit_all(c, o.pool);
}

/* ---- param ---- */

/* What -d VM, -d VM/VCPU or -p POOL names. */
struct target {
    struct vm *vm; /* with a reference; NULL: a pool */
    struct sched_vcpu *vcpu;
    struct sched_pool *pool;
};

static int find_target(struct shell_call *c, const char *what, struct target *t) {
    char name[VM_NAME];
    char *slash;
    u64 n;

    hv_snprintf(name, sizeof(name), "%s", what);
    slash = strchr(name, '/');
    if (slash) *slash++ = 0;
    t->vm = shell_vm(c, name);
    if (!t->vm) return -ENOENT;
    t->pool = t->vm->sched.pool;
    if (!slash) return 0;
    if (parse_u64(slash, &n, NULL) || n >= t->vm->nr_vcpus || !t->vm->vcpu[n]) {
        shell_fail(c, -EINVAL, "%s has no vCPU %s", name, slash);
        vm_put(t->vm);
        return -EINVAL;
    }
    t->vcpu = &t->vm->vcpu[n]->sched;
    return 0;
}

/* The object that `p` belongs to, NULL if the target has none such. */
static void *object_of(const struct target *t, const struct param *p) {
    switch (p->scope) {
    case PARAM_POOL: return t->vm ? NULL : t->pool;
    case PARAM_DOM: return t->vm && !t->vcpu ? &t->vm->sched : NULL;
    case PARAM_VCPU: return t->vcpu;
    }
    return NULL;
}

COLUMNS(param_columns, COL("Name", "name", 's', -20), COL("Value", "value", 's', 10),
        COL("Unit", "unit", 's', -4), COL("", "help", 's', 0));

static void param_row(struct shell_call *c, const struct param *p, struct sched_pool *pool,
                      const void *object) {
    char buf[24];

    table_row(c, param_columns,
              CELLS(S(p->name), S(value_text(p, pool, object, buf, sizeof(buf))), S(p->unit), S(p->help)));
}

static int list_params(struct shell_call *c, const struct target *t, const char *only) {
    const struct param *p = only ? param_find(t->pool, only) : NULL;

    if (only && (!p || !object_of(t, p)))
        return shell_fail(c, -ENOENT, "%s has no parameter %s", t->vm ? t->vm->name : t->pool->name, only);
    if (c->step == 0) table_begin(c, param_columns);
    for (u32 end = c->index + ROWS; c->index < end; c->index++) {
        p = param_at(t->pool, c->index);
        if (!p) break;
        if (object_of(t, p) && (!only || strcmp(p->name, only) == 0))
            param_row(c, p, t->pool, object_of(t, p));
    }
    if (p) return SHELL_AGAIN;
    table_end(c);
    return 0;
}

static int set_one(struct shell_call *c, const struct target *t, const char *name, const char *value) {
    const struct param *p = param_find(t->pool, name);
    void *object = p ? object_of(t, p) : NULL;

    if (!object)
        return shell_fail(c, -ENOENT, "%s has no parameter %s", t->vm ? t->vm->name : t->pool->name, name);
    return set_text(c, t->pool, name, object, value);
}

static int apply_preset(struct shell_call *c, const struct target *t, const char *preset) {
    int error = param_preset(t->pool, preset);

    return error ? shell_fail(c, error, "%s has no preset %s", t->pool->policy->name, preset) : 0;
}

static int cmd_param(struct shell_call *c) {
    const char *value, *vm = NULL, *pool = "Pool-0", *preset = NULL;
    struct target t = { 0 };
    int at = 1, letter, result;

    while ((letter = shell_option(c, "d:p:P:", &at, &value))) {
        if (letter == '?') return -EINVAL;
        *(letter == 'd' ? &vm : letter == 'p' ? &pool : &preset) = value;
    }
    if (c->argc > at + 2 || (vm && preset)) return shell_usage(c);
    if (vm ? find_target(c, vm, &t) : !(t.pool = shell_pool(c, pool))) return -ENOENT;
    if (preset)
        result = apply_preset(c, &t, preset);
    else if (c->argc == at + 2)
        result = set_one(c, &t, c->argv[at], c->argv[at + 1]);
    else
        result = list_params(c, &t, at < c->argc ? c->argv[at] : NULL);
    if (t.vm) vm_put(t.vm);
    return result;
}

const struct shell_command sched_commands[] = {
    { "sched-credit", "[-d VM [-w WEIGHT] [-c CAP]] | [-p POOL] | -s [-p POOL] [-t MS] [-r US]",
      "shows or sets weights, caps, the slice and the rate limit", cmd_sched_credit, true },
    { "param", "[-p POOL | -d VM[/VCPU]] [NAME [VALUE]] | [-p POOL] -P PRESET",
      "shows or sets any entry of the parameter table", cmd_param, true },
    { 0 },
};
