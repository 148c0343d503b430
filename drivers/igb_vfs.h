/* The side of the physical function for the virtual functions of an 82576 card: their filters, and
 * their mailboxes.
 *
 * The VM that has a virtual function may write to its mailbox whatever it likes, as often as it
 * likes. It gets the address that this driver gives it, and no other address; up to four VLANs; all
 * multicasts, if it wants any; frames that are no longer than those of others; and 32 answers in
 * 100 ms. The card drops what it sends from another address or VLAN (QEMU's card does not).
 *
 * Unicasts between virtual functions never leave the card. So the card has to know which addresses
 * are behind the physical function, on the bridge. It learns them from the frames that are sent
 * through the physical function, 16 addresses at a time. */
#ifndef DRIVERS_IGB_VFS_H
#define DRIVERS_IGB_VFS_H

#include "drivers/igb.h"

#define IGB_VFS      IGB_OWN /* the most virtual functions; the last pool is ours */
#define IGB_VF_VLANS 4u      /* VLANs of each */
/* Addresses behind the physical function that the card knows at a time. */
#define IGB_BEHIND 16u

struct igb_vf {
    bool ready;     /* it has said that it begins, so it has filters and may ask for more */
    bool multicast; /* it has asked for multicasts */
    bool unread;    /* as far as we know, it has not read our last message */
    bool tell;      /* it has to be told that the link has changed */
    u16 vlan[IGB_VF_VLANS];
    u32 vlans;
    u64 window;    /* its messages are counted from this time on, ns */
    u32 in_window; /* how many messages there were since then */
    u64 messages;  /* messages that were answered */
    u64 refused;   /* of them, those that were answered with no */
    u64 held;      /* how often it had to wait because it had asked too often */
    u64 stuck;     /* how often it did not release the mailbox */
    u64 resets, spoofed;
};

struct igb_behind {
    u8 mac[6];
    u64 seen; /* the time at which the last frame came from it, ns; 0: this entry is unused */
};

struct igb_vfs {
    struct igb *nic;
    u32 nr; /* how many virtual functions there are; 0: none has been seen yet */
    struct igb_vf vf[IGB_VFS];
    struct igb_behind behind[IGB_BEHIND];
    u32 last; /* index of the address that was found last */
};

/* Sets *v up for the card `nic`, which was set up before. No virtual function has filters yet. */
void igb_vfs_init(struct igb_vfs *v, struct igb *nic);
/* Answers the virtual functions. Call it after IGB_IRQ_VF, and when it is due. Returns the time at
 * which it is due again (ns); ~0 means after the next interrupt. */
u64 igb_vfs_serve(struct igb_vfs *v, u64 now);
/* Notes that the link has changed. Each virtual function is told by the next igb_vfs_serve() that
 * finds its mailbox free. */
void igb_vfs_link(struct igb_vfs *v);
/* Stores the address that virtual function n gets. */
void igb_vfs_mac(const struct igb_vfs *v, u32 n, u8 mac[6]);
/* Notes that a frame from this address is about to be sent through the physical function. Returns
 * false if the frame must not be sent, because the address is that of a virtual function. */
bool igb_vfs_sends(struct igb_vfs *v, const u8 *mac, u64 now);
/* Returns whether a received frame from this address is one that we have sent. QEMU's card shows us
 * our own frames. */
bool igb_vfs_echo(struct igb_vfs *v, const u8 *mac, u64 now);
/* Updates the counters `spoofed` from the card's. */
void igb_vfs_count(struct igb_vfs *v);

#endif
