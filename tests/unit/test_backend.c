/* Front ends, back ends and windows on the fake machine: who may do what, what each sees of the
 * other, and that either may go at any step without a frame lost or in the wrong hands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "fake_log.h"
#include "fake_machine.h"
#include "fake_timer.h"
#include "npt_model.h"
#include "sched/policy.h"

#define BUF     0x10000u /* in the back end's RAM */
#define AGREED  (VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER | VIRTIO_FEATURES_OK)
#define RUNNING (AGREED | VIRTIO_DRIVER_OK)

static struct vm *web, *io;
static u64 frames, heap;

static struct config_vm io_config(void) {
    struct config_vm c = fake_config("iodom", 1);

    c.cpus = (struct cpumask){ 2 }; /* pCPU 1 */
    return c;
}

static struct config_vm web_config(u64 chunks) {
    struct config_vm c = fake_config("web", 1);

    c.memory = chunks << CHUNK_SHIFT;
    c.cpus = (struct cpumask){ 1 };
    c.nr_devices = 2;
    c.device[0] =
        (struct config_device){ .type = VIRTIO_ID_NET, .back = "iodom", .options = "rate=1M" };
    c.device[1] = (struct config_device){ .type = VIRTIO_ID_BLOCK, .back = "iodom" };
    return c;
}

static struct vm *make_io(void) {
    struct config_vm c = io_config();

    return fake_vm(&c);
}

static struct vm *make_web(u64 chunks) {
    struct config_vm c = web_config(chunks);

    return fake_vm(&c);
}

static void cleanup(void) {
    if (web) fake_destroy(web);
    if (io) fake_destroy(io);
    web = io = NULL;
    assert_int_equal(frame_free_count(), frames);
    assert_int_equal(heap_in_use(), heap);
    assert_false(spin_is_locked(&backend_lock));
}

static int setup(void **state) {
    hpa_t dirty;

    fake_machine("null");
    fake_clock(1000);
    dirty = frame_alloc(13); /* whatever is handed out next has been somebody's */
    memset(hpa_to_va(dirty), 0x5e, 32 << 20);
    frame_free(dirty, 13);
    io = make_io();
    web = make_web(1);
    fake_destroy(web); /* what is allocated once and kept */
    fake_destroy(io);
    frames = frame_free_count();
    heap = heap_in_use();
    return 0;
}

static int both(void **state) {
    io = make_io();
    web = make_web(3);
    assert_non_null(io);
    assert_non_null(web);
    return 0;
}

static int none_left(void **state) {
    cleanup();
    return 0;
}

/* ---- what the two do ---- */

/* As often as it takes. */
static i64 call(struct vm *vm, u32 nr, u64 a, u64 b, u64 c) {
    struct vcpu *v = vm->vcpu[0];
    u64 *gpr = v->virt.regs.gpr;
    u64 rip = v->virt.regs.rip;
    u32 cpu = this_cpu()->id;

    fake_cpu(v->sched.cpu);
    for (int i = 0; v->virt.regs.rip == rip; i++) {
        assert_in_range(i, 0, 1000);
        gpr[REG_RAX] = nr;
        gpr[REG_RBX] = a;
        gpr[REG_RCX] = b;
        gpr[REG_RDX] = c;
        vcpu_handle_exit(
            v, &(struct vm_exit){ .reason = EXIT_HYPERCALL, .insn_len = 3, .hc = { .mode = 64 } });
    }
    fake_cpu(cpu);
    assert_false(spin_is_locked(&backend_lock));
    return (i64)gpr[REG_RAX];
}

/* Does one part of it; true if it is done. */
static bool part(struct vm *vm, u32 nr, u64 a, u64 b, i64 *result) {
    struct vcpu *v = vm->vcpu[0];
    u64 rip = v->virt.regs.rip;

    v->virt.regs.gpr[REG_RAX] = nr;
    v->virt.regs.gpr[REG_RBX] = a;
    v->virt.regs.gpr[REG_RCX] = b;
    vcpu_handle_exit(
        v, &(struct vm_exit){ .reason = EXIT_HYPERCALL, .insn_len = 3, .hc = { .mode = 64 } });
    *result = (i64)v->virt.regs.gpr[REG_RAX];
    return v->virt.regs.rip != rip;
}

