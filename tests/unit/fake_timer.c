#include "fake_timer.h"

u64 fake_now;
unsigned fake_sets;
static struct timerq queue;

void timer_set(unsigned cpu, struct timer *t, u64 when) {
    timerq_remove(&queue, t);
    timerq_insert(&queue, t, when);
    t->cpu = (u16)cpu;
    fake_sets++;
}

void timer_cancel(struct timer *t) { timerq_remove(&queue, t); }

void fake_timers_reset(void) {
    queue.root = NULL;
    fake_now = fake_sets = 0;
}

void fake_advance(u64 ns) {
    u64 end = fake_now + ns;

    while (timerq_next(&queue) <= end) {
        struct timer *t;

        fake_now = MAX(fake_now, timerq_next(&queue));
        t = timerq_pop(&queue, fake_now);
        t->fn(t, fake_now);
    }
    fake_now = end;
}

void timer_cancel_wait(struct timer *t) { timerq_remove(&queue, t); }

u64 timers_next(void) { return timerq_next(&queue); }

void timers_run(void) {
    struct timer *t;

    while ((t = timerq_pop(&queue, fake_now))) t->fn(t, fake_now);
}
