/* The parameter table: finding, reading and setting parameters of pools and VMs, such as `weight`,
 * and the sentences about them. Each policy has a list of parameters (struct param): the name, its
 * limits or its words, and where the value is. So the shell, the store and the configuration file
 * all know every parameter of every policy. */
#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "common/string.h"
#include "sched/core.h"

void (*param_hook)(struct sched_pool *p, struct sched_vm *d, const char *name);

/* Returns the parameter `name` of a policy; NULL if it has none. */
static const struct param *param_of_policy(const struct sched_policy *policy, const char *name) {
    for (const struct param *e = policy->params; e && e->name; e++)
        if (strcmp(e->name, name) == 0) return e;
    return NULL;
}

/* Returns the parameter `name` of the pool's policy, or NULL if it has none. */
const struct param *param_find(const struct sched_pool *pool, const char *name) {
    return param_of_policy(pool->policy, name);
}

/* Returns parameter number `index` of the pool's policy, or NULL at the end. */
const struct param *param_at(const struct sched_pool *pool, unsigned index) {
    const struct param *e = pool->policy->params;

    if (!e) return NULL;
    for (; index && e->name; index--) e++;
    if (!e->name) return NULL;
    return e;
}

/* Returns 'p' for a parameter of pools and 'v' for one of VMs. */
static char param_kind_of(const struct param *e) {
    if (e->scope == PARAM_POOL) return 'p';
    return 'v';
}

/* Returns the name of parameter number `i` of all policies, or NULL at the end. Parameters are
 * numbered through all policies, one after the other. */
const char *param_name_at(u32 i, char *scope) {
    u32 number = 0;

    for (u32 k = 0; sched_policies[k]; k++)
        for (const struct param *e = sched_policies[k]->params; e && e->name; e++, number++)
            if (number == i) {
                *scope = param_kind_of(e);
                return e->name;
            }
    return NULL;
}

/* Returns whether parameter `name` is one of pools ('p') or of VMs ('v'), or 0 if there is none. */
char param_kind(const char *name) {
    for (u32 i = 0; sched_policies[i]; i++) {
        const struct param *e = param_of_policy(sched_policies[i], name);

        if (e) return param_kind_of(e);
    }
    return 0;
}

/* Where the value of a parameter is, and whose it is. */
struct param_place {
    u32 *value;
    struct sched_pool *pool; /* that the object is in, or is */
    u32 who;                 /* the object in a recording */
};

/* Returns where the value of parameter `e` is in `object`, which is a pool or a VM, as e->scope
 * says. */
static struct param_place param_place_of(const struct param *e, void *object) {
    struct sched_pool *p = object;
    struct sched_vm *d = object;

    if (e->scope == PARAM_POOL)
        return (struct param_place){ (u32 *)((char *)p->priv + e->offset), p, TRACE_NOBODY };
    return (struct param_place){ (u32 *)((char *)d->priv + e->offset), d->pool, d->id << 16 };
}

/* Returns the value of a parameter in `object`, a pool or a VM. */
i64 param_get(const struct param *e, struct sched_pool *pool, const void *object) {
    return *param_place_of(e, (void *)object).value;
}

/* Returns the value of a parameter as a person reads it. */
const char *param_text(const struct param *e, struct sched_pool *pool, const void *object,
                       char number[24]) {
    i64 v = param_get(e, pool, object);

    if (e->names) return e->names[v];
    hv_snprintf(number, 24, "%ld", v);
    return number;
}

/* Tries a new value. If the policy refuses it, the old one is put back. */
static int try_value(const struct param *e, struct sched_pool *pool, u32 *at, u32 value,
                     const char **why) {
    u32 old = *at;
    int error = 0;

    *at = value;
    if (pool->policy->changed) error = pool->policy->changed(pool, e, why);
    if (error) *at = old;
    return error;
}

/* Sets a parameter of a pool or a VM. Returns 0, or -EINVAL with a sentence in *why. The pool's
 * turbo pool is locked, too, because the change has to be in both at once. Watches are told after
 * the locks are given back. */
