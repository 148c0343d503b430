/* A model of an 82576 network card with its virtual functions: their mailboxes, filters and
 * interrupts (data sheet 2.63, chapter 8). Drivers that are included after this reach it by
 * mmio_read32 and mmio_write32, the physical function at model_pf and virtual function n at
 * model_vf[n]. Registers of queues keep what was written to them and do nothing. */
#ifndef TESTS_UNIT_IGB_MODEL_H
#define TESTS_UNIT_IGB_MODEL_H

#include <string.h>
#include <takt/io.h>
#include <takt/types.h>

#define MODEL_VFS 7

static u8 model_pf[0x20000], model_vf[MODEL_VFS][0x4000];
static u32 model_in_reset;       /* so many reads of STATUS more */
static u64 model_answers[8];     /* messages that the physical function sent to each */
static void (*model_then)(void); /* happens once, after the next read of who asks or was reset */
/* Whether a virtual function keeps the mailbox although it is told to let go, as the one of QEMU
 * does. */
static bool model_keeps;

static u32 pf_peek(u32 at) { return *(u32 *)(model_pf + at); }

static void pf_poke(u32 at, u32 v) { *(u32 *)(model_pf + at) = v; }

static u32 vf_peek(u32 n, u32 at) { return *(u32 *)(model_vf[n] + at); }

/* Sets or clears bits in the mailbox registers of both sides, because they share the bits that
 * say who uses it. */
static void mailbox_bits(u32 n, u32 pf, u32 vf, bool on) {
    u32 p = pf_peek(0xc00 + 4 * n), v = pf_peek(0xc40 + 4 * n);

    if (on) {
        p |= pf;
        v |= vf;
    } else {
        p &= ~pf;
        v &= ~vf;
    }
    pf_poke(0xc00 + 4 * n, p);
    pf_poke(0xc40 + 4 * n, v);
}

static void pf_mailbox(u32 n, u32 v) {
    u32 vfu = pf_peek(0xc00 + 4 * n) & 4;

    if (v & 1) model_answers[n]++;
    mailbox_bits(n, 0, (v & 1) << 4 | (v & 2) << 4, true);
    if (!(v & 8) || !vfu) mailbox_bits(n, 8, 8, v & 8);
    if (v & 0x10) {
        if (!model_keeps) mailbox_bits(n, 4, 4, false);
        pf_poke(0xc80, pf_peek(0xc80) & ~(0x10001u << n));
    }
}

static void vf_mailbox(u32 n, u32 v) {
    u32 pfu = pf_peek(0xc40 + 4 * n) & 8;

    if (v & 3) {
        pf_poke(0xc80, pf_peek(0xc80) | (v & 1) << n | (v & 2) << 15 << n);
        pf_poke(0xc0, pf_peek(0xc0) | 0x100);
    }
    if (!(v & 4) || !pfu) mailbox_bits(n, 4, 4, v & 4);
}

static void vf_reset(u32 n) {
    pf_poke(0xc88, pf_peek(0xc88) | 1u << n);
    pf_poke(0xc8c, pf_peek(0xc8c) & ~(1u << n));
    pf_poke(0xc90, pf_peek(0xc90) & ~(1u << n));
    pf_poke(0xc0, pf_peek(0xc0) | 0x100);
    memset(model_vf[n], 0, sizeof(model_vf[n]));
}

/* ---- what drivers do ---- */

static u32 pf_read(u32 at) {
    u32 v = pf_peek(at);

    if (at == 0x08 && model_in_reset && --model_in_reset == 0) pf_poke(0, pf_peek(0) & ~(1u << 26));
    if (at == 0xc0 || at == 0x3554) pf_poke(at, 0);
    if ((at == 0xc80 || at == 0xc88) && model_then) {
        void (*then)(void) = model_then;

        model_then = NULL;
        then();
    }
    return v;
}

static void pf_write(u32 at, u32 v) {
    if (at >= 0xc00 && at < 0xc20)
        pf_mailbox((at - 0xc00) / 4, v);
    else if (at == 0xc80 || at == 0xc88)
        pf_poke(at, pf_peek(at) & ~v);
    else
        pf_poke(at, v);
    if (at == 0 && v & 1u << 26) model_in_reset = 10;
    for (u32 n = 0; n < 8 && at == 0x18 && v & 1u << 14; n++) /* PFRSTD */
        pf_poke(0xc40 + 4 * n, (pf_peek(0xc40 + 4 * n) & ~0x40u) | 0x80);
}

static u32 vf_read(u32 n, u32 at) {
    u32 v;

    if (at == 0x08) return pf_peek(0x08);
    if (at >= 0x800 && at < 0x840) return pf_peek(at + 0x40 * n);
    if (at != 0xc40) return vf_peek(n, at);
    v = pf_peek(0xc40 + 4 * n);
    pf_poke(0xc40 + 4 * n, v & ~0xb0u);
    return v;
}

static void vf_write(u32 n, u32 at, u32 v) {
    if (at == 0 && v & 1u << 26)
        vf_reset(n);
    else if (at >= 0x800 && at < 0x840)
        pf_poke(at + 0x40 * n, v);
    else if (at == 0xc40)
        vf_mailbox(n, v);
    else
        *(u32 *)(model_vf[n] + at) = v;
}

static inline u32 model_read(const volatile u8 *p) {
    const u8 *q = (const u8 *)(u64)p;

    if (q >= model_pf && q < model_pf + sizeof(model_pf)) return pf_read((u32)(q - model_pf));
    return vf_read((u32)((u64)(q - model_vf[0]) / sizeof(model_vf[0])),
                   (u32)(q - model_vf[0]) % sizeof(model_vf[0]));
}

static inline void model_write(volatile u8 *p, u32 v) {
    u8 *q = (u8 *)(u64)p;

    if (q >= model_pf && q < model_pf + sizeof(model_pf))
        pf_write((u32)(q - model_pf), v);
    else
        vf_write((u32)((u64)(q - model_vf[0]) / sizeof(model_vf[0])),
                 (u32)(q - model_vf[0]) % sizeof(model_vf[0]), v);
}

/* As after reset, with `vfs` virtual functions on. */
static inline void model_init(u32 vfs) {
    memset(model_pf, 0, sizeof(model_pf));
    memset(model_vf, 0, sizeof(model_vf));
    memset(model_answers, 0, sizeof(model_answers));
    model_in_reset = 0;
    model_keeps = false;
    model_then = NULL;
    pf_poke(0x08, 2 | vfs << 14);
    pf_poke(0x5400, 0x00005452);
    pf_poke(0x5404, 0x80000101); /* 52:54:00:00:01:01 */
    for (u32 n = 0; n < 8; n++) pf_poke(0xc40 + 4 * n, 0x40);
    pf_poke(0xc8c, 0xff);
    pf_poke(0xc90, 0xff);
}

#define mmio_read32  model_read
#define mmio_write32 model_write

#endif
