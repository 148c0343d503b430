/* The two sides of a split virtio ring against each other, and the side of the back end against
 * memory that a hostile front end has filled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <takt/errno.h>
#include "ring_rig.h"

#define STEPS  250000 /* of a random run: with long rings every index goes round more than once */
#define TOKENS 512

static struct vring_front front;
static struct vring_back back;

static void join(u32 size, u64 features) {
    arena_reset();
    assert_int_equal(vring_front_init(&front, &arena_env, size, features), 0);
    assert_int_equal(ring_join(&back, &front, features), 0);
}

/* ---- one against the other ---- */

static struct token {
    bool out;     /* with the device */
    u32 n, bytes; /* of the chain */
    u32 written;  /* as the back end said */
} tokens[TOKENS];

static struct vring_sg random_buffer(void) {
    return (struct vring_sg){ ARENA_GPA + ARENA_SIZE / 2 + rig_rand(ARENA_SIZE / 4),
                              1 + rig_rand(3000) };
}

static bool add_random(void) {
    u32 t = rig_rand(TOKENS), nr_out = rig_rand(6), nr_in = rig_rand(6);
    struct vring_sg sg[12];

    if (tokens[t].out || nr_out + nr_in == 0) return true;
    tokens[t] = (struct token){ .n = nr_out + nr_in };
    for (u32 i = 0; i < nr_out + nr_in; i++) {
        sg[i] = random_buffer();
        tokens[t].bytes += sg[i].len;
    }
    int error = vring_front_add(&front, sg, nr_out, nr_in, &tokens[t]);
    assert_true(error == 0 || error == -ENOSPC || (error == -EINVAL && tokens[t].n > front.size));
    tokens[t].out = error == 0;
    return error == 0;
}

/* The front end's memory is the front end's: what the device took says which token it was. */
static struct token *token_of(const struct vring_chain *c) { return front.slot[c->head].token; }

static u32 outstanding(void) {
    u32 n = 0;

    for (u32 i = 0; i < TOKENS; i++) n += tokens[i].out;
    return n;
}

/* Random adding, publishing, taking and putting. No chain is lost, doubled or changed, each side
 * that asks to be told is told when there is something, and a batch tells at most once. */
static void random_run(u32 size, u64 features) {
    struct vring_chain c, held[8];
    u32 nr_held = 0, taken = 0, done = 0, kicks = 0, irqs = 0;
    bool back_listens = false, front_listens = false;

    join(size, features);
    memset(tokens, 0, sizeof(tokens));
    vring_back_ignore(&back);
    vring_front_ignore(&front);
    for (u32 step = 0; step < STEPS; step++) {
        u32 n;
        struct token *t;

        switch (rig_rand(6)) {
        case 0:
            for (u32 i = rig_rand(8); i && add_random(); i--)
                ;
            bool had = front.avail_shown != front.avail_next;
            bool kick = vring_front_publish(&front);
            assert_true(!kick || had);
            if (back_listens && had) {
                assert_true(kick);
                back_listens = false;
            } else if (!(features & BIT(VIRTIO_F_EVENT_IDX))) {
                assert_false(kick && !back_listens && back.used->flags & VRING_USED_NO_NOTIFY);
            }
            kicks += kick;
            break;
        case 1:
        case 2:
            for (n = rig_rand(6); n && nr_held < ARRAY_SIZE(held); n--) {
                int r = vring_back_take(&back, &c);

                assert_true(r >= 0);
                if (!r) break;
                t = token_of(&c);
                assert_non_null(t);
                assert_true(t->out);
                assert_int_equal(c.nr_out + c.nr_in, t->n);
                assert_int_equal(c.out_len + c.in_len, t->bytes);
                taken++;
                if (rig_rand(8) == 0) {
                    vring_back_untake(&back, 1);
                    taken--;
                } else {
                    held[nr_held++] = c;
                }
            }
            break;
        case 3:
            for (n = rig_rand(nr_held + 1); n; n--) {
                u32 i = rig_rand(nr_held);

                token_of(&held[i])->written = rig_rand(1000);
                vring_back_put(&back, held[i].head, token_of(&held[i])->written);
                held[i] = held[--nr_held];
            }
            had = back.used_next != back.used_shown;
            bool irq = vring_back_flush(&back);
            assert_true(!irq || had);
            if (front_listens && had) {
                assert_true(irq);
                front_listens = false;
            }
            irqs += irq;
            break;
        case 4:
            for (n = rig_rand(10); n; n--) {
                u32 len;

                t = vring_front_take(&front, &len);
                if (!t) break;
                assert_true(t->out);
                assert_int_equal(len, t->written);
                t->out = false;
                done++;
            }
            if (rig_rand(2)) {
                front_listens = !vring_front_listen(&front, 1);
            } else {
                vring_front_ignore(&front);
                front_listens = false;
            }
            break;
        case 5:
            if (rig_rand(2)) {
                back_listens = !vring_back_listen(&back);
            } else {
                vring_back_ignore(&back);
                back_listens = false;
            }
            break;
        }
        assert_false(front.broken || back.broken);
    }
    assert_true(taken > (size < 64 ? 1000 : 66000));
    assert_true(kicks && irqs);
    assert_int_equal(vring_front_outstanding(&front), outstanding());
}

