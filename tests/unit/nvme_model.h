/* A model of an NVMe controller with a disk. It includes the driver, which reaches the registers
 * of the model through the functions below. For the one test that includes it. */
#ifndef TESTS_NVME_MODEL_H
#define TESTS_NVME_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>
#include <takt/io.h>

static u32 model_read(const volatile u8 *p);
static void model_write(volatile u8 *p, u32 v);

#define mmio_read32  model_read
#define mmio_write32 model_write
#include "drivers/nvme.c"

#define MODEL_OFFSET 0x70000000ull /* a device's address of what is at p */
#define MODEL_BLOCKS 4096u

struct model_command { /* 64 bytes */
    u32 dw0, nsid;
    u64 reserved, metadata, prp1, prp2;
    u32 dw10, dw11, dw12, dw13, dw14, dw15;
};

struct model_completion {
    u32 result, reserved;
    u16 sq_head, sq, id, status; /* phase in bit 0 */
};

struct model_queue {
    u64 sq, cq;
    u32 size, sq_head, sq_tail, cq_tail, cq_head;
    u16 phase;
    bool made;
};

/* What a test may ask of it; the rest is its own. */
static struct {
    bool dead;               /* all ones */
    bool stuck, never_ready; /* out of reset; after it was enabled */
    bool silent;             /* does nothing that it is told */
    u32 refuses;             /* admin opcode that fails; 0: none */
    void (*tweak)(u8 *page, u32 cns);
    u16 fail; /* status of the next I/O command */
    u32 stride, reads_to_ready;
    u64 cap;

    u32 cc, status, aqa, countdown;
    u64 asq, acq;
    struct model_queue q[2];
    u32 flushes, flushed_at; /* flushes; commands before the last of them */
    u32 done, kicks;         /* I/O commands; doorbells of them */
} model;

static u8 model_regs[0x4000];
static u8 model_disk[MODEL_BLOCKS * NVME_BLOCK];
static u8 *model_low, *model_high; /* of the memory that it may reach */
static u64 model_time;

static u64 model_dma(const void *p) { return (u64)p + MODEL_OFFSET; }
static u64 model_now(void) { return model_time += NS_PER_MS; }
static void model_relax(void) { model_time += 10 * NS_PER_MS; }

static const struct device_env model_env = { model_dma, model_now, model_relax };

static void *model_at(u64 addr, u64 len) {
    u8 *p = (u8 *)(addr - MODEL_OFFSET);

    assert_true(p >= model_low && p + len <= model_high);
    return p;
}

static void model_post(u32 queue, u16 sq, u16 id, u16 status) {
    struct model_queue *q = &model.q[queue];
    struct model_completion *c = model_at(q->cq + 16 * q->cq_tail, 16);

    /* The driver must not submit more than the queue has room for. */
    assert_int_not_equal((q->cq_tail + 1) % q->size, q->cq_head);
    c->sq = sq;
    c->sq_head = (u16)q->sq_head;
    c->id = id;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    c->status = (u16)(status << 1 | q->phase);
    q->cq_tail = (q->cq_tail + 1) % q->size;
    if (!q->cq_tail) q->phase ^= 1;
}

/* Byte `at` of a command's data, and how many are there up to the end of the page. */
static u8 *model_data(const struct model_command *c, u32 at, u32 bytes) {
    u32 page = at / 4096, pages = (bytes + 4095) / 4096;
    u64 addr;

    assert_int_equal(c->prp1 % 4096, MODEL_OFFSET % 4096);
    if (page == 0)
        addr = c->prp1;
    else if (pages == 2)
        addr = c->prp2;
    else {
        assert_true((c->prp2 & 4095) + 8 * (pages - 1) <= 4096); /* the list does not end within */
        addr = *(u64 *)model_at(c->prp2 + 8 * (page - 1), 8);
    }
    assert_int_equal(addr % 4096, 0);
    return model_at(addr, MIN(bytes - page * 4096, 4096u));
}

static void model_identify(u8 *page, u32 cns) {
    memset(page, 0, 4096);
    if (cns == 1) {
        memcpy(page + 4, "disk of a test\x01      ", 20);
        page[77] = 4;
        page[512] = 0x66;
        page[513] = 0x44;
        page[516] = 1;
        page[520] = 4;
    } else {
        *(u64 *)page = MODEL_BLOCKS;
        page[25] = 1;
        page[26] = 1;
        page[128 + 2] = 12;
        page[132 + 2] = 9;
    }
    if (model.tweak) model.tweak(page, cns);
}

static void model_admin(const struct model_command *c) {
    u32 op = c->dw0 & 0xff;
    struct model_queue *q = &model.q[1];
    u16 status = op == model.refuses ? 1 : 0;

    if (status)
        ;
    else if (op == 6) {
        assert_int_equal(c->nsid, c->dw10 == 1 ? 0 : 1);
        model_identify(model_at(c->prp1, 4096), c->dw10);
    } else if (op == 9) {
        assert_int_equal(c->dw10, 7);
    } else if (op == 5) {
        assert_int_equal(c->dw10 & 0xffff, 1);
        assert_int_equal(c->dw11, 3);
        *q = (struct model_queue){ .cq = c->prp1, .size = (c->dw10 >> 16) + 1, .phase = 1 };
        assert_true(q->size <= (model.cap & 0xffff) + 1);
    } else {
        assert_int_equal(op, 1);
        assert_true(q->cq && q->size == (c->dw10 >> 16) + 1);
        assert_int_equal(c->dw11, 1 << 16 | 1);
        q->sq = c->prp1;
        q->made = true;
    }
    model_post(0, 0, (u16)(c->dw0 >> 16), status);
}

