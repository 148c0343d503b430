/* Lock: work_lock, a leaf but for the timer's. An item is in `items` from work_add until its step is run; the
 * list is in the order in which they came, so that they take turns. */
#include "platform/work.h"

#include "lib/spinlock.h"
#include "platform/timer.h"
#include "trace/trace.h"
#include "x86/tsc.h"

DEFINE_COUNTER(work_steps);

static struct spinlock work_lock;
static struct list items = { &items, &items };
static volatile u64 earliest = ~0ull; /* ns; of all items */
static struct timer wake;             /* makes the loop of WORK_CPU pass at `earliest` */

static void on_wake(struct timer *t, u64 now) {}

static void update_locked(void) {
    u64 next = ~0ull;

    list_for_each(w, &items, struct work, link) {
        next = MIN(next, w->not_before);
    }
    earliest = next;
}

void work_add(struct work *w) {
    bool sooner;

    spin_lock(&work_lock);
    list_add_tail(&items, &w->link);
    sooner = w->not_before < earliest;
    update_locked();
    if (sooner) {
        wake.fn = on_wake;
        timer_set(WORK_CPU, &wake, w->not_before);
    }
    spin_unlock(&work_lock);
}

bool work_due(void) { return earliest != ~0ull && earliest <= now_ns(); }

static struct work *take_due(void) {
    u64 now = now_ns();

    list_for_each(w, &items, struct work, link) {
        if (w->not_before <= now) {
            list_del(&w->link);
            return w;
        }
    }
    return NULL;
}

bool work_run(void) {
    struct work *w;

    spin_lock(&work_lock);
    w = take_due();
    update_locked();
    if (w && earliest != ~0ull) timer_set(WORK_CPU, &wake, earliest);
    spin_unlock(&work_lock);
    if (!w) return false;
    counter_inc(&work_steps, WORK_CPU);
    if (w->step(w)) work_add(w);
    return true;
}
