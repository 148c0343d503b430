/* The memory that lwIP asks for: headers of what is sent, segments, protocol control blocks. Its own and
 * of one context, so that the bottom half never waits for a lock of the guest's malloc(), whose holder may
 * be off its pCPU. */
#ifndef NETSTACK_HEAP_H
#define NETSTACK_HEAP_H

#include <takt/types.h>

/* `arena` is all it will ever have, aligned to 16 bytes. */
void net_heap_init(void *arena, size_t size);
void *net_heap_alloc(size_t size); /* aligned to 16 bytes; NULL: full, or more than 2,032 bytes */
void *net_heap_calloc(size_t n, size_t size);
void net_heap_free(void *p);
size_t net_heap_used(void); /* bytes handed out, with their headers */

#endif