static void both_sides(void **state) {
    static const u64 sets[] = { 0, BIT(VIRTIO_F_EVENT_IDX), BIT(VIRTIO_F_INDIRECT),
                                BIT(VIRTIO_F_EVENT_IDX) | BIT(VIRTIO_F_INDIRECT) };

    for (u32 i = 0; i < ARRAY_SIZE(sets); i++)
        for (u32 size = 1; size <= 256; size *= 4) random_run(size, sets[i]);
}

/* 70,000 chains in batches of 32: one notification and one interrupt each, as the indexes wrap. */
static void one_notification_a_batch(void **state) {
    static int what;
    struct vring_sg sg = { ARENA_GPA, 64 };
    struct vring_chain c;
    u32 len;

    join(64, BIT(VIRTIO_F_EVENT_IDX));
    for (u32 batch = 0; batch < 2200; batch++) {
        u32 kicks = 0, irqs = 0;

        assert_false(vring_back_listen(&back));
        assert_false(vring_front_listen(&front, batch % 2 ? 32 : 1));
        for (u32 i = 0; i < 32; i++) {
            assert_int_equal(vring_front_add(&front, &sg, 1, 0, &what), 0);
            if (i % 8 == 7 || i == 0) kicks += vring_front_publish(&front);
        }
        for (u32 i = 0; i < 32; i++) {
            assert_int_equal(vring_back_take(&back, &c), 1);
            vring_back_put(&back, c.head, 0);
            if (i % 8 == 7 || i == 0) {
                bool irq = vring_back_flush(&back);

                irqs += irq;
                if (irq) assert_int_equal(i, batch % 2 ? 31 : 0);
            }
        }
        assert_int_equal(kicks, 1);
        assert_int_equal(irqs, 1);
        for (u32 i = 0; i < 32; i++) assert_ptr_equal(vring_front_take(&front, &len), &what);
        assert_null(vring_front_take(&front, &len));
    }
}

/* Returns whether the driver notifies if it has shown `n` chains and looks only now whether it has
 * to. */
static bool late_kick(u32 n) {
    u16 event = back.used->ring[back.size].id & 0xffff; /* lies behind the last entry */

    return vring_need_event(event, front.avail_shown, (u16)(front.avail_shown - n));
}

static bool late_irq(u32 n) {
    return vring_need_event(front.avail->ring[front.size], back.used_shown,
                            (u16)(back.used_shown - n));
}

/* Each side may be interrupted between showing entries and looking whether the other one wants to
 * be told. The other one may have taken them by then. If it ignores the ring, it is not told. */
