#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "sched/core.h"

void (*param_hook)(struct sched_pool *p, struct sched_dom *d, const char *name);

static const struct param *find_in(const struct sched_policy *policy, const char *name) {
    for (const struct param *e = policy->params; e && e->name; e++)
        if (strcmp(e->name, name) == 0) return e;
    return NULL;
}

const struct param *param_find(const struct sched_pool *pool, const char *name) {
    return find_in(pool->policy, name);
}

const struct param *param_at(const struct sched_pool *pool, unsigned index) {
    const struct param *e = pool->policy->params;

    while (e && e->name && index--) e++;
    return e && e->name ? e : NULL;
}

const char *param_name_at(u32 i, char *scope) {
    for (u32 k = 0; sched_policies[k]; k++)
        for (const struct param *e = sched_policies[k]->params; e && e->name; e++) {
            if (i--) continue;
            *scope = e->scope == PARAM_POOL ? 'p' : 'v';
            return e->name;
        }
    return NULL;
}

char param_kind(const char *name) {
    for (u32 i = 0; sched_policies[i]; i++) {
        const struct param *e = find_in(sched_policies[i], name);

        if (e) return e->scope == PARAM_POOL ? 'p' : 'v';
    }
    return 0;
}

/* Where the value is; the pool that the object is in, and who that is in a recording. */
static u32 *field(const struct param *e, void *object, struct sched_pool **owner, u32 *who) {
    struct sched_pool *p = object;
    struct sched_dom *d = object;
    bool pool = e->scope == PARAM_POOL;

    *owner = pool ? p : d->pool;
    *who = pool ? TRACE_NOBODY : d->id << 16;
    return (u32 *)((char *)(pool ? p->priv : d->priv) + e->offset);
}

i64 param_get(const struct param *e, struct sched_pool *pool, const void *object) {
    struct sched_pool *owner;
    u32 who;

    return *field(e, (void *)object, &owner, &who);
}

const char *param_text(const struct param *e, struct sched_pool *pool, const void *object, char number[24]) {
    i64 v = param_get(e, pool, object);

    hv_snprintf(number, 24, "%ld", v);
    return e->names ? e->names[v] : number;
}

int param_set(const struct param *e, struct sched_pool *pool, void *object, i64 value, const char **why) {
    struct sched_pool *owner, *turbo;
    int error = -EINVAL;
    u32 who, *at, old;

    *why = "the value is out of range";
    if (value < e->min || value > e->max) return -EINVAL;
    *why = "the object is not in that pool";
    sched_enter(&pool);
    turbo = sched_enter(&pool->turbo); /* its part of a VM takes over weight and cap */
    at = field(e, object, &owner, &who);
    if (owner == pool && pool->policy) {
        record_input(pool, IN_PARAM, who, (u32)(e - pool->policy->params), (u64)value);
        old = *at;
        *at = (u32)value;
        error = pool->policy->changed ? pool->policy->changed(pool, e, why) : 0;
        if (error) *at = old;
    }
    if (turbo) spin_unlock(&turbo->lock);
    spin_unlock(&pool->lock);
    if (!error) param_changed(pool, e->scope == PARAM_POOL ? NULL : object, e->name);
    return error;
}

/* ---- a VM that goes to another pool ---- */

static void all_of(struct sched_pool *pool, const struct sched_dom *d, struct param_values *all) {
    const struct param *e;

    all->nr = 0;
    for (unsigned i = 0; (e = param_at(pool, i)); i++) {
        if (e->scope != PARAM_DOM) continue;
        ASSERT(all->nr < PARAM_OF_VM);
        all->of[all->nr].param = e;
        all->of[all->nr++].value = param_get(e, pool, d);
    }
}

int param_move_dom(struct sched_pool *to, struct sched_dom *d, struct param_values *lost) {
    struct param_values had;
    int error;

    lost->nr = 0;
    all_of(d->pool, d, &had);
    error = sched_pool_move_dom(to, d);
    if (error) return error;
    for (u32 i = 0; i < had.nr; i++) {
        const struct param *same = param_find(to, had.of[i].param->name);
        const char *why;

        if (same && same->scope == PARAM_DOM && param_set(same, to, d, had.of[i].value, &why) == 0) continue;
        if (had.of[i].value) lost->of[lost->nr++] = had.of[i];
    }
    return 0;
}

/* ---- text ---- */

/* Appends to a text of PARAM_WHY characters; what does not fit is cut off. */
static PRINTF(2, 3) void append(char text[PARAM_WHY], const char *fmt, ...) {
    size_t n = strlen(text);
    va_list ap;

    va_start(ap, fmt);
    hv_vsnprintf(text + n, PARAM_WHY - n, fmt, ap);
    va_end(ap);
}

/* Between the words of a list "a, b or c"; `left`: so many come behind. */
static const char *separator(u32 left) {
    if (left == 0) return "";
    return left == 1 ? " or " : ", ";
}

void param_expected(const struct param *e, char text[PARAM_WHY]) {
    text[0] = 0;
    if (!e->names && e->max == 1) {
        append(text, "on, off, 1 or 0");
    } else if (!e->names) {
        append(text, "a whole number from %u to %u", e->min, e->max);
        if (*e->unit) append(text, " (%s)", e->unit);
    } else {
        for (u32 i = 0; i <= e->max; i++) append(text, "%s%s", e->names[i], separator(e->max - i));
    }
}

/* -EINVAL: no value of `e`. */
static int read_value(const struct param *e, const char *text, u64 *value) {
    *value = 0;
    if (e->names) {
        while (e->names[*value] && strcmp(e->names[*value], text)) ++*value;
    } else if (e->max == 1 && (strcmp(text, "on") == 0 || strcmp(text, "off") == 0)) {
        *value = text[1] == 'n';
    } else if (parse_u64(text, value, NULL) || (text[1] | ' ') == 'x') {
        return -EINVAL;
    }
    return *value < e->min || *value > e->max ? -EINVAL : 0;
}

int param_check(const struct param *e, const char *text, char why[PARAM_WHY]) {
    char expected[PARAM_WHY];
    u64 value;

    if (!read_value(e, text, &value)) return 0;
    param_expected(e, expected);
    hv_snprintf(why, PARAM_WHY, "%s must be %s, not \"%s\"", e->name, expected, text);
    return -EINVAL;
}

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

const struct sched_policy *sched_policy_find(const char *name, char why[PARAM_WHY]) {
    u32 n = 0;

    for (; sched_policies[n]; n++)
        if (strcmp(sched_policies[n]->name, name) == 0) return sched_policies[n];
    why[0] = 0;
    append(why, "sched must be ");
    for (u32 i = 0; i < n; i++) append(why, "%s%s", sched_policies[i]->name, separator(n - 1 - i));
    append(why, ", not \"%s\"", name);
    return NULL;
}

static void no_such_preset(const struct sched_policy *policy, const char *preset, char why[PARAM_WHY]) {
    const struct sched_preset *x = policy->presets;
    u32 n = 0;

    while (x && x[n].name) n++;
    why[0] = 0;
    append(why, "%s has no preset \"%s\": ", policy->name, preset);
    append(why, n ? "expected " : "it has no presets");
    for (u32 i = 0; i < n; i++) append(why, "%s%s", x[i].name, separator(n - 1 - i));
}

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
