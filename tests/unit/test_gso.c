/* Large frames: which of them the bridge takes, how they are cut, and where they go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "drivers/gso.h"
#include "ring_rig.h"

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, URG = 32, CWR = 128 };

static u8 bytes[GSO_FRAME_MAX + 1]; /* a frame, in one piece */
static u8 head[GSO_HEAD_MAX];
static struct vring_seg pieces[VRING_MAX_SEGS];
static struct frame large;

static u32 get(const u8 *p, u32 n) {
    u32 v = 0;

    for (; n--; p++) v = v << 8 | *p;
    return v;
}

static void put(u8 *p, u32 n, u32 v) {
    for (; n--; v >>= 8) p[n] = (u8)v;
}

static u16 sum(const u8 *p, u32 n, u32 start) {
    for (u32 i = 0; i + 1 < n; i += 2) start += get(p + i, 2);
    if (n & 1) start += (u32)p[n - 1] << 8;
    while (start >> 16) start = (start & 0xffff) + (start >> 16);
    return (u16)start;
}

/* Puts what follows the Ethernet header into `n` pieces. */
static void divide(u32 n) {
    u32 left = large.len - FRAME_HEAD;

    for (u32 i = 0; i < n; i++) {
        u32 len = i + 1 == n ? left : (large.len - FRAME_HEAD) / n;

        pieces[i] = (struct vring_seg){ bytes + large.len - left, len };
        left -= len;
    }
    large.seg = pieces;
    large.nr = n;
}

/* Makes a large frame with `data` bytes, IP and TCP headers of so many bytes, in `n` pieces. */
static void make(u32 data, u32 ip_head, u32 tcp_head, u16 size, bool tagged, u32 n) {
    u32 ip = FRAME_HEAD + (tagged ? 4 : 0), tcp = ip + ip_head;

    memset(bytes, 0, sizeof(bytes));
    for (u32 i = 0; i < 12; i++) bytes[i] = (u8)(2 * i);
    if (tagged) put(bytes + 12, 4, 0x81000007);
    put(bytes + ip - 2, 2, 0x0800);
    bytes[ip] = (u8)(0x40 | ip_head / 4);
    put(bytes + ip + 2, 2, ip_head + tcp_head + data);
    put(bytes + ip + 4, 2, 0xfffe);
    put(bytes + ip + 8, 2, 64 << 8 | 6);
    put(bytes + ip + 12, 4, 0x0a000001);
    put(bytes + ip + 16, 4, 0xc0a80102);
    put(bytes + tcp, 4, 1000 << 16 | 80);
    put(bytes + tcp + 4, 4, 0xffffff00);
    bytes[tcp + 12] = (u8)(tcp_head / 4 << 4);
    bytes[tcp + 13] = ACK | PSH | FIN | CWR;
    for (u32 i = 0; i < data; i++) bytes[tcp + tcp_head + i] = (u8)(i * 7 + i / 256);
    large = (struct frame){ .len = tcp + tcp_head + data,
                            .partial = true,
                            .csum_start = (u16)tcp,
                            .csum_offset = 16,
                            .gso_size = size };
    memcpy(large.head, bytes, FRAME_HEAD);
    divide(n);
}

/* Compares frame number `i` of `n` with the large frame, and its checksums with those of RFC 1071.
 */
static void expect_part(const struct frame *f, u32 i, u32 n) {
    static u8 got[FRAME_MAX];
    u32 tcp = large.csum_start, ip = FRAME_HEAD, data, pseudo;
    u8 flags = ACK;

    if (get(bytes + 12, 2) == 0x8100) ip += 4;
    data = MIN((u32)large.gso_size, large.len - large.gso_head - i * large.gso_size);
    assert_int_equal(f->len, large.gso_head + data);
    assert_int_equal(f->gso_size, 0);
    assert_true(f->partial && f->csum_start == tcp && f->csum_offset == 16);
    frame_copy(got, f);
    assert_memory_equal(got, bytes, ip);
    assert_memory_equal(got + large.gso_head, bytes + large.gso_head + i * large.gso_size, data);
    assert_int_equal(get(got + ip + 2, 2), f->len - ip);
    assert_int_equal(get(got + ip + 4, 2), (0xfffe + i) & 0xffff);
    assert_int_equal(sum(got + ip, tcp - ip, 0), 0xffff);
    assert_int_equal(get(got + tcp + 4, 4), 0xffffff00 + i * large.gso_size);
    if (i == 0) flags |= CWR;
    if (i + 1 == n) flags |= PSH | FIN;
    assert_int_equal(got[tcp + 13], flags);
    pseudo = get(got + ip + 12, 2) + get(got + ip + 14, 2) + get(got + ip + 16, 2) +
             get(got + ip + 18, 2) + 6 + f->len - tcp;
    assert_int_equal(get(got + tcp + 16, 2), sum(NULL, 0, pseudo));
    frame_checksum(got, f->len, f->csum_start, f->csum_offset);
    assert_int_equal(sum(got + tcp, f->len - tcp, pseudo), 0xffff);
}

