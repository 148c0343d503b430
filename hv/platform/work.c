/* Lock: work_lock, a leaf. An item is in `items` until its step returns false; the list is in the order in which they
 * were served last. */
#include "platform/work.h"

#include "lib/spinlock.h"
#include "x86/tsc.h"

static struct spinlock work_lock;
static struct list items = { &items, &items };

static struct work *next_due(u64 now)
{
    list_for_each(w, &items, struct work, link)
    {
        if (w->not_before <= now)
            return w;
    }
    return NULL;
}

void work_add(struct work *w)
{
    spin_lock(&work_lock);
    list_add_tail(&items, &w->link);
    spin_unlock(&work_lock);
}

bool work_due(void)
{
    bool due;

    if (list_empty(&items))
        return false;
    spin_lock(&work_lock);
    due = next_due(now_ns()) != NULL;
    spin_unlock(&work_lock);
    return due;
}

bool work_run(void)
{
    struct work *w;

    spin_lock(&work_lock);
    w = next_due(now_ns());
    if (w)
        list_del(&w->link);
    spin_unlock(&work_lock);
    if (!w)
        return false;
    if (w->step(w))
        work_add(w);
    return true;
}
