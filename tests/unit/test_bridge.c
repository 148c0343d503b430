/* The network bridge of the driver domain, its links, and the options that describe a link
 * (rate, delay, queue). Time is virtual, so rates and delays are checked exactly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "drivers/bridge.h"
#include "drivers/options.h"
#include "ring_rig.h"

/* ---- words ---- */

static void words(void **state) {
    static const struct option_kind known[] = { { "rate", OPTION_NUMBER },
                                                { "size", OPTION_BYTES },
                                                { "delay", OPTION_NS },
                                                { "loss", OPTION_SHARE },
                                                { "mac", OPTION_MAC },
                                                { "dev", OPTION_WORD },
                                                { NULL, 0 } };
    const char *o = "rate=20M delay=5ms  loss=0.1% size=16M mac=02:00:0a:ff:00:01";
    u8 mac[6];

    assert_int_equal(option_number(o, "rate", 1), 20000000);
    assert_int_equal(option_ns(o, "delay", 1), 5 * NS_PER_MS);
    assert_int_equal(option_bytes(o, "size", 1), 16 << 20);
    assert_int_equal(option_share(o, "loss", 1), 4294967);
    assert_true(option_mac(o, "mac", mac));
    assert_memory_equal(mac, "\x02\x00\x0a\xff\x00\x01", 6);
    assert_int_equal(option_number(o, "queue", 256), 256);
    assert_int_equal(option_number(o, "ate", 7), 7); /* the end of another key */
    assert_int_equal(option_ns("delay=1.5ms", "delay", 1), 1500000);
    assert_int_equal(option_share("loss=100%", "loss", 1), 0xffffffff);
    assert_null(option_unknown(o, known));
    assert_null(option_unknown("dev=nvme rate=1", known));
    assert_true(option_is("rate=1 dev=nvme", "dev", "nvme"));
    assert_true(option_is("dev=nvme size=1", "dev", "nvme"));
    assert_false(option_is("dev=nvmex", "dev", "nvme"));
    assert_false(option_is("dev=nvm", "dev", "nvme"));
    assert_false(option_is("adev=nvme", "dev", "nvme"));
    assert_null(option_unknown("", known));
    static const char *const bad[] = { "rat=1",
                                       "rate",
                                       "rate=",
                                       "rate=x",
                                       "rate=5X",
                                       "rate=-1",
                                       "delay=5",
                                       "delay=5mss",
                                       "delay=0.5ns",
                                       "loss=101%",
                                       "loss=1",
                                       "size=1.5.5M",
                                       "rate=20M queue",
                                       "dev=",
                                       "dev= rate=1",
                                       "mac=02:00:00:00:00",
                                       "mac=02:00:00:00:00:0g",
                                       "rate=99999999999999999999",
                                       "size=18446744073709551615G" };
    for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_non_null(option_unknown(bad[i], known));
        assert_int_equal(option_number(bad[i], "size", 3), 3);
    }
}

/* ---- links ---- */

static void rate_and_delay(void **state) {
    struct netem n;
    struct netem_params p = { .rate = 20000000, .delay = 5 * NS_PER_MS, .queue = 1000 };

    netem_init(&n, &p);
    for (u32 i = 1; i <= 100; i++) /* 1,250 bytes at 20 Mb/s are 500 us */
        assert_int_equal(netem_send(&n, 0, 1250), i * 500 * NS_PER_US + 5 * NS_PER_MS);
    /* A wire that was idle begins with the frame. */
    assert_int_equal(netem_send(&n, NS_PER_S, 1250), NS_PER_S + 500 * NS_PER_US + 5 * NS_PER_MS);
    assert_int_equal(n.held, 101);
}

static void queue_is_finite(void **state) {
    struct netem n;
    struct netem_params p = { .rate = 1000000, .queue = 10 };
    u32 full = 0;

    netem_init(&n, &p);
    for (u32 i = 0; i < 25; i++) full += netem_send(&n, 0, 100) == NETEM_FULL;
    assert_int_equal(full, 15);
    netem_arrived(&n);
    assert_int_not_equal(netem_send(&n, 0, 100), NETEM_FULL);
    assert_int_equal(netem_send(&n, 0, 100), NETEM_FULL);
}

