/* Echo requests (RFC 792): what the program `ping` sends. Only the bottom half may call these
 * functions. lwIP itself answers the requests of others. */
#ifndef NETSTACK_PING_H
#define NETSTACK_PING_H

#include <takt/types.h>

#define PING_DATA 56 /* bytes of data in each request, as many as the program `ping` sends */

/* Sends a request to `ip`. The answer repeats `id` and `seq`. Returns false if there is no memory.
 */
bool net_ping(u32 ip, u16 id, u16 seq);
/* Sets the function that is called for each answer that arrives, also for answers that belong to
 * somebody else's request. NULL: answers are dropped. */
void net_ping_on_reply(void (*fn)(u32 ip, u16 id, u16 seq));

struct pbuf;
/* Called for each IPv4 packet that arrives and is not TCP; `p` begins with the IP header. If the
 * packet is an answer to an echo request, it calls the function above, frees the packet and returns
 * true. Otherwise it returns false. */
bool net_ping_input(struct pbuf *p);

#endif
