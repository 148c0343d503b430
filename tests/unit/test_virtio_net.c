/* Drivers of virtio network devices and their back ends, joined by the bridge, in one process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "device_rig.h"
#include "drivers/back_net.h"
#include "drivers/virtio_net.h"

#define NICS 3

static struct bridge bridge;
static struct nic {
    struct rig_device rig;
    struct back_net back;
    struct virtio_net net;
} nic[NICS];
static u64 now;

static void start(struct rig_device *r) {
    struct nic *c = container_of(r, struct nic, rig);

    c->back.dev.window = arena_window;
    back_net_start(&c->back, &r->front);
}

static void stop(struct rig_device *r) { back_net_stop(&container_of(r, struct nic, rig)->back); }

static int bring_up(u32 i, const char *options, u64 hidden, u32 buffers, u32 size) {
    struct takt_back info = { .handle = i, .vm = i, .type = VIRTIO_ID_NET };
    struct nic *c = &nic[i];

    strcpy(info.options, options);
    rig_init(&c->rig, i, start, stop);
    c->rig.hidden = hidden;
    assert_int_equal(back_net_init(&c->back, &bridge, &rig_calls, &info, &c->rig.offer), 0);
    return virtio_net_start(&c->net, &c->rig.dev, buffers, size);
}

static void set_up_with(const char *options, u64 hidden, u32 buffers, u32 size) {
    arena_reset();
    now = 0;
    bridge_init(&bridge, &arena_env, 256);
    for (u32 i = 0; i < NICS; i++) assert_int_equal(bring_up(i, options, hidden, buffers, size), 0);
}

/* Does one round of the driver domain. */
static void serve(void) {
    bridge_run(&bridge, now);
    for (u32 i = 0; i < NICS; i++)
        while (back_net_serve(&nic[i].back, now) == 0)
            ;
    for (u32 i = 0; i < NICS; i++) back_net_flush(&nic[i].back);
}

static u8 frame[2048];

static int send_csum(u32 from, u32 to, u32 len, u32 pieces, u16 start, u16 offset) {
    struct virtio_net_seg seg[VIRTIO_NET_SEGS];

    memcpy(frame, nic[to].net.mac, 6);
    memcpy(frame + 6, nic[from].net.mac, 6);
    u8 *copy = arena + ARENA_SIZE / 2 + (nic[from].net.tx_frames % 512) * 2048;
    memcpy(copy, frame, len);
    for (u32 i = 0, at = 0; i < pieces; i++) {
        u32 n = i + 1 == pieces ? len - at : len / pieces;

        seg[i] = (struct virtio_net_seg){ copy + at, n };
        at += n;
    }
    return virtio_net_send(&nic[from].net, seg, pieces, start, offset, copy);
}

static int send_to(u32 from, u32 to, u32 len, u32 pieces) {
    return send_csum(from, to, len, pieces, 0, 0);
}

/* Takes a frame and compares it with the one that was sent last. */
static bool receive(u32 at, struct virtio_net_frame *f, u32 len) {
    u32 done = 0;

    if (!virtio_net_receive(&nic[at].net, f)) return false;
    assert_int_equal(f->len, len);
    for (u32 i = 0; i < f->nr; i++) {
        assert_memory_equal(f->part[i].data, frame + done, f->part[i].len);
        done += f->part[i].len;
        virtio_net_recycle(&nic[at].net, f->part[i].buffer);
    }
    assert_int_equal(done, len);
    return true;
}

static u32 reclaim(u32 i) {
    void *token;
    u32 n = 0;

    while (virtio_net_sent(&nic[i].net, &token)) n++;
    return n;
}

static void start_and_config(void **state) {
    arena_reset();
    bridge_init(&bridge, &arena_env, 256);
    assert_int_equal(bring_up(0, "mac=02:00:00:0a:0b:0c", 0, 64, 2048), 0);
    assert_memory_equal(nic[0].net.mac, "\x02\0\0\x0a\x0b\x0c", 6);
    assert_int_equal(nic[0].net.mtu, 1500);
    assert_int_equal(bring_up(1, "", 0, 64, 2048), 0);
    assert_memory_equal(nic[1].net.mac, "\x02Tk\0\1\0", 6);
    assert_int_equal(bring_up(2, "", VIRTIO_NET_F_MAC, 64, 2048), 0);
    assert_memory_equal(nic[2].net.mac, "\0\0\0\0\0\0", 6);
}