int param_set(const struct param *e, struct sched_pool *pool, void *object, i64 value,
              const char **why) {
    struct sched_pool *turbo;
    struct param_place at;
    int error = -EINVAL;

    *why = "the value is out of range";
    if (value < e->min || value > e->max) return -EINVAL;
    *why = "the object is not in that pool";
    sched_enter(&pool);
    turbo = sched_enter(&pool->turbo); /* The VM's part there takes over its weight and cap. */
    at = param_place_of(e, object);
    if (at.pool == pool && pool->policy) {
        record_input(pool, IN_PARAM, at.who, (u32)(e - pool->policy->params), (u64)value);
        error = try_value(e, pool, at.value, (u32)value, why);
    }
    if (turbo) spin_unlock(&turbo->lock);
    spin_unlock(&pool->lock);
    if (error) return error;
    if (e->scope == PARAM_POOL)
        param_changed(pool, NULL, e->name);
    else
        param_changed(pool, object, e->name);
    return 0;
}

/* ---- a VM that goes to another pool ---- */

/* Notes the values of all parameters of a VM in *all, in the order of the pool's list. */
static void remember_params(struct sched_pool *pool, const struct sched_vm *d,
                            struct param_values *all) {
    const struct param *e;

    all->nr = 0;
    for (unsigned i = 0; (e = param_at(pool, i)); i++) {
        if (e->scope != PARAM_DOM) continue;
        ASSERT(all->nr < PARAM_OF_VM);
        all->of[all->nr].param = e;
        all->of[all->nr++].value = param_get(e, pool, d);
    }
}

/* Moves a VM to another pool and keeps its parameters; `lost` names those that the new pool does
 * not have. Returns 0, or an error with nothing changed. A parameter whose value was 0 is not
 * reported as lost, because 0 is what a VM without that parameter has. */
int param_move_vm(struct sched_pool *to, struct sched_vm *d, struct param_values *lost) {
    struct param_values had;
    int error;

    lost->nr = 0;
    remember_params(d->pool, d, &had);
    error = sched_pool_move_vm(to, d);
    if (error) return error;
    for (u32 i = 0; i < had.nr; i++) {
        const struct param *same = param_find(to, had.of[i].param->name);
        const char *why;

        if (same && same->scope == PARAM_DOM && param_set(same, to, d, had.of[i].value, &why) == 0)
            continue;
        if (had.of[i].value) lost->of[lost->nr++] = had.of[i];
    }
    return 0;
}

/* ---- text ---- */

/* Appends to a text that has room for PARAM_WHY characters. What does not fit is left out. */
static PRINTF(2, 3) void why_append(char text[PARAM_WHY], const char *fmt, ...) {
    size_t n = strlen(text);
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(text + n, PARAM_WHY - n, fmt, ap);
    va_end(ap);
}

/* Returns what stands behind a word of a list such as "a, b or c", if `left` more words follow. */
static const char *separator(u32 left) {
    if (left == 0) return "";
    if (left == 1) return " or ";
    return ", ";
}

/* Writes what values parameter `e` can have, for an error's sentence. */
void param_expected(const struct param *e, char text[PARAM_WHY]) {
    text[0] = 0;
    if (!e->names && e->max == 1) {
        why_append(text, "on, off, 1 or 0");
    } else if (!e->names) {
        why_append(text, "a whole number from %u to %u", e->min, e->max);
        if (*e->unit) why_append(text, " (%s)", e->unit);
    } else {
        for (u32 i = 0; i <= e->max; i++)
            why_append(text, "%s%s", e->names[i], separator(e->max - i));
    }
}

/* Finds `text` among the words of `e`, and stores its number in *value. Returns 0, or -EINVAL if
 * `e` has no such word. */
static int read_word(const struct param *e, const char *text, u64 *value) {
    for (*value = 0; e->names[*value]; ++*value)
        if (strcmp(e->names[*value], text) == 0) return 0;
    return -EINVAL;
}

