/* The functions of netstack/ that lwIP calls. lwipopts.h includes this header, so that lwIP's own
 * files see it. */
#ifndef NETSTACK_HOOKS_H
#define NETSTACK_HOOKS_H

struct pbuf;
struct netif;

/* lwIP calls this at the beginning of ip4_input(). Returns 1 if it has taken the packet, or 0 if
 * lwIP shall go on with the packet. */
int net_ip4_input(struct pbuf *p, struct netif *inp);
#define LWIP_HOOK_IP4_INPUT(p, inp) net_ip4_input(p, inp)

#endif
