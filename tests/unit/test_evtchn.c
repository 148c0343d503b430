/* Event channels: each call and each refusal, then three VMs at once as threads, then a random
 * walk that is compared with a model. */
#pragma push_macro("sched_yield") /* the hypervisor has one of its own */
#undef sched_yield
#include <pthread.h>
#pragma pop_macro("sched_yield")
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "event/evtchn.h"
#include "fake_machine.h"

#define NR 3u

static struct evtchn_vm vm[NR];
static struct takt_shared shared[NR];
static struct {
    u32 calls, vm, vcpu, port;
    u8 vector;
    bool other;
} raised;

static void assert_no_lock(void) {
    assert_false(spin_is_locked(&evtchn_lock));
    for (u32 i = 0; i < NR; i++) assert_false(spin_is_locked(&vm[i].lock));
}

static void raise_event(struct evtchn_vm *d, u32 vcpu, u8 vector, u32 port, bool other) {
    assert_no_lock();
    assert_int_equal(d->users, 1); /* it is not destroyed meanwhile */
    raised.calls++;
    raised.vm = d->vm;
    raised.vcpu = vcpu;
    raised.vector = vector;
    raised.port = port;
    raised.other = other;
}

static void ports_init(u32 i) {
    memset(&shared[i], 0, sizeof(shared[i]));
    memset(&vm[i], 0, sizeof(vm[i]));
    evtchn_init(&vm[i], i + 1, 2, &shared[i], raise_event);
}

static void ports_fini(u32 i) {
    while (evtchn_fini(&vm[i]))
        ;
}

static int group_setup(void **state) {
    fake_machine("null");
    return 0;
}

static int setup(void **state) {
    memset(&raised, 0, sizeof(raised));
    for (u32 i = 0; i < NR; i++) ports_init(i);
    return 0;
}

static int teardown(void **state) {
    for (u32 i = 0; i < NR; i++) {
        ports_fini(i);
        for (u32 w = 0; w < ARRAY_SIZE(vm[i].used); w++) assert_int_equal(vm[i].used[w], 0);
        assert_int_equal(vm[i].users, 0);
    }
    assert_no_lock();
    return 0;
}

static bool pending(u32 i, int port) { return shared[i].pending[port / 64] >> (port % 64) & 1; }

static void clear(u32 i, int port) { shared[i].pending[port / 64] &= ~BIT(port % 64); }

static void join(int *a, int *b) {
    *a = evtchn_alloc(&vm[0], 2);
    *b = evtchn_bind(&vm[1], 1, (u32)*a);
    assert_true(*a > 0 && *b > 0);
}

static void test_send(void **state) {
    int a, b;

    join(&a, &b);
    assert_int_equal(evtchn_vector(&vm[1], (u32)b, 1, 0x55), 0);
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 10), 0);
    assert_int_equal(raised.calls, 1);
    assert_int_equal(raised.vm, 2);
    assert_int_equal(raised.vcpu, 1);
    assert_int_equal(raised.vector, 0x55);
    assert_int_equal(raised.port, b);
    assert_true(raised.other);
    assert_true(pending(1, b));
    assert_false(pending(0, a));
    /* It is pending already, so there is nothing more to tell. */
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 20), 0);
    assert_int_equal(raised.calls, 1);
    assert_int_equal(evtchn_taken(&vm[1], (u32)b, 25), 15);
    assert_int_equal(evtchn_taken(&vm[1], (u32)b, 25), 0);
    clear(1, b);
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 30), 0);
    assert_int_equal(raised.calls, 2);
    assert_int_equal(evtchn_send(&vm[1], (u32)b, 30), 0); /* and the other way */
    assert_int_equal(raised.vm, 1);
    assert_int_equal(raised.vector, 0);
}

static void test_own(void **state) {
    int a = evtchn_alloc(&vm[0], 1), b = evtchn_bind(&vm[0], 1, (u32)a);

    raised.other = true;
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 10), 0);
    assert_int_equal(raised.port, b);
    assert_false(raised.other);
}