static void all_lengths(void **state) {
    static const u64 hide[] = { 0, VIRTIO_NET_F_MRG_RXBUF, BIT(VIRTIO_F_INDIRECT),
                                BIT(VIRTIO_F_EVENT_IDX) };
    struct virtio_net_frame f;

    for (u32 i = 0; i < sizeof(frame); i++) frame[i] = (u8)(i * 13 + i / 256);
    for (u32 h = 0; h < ARRAY_SIZE(hide); h++) {
        set_up_with("", hide[h], 64, 2048);
        for (u32 len = 14; len <= FRAME_MAX; len++) {
            assert_int_equal(send_to(0, 1, len, 1 + len % MIN(VIRTIO_NET_SEGS, 5u)), 0);
            virtio_net_flush(&nic[0].net);
            serve();
            assert_true(receive(1, &f, len));
            assert_int_equal(f.nr, 1);
            virtio_net_flush(&nic[1].net);
            assert_int_equal(reclaim(0), 1);
        }
        assert_false(receive(2, &f, 0));
        assert_int_equal(nic[1].net.rx_frames, FRAME_MAX - 13);
    }
}

/* The buffers have 320 bytes, so a long frame takes five of them. If that was not negotiated, the
 * frame is dropped. */
static void mergeable(void **state) {
    struct virtio_net_frame f;

    for (u32 merge = 0; merge < 2; merge++) {
        set_up_with("", merge ? 0 : VIRTIO_NET_F_MRG_RXBUF, 64, 320);
        for (u32 len = 14; len <= FRAME_MAX; len += 7) {
            send_to(0, 1, len, 2);
            virtio_net_flush(&nic[0].net);
            serve();
            assert_int_equal(receive(1, &f, len), merge || len + 12 <= 320);
            if (merge) assert_int_equal(f.nr, (len + 12 + 319) / 320);
            virtio_net_flush(&nic[1].net);
            reclaim(0);
        }
        assert_true(nic[1].back.dev.live);
        assert_int_equal(nic[1].back.port.counts.ring_full == 0, merge);
    }
}

/* A batch of 32 frames: one notification, one interrupt, and none for what was sent. */
static void batch(void **state) {
    struct virtio_net_frame f;

    set_up_with("", 0, 128, 2048);
    serve();
    for (u32 round = 0; round < 3000; round++) {
        u32 kicks = nic[0].rig.kicks, irqs = nic[1].rig.irqs;

        assert_false(virtio_net_listen(&nic[1].net));
        for (u32 i = 0; i < 32; i++) assert_int_equal(send_to(0, 1, 60, 1), 0);
        virtio_net_flush(&nic[0].net);
        serve();
        for (u32 i = 0; i < 32; i++) {
            assert_true(receive(1, &f, 60));
            if (i % 8 == 7) virtio_net_flush(&nic[1].net);
        }
        assert_int_equal(reclaim(0), 32);
        assert_int_equal(nic[0].rig.kicks - kicks, 1);
        assert_int_equal(nic[1].rig.irqs - irqs, 1);
    }
    assert_true(nic[0].rig.irqs <= 2); /* as indexes go round */
    assert_true(nic[1].rig.kicks <= 4);
}

static void full_rings(void **state) {
    struct virtio_net_frame f;
    u32 sent = 0;

    set_up_with("", 0, 16, 2048);
    while (send_to(0, 1, 60, 1) == 0) sent++;
    assert_int_equal(sent, nic[0].net.tx.size);
    assert_int_equal(nic[0].net.tx_full, 1);
    virtio_net_flush(&nic[0].net);
    assert_false(virtio_net_listen_sent(&nic[0].net));
    serve();
    assert_int_equal(nic[0].rig.irqs, 1); /* when half of them were done, at the end of a batch */
    assert_int_equal(reclaim(0), sent);
    assert_int_equal(nic[1].back.port.counts.ring_full, sent - 16);
    for (u32 i = 0; i < 16; i++) assert_true(receive(1, &f, 60));
    assert_false(receive(1, &f, 60));
    virtio_net_flush(&nic[1].net);
    send_to(0, 1, 60, 1);
    virtio_net_flush(&nic[0].net);
    serve();
    assert_true(receive(1, &f, 60)); /* and it goes on */
}