static void ignored_even_if_late(void **state) {
    static int what;
    struct vring_sg sg = { ARENA_GPA, 64 };
    struct vring_chain c;
    u32 len;

    join(64, BIT(VIRTIO_F_EVENT_IDX));
    for (u32 round = 0; round < 5000; round++) {
        vring_back_ignore(&back);
        vring_front_ignore(&front);
        for (u32 i = 0; i < 64; i++) assert_int_equal(vring_front_add(&front, &sg, 1, 0, &what), 0);
        assert_false(vring_front_publish(&front));
        for (u32 i = 0; i < 64; i++) {
            assert_int_equal(vring_back_take(&back, &c), 1);
            vring_back_put(&back, c.head, 0);
        }
        vring_back_ignore(&back);
        assert_false(vring_back_flush(&back));
        for (u32 i = 0; i < 64; i++) assert_ptr_equal(vring_front_take(&front, &len), &what);
        vring_front_ignore(&front);
        for (u32 n = 1; n <= 64; n++) assert_false(late_kick(n) || late_irq(n));
    }
}

/* What a ring of that size is answered: sizes are powers of two, up to a limit. */
static int error_of_size(u32 size) {
    if (size == 0 || size > TAKT_QUEUE_MAX || (size & (size - 1))) return -EINVAL;
    return 0;
}

static void front_refuses(void **state) {
    struct vring_sg sg[3] = { { ARENA_GPA, 1 }, { ARENA_GPA, 1 }, { ARENA_GPA, 1 } };
    int a;

    arena_reset();
    for (u32 size = 0; size < 9; size++)
        assert_int_equal(vring_front_init(&front, &arena_env, size, 0), error_of_size(size));
    for (u32 size = 9; size <= TAKT_QUEUE_MAX * 2; size *= 2)
        assert_int_equal(vring_front_init(&front, &arena_env, size, 0), error_of_size(size));
    join(4, 0);
    assert_int_equal(vring_front_add(&front, sg, 0, 0, &a), -EINVAL);
    assert_int_equal(vring_front_add(&front, sg, 1, 0, NULL), -EINVAL);
    assert_int_equal(vring_front_add(&front, sg, 2, 1, &a), 0);
    assert_int_equal(vring_front_add(&front, sg, 1, 1, &a), -ENOSPC);
    assert_int_equal(vring_front_add(&front, sg, 1, 0, &a), 0);
    assert_int_equal(vring_front_outstanding(&front), 2);
    assert_ptr_equal(vring_front_drain(&front), &a);
    assert_ptr_equal(vring_front_drain(&front), &a);
    assert_null(vring_front_drain(&front));
    assert_int_equal(front.nr_free, 4);
}

/* What a back end may write wrongly into the used ring: the front end must notice it and stop. */
static void front_survives_the_back(void **state) {
    static const struct {
        u32 id;
        u16 idx;
    } wrong[] = {
        { 4, 1 },          /* behind the last descriptor */
        { 0xffffffff, 1 }, /* far behind it */
        { 1, 1 },          /* a descriptor that the front end did not publish */
        { 0, 5 },          /* more than there are */
    };
    struct vring_sg sg = { ARENA_GPA, 1 };
    u32 len;
    int a;

    for (u32 how = 0; how < ARRAY_SIZE(wrong); how++) {
        join(4, 0);
        vring_front_add(&front, &sg, 1, 0, &a);
        vring_front_publish(&front);
        front.used->ring[0].id = wrong[how].id;
        front.used->idx = wrong[how].idx;
        assert_null(vring_front_take(&front, &len));
        assert_true(front.broken);
        assert_int_equal(vring_front_add(&front, &sg, 1, 0, &a), -ENOSPC);
    }
}

/* ---- a hostile front end ---- */

#define SIZE 8

static struct vring_desc *desc;

