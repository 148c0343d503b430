/* Spin locks (take them with interrupts off), and semaphores and mutexes for threads. */
#ifndef GUEST_SYNC_H
#define GUEST_SYNC_H

#include <guest/x86.h>

struct spinlock {
    volatile u32 locked;
};

static inline void spin_lock(struct spinlock *l) {
    while (__atomic_exchange_n(&l->locked, 1, __ATOMIC_ACQUIRE))
        while (l->locked) cpu_relax();
}

static inline void spin_unlock(struct spinlock *l) {
    __atomic_store_n(&l->locked, 0, __ATOMIC_RELEASE);
}

static inline u64 spin_lock_irqsave(struct spinlock *l) {
    u64 f = irq_save();
    spin_lock(l);
    return f;
}

static inline void spin_unlock_irqrestore(struct spinlock *l, u64 f) {
    spin_unlock(l);
    irq_restore(f);
}

struct thread;

struct semaphore {
    struct spinlock lock;
    u32 count;
    struct thread *first, *last; /* threads that wait, in order */
};

#define SEMAPHORE(n)                                                                               \
    { .count = (n) }
#define FOREVER (~0ull)

/* Makes a semaphore with `count` units, for which no thread waits. */
void sem_init(struct semaphore *s, u32 count);
/* Adds a unit, and wakes the thread that has waited longest, if there is one. May be called in any
 * context, also in an interrupt handler. */
void sem_up(struct semaphore *s);
/* Takes a unit, and blocks the calling thread until there is one. */
void sem_down(struct semaphore *s);
/* Takes the semaphore if that is possible without waiting. Returns whether it did. */
bool sem_try(struct semaphore *s);
/* Waits until the deadline (in time_ns(); FOREVER means none). Returns false if the deadline came
 * first. */
bool sem_down_until(struct semaphore *s, u64 deadline_ns);

struct mutex {
    struct semaphore sem;
    struct thread *owner;
};

#define MUTEX                                                                                      \
    { .sem = SEMAPHORE(1) }

/* A lock for threads, which may sleep while they hold it. mutex_lock() blocks the calling thread
 * until the lock is free. Only the thread that holds it may unlock it. */
void mutex_init(struct mutex *m);
void mutex_lock(struct mutex *m);
void mutex_unlock(struct mutex *m);

#endif
