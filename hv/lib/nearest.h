/* Which of some names is most like one that somebody mistyped. */
#ifndef HV_LIB_NEAREST_H
#define HV_LIB_NEAREST_H

#include <takt/types.h>

/* Begin with `wanted` set and the rest 0, then offer every name that exists. */
struct nearest {
    const char *wanted;
    const char *best; /* NULL while no name is near enough to be worth a question */
    u32 distance;     /* of `best` */
};

/* `name` is kept by reference. It becomes `best` if one or two slips of the keyboard (a letter more, a letter
 * less, another letter, two letters exchanged) lead from it to `wanted`, or if `wanted` is how it begins, and
 * if no name before it was at least as near. */
void nearest_offer(struct nearest *n, const char *name);

#endif
