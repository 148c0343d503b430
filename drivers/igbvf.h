/* The driver of a virtual function of Intel's 82576 (8086:10ca): data sheet (2.63), 7.10.2 and
 * 8.26.
 *
 * A virtual function has a pair of rings, and a mailbox to the physical function, whose driver
 * gives it an address. That driver runs in another VM, so each of its words is checked, and we
 * never wait for it longer than IGBVF_PATIENCE.
 *
 * One caller at a time. Frames are sent through `ring`, nic_ring.h, and received by
 * igbvf_receive().
 */
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
    u32 unused;  /* bits of the mailbox that reading has cleared before anybody used them */
    u32 cleaned; /* how often an interrupt found work in a ring since the time `counted` */
    u64 counted; /* ns */
    /* frames of its own that it received: QEMU's card sends broadcasts to their sender, too */
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
/* The device does not receive, send or interrupt any more. */
void igbvf_stop(struct igbvf *n);

/* Enables interrupts, by the first entry of the MSI-X table, for received frames and for frames
 * that were sent, at most so many a second (0: without a limit). */
void igbvf_interrupts(struct igbvf *n, u32 a_second);

/* Counts whether an interrupt was for received frames and whether for sent ones ("Workload-aware
 * credit scheduler", 4.1). Call it at each interrupt, before anything is taken from the rings. */
void igbvf_interrupted(struct igbvf *n);
/* Whether there were more than so many of those a second since the last call. */
bool igbvf_busy(struct igbvf *n, u32 a_second);

/* As nic_receive(), but without frames that this function has sent itself. */
u32 igbvf_receive(struct igbvf *n, const void **frame);

/* Takes a message of the physical function, if there is one. Call it from time to time. False: the
 * physical function was reset, and this one with it, which has to be set up again. */
bool igbvf_check(struct igbvf *n);
/* Whether there is a partner at the other end of the cable. */
bool igbvf_link(struct igbvf *n);

/* The next two ask the physical function and wait for its answer. They return 0, -EPERM if it says
 * no, or an error as igbvf_init(). */

/* Frames of this VLAN are to come to us as well, or not any more. */
int igbvf_vlan(struct igbvf *n, u32 vlan, bool on);
/* All multicasts are to come to us, or none. */
int igbvf_multicasts(struct igbvf *n, bool on);

#endif
