/* The mailbox between the physical function of an 82576 and a virtual one: data sheet (2.63) 7.10.2.9 and
 * 8.14. The words of its messages are those of Intel's drivers, as other VMs may have one of them.
 *
 * There is one buffer of 16 words for both ways. Who wants to use it takes it by its "in use" bit, and lets
 * go of it by any write without that bit. */
#ifndef DRIVERS_IGB_MAILBOX_H
#define DRIVERS_IGB_MAILBOX_H

#include <takt/types.h>

enum igb_mailbox_reg {
    /* of the physical function; + 4 n, the buffer + 0x40 n: of virtual function n */
    IGB_PF_MEMORY = 0x0800,
    IGB_PF_MAILBOX = 0x0c00,
    IGB_MBVFICR = 0x0c80, /* who has asked, from bit 16 on who has acknowledged; writing 1 clears */
    IGB_MBVFIMR = 0x0c84, /* who may interrupt */
    IGB_VFLRE = 0x0c88,   /* who was reset; writing 1 clears */
    /* of a virtual function */
    IGB_VF_MEMORY = 0x0800,
    IGB_VF_MAILBOX = 0x0c40,
};

#define IGB_PF_STS   0x01u /* there is a message */
#define IGB_PF_ACK   0x02u /* its message was read */
#define IGB_PF_VFU   0x04u /* in use by it */
#define IGB_PF_PFU   0x08u /* in use by us */
#define IGB_PF_RVFU  0x10u /* takes it from a virtual function that does not let go */

#define IGB_VF_REQ   0x01u
#define IGB_VF_ACK   0x02u
#define IGB_VF_VFU   0x04u /* in use by us */
#define IGB_VF_PFU   0x08u
#define IGB_VF_PFSTS 0x10u /* there is a message; reading clears it, as the next and RSTD */
#define IGB_VF_PFACK 0x20u /* ours was read */
#define IGB_VF_RSTI  0x40u /* the physical function is not there yet, or not any more */
#define IGB_VF_RSTD  0x80u /* it is there again */

/* The first word: which message, INFO of its own, and in answers one of the first two. */
#define IGB_MSG_ACK   0x80000000u
#define IGB_MSG_NACK  0x40000000u
#define IGB_MSG_CTS   0x20000000u /* of the physical function's: it has not forgotten who asks */
#define IGB_MSG_INFO  16
#define IGB_MSG_TYPE  0xffffu
#define IGB_MSG_WORDS 16u

enum igb_message {
    IGB_MSG_RESET = 1,     /* I begin; the answer has my address in the second and third word */
    IGB_MSG_MAC = 2,       /* this is to be my address */
    IGB_MSG_MULTICAST = 3, /* INFO: so many hashes of groups follow, of 16 bits */
    IGB_MSG_VLAN = 4,      /* INFO 1: I am of this VLAN, 0: not any more */
    IGB_MSG_LENGTH = 5,    /* the longest frame, with its check sequence */
    IGB_MSG_PROMISCUOUS = 6,
    IGB_MSG_CONTROL = 0x100, /* of the physical function: look at the link */
};

#endif