static void put(u32 n, u32 reg, u32 value) {
    u64 v = value;

    assert_true(bus_do(&web->mmio,
                       &(struct bus_access){ .addr = TAKT_VIRTIO_GPA + n * PAGE_SIZE + reg,
                                             .size = 4,
                                             .write = true },
                       &v));
    assert_false(spin_is_locked(&backend_lock));
}

static u32 get(u32 n, u32 reg) {
    u64 v;

    assert_true(bus_do(
        &web->mmio,
        &(struct bus_access){ .addr = TAKT_VIRTIO_GPA + n * PAGE_SIZE + reg, .size = 4 }, &v));
    return (u32)v;
}

static bool take(struct vm *vm, u32 port) {
    u64 *word = &vm->events.shared->pending[port / 64], old = *word;

    *word &= ~BIT(port % 64);
    return old >> (port % 64) & 1;
}

static void *buf(void) {
    u64 room;

    return guestmem_at(&io->mem, BUF, &room);
}

static u32 handle(u32 n) { return web->id * TAKT_MAX_DEVICES + n; }

static i64 offer(u32 n) {
    struct takt_offer *o = buf();

    *o = (struct takt_offer){
        .features = BIT(VIRTIO_F_VERSION_1), .nr_queues = 2, .queue_max = 64, .config_len = 8
    };
    return call(io, TAKT_HC_BACK_OFFER, handle(n), BUF, 0);
}

static struct takt_front state(u32 n, u32 resets) {
    assert_int_equal(call(io, TAKT_HC_BACK_STATE, handle(n), BUF, resets), 0);
    return *(struct takt_front *)buf();
}

static struct takt_window map(u32 n) {
    assert_int_equal(call(io, TAKT_HC_BACK_MAP, handle(n), BUF, 0), 0);
    return *(struct takt_window *)buf();
}

static void start(u32 n) {
    put(n, VIRTIO_STATUS, VIRTIO_ACKNOWLEDGE | VIRTIO_DRIVER);
    put(n, VIRTIO_DRIVER_FEATURES_SEL, 1);
    put(n, VIRTIO_DRIVER_FEATURES, 1);
    put(n, VIRTIO_STATUS, AGREED);
    put(n, VIRTIO_QUEUE_NUM, 64);
    put(n, VIRTIO_QUEUE_DESC, 0x1000);
    put(n, VIRTIO_QUEUE_DRIVER, 0x2000);
    put(n, VIRTIO_QUEUE_DEVICE, 0x3000);
    put(n, VIRTIO_QUEUE_READY, 1);
    put(n, VIRTIO_STATUS, RUNNING);
}

/* ---- tests ---- */

static void test_appears(void **s) {
    u32 config_port = get(0, TAKT_VIRTIO_CONFIG_PORT),
        bell = (u32)call(io, TAKT_HC_BACK_PORT, 0, 0, 0);
    struct takt_back *b = buf();

    assert_int_equal(call(io, TAKT_HC_BACK_PORT, 0, 0, 0), bell);
    assert_int_equal(call(io, TAKT_HC_BACK_LIST, 0, BUF, 0), 0);
    assert_int_equal(b->handle, handle(0));
    assert_int_equal(b->vm, web->id);
    assert_int_equal(b->type, VIRTIO_ID_NET);
    assert_int_equal(b->number, 0);
    assert_int_equal(b->ram, 6 << 20);
    assert_string_equal(b->name, "web");
    assert_string_equal(b->options, "rate=1M");
    assert_int_equal(call(io, TAKT_HC_BACK_LIST, 1, BUF, 0), 0);
    assert_int_equal(b->type, VIRTIO_ID_BLOCK);
    assert_string_equal(b->options, "");
    assert_int_equal(call(io, TAKT_HC_BACK_LIST, 2, BUF, 0), -ENOENT);
    assert_int_equal(call(io, TAKT_HC_BACK_LIST, 0, 2 << 20, 0), -EFAULT);
    assert_int_equal(get(0, VIRTIO_DEVICE_ID), 0);
    assert_int_not_equal(config_port, get(0, TAKT_VIRTIO_PORT));
    assert_int_equal(get(2, VIRTIO_MAGIC), VIRTIO_MAGIC_VALUE); /* no such device */
    assert_int_equal(get(2, TAKT_VIRTIO_PORT), 0);
    put(2, VIRTIO_STATUS, 1);
    put(7, VIRTIO_QUEUE_NOTIFY, 0);
    assert_false(take(web, config_port));
    assert_true(offer(0) > 0);
    assert_true(take(web, config_port));
    assert_int_equal(get(0, VIRTIO_DEVICE_ID), VIRTIO_ID_NET);
    assert_int_equal(get(1, VIRTIO_DEVICE_ID), 0);

    take(io, bell);
    fake_destroy(web);
    assert_true(take(io, bell));
    assert_int_equal(call(io, TAKT_HC_BACK_LIST, 0, BUF, 0), -ENOENT);
    web = make_web(1);
    assert_true(take(io, bell));
}

