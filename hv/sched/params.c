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
    struct sched_pool *owner;
    int error = -EINVAL;
    u32 who, *at, old;

    *why = e->names ? "that is none of its values" : "the value is out of range";
    if (value < e->min || value > e->max) return -EINVAL;
    *why = "the object is not in that pool";
    sched_enter(&pool);
    at = field(e, object, &owner, &who);
    if (owner == pool && pool->policy) {
        record_input(pool, IN_PARAM, who, (u32)(e - pool->policy->params), (u64)value);
        old = *at;
        *at = (u32)value;
        error = pool->policy->changed ? pool->policy->changed(pool, e, why) : 0;
        if (error) *at = old;
    }
    spin_unlock(&pool->lock);
    if (!error) param_changed(pool, e->scope == PARAM_POOL ? NULL : object, e->name);
    return error;
}

int param_set_text(const struct param *e, struct sched_pool *pool, void *object, const char *text,
                   const char **why) {
    u64 value = 0;

    if (e->names) {
        while (e->names[value] && strcmp(e->names[value], text)) value++;
    } else if (e->max == 1 && (strcmp(text, "on") == 0 || strcmp(text, "off") == 0)) {
        value = text[1] == 'n';
    } else if (parse_u64(text, &value, NULL) || (text[1] | ' ') == 'x') {
        *why = "a whole number was expected";
        return -EINVAL;
    }
    return param_set(e, pool, object, (i64)MIN(value, (u64)INT64_MAX), why);
}

int param_preset_why(struct sched_pool *pool, const char *preset, const char **why) {
    const struct sched_preset *x = pool->policy->presets;
    u64 old[SCHED_PRIV];
    int error;

    while (x && x->name && strcmp(x->name, preset)) x++;
    *why = "the scheduler has no such preset";
    if (!x || !x->name) return -ENOENT;
    sched_enter(&pool);
    record_input(pool, IN_PRESET, TRACE_NOBODY, (u32)(x - pool->policy->presets), 0);
    memcpy(old, pool->priv, pool->policy->preset_size);
    memcpy(pool->priv, x->values, pool->policy->preset_size);
    error = pool->policy->changed(pool, NULL, why);
    if (error) memcpy(pool->priv, old, pool->policy->preset_size);
    spin_unlock(&pool->lock);
    if (!error) param_changed(pool, NULL, NULL);
    return error;
}
