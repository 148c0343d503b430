/* Sends echo requests (ping) and recognises their answers, in the bottom half, next to lwIP, which
 * itself only answers the requests of others. ping.h has the contracts. */
#include <netstack/ping.h>
#include <netstack/sock.h>
#include <string.h>
#include "lwip/icmp.h"
#include "lwip/inet_chksum.h"
#include "lwip/ip4.h"
#include "lwip/prot/ip.h"
#include "lwip/prot/ip4.h"

static void (*on_reply)(u32 ip, u16 id, u16 seq);

void net_ping_on_reply(void (*fn)(u32 ip, u16 id, u16 seq)) { on_reply = fn; }

/* Sends an echo request to the address `ip`; the answer repeats `id` and `seq`. Returns false if
 * there is no memory, or if the packet could not be sent. */
bool net_ping(u32 ip, u16 id, u16 seq) {
    struct pbuf *p = pbuf_alloc(PBUF_IP, sizeof(struct icmp_echo_hdr) + PING_DATA, PBUF_RAM);
    ip4_addr_t to = { lwip_htonl(ip) };
    struct icmp_echo_hdr *h;
    err_t err;

    if (!p) return false;
    h = p->payload;
    memset(h, 0, p->len);
    h->type = ICMP_ECHO;
    h->id = lwip_htons(id);
    h->seqno = lwip_htons(seq);
    h->chksum = inet_chksum(h, p->len);
    err = ip4_output(p, NULL, &to, 64, 0, IP_PROTO_ICMP);
    pbuf_free(p);
    return err == ERR_OK;
}

/* Takes a packet if it is the answer to an echo request, and calls the function that
 * net_ping_on_reply() has set. Returns false if it is another packet. Each length is checked before
 * the field behind it is read, because the packet comes from outside. */
bool net_ping_input(struct pbuf *p) {
    const struct ip_hdr *ip = p->payload;
    const struct icmp_echo_hdr *h = (const void *)((const u8 *)p->payload + IP_HLEN);
    u16 total;

    if (!on_reply || p->len < IP_HLEN + sizeof(*h) || ip->_v_hl != 0x45 ||
        IPH_PROTO(ip) != IP_PROTO_ICMP)
        return false;
    total = lwip_ntohs(IPH_LEN(ip));
    if (h->type != ICMP_ER || total < IP_HLEN + sizeof(*h) || total > p->len ||
        ip->dest.addr != net.netif.ip_addr.addr || inet_chksum(ip, IP_HLEN) ||
        inet_chksum(h, total - IP_HLEN))
        return false;
    on_reply(lwip_ntohl(ip->src.addr), lwip_ntohs(h->id), lwip_ntohs(h->seqno));
    pbuf_free(p);
    return true;
}
