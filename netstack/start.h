/* Starts the network stack of a guest on the network card that the guest has. This is a virtual
 * function that was given to the VM, or else its first virtio network device. The command line of
 * the guest may say (defaults in parentheses):
 *
 *   ip=A.B.C.D/N     the address (10.0.0.N/24, where N is the number of the VM)
 *   gw=A.B.C.D       the gateway for all addresses outside the guest's network (none)
 *   early_ack=0|1    acknowledge early, by Algorithm 1 (1)
 *   plain            no thread ever owns a socket: NET_PLAIN
 *   tune             the sizes of buffers are keys in the store (guest/tunable.h)
 *   sndbuf=BYTES     the largest send buffer of a socket, for guests that let it be chosen; the
 *                    stack has memory to have so much sent and not acknowledged (65536)
 *   ring=N           how many frames a virtio device may hold for the guest, 8 to 1,024 (256)
 *   io_busy=N        with a virtual function: when its driver cleans up its rings N times a second
 *                    or more, it tells the scheduler that the VM is I/O-intensive (500)
 *   itr=N            with a virtual function: the most interrupts a second; 0: no limit (8000)
 *
 * The bottom half is on vCPU 0, which is the turbo vCPU of a VM that has one. If the device loses
 * its back end, or its physical function is reset, the driver opens the device again as soon as it
 * can. Frames that the device held are lost then. */
#ifndef NETSTACK_START_H
#define NETSTACK_START_H

#include <netstack/guest.h>

/* Starts all vCPUs, waits for the device and starts the stack. Call it once, from a thread of vCPU
 * 0. `bufs` is the sum of net_bufs_for() over all sockets that exist at the same time; listening
 * sockets, and the connections that they keep in reserve, count too. Returns 0, or a negative errno
 * if there is no device or no memory. */
int net_start(unsigned bufs);
/* Returns the vCPU for threads that shall not be disturbed by interrupts: the last one. */
u32 net_thread_vcpu(void);

/* Returns the address A.B.C.D that follows `key=` on the command line, or `otherwise` if the key is
 * not there. Panics if something else follows. */
u32 net_cmdline_ip(const char *key, u32 otherwise);

struct sock;
struct sock_options;
/* Opens a TCP connection, and tries again until the server is there. Call it from a thread. The
 * caller owns the socket. Panics if no socket is left. */
struct sock *net_connect(u32 ip, u16 port, const struct sock_options *options);

/* Counters of the card's driver since net_start(). */
struct net_device_stats {
    u64 polls, frames; /* how often the bottom half ran; how many frames were received */
    u32 batch_most;    /* the most frames that one run found */
    u64 bad;           /* frames that were too long for a buffer, or had errors */
};
const struct net_device_stats *net_device_stats(void);

#endif
