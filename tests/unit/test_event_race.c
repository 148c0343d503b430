/* Events, with two real threads that play pCPUs: one raises events, the other runs the vCPU that
 * takes them. What they write to each other must arrive whole, and no wake may be lost: the vCPU
 * would sleep for ever. */
/* The hypervisor has a sched_yield of its own, by another name on the host (Makefile). */
#pragma push_macro("sched_yield")
#undef sched_yield
#include <pthread.h>
#pragma pop_macro("sched_yield")
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <takt/errno.h>
#include "fake_machine.h"
#include "trace/trace.h"

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer makes the test ten times as slow, but it finds a race when it meets it once. */
#define TIMES 1u
#else
#define TIMES 10u
#endif
#define EVENTS (30000u * TIMES)
#define WAKES  (4000u * TIMES)
#define POLLS  (800u * TIMES)
/* After so many seconds a wake counts as lost, however busy the machine is. */
#define PATIENCE 20

/* ThreadSanitizer does not know that need_resched is volatile and a byte, which machine_kick() sets
 * and the pCPU alone clears. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:machine_kick\n"; }

static struct vm *vm;
static struct vcpu *v;
static u32 there, here; /* the vCPU's pCPU, and the other one */
static bool stop;

static int setup(void **state) {
    struct config_vm c = fake_config("guest", 1);

    fake_machine("null");
    vm = fake_vm(&c);
    assert_non_null(vm);
    v = vm->vcpu[0];
    there = v->sched.cpu;
    here = 1 - there;
    fake_cpu(there);
    fake_current(v);
    stop = false;
    return 0;
}

static int teardown(void **state) {
    fake_run = NULL;
    fake_meanwhile = NULL;
    fake_kick_may_stay = false;
    fake_cpu(0);
    fake_destroy(vm);
    return 0;
}

/* ---- a port is told with its own vector ---- */

static const u8 vectors[] = { 0x41, 0x91 }; /* each bound to the port of the same number */

static void *raise_in_turn(void *arg) {
    fake_cpu(here);
    for (u32 i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++)
        vm->events.raise(&vm->events, 0, vectors[i & 1], vectors[i & 1], false);
    return NULL;
}

static void test_event_is_whole(void **state) {
    static struct trace_record ring[8], got[8];
    u32 told = 0, torn = 0;
    int last = 0;
    pthread_t thread;

    while (last < vectors[1]) { /* both ports exist */
        last = evtchn_alloc(&vm->events, vm->id);
        assert_true(last > 0);
    }
    assert_int_equal(trace_init(there, ring, ARRAY_SIZE(ring)), 0);
    trace_mask = TRACE_CLASS_EVENT;
    pthread_create(&thread, NULL, raise_in_turn, NULL);
    while (told < EVENTS) {
        u32 vector, n;

        if (!vcpu_prepare(v) || v->virt.pending.type != EVENT_IRQ) continue;
        vector = v->virt.pending.vector;
        v->virt.pending.type = EVENT_NONE;
        vlapic_write(&v->lapic, R_EOI << 4, 0, 0);
        n = trace_read(there, got, ARRAY_SIZE(got));
        for (u32 i = 0; i < n; i++) {
            if (got[i].event != TRC_EVTCHN_TAKE) continue;
            told++;
            torn += got[i].arg[0] != vector;
        }
    }
    trace_mask = 0;
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    assert_int_equal(torn, 0);
}

/* ---- a vCPU that runs, or falls asleep ---- */

/* To notify a vCPU that runs, the scheduler need not be asked. If it were, many pCPUs that raise
 * events for each other would all wait for the lock of the pool. */
static void test_running_takes_no_lock(void **state) {
    struct sched_pool *p = v->sched.vm->pool;
    u32 taken = p->lock.next, kicks = fake_kicks[there];

    fake_cpu(here);
    vcpu_notify(v, TODO_EVENT);
    assert_int_equal(p->lock.next, taken);
    assert_int_equal(fake_kicks[there], kicks + 1);
    assert_int_equal(v->todo, TODO_EVENT);
    vcpu_notify(v, TODO_EVENT); /* kicked for that already */
    assert_int_equal(fake_kicks[there], kicks + 1);
    fake_cpu(there);
}

static u32 entries;

/* The guest takes the interrupt, if there was one, and halts. */
static void take_and_halt(struct virt_vcpu *x, struct vm_exit *e) {
    vlapic_write(&v->lapic, R_EOI << 4, 0, 0);
    __atomic_add_fetch(&entries, 1, __ATOMIC_SEQ_CST);
    e->reason = EXIT_HLT;
    e->insn_len = 1;
}

/* They may share one CPU of the host. */
static void let_the_other_run(void) { syscall(SYS_sched_yield); }