static void test_mask(void **state) {
    int a, b;

    join(&a, &b);
    assert_int_equal(evtchn_mask(&vm[1], (u32)b, true, 1), 0);
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 2), 0);
    assert_int_equal(raised.calls, 0);
    assert_true(pending(1, b));
    assert_int_equal(evtchn_pending(&vm[1], 0, (u32)b), 0);
    assert_int_equal(evtchn_mask(&vm[1], (u32)b, false, 3), 0);
    assert_int_equal(raised.calls, 1);
    assert_int_equal(raised.port, b);
    assert_false(raised.other); /* who unmasks raises it itself */
    assert_int_equal(evtchn_taken(&vm[1], (u32)b, 7), 5);
    assert_int_equal(evtchn_pending(&vm[1], 0, (u32)b), 1);
    assert_int_equal(evtchn_pending(&vm[1], 0, TAKT_PORT_ANY), 1);
    assert_int_equal(evtchn_pending(&vm[1], 1, TAKT_PORT_ANY), 0);
}

static void test_refusals(void **state) {
    int a, b, c;

    join(&a, &b);
    assert_int_equal(evtchn_bind(&vm[2], 1, (u32)a), -EPERM);
    assert_int_equal(evtchn_bind(&vm[1], 1, (u32)a), -EBUSY);
    assert_int_equal(evtchn_bind(&vm[1], 9, 1), -ENOENT);
    assert_int_equal(evtchn_bind(&vm[1], 1, 77), -ENOENT);
    assert_int_equal(evtchn_bind(&vm[1], 1, 0), -EINVAL);
    assert_int_equal(evtchn_bind(&vm[1], 1, TAKT_MAX_PORTS), -EINVAL);
    assert_int_equal(evtchn_bind(&vm[1], 1, ~0u), -EINVAL);
    c = evtchn_alloc(&vm[0], 3);
    assert_int_equal(evtchn_send(&vm[0], (u32)c, 0), -ENOENT); /* not bound yet */
    for (u32 i = 0; i < 3; i++) {
        static const u32 bad[] = { 0, TAKT_MAX_PORTS, ~0u };

        assert_int_equal(evtchn_send(&vm[0], bad[i], 0), -EINVAL);
        assert_int_equal(evtchn_close(&vm[0], bad[i]), -EINVAL);
        assert_int_equal(evtchn_mask(&vm[0], bad[i], true, 0), -EINVAL);
        assert_int_equal(evtchn_vector(&vm[0], bad[i], 0, 40), -EINVAL);
        if (bad[i] != TAKT_PORT_ANY) assert_int_equal(evtchn_pending(&vm[0], 0, bad[i]), -EINVAL);
    }
    assert_int_equal(evtchn_close(&vm[0], 500), -ENOENT);
    assert_int_equal(evtchn_vector(&vm[0], (u32)a, 2, 40), -EINVAL);
    assert_int_equal(evtchn_vector(&vm[0], (u32)a, 0, 31), -EINVAL);
    assert_int_equal(evtchn_vector(&vm[0], (u32)a, 0, 256), -EINVAL);
    assert_int_equal(evtchn_vector(&vm[0], (u32)a, 0, 0), 0);
}

static void test_close(void **state) {
    int a, b;

    join(&a, &b);
    evtchn_send(&vm[0], (u32)a, 1);
    assert_int_equal(evtchn_close(&vm[1], (u32)b), 0);
    assert_false(pending(1, b));
    assert_int_equal(evtchn_close(&vm[1], (u32)b), -ENOENT);
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 1), -ENOENT);
    b = evtchn_bind(&vm[1], 1, (u32)a); /* it is unbound again, for the same VM */
    assert_true(b > 0);
    ports_fini(0);
    assert_int_equal(evtchn_send(&vm[1], (u32)b, 1), -ENOENT);
    assert_int_equal(evtchn_close(&vm[1], (u32)b), 0);
}

/* A vCPU that polls a port is told when the port is closed, whichever vCPU closes it. */
static void test_close_tells_pollers(void **state) {
    int a, b, made = evtchn_make(&vm[0]);

    join(&a, &b);
    assert_int_equal(evtchn_close(&vm[0], (u32)made), -EPERM);
    assert_int_equal(raised.calls, 0);
    assert_int_equal(evtchn_close(&vm[1], (u32)b), 0);
    assert_int_equal(raised.calls, 1);
    assert_int_equal(raised.vm, 2);
    assert_int_equal(raised.vcpu, EVTCHN_NO_VCPU);
    assert_int_equal(raised.vector, 0);
    assert_int_equal(raised.port, b);
    assert_false(raised.other);
    evtchn_unmake(&vm[0], (u32)made);
    assert_int_equal(raised.calls, 2);
    assert_int_equal(raised.vm, 1);
    assert_int_equal(raised.port, made);
}

