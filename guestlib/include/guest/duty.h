/* Computing for P percent of the time, as `busy` and `mixed` do; the simulation includes this as
 * well, so that both worlds do the same.
 *
 * Time is divided into periods, and each brings P percent of itself as work. Work is counted by
 * what the vCPU ran, so time that others had its pCPU is not work. There are two ways to go on when
 * a period ends and its work is not done:
 *
 *   closed loop (the default)  What was missed is added to the work of the next period, so that the
 *       VM has its P percent over time if the scheduler lets it. While it is behind it does not
 *       sleep. This is what lookbusy does, the load of several papers: after each spin and sleep, a
 *       tenth of a second, it compares the CPU's use with P and makes the next spin longer or
 *       shorter by the difference (lookbusy 1.4, lb.c, cpu_spin()). It lengthens its spins without
 *       bound. Here a VM makes up for what it missed in the last second (DUTY_MEMORY), so that one
 *       which was kept from its pCPU for a minute does not compute for another one when it is let
 *       run.
 *   open loop (loop=open)  What was missed is forgotten, and the next period begins with its own
 *       work alone. If a whole period was missed, a new one begins at once. A VM that is kept
 *       waiting then asks for less, so its share says more about its phase to others than about the
 *       scheduler.
 *
 * The length of each period is drawn at random, up to jitter_pct percent (10) longer or shorter
 * than what was asked for. Otherwise periods of 10 ms would keep one phase to Credit's ticks of 10
 * ms for ever, and a VM that happens to sleep at each tick would be charged for nothing in the
 * whole run, where another seed shows nothing of it. Lookbusy has such a jitter, too, as it counts
 * the CPU's use in jiffies. */
#ifndef GUEST_DUTY_H
#define GUEST_DUTY_H

#include <takt/seed.h>

#define DUTY_MEMORY NS_PER_S
#define DUTY_JITTER 10 /* percent, if nobody says otherwise */

struct duty {
    /* what is asked for */
    u64 period; /* ns */
    u64 percent, jitter_pct;
    bool open; /* the open loop */
    /* where it is */
    u64 random; /* state of seed_next() */
    u64 next;   /* when the next period begins */
    u64 until;  /* work is done when the vCPU has worked so much, ns */
};

/* Sets where a duty is. The first period begins at `start`; `worked` is what the vCPU has worked by
 * then. The lengths of periods follow from `seed`. */
static inline void duty_begin(struct duty *d, u64 start, u64 worked, u64 seed) {
    d->random = seed;
    d->next = start;
    d->until = worked;
}

/* The length of a period, ns. */
static inline u64 duty_draw(struct duty *d) {
    u64 most = d->period * d->jitter_pct / 100;

    if (!most) return d->period;
    return d->period - most + seed_below(seed_next(&d->random), 2 * most + 1);
}

/* Adds the work of periods that have begun by `now`. `worked` is what the vCPU has worked so far,
 * in ns. Call it before duty_left(). */
static inline void duty_look(struct duty *d, u64 now, u64 worked) {
    u64 most = MAX(DUTY_MEMORY, 2 * d->period) * d->percent / 100, length;

    if (now < d->next) return;
    if (d->open) {
        length = duty_draw(d);
        d->until = worked + length * d->percent / 100;
        d->next += length;
        if (d->next <= now) d->next = now + length;
        return;
    }
    if (now - d->next > 2 * DUTY_MEMORY + d->period) d->next = now - DUTY_MEMORY - d->period;
    while (d->next <= now) {
        length = duty_draw(d);
        d->until += length * d->percent / 100;
        d->next += length;
    }
    d->until = MIN(d->until, worked + most);
}

/* How long the vCPU has to compute now, in ns. If that is 0, sleep until d->next. When d->next has
 * come, call duty_look() again, also if the work is not done. */
static inline u64 duty_left(const struct duty *d, u64 worked) {
    if (d->until <= worked) return 0;
    return d->until - worked;
}

#endif
