/* A virtual function of Intel's 82576 (8086:10ca): data sheet (2.63), 7.10.2 and 8.26.
 *
 * It has a pair of rings and a mailbox to the physical function, whose driver gives it an address. That
 * driver is another VM's: every word of its is checked, and nobody waits for it longer than IGBVF_PATIENCE.
 *
 * One caller at a time. Frames are sent through `ring`, nic_ring.h, and received by igbvf_receive().
 */
#ifndef DRIVERS_IGBVF_H
#define DRIVERS_IGBVF_H

#include "drivers/env.h"
#include "drivers/igb_regs.h"
#include "drivers/nic_ring.h"

#define IGBVF_BYTES    0x4000u /* of BAR 0 */
#define IGBVF_PATIENCE NS_PER_S

struct igbvf {
    volatile u8 *regs;
    const struct device_env *env;
    u8 mac[6];
    struct nic_ring ring;
    u32 unused;  /* bits of the mailbox that reading has cleared, and that nobody has looked at yet */
    u32 cleaned; /* rings, by interrupts since `counted`, a time */
    u64 counted;
    u64 echoes;      /* frames of its own that it was shown (QEMU's shows broadcasts to who sends them) */
    const char *why; /* what is wrong with it; NULL: nothing */
};

/* Resets the function and sets it up; no interrupt is enabled. `regs`: BAR 0. `memory` as nic_ring_init() has
 * it; `env` stays. 0; -ENODEV: nobody is there; -ETIMEDOUT: the physical function has no driver that answers;
 * -EIO: it answers nonsense. `why` says which. */
int igbvf_init(struct igbvf *n, volatile void *regs, void *memory, const struct device_env *env);
void igbvf_stop(struct igbvf *n); /* neither receives nor sends nor interrupts any more */

/* Interrupts by the first entry of its MSI-X table for what has come, and with room to send after there was
 * none, at most so many a second (0: at once). */
void igbvf_interrupts(struct igbvf *n, u32 a_second);

/* At each interrupt, before anything is taken from the rings: counts whether it was for what has come, and
 * whether for what was sent ("Workload-aware credit scheduler", 4.1). */
void igbvf_interrupted(struct igbvf *n);
/* Were there more than so many of those a second since this was last asked? */
bool igbvf_busy(struct igbvf *n, u32 a_second);

/* As nic_receive(). */
u32 igbvf_receive(struct igbvf *n, const void **frame);

/* From time to time: takes what the physical function has to say. False: it was reset, and with it this one,
 * which is to be set up again. */
bool igbvf_check(struct igbvf *n);
bool igbvf_link(struct igbvf *n); /* is there somebody at the other end of the cable? */

/* Asks the physical function, and waits. 0; -EPERM: it says no; as igbvf_init(). */
int igbvf_vlan(struct igbvf *n, u32 vlan, bool on); /* frames of this VLAN are for us, too */
int igbvf_multicasts(struct igbvf *n, bool on);     /* all of them */

#endif
