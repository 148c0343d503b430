#include <takt/errno.h>
#include "lib/parse.h"
#include "lib/printf.h"
#include "lib/string.h"
#include "sched/core.h"

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

char param_kind(const char *name) {
    for (u32 i = 0; sched_policies[i]; i++) {
        const struct param *e = find_in(sched_policies[i], name);

        if (e) return e->scope == PARAM_POOL ? 'p' : 'v';
    }
    return 0;
}

/* Where the value is, and whose it is for a recording; NULL if the object is no longer in that pool. */
static u32 *field(const struct param *e, struct sched_pool *pool, const void *object, u32 *who) {
    const struct sched_vcpu *v = object;
    const struct sched_dom *d = e->scope == PARAM_VCPU ? v->dom : object;
    const u64 *priv = e->scope == PARAM_POOL ? pool->priv : e->scope == PARAM_DOM ? d->priv : v->priv;

    *who = e->scope == PARAM_POOL ? TRACE_NOBODY : e->scope == PARAM_DOM ? d->id << 16 : sched_who(v);
    if (!pool->policy || (e->scope == PARAM_POOL ? object != pool : d->pool != pool)) return NULL;
    return (u32 *)((char *)priv + e->offset);
}

i64 param_get(const struct param *e, struct sched_pool *pool, const void *object) {
    u32 who, *at;
    i64 value;

    spin_lock(&pool->lock);
    at = field(e, pool, object, &who);
    value = at ? *at : 0;
    spin_unlock(&pool->lock);
    return value;
}

int param_set(const struct param *e, struct sched_pool *pool, void *object, i64 value, const char **why) {
    u32 who, *at, old;
    int error = -EINVAL;

    *why = e->names ? "that is none of its values" : "the value is out of range";
    if (value < e->min || value > e->max) return -EINVAL;
    sched_enter(&pool);
    *why = "the object is not in that pool";
    at = field(e, pool, object, &who);
    if (at) {
        record_input(pool, IN_PARAM, who, (u32)(e - pool->policy->params), (u64)value);
        *why = NULL;
        old = *at;
        *at = (u32)value;
        error = pool->policy->changed ? pool->policy->changed(pool, e, why) : 0;
        if (error) *at = old;
    }
    spin_unlock(&pool->lock);
    return error;
}

int param_set_text(const struct param *e, struct sched_pool *pool, void *object, const char *text,
                   const char **why) {
    u64 value = 0;

    if (e->names) {
        while (e->names[value] && strcmp(e->names[value], text)) value++;
    } else if (parse_u64(text, &value, NULL) || (text[1] | ' ') == 'x') {
        *why = "a whole number was expected";
        return -EINVAL;
    }
    return param_set(e, pool, object, (i64)MIN(value, (u64)INT64_MAX), why);
}

int param_preset(struct sched_pool *pool, const char *preset) {
    const struct sched_preset *x = pool->policy->presets;
    const char *why;

    while (x && x->name && strcmp(x->name, preset)) x++;
    if (!x || !x->name) return -ENOENT;
    sched_enter(&pool);
    record_input(pool, IN_PRESET, TRACE_NOBODY, (u32)(x - pool->policy->presets), 0);
    memcpy(pool->priv, x->values, pool->policy->preset_size);
    if (pool->policy->changed(pool, NULL, &why)) panic("preset %s: %s", preset, why);
    spin_unlock(&pool->lock);
    return 0;
}
