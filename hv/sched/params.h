/* The parameter table: the one way to set anything that schedules. The VM file, the command line, the shell
 * and the store bind to it. */
#ifndef HV_SCHED_PARAMS_H
#define HV_SCHED_PARAMS_H

#include "sched/sched.h"

enum param_scope { PARAM_POOL, PARAM_DOM, PARAM_VCPU };

struct param {
    const char *name; /* as in the VM file: "weight", "tslice_us" */
    const char *unit; /* "us", "%", "" */
    const char *help; /* one line */
    enum param_scope scope;
    i64 min, max; /* inclusive; ignored if `names` is set */
    const char *const
        *names; /* NULL, or the values by word, NULL-terminated: get and set speak of the index */
    i64 (*get)(const void *object); /* struct sched_pool, sched_dom or sched_vcpu */
    /* Validates against the rest of the object and applies, atomically under the pool's lock. 0, or a
     * negative errno with nothing changed and *why (may stay NULL) a sentence. */
    int (*set)(void *object, i64 value, const char **why);
};

/* The entry of `name` for the policy that `pool` runs (or the core's own), NULL if there is none. */
const struct param *param_find(const struct sched_pool *pool, const char *name);
/* All of a pool's entries in turn: index from 0, NULL at the end. */
const struct param *param_at(const struct sched_pool *pool, unsigned index);
/* Is `name` a parameter of any policy: 'p' pool, 'v' VM or vCPU, 0 no. For the configuration parser. */
char param_kind(const char *name);

i64 param_get(const struct param *p, struct sched_pool *pool, const void *object);
int param_set(const struct param *p, struct sched_pool *pool, void *object, i64 value, const char **why);
/* The same from text: a word of `names`, or a decimal number. -EINVAL and a sentence for anything else. */
int param_set_text(const struct param *p, struct sched_pool *pool, void *object, const char *text,
                   const char **why);
/* Sets a named group of pool parameters at once, e.g. "faithful-4.2". -ENOENT. */
int param_preset(struct sched_pool *pool, const char *preset);

#endif
