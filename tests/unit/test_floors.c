/* The numbers of the chapters docs/book/floor-*.md. Each test does what one of these chapters does
 * in its journey, in the same order, and gets what the chapter says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "common/hist.h"
#include "event/evtchn.h"
#include "lib/timerq.h"
#include "mm/frame.h"
#include "trace/trace.h"
#include "vdev/vlapic.h"

/* ---- floor 0: one latency ---- */

static void test_latency(void **state) {
    static const struct {
        u64 ns;
        u32 bucket;
    } sample[] = {
        { 12, 12 },       { 900, 62 },      { 1234567, 145 },
        { 1300000, 145 }, { 2000000, 151 }, { 90000000, 194 },
    };
    static struct hist h;

    assert_int_equal(sizeof(h), 1112);
    assert_int_equal(HIST_BUCKETS, 272);
    for (u32 i = 0; i < ARRAY_SIZE(sample); i++) {
        u32 before = h.bucket[sample[i].bucket];

        hist_add(&h, sample[i].ns);
        assert_int_equal(h.bucket[sample[i].bucket], before + 1);
    }
    assert_int_equal(hist_percentile(&h, 500), 1310719);
    assert_int_equal(hist_percentile(&h, 990), 90000000);
}

/* ---- floor 1: four timers ---- */

static void test_timers(void **state) {
    struct timer a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    struct timerq q = { 0 };

    timerq_insert(&q, &a, 300);
    timerq_insert(&q, &b, 100);
    timerq_insert(&q, &c, 200);
    assert_ptr_equal(q.root, &b);
    assert_ptr_equal(b.left, &c);
    assert_ptr_equal(b.right, &a);
    timerq_insert(&q, &d, 100);
    assert_ptr_equal(q.root, &b);
    assert_ptr_equal(b.left, &d);
    assert_ptr_equal(b.right, &c);
    assert_ptr_equal(d.left, &a);
    assert_ptr_equal(timerq_pop(&q, 250), &b);
    assert_ptr_equal(q.root, &d);
    assert_ptr_equal(d.left, &c);
    assert_ptr_equal(d.right, &a);
    assert_ptr_equal(timerq_pop(&q, 250), &d);
    assert_ptr_equal(timerq_pop(&q, 250), &c);
    assert_null(timerq_pop(&q, 250));
    assert_int_equal(timerq_next(&q), 300);
}

/* ---- floor 2: a record that finds no room ---- */

static void record(u64 ns) { trace_write(0, ns, TRC_WAKE, TRACE_NOBODY, 0, 0, 0, 0); }

static void test_lost_records(void **state) {
    static struct trace_record ring[4], out[5];

    assert_int_equal(trace_init(0, ring, ARRAY_SIZE(ring)), 0);
    for (u64 ns = 10; ns <= 60; ns += 10) record(ns);
    assert_int_equal(trace_lost(0), 2);
    assert_int_equal(trace_read(0, out, 2), 2);
    assert_int_equal(out[0].ns, 10);
    assert_int_equal(out[1].ns, 20);
    record(70);
    assert_int_equal(trace_read(0, out, 4), 4);
    assert_int_equal(out[0].ns, 30);
    assert_int_equal(out[1].ns, 40);
    assert_int_equal(out[2].event, TRC_LOST);
    assert_int_equal(out[2].arg[0], 2);
    assert_int_equal(out[3].event, TRC_WAKE);
    assert_int_equal(out[3].ns, 70);
}

/* ---- floor 3: two frames ---- */

static void test_frames(void **state) {
    static u8 ram[BIT(21)] __attribute__((aligned(1 << 21)));
    hpa_t got[63];

    directmap_base = (u64)ram;
    frame_add(0x100000, 0x140000);
    assert_int_equal(frame_free_count(), 63);
    assert_int_equal(frame_alloc(0), 0x101000);
    assert_int_equal(frame_free_count(), 62);
    assert_int_equal(frame_alloc(0), 0x102000);
    assert_int_equal(frame_free_count(), 61);
    frame_free(0x102000, 0);
    assert_int_equal(frame_free_count(), 62);
    assert_int_equal(frame_alloc(1), 0x102000); /* it has become one block again */
    frame_free(0x102000, 1);
    frame_free(0x101000, 0);

    for (u32 i = 0; i < 63; i++) got[i] = frame_alloc(0);
    assert_int_equal(frame_free_count(), 0);
    for (u32 i = 0; i < 63; i++)
        if (!(got[i] & PAGE_SIZE)) frame_free(got[i], 0); /* those with an even number */
    assert_int_equal(frame_free_count(), 31);
    assert_int_equal(frame_alloc(1), HPA_NONE);
    for (u32 i = 0; i < 63; i++)
        if (got[i] & PAGE_SIZE) frame_free(got[i], 0);
    assert_int_equal(frame_alloc(5), 0x120000);
    frame_free(0x120000, 5); /* the next test needs memory */
}

