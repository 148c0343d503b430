/* Which pages of a disk are free, for guests that keep several files on one. A file is a list of
 * extents, which are runs of pages. The caller locks. */
#ifndef GUEST_EXTENTS_H
#define GUEST_EXTENTS_H

#include <takt/types.h>

/* The pages [first, first + nr). */
struct extent {
    u32 first, nr;
};

struct extents {
    u8 *used;  /* one byte a page: 1 if the page belongs to a file; the caller's memory */
    u32 pages; /* how many there are */
    u32 free;  /* how many of them are free */
    u32 next;  /* the search begins here, behind what was taken last */
};

/* `used` has `pages` bytes, which are cleared: all pages are free then. */
void extents_init(struct extents *e, u8 *used, u32 pages);
/* Takes the next free pages in a row, at most `most` (not 0). So a file gets its pages in one
 * extent as long as the disk has large holes. Returns what was taken; nr is 0 if no page is
 * free. */
struct extent extents_take(struct extents *e, u32 most);
/* Gives pages back that extents_take() returned, all of an extent or a part. */
void extents_give(struct extents *e, struct extent x);

#endif