static void cuts_exactly(void **state) {
    static const struct {
        u32 data, ip, tcp;
        u16 size;
        bool tagged;
        u32 pieces;
    } all[] = { { 14600, 20, 20, 1460, false, 1 }, { 14601, 20, 32, 1448, false, 19 },
                { 65000, 60, 60, 1380, true, 64 }, { 1461, 20, 20, 1460, false, 3 },
                { 1460, 20, 20, 1460, true, 2 },   { 1000, 24, 40, 1, false, 5 },
                { 65495, 20, 20, 64, false, 17 } };
    struct frame *f;
    struct gso g;

    for (u32 k = 0; k < ARRAY_SIZE(all); k++) {
        u32 n = (all[k].data + all[k].size - 1) / all[k].size, i = 0;

        make(all[k].data, all[k].ip, all[k].tcp, all[k].size, all[k].tagged, all[k].pieces);
        assert_true(gso_check(&large, head));
        assert_int_equal(large.gso_head, large.csum_start + all[k].tcp);
        assert_memory_equal(head, bytes, large.gso_head);
        assert_int_equal(gso_cuts(&large), n);
        gso_begin(&g, &large);
        for (; (f = gso_next(&g)); i++) expect_part(f, i, n);
        assert_int_equal(i, n);
    }
}

/* Each rule alone: the frame is in order but for one thing. */
static void what_breaks_the_rules_is_refused(void **state) {
    for (u32 what = 0; what < 20; what++) {
        make(8000, 20, 20, 1460, false, 4);
        u8 *ip = bytes + 14, *tcp = bytes + 34;

        switch (what) {
        case 0: large.gso_size = 0; break;
        case 1: large.gso_size = 7; break;              /* 1,143 frames */
        case 2: large.gso_size = 1465; break;           /* a frame of 1,519 bytes */
        case 3: put(large.head + 12, 2, 0x86dd); break; /* IPv6 */
        case 4: ip[0] = 0x65; break;
        case 5: ip[0] = 0x44; break; /* a header of 16 bytes */
        case 6: ip[0] = 0x4f; break; /* of 60: TCP's is then elsewhere */
        case 7: ip[9] = 17; break;
        case 8: ip[6] = 0x20; break; /* more fragments */
        case 9: ip[7] = 1; break;
        case 10: put(ip + 2, 2, 8039); break; /* the length is not the frame's */
        case 11: put(ip + 2, 2, 0); break;
        case 12: tcp[12] = 0x40; break;
        case 13: tcp[13] |= SYN; break;
        case 14: tcp[13] |= RST; break;
        case 15: tcp[13] |= URG; break;
        case 16: large.partial = false; break;
        case 17: large.csum_start = 33; break;
        case 18: large.csum_offset = 6; break;
        case 19: put(large.head + 12, 2, 0x8100); break; /* a tag without IP behind it */
        }
        assert_false(gso_check(&large, head));
    }
    /* Headers that end where the frame ends, or behind it. */
    for (u32 len = 15; len < 14 + 20 + 60; len++) {
        make(80, 20, 60, 1460, false, 1);
        large.len = len;
        put(bytes + 16, 2, len - 14);
        divide(1);
        assert_false(gso_check(&large, head));
    }
    make(1, 20, 60, 1400, false, 1);
    assert_true(gso_check(&large, head));
    make(0, 20, 60, 1400, false, 1);
    assert_false(gso_check(&large, head));
}

/* ---- where they go ---- */

#define PORTS 4

static struct bridge bridge;
static struct test_port {
    struct bridge_port port;
    u32 frames, larges, room; /* room: for so many bytes */
    u64 data;
} ports[PORTS];

