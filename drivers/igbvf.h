/* The driver of a virtual function of Intel's 82576 card (8086:10ca): data sheet (2.63), 7.10.2 and
 * 8.26.
 *
 * A virtual function has a pair of rings, and a mailbox to the physical function, whose driver
 * gives it an address. That driver runs in another VM. So each word from it is checked, and this
 * driver never waits for it longer than IGBVF_PATIENCE.
 *
 * One caller at a time. Frames are sent through `ring` (nic_ring.h), and received by
 * igbvf_receive(). */
#ifndef DRIVERS_IGBVF_H
#define DRIVERS_IGBVF_H

#include "drivers/env.h"
#include "drivers/igb_regs.h"
#include "drivers/nic_ring.h"

#define IGBVF_BYTES    0x4000u /* size of BAR 0 */
#define IGBVF_PATIENCE NS_PER_S

struct igbvf {
    volatile u8 *regs;
    const struct device_env *env;
    u8 mac[6];
    struct nic_ring ring;
    u32 unused;  /* bits of the mailbox that reading has cleared and nobody has used yet */
    u32 cleaned; /* how often an interrupt found work in a ring since the time `counted` */
    u64 counted; /* ns */
    /* Received frames that this function has sent: QEMU's card sends broadcasts to their sender,
     * too. */
    u64 echoes;
    const char *why; /* what is wrong with it; NULL: nothing */
};

/* Resets the function and sets it up, with all interrupts disabled. `regs` is BAR 0; `memory` is as
 * in nic_ring_init(); `env` must live as long as *n. Returns 0, or one of these; n->why then says
 * what is wrong:
 *   -ENODEV     there is no device
 *   -ETIMEDOUT  the physical function has no driver that answers
 *   -EIO        that driver answers nonsense */
int igbvf_init(struct igbvf *n, volatile void *regs, void *memory, const struct device_env *env);
/* Stops the device: it does not receive, send or interrupt any more. */
void igbvf_stop(struct igbvf *n);

/* Enables interrupts for received and for sent frames, by the first entry of the MSI-X table, at
 * most `a_second` of them; 0 means no limit. */
void igbvf_interrupts(struct igbvf *n, u32 a_second);

/* Counts whether an interrupt was for received frames and whether it was for sent ones
 * ("Workload-aware credit scheduler", 4.1). Call it at each interrupt, before anything is taken
 * from the rings. */
void igbvf_interrupted(struct igbvf *n);
/* Returns whether the interrupts that igbvf_interrupted() has counted since the last call were more
 * than `a_second` a second. The driver tells the hypervisor then that its VM does much I/O. */
bool igbvf_busy(struct igbvf *n, u32 a_second);

/* Receives a frame as nic_receive(), but leaves out frames that this function has sent itself. */
u32 igbvf_receive(struct igbvf *n, const void **frame);

/* Takes a message of the physical function, if there is one. Call it from time to time. Returns
 * false if the physical function was reset. Then this function was reset with it, and igbvf_init()
 * has to be called again. */
bool igbvf_check(struct igbvf *n);
/* Returns whether there is a partner at the other end of the cable. */
bool igbvf_link(struct igbvf *n);

/* The next two ask the physical function and wait for its answer. They return 0, -EPERM if it says
 * no, or an error as igbvf_init(). */

/* Asks that frames of this VLAN come to this function as well, or no longer. */
int igbvf_vlan(struct igbvf *n, u32 vlan, bool on);
/* Asks that all multicasts come to this function, or none. */
int igbvf_multicasts(struct igbvf *n, bool on);

#endif