static void test_who_may(void **s) {
    struct config_vm c = fake_config("other", 1);
    struct vm *other = fake_vm(&c);

    for (u32 nr = TAKT_HC_BACK_OFFER; nr <= TAKT_HC_BACK_BROKEN; nr++) {
        bool unmap = nr == TAKT_HC_BACK_UNMAP;

        assert_int_equal(call(other, nr, handle(0), BUF, 0), unmap ? -ENOENT : -EPERM);
        assert_int_equal(call(web, nr, handle(0), BUF, 0), unmap ? -ENOENT : -EPERM);
        assert_int_equal(call(io, nr, handle(2), BUF, 0), -ENOENT);
        assert_int_equal(call(io, nr, 0, BUF, 0), -ENOENT);
        assert_int_equal(call(io, nr, 0xffffffff, BUF, 0), -ENOENT);
        assert_int_equal(call(io, nr, 1ull << 32 | handle(0), BUF, 0), -EINVAL);
        if (nr <= TAKT_HC_BACK_MAP) {
            assert_int_equal(call(io, nr, handle(0), 0xfee00000, 0), -EFAULT);
            assert_int_equal(call(io, nr, handle(0), (2 << 20) - 4, 0), -EFAULT);
            assert_int_equal(call(io, nr, handle(0), ~0ull, 0), -EFAULT);
        }
    }
    /* not offered yet */
    assert_int_equal(call(io, TAKT_HC_BACK_STATE, handle(0), BUF, 0), -EINVAL);
    assert_int_equal(call(io, TAKT_HC_BACK_IRQ, handle(0), 0, 0), -EINVAL);
    assert_int_equal(call(io, TAKT_HC_BACK_BROKEN, handle(0), 0, 0), -EINVAL);
    assert_int_equal(call(other, TAKT_HC_BACK_LIST, 0, BUF, 0), -ENOENT);
    memset(buf(), 0xff, sizeof(struct takt_offer));
    assert_int_equal(call(io, TAKT_HC_BACK_OFFER, handle(0), BUF, 0), -EINVAL);
    assert_int_equal(get(0, VIRTIO_DEVICE_ID), 0);
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP + 1000, 0, 0, 0), -ENOSYS);
    fake_destroy(other);
}

static void test_both_ways(void **s) {
    u32 bell = (u32)call(io, TAKT_HC_BACK_PORT, 0, 0, 0), back = (u32)offer(0),
        front = get(0, TAKT_VIRTIO_PORT);
    u32 config = get(0, TAKT_VIRTIO_CONFIG_PORT);
    struct takt_front f;
    struct device_info i;

    take(io, bell);
    take(web, config);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_false(take(io, back)); /* not running */
    start(0);
    assert_true(take(io, back) && take(io, bell));
    f = state(0, 0);
    assert_int_equal(f.status, RUNNING);
    assert_int_equal(f.queue[0].size, 64);
    assert_int_equal(f.queue[0].used, 0x3000);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_true(take(io, back));
    put(0, VIRTIO_QUEUE_NOTIFY, 1); /* not ready */
    put(0, VIRTIO_QUEUE_NOTIFY, 65535);
    assert_false(take(io, back) || take(io, bell));
    assert_int_equal(call(io, TAKT_HC_BACK_IRQ, handle(0), 0, 0), 0);
    assert_true(take(web, front));
    assert_false(take(web, config));
    assert_int_equal(get(0, VIRTIO_INTERRUPT_STATUS) & VIRTIO_INT_USED, VIRTIO_INT_USED);
    assert_true(device_info(web, 0, &i));
    assert_int_equal(i.notifies, 1);
    assert_int_equal(i.interrupts, 1);
    assert_int_equal(i.dropped, 3);
    assert_int_equal(i.queues, 1);
    assert_string_equal(i.state, "runs");

    put(0, VIRTIO_STATUS, 0);
    assert_true(take(io, back) && take(io, bell));
    assert_int_equal(get(0, VIRTIO_STATUS), VIRTIO_NEEDS_RESET);
    assert_int_equal(call(io, TAKT_HC_BACK_IRQ, handle(0), 0, 0), 0); /* too late, and harmless */
    assert_false(take(web, front));
    assert_int_equal(state(0, 0).resets, 1);
    assert_false(take(web, config));
    assert_int_equal(state(0, 1).status, 0);
    assert_true(take(web, config));
    assert_int_equal(get(0, VIRTIO_STATUS), 0);
    start(0);
    assert_int_equal(call(io, TAKT_HC_BACK_BROKEN, handle(0), 0, 0), 0);
    assert_true(take(web, config));
    assert_int_equal(get(0, VIRTIO_STATUS), RUNNING | VIRTIO_NEEDS_RESET);
}

