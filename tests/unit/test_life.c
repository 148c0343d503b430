/* VMs are made and destroyed on the fake machine, in each state and with each allocation
 * failing. No frame and no byte of the heap may be lost, since a machine runs for months. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "fake_log.h"
#include "fake_machine.h"
#include "platform/timer.h"

static u64 frames, heap;

static int setup(void **state) {
    struct config_vm c = fake_config("first", 2);

    fake_machine("credit");
    fake_destroy(fake_vm(&c)); /* what is allocated once and kept */
    frames = frame_free_count();
    heap = heap_in_use();
    return 0;
}

static void assert_no_leak(void) {
    assert_int_equal(frame_free_count(), frames);
    assert_int_equal(heap_in_use(), heap);
}

static void test_ten_thousand(void **state) {
    struct config_vm c = fake_config("again", 1);

    for (int i = 0; i < 10000; i++) {
        struct vm *vm = fake_vm(&c);
        int port;

        assert_non_null(vm);
        assert_int_equal(vm->state, VM_RUNNING);
        port = evtchn_alloc(&vm->events, vm->id);
        assert_true(port > 0);
        assert_true(evtchn_bind(&vm->events, vm->id, (u32)port) > 0);
        fake_destroy(vm);
    }
    assert_no_leak();
}

static void test_scrubbed(void **state) {
    struct config_vm c = fake_config("secret", 1);
    struct vm *vm = fake_vm(&c);
    u64 room;

    memset(guestmem_at(&vm->mem, 0, &room), 0x5e, 2 << 20);
    memset(vm->events.shared, 0x5e, PAGE_SIZE);
    fake_destroy(vm);
    vm = fake_vm(&c);
    for (u64 at = 0; at < 2 << 20; at += 4096) {
        const u8 *page = guestmem_at(&vm->mem, at, &room);

        if (at != 0x6000 && at != 0x100000) /* start page and image */
            for (int i = 0; i < 4096; i++) assert_int_equal(page[i], 0);
    }
    for (size_t i = 0; i < sizeof(*vm->events.shared); i++)
        assert_int_equal(((u8 *)vm->events.shared)[i], 0);
    fake_destroy(vm);
    assert_no_leak();
}

static void test_no_memory(void **state) {
    struct config_vm c = fake_config("big", 1);
    struct vm *vm[FAKE_RAM >> 21];
    u32 n = 0;

    c.memory = FAKE_RAM;
    assert_null(fake_vm(&c));
    assert_int_equal(fake_error, -ENOMEM);
    assert_string_equal(fake_why, "there is not enough free memory for it");
    assert_null(vm_find("big"));
    c.memory = (2 << 20) + 4096;
    assert_null(fake_vm(&c));
    assert_int_equal(fake_error, -EINVAL);
    c.memory = 2 << 20;
    for (;; n++) { /* until RAM is out: the others stay */
        hv_snprintf(c.head.name, sizeof(c.head.name), "vm%u", n);
        vm[n] = fake_vm(&c);
        if (!vm[n]) break;
    }
    assert_int_equal(fake_error, -ENOMEM);
    assert_in_range(n, 20, 31);
    for (u32 i = 0; i < n; i++) {
        assert_int_equal(vm[i]->state, VM_RUNNING);
        fake_destroy(vm[i]);
    }
    assert_no_leak();
}

static void test_every_failing_frame(void **state) {
    struct config_vm c = fake_config("fails", 2);
    hpa_t *held = test_malloc(FAKE_RAM / PAGE_SIZE * sizeof(hpa_t));

    /* Whole chunks are there in plenty, but only 0, 1, 2 ... small frames. So making the VM fails
     * at a later step each time, and must never leak anything. */
    for (u32 keep = 0; keep < 40; keep++) {
        hpa_t chunk = frame_alloc(FRAME_ORDER_2M);
        u32 n = 0;
        struct vm *vm;

        while ((held[n] = frame_alloc(0)) != HPA_NONE) n++;
        for (u32 i = 0; i < keep; i++) frame_free(held[--n], 0);
        frame_free(chunk, FRAME_ORDER_2M);
        vm = fake_vm(&c);
        if (vm)
            fake_destroy(vm);
        else
            assert_int_equal(fake_error, -ENOMEM);
        while (n) frame_free(held[--n], 0);
        assert_no_leak();
    }
    test_free(held);
}