static void checksum_offload(void **state) {
    struct virtio_net_frame f;

    set_up_with("", 0, 64, 2048);
    memset(frame, 0, sizeof(frame));
    assert_int_equal(send_csum(0, 1, 60, 1, 34, 6), 0);
    virtio_net_flush(&nic[0].net);
    serve();
    assert_true(receive(1, &f, 60));
    assert_true(f.partial && f.csum_ok);
    assert_int_equal(f.csum_start, 34);
    assert_int_equal(f.csum_offset, 6);
    set_up_with("", VIRTIO_NET_F_GUEST_CSUM, 64, 2048); /* the bridge fills it in */
    assert_int_equal(send_csum(0, 1, 60, 1, 34, 6), 0);
    virtio_net_flush(&nic[0].net);
    serve();
    frame[40] = frame[41] = 0xff;
    assert_true(receive(1, &f, 60));
    assert_false(f.partial);
    set_up_with("", VIRTIO_NET_F_CSUM, 64, 2048);
    assert_int_equal(send_csum(0, 1, 60, 1, 34, 6), -EINVAL);
}

static void emulated_link(void **state) {
    struct virtio_net_frame f;

    set_up_with("rate=20M delay=5ms queue=64", 0, 64, 2048);
    for (u32 i = 0; i < 50; i++) send_to(0, 1, 1250, 1); /* 500 us each, twice */
    virtio_net_flush(&nic[0].net);
    serve();
    assert_true(reclaim(0) < 10); /* the rest waits in the ring for the wire */
    for (u32 got = 0; now < 50 * NS_PER_MS; now += 100 * NS_PER_US) {
        serve();
        while (receive(1, &f, 1250)) {
            got++;
            virtio_net_flush(&nic[1].net);
            assert_true(now >= 10 * NS_PER_MS + 500 * NS_PER_US * (got + 1));
            assert_true(now < 10 * NS_PER_MS + 500 * NS_PER_US * (got + 1) + 200 * NS_PER_US);
        }
    }
    assert_int_equal(nic[1].net.rx_frames, 50);
}

/* ---- large frames ---- */

#define LARGE_HEAD 54u

/* Makes a large frame of TCP with so many bytes of data, from device `from` to device `to`. Returns
 * it; it is in the arena. */
static u8 *make_large(u32 from, u32 to, u32 data) {
    u8 *p = arena + ARENA_SIZE / 2; /* with room before it */
    u32 ip = LARGE_HEAD - FRAME_HEAD + data;

    memset(p, 0, LARGE_HEAD);
    memcpy(p, nic[to].net.mac, 6);
    memcpy(p + 6, nic[from].net.mac, 6);
    p[12] = 8;
    p[14] = 0x45;
    p[16] = (u8)(ip >> 8);
    p[17] = (u8)ip;
    p[23] = 6;
    p[46] = 0x50;
    for (u32 i = 0; i < data; i++) p[LARGE_HEAD + i] = (u8)(i * 3 + i / 256);
    return p;
}

static int send_large(u32 from, u32 to, u32 data) {
    u8 *p = make_large(from, to, data);
    struct virtio_net_seg seg[3] = { { p, LARGE_HEAD },
                                     { p + LARGE_HEAD, data / 3 },
                                     { p + LARGE_HEAD + data / 3, data - data / 3 } };
    struct virtio_net_out out = { .seg = seg,
                                  .nr = 3,
                                  .csum_start = 34,
                                  .csum_offset = 16,
                                  .cut = 1460,
                                  .room = data % 2,
                                  .token = p };
    int error = virtio_net_send_out(&nic[from].net, &out);

    virtio_net_flush(&nic[from].net);
    serve();
    reclaim(from);
    return error;
}

/* Receives frames until `data` bytes of the stream have come, and compares them. Returns how many
 * frames that were. */
static u32 receive_data(u32 at, u32 data) {
    const u8 *want = arena + ARENA_SIZE / 2 + LARGE_HEAD;
    struct virtio_net_frame f;
    u32 frames = 0;

    for (u32 done = 0; done < data; frames++) {
        u32 head = LARGE_HEAD;

        assert_true(virtio_net_receive(&nic[at].net, &f));
        assert_true(f.partial && f.csum_start == 34 && f.csum_offset == 16);
        for (u32 i = 0; i < f.nr; i++) {
            assert_memory_equal(f.part[i].data + head, want + done, f.part[i].len - head);
            done += f.part[i].len - head;
            head = 0;
            virtio_net_recycle(&nic[at].net, f.part[i].buffer);
        }
        virtio_net_flush(&nic[at].net);
    }
    assert_false(virtio_net_receive(&nic[at].net, &f));
    return frames;
}