static void test_ports_stay(void **s) {
    u32 bell = (u32)call(io, TAKT_HC_BACK_PORT, 0, 0, 0), back = (u32)offer(0),
        front = get(0, TAKT_VIRTIO_PORT);

    start(0);
    assert_int_equal(call(web, TAKT_HC_EVTCHN_CLOSE, front, 0, 0), -EPERM);
    assert_int_equal(call(web, TAKT_HC_EVTCHN_CLOSE, get(0, TAKT_VIRTIO_CONFIG_PORT), 0, 0),
                     -EPERM);
    assert_int_equal(call(io, TAKT_HC_EVTCHN_CLOSE, bell, 0, 0), -EPERM);
    assert_int_equal(call(io, TAKT_HC_EVTCHN_BIND, web->id, get(1, TAKT_VIRTIO_PORT), 0), -EPERM);
    assert_int_equal(offer(0), back); /* the same */
    assert_int_equal(call(io, TAKT_HC_EVTCHN_CLOSE, back, 0, 0), 0);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_int_equal(call(io, TAKT_HC_BACK_IRQ, handle(0), 0, 0), 0);
    back = (u32)offer(0); /* joined anew */
    take(io, back);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_true(take(io, back));
}

static void assert_window(const struct takt_window *w, bool there) {
    unsigned prot;

    for (u32 n = 0; n < web->mem.size >> CHUNK_SHIFT; n++) {
        gpa_t at = w->base + guestmem_chunk_gpa(&web->mem, n) + 0x12345;

        assert_int_equal(npt_lookup(&io->virt.npt, at, &prot),
                         there ? web->mem.chunk[n] + 0x12345 : HPA_NONE);
        if (there) assert_int_equal(prot, NPT_RW);
    }
    assert_int_equal(npt_lookup(&io->virt.npt, w->base + w->low, NULL), HPA_NONE);
}

static void test_window(void **s) {
    struct takt_window w = map(1), again;

    assert_int_equal(w.base, TAKT_FOREIGN_GPA);
    assert_int_equal(w.low, 6 << 20);
    assert_int_equal(w.high, 0);
    assert_window(&w, true);
    again = map(0);
    assert_memory_equal(&again, &w, sizeof(w));
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, handle(1), 0, 0), 0);
    assert_window(&w, false);
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, handle(0), 0, 0), -ENOENT);
    again = map(0);
    assert_memory_equal(&again, &w, sizeof(w));
    assert_window(&w, true);
    assert_false(memcmp((u8 *)hpa_to_va(io->back.waste), (u8 *)hpa_to_va(io->back.waste) + 1,
                        CHUNK_SIZE - 1));
}

/* A back end that keeps what is left of front ends that have gone can have so many, until it
 * unmaps one. */
static void test_too_many_windows(void **s) {
    u32 first = handle(0);

    for (u32 i = 0; i < 64; i++) {
        map(0);
        fake_destroy(web);
        web = make_web(1);
    }
    assert_int_equal(call(io, TAKT_HC_BACK_MAP, handle(0), BUF, 0), -ENOSPC);
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, first, 0, 0), 0);
    map(0);
}

