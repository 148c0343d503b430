#include "platform/work.h"

#include "platform/timer.h"
#include "trace/trace.h"

DEFINE_COUNTER(work_steps);

static struct list due = { &due, &due }; /* WORK_CPU's own: no lock */

static void on_due(struct timer *t, u64 now) {
    list_add_tail(&due, &container_of(t, struct work, timer)->link);
}

void work_add(struct work *w) {
    w->timer.fn = on_due;
    timer_set(WORK_CPU, &w->timer, w->not_before);
}

bool work_due(void) { return !list_empty(&due); }

bool work_run(void) {
    struct work *w = list_first(&due, struct work, link);

    if (!work_due()) return false;
    list_del(&w->link);
    counter_inc(&work_steps, WORK_CPU);
    if (w->step(w)) work_add(w);
    return true;
}