static void large_frames(void **state) {
    static const u32 lengths[] = { 1461, 2048 - 12 - 54, 2048 - 12 - 53, 40000, 65481 };

    set_up_with("offload=yes", 0, 128, 2048);
    for (u32 i = 0; i < ARRAY_SIZE(lengths); i++) {
        assert_int_equal(send_large(0, 1, lengths[i]), 0);
        assert_int_equal(receive_data(1, lengths[i]), 1);
    }
    assert_int_equal(send_large(0, 1, 1000), 0); /* one frame is not large */
    assert_int_equal(receive_data(1, 1000), 1);
    assert_int_equal(nic[1].back.port.counts.out_large, ARRAY_SIZE(lengths));
    /* Buffers of 1,024 bytes: 48 of them do not hold every frame, so the driver takes none. */
    set_up_with("offload=yes", 0, 128, 1024);
    assert_int_equal(send_large(0, 1, 40000), 0);
    assert_int_equal(receive_data(1, 40000), 28);
    set_up_with("offload=yes", VIRTIO_NET_F_MRG_RXBUF, 128, 2048);
    assert_int_equal(send_large(0, 1, 40000), 0);
    assert_int_equal(receive_data(1, 40000), 28);
    /* A ring that is too small for it gets a part. */
    set_up_with("offload=yes", 0, 16, 2048);
    assert_int_equal(send_large(0, 1, 40000), 0);
    assert_int_equal(receive_data(1, 16 * 1460), 16);
    assert_int_equal(nic[1].back.port.counts.ring_full, 12);
    set_up_with("", 0, 64, 2048);
    assert_int_equal(send_large(0, 1, 40000), -EINVAL);
    set_up_with("offload=yes rate=1M", 0, 64, 2048); /* not over an emulated link */
    assert_int_equal(send_large(0, 1, 40000), -EINVAL);
}

/* A large frame counts as many in the batch, so that it does not lengthen the turn of a VM. */
static void large_frames_take_turns(void **state) {
    set_up_with("offload=yes", 0, 256, 2048);
    for (u32 i = 0; i < 20; i++) {
        u8 *p = make_large(0, 1, 65000);
        struct virtio_net_seg seg = { p, LARGE_HEAD + 65000 };

        virtio_net_send_out(&nic[0].net, &(struct virtio_net_out){ .seg = &seg,
                                                                   .nr = 1,
                                                                   .csum_start = 34,
                                                                   .csum_offset = 16,
                                                                   .cut = 1460,
                                                                   .token = p });
    }
    virtio_net_flush(&nic[0].net);
    assert_int_equal(back_net_serve(&nic[0].back, 0), 0); /* there is more */
    assert_int_equal(nic[0].back.port.counts.in_frames, 8);
    nic[1].back.port.takes_large = false; /* now each is cut into 45 */
    assert_int_equal(back_net_serve(&nic[0].back, 0), 0);
    assert_int_equal(nic[0].back.port.counts.in_frames, 10);
}

/* ---- drivers that break the rules ---- */

static struct vring_desc *tx_desc(u32 len, u16 flags) {
    struct vring_front *r = &nic[0].net.tx;
    struct vring_sg sg = { arena_gpa(arena + ARENA_SIZE / 2), len };
    u16 head = r->free;

    vring_front_add(r, &sg, 1, 0, frame);
    r->desc[head].flags |= flags;
    return &r->desc[head];
}

static void bad_frames_are_dropped(void **state) {
    static const u32 lens[] = { 1, 11, 12, 25, 12 + FRAME_MAX + 1, 65537 + 12, 100000 };

    set_up_with("", BIT(VIRTIO_F_INDIRECT), 64, 2048);
    for (u32 i = 0; i < ARRAY_SIZE(lens); i++) tx_desc(lens[i], 0);
    struct virtio_net_hdr *h = (void *)(arena + ARENA_SIZE / 2);
    virtio_net_flush(&nic[0].net);
    serve();
    h->gso_type = 1;
    tx_desc(100, 0);
    virtio_net_flush(&nic[0].net);
    serve();
    *h = (struct virtio_net_hdr){ .flags = VIRTIO_NET_HDR_F_CSUM,
                                  .csum_start = 0xffff,
                                  .csum_offset = 0xffff };
    tx_desc(100, 0);
    virtio_net_flush(&nic[0].net);
    serve();
    assert_int_equal(nic[0].back.port.counts.bad, ARRAY_SIZE(lens) + 2);
    assert_int_equal(nic[0].back.port.counts.in_frames, 0);
    assert_true(nic[0].back.dev.live);
}