/* What is hot takes the VM's own lock once, and no other: pairs of VMs do not wait for each
 * other. */
static void test_locks(void **state) {
    u32 list, own, peer, stranger;
    int a, b;

    join(&a, &b);
    list = evtchn_lock.next;
    own = vm[0].lock.next;
    peer = vm[1].lock.next;
    stranger = vm[2].lock.next;
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 1), 0);
    assert_int_equal(vm[0].lock.next, own + 1);
    assert_int_equal(evtchn_raise(&vm[0], (u32)a, 1), 0);
    assert_int_equal(evtchn_mask(&vm[0], (u32)a, true, 1), 0);
    assert_int_equal(evtchn_pending(&vm[0], 0, (u32)a), 0);
    assert_int_equal(evtchn_pending(&vm[0], 0, TAKT_PORT_ANY), 0);
    assert_int_equal(vm[0].lock.next, own + 5);
    assert_int_equal(vm[1].lock.next, peer);
    assert_int_equal(vm[2].lock.next, stranger);
    assert_int_equal(evtchn_lock.next, list);
}

static void test_first_pending(void **state) {
    int a, b, c, d;

    join(&a, &b);
    join(&c, &d);
    assert_int_equal(evtchn_vector(&vm[1], (u32)d, 1, 0x40), 0);
    evtchn_send(&vm[0], (u32)a, 1);
    evtchn_send(&vm[0], (u32)c, 1);
    assert_int_equal(evtchn_first_pending(&vm[1], 0, 0), b);
    assert_int_equal(evtchn_first_pending(&vm[1], 0, (u32)b), b);
    assert_int_equal(evtchn_first_pending(&vm[1], 0, (u32)b + 1), 0);
    assert_int_equal(evtchn_first_pending(&vm[1], 1, 0), d);
    assert_int_equal(evtchn_mask(&vm[1], (u32)d, true, 2), 0);
    assert_int_equal(evtchn_first_pending(&vm[1], 1, 0), 0);
    /* Also a port of the second word, and of the third, is found. */
    for (u32 i = 0; i < 2; i++) {
        for (u32 n = 0; n < 64; n++) join(&a, &b);
        assert_true(b >= 64);
        evtchn_send(&vm[0], (u32)a, 1);
        assert_int_equal(evtchn_first_pending(&vm[1], 0, 64), b);
        vm[1].shared->pending[b / 64] = 0;
    }
}

static void test_quota(void **state) {
    u64 heap;

    ports_fini(0);
    heap = heap_in_use();
    ports_init(0);
    for (u32 i = 1; i < TAKT_MAX_PORTS; i++) assert_int_equal(evtchn_alloc(&vm[0], 2), i);
    assert_int_equal(evtchn_alloc(&vm[0], 2), -ENOSPC);
    assert_int_equal(evtchn_bind(&vm[0], 1, 5), -ENOSPC);
    assert_true(evtchn_alloc(&vm[1], 1) > 0); /* the neighbour has its own */
    assert_int_equal(evtchn_close(&vm[0], 700), 0);
    assert_int_equal(evtchn_alloc(&vm[0], 2), 700);
    ports_fini(0);
    /* What is left belongs to vm[1], which has one port. */
    assert_true(heap_in_use() > heap);
    assert_true(heap_in_use() <= heap + 2048);
}

static void test_with_itself(void **state) {
    int a = evtchn_alloc(&vm[0], 1), b = evtchn_bind(&vm[0], 1, (u32)a);

    assert_true(b > 0 && b != a);
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 1), 0);
    assert_true(pending(0, b));
    assert_int_equal(evtchn_close(&vm[0], (u32)a), 0);
    assert_int_equal(evtchn_send(&vm[0], (u32)b, 1), -ENOENT);
    assert_int_equal(evtchn_close(&vm[0], (u32)b), 0);
}

/* ---- pCPUs that do it all at once ---- */

/* Each VM's. More would take long where pCPUs are more than the host's: a thread that waits for a
 * ticket lock spins until the holder runs again. */
#define STEPS 3000u

static u32 mistakes;