/* The same seed loses the same frames, and as many as were asked for. The delays fill their range
 * evenly and keep the order. */
static void loss_and_jitter(void **state) {
    struct netem n, again;
    struct netem_params p = { .delay = 10 * NS_PER_MS,
                              .jitter = 4 * NS_PER_MS,
                              .loss = option_share("loss=1%", "loss", 0),
                              .queue = 10,
                              .seed = 42 };
    u64 sum = 0, least = ~0ull, most = 0, last = 0;
    u32 lost = 0, arrived = 0;

    netem_init(&n, &p);
    netem_init(&again, &p);
    for (u32 i = 0; i < 100000; i++) {
        u64 now = i * 100 * NS_PER_MS, due = netem_send(&n, now, 1000);

        assert_int_equal(due, netem_send(&again, now, 1000));
        if (due == NETEM_LOST) {
            lost++;
            continue;
        }
        netem_arrived(&n);
        netem_arrived(&again);
        arrived++;
        assert_true(due >= last);
        last = due;
        sum += due - now;
        least = MIN(least, due - now);
        most = MAX(most, due - now);
    }
    assert_true(lost > 900 && lost < 1100);
    assert_true(least >= 6 * NS_PER_MS && least < 6 * NS_PER_MS + 10000);
    assert_true(most <= 14 * NS_PER_MS && most > 14 * NS_PER_MS - 10000);
    assert_true(sum / arrived > 9950000 && sum / arrived < 10050000);
    p.seed++;
    netem_init(&n, &p);
    netem_init(&again, &(struct netem_params){
                           .delay = p.delay, .jitter = p.jitter, .queue = 10, .seed = 42 });
    assert_int_not_equal(netem_send(&n, 0, 1), netem_send(&again, 0, 1)); /* another seed */
    netem_init(&n, &(struct netem_params){ .delay = p.delay, .jitter = p.jitter, .queue = 1000 });
    last = 0;
    for (u32 i = 0; i < 1000; i++) { /* close together: in order all the same */
        u64 due = netem_send(&n, i, 64);

        assert_true(due >= last && due != NETEM_LOST);
        last = due;
    }
}

/* The frames that are reordered take the delay once more; the others keep their order. */
static void reordering(void **state) {
    struct netem n;
    struct netem_params p = { .rate = 10000000,
                              .delay = 5 * NS_PER_MS,
                              .reorder = option_share("reorder=10%", "reorder", 0),
                              .queue = 100000,
                              .seed = 7 };
    u64 last = 0;
    u32 later = 0;

    netem_init(&n, &p);
    for (u32 i = 1; i <= 10000; i++) { /* 125 bytes at 10 Mb/s are 100 us */
        u64 due = netem_send(&n, 0, 125), plain = i * 100 * NS_PER_US + p.delay;

        if (due == plain) {
            assert_true(due > last);
            last = due;
        } else {
            assert_int_equal(due, plain + p.delay);
            later++;
        }
    }
    assert_in_range(later, 900, 1100);
}

/* ---- the bridge ---- */

#define PORTS 4

static struct bridge bridge;
static struct test_port {
    struct bridge_port port;
    u32 got, room;
    u64 got_bytes;
    bool got_partial;
    u8 last[FRAME_MAX];
    u32 last_len;
} ports[PORTS];

static int deliver(struct bridge_port *p, const struct frame *f) {
    struct test_port *t = container_of(p, struct test_port, port);

    if (!t->room) return -ENOSPC;
    t->room--;
    t->got++;
    t->got_bytes += f->len;
    t->got_partial = f->partial;
    t->last_len = f->len;
    frame_copy(t->last, f);
    return 0;
}

static void set_up_with(const struct netem_params *up, const struct netem_params *down) {
    arena_reset();
    bridge_init(&bridge, &arena_env, 512);
    for (u32 i = 0; i < PORTS; i++) {
        ports[i] = (struct test_port){
            .port = { .mac = { 2, 0, 0, 0, 0, (u8)(i + 1) }, .deliver = deliver }, .room = 1000000
        };
        if (i == PORTS - 1) memset(ports[i].port.mac, 0, 6); /* the way out: others are behind it */
        assert_int_equal(bridge_add(&bridge, &ports[i].port, up, down), 0);
    }
}