/* Makes a ring in which descriptor 0 is at the head of the queue. */
static void lay(u64 features) {
    join(SIZE, features);
    desc = front.desc;
    desc[0] = (struct vring_desc){ ARENA_GPA, 1, 0, 0 };
    front.avail->ring[0] = 0;
    front.avail->idx = 1;
}

static int take(void) {
    struct vring_chain c;
    int r = vring_back_take(&back, &c);

    assert_int_equal(back.broken, r < 0);
    return r;
}

static void walk_is_bounded(void **state) {
    lay(0);
    desc[0] = (struct vring_desc){ ARENA_GPA, 1, VRING_DESC_NEXT, 0 }; /* itself */
    assert_int_equal(take(), -EINVAL);
    lay(0);
    for (u32 i = 0; i < SIZE; i++)
        desc[i] = (struct vring_desc){ ARENA_GPA, 1, VRING_DESC_NEXT, (u16)((i + 1) % SIZE) };
    assert_int_equal(take(), -EINVAL);
    lay(0);
    for (u32 i = 0; i < SIZE; i++) /* as long as may be */
        desc[i] =
            (struct vring_desc){ ARENA_GPA, 1, i < SIZE - 1 ? VRING_DESC_NEXT : 0, (u16)(i + 1) };
    assert_int_equal(take(), 1);
    lay(0);
    desc[0] = (struct vring_desc){ ARENA_GPA, 1, VRING_DESC_NEXT, SIZE };
    assert_int_equal(take(), -EINVAL);
    lay(0);
    front.avail->ring[0] = SIZE;
    assert_int_equal(take(), -EINVAL);
    lay(0);
    front.avail->idx = SIZE + 1;
    assert_int_equal(take(), -EINVAL);
    lay(0);
    front.avail->idx = 0xffff; /* backwards */
    assert_int_equal(take(), -EINVAL);
}

static void indirect_rules(void **state) {
    struct vring_desc *t = (void *)(arena + ARENA_SIZE / 2);
    u64 at = arena_gpa(t);
    struct vring_desc good = { ARENA_GPA, 1, 0, 0 };

    for (u32 how = 0; how < 9; how++) {
        static const int want[] = { 1,       -EINVAL, -EINVAL, -EINVAL, -EINVAL,
                                    -EINVAL, -EINVAL, -EINVAL, 1 };

        lay(how == 1 ? 0 : BIT(VIRTIO_F_INDIRECT));
        t[0] = t[1] = good;
        desc[0] = (struct vring_desc){ at, 2 * sizeof(*t), VRING_DESC_INDIRECT, 0 };
        if (how == 0 || how == 6) t[0].flags = VRING_DESC_NEXT;
        t[0].next = how == 6 ? 2 : 1;
        if (how == 2)
            t[0] = (struct vring_desc){ at + sizeof(*t), sizeof(*t), VRING_DESC_INDIRECT, 0 };
        if (how == 3) desc[0].flags |= VRING_DESC_NEXT;
        if (how == 4) desc[0].len = 2 * sizeof(*t) + 8;
        if (how == 5) desc[0].len = 0;
        if (how == 7) desc[0].addr = ARENA_GPA + ARENA_SIZE - sizeof(*t);
        if (how == 8) { /* direct ones, then a table */
            desc[1] = desc[0];
            desc[0] = (struct vring_desc){ ARENA_GPA, 1, VRING_DESC_NEXT, 1 };
        }
        assert_int_equal(take(), want[how]);
    }
}

