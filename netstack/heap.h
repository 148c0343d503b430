/* The memory that lwIP asks for: headers of what is sent, segments, protocol control blocks. Its own and
 * of one context, so that the bottom half never waits for a lock of the guest's malloc(), whose holder may
 * be off its pCPU. */
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

/* `arena` is all it will ever have, aligned to 16 bytes. */
void net_heap_init(void *arena, size_t size);
size_t net_heap_used(void); /* bytes handed out, with their headers */

#endif
