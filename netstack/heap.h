/* The memory that lwIP asks for: headers of what is sent, segments, protocol control blocks. Only
 * the bottom half uses it. It is not the guest's malloc(), because then the bottom half might wait
 * for a lock whose holder does not run. */
#ifndef NETSTACK_HEAP_H
#define NETSTACK_HEAP_H

#include <takt/types.h>

/* heap.c takes the place of lwIP's core/mem.c and defines what lwip/mem.h declares: mem_malloc(),
 * mem_free(), mem_trim() and mem_init(). lwIP also has options to choose another allocator, but
 * these have different names in different versions. A version ignores an option that it does not
 * know, and then takes memory from its own heap of 1,600 bytes.
 *
 * mem_malloc() returns memory that is aligned to 16 bytes. It returns NULL if the arena is full, or
 * if it was asked for more than 2,032 bytes. */

/* Sets the heap up in `arena`, `size` bytes that are aligned to 16. The heap never gets more
 * memory. */
void net_heap_init(void *arena, size_t size);
/* Returns how many bytes are allocated, with their headers. */
size_t net_heap_used(void);

#endif
