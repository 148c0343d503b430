/* Faults in the simulation of the whole machine (docs/simulation.md, "Faults"): a seed decides what
 * goes wrong and when, and after each event the invariants of the hypervisor's rooms are checked.
 *
 * An *event* is a return of the hypervisor to a guest, or to HLT: all of its handlers are through
 * then, on every pCPU, so no lock is held and nothing is half done. */
#ifndef TESTS_WHOLE_INJECT_H
#define TESTS_WHOLE_INJECT_H

#include "mm/frame.h"
#include "tests/whole/whole.h"

/* ---- inject.c ---- */

/* Returns a random number below n, which follows from the seed. */
u64 inject_below(u64 n);
/* Returns true if an allocation of the hypervisor is to fail now. */
bool inject_no_memory(void);

/* ---- memory.c: a model of which frames and objects are allocated ---- */

/* Returns whether the frame that contains `pa` is allocated. */
bool model_allocated(hpa_t pa);
/* Compares the counts of the hypervisor with those of the model. */
void check_memory(void);
/* How many frames and objects are allocated now, slabs of the heap among the frames. */
struct model_count {
    u64 frames, objects;
    u64 allocations; /* of objects, since the start */
};
struct model_count model_count(void);
/* Prints the objects that are allocated and were not when there had been so many allocations. */
void model_tell_objects(u64 since);

/* ---- check.c: the invariants. Each panics with a sentence if one does not hold ---- */

void check_events(void);  /* event channels: both ends of a pair know each other */
void check_devices(void); /* devices and windows: who is at their other ends is there */
void check_store(void);   /* the store: what clients pay is what they have */

#endif