/* Windows do not overlap, and a place that is free is used again. RAM above 4 GiB is as far from
 * the rest as in the front VM. */
static void test_places(void **s) {
    struct config_vm c = web_config(1);
    struct vm *first = web, *second, *third;
    u32 gone = handle(0);
    struct takt_window a, b;

    strcpy(c.head.name, "second");
    second = fake_vm(&c);
    first->mem.low_size = 2 << 20; /* as if the hole began there */
    a = map(0);
    assert_window(&a, true);
    assert_int_equal(a.high, 4 << 20);
    web = second;
    b = map(0);
    assert_window(&b, true);
    assert_int_equal(b.base, a.base + (5ull << 30));
    fake_destroy(first);
    strcpy(c.head.name, "third");
    web = third = fake_vm(&c);
    assert_int_equal(map(0).base, b.base + BIT(30)); /* the first is there yet, of waste */
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, gone, 0, 0), 0);
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, gone, 0, 0), -ENOENT);
    web = make_web(1);
    assert_int_equal(map(0).base, a.base);
    fake_destroy(second);
    fake_destroy(third);
}

/* What is wrong with rings that are being let go of is not wrong with the next. */
static void test_broken_while_reset(void **s) {
    offer(0);
    map(0);
    start(0);
    put(0, VIRTIO_STATUS, 0);
    assert_int_equal(call(io, TAKT_HC_BACK_BROKEN, handle(0), 0, 0), 0);
    state(0, 1);
    assert_int_equal(get(0, VIRTIO_STATUS), 0);
}

/* An offer that is refused takes no port. */
static void test_refused_offer(void **s) {
    u64 used = io->events.used[0];

    memset(buf(), 0, sizeof(struct takt_offer));
    assert_int_equal(call(io, TAKT_HC_BACK_OFFER, handle(0), BUF, 0), -EINVAL);
    assert_int_equal(io->events.used[0], used);
    assert_true(offer(0) > 0);
    assert_int_not_equal(io->events.used[0], used);
}

/* ---- ends ---- */

/* One step of work; what is to stop stops, but pCPU 1 is somewhere else. */
static void step(void) {
    fake_cpu(0);
    if (percpu_of[0]->need_resched) fake_pass(0);
    work_run();
}

static void assert_waste(const struct takt_window *w) {
    unsigned prot;

    for (u64 at = 0; at < w->low; at += CHUNK_SIZE) {
        assert_int_equal(npt_lookup(&io->virt.npt, w->base + at + 5, &prot), io->back.waste + 5);
        assert_int_equal(prot, NPT_RW);
    }
}

/* Its frames wait for a pCPU that may still use them. */
static void test_front_goes(void **s) {
    struct takt_window w = map(0);
    u64 left;
    u32 kicks, gone = handle(0);

    start(0);
    fake_cpu(1);
    fake_current(io->vcpu[0]);
    fake_cpu(0);
    left = frame_free_count();
    kicks = fake_kicks[1];
    vm_destroy(web, NULL, NULL);
    for (int i = 0; i < 100; i++) step();
    assert_true(frame_free_count() < left + 512); /* none of its chunks */
    assert_waste(&w);
    assert_int_equal(fake_kicks[1], kicks + 1); /* once is enough */
    assert_int_equal(call(io, TAKT_HC_BACK_STATE, gone, BUF, 0), -ENOENT);
    assert_int_equal(call(io, TAKT_HC_BACK_MAP, gone, BUF, 0), -ENOENT);
    fake_pass(1);
    vm_put(web);
    web = NULL;
    for (int i = 0; i < 400; i++) step();
    assert_true(frame_free_count() > left + 3 * 512);
    assert_waste(&w);
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, gone, 0, 0), 0);
    assert_int_equal(npt_lookup(&io->virt.npt, w.base, NULL), HPA_NONE);
}

/* Unmapped is not yet flushed: who goes then waits as well. */
static void test_unmapped_before(void **s) {
    u64 left;

    map(0);
    fake_cpu(1);
    fake_current(io->vcpu[0]);
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, handle(0), 0, 0), 0);
    left = frame_free_count();
    vm_destroy(web, NULL, NULL);
    for (int i = 0; i < 100; i++) step();
    assert_true(frame_free_count() < left + 512);
    fake_pass(1);
    vm_put(web);
    web = NULL;
    for (int i = 0; i < 400; i++) step();
    assert_true(frame_free_count() > left + 3 * 512);
    assert_true(list_empty(&io->back.windows));
}