static void set_up(void) {
    struct netem_params none = { .queue = 16 };

    set_up_with(&none, &none);
}

static u8 body[FRAME_MAX];

static struct frame frame_of(const u8 *to, const u8 *from, u32 len) {
    static struct vring_seg seg;
    struct frame f = { .len = len, .seg = &seg, .nr = len > FRAME_HEAD };

    seg = (struct vring_seg){ body, len - FRAME_HEAD };
    memcpy(f.head, to, 6);
    memcpy(f.head + 6, from, 6);
    f.head[12] = 8;
    return f;
}

static void send_from(u32 port, const u8 *to, const u8 *from, u32 len, u64 now) {
    struct frame f = frame_of(to, from, len);

    bridge_input(&bridge, &ports[port].port, &f, now);
}

static const u8 all[6] = { 255, 255, 255, 255, 255, 255 };

static u8 *mac(u32 port) { return ports[port].port.mac; }

static void got(u32 a, u32 b, u32 c, u32 d) {
    assert_int_equal(ports[0].got, a);
    assert_int_equal(ports[1].got, b);
    assert_int_equal(ports[2].got, c);
    assert_int_equal(ports[3].got, d);
}

static void learning(void **state) {
    static const u8 far[6] = { 4, 1, 2, 3, 4, 5 };

    set_up();
    send_from(0, all, mac(0), 60, 0);
    got(0, 1, 1, 1);
    send_from(1, mac(0), mac(1), 60, 0); /* known, as it is the device's own */
    got(1, 1, 1, 1);
    send_from(0, far, mac(0), 60, 0); /* nobody knows */
    got(1, 2, 2, 2);
    send_from(3, mac(0), far, 60, 0);
    got(2, 2, 2, 2);
    send_from(0, far, mac(0), 60, 1); /* now it is known */
    got(2, 2, 2, 3);
    send_from(0, far, mac(0), 60, MAC_AGE + 1); /* and forgotten */
    got(2, 3, 3, 4);
    send_from(2, far, far, 60, 2); /* it has moved */
    send_from(0, far, mac(0), 60, 3);
    got(2, 3, 4, 4);
    send_from(2, far, far, 60, 4); /* to whom it came from: nowhere */
    got(2, 3, 4, 4);
    bridge_remove(&bridge, &ports[2].port);
    send_from(0, far, mac(0), 60, 5);
    got(2, 4, 4, 5);
}

static void content(void **state) {
    set_up();
    for (u32 i = 0; i < sizeof(body); i++) body[i] = (u8)(i * 7);
    for (u32 len = FRAME_HEAD; len <= FRAME_MAX; len++) {
        send_from(0, mac(1), mac(0), len, 0);
        assert_int_equal(ports[1].last_len, len);
        assert_memory_equal(ports[1].last + 6, mac(0), 6);
        assert_memory_equal(ports[1].last + FRAME_HEAD, body, len - FRAME_HEAD);
    }
    send_from(0, mac(1), mac(0), FRAME_MAX + 1, 0);
    send_from(0, mac(1), all, 60, 0); /* from a group */
    assert_int_equal(ports[0].port.counts.bad, 2);
    assert_int_equal(ports[1].got, FRAME_MAX - FRAME_HEAD + 1);
}

static void nobody_takes_anothers_address(void **state) {
    set_up();
    send_from(3, all, mac(0), 60, 0);
    send_from(1, all, mac(0), 60, 0);
    got(0, 0, 0, 0);
    assert_int_equal(ports[1].port.counts.spoofed + ports[3].port.counts.spoofed, 2);
    send_from(2, mac(0), mac(2), 60, 0);
    got(1, 0, 0, 0);
    struct test_port twin = { .port = { .mac = { 2, 0, 0, 0, 0, 1 }, .deliver = deliver } };
    assert_int_equal(
        bridge_add(&bridge, &twin.port, &ports[0].port.up.netem.p, &ports[0].port.up.netem.p),
        -EEXIST);
}

