/* The protocol of iperf 2, and its client, for guests. Formats and behaviour are those of iperf
 * 2.1.8 (include/payloads.h, src/Client.cpp, src/Reports.c). The server of a TCP stream answers
 * nothing. A server of datagrams answers the last datagram with a report; the client repeats its
 * last datagram until it has the report. */
#ifndef NETSTACK_IPERF_H
#define NETSTACK_IPERF_H

#include <takt/types.h>

#define IPERF_PORT 5001
/* Bytes of the shortest datagram: its number, its time, and the settings of the client. */
#define IPERF_DATAGRAM    76
#define IPERF_REPORT_SIZE 128
/* The bytes at the start of a stream that are zero, which means that the client has no wishes. Byte
 * n of the stream after them is '0' + n % 10. */
#define IPERF_STREAM_HEAD 4

/* The head of a datagram. Datagrams are numbered from 1. On the wire the number of the last one is
 * negative; each time that it is repeated, it gets the next number. */
struct iperf_head {
    u32 number;
    bool last;
    u64 ns; /* the time when it was sent, by the sender's clock, in steps of a microsecond */
};

/* What a server reports about the datagrams that it received. */
struct iperf_report {
    u64 bytes, ns, jitter_ns;
    u32 datagrams, lost, out_of_order; /* datagrams: how many the client has sent */
};

/* Reads the head of a datagram. At `p` there are at least IPERF_DATAGRAM bytes. */
struct iperf_head iperf_head(const u8 *p);
/* Writes a report into a datagram. At `p` there are at least IPERF_REPORT_SIZE bytes. */
void iperf_put_report(u8 *p, const struct iperf_report *r);

/* Runs a client by the command line of the guest; `who` is the name of the guest for what it
 * prints. The server is at to=A.B.C.D (10.0.0.2), port=P (5001). The client does what the command
 * line names, one after the other:
 *
 *   tcp=BYTES or tcp_ms=T    a TCP stream of BYTES bytes, or for T ms; sndbuf=BYTES (65536) is the
 *                            size of the send buffer, and len=BYTES (16380) what the client sends
 *                            at a time
 *   udp_ms=T udp_rate=R      datagrams of udp_size=S (1470) bytes for T ms, evenly, so that
 *                            R (1000000) bits a second are sent
 *
 * Returns true if the server took the whole stream and has reported on the datagrams. */
bool iperf_client(const char *who);

#endif
