/* The driver of the disk behind an NVM Express controller. Commands go to the controller through a
 * *submission queue* in memory, and it answers in a *completion queue*; a *doorbell* is the
 * register by which one side's index is told to the controller. The *admin* pair of queues sets the
 * controller up, the *I/O* pair reads and writes. What the controller writes is checked, because a
 * broken one could otherwise end a command that is still under way. nvme.h has the contracts, and
 * says which specification the numbers of sections belong to. */
#include "drivers/nvme.h"

#include <takt/errno.h>
#include <takt/io.h>

/* Offsets of registers: 3.1. */
enum {
    CAP = 0x00,
    CC = 0x14,
    CSTS = 0x1c,
    AQA = 0x24,
    ASQ = 0x28,
    ACQ = 0x30,
    DOORBELLS = 0x1000,
};

#define CAP_CSS_NVM BIT(37)
#define CC_EN       BIT(0)
#define CC_SIZES    (6u << 16 | 4u << 20) /* entries of 64 and of 16 bytes; pages of 4 KiB */
#define CSTS_RDY    BIT(0)
#define CSTS_CFS    BIT(1)
#define GONE        0xffffffffu /* what a read returns where no device answers */

enum { CREATE_SQ = 1, CREATE_CQ = 5, IDENTIFY = 6, SET_FEATURES = 9 };

/* Offsets in the answer of IDENTIFY, by the names of the specification (5.15.2). The first group
 * describes the controller, the second one a namespace. */
enum {
    IDENTIFY_SN = 4,     /* serial number */
    IDENTIFY_MDTS = 77,  /* log2 of the pages that a command may move; 0: any number */
    IDENTIFY_SQES = 512, /* sizes of entries of submission queues */
    IDENTIFY_CQES = 513, /* sizes of entries of completion queues */
    IDENTIFY_ONCS = 520, /* optional commands */

    IDENTIFY_NSZE = 0,   /* blocks */
    IDENTIFY_NLBAF = 25, /* how many formats there are, less one */
    IDENTIFY_FLBAS = 26, /* the number of the format, in bits 0 to 3 */
    IDENTIFY_LBAF = 128, /* formats, of 4 bytes: bytes of metadata, log2 of a block's bytes << 16 */
};

#define ONCS_DISCARD     BIT(2)
#define ENTRY_SHIFT      6u      /* log2 of the bytes of a struct nvme_entry */
#define COMPLETION_SHIFT 4u      /* log2 of the bytes of a struct nvme_completion */
#define BLOCK_SHIFT      9u      /* log2 of NVME_BLOCK */
#define TRANSFER_SHIFT   4u      /* log2 of the pages of NVME_TRANSFER */
#define MOST_BLOCKS      BIT(54) /* the bytes of so many blocks still fit into 64 bits */

/* What lies where in the caller's NVME_MEMORY bytes. */
enum {
    ADMIN_ENTRIES = 0,
    ADMIN_COMPLETIONS = 1 * PAGE_SIZE,
    IO_ENTRIES = 2 * PAGE_SIZE, /* two pages */
    IO_COMPLETIONS = 4 * PAGE_SIZE,
    ANSWERS = 5 * PAGE_SIZE, /* of IDENTIFY */
    LISTS = 6 * PAGE_SIZE,   /* four pages: addresses of the pages of buffers */
};

#define NR_QUEUES_FEATURE 7u /* 5.21.1.7 */
#define NAMESPACE         1u
/* Bits of dword 11 of commands that make queues, and of a discard (5.3, 5.4, 6.7). */
#define QUEUE_CONTIGUOUS BIT(0) /* it lies in one piece of memory */
#define QUEUE_INTERRUPTS BIT(1)
#define DISCARD_RANGES   BIT(2) /* the blocks of the ranges are not needed any more */
#define ADMIN_QUEUE      8u     /* entries */
#define CHECK_NS         NS_PER_S
#define RESET_UNIT       (500 * NS_PER_MS) /* the unit of CAP.TO, the time that a reset may take */

struct nvme_entry { /* 4.2 */
    u8 opcode, flags;
    u16 id;
    u32 nsid;
    u64 reserved, metadata;
    u64 prp[2];
    u32 dw[6]; /* 10 to 15 */
};

struct nvme_completion { /* 4.6 */
    u32 result, reserved;
    u32 queue; /* head of the submission queue, its number << 16 */
    u32 last;  /* command id, phase << 16, status << 17 */
};

static u32 nvme_get(const struct nvme *n, u32 reg) { return mmio_read32(n->regs + reg); }

static void nvme_set(struct nvme *n, u32 reg, u32 v) { mmio_write32(n->regs + reg, v); }

