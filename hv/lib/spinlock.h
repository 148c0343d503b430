/* Ticket lock: pCPUs get it in the order in which they asked, so none starves. Interrupts are
 * off whenever the hypervisor runs (docs/architecture.md), so a handler cannot find a lock held
 * by the pCPU that it interrupted, and no variant that saves the interrupt flag is needed. The
 * order of all locks is in docs/architecture.md. */
#ifndef HV_LIB_SPINLOCK_H
#define HV_LIB_SPINLOCK_H

#include "lib/log.h"

struct spinlock {
    u16 next, owner;
};

/* Waits until the caller has the lock. Each caller draws a number, and has the lock when `owner` is
 * that number, so that the one who came first gets it first. */
static inline void spin_lock(struct spinlock *l) {
    u16 me = __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED);

    while (__atomic_load_n(&l->owner, __ATOMIC_ACQUIRE) != me) __builtin_ia32_pause();
}

/* Gives the lock to the next number. */
static inline void spin_unlock(struct spinlock *l) {
    __atomic_store_n(&l->owner, (u16)(l->owner + 1), __ATOMIC_RELEASE);
}

/* Returns whether any pCPU holds the lock. */
static inline bool spin_is_locked(const struct spinlock *l) {
    return __atomic_load_n(&l->owner, __ATOMIC_RELAXED) !=
           __atomic_load_n(&l->next, __ATOMIC_RELAXED);
}

/* For the first line of a function whose caller has to hold `l`. It is a check in builds with
 * TAKT_CHECKED (the host build: unit tests, simulation, fuzzers) and nothing in the image, where it
 * would cost each decision of the scheduler several instructions. A ticket lock does not know who
 * holds it, so the check cannot notice that it was another pCPU. */
#ifdef TAKT_CHECKED
#define ASSERT_HELD(l) ASSERT(spin_is_locked(l))
#else
#define ASSERT_HELD(l) ((void)(l))
#endif

#endif
