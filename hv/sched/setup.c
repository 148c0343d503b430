/* Makes the pools of a configuration file and sets their parameters. */
#include <takt/errno.h>
#include "common/string.h"
#include "sched/setup.h"

/* The file, and the function that reports what is wrong with it. */
struct setup {
    const struct config *c;
    config_report report;
    void *ctx;
};

#define FATAL(s, at, ...)   config_complain((s)->c, at, true, (s)->report, (s)->ctx, __VA_ARGS__)
#define WARNING(s, at, ...) config_complain((s)->c, at, false, (s)->report, (s)->ctx, __VA_ARGS__)

/* Sets the parameters of the pool's section. All of them are tried, so that the operator sees every
 * problem at once. Returns 0, or -EINVAL if one was refused. */
static int setup_params(const struct setup *s, const struct config_head *h, struct sched_pool *p) {
    char why[PARAM_WHY];
    int error = 0;

    for (const struct config_param *c = h->param; c < h->param + h->nr_params; c++) {
        const struct param *e = param_find(p, c->name);

        if (!e)
            WARNING(s, c->at, "pool %s runs %s, which has no parameter %s", p->name,
                    p->policy->name, c->name);
        else if (param_set_text(e, p, p, c->value, why))
            error = FATAL(s, c->at, "%s", why);
    }
    return error;
}

/* Makes the pool the turbo pool of the one that its section names. Returns 0 or -EINVAL. */
static int setup_pair(const struct setup *s, const struct config_pool *c, struct sched_pool *p) {
    struct sched_pool *served = sched_pool_find(c->turbo_of);
    const char *why;

    if (!served) return -EINVAL; /* setup_pool() has reported what is wrong with that pool */
    if (!sched_pool_pair_why(p, served, &why)) return 0;
    return FATAL(s, config_place_of(&c->head, "turbo_of"),
                 "pool %s cannot be the turbo pool of %s: %s", c->head.name, c->turbo_of, why);
}

/* Makes pool number `i` of the VM file, without pCPUs. Returns 0, or -EINVAL after a fatal report.
 * The preset comes before the single parameters, so that these can change what the preset has
 * set. */
int setup_pool(const struct config *config, u32 i, struct sched_pool **pool, config_report report,
               void *ctx) {
    const struct setup s = { config, report, ctx };
    const struct config_pool *c = &config->pool[i];
    struct sched_pool *p;
    char why[PARAM_WHY];
    int error;

    *pool = NULL;
    if (!sched_policy_find(c->sched, why))
        return FATAL(&s, config_place_of(&c->head, "sched"), "%s", why);
    if (sched_pool_create(c->head.name, c->sched, &p))
        return FATAL(&s, config_place_of(&c->head, "sched"),
                     "pool %s cannot be made: there are too many", c->head.name);
    *pool = p;
    if (*c->turbo_of) {
        error = setup_pair(&s, c, p);
        if (error) return error;
        param_preset(p, "turbo"); /* what the file says is set after this */
    }
    if (*c->preset && param_preset_why(p, c->preset, why))
        return FATAL(&s, config_place_of(&c->head, "sched_preset"), "%s", why);
    return setup_params(&s, &c->head, p);
}

/* Reports each parameter of the VM's section that cannot be set in its pool. Nothing is set yet:
 * the VM is made later. Returns 0, or -EINVAL after a fatal report. */
static int check_vm(const struct setup *s, const struct config_vm *v) {
    const struct sched_pool *p = sched_pool_find(v->pool);
    const struct config_head *h = &v->head;
    char why[PARAM_WHY];
    int error = 0;

    if (!p) return 0; /* setup_pool() has reported why */
    for (const struct config_param *c = h->param; c < h->param + h->nr_params; c++) {
        const struct param *e = param_find(p, c->name);

        if (!e)
            WARNING(s, c->at, "pool %s runs %s, which has no parameter %s", p->name,
                    p->policy->name, c->name);
        else if (param_check(e, c->value, why))
            error = FATAL(s, c->at, "%s", why);
    }
    return error;
}

/* Checks whether the parameters of all VMs can be set in their pools. Returns 0, or -EINVAL after a
 * fatal report. */
int setup_check_vms(const struct config *c, config_report report, void *ctx) {
    const struct setup s = { c, report, ctx };
    int error = 0;

    for (const struct config_vm *v = c->vm; v < c->vm + c->nr_vms; v++)
        if (check_vm(&s, v)) error = -EINVAL;
    return error;
}