static void test_refused(void **state) {
    struct config_vm c = fake_config("one", 1);
    struct vm *vm = fake_vm(&c);

    assert_int_equal(vm_create(&c, NULL, NULL), -EEXIST);
    strcpy(c.head.name, "two");
    c.vcpus = 0;
    assert_int_equal(vm_create(&c, NULL, NULL), -EINVAL);
    c.vcpus = 65;
    assert_int_equal(vm_create(&c, NULL, NULL), -EINVAL);
    c.vcpus = 1;
    strcpy(c.image, "absent");
    assert_null(fake_vm(&c));
    assert_string_equal(fake_why, "its image is not among the boot modules: absent");
    strcpy(c.image, "null");
    strcpy(c.pool, "nowhere");
    assert_null(fake_vm(&c));
    assert_string_equal(fake_why, "there is no such pool");
    strcpy(c.pool, "Pool-0");
    cpumask_zero(&c.cpus);
    cpumask_set(&c.cpus, 40);
    assert_null(fake_vm(&c));
    assert_string_equal(fake_why, "none of the pCPUs in `cpus` belongs to its pool");
    fake_destroy(vm);
    assert_no_leak();
}

static void test_find_and_next(void **state) {
    struct config_vm a = fake_config("a", 1), b = fake_config("b", 3);
    struct vm *va = fake_vm(&a), *vb = fake_vm(&b), *v;
    char id[16];

    hv_snprintf(id, sizeof(id), "%u", vb->id);
    v = vm_find(id);
    assert_ptr_equal(v, vb);
    vm_put(v);
    assert_null(vm_find("99999999999999999999"));
    assert_null(vm_find(""));
    v = vm_next(NULL);
    assert_ptr_equal(v, va);
    v = vm_next(v);
    assert_ptr_equal(v, vb);
    fake_destroy(vb); /* while the walk holds it */
    assert_null(vm_next(v));
    fake_destroy(va);
    assert_no_leak();
}

static void test_pause(void **state) {
    struct config_vm c = fake_config("p", 1);
    struct vm *vm = fake_vm(&c);

    assert_int_equal(vm_unpause(vm), -EINVAL);
    assert_int_equal(vm_pause(vm), 0);
    assert_int_equal(vm_pause(vm), 0);
    assert_int_equal(vm->state, VM_PAUSED);
    assert_int_equal(vm_unpause(vm), 0);
    assert_int_equal(vm_unpause(vm), -EINVAL);
    assert_int_equal(vm_pause(vm), 0);
    assert_int_equal(vm_destroy(vm, NULL, NULL), 0);
    assert_int_equal(vm_destroy(vm, NULL, NULL), -EBUSY);
    assert_int_equal(vm_pause(vm), -EINVAL);
    vm_put(vm);
    fake_work();
    assert_no_leak();
}

static void test_crash(void **state) {
    struct config_vm c = fake_config("bad", 2), d = fake_config("other", 1);
    struct vm *vm = fake_vm(&c), *other = fake_vm(&d), *again;
    u32 id = vm->id;

    vm_crash(vm, "it did %d", 7);
    vm_crash(vm, "and again");
    assert_int_equal(vm->state, VM_CRASHED);
    assert_string_equal(vm->why, "it did 7");
    fake_work();
    assert_int_equal(vm->state, VM_CRASHED); /* preserved */
    assert_int_equal(other->state, VM_RUNNING);
    fake_destroy(vm);

    c.on_crash = ON_CRASH_RESTART;
    vm = fake_vm(&c);
    id = vm->id;
    vm_crash(vm, "it did");
    vm_put(vm);
    fake_work();
    again = vm_find("bad");
    assert_non_null(again);
    assert_int_not_equal(again->id, id);
    assert_int_equal(again->state, VM_RUNNING);
    fake_destroy(again);

    c.on_crash = ON_CRASH_DESTROY;
    vm = fake_vm(&c);
    vm_crash(vm, "it did");
    vm_put(vm);
    fake_work();
    assert_null(vm_find("bad"));
    fake_destroy(other);
    assert_no_leak();
}

