/* What lwIP calls out of its own files. */
#ifndef NETSTACK_HOOKS_H
#define NETSTACK_HOOKS_H

struct pbuf;
struct netif;

/* At the head of ip4_input(): not 0 if the packet was taken. */
int net_ip4_input(struct pbuf *p, struct netif *inp);
#define LWIP_HOOK_IP4_INPUT(p, inp) net_ip4_input(p, inp)

#endif