static int deliver(struct bridge_port *p, const struct frame *f) {
    struct test_port *t = container_of(p, struct test_port, port);

    if (t->room < f->len) return -ENOSPC;
    t->room -= f->len;
    assert_true(f->gso_size ? p->takes_large : f->len <= FRAME_MAX);
    t->frames++;
    t->larges += f->gso_size != 0;
    t->data += f->len - large.gso_head;
    return 0;
}

static void set_up(u64 rate) {
    struct netem_params none = { .queue = 16 }, link = { .queue = 16, .rate = rate }, *params;

    arena_reset();
    bridge_init(&bridge, &arena_env, 512);
    for (u32 i = 0; i < PORTS; i++) {
        ports[i] = (struct test_port){ .port = { .mac = { 2, 0, 0, 0, 0, (u8)(i + 1) },
                                                 .deliver = deliver,
                                                 .takes_partial = i != 3,
                                                 .takes_large = i < 2 },
                                       .room = 1u << 30 };
        params = &none;
        if (i == 2) params = &link;
        assert_int_equal(bridge_add(&bridge, &ports[i].port, params, params), 0);
    }
}

static void send_to(u32 from, u32 to) {
    make(14600, 20, 20, 1460, false, 6);
    memcpy(large.head, ports[to].port.mac, 6);
    memcpy(large.head + 6, ports[from].port.mac, 6);
    assert_true(gso_check(&large, head));
    bridge_input(&bridge, &ports[from].port, &large, 0);
}

static void whole_or_cut(void **state) {
    set_up(0);
    send_to(0, 1);
    assert_true(ports[1].frames == 1 && ports[1].larges == 1 && bridge.cut == 0);
    assert_int_equal(ports[1].port.counts.out_large, 1);
    assert_int_equal(ports[0].port.counts.in_large, 1);
    send_to(0, 2); /* takes no large frames */
    assert_true(ports[2].frames == 10 && !ports[2].larges && bridge.cut == 10);
    send_to(0, 3); /* not even open checksums: a card */
    assert_int_equal(ports[3].frames, 10);
    for (u32 i = 1; i < PORTS; i++) assert_int_equal(ports[i].data, 14600);
}

/* To all ports it would have to be cut for each of them, so it is dropped. */
static void to_nobody_known(void **state) {
    static const u8 nobody[6] = { 2, 0, 0, 0, 0, 77 }, all[6] = { 255, 255, 255, 255, 255, 255 };

    set_up(0);
    for (u32 i = 0; i < 2; i++) {
        make(14600, 20, 20, 1460, false, 6);
        memcpy(large.head, i ? all : nobody, 6);
        memcpy(large.head + 6, ports[0].port.mac, 6);
        assert_true(gso_check(&large, head));
        bridge_input(&bridge, &ports[0].port, &large, 0);
        assert_int_equal(ports[0].port.counts.bad, i + 1);
    }
    for (u32 i = 1; i < PORTS; i++) assert_int_equal(ports[i].frames, 0);
    assert_int_equal(bridge.cut, 0);
}

/* A ring with room for a part of the frame gets that part. Otherwise it would never get one,
 * however often TCP sends it again. */
static void a_small_ring(void **state) {
    set_up(0);
    ports[1].room = 4 * 1514 + 10;
    send_to(0, 1);
    assert_true(ports[1].frames == 4 && !ports[1].larges);
    assert_int_equal(ports[1].port.counts.ring_full, 6);
}

/* An emulated link carries single frames; its queue and its rate are meant for these. */
static void on_a_link(void **state) {
    set_up(100000000);
    send_to(0, 2);
    assert_int_equal(ports[2].port.down.netem.held, 10);
    send_to(0, 2);
    assert_int_equal(ports[2].port.counts.queue_full, 4);
    bridge_run(&bridge, NS_PER_S);
    assert_true(ports[2].frames == 16 && !ports[2].larges);
    send_to(2, 0); /* offload is not offered there */
    bridge_run(&bridge, NS_PER_S);
    assert_int_equal(ports[2].port.counts.bad, 1);
    assert_int_equal(ports[0].frames, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_exactly), cmocka_unit_test(what_breaks_the_rules_is_refused),
        cmocka_unit_test(whole_or_cut), cmocka_unit_test(to_nobody_known),
        cmocka_unit_test(a_small_ring), cmocka_unit_test(on_a_link),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