static void nvme_set64(struct nvme *n, u32 reg, u64 v) {
    nvme_set(n, reg, (u32)v);
    nvme_set(n, reg + 4, (u32)(v >> 32));
}

/* Queues and buffers have to be written before the device is told of them, and may be read only
 * after the phase of a completion was seen. On x86 it is enough that the compiler keeps that
 * order. */
static void nvme_order(void) { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

/* Notes for the operator why the controller cannot be used, and returns the error for that. */
static int nvme_refuse(struct nvme *n, const char *why) {
    n->why = why;
    return -ENODEV;
}

/* ---- queues ---- */

/* Describes queue `id`, which begins empty. The device flips the phase of the completions each time
 * it goes round the queue. The first round has phase 1, because the memory is zeroed. */
static void set_queue(struct nvme *n, struct nvme_queue *q, u32 id, void *entries,
                      void *completions, u32 size, u32 stride) {
    *q = (struct nvme_queue){ .doorbell = n->regs + DOORBELLS + 2 * id * stride,
                              .entry = entries,
                              .completion = completions,
                              .size = size,
                              .stride = stride,
                              .id = id,
                              .phase = 1 };
}

/* Writes a command to the end of the queue. The controller sees it after queue_tell(). */
static void queue_put(struct nvme_queue *q, const struct nvme_entry *e) {
    q->entry[q->tail] = *e;
    q->tail = (q->tail + 1) % q->size;
}

/* Tells the device of the commands that were put into the queue. */
static void queue_tell(struct nvme_queue *q) {
    if (q->told == q->tail) return;
    q->told = q->tail;
    nvme_order();
    mmio_write32(q->doorbell, q->tail);
}

/* Copies the next completion to *c. Returns false if there is none. The controller inverts the
 * *phase* bit each time that it goes round the queue, so a completion whose phase is the expected
 * one is new. */
static bool queue_take(struct nvme_queue *q, struct nvme_completion *c) {
    volatile struct nvme_completion *e = &q->completion[q->head];

    c->last = e->last;
    if ((c->last >> 16 & 1) != q->phase) return false;
    nvme_order();
    c->queue = e->queue;
    q->head = (q->head + 1) % q->size;
    if (!q->head) q->phase ^= 1;
    return true;
}

/* Returns the status code and its type (4.6.1); 0 means that the command succeeded. */
static u32 status_of(const struct nvme_completion *c) { return c->last >> 17 & 0x7ff; }

/* Tells the device that it may use the places of completions that were taken. */
static void give_back(struct nvme_queue *q) { mmio_write32(q->doorbell + q->stride, q->head); }

/* ---- set-up ---- */

/* Waits until the controller says that it is ready (`want` is CSTS_RDY) or that it is off (0).
 * Returns false if it is gone, if it reports a fatal error while it should become ready, or if it
 * needs more than `limit` ns. */
static bool wait_ready(struct nvme *n, const struct device_env *env, u32 want, u64 limit) {
    u64 end = env->now() + limit;

    for (;;) {
        u32 status = nvme_get(n, CSTS);

        if (status == GONE || (want && status & CSTS_CFS)) return false;
        if ((status & CSTS_RDY) == want) return true;
        if (env->now() >= end) return false;
        env->relax();
    }
}

/* Resets the controller, gives it the admin queues and starts it: 7.6.1. */
static int nvme_enable(struct nvme *n, const struct device_env *env, u32 stride, u64 limit,
                       u8 *memory) {
    nvme_set(n, CC, nvme_get(n, CC) & ~(u32)CC_EN);
    if (!wait_ready(n, env, 0, limit)) return nvme_refuse(n, "it does not come out of reset");
    set_queue(n, &n->admin, 0, memory + ADMIN_ENTRIES, memory + ADMIN_COMPLETIONS, ADMIN_QUEUE,
              stride);
    nvme_set(n, AQA, (ADMIN_QUEUE - 1) << 16 | (ADMIN_QUEUE - 1));
    nvme_set64(n, ASQ, n->dma_addr(memory + ADMIN_ENTRIES));
    nvme_set64(n, ACQ, n->dma_addr(memory + ADMIN_COMPLETIONS));
    nvme_set(n, CC, CC_SIZES | (u32)CC_EN);
    if (!wait_ready(n, env, CSTS_RDY, limit)) return nvme_refuse(n, "it does not become ready");
    return 0;
}

/* Gives the controller an admin command, and waits until it has ended. Returns false if the command
 * failed, or did not end in time. */
static bool admin(struct nvme *n, const struct device_env *env, const struct nvme_entry *e) {
    u64 end = env->now() + NVME_PATIENCE;
    struct nvme_completion c;

    queue_put(&n->admin, e);
    queue_tell(&n->admin);
    while (!queue_take(&n->admin, &c)) {
        if (env->now() >= end) return false;
        env->relax();
    }
    give_back(&n->admin);
    return (u16)c.last == e->id && !status_of(&c);
}

/* Returns the number in bytes [at, at + bytes) of what IDENTIFY gave. It is little-endian, and need
 * not be aligned. */
static u64 page_field(const u8 *page, u32 at, u32 bytes) {
    u64 v = 0;

    while (bytes--) v = v << 8 | page[at + bytes];
    return v;
}

/* Checks what IDENTIFY tells of the controller (5.15.2.2), and notes what we need. */
static int identify_controller(struct nvme *n, const u8 *page) {
    /* The least size of entries as log2 in bits 0 to 3, and the largest in bits 4 to 7. */
    u32 sq = page[IDENTIFY_SQES], cq = page[IDENTIFY_CQES];
    u32 shift = page[IDENTIFY_MDTS];
    u32 transfer = NVME_TRANSFER;

    for (u32 i = 0; i < sizeof(n->serial); i++) {
        n->serial[i] = (char)page[IDENTIFY_SN + i];
        if (n->serial[i] < ' ' || n->serial[i] > '~') n->serial[i] = ' ';
    }
    if ((sq & 15) > ENTRY_SHIFT || sq >> 4 < ENTRY_SHIFT || (cq & 15) > COMPLETION_SHIFT ||
        cq >> 4 < COMPLETION_SHIFT)
        return nvme_refuse(n, "its queues have entries of another size");
    if (shift && shift < TRANSFER_SHIFT) transfer = (u32)PAGE_SIZE << shift;
    n->max_blocks = transfer / NVME_BLOCK;
    n->discards = page_field(page, IDENTIFY_ONCS, 2) & ONCS_DISCARD;
    return 0;
}

/* Checks what IDENTIFY tells of namespace 1 (5.15.2.1), and notes what we need. */
static int identify_namespace(struct nvme *n, const u8 *page) {
    u32 format = page[IDENTIFY_FLBAS] & 15, layout;

    n->blocks = page_field(page, IDENTIFY_NSZE, 8);
    if (!n->blocks) return nvme_refuse(n, "it has no namespace 1");
    if (n->blocks > MOST_BLOCKS) return nvme_refuse(n, "it claims a size that there is not");
    if (format > page[IDENTIFY_NLBAF])
        return nvme_refuse(n, "its format is none of those that it has");
    layout = (u32)page_field(page, IDENTIFY_LBAF + 4 * format, 4);
    if ((layout & 0xffff) || (layout >> 16 & 0xff) != BLOCK_SHIFT)
        return nvme_refuse(n, "its blocks are not of 512 bytes without metadata");
    return 0;
}

/* Asks the controller what it is, and what its namespace 1 is. `page` takes the answers. */
static int identify(struct nvme *n, const struct device_env *env, u8 *page) {
    struct nvme_entry e = { .opcode = IDENTIFY, .id = 1, .prp[0] = n->dma_addr(page), .dw[0] = 1 };
    int error;

    if (!admin(n, env, &e)) return nvme_refuse(n, "it does not say what it is");
    error = identify_controller(n, page);
    if (error) return error;
    e = (struct nvme_entry){
        .opcode = IDENTIFY, .id = 2, .nsid = NAMESPACE, .prp[0] = n->dma_addr(page)
    };
    __builtin_memset(page, 0, PAGE_SIZE);
    if (!admin(n, env, &e)) return nvme_refuse(n, "it does not tell of its namespace 1");
    return identify_namespace(n, page);
}

/* Makes the pair of I/O queues, completion queue 1 and submission queue 1, each in one piece of
 * memory, with interrupts by vector 0 (5.21.1.7, 5.3, 5.4). Returns 0, or -ENODEV. */
static int nvme_make_queues(struct nvme *n, const struct device_env *env, u32 size, u8 *entries,
                            u8 *completions) {
    struct nvme_entry all[] = {
        { .opcode = SET_FEATURES, .id = 3, .dw = { NR_QUEUES_FEATURE } },
        { .opcode = CREATE_CQ,
          .id = 4,
          .prp = { n->dma_addr(completions) },
          .dw = { (size - 1) << 16 | 1, QUEUE_CONTIGUOUS | QUEUE_INTERRUPTS } },
        { .opcode = CREATE_SQ,
          .id = 5,
          .prp = { n->dma_addr(entries) },
          .dw = { (size - 1) << 16 | 1, 1 << 16 | QUEUE_CONTIGUOUS } },
    };

    set_queue(n, &n->io, 1, entries, completions, size, n->admin.stride);
    for (u32 i = 0; i < ARRAY_SIZE(all); i++)
        if (!admin(n, env, &all[i])) return nvme_refuse(n, "it makes no queues");
    return 0;
}

/* Checks that this driver can work with the controller, starts it, and makes its queues. `depth` is
 * one less than the size of a queue, because a queue whose head and tail are equal is empty. */
static int nvme_set_up(struct nvme *n, const struct device_env *env, u64 bytes, u8 *memory) {
    u32 low = nvme_get(n, CAP), high = nvme_get(n, CAP + 4),
        size = MIN((low & 0xffff) + 1, NVME_QUEUE);
    u32 stride = 4u << (high & 15);
    u64 cap = (u64)high << 32 | low, limit = MAX(low >> 24, 1u) * RESET_UNIT;
    int error;

    if (low == GONE && high == GONE) return nvme_refuse(n, "it does not answer");
    if (!(cap & CAP_CSS_NVM)) return nvme_refuse(n, "it has not the commands of a disk");
    if (cap >> 48 & 15) return nvme_refuse(n, "its pages are larger than 4 KiB");
    if (size < 2) return nvme_refuse(n, "its queues are too small");
    if (DOORBELLS + 4ull * stride > bytes)
        return nvme_refuse(n, "its doorbells lie beyond its registers");
    error = nvme_enable(n, env, stride, limit, memory);
    if (!error) error = identify(n, env, memory + ANSWERS);
    if (!error)
        error = nvme_make_queues(n, env, size, memory + IO_ENTRIES, memory + IO_COMPLETIONS);
    n->list = (void *)(memory + LISTS);
    n->depth = size - 1;
    return error;
}

/* Resets the controller and sets it up, with interrupts enabled. Returns 0, or -ENODEV if it cannot
 * be used; n->why then says why not. If the set-up fails, the controller is told to switch itself
 * off, so that it does not write to its queues later. A broken one may not obey; so the header says
 * that the memory stays the controller's even then. */
int nvme_init(struct nvme *n, volatile void *regs, u64 bytes, void *memory,
              const struct device_env *env) {
    int error;

    *n = (struct nvme){ .regs = regs, .dma_addr = env->dma_addr };
    if (bytes < DOORBELLS) return nvme_refuse(n, "it has too few registers");
    error = nvme_set_up(n, env, bytes, memory);
    if (error) nvme_set(n, CC, 0);
    return error;
}

/* ---- commands ---- */

/* Returns whether the command stays within the disk and within what one command may do. Buffers
 * must begin a page, because set_pages() gives the device whole pages. */
static bool command_is_valid(const struct nvme *n, const struct nvme_command *c) {
    switch (c->op) {
    case NVME_FLUSH: return true;
    case NVME_DISCARD:
        return n->discards && c->blocks && c->blocks <= NVME_RANGES &&
               !((u64)c->buffer % PAGE_SIZE);
    case NVME_READ:
    case NVME_WRITE:
        return c->blocks && c->blocks <= n->max_blocks && c->first <= n->blocks &&
               c->blocks <= n->blocks - c->first && !((u64)c->buffer % PAGE_SIZE);
    }
    return false;
}

/* Tells the command where its buffer is (4.3). A command has room for two addresses of pages
 * (PRPs). A buffer of more than two pages has a list of the further addresses in the slot's part of
 * n->list, and the second PRP points to that list. */
static void set_pages(struct nvme *n, struct nvme_entry *e, u32 slot, const u8 *buffer, u32 bytes) {
    u32 more = (u32)((bytes - 1) / PAGE_SIZE);

    for (u32 i = 0; i < more; i++) n->list[slot][i] = n->dma_addr(buffer + (i + 1) * PAGE_SIZE);
    e->prp[0] = n->dma_addr(buffer);
    if (more == 1) e->prp[1] = n->list[slot][0];
    if (more > 1) e->prp[1] = n->dma_addr(n->list[slot]);
}

/* Puts a command into the queue; the device sees it after nvme_kick(). Returns 0 or an error. The
 * command's id has its slot in the low byte, and in the high byte how often the slot was used. So a
 * late completion of an earlier command is not taken for that of this one. */
int nvme_submit(struct nvme *n, struct nvme_command *c, u64 now) {
    struct nvme_entry e = { .opcode = (u8)c->op, .nsid = NAMESPACE };
    u32 slot = 0;

    if (n->why) return -EIO;
    if (!command_is_valid(n, c)) return -EINVAL;
    while (slot < n->depth && n->slot[slot].c) slot++;
    if (slot == n->depth) return -EBUSY;
    e.id = (u16)(slot | ++n->slot[slot].generation << 8);
    if (c->op == NVME_DISCARD) {
        set_pages(n, &e, slot, c->buffer, c->blocks * sizeof(struct nvme_range));
        e.dw[0] = c->blocks - 1;
        e.dw[1] = DISCARD_RANGES;
    } else if (c->op != NVME_FLUSH) {
        set_pages(n, &e, slot, c->buffer, c->blocks * NVME_BLOCK);
        e.dw[0] = (u32)c->first;
        e.dw[1] = (u32)(c->first >> 32);
        e.dw[2] = c->blocks - 1;
    }
    n->slot[slot].c = c;
    n->slot[slot].began = now;
    if (!n->under_way) n->check = now + CHECK_NS;
    n->under_way++;
    n->commands++;
    queue_put(&n->io, &e);
    return 0;
}

void nvme_kick(struct nvme *n) {
    if (!n->why) queue_tell(&n->io);
}

/* Frees the slot, and then tells the owner of the command. The slot has to be free first, because
 * the owner may submit its next command at once. */
static void end_command(struct nvme *n, u32 slot, int error) {
    struct nvme_command *c = n->slot[slot].c;

    n->slot[slot].c = NULL;
    n->under_way--;
    if (error) n->errors++;
    c->done(c, error);
}

/* Switches the broken controller off, so that it reads and writes nothing any more, if it still
 * obeys. Ends all commands. */
static void switch_off(struct nvme *n, const char *why) {
    n->why = why;
    nvme_set(n, CC, 0);
    for (u32 i = 0; i < n->depth; i++)
        if (n->slot[i].c) end_command(n, i, -EIO);
}

/* Returns the slot of the command that a completion names, or n->depth if there is no such command.
 * Each slot counts its commands, so that an old completion is not taken for that of the next
 * command. */
static u32 completed_slot(const struct nvme *n, const struct nvme_completion *c) {
    u32 slot = c->last & 0xff;
    bool known = slot < n->depth && n->slot[slot].c &&
                 (n->slot[slot].generation & 0xff) == (c->last >> 8 & 0xff) &&
                 c->queue >> 16 == n->io.id;

    if (!known) return n->depth;
    return slot;
}

/* Ends commands that have completed, but no more of them than were under way at the start. Commands
 * that are submitted meanwhile were not shown to the device, so a completion of one of them would
 * be false. */
static bool reap(struct nvme *n) {
    struct nvme_completion c;
    bool some = false;

    for (u32 left = n->under_way; left && !n->why && queue_take(&n->io, &c); left--) {
        u32 slot = completed_slot(n, &c);
        int error = 0;

        some = true;
        if (slot == n->depth) {
            switch_off(n, "it ended a command that it was not given");
            break;
        }
        if (status_of(&c)) {
            n->last_error = status_of(&c);
            error = -EIO;
        }
        end_command(n, slot, error);
    }
    if (some && !n->why) give_back(&n->io);
    return some;
}

/* Returns whether any command has been under way for longer than NVME_PATIENCE. */
static bool too_late(const struct nvme *n, u64 now) {
    for (u32 i = 0; i < n->depth; i++)
        if (n->slot[i].c && now - n->slot[i].began >= NVME_PATIENCE) return true;
    return false;
}

/* Ends the commands that the controller has completed, and switches the controller off if it is
 * broken. Returns whether any command has ended. Completions come first, because they lie in
 * memory. The controller's status is a register. It is read only now and then, because such a read
 * has to wait for the device. */
bool nvme_run(struct nvme *n, u64 now) {
    bool some = reap(n);
    u32 status;

    if (now < nvme_due(n)) return some;
    n->check = now + CHECK_NS;
    status = nvme_get(n, CSTS);
    if (status == GONE)
        switch_off(n, "it is gone");
    else if (status & CSTS_CFS || !(status & CSTS_RDY))
        switch_off(n, "it reports a fatal error");
    else if (too_late(n, now))
        switch_off(n, "it does not answer");
    return some || n->why;
}

/* Returns the time (ns) at which nvme_run() has to be called even without an interrupt; ~0 means
 * that no command is under way. While commands are under way we look once in CHECK_NS, even if the
 * controller does not interrupt. Otherwise a controller that has died would never be noticed. */
u64 nvme_due(const struct nvme *n) {
    if (!n->under_way || n->why) return ~0ull;
    return n->check;
}