static void count_raised(struct evtchn_vm *d, u32 vcpu, u8 vector, u32 port, bool other) {
    if (__atomic_load_n(&d->users, __ATOMIC_SEQ_CST) == 0 || port == 0 || port >= TAKT_MAX_PORTS)
        __atomic_add_fetch(&mistakes, 1, __ATOMIC_SEQ_CST);
}

/* One VM's pCPU: it makes pairs with all three VMs, sends, masks and closes, and so do the
 * others. */
static void *act(void *arg) {
    u32 i = (u32)(u64)arg;
    unsigned seed = i + 1;

    fake_cpu(i % FAKE_CPUS);
    for (u32 n = 0; n < STEPS; n++) {
        u32 r = (u32)rand_r(&seed) % NR, port = (u32)rand_r(&seed) % 8;

        switch (rand_r(&seed) % 8) {
        case 0: evtchn_alloc(&vm[i], r + 1); break;
        case 1: evtchn_bind(&vm[i], r + 1, port); break;
        case 2 ... 3: evtchn_send(&vm[i], port, n); break;
        case 4: evtchn_mask(&vm[i], port, rand_r(&seed) & 1, n); break;
        case 5: evtchn_vector(&vm[i], port, n & 1, 0x40); break;
        case 6: __atomic_and_fetch(&shared[i].pending[0], rand_r(&seed), __ATOMIC_SEQ_CST); break;
        case 7: evtchn_close(&vm[i], port); break;
        }
    }
    return NULL;
}

/* No two threads wait for each other, and each end of a pair knows the other one. */
static void test_threads(void **state) {
    pthread_t thread[NR];
    u32 pairs = 0;

    mistakes = 0;
    for (u32 i = 0; i < NR; i++) vm[i].raise = count_raised;
    for (u32 i = 0; i < NR; i++) pthread_create(&thread[i], NULL, act, (void *)(u64)i);
    for (u32 i = 0; i < NR; i++) pthread_join(thread[i], NULL);
    assert_int_equal(mistakes, 0);
    assert_no_lock();
    for (u32 i = 0; i < NR; i++) {
        for (u32 port = 1; port < TAKT_MAX_PORTS; port++) {
            const struct evtchn_port *p;

            if (!(vm[i].used[port / 64] >> (port % 64) & 1)) continue;
            p = evtchn_port(&vm[i], port);
            if (!p->peer) continue;
            assert_ptr_equal(evtchn_port(p->peer, p->peer_port)->peer, &vm[i]);
            assert_int_equal(evtchn_port(p->peer, p->peer_port)->peer_port, port);
            pairs++;
        }
    }
    assert_int_equal(pairs % 2, 0);
}

/* ---- the model ---- */

#define PORTS 12u /* the walk uses numbers below it, and a few wild ones */

struct model_port {
    bool used;
    int vm, port; /* joined with; vm -1: unbound */
    u32 for_vm;
    bool pending, masked;
};
static struct model_port model[NR][PORTS];

static int model_free(u32 i) {
    for (int p = 1; p < (int)PORTS; p++)
        if (!model[i][p].used) return p;
    return -1;
}

static struct model_port *model_at(u32 i, u32 port) {
    if (port >= PORTS || !model[i][port].used) return NULL;
    return &model[i][port];
}

/* The error of a call on a port that is not in use. */
static int no_port(u32 port) {
    if (port == 0 || port >= TAKT_MAX_PORTS) return -EINVAL;
    return -ENOENT;
}

static void check_model(void) {
    for (u32 i = 0; i < NR; i++)
        for (u32 p = 1; p < PORTS; p++) {
            assert_int_equal(pending(i, (int)p), model[i][p].used && model[i][p].pending);
            assert_int_equal(shared[i].mask[0] >> p & 1, model[i][p].used && model[i][p].masked);
        }
}

static void walk_alloc(u32 i, u32 for_vm) {
    int want = model_free(i);

    if (want < 0) return;
    assert_int_equal(evtchn_alloc(&vm[i], for_vm), want);
    model[i][want] = (struct model_port){ .used = true, .vm = -1, .for_vm = for_vm };
}

static void walk_bind(u32 i, u32 r, u32 port) {
    struct model_port *q = model_at(r, port);
    int mine = model_free(i), got, want;

    if (mine < 0) return;
    got = evtchn_bind(&vm[i], r + 1, port);
    want = mine;
    if (!q)
        want = no_port(port);
    else if (q->for_vm != i + 1)
        want = -EPERM;
    else if (q->vm >= 0)
        want = -EBUSY;
    assert_int_equal(got, want);
    if (got < 0) return;
    model[i][mine] =
        (struct model_port){ .used = true, .vm = (int)r, .port = (int)port, .for_vm = r + 1 };
    q->vm = (int)i;
    q->port = mine;
}

