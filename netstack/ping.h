/* Echo requests (RFC 792). Only the bottom half may call these. lwIP itself answers the requests of
 * others. */
#ifndef NETSTACK_PING_H
#define NETSTACK_PING_H

#include <takt/types.h>

#define PING_DATA 56 /* bytes in each request, as ping has it */

/* Sends a request; `id` and `seq` come back in the answer. False: there is no memory. */
bool net_ping(u32 ip, u16 id, u16 seq);
/* Has fn called for each answer that arrives, also to requests of others. NULL: answers are
 * dropped. */
void net_ping_on_reply(void (*fn)(u32 ip, u16 id, u16 seq));

struct pbuf;
/* Looks at an IPv4 packet, which begins with its IP header. Returns true if it was an answer and fn
 * was called; then it has freed the packet. */
bool net_ping_input(struct pbuf *p);

#endif