static void addresses_and_sums(void **state) {
    static const struct {
        u64 addr;
        u32 len;
        int want;
    } cases[] = {
        { ARENA_GPA + ARENA_SIZE - 1, 1, 1 },   { ARENA_GPA + ARENA_SIZE - 1, 2, -EINVAL },
        { ARENA_GPA + ARENA_SIZE, 1, -EINVAL }, { ~0ull, 1, -EINVAL },
        { ~0ull - 15, 0xffffffff, -EINVAL },    { TAKT_HIGH_RAM - 1, 2, -EINVAL },
        { TAKT_HIGH_RAM, 1, -EINVAL },          { ARENA_GPA, 0, -EINVAL },
        { ARENA_GPA, 0xffffffff, -EINVAL },
    };

    for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
        lay(0);
        desc[0] = (struct vring_desc){ cases[i].addr, cases[i].len, 0, 0 };
        assert_int_equal(take(), cases[i].want);
    }
    /* Two segments of 2 GiB and more lie in a window that has room for them. Nobody touches the
     * bytes. */
    lay(0);
    arena_window.low = TAKT_LOW_RAM_MAX;
    for (u32 i = 0; i < 2; i++)
        desc[i] = (struct vring_desc){ ARENA_GPA, 0x90000000, i ? 0 : VRING_DESC_NEXT, 1 };
    assert_int_equal(take(), -EINVAL);
    lay(0);
    arena_window.low = TAKT_LOW_RAM_MAX;
    desc[0] = (struct vring_desc){ ARENA_GPA, 0x90000000, VRING_DESC_NEXT, 1 };
    desc[1] = (struct vring_desc){ ARENA_GPA, 0x90000000, VRING_DESC_WRITE, 0 };
    assert_int_equal(take(), 1);
    lay(0); /* to be read after to be written */
    desc[0] = (struct vring_desc){ ARENA_GPA, 1, VRING_DESC_NEXT | VRING_DESC_WRITE, 1 };
    desc[1] = (struct vring_desc){ ARENA_GPA, 1, 0, 0 };
    assert_int_equal(take(), -EINVAL);
}

static void high_memory(void **state) {
    struct takt_window w = { 0x1000, 0x8000, 0x4000 };

    assert_ptr_equal(window_at(&w, 0, 0x8000), (void *)0x1000);
    assert_null(window_at(&w, 0, 0x8001));
    assert_null(window_at(&w, 1, 0x8000));
    assert_null(window_at(&w, 0x8000, 1));
    assert_ptr_equal(window_at(&w, TAKT_HIGH_RAM, 0x4000), (void *)(0x1000 + TAKT_HIGH_RAM));
    assert_null(window_at(&w, TAKT_HIGH_RAM, 0x4001));
    assert_null(window_at(&w, TAKT_HIGH_RAM + 0x4000, 1));
    assert_null(window_at(&w, ~0ull, 2));
}

static void back_refuses_places(void **state) {
    struct vring_back b;

    join(SIZE, 0);
    u64 d = arena_gpa(front.desc), a = arena_gpa(front.avail), u = arena_gpa(front.used);
    u64 end = ARENA_GPA + ARENA_SIZE;

    for (u32 size = 0; size < 20; size++)
        assert_int_equal(vring_back_init(&b, &arena_window, 0, size, d, a, u), error_of_size(size));
    for (u32 bit = 5; bit < 16; bit++)
        for (u32 size = (1 << bit) - 1; size <= (1 << bit) + 1u; size++)
            assert_int_equal(vring_back_init(&b, &arena_window, 0, size, d, a, u),
                             error_of_size(size));
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, d + 8, a, u), -EINVAL);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, d, a + 1, u), -EINVAL);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, d, a, u + 2), -EINVAL);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, end - 16 * SIZE, a, u), 0);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, end - 16 * SIZE + 16, a, u),
                     -EINVAL);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, d, end - 6 - 2 * SIZE, u), 0);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, d, end - 4 - 2 * SIZE, u),
                     -EINVAL);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, d, a, end - 8 - 8 * SIZE), 0);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, d, a, end - 4 - 8 * SIZE),
                     -EINVAL);
    assert_int_equal(vring_back_init(&b, &arena_window, 0, SIZE, ~15ull, a, u), -EINVAL);
    assert_int_equal(vring_back_take(&b, NULL), -EINVAL); /* it is as good as broken */
}