static void test_back_goes(void **s) {
    u32 config = get(0, TAKT_VIRTIO_CONFIG_PORT);

    offer(0);
    map(0);
    start(0);
    take(web, config);
    fake_destroy(io);
    io = NULL;
    assert_true(take(web, config));
    assert_int_equal(get(0, VIRTIO_DEVICE_ID), 0);
    assert_int_equal(get(0, VIRTIO_STATUS), RUNNING | VIRTIO_NEEDS_RESET);
    assert_int_equal(get(1, VIRTIO_STATUS), 0);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    put(0, VIRTIO_STATUS, 0);
    assert_int_equal(get(0, VIRTIO_STATUS), 0);
    io = make_io();
    assert_true(offer(0) > 0);
    assert_true(take(web, config));
    start(0);
    assert_int_equal(get(0, VIRTIO_STATUS), RUNNING);
    assert_int_equal(state(0, 0).queue[0].desc, 0x1000);
    assert_int_equal(map(0).base, TAKT_FOREIGN_GPA);
    put(0, VIRTIO_STATUS, 0); /* and a reset that nobody will acknowledge any more */
    fake_destroy(io);
    io = NULL;
    assert_int_equal(get(0, VIRTIO_STATUS), 0);
}

/* Both go, the second after any number of steps of the first; in between the back end does what
 * it can. */
static void test_both_go(void **s) {
    cleanup();
    for (u32 k = 0; k < 200; k++) {
        struct vm *one, *two;
        u32 h;

        io = make_io();
        web = make_web(1);
        h = handle(0);
        offer(0);
        map(0);
        start(0);
        one = k & 1 ? web : io;
        two = k & 1 ? io : web;
        vm_destroy(one, NULL, NULL);
        for (u32 i = 0; i < k / 2; i++) step();
        if (one == web) {
            call(io, TAKT_HC_BACK_IRQ, h, 0, 0);
            if (k & 2) call(io, TAKT_HC_BACK_UNMAP, h, 0, 0);
            if (k & 4) call(io, TAKT_HC_BACK_MAP, h, BUF, 0);
        } else {
            put(0, VIRTIO_QUEUE_NOTIFY, 0);
            put(0, VIRTIO_STATUS, 0);
        }
        vm_destroy(two, NULL, NULL);
        vm_put(web);
        vm_put(io);
        fake_work();
        web = io = NULL;
        cleanup();
    }
}

/* A window of many parts, which is taken away half made and half undone. */
static void test_parts(void **s) {
    struct takt_window w;
    i64 r;
    u32 parts = 0;

    fake_destroy(web);
    web = make_web(20);
    assert_non_null(web);
    while (!part(io, TAKT_HC_BACK_MAP, handle(0), BUF, &r)) parts++;
    assert_int_equal(r, 0);
    assert_int_equal(parts, 32 + 1); /* the waste is scrubbed, and 16 chunks of 20 */
    w = *(struct takt_window *)buf();
    assert_window(&w, true);
    assert_false(part(io, TAKT_HC_BACK_UNMAP, handle(0), 0, &r));
    io->vcpu[0]->virt.regs.rip++; /* another vCPU calls meanwhile */
    assert_true(part(io, TAKT_HC_BACK_MAP, handle(0), BUF, &r));
    assert_int_equal(r, -EBUSY);
    fake_destroy(web);
    web = NULL;
    w.low = 4 << CHUNK_SHIFT; /* what is left */
    assert_waste(&w);
    assert_false(list_empty(&io->back.windows));
}

/* What of its RAM was unmapped last, and by a part alone, keeps all of it from being freed too. */
static void test_unmapped_halfway(void **s) {
    struct takt_window w;
    unsigned prot;
    u32 gone;
    u64 left;
    i64 r;

    fake_destroy(web);
    web = make_web(17);
    w = map(0);
    gone = handle(0);
    fake_cpu(1);
    fake_current(io->vcpu[0]);
    fake_cpu(0);
    vm_destroy(web, NULL, NULL);
    while (npt_lookup(&io->virt.npt, w.base, &prot) != io->back.waste) step();
    fake_pass(1);
    assert_false(part(io, TAKT_HC_BACK_UNMAP, gone, 0, &r));
    left = frame_free_count();
    for (int i = 0; i < 400; i++) step();
    assert_true(frame_free_count() < left + 512);
    fake_pass(1);
    vm_put(web);
    web = NULL;
    for (int i = 0; i < 2000; i++) step();
    assert_true(frame_free_count() > left + 16 * 512);
}

