/* The configuration of lwIP for the guests of Takt: IPv4 with ARP, ICMP, UDP and TCP, called from
 * one context, without threads of its own. lwIP's documentation explains each option. */
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

/* Connections that are opened at the same time all wait for the same answer of ARP, so several
 * packets have to be queued for it. */
#define ARP_QUEUEING  1
#define ARP_QUEUE_LEN 16

/* There are no fragments: TCP has its maximum segment size, and a datagram that is larger than a
 * frame is refused. */
#define IP_REASSEMBLY      0
#define IP_FRAG            0
#define IP_OPTIONS_ALLOWED 0

/* Our function adds 64 bits at a time; that of lwIP adds 16. */
#define LWIP_CHKSUM net_chksum
unsigned short net_chksum(const void *data, int len);

/* All memory comes from heap.c, which takes the place of lwIP's core/mem.c. MEM_SIZE only makes
 * mem_size_t 32 bits wide: lwIP takes 16 bits if the value is 64,000 or less. */
#define MEM_SIZE        (256u << 10)
#define MEMP_MEM_MALLOC 1
#define MEM_ALIGNMENT   16

/* A received frame stays in the buffer in which it arrived (struct net_buf). */
#define LWIP_SUPPORT_CUSTOM_PBUF 1
#define PBUF_POOL_SIZE           0

#define TCP_MSS                  1460
#define LWIP_TCP_RTO_TIME        1000 /* RFC 6298, 2.1; lwIP 2.1.3 knows only 3 seconds */
#define LWIP_WND_SCALE           1
#define TCP_RCV_SCALE            10
/* The largest window; that of a socket is smaller (NET_RCVBUF_MAX). */
#define TCP_WND         (40u << 20)
#define TCP_QUEUE_OOSEQ 1
/* Segments beyond a gap that one connection may keep: 64 KiB of the heap. */
#define TCP_OOSEQ_MAX_PBUFS 1024
#define LWIP_TCP_SACK_OUT   1
/* Off, because an early acknowledgement would have to write the connection's ts_recent. */
#define LWIP_TCP_TIMESTAMPS 0
#define TCP_LISTEN_BACKLOG  1
/* Data is referred to, and never copied into the end of an earlier segment. */
#define TCP_OVERSIZE 0
/* The largest send buffer; that of a socket is smaller (NET_SNDBUF_MAX). Each full segment is two
 * pbufs of the queue. */
#define TCP_SND_BUF                    (40u << 20)
#define TCP_SND_QUEUELEN               57600
#define TCP_SNDLOWAT                   16384
#define TCP_SNDQUEUELOWAT              64
#define TCP_LISTEN_BACKLOG             1
#define LWIP_DISABLE_TCP_SANITY_CHECKS 0

#define LWIP_HOOK_FILENAME             "netstack/hooks.h"

#endif
