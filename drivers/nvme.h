/* The driver of the disk behind an NVM Express controller: its namespace 1, by one pair of I/O
 * queues. Numbers of sections, here and in nvme.c, are those of the NVM Express base specification,
 * revision 1.4: 3.1 registers, 4.2 to 4.6 commands, PRP lists and completions, 5.3, 5.4, 5.15, 5.21
 * admin commands, 6.7 to 6.9 and 6.15 I/O commands, 7.6.1 initialization.
 *
 * One caller at a time. What the controller says is checked. A controller that answers nonsense,
 * reports a fatal error or no longer answers is switched off; then `why` says what it did, and
 * every command ends with -EIO. Queues and lists of addresses lie in the caller's NVME_MEMORY
 * bytes; data move directly to and from the buffers of commands.
 */
#ifndef DRIVERS_NVME_H
#define DRIVERS_NVME_H

#include "drivers/env.h"

#define NVME_CLASS    0x010802u /* class, subclass and interface of the PCI function */

#define NVME_BLOCK    512u   /* bytes of a block; disks with another format are refused */
#define NVME_TRANSFER 65536u /* the most bytes that a command moves; a controller may take less */
#define NVME_QUEUE    128u   /* the most entries of an I/O queue; one of them is always free */
#define NVME_RANGES   256u   /* the most ranges of a discard */
#define NVME_MEMORY   (10 * PAGE_SIZE)
#define NVME_PATIENCE (30 * NS_PER_S) /* a controller is broken if a command takes longer */

enum nvme_op { NVME_FLUSH, NVME_WRITE, NVME_READ, NVME_DISCARD = 9 };

struct nvme_range { /* the buffer of a discard is an array of these: 6.7 */
    u32 attributes; /* 0 */
    u32 blocks;
    u64 first;
};

/* A command. It and its buffer are the caller's, but must not be touched from nvme_submit() until
 * `done`. */
struct nvme_command {
    enum nvme_op op;
    u64 first; /* the first block */
    /* for read and write blocks, 1 to max_blocks; for discard ranges, 1 to NVME_RANGES */
    u32 blocks;
    /* aligned to PAGE_SIZE; the device finds it where dma_addr() says, in one piece */
    void *buffer;
    /* Called from nvme_run() with 0 or -EIO; may submit again. If the controller is broken
     * (nvme.why), the device may write to the buffer even after -EIO. */
    void (*done)(struct nvme_command *c, int error);
};

struct nvme_entry; /* an entry of a queue, as the device has it */
struct nvme_completion;

struct nvme_queue {
    /* of the submission queue; that of the completion queue is `stride` bytes behind */
    volatile u8 *doorbell;
    struct nvme_entry *entry;
    volatile struct nvme_completion *completion;
    u32 size, stride;
    u32 id;
    /* Where the next command goes; up to where the device has been told of commands. */
    u32 tail, told;
    u32 head, phase; /* where the next completion comes; the phase that marks it as new */
};

struct nvme {
    /* set by nvme_init, then constant */
    volatile u8 *regs;
    u64 (*dma_addr)(const void *p);
    u64 blocks;
    u32 max_blocks; /* how many blocks a command may move */
    u32 depth;      /* the most commands that may be under way */
    bool discards;
    char serial[20]; /* printable, filled with blanks */
    /* queues */
    struct nvme_queue admin, io;
    /* for each slot: the addresses of the second and further pages of its buffer */
    u64 (*list)[16];
    struct {
        struct nvme_command *c; /* NULL: the slot is free */
        u64 began;              /* ns */
        u32 generation;         /* counts the commands of the slot */
    } slot[NVME_QUEUE];
    u32 under_way; /* how many commands are under way */
    /* When the controller does not interrupt: the time at which we look whether it is alive, ns. */
    u64 check;
    /* What the controller did that showed it to be broken, such as "it does not answer"; NULL: it
     * works. */
    const char *why;
    u64 commands, errors;
    u32 last_error; /* status code and type of the last command that failed (4.6.1) */
};

/* Resets the controller and sets it up, with interrupts enabled, all by vector 0 or by its line.
 * `regs` is BAR 0, of `bytes`. `memory` is NVME_MEMORY bytes, aligned to PAGE_SIZE and zeroed; the
 * device may write to it from now on, even if this fails. Returns 0, or -ENODEV; n->why then says
 * what is wrong. */
int nvme_init(struct nvme *n, volatile void *regs, u64 bytes, void *memory,
              const struct device_env *env);

/* Submits a command, which the device sees after nvme_kick(). Returns 0, or
 *   -EIO     the controller is broken
 *   -EBUSY   n->depth commands are under way
 *   -EINVAL  the command goes beyond the disk, is too long, is not aligned, or is a discard that
 *            the disk cannot do */
int nvme_submit(struct nvme *n, struct nvme_command *c, u64 now);
/* Shows the device the commands that were submitted since the last call. */
void nvme_kick(struct nvme *n);
/* Ends the commands that the device is done with, and looks whether the controller is alive. Call
 * it after an interrupt, and when nvme_due() says so. Returns whether a command has ended. */
bool nvme_run(struct nvme *n, u64 now);
/* Returns the time at which to call nvme_run() even without an interrupt, ns; ~0 means that no
 * command is under way. */
u64 nvme_due(const struct nvme *n);

#endif