/* ---- floor 7: a pair of ports ---- */

static struct {
    u32 calls, vcpu;
    u8 vector;
} raised;

static void on_raise(struct evtchn_vm *d, u32 vcpu, u8 vector, u32 port, bool other) {
    raised.calls++;
    raised.vcpu = vcpu;
    raised.vector = vector;
}

static void test_ports(void **state) {
    static struct takt_shared page[3];
    static struct evtchn_vm vm[3];

    for (u32 i = 0; i < 3; i++) evtchn_init(&vm[i], i + 1, 2, &page[i], on_raise);
    assert_int_equal(evtchn_alloc(&vm[0], 2), 1);
    assert_int_equal(evtchn_bind(&vm[2], 1, 1), -EPERM);
    assert_int_equal(evtchn_bind(&vm[1], 1, 1), 1);
    assert_int_equal(evtchn_bind(&vm[1], 1, 1), -EBUSY);
    assert_int_equal(evtchn_vector(&vm[0], 1, 1, 0x41), 0);
    assert_int_equal(evtchn_port(&vm[0], 1)->target, 0x141);

    assert_int_equal(evtchn_send(&vm[1], 1, 1000), 0);
    assert_int_equal(page[0].pending[0], BIT(1));
    assert_int_equal(raised.calls, 1);
    assert_int_equal(raised.vcpu, 1);
    assert_int_equal(raised.vector, 0x41);
    assert_int_equal(evtchn_send(&vm[1], 1, 1500), 0);
    assert_int_equal(raised.calls, 1);
    page[0].pending[0] = 0;
    assert_int_equal(evtchn_taken(&vm[0], 1, 5000), 4000);
    assert_int_equal(evtchn_mask(&vm[0], 1, true, 6000), 0);
    assert_int_equal(evtchn_send(&vm[1], 1, 7000), 0);
    assert_int_equal(page[0].pending[0], BIT(1));
    assert_int_equal(raised.calls, 1);
    assert_int_equal(evtchn_mask(&vm[0], 1, false, 9000), 0);
    assert_int_equal(raised.calls, 2);

    assert_int_equal(evtchn_close(&vm[0], 1), 0);
    assert_int_equal(evtchn_send(&vm[1], 1, 10000), -ENOENT);
    assert_int_equal(evtchn_alloc(&vm[0], 3), 1);
    for (u32 i = 0; i < 3; i++)
        while (evtchn_fini(&vm[i]))
            ;
}

/* ---- floor 8: three interrupts and their ends ---- */

#define EOI 0xb0
#define SVR 0xf0
#define PPR 0xa0

static void on_notify(struct vlapic *l, enum delivery_mode what, u8 vector) {}
static void on_arm(struct vlapic *l, u64 when) {}
static const struct vlapic_ops ops = { .notify = on_notify, .arm = on_arm };
static struct vlapic apic;

static void assert_apic(u32 ppr, u32 isr_top, int pending) {
    assert_int_equal(vlapic_read(&apic, PPR, 0), ppr);
    assert_int_equal(apic.isr_top, isr_top);
    assert_int_equal(vlapic_pending(&apic), pending);
}

static void test_interrupts(void **state) {
    vlapic_init(&apic, 0, &ops);
    vlapic_write(&apic, SVR, 0x1ff, 0);
    vlapic_raise(&apic, 0x31);
    assert_apic(0, 0, 0x31);
    vlapic_accept(&apic, 0x31);
    assert_apic(0x30, 0x31, 0);
    vlapic_raise(&apic, 0x3a);
    assert_apic(0x30, 0x31, -1);
    vlapic_raise(&apic, 0x52);
    assert_apic(0x30, 0x31, 0x52);
    vlapic_accept(&apic, 0x52);
    assert_apic(0x50, 0x52, -1);
    vlapic_write(&apic, EOI, 0, 0);
    assert_apic(0x30, 0x31, -1);
    vlapic_write(&apic, EOI, 0, 0);
    assert_apic(0, 0, 0x3a);
    vlapic_accept(&apic, 0x3a);
    assert_apic(0x30, 0x3a, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_latency),      cmocka_unit_test(test_timers),
        cmocka_unit_test(test_lost_records), cmocka_unit_test(test_frames),
        cmocka_unit_test(test_ports),        cmocka_unit_test(test_interrupts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