static void test_shutdown(void **state) {
    struct config_vm c = fake_config("ends", 2);
    struct vm *vm = fake_vm(&c), *again;

    vm_shutdown(vm, TAKT_SHUTDOWN_REBOOT, 3);
    assert_int_equal(vm->exit_code, 3);
    /* A VM does not restart before it is a second old. Otherwise it could restart again and again,
     * and fill the log. */
    fake_work_due();
    again = vm_find("ends");
    assert_ptr_equal(again, vm);
    vm_put(again);
    vm_put(vm);
    fake_work();
    again = vm_find("ends");
    assert_non_null(again);
    vm_shutdown(again, TAKT_SHUTDOWN_REBOOT, 0);
    assert_int_equal(vm_destroy(again, NULL, NULL), -EBUSY); /* and then it does not come again */
    vm_put(again);
    fake_work();
    assert_null(vm_find("ends"));
    again = fake_vm(&c);
    vm_shutdown(again, TAKT_SHUTDOWN_POWEROFF, 0);
    vm_put(again);
    fake_work();
    assert_null(vm_find("ends"));
    assert_no_leak();
}

/* Ids stay below the bit that marks the turbo part of a VM. Ids that are taken are left out, and
 * the list stays in order. */
static void test_ids_come_round(void **state) {
    struct config_vm c = fake_config("stays", 1), none = fake_config("none", 1);
    struct vm *first = fake_vm(&c), *second, *at;
    u32 id = 0;

    vm_stopped = NULL;
    none.memory = 1ull << 40; /* ends at once */
    for (u32 i = 0; i < SCHED_TURBO + 10; i++) {
        struct vm *vm;

        assert_int_equal(vm_create(&none, NULL, NULL), 0);
        vm = vm_find("none");
        assert_true(vm->id > 0 && vm->id < SCHED_TURBO && vm->id != first->id && vm->id != id);
        id = vm->id;
        vm_put(vm);
        fake_work();
    }
    strcpy(c.head.name, "second");
    second = fake_vm(&c);
    assert_true(second->id > 0 && second->id != first->id);
    at = vm_next(NULL);
    assert_ptr_equal(at, first->id < second->id ? first : second);
    at = vm_next(at);
    assert_ptr_equal(at, first->id < second->id ? second : first);
    assert_null(vm_next(at));
    fake_destroy(first);
    fake_destroy(second);
    assert_no_leak();
}

/* Its room makes a struct vcpu of what it gets, and an idle one is in none. */
static u32 idle_ones;

static void count_idle(struct sched_vcpu *s, u64 now) { idle_ones += sched_is_idle(s); }

static void test_published_are_vcpus(void **state) {
    struct config_vm c = fake_config("shown", 2);
    struct vm *vm;

    sched_state_hook = count_idle;
    vm = fake_vm(&c);
    for (u32 cpu = 0; cpu < FAKE_CPUS; cpu++) fake_pass(cpu);
    fake_cpu(0);
    fake_destroy(vm);
    sched_state_hook = vcpu_publish;
    assert_int_equal(idle_ones, 0);
}

static u32 stops_seen;

static void on_stopped(struct vm *vm) {
    assert_true(sched_vm_stopped(&vm->sched));
    assert_true(vm->events.used[0] != 0);
    assert_int_equal(vm->nr_vcpus, 2);
    assert_int_equal(vm->mem.grown, 1);
    stops_seen++;
}

static void test_order_of_destruction(void **state) {
    struct config_vm c = fake_config("ordered", 2);
    struct vm *vm = fake_vm(&c);

    for (u32 i = 0; i < 2; i++) { /* vCPU 1 where fake_current() runs it */
        struct cpumask other = cpumask_of(1 - i);

        assert_int_equal(sched_set_affinity(&vm->vcpu[i]->sched, &other), 0);
    }
    evtchn_alloc(&vm->events, 1);
    fake_current(vm->vcpu[1]); /* on a pCPU: destruction has to wait for it */
    vm_stopped = on_stopped;
    vm_destroy(vm, NULL, NULL);
    for (int i = 0; i < 3; i++) work_run(); /* its pCPU has not heard of it yet */
    assert_int_equal(stops_seen, 0);
    vm_put(vm);
    fake_work();
    assert_int_equal(stops_seen, 1);
    assert_no_leak();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ten_thousand),
        cmocka_unit_test(test_scrubbed),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_every_failing_frame),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_find_and_next),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_crash),
        cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_published_are_vcpus),
        cmocka_unit_test(test_order_of_destruction),
        cmocka_unit_test(test_ids_come_round),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
