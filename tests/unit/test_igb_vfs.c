/* What the driver of the physical function of an 82576 grants to its virtual functions, and what
 * it refuses. A model plays the card. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include "igb_model.h"

#include "drivers/igb.c"
#include "drivers/igb_vfs.c"
#include "drivers/nic_ring.c"

static struct igb nic;
static struct igb_vfs vfs;
static u8 *memory;
static u64 now;

static u64 dma_addr(const void *p) { return (u64)p; }

static int begin_with(u32 nr) {
    model_init(nr);
    if (!memory) memory = aligned_alloc(4096, NIC_RING_MEMORY);
    memset(memory, 0, NIC_RING_MEMORY);
    now = NS_PER_S;
    assert_int_equal(igb_init(&nic, model_pf, memory, dma_addr), 0);
    igb_start(&nic);
    igb_vfs_init(&vfs, &nic);
    return 0;
}

static int setup(void **state) { return begin_with(3); }

/* What VF n writes to its mailbox, as a driver does that keeps the rules. */
static void ask_only(u32 n, const u32 *word, u32 nr) {
    vf_write(n, 0xc40, 4);
    for (u32 i = 0; i < nr; i++) vf_write(n, 0x800 + 4 * i, word[i]);
    vf_write(n, 0xc40, 1);
}

/* And what it is told: the first word of the answer; 0: there is none. */
static u32 answer_to(u32 n, u32 type, u32 second, u32 third) {
    u32 words[] = { type, second, third }, state, first = 0;

    ask_only(n, words, 3);
    igb_vfs_serve(&vfs, now += NS_PER_S);
    state = vf_read(n, 0xc40);
    if (state & 0x10) first = vf_read(n, 0x800);
    assert_true(!(state & 0x10) || state & 0x20); /* whoever answers has read */
    assert_false(state & 0xc);                    /* and has let go */
    vf_write(n, 0xc40, 2);
    return first;
}

static u64 mac_of(u32 n) {
    u8 mac[8] = { 0 };
    u64 v;

    igb_vfs_mac(&vfs, n, mac);
    memcpy(&v, mac, 8);
    return v;
}

#define RESET(n) assert_int_equal(answer_to(n, 1, 0, 0), 0x80000001)
#define YES      0xa0000000u
#define NO       0x60000000u

static u32 ra(u32 i) { return i < 16 ? 0x5400 + 8 * i : 0x54e0 + 8 * (i - 16); }

/* Address i is `mac` for these pools. */
static void assert_address(u32 i, u64 mac, u32 pools) {
    assert_int_equal(pf_peek(ra(i)), (u32)mac);
    assert_int_equal(pf_peek(ra(i) + 4), 0x80000000 | pools << 18 | (u32)(mac >> 32));
}

static void test_none(void **state) {
    begin_with(0);
    pf_poke(0xc80, 0xff00ff);
    assert_int_equal(igb_vfs_serve(&vfs, now), ~0ull);
    assert_int_equal(pf_peek(0x3500), 0); /* frames need not go from pool to pool */
    assert_true(igb_vfs_sends(&vfs, (const u8 *)"\x02\0\0\0\0\1", now));
    assert_int_equal(pf_peek(ra(8) + 4), 0);
}

static void test_reset(void **state) {
    u64 told;

    assert_int_equal(pf_peek(0xc90), 0x80);
    RESET(1);
    told = vf_read(1, 0x804) | (u64)vf_read(1, 0x808) << 32;
    assert_int_equal(told, mac_of(1));
    assert_int_equal(told & 3, 2); /* of one station, locally administered */
    assert_address(2, told, 1 << 1);
    assert_int_equal(pf_peek(0xc90), 0x82);
    assert_int_equal(pf_peek(0xc8c), 0x82);
    assert_int_equal(pf_peek(0x5ad4), 0x89000000);
    assert_int_equal(pf_peek(0x3500) & 0x80007f7f, 0x80007f7f); /* nobody can send as another */
    assert_true(pf_peek(0x100) & 1 << 18);                      /* VLANs are looked at */
    assert_address(0, 0x10100005452, 0x80);
    assert_int_equal(vfs.vf[1].resets, 1);
    for (u32 n = 0; n < 7; n++)
        for (u32 k = 0; k < n; k++) assert_int_not_equal(mac_of(n), mac_of(k));
}

