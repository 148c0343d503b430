/* The mailbox between the physical function of an 82576 network card and one of its virtual
 * functions: data sheet (2.63) 7.10.2.9 and 8.14. By it the driver of a virtual function, in a VM,
 * asks the driver of the physical function, in the driver domain, for its address and its filters.
 * The messages are those of Intel's drivers, because a VM may have one of these.
 *
 * There is one buffer of 16 words for both directions. A driver takes it with its "in use" bit (VFU
 * or PFU) before it uses it, and releases it with any write to the register without that bit. */
#ifndef DRIVERS_IGB_MAILBOX_H
#define DRIVERS_IGB_MAILBOX_H

#include <takt/types.h>

enum igb_mailbox_reg {
    /* Registers of the physical function, for virtual function 0. For function n add 4 n to
     * IGB_PF_MAILBOX, and 0x40 n to IGB_PF_MEMORY. */
    IGB_PF_MEMORY = 0x0800,
    IGB_PF_MAILBOX = 0x0c00,
    /* Bit n: function n has sent a message; bit 16 + n: it has read ours. Writing 1 clears. */
    IGB_MBVFICR = 0x0c80,
    IGB_MBVFIMR = 0x0c84, /* bit n: function n may interrupt */
    IGB_VFLRE = 0x0c88,   /* bit n: function n was reset; writing 1 clears */
    /* Registers of a virtual function. */
    IGB_VF_MEMORY = 0x0800,
    IGB_VF_MAILBOX = 0x0c40,
};

/* IGB_PF_MAILBOX */
#define IGB_PF_STS 0x01u /* written: we have sent a message */
#define IGB_PF_ACK 0x02u /* written: we have read the function's message */
#define IGB_PF_VFU 0x04u /* the virtual function has the buffer */
#define IGB_PF_PFU 0x08u /* we have the buffer */
/* written: takes the buffer from a virtual function that does not release it */
#define IGB_PF_RVFU 0x10u

/* IGB_VF_MAILBOX */
#define IGB_VF_REQ   0x01u /* written: we have sent a message */
#define IGB_VF_ACK   0x02u /* written: we have read the message */
#define IGB_VF_VFU   0x04u /* we have the buffer */
#define IGB_VF_PFU   0x08u /* the physical function has the buffer */
#define IGB_VF_PFSTS 0x10u /* there is a message; reading clears this bit, PFACK and RSTD */
#define IGB_VF_PFACK 0x20u /* our message was read */
#define IGB_VF_RSTI  0x40u /* the physical function is not there yet, or not any more */
#define IGB_VF_RSTD  0x80u /* the physical function is there again */

/* The first word of a message: its type, INFO of that type, and in an answer ACK (yes) or NACK
 * (no). */
#define IGB_MSG_ACK  0x80000000u
#define IGB_MSG_NACK 0x40000000u
/* in an answer: the physical function still has this one's filters */
#define IGB_MSG_CTS   0x20000000u
#define IGB_MSG_INFO  16
#define IGB_MSG_TYPE  0xffffu
#define IGB_MSG_WORDS 16u

enum igb_message {
    IGB_MSG_RESET = 1, /* "I begin"; the answer has its address in the second and third word */
    IGB_MSG_MAC = 2,   /* the second and third word are the address that it wants */
    /* INFO says how many hashes of multicast addresses follow, of 16 bits each */
    IGB_MSG_MULTICAST = 3,
    /* INFO 1: it wants frames of the VLAN in the second word; 0: not any more */
    IGB_MSG_VLAN = 4,
    IGB_MSG_LENGTH = 5, /* the longest frame that it takes, with its check sequence */
    IGB_MSG_PROMISCUOUS = 6,
    IGB_MSG_CONTROL = 0x100, /* from the physical function: look at the link */
};

#endif
