/* What lwIP calls in netstack/. lwipopts.h includes this, so lwIP's own files see it. */
#ifndef NETSTACK_HOOKS_H
#define NETSTACK_HOOKS_H

struct pbuf;
struct netif;

/* Called at the beginning of ip4_input(). Returns 1 if it has taken the packet, 0 if lwIP is to go
 * on with it. */
int net_ip4_input(struct pbuf *p, struct netif *inp);
#define LWIP_HOOK_IP4_INPUT(p, inp) net_ip4_input(p, inp)

#endif