static void test_not_ready(void **state) {
    for (u32 type = 2; type < 8; type++)
        assert_int_equal(answer_to(0, type, 0, 0), 0x40000000 | type);
    assert_int_equal(vfs.vf[0].refused, 6);
    assert_int_equal(pf_peek(0xc90), 0x80);
    assert_int_equal(pf_peek(0x5ad0), 0);
}

/* Each virtual function has an address of its own, which no other one has. */
static void test_mac(void **state) {
    u64 own;

    RESET(0);
    RESET(1);
    own = mac_of(0);
    assert_int_equal(answer_to(0, 2, (u32)own, (u32)(own >> 32)), YES | 2);
    own = mac_of(1);
    assert_int_equal(answer_to(0, 2, (u32)own, (u32)(own >> 32)), NO | 2);
    assert_int_equal(answer_to(0, 2, 0x00005452, 0x101), NO | 2);        /* the card's */
    assert_int_equal(answer_to(0, 2 | 2 << 16, 0x3412, 0x1111), NO | 2); /* one more */
    assert_address(1, mac_of(0), 1);
    assert_address(2, mac_of(1), 2);
    for (u32 i = 3; i < 24; i++) assert_int_equal(pf_peek(ra(i) + 4), 0);
}

static u32 vlan_entries(void) {
    u32 n = 0;

    for (u32 i = 0; i < 32; i++) n += pf_peek(0x5d00 + 4 * i) >> 31;
    return n;
}

static u32 pools_of_vlan(u32 vlan) {
    for (u32 i = 0; i < 32; i++) {
        u32 e = pf_peek(0x5d00 + 4 * i);

        if (e >> 31 && (e & 0xfff) == vlan) return e >> 12 & 0xff;
    }
    return 0;
}

static void test_vlan(void **state) {
    for (u32 n = 0; n < 3; n++) RESET(n);
    assert_int_equal(answer_to(0, 4 | 1 << 16, 100, 0), YES | 4);
    assert_int_equal(answer_to(1, 4 | 1 << 16, 100, 0), YES | 4);
    assert_int_equal(answer_to(1, 4 | 1 << 16, 100, 0), YES | 4); /* once more changes nothing */
    assert_int_equal(pools_of_vlan(100), 0x83);
    assert_int_equal(pf_peek(0x5600 + 4 * 3), 1 << 4);
    /* A function that is not in the VLAN cannot take it away from others. */
    assert_int_equal(answer_to(2, 4, 100, 0), YES | 4);
    assert_int_equal(pools_of_vlan(100), 0x83);
    assert_int_equal(answer_to(0, 4, 100, 0), YES | 4);
    assert_int_equal(pools_of_vlan(100), 0x82);
    for (u32 i = 1; i < 4; i++) assert_int_equal(answer_to(1, 4 | 1 << 16, 200 + i, 0), YES | 4);
    assert_int_equal(answer_to(1, 4 | 1 << 16, 300, 0), NO | 4); /* four each */
    assert_int_equal(answer_to(0, 4 | 1 << 16, 300, 0), YES | 4);
    for (u32 i = 0; i < 3; i++)
        assert_int_equal(answer_to(0, 4 | 1 << 16, (const u32[]){ 0, 4095, 100 + 4096 }[i], 0),
                         NO | 4);
    assert_int_equal(vlan_entries(), 5);
    RESET(1);
    assert_int_equal(vlan_entries(), 1);
    assert_int_equal(pf_peek(0x5600 + 4 * 3), 0);
    assert_int_equal(pools_of_vlan(300), 0x81);
}

static void test_multicast(void **state) {
    RESET(0);
    assert_int_equal(answer_to(0, 3 | 2 << 16, 0x11112222, 0), YES | 3);
    assert_int_equal(pf_peek(0x5ad0), 0x8b000000);
    assert_int_equal(answer_to(0, 3, 0, 0), YES | 3);
    assert_int_equal(pf_peek(0x5ad0), 0x89000000);
    assert_int_equal(answer_to(0, 6 | 2 << 16, 0, 0), NO | 6); /* all that passes by */
    assert_int_equal(answer_to(0, 5, 1522, 0), YES | 5);
    assert_int_equal(answer_to(0, 5, 9000, 0), NO | 5);
    assert_int_equal(answer_to(0, 0x1234, 0, 0), NO | 0x1234);
    assert_int_equal(answer_to(0, 0, 0, 0), NO);
    assert_int_equal(pf_peek(0x5ad0), 0x89000000);
}

