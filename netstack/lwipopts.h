/* lwIP as Takt's guests use it: IPv4 with ARP, ICMP, UDP and TCP, called from one context, no
 * threads of its own. */
#ifndef NETSTACK_LWIPOPTS_H
#define NETSTACK_LWIPOPTS_H

#define NO_SYS                       1
#define SYS_LIGHTWEIGHT_PROT         0
#define LWIP_NETCONN                 0
#define LWIP_SOCKET                  0
#define LWIP_STATS                   0
#define LWIP_RAW                     0
#define LWIP_SINGLE_NETIF            1
#define LWIP_NETIF_LOOPBACK          0
#define LWIP_CHECKSUM_CTRL_PER_NETIF 1

/* Connections that are opened at the same time all wait for the answer. */
#define ARP_QUEUEING  1
#define ARP_QUEUE_LEN 16

/* No fragments: TCP has its MSS, a datagram that is larger than a frame is refused. */
#define IP_REASSEMBLY      0
#define IP_FRAG            0
#define IP_OPTIONS_ALLOWED 0

/* lwIP's own adds two bytes at a time. */
#define LWIP_CHKSUM net_chksum
unsigned short net_chksum(const void *data, int len);

/* All memory comes from heap.c, which takes the place of lwIP's core/mem.c. MEM_SIZE only makes
 * mem_size_t 32 bits wide: lwIP takes 16 bits if it is 64,000 or less. */
#define MEM_SIZE        (256u << 10)
#define MEMP_MEM_MALLOC 1
#define MEM_ALIGNMENT   16

/* A received frame stays in the buffer that it came in (struct net_buf). */
#define LWIP_SUPPORT_CUSTOM_PBUF 1
#define PBUF_POOL_SIZE           0

#define TCP_MSS                  1460
#define LWIP_TCP_RTO_TIME        1000 /* RFC 6298, 2.1; lwIP 2.1.3 knows only 3 seconds */
#define LWIP_WND_SCALE           1
#define TCP_RCV_SCALE            10
/* the most; a socket's own is less (NET_RCVBUF_*) */
#define TCP_WND         (40u << 20)
#define TCP_QUEUE_OOSEQ 1
/* beyond a gap, of one connection: 64 KiB of the heap */
#define TCP_OOSEQ_MAX_PBUFS 1024
#define LWIP_TCP_SACK_OUT   1
#define LWIP_TCP_TIMESTAMPS 0 /* an early ACK would have to write ts_recent */
#define TCP_LISTEN_BACKLOG  1
/* data is referred to, never copied into a segment's tail */
#define TCP_OVERSIZE                   0
#define TCP_SND_BUF                    (1u << 20) /* a socket's own send buffer is what limits */
#define TCP_SND_QUEUELEN               4096
#define TCP_SNDLOWAT                   16384
#define TCP_SNDQUEUELOWAT              64
#define TCP_LISTEN_BACKLOG             1
#define LWIP_DISABLE_TCP_SANITY_CHECKS 0

#define LWIP_HOOK_FILENAME             "netstack/hooks.h"

#endif
