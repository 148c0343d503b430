/* Finds the existing name that is most like a name that somebody has mistyped. */
#ifndef HV_LIB_NEAREST_H
#define HV_LIB_NEAREST_H

#include <takt/types.h>

/* Set `wanted` and leave the rest 0, then offer every name that exists. */
struct nearest {
    const char *wanted;
    const char *best; /* NULL while no name is near enough to be worth a question */
    u32 distance;     /* of `best` */
};

/* Makes `name` the best one if it is near enough and nearer than all names before it. It is near
 * enough if one or two slips lead from it to `wanted` (a letter more, a letter less, another
 * letter, two letters exchanged), or if it begins with `wanted`. Keeps the pointer to `name`. */
void nearest_offer(struct nearest *n, const char *name);

#endif