/* A virtual function gets at most 32 answers in 100 ms. Others that ask less often do not wait. */
static void test_flood(void **state) {
    u32 word = 1;
    u64 due = 0;

    RESET(0);
    now += NS_PER_S;
    for (u32 i = 0; i < 1000; i++) {
        ask_only(0, &word, 1);
        due = igb_vfs_serve(&vfs, now += NS_PER_MS / 20);
    }
    assert_int_equal(model_answers[0], 1 + 32);
    assert_true(vfs.vf[0].held > 900);
    assert_in_range(due, now + 40 * NS_PER_MS, now + 100 * NS_PER_MS);
    assert_int_equal(pf_peek(0xc84) & 7, 6); /* and it does not interrupt meanwhile */
    ask_only(1, &word, 1);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(model_answers[1], 1);
    assert_int_equal(igb_vfs_serve(&vfs, due), ~0ull); /* what it asked last is not lost */
    assert_int_equal(model_answers[0], 1 + 33);
    assert_int_equal(pf_peek(0xc84) & 7, 7);
}

/* A virtual function that does not let go of its mailbox is not heard, and the physical function
 * does not wait for it. */
static void test_stuck(void **state) {
    u32 word = 1;

    for (int keeps = 0; keeps < 2; keeps++) {
        begin_with(3);
        model_keeps = keeps;
        vf_write(0, 0xc40, 4);
        vf_write(0, 0x800, 1);
        vf_write(0, 0xc40, 5);
        ask_only(1, &word, 1);
        assert_int_equal(igb_vfs_serve(&vfs, now), ~0ull);
        assert_int_equal(model_answers[0], 0);
        assert_int_equal(model_answers[1], 1);
        assert_int_equal(vfs.vf[0].stuck, 1);
        assert_int_equal(pf_peek(0xc80) & 1, 0);
        vf_write(0, 0xc40, 0);
        RESET(0);
    }
}

/* A function that was reset has nothing left of what it had, whatever has reset it. */
static void test_function_reset(void **state) {
    RESET(0);
    RESET(1);
    assert_int_equal(answer_to(0, 4 | 1 << 16, 100, 0), YES | 4);
    assert_int_equal(answer_to(0, 3 | 1 << 16, 100, 0), YES | 3);
    vf_reset(0);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(pf_peek(0xc88), 0);
    assert_int_equal(pf_peek(0xc90), 0x82);
    assert_int_equal(pf_peek(0xc8c), 0x82);
    assert_int_equal(pf_peek(ra(1) + 4), 0);
    assert_int_equal(pf_peek(0x5ad0), 0);
    assert_int_equal(vlan_entries(), 0);
    assert_address(2, mac_of(1), 2);
    assert_int_equal(answer_to(0, 4 | 1 << 16, 100, 0), 0x40000004);
}

static void ring_poke(u32 queue, u32 v) {
    for (u32 at = 0; at < 0x1c; at += 4) {
        pf_poke(0xc000 + 0x40 * queue + at, v);
        pf_poke(0xe000 + 0x40 * queue + at, v);
    }
    for (u32 at = 0x38; at < 0x40; at += 4) pf_poke(0xe000 + 0x40 * queue + at, v);
    pf_poke(0x1700 + 4 * (queue % 8), v);
}

static bool ring_is(u32 queue, u32 v) {
    for (u32 at = 0; at < 0x1c; at += 4)
        if (at != 0x0c && at != 0x14 && /* neither where nor how much */
            (pf_peek(0xc000 + 0x40 * queue + at) != v || pf_peek(0xe000 + 0x40 * queue + at) != v))
            return false;
    return pf_peek(0xe038 + 0x40 * queue) == v && pf_peek(0xe03c + 0x40 * queue) == v &&
           pf_peek(0x1700 + 4 * (queue % 8)) == v;
}