/* The front VM goes while its RAM is being mapped. */
static void test_map_cut_short(void **s) {
    struct takt_window w = { .base = TAKT_FOREIGN_GPA, .low = 16 << CHUNK_SHIFT };
    u32 gone;
    i64 r;

    fake_destroy(web);
    web = make_web(20);
    gone = handle(0);
    for (int i = 0; i < 33; i++) assert_false(part(io, TAKT_HC_BACK_MAP, gone, BUF, &r));
    fake_destroy(web);
    web = NULL;
    assert_waste(&w);
    assert_true(part(io, TAKT_HC_BACK_MAP, gone, BUF, &r));
    assert_int_equal(r, -ENOENT);
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, gone, 0, 0), 0);
    assert_true(list_empty(&io->back.windows));
}

/* With ever more memory left, ever more succeeds; nothing is lost, and what failed can be done
 * again. */
static void test_no_memory(void **s) {
    hpa_t *held = test_malloc(FAKE_RAM / PAGE_SIZE * sizeof(hpa_t));
    u32 failures = 0;

    assert_true(offer(0) > 0); /* the heap's and the ports' */
    for (u32 keep = 0; keep < 8; keep++) {
        hpa_t chunk = frame_alloc(FRAME_ORDER_2M);
        u32 n = 0;
        i64 r;

        while ((held[n] = frame_alloc(0)) != HPA_NONE) n++;
        for (u32 i = 0; i < keep; i++) frame_free(held[--n], 0);
        if (keep) frame_free(chunk, FRAME_ORDER_2M);
        r = call(io, TAKT_HC_BACK_MAP, handle(0), BUF, 0);
        assert_true(r == 0 || r == -ENOMEM);
        failures += r != 0;
        if (!keep) frame_free(chunk, FRAME_ORDER_2M);
        while (n) frame_free(held[--n], 0);
    }
    test_free(held);
    assert_true(failures > 0);
    assert_window(&(struct takt_window){ TAKT_FOREIGN_GPA, 6 << 20, 0 }, true);
}

/* Where the devices of the back end find chunks; of what does not succeed a part may be there. */
static struct {
    hpa_t at[3];
    u32 left; /* that still fit into their tables */
} dma;

static int dma_map(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len) {
    dma.at[(gpa - TAKT_FOREIGN_GPA) >> CHUNK_SHIFT] = hpa;
    if (hpa == HPA_NONE) return 0;
    return dma.left ? dma.left--, 0 : -ENOMEM;
}

/* What its devices cannot reach the back end cannot either, and nobody does when that RAM is
 * another's. */
static void test_devices_cannot(void **s) {
    u64 left;

    memset(&dma, 0xff, sizeof(dma));
    devices_dma_map = dma_map;
    io->dma = (void *)io; /* for dma_map() alone */
    for (u32 i = 0; i < 2; i++) {
        dma.left = i;
        assert_int_equal(call(io, TAKT_HC_BACK_MAP, handle(0), BUF, 0), -ENOMEM);
        assert_int_equal(dma.at[i], HPA_NONE);
        assert_int_equal(npt_lookup(&io->virt.npt, TAKT_FOREIGN_GPA + i * CHUNK_SIZE, NULL),
                         HPA_NONE);
    }
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, handle(0), 0, 0), 0);
    assert_int_equal(dma.at[0], HPA_NONE);
    fake_cpu(1);
    fake_current(io->vcpu[0]);
    fake_cpu(0);
    dma.left = 0;
    assert_int_equal(call(io, TAKT_HC_BACK_MAP, handle(0), BUF, 0), -ENOMEM);
    left = frame_free_count();
    vm_destroy(web, NULL, NULL);
    for (int i = 0; i < 100; i++) step();
    assert_true(frame_free_count() < left + 512); /* that pCPU may have seen it */
    fake_pass(1);
    vm_put(web);
    web = NULL;
    for (int i = 0; i < 400; i++) step();
    assert_true(frame_free_count() > left + 3 * 512);
    devices_dma_map = NULL;
    io->dma = NULL;
}

