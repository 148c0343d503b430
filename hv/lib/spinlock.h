/* Ticket lock. Interrupts are off whenever the hypervisor runs (docs/architecture.md), so there is no
 * irqsave. */
#ifndef HV_LIB_SPINLOCK_H
#define HV_LIB_SPINLOCK_H

#include <takt/types.h>

struct spinlock {
    u16 next, owner;
};

static inline void spin_lock(struct spinlock *l) {
    u16 me = __atomic_fetch_add(&l->next, 1, __ATOMIC_RELAXED);

    while (__atomic_load_n(&l->owner, __ATOMIC_ACQUIRE) != me) __builtin_ia32_pause();
}

static inline void spin_unlock(struct spinlock *l) {
    __atomic_store_n(&l->owner, (u16)(l->owner + 1), __ATOMIC_RELEASE);
}

static inline bool spin_is_locked(const struct spinlock *l) {
    return __atomic_load_n(&l->owner, __ATOMIC_RELAXED) != __atomic_load_n(&l->next, __ATOMIC_RELAXED);
}

#endif
