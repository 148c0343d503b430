/* Computing for P percent of the time, as the guests `busy` and `mixed` do. The simulation includes
 * this header as well, so that both worlds do the same.
 *
 * Time is divided into periods. Each period brings P percent of its length as work. Work is counted
 * by the time that the vCPU has run: time in which other vCPUs had its pCPU is not work. If a
 * period ends and its work is not done, there are two ways to go on:
 *
 * closed loop (the default): What was missed is added to the work of the next period. So the VM has
 * its P percent in the long run, if the scheduler lets it. While it is behind, it does not sleep.
 * This is what lookbusy does, the load of several papers: after each spin and sleep, a tenth of a
 * second, it compares the CPU's use with P and makes the next spin longer or shorter by the
 * difference (lookbusy 1.4, lb.c, cpu_spin()). Lookbusy lengthens its spins without a bound. Here a
 * VM makes up only for what it missed in the last second (DUTY_MEMORY). Otherwise a VM that was
 * kept from its pCPU for a minute would compute for another minute when it may run again.
 *
 * open loop (loop=open): What was missed is forgotten, and the next period begins with its own work
 * alone. If a whole period was missed, a new one begins at once. A VM that is kept waiting then
 * asks for less, so its share says more about how its periods meet those of others than about the
 * scheduler.
 *
 * The length of each period is drawn at random, up to jitter_pct percent (10) longer or shorter
 * than what was asked for. Otherwise periods of 10 ms would for ever keep the same distance to
 * Credit's ticks of 10 ms. A VM that happens to sleep at each tick would never be charged during
 * the whole run, and a run with another seed would show nothing of that. Lookbusy has such a
 * jitter, too, because it measures the CPU's use in jiffies. */
#ifndef GUEST_DUTY_H
#define GUEST_DUTY_H

#include <takt/seed.h>

#define DUTY_MEMORY NS_PER_S
#define DUTY_JITTER 10 /* percent, if the command line does not say */

struct duty {
    /* What was asked for. */
    u64 period; /* ns */
    u64 percent, jitter_pct;
    bool open; /* the open loop */
    /* Where the duty is now. */
    u64 random; /* state of seed_next() */
    u64 next;   /* when the next period begins */
    u64 until;  /* the work is done when the vCPU has worked for so long, ns */
};

/* Begins a duty. The first period begins at the time `start`. `worked` is how long the vCPU has
 * worked by then, in ns. The lengths of the periods follow from `seed`. */
static inline void duty_begin(struct duty *d, u64 start, u64 worked, u64 seed) {
    d->random = seed;
    d->next = start;
    d->until = worked;
}

/* Draws the length of a period, in ns. */
static inline u64 duty_draw(struct duty *d) {
    u64 most = d->period * d->jitter_pct / 100;

    if (!most) return d->period;
    return d->period - most + seed_below(seed_next(&d->random), 2 * most + 1);
}

/* Adds the work of the periods that have begun by `now`. `worked` is how long the vCPU has worked
 * so far, in ns. Call it before duty_left(). */
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

/* Returns how long the vCPU has to compute now, in ns. If that is 0, sleep until d->next. When
 * d->next has come, call duty_look() again, also if the work is not done. */
static inline u64 duty_left(const struct duty *d, u64 worked) {
    if (d->until <= worked) return 0;
    return d->until - worked;
}

#endif