static void *raise_and_wait(void *arg) {
    fake_cpu(here);
    for (u32 i = 0; i < WAKES; i++) {
        u32 before = __atomic_load_n(&entries, __ATOMIC_SEQ_CST);
        time_t end = time(NULL) + PATIENCE;

        for (u32 n = i % 200; n; n--) __builtin_ia32_pause(); /* at all stages of falling asleep */
        vlapic_raise(&v->lapic, 0x41);
        while (__atomic_load_n(&entries, __ATOMIC_SEQ_CST) == before)
            if (time(NULL) > end) {
                *(bool *)arg = true;
                i = WAKES;
                break;
            } else {
                let_the_other_run();
            }
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    return NULL;
}

/* Each round the vCPU falls asleep while it is notified: it sees what was set before it sleeps, or
 * the other one sees that it sleeps and wakes it. */
static void test_no_wake_is_lost(void **state) {
    bool lost = false;
    pthread_t thread;

    entries = 0;
    fake_run = take_and_halt;
    fake_meanwhile = let_the_other_run;
    fake_kick_may_stay = true; /* the other one kicks whenever it likes */
    pthread_create(&thread, NULL, raise_and_wait, &lost);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) fake_pass(there);
    pthread_join(thread, NULL);
    assert_false(lost);
    assert_true(entries >= WAKES);
}

/* ---- a vCPU that polls ---- */

/* `found` counts the polls that an event has ended, and `gone` those that ended because the port
 * is gone. */
static u32 port, found, gone;

/* The guest takes what its poll has found, and polls again. */
static void take_and_poll(struct virt_vcpu *x, struct vm_exit *e) {
    u64 *gpr = v->virt.regs.gpr;

    if (gpr[REG_RAX] == 0 &&
        __atomic_fetch_and(&vm->events.shared->pending[0], ~BIT(port), __ATOMIC_SEQ_CST))
        __atomic_add_fetch(&found, 1, __ATOMIC_SEQ_CST);
    if ((i64)gpr[REG_RAX] == -ENOENT) __atomic_add_fetch(&gone, 1, __ATOMIC_SEQ_CST);
    gpr[REG_RAX] = TAKT_HC_POLL;
    gpr[REG_RBX] = port;
    gpr[REG_RCX] = 0;
    e->reason = EXIT_HYPERCALL;
    e->insn_len = 3;
    e->hc.mode = 64;
}

static bool more_than(const u32 *count, u32 before) {
    time_t end = time(NULL) + PATIENCE;

    for (u32 i = 0; __atomic_load_n(count, __ATOMIC_SEQ_CST) == before; i++) {
        if (i < 1000) continue; /* so as to be there when it polls again */
        if (time(NULL) > end) return false;
        let_the_other_run();
    }
    return true;
}

/* Sends an event, or closes the port and makes it anew. */
static void *send_and_close(void *arg) {
    struct evtchn_vm *d = &vm->events;
    u32 from = *(u32 *)arg;

    fake_cpu(here);
    for (u32 i = 0; i < POLLS && from; i++) {
        u32 were_found = __atomic_load_n(&found, __ATOMIC_SEQ_CST);
        u32 were_gone = __atomic_load_n(&gone, __ATOMIC_SEQ_CST);

        for (u32 n = i % 200; n; n--) __builtin_ia32_pause();
        if (i % 4) {
            evtchn_send(d, from, i);
            if (!more_than(&found, were_found)) from = 0;
        } else {
            evtchn_close(d, port);
            if (!more_than(&gone, were_gone)) from = 0;
            evtchn_close(d, from);
            if (evtchn_alloc(d, vm->id) != (int)port) from = 0;
            if (from) from = (u32)evtchn_bind(d, vm->id, port);
        }
    }
    *(u32 *)arg = from;
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    return NULL;
}

/* Each poll ends, by the event or by the end of its port. */
static void test_every_poll_ends(void **state) {
    pthread_t thread;
    u32 from;

    found = gone = 0;
    port = (u32)evtchn_alloc(&vm->events, vm->id);
    from = (u32)evtchn_bind(&vm->events, vm->id, port);
    v->virt.regs.gpr[REG_RAX] = 1;
    fake_run = take_and_poll;
    fake_meanwhile = let_the_other_run;
    fake_kick_may_stay = true;
    pthread_create(&thread, NULL, send_and_close, &from);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) fake_pass(there);
    pthread_join(thread, NULL);
    assert_int_not_equal(from, 0);
    assert_true(found >= POLLS / 4 * 3 && gone >= POLLS / 4);
    sched_wake(&v->sched);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_event_is_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_running_takes_no_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_wake_is_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_poll_ends, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
