/* Both drivers of an 82576 network card. First the one of the physical function: the virtual
 * functions, which guests have, write to their mailboxes what the input says, six bytes for each
 * change. The driver must give each its own address and pool, and never more, or a guest could read
 * the frames of another. Then the driver of a virtual function: its mailbox answers what the input
 * says. It must end in time, and no frame that it delivers may be longer than its buffer. */
#include <stdlib.h>

#include "../unit/igb_model.h"

#include "drivers/igb.c"
#include "drivers/igb_vfs.c"
#include "drivers/igbvf.c"
#include "drivers/nic_ring.c"

static struct igb pf;
static struct igb_vfs vfs;
static struct igbvf vf;
static u8 *memory;
static u64 now;
static const u8 *at, *end;

static u64 dma_addr(const void *p) { return (u64)p; }

static u32 number(const u8 *p) {
    return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

#define CHECK(what)                                                                                \
    if (!(what)) abort()

static void check_address(u32 i, u32 n) {
    u32 low = pf_peek(0x5400 + 8 * i), high = pf_peek(0x5404 + 8 * i);
    u8 mac[8] = { 0 };

    if (!(high >> 31)) return;
    igb_vfs_mac(&vfs, n, mac);
    CHECK(low == number(mac) && (high & 0xffff) == number(mac + 4) &&
          (high >> 18 & 0xff) == 1u << n);
}

/* The register that holds the upper half of receive address number 8 + i. From number 16 on they
 * are elsewhere (82576 data sheet 8.10.6). */
static u32 address_high(u32 i) {
    if (i < 8) return 0x5444 + 8 * i;
    return 0x54e4 + 8 * (i - 8);
}

static void check(u64 answers) {
    u32 on = pf_peek(0xc90), vlans = 0;

    CHECK(pf_peek(0x5400) == 0x5452 && pf_peek(0x5404) == 0x82000101);
    CHECK(on & 0x80 && pf_peek(0x5aec) == 0x9b000000);
    for (u32 n = 0; n < IGB_VFS; n++) {
        check_address(1 + n, n);
        CHECK((pf_peek(0x5ad0 + 4 * n) & ~0x8b000000u) == 0);
        CHECK(vfs.vf[n].ready || !(on & 1u << n));
        CHECK(vfs.vf[n].vlans <= IGB_VF_VLANS);
        vlans += vfs.vf[n].vlans;
    }
    for (u32 i = 0; i < 16; i++) {
        u32 high = pf_peek(address_high(i));

        CHECK(!(high >> 31) || (high >> 18 & 0xff) == 0x80);
    }
    CHECK(!vfs.nr || (pf_peek(0x3500) & 0x80007f7f) == 0x80007f7f);
    for (u32 i = 0; i < 32; i++) {
        u32 e = pf_peek(0x5d00 + 4 * i);

        CHECK(!e || (e & 0x80080000) == 0x80080000);
        vlans -= (u32)__builtin_popcount(e >> 12 & 0x7f);
    }
    CHECK(vlans == 0);
    CHECK(answers <= 2 * (32 + 1) * IGB_VFS * (1 + (now - NS_PER_S) / (100 * NS_PER_MS)));
}

static void change(const u8 *p) {
    u32 n = p[1] % MODEL_VFS, value = number(p + 2);
    u8 mac[6];

    switch (*p & 7) {
    case 0: vf_write(n, 0xc40, value); break;
    case 1: vf_write(n, 0x800 + (*p >> 3 & 15) * 4, value); break;
    case 2: /* a whole request */
        vf_write(n, 0xc40, 4);
        vf_write(n, 0x800, (*p >> 3 & 7) | (value & 0x3ff) << 16);
        vf_write(n, 0x804, value >> 8 & 0x1fff);
        vf_write(n, 0xc40, 1);
        break;
    case 3: vf_reset(n); break;
    case 4: pf_poke(0x08, 2 | (value & 15) << 14); break;
    case 5: igb_vfs_link(&vfs); break;
    case 6:
        igb_vfs_mac(&vfs, n, mac);
        if (value & 1) memcpy(mac + 2, &value, 4);
        CHECK(igb_vfs_sends(&vfs, mac, now) || !(value & 1) || vfs.nr);
        igb_vfs_echo(&vfs, mac, now + (value >> 8 & 3) * NS_PER_S);
        break;
    case 7: now += value % (20 * NS_PER_MS); break;
    }
}

static void physical(void) {
    u64 answers = 0;

    pf = (struct igb){ .regs = model_pf }; /* without the reset, which takes long */
    CHECK(igb_read_mac(&pf));
    set_filters(&pf);
    igb_vfs_init(&vfs, &pf);
    for (; end - at >= 6; at += 6) {
        change(at);
        if (at[0] & 0x80) igb_vfs_serve(&vfs, now);
        answers = 0;
        for (u32 n = 0; n < 8; n++) answers += model_answers[n];
        check(answers);
    }
}

static u64 time_now(void) { return now; }

/* The other side: a word of the mailbox, or what is said of it. */
static void replies(void) {
    now += NS_PER_MS;
    if (end - at < 6) return;
    if (at[0] & 1)
        pf_poke(0x800 + (at[1] & 3) * 4, number(at + 2));
    else
        pf_write(0xc00, number(at + 2));
    at += 6;
}

static void virtual(void) {
    static const struct device_env env = { dma_addr, time_now, replies };
    const void *frame;
    u64 began = now;
    u32 len;

    pf_poke(0xc40, *at & 0xff);
    if (igbvf_init(&vf, model_vf[0], memory, &env)) {
        CHECK(vf.why && now - began < 4 * IGBVF_PATIENCE);
        return;
    }
    CHECK(!(vf.mac[0] & 1) && now - began < 4 * IGBVF_PATIENCE);
    memcpy((void *)(u64)vf.ring.rx, at, MIN((u64)(end - at), NIC_RING * 16ull));
    for (u32 i = 0; i < 2 * NIC_RING && (len = igbvf_receive(&vf, &frame)); i++) {
        CHECK(len <= NIC_FRAME && (const u8 *)frame >= vf.ring.rx_buffer);
        CHECK((const u8 *)frame + len <= vf.ring.rx_buffer + NIC_RING * NIC_BUFFER);
        nic_receive_next(&vf.ring);
        nic_receive_refill(&vf.ring);
    }
    memcpy((void *)(u64)vf.ring.tx, at, MIN((u64)(end - at), NIC_RING * 16ull));
    for (u32 i = 0; i < 2 * NIC_RING && nic_send_buffer(&vf.ring); i++) nic_send_put(&vf.ring, i);
    nic_send_kick(&vf.ring);
    igbvf_check(&vf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    if (!memory) memory = aligned_alloc(4096, NIC_RING_MEMORY);
    memset(memory, 0, 2 * NIC_RING * 16);
    now = NS_PER_S;
    model_init(3);
    model_keeps = *data & 2;
    at = data + 1;
    end = data + size;
    if (*data & 1)
        physical();
    else if (end > at)
        virtual();
    return 0;
}
