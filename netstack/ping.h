/* Echo requests (RFC 792), of the bottom half alone. lwIP answers those of others. */
#ifndef NETSTACK_PING_H
#define NETSTACK_PING_H

#include <takt/types.h>

#define PING_DATA 56 /* bytes in each request, as ping has it */

/* Sends one; `id` and `seq` come back in the answer. False: no memory. */
bool net_ping(u32 ip, u16 id, u16 seq);
/* Calls fn for each answer that comes, whoever asked; NULL: lwIP drops them. */
void net_ping_on_reply(void (*fn)(u32 ip, u16 id, u16 seq));

struct pbuf;
/* An IPv4 packet, IP header first: true if it was an answer and somebody wants it; then it has been freed. */
bool net_ping_input(struct pbuf *p);

#endif