/* A port that shows a new address with each frame gets its share of the table and no more. */
static void address_flood(void **state) {
    u8 from[6] = { 2, 9 }, far[6] = { 4, 1, 2, 3, 4, 5 };

    set_up();
    for (u32 i = 0; i < 10000; i++) {
        memcpy(from + 2, &i, 4);
        send_from(1, mac(0), from, 60, i);
    }
    assert_int_equal(ports[1].port.macs, PORT_MACS);
    send_from(3, mac(0), far, 60, 20000);
    ports[1].got = ports[2].got = ports[3].got = 0;
    send_from(0, far, mac(0), 60, 20001);
    assert_int_equal(ports[3].got, 1);
    assert_int_equal(ports[1].got, 0);
}

static void full_ring_drops(void **state) {
    set_up();
    ports[1].room = 5;
    for (u32 i = 0; i < 12; i++) send_from(0, mac(1), mac(0), 60, 0);
    assert_int_equal(ports[1].got, 5);
    assert_int_equal(ports[1].port.counts.ring_full, 7);
    assert_int_equal(ports[1].port.counts.out_frames, 5);
    assert_int_equal(ports[0].port.counts.in_frames, 12);
}

static void queue_down_drops(void **state) {
    /* The slow link needs 1 us for each byte. */
    struct netem_params none = { .queue = 16 }, slow = { .rate = 8000000, .queue = 16 };

    set_up_with(&none, &slow);
    for (u32 i = 0; i < 40; i++) send_from(0, mac(1), mac(0), 1000, 0);
    assert_int_equal(ports[1].port.counts.queue_full, 24);
    assert_int_equal(ports[1].port.counts.queue_most, 16);
    got(0, 0, 0, 0);
    for (u32 i = 1; i <= 16; i++) {
        assert_int_equal(bridge_run(&bridge, i * 1000000 - 1), i * 1000000);
        assert_int_equal(ports[1].got, i - 1);
        bridge_run(&bridge, i * 1000000);
        assert_int_equal(ports[1].got, i);
    }
    assert_true(bridge_run(&bridge, NS_PER_S) == ~0ull);
}

/* The link up lets the device send as fast as the link is, and not faster. Nothing is lost by
 * that. */
static void rate_up_pushes_back(void **state) {
    struct netem_params none = { .queue = 16 },
                        up = { .rate = 8000000, .delay = 3 * NS_PER_MS, .queue = 16 };
    u64 now = 0;
    u32 sent = 0;

    set_up_with(&up, &none);
    while (sent < 1000) {
        u64 until = bridge_wait(&bridge, &ports[0].port, now);

        if (until) {
            assert_true(until > now);
            now = until;
            bridge_run(&bridge, now);
            continue;
        }
        send_from(0, mac(1), mac(0), 1000, now);
        sent++;
        /* The link holds the frames of 3 ms that are under way, and those of at most 1 ms ahead. */
        assert_true(ports[0].port.up.netem.held <= 5);
    }
    bridge_run(&bridge, 1000 * NS_PER_MS + 3 * NS_PER_MS - 1);
    assert_int_equal(ports[1].got, 999);
    bridge_run(&bridge, 1000 * NS_PER_MS + 3 * NS_PER_MS);
    assert_int_equal(ports[1].got, 1000);
    assert_true(ports[0].port.counts.backpressure > 100);
    assert_int_equal(ports[0].port.counts.queue_full, 0);
}

static bool has_room(struct bridge_port *p) {
    return container_of(p, struct test_port, port)->room > 0;
}

/* Flow control: port 1 has room for 3 frames. 16 more wait on its link, and 16 on the link of
 * their sender, which then has to wait, and asks again after the pause. Nothing is lost, and the
 * order is kept. */