/* A VM that cannot be made to the end was seen, perhaps. */
static void test_not_made(void **s) {
    struct config_vm c = web_config(1);
    u32 bell = (u32)call(io, TAKT_HC_BACK_PORT, 0, 0, 0);

    take(io, bell);
    strcpy(c.head.name, "half");
    strcpy(c.image, "absent");
    assert_null(fake_vm(&c));
    assert_true(take(io, bell));
    assert_int_equal(call(io, TAKT_HC_BACK_LIST, 2, BUF, 0), -ENOENT);
    strcpy(c.device[0].back, "half");
    assert_null(fake_vm(&c));
    assert_string_equal(fake_why, "it cannot serve its own devices");
}

static void others_work(void) {
    u32 cpu = this_cpu()->id;

    step();
    fake_cpu(cpu);
}

/* A vCPU of the back end that sleeps and keeps its pCPU (null's `sleepless`) holds nobody up:
 * not even on the pCPU that does the work, nor while that halts. */
static void test_sleeper(void **s) {
    struct sched_pool *p = sched_pool_find("Pool-0");
    struct config_vm c = io_config();
    char why[PARAM_WHY];

    fake_destroy(io);
    fake_destroy(web);
    assert_int_equal(param_set_text(param_find(p, "sleepless"), p, p, "on", why), 0);
    for (u32 cpu = 0; cpu < FAKE_CPUS; cpu++) {
        c.cpus = (struct cpumask){ 1ull << cpu };
        io = fake_vm(&c);
        web = make_web(1);
        map(0);
        fake_cpu(cpu);
        fake_current(io->vcpu[0]);
        for (int i = 0; i < 3; i++) fake_pass(cpu);
        vcpu_block(io->vcpu[0]);
        fake_pass(cpu);
        assert_true(fake_of(io->vcpu[0])->loaded && io->vcpu[0]->sched.blocked);
        vm_destroy(web, NULL, NULL);
        vm_put(web);
        fake_meanwhile = cpu ? others_work : NULL;
        for (int i = 0; i < 500; i++) fake_pass(cpu);
        fake_meanwhile = NULL;
        assert_null(vm_find("web"));
        assert_true(fake_of(io->vcpu[0])->loaded && io->vcpu[0]->sched.blocked);
        fake_cpu(0);
        fake_destroy(io);
    }
    web = io = NULL;
    assert_int_equal(param_set_text(param_find(p, "sleepless"), p, p, "off", why), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_appears, both, none_left),
        cmocka_unit_test_setup_teardown(test_who_may, both, none_left),
        cmocka_unit_test_setup_teardown(test_both_ways, both, none_left),
        cmocka_unit_test_setup_teardown(test_ports_stay, both, none_left),
        cmocka_unit_test_setup_teardown(test_window, both, none_left),
        cmocka_unit_test_setup_teardown(test_too_many_windows, both, none_left),
        cmocka_unit_test_setup_teardown(test_places, both, none_left),
        cmocka_unit_test_setup_teardown(test_front_goes, both, none_left),
        cmocka_unit_test_setup_teardown(test_unmapped_before, both, none_left),
        cmocka_unit_test_setup_teardown(test_back_goes, both, none_left),
        cmocka_unit_test_setup_teardown(test_both_go, both, none_left),
        cmocka_unit_test_setup_teardown(test_parts, both, none_left),
        cmocka_unit_test_setup_teardown(test_unmapped_halfway, both, none_left),
        cmocka_unit_test_setup_teardown(test_broken_while_reset, both, none_left),
        cmocka_unit_test_setup_teardown(test_refused_offer, both, none_left),
        cmocka_unit_test_setup_teardown(test_map_cut_short, both, none_left),
        cmocka_unit_test_setup_teardown(test_no_memory, both, none_left),
        cmocka_unit_test_setup_teardown(test_devices_cannot, both, none_left),
        cmocka_unit_test_setup_teardown(test_not_made, both, none_left),
        cmocka_unit_test_setup_teardown(test_sleeper, both, none_left),
    };

    alarm(60); /* an end that never comes has no other end */
    return cmocka_run_group_tests(tests, setup, NULL);
}
