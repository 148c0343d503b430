/* The physical function's side of the virtual functions of an 82576: their filters, and their mailboxes.
 *
 * Whoever has a virtual function may write there what it likes, as often as it likes. It gets: the address
 * that it is given here, and no other; four VLANs; multicasts, all of them if it wants any; no frames longer
 * than others; 32 answers in 100 ms. What it sends from another address or VLAN the card drops (not QEMU's).
 *
 * Unicasts between virtual functions never leave the card. So the card has to know who is behind us, on the
 * bridge: it learns that from what is sent through us, 16 addresses at a time.
 */
#ifndef DRIVERS_IGB_VFS_H
#define DRIVERS_IGB_VFS_H

#include "drivers/igb.h"

#define IGB_VFS      IGB_OWN /* at most; the last pool is ours */
#define IGB_VF_VLANS 4u
#define IGB_BEHIND   16u

struct igb_vf {
    bool ready;     /* has said that it begins, so it has filters and may ask */
    bool multicast; /* has asked for some */
    bool unread;    /* our last message, as far as we know */
    bool tell;      /* that the link has changed */
    u16 vlan[IGB_VF_VLANS];
    u32 vlans;
    u64 window; /* the time from which its messages are counted */
    u32 in_window;
    u64 messages, refused; /* answered, of them with no */
    u64 held;              /* times that it had to wait, as it had asked too often */
    u64 stuck;             /* times that it did not let go of the mailbox */
    u64 resets, spoofed;
};

struct igb_behind {
    u8 mac[6];
    u64 seen; /* 0: unused */
};

struct igb_vfs {
    struct igb *nic;
    u32 nr; /* that there are; 0: none were seen yet */
    struct igb_vf vf[IGB_VFS];
    struct igb_behind behind[IGB_BEHIND];
    u32 last; /* found of them */
};

void igb_vfs_init(struct igb_vfs *v, struct igb *nic);
/* After IGB_IRQ_VF, and when it is due: answers. When it is due; ~0: not before the next interrupt. */
u64 igb_vfs_serve(struct igb_vfs *v, u64 now);
/* The link has changed: they are to be told, at the next igb_vfs_serve() that finds their mailboxes free. */
void igb_vfs_link(struct igb_vfs *v);
/* The address that virtual function n gets. */
void igb_vfs_mac(const struct igb_vfs *v, u32 n, u8 mac[6]);
/* A frame from this address is to go out through us. False: it may not, as the address is one of theirs. */
bool igb_vfs_sends(struct igb_vfs *v, const u8 *mac, u64 now);
/* Is a frame from this address one of ours that the card has shown to us as well (QEMU's does)? */
bool igb_vfs_echo(struct igb_vfs *v, const u8 *mac, u64 now);
void igb_vfs_count(struct igb_vfs *v); /* brings `spoofed` up to date */

#endif