/* What a driver may write into the header and the frame that it wants to have cut. */
static void bad_large_frames_are_dropped(void **state) {
    struct virtio_net_hdr *h = (void *)(arena + ARENA_SIZE / 2 - sizeof(*h)), good;
    struct vring_front *r;

    for (u32 how = 0; how < 10; how++) {
        set_up_with("offload=yes", BIT(VIRTIO_F_INDIRECT) | (how == 9 ? VIRTIO_NET_F_HOST_TSO4 : 0),
                    64, 2048);
        u8 *p = make_large(0, 1, 8000);
        struct vring_sg sg = { arena_gpa(h), sizeof(*h) + LARGE_HEAD + 8000 };

        good = (struct virtio_net_hdr){ VIRTIO_NET_HDR_F_CSUM, 1, 0, 1460, 34, 16, 0 };
        *h = good;
        switch (how) {
        case 0: h->gso_size = 0; break;
        case 1: h->gso_type = 4; break;    /* IPv6 */
        case 2: h->gso_type = 0x81; break; /* with ECN */
        case 3: h->flags = 0; break;
        case 4: h->csum_start = 8000; break;
        case 5: h->csum_offset = 0xffff; break;
        case 6: h->gso_type = 0; break; /* a frame that is too long */
        case 7:
            p[46] = 0xf0;
            sg.len = 12 + 60;
            break;
        case 8: h->gso_size = 1; break;
        }
        r = &nic[0].net.tx;
        vring_front_add(r, &sg, 1, 0, frame);
        virtio_net_flush(&nic[0].net);
        serve();
        assert_int_equal(nic[0].back.port.counts.bad, 1);
        assert_int_equal(nic[0].back.port.counts.in_frames, 0);
        assert_true(nic[0].back.dev.live);
        if (how == 9) continue;
        *h = good; /* hdr_len is only a hint, which nobody reads */
        h->hdr_len = 0xffff;
        make_large(0, 1, 8000);
        sg.len = sizeof(*h) + LARGE_HEAD + 8000;
        vring_front_add(r, &sg, 1, 0, frame);
        virtio_net_flush(&nic[0].net);
        serve();
        assert_int_equal(nic[0].back.port.counts.in_large, 1);
        assert_int_equal(receive_data(1, 8000), 1);
    }
}

static void broken_rings_stop(void **state) {
    struct virtio_net_frame f;

    for (u32 how = 0; how < 4; how++) {
        set_up_with("", BIT(VIRTIO_F_INDIRECT), 64, 2048);
        if (how == 0) tx_desc(100, VRING_DESC_WRITE);
        if (how == 1) tx_desc(100, VRING_DESC_NEXT)->next = 9999;
        if (how == 2) nic[0].net.tx.avail->idx = 500;
        if (how == 3) nic[0].net.rx.desc[0].flags = 0; /* a buffer that is not to be written */
        if (how == 3) send_to(1, 0, 60, 1);
        if (how != 2) virtio_net_flush(&nic[how == 3].net);
        serve();
        assert_int_equal(nic[0].rig.broken, 1);
        assert_false(nic[0].back.dev.live);
        assert_false(virtio_alive(&nic[0].rig.dev));
        send_to(1, 2, 60, 1); /* the others do not notice */
        send_to(1, 0, 60, 1);
        virtio_net_flush(&nic[1].net);
        memcpy(frame, nic[2].net.mac, 6);
        serve();
        assert_true(receive(2, &f, 60));
        assert_int_equal(nic[0].rig.broken, 1);
        /* After a reset the device works again. */
        assert_int_equal(virtio_net_stop(&nic[0].net, NULL), 0);
        assert_int_equal(virtio_net_start(&nic[0].net, &nic[0].rig.dev, 64, 2048), 0);
        assert_int_equal(send_to(0, 2, 60, 1), 0);
        virtio_net_flush(&nic[0].net);
        serve();
        assert_true(receive(2, &f, 60));
    }
}

