/* The protocol of iperf 2 and its client, for guests. Format and conduct are those of iperf 2.1.8:
 * its include/payloads.h, src/Client.cpp, src/Reports.c. Of a stream nobody needs to know anything;
 * a server of datagrams answers the last one with a report, and the client repeats that one until
 * it has it.
 */
#ifndef NETSTACK_IPERF_H
#define NETSTACK_IPERF_H

#include <takt/types.h>

#define IPERF_PORT        5001
#define IPERF_DATAGRAM    76 /* bytes: the shortest, number, time and what a client wishes */
#define IPERF_REPORT_SIZE 128
/* bytes: what a client wishes, 0; behind it byte n of a stream is '0' + n % 10 */
#define IPERF_STREAM_HEAD 4

/* Numbers go from 1. That of the last datagram is negative on the wire; repeated it has the next
 * one. */
struct iperf_head {
    u32 number;
    bool last;
    u64 ns; /* when it was sent, by the sender's clock, to the microsecond */
};

struct iperf_report {
    u64 bytes, ns, jitter_ns;
    u32 datagrams, lost, out_of_order; /* datagrams: that the client has sent */
};

/* At p are IPERF_DATAGRAM bytes at least, and IPERF_REPORT_SIZE of a report. */
struct iperf_head iperf_head(const u8 *p);
void iperf_put_report(u8 *p, const struct iperf_report *r);

/* A client, as the guest's command line says; `who` is its name in what it prints. The server is at
 * to=A.B.C.D (10.0.0.2), port=P (5001). One after the other:
 *
 *   tcp=BYTES or tcp_ms=T    a TCP stream of so many bytes, or for so long; sndbuf=BYTES (65536)
 *   udp_ms=T udp_rate=R      datagrams of udp_size=S (1470) bytes, R (1000000) bits of them a
 *   second, evenly
 *
 * True: the server has taken the stream to its end, and has reported on the datagrams. */
bool iperf_client(const char *who);

#endif
