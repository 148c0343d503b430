/* guest/extents.h has the contracts. */
#include <guest/extents.h>
#include "common/string.h"

void extents_init(struct extents *e, u8 *used, u32 pages) {
    memset(used, 0, pages);
    *e = (struct extents){ .used = used, .pages = pages, .free = pages };
}

/* Returns the first free page from e->next on, and goes on at the disk's beginning. There is
 * one. */
static u32 next_free(const struct extents *e) {
    u32 at = e->next;

    while (e->used[at]) at = (at + 1) % e->pages;
    return at;
}

/* Takes at most `most` free pages that follow each other. Returns them; nr is 0 if no page is
 * free. */
struct extent extents_take(struct extents *e, u32 most) {
    struct extent x = { 0, 0 };

    if (!e->free) return x;
    x.first = next_free(e);
    while (x.nr < most && x.first + x.nr < e->pages && !e->used[x.first + x.nr]) {
        e->used[x.first + x.nr] = 1;
        x.nr++;
    }
    e->free -= x.nr;
    e->next = (x.first + x.nr) % e->pages;
    return x;
}

void extents_give(struct extents *e, struct extent x) {
    memset(e->used + x.first, 0, x.nr);
    e->free += x.nr;
}
