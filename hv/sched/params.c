#include <takt/errno.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "sched/machine.h"
#include "sched/record.h"

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

    for (unsigned i = 0; e && e[i].name; i++)
        if (i == index) return &e[i];
    return NULL;
}

char param_kind(const char *name) {
    for (u32 i = 0; sched_policies[i]; i++) {
        const struct param *e = find_in(sched_policies[i], name);

        if (e) return e->scope == PARAM_POOL ? 'p' : 'v';
    }
    return 0;
}

i64 param_get(const struct param *e, struct sched_pool *pool, const void *object) {
    spin_lock(&pool->lock);
    i64 value = e->get(object);

    spin_unlock(&pool->lock);
    return value;
}

static bool in_range(const struct param *e, i64 value) {
    if (!e->names) return value >= e->min && value <= e->max;
    for (i64 i = 0; e->names[i]; i++)
        if (i == value) return true;
    return false;
}

/* Whose parameter it is, for a recording; false if that object is no longer in `pool`. */
static bool owner(const struct param *e, const struct sched_pool *pool, const void *object, u32 *who) {
    *who = TRACE_NOBODY;
    if (e->scope == PARAM_POOL) return object == pool;
    const struct sched_dom *d = e->scope == PARAM_DOM ? object : ((const struct sched_vcpu *)object)->dom;

    *who = e->scope == PARAM_DOM ? d->id << 16 : sched_who(object);
    return d->pool == pool;
}

int param_set(const struct param *e, struct sched_pool *pool, void *object, i64 value, const char **why) {
    u32 who;
    int error = -EINVAL;

    *why = e->names ? "that is none of its values" : "the value is out of range";
    if (!in_range(e, value)) return -EINVAL;
    spin_lock(&pool->lock);
    *why = "the object is not in that pool";
    if (pool->policy && owner(e, pool, object, &who)) {
        u64 now = sched_clock(pool);

        record_input(pool, IN_PARAM, now, who, (u32)(e - pool->policy->params), (u64)value);
        *why = NULL;
        error = e->set(object, value, why);
    }
    spin_unlock(&pool->lock);
    return error;
}

static int parse_number(const char *text, i64 *out) {
    bool minus = *text == '-';
    i64 n = 0;

    text += minus;
    if (!*text) return -EINVAL;
    for (; *text; text++) {
        if (*text < '0' || *text > '9' || n > INT64_MAX / 10 - 1) return -EINVAL;
        n = n * 10 + (*text - '0');
    }
    *out = minus ? -n : n;
    return 0;
}

int param_set_text(const struct param *e, struct sched_pool *pool, void *object, const char *text,
                   const char **why) {
    i64 value = -1;

    if (e->names) {
        for (i64 i = 0; e->names[i]; i++)
            if (strcmp(e->names[i], text) == 0) value = i;
    } else if (parse_number(text, &value)) {
        *why = "a whole number was expected";
        return -EINVAL;
    }
    return param_set(e, pool, object, value, why);
}

int param_preset(struct sched_pool *pool, const char *preset) {
    const struct sched_preset *x = pool->policy->presets;

    while (x && x->name && strcmp(x->name, preset)) x++;
    if (!x || !x->name) return -ENOENT;
    spin_lock(&pool->lock);
    record_input(pool, IN_PRESET, sched_clock(pool), TRACE_NOBODY, (u32)(x - pool->policy->presets), 0);
    for (const struct sched_setting *s = x->set; s->param; s++) {
        const char *why = NULL;
        int error = param_find(pool, s->param)->set(pool, s->value, &why);

        if (error) panic("preset %s: %s: %s", preset, s->param, why);
    }
    spin_unlock(&pool->lock);
    return 0;
}
