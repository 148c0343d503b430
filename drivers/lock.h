/* A lock around what several vCPUs of a driver domain use at the same time, such as the queue of a
 * device that several I/O cores feed. Take it with interrupts off: a vCPU that waits for it spins,
 * so an interrupt must not hold its holder up. */
#ifndef DRIVERS_LOCK_H
#define DRIVERS_LOCK_H

#include <takt/types.h>

struct driver_lock {
    u32 taken;
};

static inline void driver_lock(struct driver_lock *l) {
    while (__atomic_exchange_n(&l->taken, 1, __ATOMIC_ACQUIRE)) __builtin_ia32_pause();
}

static inline void driver_unlock(struct driver_lock *l) {
    __atomic_store_n(&l->taken, 0, __ATOMIC_RELEASE);
}

#endif
