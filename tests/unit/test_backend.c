/* A front end, its back end and the window that the back end has on the front end's RAM: which VM
 * may make which hypercall, what each side sees of the other, and where windows lie. A driver
 * domain serves guests that do not trust each other, so a call that is not refused here would give
 * one guest the memory or the interrupts of another. test_backend_ends.c has what happens when one
 * of the two goes. */
#include "backend_rig.h"

/* The back end finds the devices that it is to serve in a list, and the front end sees a device
 * only when it was offered. Each is told by an event. */
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

/* Only the VM that the configuration names may serve a device. All other VMs, wrong handles and
 * wrong buffers are refused. */
static void test_who_may(void **s) {
    struct config_vm c = fake_config("other", 1);
    struct vm *other = fake_vm(&c);

    for (u32 nr = TAKT_HC_BACK_OFFER; nr <= TAKT_HC_BACK_BROKEN; nr++) {
        int refused = -EPERM;

        if (nr == TAKT_HC_BACK_UNMAP) refused = -ENOENT; /* it only looks at the caller's windows */
        assert_int_equal(call(other, nr, handle(0), BUF, 0), refused);
        assert_int_equal(call(web, nr, handle(0), BUF, 0), refused);
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
    /* These calls need a device that was offered, and this one was not yet. */
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

/* Notifications, interrupts and resets reach the other side once each, and counters tell how many
 * there were. */
static void test_both_ways(void **s) {
    u32 bell = (u32)call(io, TAKT_HC_BACK_PORT, 0, 0, 0), back = (u32)offer(0),
        front = get(0, TAKT_VIRTIO_PORT);
    u32 config = get(0, TAKT_VIRTIO_CONFIG_PORT);
    struct takt_front f;
    struct device_info i;

    take(io, bell);
    take(web, config);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_false(take(io, back)); /* its driver is not running */
    start(0);
    assert_true(take(io, back) && take(io, bell));
    f = state(0, 0);
    assert_int_equal(f.status, RUNNING);
    assert_int_equal(f.queue[0].size, 64);
    assert_int_equal(f.queue[0].used, 0x3000);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_true(take(io, back));
    put(0, VIRTIO_QUEUE_NOTIFY, 1); /* that queue is not ready */
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
    assert_int_equal(call(io, TAKT_HC_BACK_IRQ, handle(0), 0, 0), 0); /* harmless, but too late */
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

/* A guest cannot close or take the event channels of its devices. A back end may close its own end,
 * and gets it back with the next offer. */
static void test_ports_stay(void **s) {
    u32 bell = (u32)call(io, TAKT_HC_BACK_PORT, 0, 0, 0), back = (u32)offer(0),
        front = get(0, TAKT_VIRTIO_PORT);

    start(0);
    assert_int_equal(call(web, TAKT_HC_EVTCHN_CLOSE, front, 0, 0), -EPERM);
    assert_int_equal(call(web, TAKT_HC_EVTCHN_CLOSE, get(0, TAKT_VIRTIO_CONFIG_PORT), 0, 0),
                     -EPERM);
    assert_int_equal(call(io, TAKT_HC_EVTCHN_CLOSE, bell, 0, 0), -EPERM);
    assert_int_equal(call(io, TAKT_HC_EVTCHN_BIND, web->id, get(1, TAKT_VIRTIO_PORT), 0), -EPERM);
    assert_int_equal(offer(0), back); /* the same port as before */
    assert_int_equal(call(io, TAKT_HC_EVTCHN_CLOSE, back, 0, 0), 0);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_int_equal(call(io, TAKT_HC_BACK_IRQ, handle(0), 0, 0), 0);
    back = (u32)offer(0); /* makes a new event channel */
    take(io, back);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_true(take(io, back));
}

/* A window shows all RAM of the front end until it is unmapped. Then its place is free for the next
 * one. */
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

/* A back end may keep the windows of front ends that have ended, but only 64 of them. Then it has
 * to unmap one before it can map another. */
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

/* Windows do not overlap, and a free place is used again. RAM above 4 GiB has the same distance
 * from the rest in the window as in the front VM. */
static void test_places(void **s) {
    struct config_vm c = web_config(1);
    struct vm *first = web, *second, *third;
    u32 gone = handle(0);
    struct takt_window a, b;

    strcpy(c.head.name, "second");
    second = fake_vm(&c);
    first->mem.low_size = 2 << 20; /* as if the hole of the devices began there */
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
    assert_int_equal(map(0).base,
                     b.base + BIT(30)); /* the first one is still there, with waste in it */
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, gone, 0, 0), 0);
    assert_int_equal(call(io, TAKT_HC_BACK_UNMAP, gone, 0, 0), -ENOENT);
    web = make_web(1);
    assert_int_equal(map(0).base, a.base);
    fake_destroy(second);
    fake_destroy(third);
}

/* A back end that finds rings broken while the front end resets the device must not break the next
 * rings: the report is about the old ones. */
static void test_broken_while_reset(void **s) {
    offer(0);
    map(0);
    start(0);
    put(0, VIRTIO_STATUS, 0);
    assert_int_equal(call(io, TAKT_HC_BACK_BROKEN, handle(0), 0, 0), 0);
    state(0, 1);
    assert_int_equal(get(0, VIRTIO_STATUS), 0);
}

/* An offer that is refused takes no event channel. */
static void test_refused_offer(void **s) {
    u64 used = io->events.used[0];

    memset(buf(), 0, sizeof(struct takt_offer));
    assert_int_equal(call(io, TAKT_HC_BACK_OFFER, handle(0), BUF, 0), -EINVAL);
    assert_int_equal(io->events.used[0], used);
    assert_true(offer(0) > 0);
    assert_int_not_equal(io->events.used[0], used);
}

/* Mapping fails at each allocation in turn: round after round one frame more is left. Nothing is
 * lost then, and the same call succeeds later. */
static void test_no_memory(void **s) {
    hpa_t *held = test_malloc(FAKE_RAM / PAGE_SIZE * sizeof(hpa_t));
    u32 failures = 0;

    assert_true(offer(0) > 0); /* so that heap and ports have what they need */
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

/* If making a VM fails half-way, the back end may have seen its devices already. It is told that
 * they are gone. */
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

/* The VM `web`, but with a kernel: an operating system finds only those devices that are offered
 * when it looks. */
static void make_pc(void) {
    struct config_vm c = web_config(1);

    fake_destroy(web);
    strcpy(c.kernel, c.image);
    *c.image = 0;
    fake_now = 1000;
    assert_int_equal(vm_create(&c, NULL, NULL), 0);
    web = vm_find("web");
    fake_work_due();
}

static void work_at(u64 now) {
    fake_now = now;
    fake_work_due();
}

static void test_pc_waits_for_offers(void **state) {
    make_pc();
    assert_int_equal(web->state, VM_CREATING);
    assert_true(offer(0) > 0);
    work_at(NS_PER_S);
    assert_int_equal(web->state, VM_CREATING);
    assert_true(offer(1) > 0);
    fake_log_forget();
    work_at(2 * NS_PER_S);
    assert_int_equal(web->state, VM_RUNNING);
    assert_false(fake_log_said("has not offered"));
}

/* An operating system cannot begin again with its devices. So they stay when the back end ends, and
 * the next one goes on with their rings. It is told that there are rings in use. */
static void test_pc_devices_stay(void **s) {
    struct takt_front front;
    u32 bell, port;

    make_pc();
    offer(0);
    offer(1);
    work_at(2 * NS_PER_S);
    start(0);
    map(0);
    take(web, get(0, TAKT_VIRTIO_CONFIG_PORT));
    fake_destroy(io);
    io = NULL;
    assert_int_equal(get(0, VIRTIO_STATUS), RUNNING);
    assert_int_equal(get(0, VIRTIO_DEVICE_ID), VIRTIO_ID_NET);
    assert_false(take(web, get(0, TAKT_VIRTIO_CONFIG_PORT)));
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    io = make_io();
    bell = (u32)call(io, TAKT_HC_BACK_PORT, 0, 0, 0);
    take(io, bell);
    port = (u32)offer(0);
    assert_true(take(io, bell));
    assert_true(take(io, port));
    front = state(0, 0);
    assert_int_equal(front.flags, TAKT_FRONT_ORDERED | TAKT_FRONT_RESUMED);
    put(0, VIRTIO_QUEUE_NOTIFY, 0);
    assert_true(take(io, port));
}

static void test_pc_does_not_wait_for_ever(void **state) {
    make_pc();
    assert_true(offer(0) > 0);
    work_at(9 * NS_PER_S);
    assert_int_equal(web->state, VM_CREATING);
    work_at(11 * NS_PER_S);
    assert_int_equal(web->state, VM_RUNNING);
    assert_true(fake_log_said("VM iodom has not offered device 1 within 10 s"));
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
        cmocka_unit_test_setup_teardown(test_broken_while_reset, both, none_left),
        cmocka_unit_test_setup_teardown(test_refused_offer, both, none_left),
        cmocka_unit_test_setup_teardown(test_no_memory, both, none_left),
        cmocka_unit_test_setup_teardown(test_not_made, both, none_left),
        cmocka_unit_test_setup_teardown(test_pc_waits_for_offers, both, none_left),
        cmocka_unit_test_setup_teardown(test_pc_devices_stay, both, none_left),
        cmocka_unit_test_setup_teardown(test_pc_does_not_wait_for_ever, both, none_left),
    };

    alarm(60); /* a VM that never ends would keep the test running for ever */
    return cmocka_run_group_tests(tests, setup, NULL);
}