static void a_port_without_room_pauses_its_senders(void **state) {
    struct netem_params none = { .queue = 16 }, up = { .delay = NS_PER_US, .queue = 16 };
    u64 now = 0, until = 0, pauses = 0;
    u32 sent = 0;

    set_up_with(&none, &none);
    bridge_remove(&bridge, &ports[0].port);
    assert_int_equal(bridge_add(&bridge, &ports[0].port, &up, &none), 0);
    ports[1].port.pause = 20 * NS_PER_US;
    ports[1].port.has_room = has_room;
    ports[1].room = 3;
    while (sent < 100) {
        until = bridge_wait(&bridge, &ports[0].port, now);
        if (!until) {
            send_from(0, mac(1), mac(0), 100 + sent++, now);
            continue;
        }
        assert_true(until > now);
        now = until;
        until = bridge_run(&bridge, now);
        assert_true(until >= now + 20 * NS_PER_US || ports[1].room);
        if (++pauses == 5) { /* by now all places are taken */
            assert_int_equal(sent, 3 + 16 + 16);
            assert_int_equal(until, now + 20 * NS_PER_US);
        }
        if (pauses >= 5) ports[1].room = 1;
    }
    ports[1].room = 100;
    for (u32 i = 1; i <= 3; i++) bridge_run(&bridge, now + i * 20 * NS_PER_US);
    got(0, 100, 0, 0);
    assert_int_equal(ports[1].last_len, 199);
    assert_int_equal(ports[1].port.counts.ring_full + ports[1].port.counts.queue_full, 0);
    assert_true(bridge_run(&bridge, now + NS_PER_MS) == ~0ull);
}

/* A frame to all does not wait for a port without room, and neither do frames of other senders to
 * other ports. */
static void a_pause_holds_up_no_others(void **state) {
    struct netem_params none = { .queue = 2 }, up = { .delay = NS_PER_US, .queue = 16 };

    set_up_with(&none, &none);
    bridge_remove(&bridge, &ports[0].port);
    assert_int_equal(bridge_add(&bridge, &ports[0].port, &up, &none), 0);
    ports[1].port.pause = 20 * NS_PER_US;
    ports[1].port.has_room = has_room;
    ports[1].room = 0;
    send_from(0, all, mac(0), 100, 0);
    for (u32 i = 0; i < 3; i++) send_from(0, mac(1), mac(0), 100, 0);
    send_from(0, mac(2), mac(0), 100, 0); /* behind one that waits */
    bridge_run(&bridge, NS_PER_US);
    got(0, 0, 1, 1);
    send_from(3, mac(2), mac(3), 100, NS_PER_US);
    got(0, 0, 2, 1);
    ports[1].room = 10;
    bridge_run(&bridge, 2 * NS_PER_US);
    bridge_run(&bridge, 40 * NS_PER_US);
    got(0, 4, 3, 1);
}

/* Frames that are reordered arrive later than frames that were sent after them. */
static void frames_overtake_others(void **state) {
    struct netem_params none = { .queue = 16 },
                        link = { .delay = NS_PER_MS, .reorder = 1u << 31, .queue = 64, .seed = 3 };
    u32 turns = 0, last = 0;

    set_up_with(&none, &link);
    for (u32 i = 0; i < 40; i++) send_from(0, mac(1), mac(0), 100 + i, i * 100 * NS_PER_US);
    for (u64 now = NS_PER_MS; now <= 10 * NS_PER_MS; now += 50 * NS_PER_US) {
        bridge_run(&bridge, now);
        turns += ports[1].last_len < last;
        last = ports[1].last_len;
    }
    assert_int_equal(ports[1].got, 40);
    assert_in_range(turns, 3, 30);
    assert_in_range(ports[1].port.counts.reordered, 3, 39);
    assert_true(bridge_run(&bridge, NS_PER_S) == ~0ull);
}

/* Tests both links of a way, and a port that is removed while frames are on them. */
static void way_and_removal(void **state) {
    struct netem_params link = { .delay = 5 * NS_PER_MS, .queue = 64 };

    set_up_with(&link, &link);
    send_from(0, all, mac(0), 60, 100);
    bridge_run(&bridge, 5 * NS_PER_MS + 100);
    got(0, 0, 0, 0);
    bridge_remove(&bridge, &ports[2].port);
    bridge_run(&bridge, 10 * NS_PER_MS + 99);
    got(0, 0, 0, 0);
    bridge_run(&bridge, 10 * NS_PER_MS + 100);
    got(0, 1, 0, 1);
    for (u32 i = 0; i < 30; i++) send_from(0, mac(1), mac(0), 60, 20 * NS_PER_MS);
    bridge_remove(&bridge, &ports[0].port);
    assert_true(bridge_run(&bridge, NS_PER_S) == ~0ull);
    got(0, 1, 0, 1);
    u32 n = 0;
    for (struct frame_buf *f = bridge.free; f; f = f->next) n++;
    assert_int_equal(n, bridge.buffers); /* none is lost */
}