/* What the user of a function leaves behind is not visible to the next one. What the next one
 * writes is not lost. */
static void test_scrubbed(void **state) {
    u32 word = 1;

    RESET(0);
    for (u32 queue = 0; queue < 16; queue++) ring_poke(queue, 0x5ec4e7);
    for (u32 at = 0; at < 0x40; at += 4) vf_write(0, 0x800 + at, 0x5ec4e7);
    vf_write(1, 0x800, 0x5ec4e7);
    vf_reset(0);
    igb_vfs_serve(&vfs, now);
    for (u32 queue = 0; queue < 16; queue++) assert_int_equal(ring_is(queue, 0), queue % 8 == 0);
    for (u32 queue = 0; queue < 16; queue++)
        assert_int_equal(ring_is(queue, 0x5ec4e7), queue % 8 != 0);
    for (u32 at = 0; at < 0x40; at += 4) assert_int_equal(vf_read(0, 0x800 + at), 0);
    assert_int_equal(vf_read(1, 0x800), 0x5ec4e7);
    assert_int_equal(vf_read(0, 0xc40) & 0xc, 0);

    vf_reset(0);
    RESET(0); /* at once: its first message */
    vf_reset(0);
    vf_write(0, 0xc40, 4); /* or the half of it */
    vf_write(0, 0x800, word);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(vf_read(0, 0x800), word);
    vf_write(0, 0xc40, 1);
    igb_vfs_serve(&vfs, now += NS_PER_S);
    assert_int_equal(vf_read(0, 0x800), 0x80000001);
}

static void begin_anew(void) {
    u32 word = 1;

    vf_reset(0);
    ask_only(0, &word, 1);
}

/* A virtual function begins anew while the physical function looks which ones have been reset. What
 * it is told that it has must not be taken from it. */
static void test_begins_as_we_look(void **state) {
    RESET(0);
    model_then = begin_anew;
    for (u32 i = 0; i < 3; i++) igb_vfs_serve(&vfs, now += NS_PER_S);
    assert_int_equal(vf_read(0, 0x800), 0x80000001);
    assert_int_equal(pf_peek(0xc90), 0x81);
    assert_int_equal(vfs.vf[0].resets, 2);
}

/* The functions are switched off, and when they are on again there are fewer of them. */
static void test_fewer(void **state) {
    u32 word = 1;

    for (u32 n = 0; n < 3; n++) RESET(n);
    pf_poke(0x08, 2 | 1 << 14);
    ask_only(2, &word, 1);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(pf_peek(0xc90), 0x81);
    assert_int_equal(pf_peek(ra(3) + 4), 0);
    assert_int_equal(pf_peek(0xc80), 0);
    assert_int_equal(model_answers[2], 1);
    pf_poke(0x08, 2);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(pf_peek(0xc90), 0x80);
    pf_poke(0x08, 2 | 15 << 14); /* more than there can be */
    igb_vfs_serve(&vfs, now);
    assert_int_equal(vfs.nr, 7);
}

/* News of the link never take the place of an answer that was not read. */
static void test_link(void **state) {
    u32 word = 1;

    RESET(0);
    ask_only(1, &word, 1);
    igb_vfs_serve(&vfs, now += NS_PER_S); /* VF 1 has not read it yet; VF 2 has never begun */
    igb_vfs_link(&vfs);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(vf_read(0, 0x800), 0x20000100);
    assert_int_equal(vf_read(0, 0xc40) & 0x10, 0x10);
    assert_int_equal(vf_read(1, 0x800), 0x80000001);
    assert_int_equal(model_answers[2], 0);
    vf_write(1, 0xc40, 2);
    vf_write(1, 0xc40, 4); /* and now it writes */
    igb_vfs_serve(&vfs, now);
    assert_int_equal(vf_read(1, 0x800), 0x80000001);
    vf_write(1, 0xc40, 0);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(vf_read(1, 0x800), 0x20000100);
    assert_int_equal(model_answers[0] + model_answers[1], 4);
    igb_vfs_serve(&vfs, now);
    assert_int_equal(model_answers[0] + model_answers[1], 4);
    vf_write(0, 0xc40, 2);
    for (u32 i = 0; i < 33; i++) { /* the last has to wait, and it is still there */
        ask_only(0, &word, 1);
        igb_vfs_serve(&vfs, now + 100 * NS_PER_MS);
        vf_write(0, 0xc40, 2);
    }
    igb_vfs_link(&vfs);
    igb_vfs_serve(&vfs, now + 100 * NS_PER_MS);
    assert_int_equal(vf_read(0, 0x800), 1);
    assert_false(vf_read(0, 0xc40) & 8);
}

