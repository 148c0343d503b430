/* The stack of a guest on the network card that it finds: a virtual function that it was given,
 * else its first virtio network device. As the guest's command line says:
 *
 *   ip=A.B.C.D/N     its address (10.0.0.(VM id)/24)
 *   gw=A.B.C.D       where all that is not of its network goes (nowhere)
 *   early_ack=0|1    Algorithm 1 (1)
 *   plain            nobody owns a socket: NET_PLAIN
 *   ring=N           frames that a virtio device may hold for it, 8 to 1,024 (256)
 *   io_busy=N        receive and transmit clean-ups a second of a virtual function, by its
 *                    interrupts; from more on its driver says that the VM is I/O-intensive (500)
 *   itr=N            interrupts a second of a virtual function, at most; 0: at once (8000)
 *
 * The bottom half is on vCPU 0, which is the turbo vCPU where there is one. A device that loses
 * its back end, or whose physical function was reset, is opened again when it can be; what it
 * held is lost. */
#ifndef NETSTACK_START_H
#define NETSTACK_START_H

#include <netstack/guest.h>

/* Waits for the device. Starts all vCPUs. From a thread of vCPU 0, once. `bufs`: the sum of
 * net_bufs_for() of all sockets that there will be at a time, listening ones and those that they
 * keep in reserve included. Negative errno: no device, no memory. */
int net_start(unsigned bufs);
/* The vCPU for threads that do not serve interrupts: the last. */
u32 net_thread_vcpu(void);

/* What follows `key=` on the command line, as A.B.C.D; `otherwise` if that is not there. */
u32 net_cmdline_ip(const char *key, u32 otherwise);

struct sock;
struct sock_options;
/* From a thread: a TCP connection to a server that may not be there yet. Panics if no socket is
 * left. */
struct sock *net_connect(u32 ip, u16 port, const struct sock_options *options);

struct net_device_stats {
    u64 polls, frames; /* times that the bottom half has run; frames received */
    u32 batch_most;    /* frames that it found at once */
    u64 bad;           /* too long for a buffer, or with errors */
};
const struct net_device_stats *net_device_stats(void);

#endif
