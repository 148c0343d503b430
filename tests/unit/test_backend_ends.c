/* Front end or back end ends, at each step of what the other is doing. Frames of the front end's
 * RAM are mapped in the back end, in its pCPUs' TLBs and in its devices' tables. They must not be
 * freed before all of these have forgotten them: another VM would get them while the back end can
 * still write to them. And none may be lost. */
#include "backend_rig.h"

/* One step of the work on pCPU 0. vCPUs there stop when they are told to; those of pCPU 1 do not,
 * because it does not pass through its loop. */
static void step(void) {
    fake_cpu(0);
    if (percpu_of[0]->need_resched) fake_pass(0);
    work_run();
}

/* The window shows the one chunk of waste everywhere. */
static void assert_waste(const struct takt_window *w) {
    unsigned prot;

    for (u64 at = 0; at < w->low; at += CHUNK_SIZE) {
        assert_int_equal(npt_lookup(&io->virt.npt, w->base + at + 5, &prot), io->back.waste + 5);
        assert_int_equal(prot, NPT_RW);
    }
}

/* A back end hears that a front end ends before the first of its RAM is taken out of the window. So
 * it can tell whether what it has read there is the front end's. */
static void test_told_before_ram_goes(void **s) {
    struct takt_window w = map(0);
    u32 bell = (u32)call(io, TAKT_HC_BACK_PORT, 0, 0, 0);
    hpa_t chunk = npt_lookup(&io->virt.npt, w.base, NULL);

    start(0);
    take(io, bell);
    vm_destroy(web, NULL, NULL);
    vm_put(web);
    web = NULL;
    while (npt_lookup(&io->virt.npt, w.base, NULL) == chunk) step();
    assert_int_equal(npt_lookup(&io->virt.npt, w.base, NULL), io->back.waste);
    assert_true(take(io, bell));
}

/* The frames of a front end that ends wait for a pCPU that may still use them. */
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
    assert_true(frame_free_count() < left + 512); /* none of its chunks was freed */
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

/* A window that was unmapped may still be in a TLB. A front end that ends then waits as well. */
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

/* When a back end ends, the front end is told that its devices need a reset. The next back end can
 * serve them again. */
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
    put(0, VIRTIO_STATUS, 0); /* nobody acknowledges this reset any more */
    fake_destroy(io);
    io = NULL;
    assert_int_equal(get(0, VIRTIO_STATUS), 0);
}

/* Both VMs end, the second one after 0 to 99 steps of the end of the first one. In between, the VM
 * that is left makes its calls, or writes its registers. */
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
        one = io;
        two = web;
        if (k & 1) {
            one = web;
            two = io;
        }
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

/* A large window is mapped and unmapped in parts. The front end ends while half of it is
 * unmapped. */
static void test_parts(void **s) {
    struct takt_window w;
    i64 r;
    u32 parts = 0;

    fake_destroy(web);
    web = make_web(20);
    assert_non_null(web);
    while (!part(io, TAKT_HC_BACK_MAP, handle(0), BUF, &r)) parts++;
    assert_int_equal(r, 0);
    assert_int_equal(parts, 32 + 1); /* 32 to scrub the waste, 1 for 16 of the 20 chunks */
    w = *(struct takt_window *)buf();
    assert_window(&w, true);
    assert_false(part(io, TAKT_HC_BACK_UNMAP, handle(0), 0, &r));
    io->vcpu[0]->virt.regs.rip++; /* meanwhile another vCPU calls */
    assert_true(part(io, TAKT_HC_BACK_MAP, handle(0), BUF, &r));
    assert_int_equal(r, -EBUSY);
    fake_destroy(web);
    web = NULL;
    w.low = 4 << CHUNK_SHIFT; /* what of it is still mapped */
    assert_waste(&w);
    assert_false(list_empty(&io->back.windows));
}

/* The back end unmapped a part of the window last. A pCPU may still have that part in its TLB, so
 * no frame of the front end may be freed, just as if all had been unmapped. */
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

/* The tables of the back end's devices, for dma_map(): where they find the first chunks. They have
 * room for `left` more. */
static struct {
    hpa_t at[3];
    u32 left;
} dma;

static int dma_map(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len) {
    dma.at[(gpa - TAKT_FOREIGN_GPA) >> CHUNK_SHIFT] = hpa;
    if (hpa == HPA_NONE) return 0;
    if (dma.left == 0) return -ENOMEM;
    dma.left--;
    return 0;
}

/* If the tables of its devices have no room for a window, the back end does not get the window
 * either. What was mapped until then is unmapped before the front end's RAM is freed. */
static void test_devices_cannot(void **s) {
    u64 left;

    memset(&dma, 0xff, sizeof(dma));
    devices_dma_map = dma_map;
    io->dma = (void *)io; /* not NULL, so that dma_map() is called */
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
    assert_true(frame_free_count() < left + 512); /* pCPU 1 may have it in its TLB */
    fake_pass(1);
    vm_put(web);
    web = NULL;
    for (int i = 0; i < 400; i++) step();
    assert_true(frame_free_count() > left + 3 * 512);
    devices_dma_map = NULL;
    io->dma = NULL;
}

/* What pCPU 0 does while pCPU 1 halts. */
static void others_work(void) {
    u32 cpu = this_cpu()->id;

    step();
    fake_cpu(cpu);
}

/* Under null's `sleepless` a vCPU of the back end that sleeps keeps its pCPU. The front end can end
 * all the same, although that pCPU never leaves the vCPU: be it the one that does the work, or one
 * that halts. */
static void test_sleeper(void **s) {
    struct sched_pool *p = sched_pool_find("Pool-0");
    struct config_vm c = io_config();
    char why[PARAM_WHY];

    fake_destroy(io);
    fake_destroy(web);
    assert_int_equal(param_set_text(param_find(p, "sleepless"), p, p, "on", why), 0);
    for (u32 cpu = 0; cpu < FAKE_CPUS; cpu++) {
        c.cpus = cpumask_of(cpu);
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
        if (cpu != 0) fake_meanwhile = others_work;
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
        cmocka_unit_test_setup_teardown(test_told_before_ram_goes, both, none_left),
        cmocka_unit_test_setup_teardown(test_front_goes, both, none_left),
        cmocka_unit_test_setup_teardown(test_unmapped_before, both, none_left),
        cmocka_unit_test_setup_teardown(test_back_goes, both, none_left),
        cmocka_unit_test_setup_teardown(test_both_go, both, none_left),
        cmocka_unit_test_setup_teardown(test_parts, both, none_left),
        cmocka_unit_test_setup_teardown(test_unmapped_halfway, both, none_left),
        cmocka_unit_test_setup_teardown(test_map_cut_short, both, none_left),
        cmocka_unit_test_setup_teardown(test_devices_cannot, both, none_left),
        cmocka_unit_test_setup_teardown(test_sleeper, both, none_left),
    };

    alarm(60); /* a VM that never ends would keep the test running for ever */
    return cmocka_run_group_tests(tests, setup, NULL);
}