static void memory_is_finite(void **state) {
    struct netem_params link = { .delay = 5 * NS_PER_MS, .queue = 10000 }, none = { .queue = 16 };

    set_up_with(&none, &link);
    for (u32 i = 0; i < 1000; i++) send_from(0, mac(1), mac(0), 60, 0);
    assert_true(bridge.buffers <= 512);
    assert_int_equal(ports[1].port.counts.no_memory, 1000 - bridge.buffers);
    bridge_run(&bridge, NS_PER_S);
    assert_int_equal(ports[1].got, bridge.buffers);
}

/* A sum of all ones gives 0, which TCP keeps, and which UDP writes as all ones (RFC 768). */
static void checksum_of_zero(void **state) {
    u8 tcp[20] = { 0xff, 0xff }, udp[8] = { 0xff, 0xff };

    frame_checksum(tcp, sizeof(tcp), 0, 16);
    assert_int_equal(tcp[16] << 8 | tcp[17], 0);
    frame_checksum(udp, sizeof(udp), 0, 6);
    assert_int_equal(udp[6] << 8 | udp[7], 0xffff);
}

static void checksums(void **state) {
    struct netem_params link = { .delay = NS_PER_MS, .queue = 16 }, none = { .queue = 16 };
    /* The checksum of this UDP packet is easy to know: all bytes are zeros, except the last one. */
    struct frame f;

    for (u32 held = 0; held < 2; held++)
        for (u32 len = 60; len < 62; len++) {
            set_up_with(&none, held ? &link : &none);
            ports[1].port.takes_partial = true;
            memset(body, 0, sizeof(body));
            body[len - FRAME_HEAD - 1] = 0x12;
            f = frame_of(all, mac(0), len);
            f.partial = true;
            f.csum_start = 34;
            f.csum_offset = 6;
            bridge_input(&bridge, &ports[0].port, &f, 0);
            bridge_run(&bridge, NS_PER_S);
            got(0, 1, 1, 1);
            assert_true(ports[1].got_partial);
            assert_int_equal(ports[1].last[40], 0);
            assert_false(ports[2].got_partial);
            /* The checksum is 0x0012 or 0x1200, inverted: it depends on whether the length is
             * odd. */
            assert_int_equal(ports[2].last[40] << 8 | ports[2].last[41], len % 2 ? 0xedff : 0xffed);
            assert_memory_equal(ports[2].last, ports[3].last, len);
        }
    f = frame_of(all, mac(0), 60);
    f.partial = true;
    f.csum_start = 50;
    f.csum_offset = 9;
    bridge_input(&bridge, &ports[0].port, &f, 0);
    assert_int_equal(ports[0].port.counts.bad, 1);
    got(0, 1, 1, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(rate_and_delay),
        cmocka_unit_test(queue_is_finite),
        cmocka_unit_test(loss_and_jitter),
        cmocka_unit_test(reordering),
        cmocka_unit_test(learning),
        cmocka_unit_test(content),
        cmocka_unit_test(nobody_takes_anothers_address),
        cmocka_unit_test(address_flood),
        cmocka_unit_test(full_ring_drops),
        cmocka_unit_test(queue_down_drops),
        cmocka_unit_test(rate_up_pushes_back),
        cmocka_unit_test(a_port_without_room_pauses_its_senders),
        cmocka_unit_test(a_pause_holds_up_no_others),
        cmocka_unit_test(frames_overtake_others),
        cmocka_unit_test(way_and_removal),
        cmocka_unit_test(memory_is_finite),
        cmocka_unit_test(checksums),
        cmocka_unit_test(checksum_of_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