static void walk_send(u32 i, u32 port) {
    struct model_port *p = model_at(i, port), *q = NULL;
    u32 calls = raised.calls;
    int got = evtchn_send(&vm[i], port, 5), want = 0;

    if (p && p->vm >= 0) q = &model[p->vm][p->port];
    if (!q) want = no_port(port);
    assert_int_equal(got, want);
    assert_int_equal(raised.calls - calls, q && !q->pending && !q->masked);
    if (q) q->pending = true;
}

static void walk_close(u32 i, u32 port) {
    struct model_port *p = model_at(i, port);
    u32 calls = raised.calls;
    int got = evtchn_close(&vm[i], port), want = 0;

    if (!p) want = no_port(port);
    assert_int_equal(got, want);
    assert_int_equal(raised.calls, calls + (p != NULL)); /* for those that poll it */
    if (!p) return;
    if (p->vm >= 0) model[p->vm][p->port].vm = -1;
    memset(p, 0, sizeof(*p));
}

static void walk_mask(u32 i, u32 port, bool on) {
    struct model_port *p = model_at(i, port);
    u32 calls = raised.calls;

    evtchn_mask(&vm[i], port, on, 5);
    assert_int_equal(raised.calls - calls, p && !on && p->pending);
    if (p) p->masked = on;
}

static void test_random_walk(void **state) {
    static const u32 wild[] = { 0, 60, 1023, 1024, ~1u };

    memset(model, 0, sizeof(model));
    srand(7);
    for (int n = 0; n < 200000; n++) {
        u32 i = (u32)rand() % NR, r = (u32)rand() % NR, port = (u32)rand() % PORTS;

        if (rand() % 20 == 0) port = wild[(u32)rand() % ARRAY_SIZE(wild)];
        switch (rand() % 8) {
        case 0: walk_alloc(i, r + 1); break;
        case 1 ... 2: walk_bind(i, r, port); break;
        case 3 ... 4: walk_send(i, port); break;
        case 5: walk_mask(i, port, rand() & 1); break;
        case 6:
            if (port < PORTS && port) {
                clear(i, (int)port);
                model[i][port].pending = false;
            }
            break;
        case 7:
            if (rand() % 3 == 0) walk_close(i, port);
            break;
        }
        if (n % 64 == 0) check_model();
    }
    check_model();
}

/* These ports are made by the hypervisor. A guest can neither bind nor close them. A VM that is
 * joined with one has an ordinary port of its own. */
static void test_fixed(void **state) {
    int a = evtchn_make(&vm[0]), b, again;

    assert_true(a > 0);
    assert_int_equal(evtchn_close(&vm[0], (u32)a), -EPERM);
    assert_int_equal(evtchn_bind(&vm[1], 1, (u32)a), -EPERM);
    assert_int_equal(evtchn_bind(&vm[0], 1, (u32)a), -EPERM);
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 5), -ENOENT);
    b = evtchn_connect(&vm[1], &vm[0], (u32)a);
    assert_true(b > 0);
    assert_int_equal(evtchn_connect(&vm[1], &vm[0], (u32)a), b);
    assert_int_equal(evtchn_connect(&vm[2], &vm[0], (u32)a), -EBUSY);
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 5), 0);
    assert_true(pending(1, b));
    assert_int_equal(evtchn_close(&vm[1], (u32)b), 0);
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 5), -ENOENT);
    again = evtchn_connect(&vm[2], &vm[0], (u32)a);
    assert_true(again > 0);
    assert_int_equal(evtchn_send(&vm[2], (u32)again, 5), 0);
    assert_true(pending(0, a));
    ports_fini(2); /* its end unbinds it, and the port stays */
    assert_int_equal(evtchn_send(&vm[0], (u32)a, 5), -ENOENT);
    assert_int_equal(evtchn_close(&vm[0], (u32)a), -EPERM);
    ports_init(2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_send, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mask, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_tells_pollers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_locks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_first_pending, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_quota, setup, teardown),
        cmocka_unit_test_setup_teardown(test_with_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fixed, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, NULL);
}