/* Reads a value of `e`. Returns 0, or -EINVAL if the text is not a value that `e` can have. */
static int read_value(const struct param *e, const char *text, u64 *value) {
    bool is_switch = e->max == 1 && !e->names;

    if (e->names) return read_word(e, text, value);
    if (is_switch && strcmp(text, "on") == 0) {
        *value = 1;
    } else if (is_switch && strcmp(text, "off") == 0) {
        *value = 0;
    } else if (parse_u64(text, value, NULL)) {
        return -EINVAL;
    }
    if (*value < e->min || *value > e->max) return -EINVAL;
    return 0;
}

/* Checks whether parameter `e` can have the value `text` in some pool. Returns 0, or -EINVAL with a
 * sentence in `why`. Whether the pool's policy accepts the value together with its other settings
 * is known only when it is set. */
int param_check(const struct param *e, const char *text, char why[PARAM_WHY]) {
    char expected[PARAM_WHY];
    u64 value;

    if (!read_value(e, text, &value)) return 0;
    param_expected(e, expected);
    hv_snprintf(why, PARAM_WHY, "%s must be %s, not \"%s\"", e->name, expected, text);
    return -EINVAL;
}

/* Sets a parameter to the value that `text` means. Returns 0, or -EINVAL with a sentence in `why`.
 * The sentence in `why` begins with the parameter, so that it makes sense wherever it is read. */
int param_set_text(const struct param *e, struct sched_pool *pool, void *object, const char *text,
                   char why[PARAM_WHY]) {
    const char *refused;
    u64 value;
    int error = param_check(e, text, why);

    if (error) return error;
    read_value(e, text, &value);
    error = param_set(e, pool, object, (i64)value, &refused);
    if (error) hv_snprintf(why, PARAM_WHY, "%s = %s: %s", e->name, text, refused);
    return error;
}

/* ---- policies and presets ---- */

/* Returns the policy of that name, or NULL with a sentence in `why`. */
const struct sched_policy *sched_policy_find(const char *name, char why[PARAM_WHY]) {
    u32 n = 0;

    for (; sched_policies[n]; n++)
        if (strcmp(sched_policies[n]->name, name) == 0) return sched_policies[n];
    why[0] = 0;
    why_append(why, "sched must be ");
    for (u32 i = 0; i < n; i++)
        why_append(why, "%s%s", sched_policies[i]->name, separator(n - 1 - i));
    why_append(why, ", not \"%s\"", name);
    return NULL;
}

/* Writes the sentence that says that there is no such preset, with the names of those that there
 * are. */
static void no_such_preset(const struct sched_policy *policy, const char *preset,
                           char why[PARAM_WHY]) {
    const struct sched_preset *x = policy->presets;
    u32 n = 0;

    while (x && x[n].name) n++;
    why[0] = 0;
    why_append(why, "%s has no preset \"%s\": ", policy->name, preset);
    if (n)
        why_append(why, "expected ");
    else
        why_append(why, "it has no presets");
    for (u32 i = 0; i < n; i++) why_append(why, "%s%s", x[i].name, separator(n - 1 - i));
}

/* Sets all parameters of a pool to those of a preset. Returns 0, or an error with a sentence in
 * `why`. All values are changed at once, and put back together if the policy refuses them. One
 * after the other, some would be refused because of the old value of another. */
int param_preset_why(struct sched_pool *pool, const char *preset, char why[PARAM_WHY]) {
    const struct sched_preset *x = pool->policy->presets;
    const char *refused;
    u64 old[SCHED_PRIV];
    int error;

    while (x && x->name && strcmp(x->name, preset)) x++;
    if (!x || !x->name) {
        no_such_preset(pool->policy, preset, why);
        return -ENOENT;
    }
    sched_enter(&pool);
    record_input(pool, IN_PRESET, TRACE_NOBODY, (u32)(x - pool->policy->presets), 0);
    memcpy(old, pool->priv, pool->policy->preset_size);
    memcpy(pool->priv, x->values, pool->policy->preset_size);
    error = pool->policy->changed(pool, NULL, &refused);
    if (error) memcpy(pool->priv, old, pool->policy->preset_size);
    spin_unlock(&pool->lock);
    if (error)
        hv_snprintf(why, PARAM_WHY, "preset %s: %s", preset, refused);
    else
        param_changed(pool, NULL, NULL);
    return error;
}
