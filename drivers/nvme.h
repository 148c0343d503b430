/* A disk behind an NVM Express controller: its namespace 1, by one pair of I/O queues. NVM Express base
 * specification, revision 1.4; its sections are in brackets here and in nvme.c: 3.1 registers, 4.2 to 4.6
 * commands, PRP lists and completions, 5.3, 5.4, 5.15, 5.21 admin commands, 6.7 to 6.9 and 6.15 I/O commands,
 * 7.6.1 initialization.
 *
 * One caller at a time. What the controller says is believed no further than it makes sense: a controller
 * that tells nonsense, reports a fatal error or no longer answers is switched off, `why` says what it did,
 * and every command ends with -EIO. Queues and lists of addresses lie in the caller's NVME_MEMORY bytes; data
 * go straight to and from the buffers of commands.
 */
#ifndef DRIVERS_NVME_H
#define DRIVERS_NVME_H

#include "drivers/env.h"

#define NVME_CLASS    0x010802u /* of a PCI function: class, subclass, interface */

#define NVME_BLOCK    512u   /* bytes: no other format is taken */
#define NVME_TRANSFER 65536u /* bytes that a command moves at most; a controller may take less */
#define NVME_QUEUE    128u   /* entries of each I/O queue at most; one of them is always free */
#define NVME_RANGES   256u   /* of a discard at most */
#define NVME_MEMORY   (10 * PAGE_SIZE)
#define NVME_PATIENCE (30 * NS_PER_S) /* for a command */

enum nvme_op { NVME_FLUSH, NVME_WRITE, NVME_READ, NVME_DISCARD = 9 };

struct nvme_range { /* 6.7: what the buffer of a discard has */
    u32 attributes; /* 0 */
    u32 blocks;
    u64 first;
};

/* It and its buffer are the caller's, and the driver's and the device's as well from submit until `done`. */
struct nvme_command {
    enum nvme_op op;
    u64 first;    /* block */
    u32 blocks;   /* read and write: 1 to max_blocks; discard: ranges, 1 to NVME_RANGES */
    void *buffer; /* aligned to PAGE_SIZE; a device finds it where dma_addr() says, in one piece */
    /* Called from nvme_run(): 0; -EIO. After -EIO of a controller that is broken (`why`), the device may
     * still write to the buffer. May submit again. */
    void (*done)(struct nvme_command *c, int error);
};

struct nvme_entry; /* of queues, as the device has them */
struct nvme_completion;

struct nvme_queue {
    volatile u8 *doorbell; /* the submission queue's; the completion queue's is `stride` behind it */
    struct nvme_entry *entry;
    volatile struct nvme_completion *completion;
    u32 size, stride;
    u32 id;
    u32 tail, told; /* where the next command goes; what the device was told */
    u32 head, phase;
};

struct nvme {
    /* set by nvme_init, then constant */
    volatile u8 *regs;
    u64 (*dma_addr)(const void *p);
    u64 blocks;
    u32 max_blocks; /* of a command */
    u32 depth;      /* commands that may be under way */
    bool discards;
    char serial[20]; /* printable, filled with blanks */
    /* queues */
    struct nvme_queue admin, io;
    u64 (*list)[16]; /* for each command the addresses of its second page and those behind it */
    struct {
        struct nvme_command *c;
        u64 began;
        u32 generation;
    } slot[NVME_QUEUE];
    u32 under_way;
    u64 check;       /* when to look after it, if it is silent */
    const char *why; /* it is broken: what it did, as a sentence about it ("it does not answer") */
    u64 commands, errors;
    u32 last_error; /* code and type of the last one that failed (4.6.1) */
};

/* Resets the controller and sets it up; its interrupts, all by vector 0 or its line, are on. `regs`: BAR 0,
 * of `bytes`. `memory`: NVME_MEMORY bytes, aligned to PAGE_SIZE, zeroed; the device's from now on, whatever
 * comes of it. 0; -ENODEV: `why` says what is wrong. */
int nvme_init(struct nvme *n, volatile void *regs, u64 bytes, void *memory, const struct device_env *env);

/* -EIO: it is broken; -EBUSY: `depth` commands are under way; -EINVAL: beyond the disk, too long, not
 * aligned, or a discard where there is none. The device sees it after nvme_kick(). */
int nvme_submit(struct nvme *n, struct nvme_command *c, u64 now);
void nvme_kick(struct nvme *n);
/* Ends what the device is done with, and finds out whether it is alive. After an interrupt, and when
 * nvme_due() says so. True: something has ended. */
bool nvme_run(struct nvme *n, u64 now);
/* When to look after it though it does not interrupt; ~0: nothing is under way. */
u64 nvme_due(const struct nvme *n);

#endif
