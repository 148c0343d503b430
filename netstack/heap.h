/* The memory that lwIP asks for: headers of what is sent, segments, protocol control blocks. Only
 * the bottom half uses it. With the guest's malloc() the bottom half might wait for a lock whose
 * holder does not run. */
#ifndef NETSTACK_HEAP_H
#define NETSTACK_HEAP_H

#include <takt/types.h>

/* heap.c takes the place of lwIP's core/mem.c and defines what lwip/mem.h declares: mem_malloc(),
 * mem_free(), mem_trim() and mem_init(). lwIP's options for an allocator of one's own do not have
 * the same names in all versions. A version ignores an option that it does not know, and then
 * takes memory from a heap of its own that has 1,600 bytes.
 *
 * mem_malloc() gives memory that is aligned to 16 bytes. It gives NULL if the arena is full, or
 * if it was asked for more than 2,032 bytes. */

/* Sets the heap up in `arena`, which is aligned to 16 bytes. It never gets more memory. */
void net_heap_init(void *arena, size_t size);
/* Bytes that are allocated, with their headers. */
size_t net_heap_used(void);

#endif