static const u8 *station(u32 i) {
    static u8 mac[6] = { 2, 0x99 };

    mac[4] = (u8)(i >> 8);
    mac[5] = (u8)i;
    return mac;
}

static u64 station_address(u32 i) {
    return 0x9902 | (u64)(i >> 8 & 255) << 32 | (u64)(i & 255) << 40;
}

/* The card knows the addresses that send through us. It knows 16 at a time: those from which frames
 * have come last. */
static void test_behind(void **state) {
    u8 its[6];

    RESET(0);
    for (u32 i = 0; i < 16; i++) assert_true(igb_vfs_sends(&vfs, station(i), now += NS_PER_MS));
    for (u32 i = 0; i < 16; i++) assert_address(8 + i, station_address(i), 0x80);
    assert_true(igb_vfs_sends(&vfs, station(0), now += NS_PER_MS));
    assert_true(igb_vfs_sends(&vfs, station(77), now += NS_PER_MS));
    assert_address(8, station_address(0), 0x80);
    assert_address(9, station_address(77), 0x80);
    /* The address of a group takes no filter. */
    assert_true(igb_vfs_sends(&vfs, (const u8 *)"\xff\xff\xff\xff\xff\xff", now));
    assert_address(10, station_address(2), 0x80);
    igb_vfs_mac(&vfs, 2, its);
    assert_false(igb_vfs_sends(&vfs, its, now)); /* or its frames would come to us too */
    assert_address(1, mac_of(0), 1);
    now += 301 * NS_PER_S;
    assert_true(igb_vfs_sends(&vfs, station(99), now));
    for (u32 i = 0, valid = 0; i < 16; i++) {
        valid += pf_peek(ra(8 + i) + 4) >> 31;
        assert_true(i < 15 || valid == 1);
    }
}

/* QEMU's card shows us our own broadcasts. When an address has moved to the other side, its frames
 * are received again. */
static void test_echo(void **state) {
    RESET(0);
    assert_true(igb_vfs_sends(&vfs, station(1), now));
    assert_true(igb_vfs_echo(&vfs, station(1), now + NS_PER_MS));
    assert_false(igb_vfs_echo(&vfs, station(2), now));
    assert_false(igb_vfs_echo(&vfs, station(1), now + 2 * NS_PER_S));
    assert_int_equal(pf_peek(ra(8) + 4), 0);
    assert_false(igb_vfs_echo(&vfs, station(1), now));
}

static void test_spoofed(void **state) {
    RESET(0);
    pf_poke(0x3554, 0x102); /* queues 1 and 8, which is of VF 0 */
    igb_vfs_count(&vfs);
    igb_vfs_count(&vfs);
    assert_int_equal(vfs.vf[0].spoofed, 1);
    assert_int_equal(vfs.vf[1].spoofed, 1);
    assert_int_equal(vfs.vf[2].spoofed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_none, setup),
        cmocka_unit_test_setup(test_reset, setup),
        cmocka_unit_test_setup(test_not_ready, setup),
        cmocka_unit_test_setup(test_mac, setup),
        cmocka_unit_test_setup(test_vlan, setup),
        cmocka_unit_test_setup(test_multicast, setup),
        cmocka_unit_test_setup(test_flood, setup),
        cmocka_unit_test_setup(test_stuck, setup),
        cmocka_unit_test_setup(test_function_reset, setup),
        cmocka_unit_test_setup(test_scrubbed, setup),
        cmocka_unit_test_setup(test_fewer, setup),
        cmocka_unit_test_setup(test_link, setup),
        cmocka_unit_test_setup(test_behind, setup),
        cmocka_unit_test_setup(test_echo, setup),
        cmocka_unit_test_setup(test_spoofed, setup),
        cmocka_unit_test_setup(test_begins_as_we_look, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