static void copies(void **state) {
    u8 x[10] = "012345678", y[10] = "abcdefghi", out[32];
    struct vring_seg seg[] = { { x, 4 }, { y, 5 } };

    for (u32 offset = 0; offset < 11; offset++)
        for (u32 len = 0; len < 12; len++) {
            u32 n = vring_copy_out(out, seg, 2, offset, len);

            assert_int_equal(n, offset > 9 ? 0 : MIN(len, 9 - offset));
            assert_memory_equal(out, &"0123abcde"[MIN(offset, 9u)], n);
        }
    assert_int_equal(vring_copy_in(seg, 2, 3, "XYZ", 3), 3);
    assert_memory_equal(x, "012X45678", 9);
    assert_memory_equal(y, "YZcdefghi", 9);
}

/* ---- memory that changes while it is read ---- */

static bool scribbling;

/* Address and length of a descriptor and the index, each good or bad at any time. */
static void *scribble(void *arg) {
    static const u64 addr[] = { ARENA_GPA, ARENA_GPA + ARENA_SIZE - 64, ~0ull - 63, TAKT_HIGH_RAM };
    static const u32 len[] = { 64, 64, 0xffff0000, 1 };

    for (u32 i = 0; __atomic_load_n(&scribbling, __ATOMIC_RELAXED); i++) {
        __atomic_store_n(&desc[0].addr, addr[i % 8 < 4 ? 0 : i % 4], __ATOMIC_RELAXED);
        __atomic_store_n(&desc[0].len, len[i % 4], __ATOMIC_RELAXED);
        __atomic_store_n(&front.avail->ring[0], i % 16 == 9 ? 0x7fff : 0, __ATOMIC_RELAXED);
        __atomic_store_n(&front.avail->idx, i % 16 == 14 ? SIZE + 1 : 1, __ATOMIC_RELAXED);
    }
    return arg;
}

/* What was checked is what is used, whatever another vCPU of the front end writes meanwhile. On a
 * busy host the two threads may seldom run at the same time. The outcome of one take then hardly
 * ever differs from that of the one before, so the loop goes on until it has differed often. */
static void looked_at_once(void **state) {
    u32 taken = 0, refused = 0, wrong = 0, changes = 0;
    int last = 0, now;
    pthread_t thread;

    lay(0);
    scribbling = true;
    assert_int_equal(pthread_create(&thread, NULL, scribble, NULL), 0);
    for (u32 i = 0; i < 50000000 && (i < 2000000 || changes < 100000); i++) {
        struct vring_chain c;

        back.broken = false;
        back.avail_next = back.avail_seen = 0;
        now = vring_back_take(&back, &c);
        if (now != last) changes++;
        last = now;
        if (now != 1) {
            refused++;
            continue;
        }
        taken++;
        if (c.head || c.nr_out != 1 || c.nr_in || c.seg[0].len != c.out_len || c.seg[0].p < arena ||
            c.seg[0].len > (u64)(arena + ARENA_SIZE - c.seg[0].p)) {
            wrong++;
            break;
        }
        if (i % 64 == 0) vring_copy_in(c.seg, 1, 0, "", 1);
    }
    __atomic_store_n(&scribbling, false, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(wrong, 0);
    assert_true(taken >= 10000 && refused >= 10000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides),
        cmocka_unit_test(one_notification_a_batch),
        cmocka_unit_test(ignored_even_if_late),
        cmocka_unit_test(front_refuses),
        cmocka_unit_test(front_survives_the_back),
        cmocka_unit_test(walk_is_bounded),
        cmocka_unit_test(indirect_rules),
        cmocka_unit_test(addresses_and_sums),
        cmocka_unit_test(high_memory),
        cmocka_unit_test(back_refuses_places),
        cmocka_unit_test(copies),
        cmocka_unit_test(looked_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