static u16 model_io(const struct model_command *c) {
    u64 first = c->dw10 | (u64)c->dw11 << 32;
    u32 op = c->dw0 & 0xff, blocks = (c->dw12 & 0xffff) + 1, bytes = blocks * 512;
    u16 fail = model.fail;

    model.fail = 0;
    assert_int_equal(c->nsid, 1);
    assert_int_equal(c->dw0 & 0xff00, 0);
    if (fail) return fail;
    if (op == 0) {
        model.flushes++;
        model.flushed_at = model.done;
    } else if (op == 9) {
        assert_int_equal(c->dw11, 4);
        for (u32 i = 0; i <= (c->dw10 & 0xff); i++) {
            struct nvme_range *r = &((struct nvme_range *)model_data(c, 0, 4096))[i];

            assert_true(r->first <= MODEL_BLOCKS && r->blocks <= MODEL_BLOCKS - r->first);
            memset(model_disk + r->first * 512, 0, r->blocks * 512);
        }
    } else {
        assert_true(op == 1 || op == 2);
        if (first > MODEL_BLOCKS || blocks > MODEL_BLOCKS - first) return 0x80;
        for (u32 at = 0; at < bytes; at += 4096) {
            u8 *p = model_data(c, at, bytes);
            u32 n = MIN(bytes - at, 4096u);

            op == 1 ? memcpy(model_disk + first * 512 + at, p, n)
                    : memcpy(p, model_disk + first * 512 + at, n);
        }
    }
    return 0;
}

/* The next command of a queue, if it was told of one. */
static bool model_next(u32 queue, struct model_command *c) {
    struct model_queue *q = &model.q[queue];

    if (q->sq_head == q->sq_tail) return false;
    *c = *(struct model_command *)model_at(q->sq + 64 * q->sq_head, 64);
    q->sq_head = (q->sq_head + 1) % q->size;
    return true;
}

/* Does at most `most` I/O commands, in an order of its own. How many it did. */
static u32 model_work(u32 most) {
    struct model_command c[NVME_QUEUE];
    u32 n = 0;

    while (n < most && n < NVME_QUEUE && model_next(1, &c[n])) n++;
    for (u32 left = n; left; left--) {
        u32 i = (u32)rand() % left;
        u16 status = model_io(&c[i]);

        model.done++;
        model_post(1, 1, (u16)(c[i].dw0 >> 16), status);
        c[i] = c[left - 1];
    }
    return n;
}

static u32 model_read(const volatile u8 *p) {
    u32 at = (u32)(p - model_regs);

    if (model.dead) return ~0u;
    if (model.countdown && at == 0x1c && !--model.countdown) model.status ^= 1;
    switch (at) {
    case 0x00: return (u32)model.cap;
    case 0x04: return (u32)(model.cap >> 32);
    case 0x14: return model.cc;
    case 0x1c: return model.status;
    }
    fail_msg("a read of register %x", at);
    return 0;
}

static void model_enable(u32 v) {
    bool on = v & 1, was = model.cc & 1;

    model.cc = v;
    if (on == was) return;
    if (on) {
        assert_int_equal(v, 0x460001);
        assert_false(model.status & 1);
        model.q[0] = (struct model_queue){ .sq = model.asq,
                                           .cq = model.acq,
                                           .size = (model.aqa & 0xfff) + 1,
                                           .phase = 1,
                                           .made = true };
        assert_int_equal(model.aqa >> 16, model.aqa & 0xfff);
        memset(&model.q[1], 0, sizeof(model.q[1]));
    }
    if (on ? !model.never_ready : !model.stuck && model.status & 1)
        model.countdown = model.reads_to_ready;
}

static void model_doorbell(u32 at, u32 v) {
    u32 i = at / model.stride;
    struct model_queue *q = &model.q[i / 2];
    struct model_command c;

    assert_true(i < 4 && at % model.stride == 0 && v < q->size && model.cc & 1);
    if (i & 1) {
        q->cq_head = v;
        return;
    }
    assert_true(q->made);
    q->sq_tail = v;
    model.kicks += i / 2;
    while (!i && !model.silent && model_next(0, &c)) model_admin(&c);
}

static void model_write(volatile u8 *p, u32 v) {
    u32 at = (u32)(p - model_regs);

    assert_true(at < sizeof(model_regs) && at % 4 == 0);
    if (model.dead) return;
    if (at >= 0x1000) {
        model_doorbell(at - 0x1000, v);
        return;
    }
    switch (at) {
    case 0x14: model_enable(v); return;
    case 0x24: model.aqa = v; break;
    case 0x28: model.asq = (model.asq & ~0xffffffffull) | v; break;
    case 0x2c: model.asq = (u32)model.asq | (u64)v << 32; break;
    case 0x30: model.acq = (model.acq & ~0xffffffffull) | v; break;
    case 0x34: model.acq = (u32)model.acq | (u64)v << 32; break;
    default: fail_msg("a write of register %x", at);
    }
    assert_false(model.cc & 1); /* 3.1.8 to 3.1.10 */
}

/* As firmware may have left it: enabled. `memory`: what the driver has, NVME_MEMORY bytes, which
 * all that the device reaches begins with. */
static void model_begin(u8 *memory, u64 bytes) {
    memset(&model, 0, sizeof(model));
    memset(memory, 0, NVME_MEMORY);
    memset(model_disk, 0, sizeof(model_disk));
    model_low = memory;
    model_high = memory + bytes;
    model.cap = 2047 | 1ull << 24 | 1ull << 37;
    model.stride = 4;
    model.reads_to_ready = 3;
    model.cc = model.status = 1;
    model_time = 0;
}

#endif