/* Tests what a back end must not be able to do to the driver. */
static void driver_is_careful(void **state) {
    static const u32 lengths[] = { 5, 4000, 72, 72, 72 }; /* too short, too long, good */
    struct virtio_net_frame f;

    for (u32 how = 0; how < 5; how++) {
        set_up_with("", 0, 64, 2048);
        struct vring_front *r = &nic[1].net.rx;
        struct virtio_net_hdr *h = (void *)nic[1].net.buffers;

        r->used->ring[0] = (struct vring_used_elem){ 0, lengths[how] };
        *h = (struct virtio_net_hdr){ .num_buffers = 1 };
        if (how == 2) h->num_buffers = 60000;
        if (how == 3) h->num_buffers = 2;
        if (how == 4) *h = (struct virtio_net_hdr){ VIRTIO_NET_HDR_F_CSUM, 0, 0, 0, 50, 20, 1 };
        r->used->idx = 1;
        assert_false(virtio_net_receive(&nic[1].net, &f));
        assert_int_equal(nic[1].net.rx_bad, 1);
        assert_int_equal(vring_front_outstanding(r), 64); /* each is back with the device */
    }
}

static u32 returned;

static void count_token(void *token) { returned += token != NULL; }

static void stop_returns_tokens(void **state) {
    set_up_with("", 0, 64, 2048);
    for (u32 i = 0; i < 5; i++) send_to(0, 1, 60, 1);
    returned = 0;
    assert_int_equal(virtio_net_stop(&nic[0].net, count_token), 0);
    assert_int_equal(returned, 5);
    assert_int_equal(virtio_net_start(&nic[0].net, &nic[0].rig.dev, 4, 2048), -EINVAL);
    assert_int_equal(virtio_net_start(&nic[0].net, &nic[0].rig.dev, 64, 32), -EINVAL);
    nic[0].rig.hidden = BIT(VIRTIO_F_VERSION_1);
    assert_int_equal(virtio_net_start(&nic[0].net, &nic[0].rig.dev, 64, 2048), -EINVAL);
    assert_true(nic[0].rig.front.status & VIRTIO_FAILED);
}

static u32 handed_back;

static void hand_back(void *buffer) { handed_back += buffer != NULL; }

/* The caller has buffers of its own. It keeps the one in which a frame came, and posts another one.
 * None is lost. */
static void own_buffers(void **state) {
    struct virtio_net_frame f;
    u8 *mine;

    set_up_with("", 0, 64, 2048);
    assert_int_equal(virtio_net_stop(&nic[1].net, NULL), 0);
    assert_int_equal(virtio_net_start_own(&nic[1].net, &nic[1].rig.dev, 8, 2048, hand_back), 0);
    assert_int_equal(vring_front_outstanding(&nic[1].net.rx), 0);
    mine = arena_env.pages(8);
    for (u32 i = 0; i < 7; i++) virtio_net_recycle(&nic[1].net, mine + i * 2048);
    virtio_net_flush(&nic[1].net);
    for (u32 i = 0; i < 20; i++) {
        send_to(0, 1, 1514, 1);
        virtio_net_flush(&nic[0].net);
        serve();
        reclaim(0);
        assert_true(virtio_net_receive(&nic[1].net, &f));
        assert_true(f.nr == 1 && f.part[0].buffer == mine + i % 8 * 2048);
        assert_memory_equal(f.part[0].data, frame, 1514);
        /* The buffer of a frame that the test has kept until now goes back to the device. */
        virtio_net_recycle(&nic[1].net, mine + (i + 7) % 8 * 2048);
        virtio_net_flush(&nic[1].net);
    }
    handed_back = 0;
    assert_int_equal(virtio_net_stop(&nic[1].net, NULL), 0);
    assert_int_equal(handed_back, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_and_config),
        cmocka_unit_test(all_lengths),
        cmocka_unit_test(mergeable),
        cmocka_unit_test(batch),
        cmocka_unit_test(full_rings),
        cmocka_unit_test(checksum_offload),
        cmocka_unit_test(emulated_link),
        cmocka_unit_test(bad_frames_are_dropped),
        cmocka_unit_test(broken_rings_stop),
        cmocka_unit_test(driver_is_careful),
        cmocka_unit_test(stop_returns_tokens),
        cmocka_unit_test(own_buffers),
        cmocka_unit_test(large_frames),
        cmocka_unit_test(large_frames_take_turns),
        cmocka_unit_test(bad_large_frames_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
