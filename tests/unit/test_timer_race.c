/* The timer queues with two real threads for pCPUs: one is the pCPU of a vCPU, which arms its
 * LAPIC's timer at the very time when the other, where it was armed before, lets it fire. */
#include <asm/prctl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "platform/timer.c" /* no machine is needed for what is tested of it */
#include "vdev/vlapic.h"

#define RACE_NS NS_PER_S

/* ---- what the two files need of the machine ---- */

static struct percpu cpus[2];
static struct cpu_timers queues[2];
u32 nr_cpus = 2;
struct percpu *percpu_of[TAKT_MAX_CPUS] = { &cpus[0], &cpus[1] };
/* A tick is 1 ns. */
u64 tsc_khz = 1000000, tsc_boot, tsc_to_ns_mul = 1ull << 32, ns_to_tsc_mul = 1ull << 32;
bool apic_tsc_deadline;
u64 apic_timer_khz;

void apic_timer_count(u32 ticks) {}
void irq_register(u8 vector, void (*fn)(u8)) {}
void cpu_kick(unsigned cpu) {}

static void become(u32 cpu) { syscall(SYS_arch_prctl, ARCH_SET_GS, &cpus[cpu]); }

static u32 home; /* of the vCPU */
static struct vlapic lapic;

static struct timer timer;
static bool due;

static void fired(struct timer *t, u64 now) { __atomic_store_n(&due, true, __ATOMIC_SEQ_CST); }

static void notify(struct vlapic *l, enum delivery_mode what, u8 vector) {}

static void arm(struct vlapic *l, u64 when) {
    if (when == ~0ull)
        timer_cancel(&timer);
    else
        timer_set(home, &timer, when);
}

static u64 to_ns(struct vlapic *l, u64 tsc) { return tsc; }

static const struct vlapic_ops ops = { .notify = notify, .arm = arm, .tsc_to_ns = to_ns };

static int setup(void **state) {
    for (u32 i = 0; i < 2; i++) {
        cpus[i] = (struct percpu){ .self = &cpus[i], .id = i, .timers = &queues[i] };
        queues[i] = (struct cpu_timers){ .next = ~0ull, .armed = ~0ull };
    }
    tsc_boot = rdtsc();
    become(0);
    timer_init(&timer, fired);
    vlapic_init(&lapic, 0, &ops);
    vlapic_write(&lapic, 0xf0, 0x1ff, 0);
    return 0;
}

/* ---- the other pCPU ---- */

static bool stop;

static bool sets_too; /* the same timer, for the first pCPU */

static void *other_cpu(void *unused) {
    become(1);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        if (sets_too) timer_set(0, &timer, now_ns());
        timers_run();
    }
    return NULL;
}

static u32 length(const struct timer *t, u32 most) {
    u32 n = t != NULL;

    if (n && n < most) n += length(t->left, most - n);
    if (n && n < most) n += length(t->right, most - n);
    return n;
}

/* There is one timer. It must be in at most one queue, and only once. */
static void check_queues(void) {
    u32 n = length(queues[0].q.root, 1000) + length(queues[1].q.root, 1000);

    assert_true(n <= 1);
    assert_int_equal(n, timer.queued);
}

static void race(void (*one)(u64 now)) {
    u64 end = now_ns() + RACE_NS;
    pthread_t thread;

    stop = false;
    pthread_create(&thread, NULL, other_cpu, NULL);
    while (now_ns() < end) {
        one(now_ns());
        timers_run();
        if (__atomic_exchange_n(&due, false, __ATOMIC_SEQ_CST)) vlapic_tick(&lapic, now_ns());
    }
    stop = true;
    pthread_join(thread, NULL);
    check_queues();
}

/* Armed on one pCPU, and again from the other at about the time when it falls due. */
static void rearm(u64 now) {
    static u32 jitter;
    u64 when = now + 2000;

    home = 1;
    vlapic_wrmsr(&lapic, MSR_TSC_DEADLINE, when, now);
    home = 0;
    while (now_ns() < when + jitter++ % 512) __builtin_ia32_pause();
    vlapic_wrmsr(&lapic, MSR_TSC_DEADLINE, when + 1000, now_ns());
}

static void test_armed_while_it_fires(void **state) {
    vlapic_write(&lapic, 0x320, 0x40040, 0); /* TSC deadline, vector 64 */
    alarm(20);                               /* a queue that was broken may have no end */
    race(rearm);
    alarm(0);
}

/* The timer is stopped for good while it fires, as when its vCPU is destroyed. Afterwards it must
 * be in no queue. */
static void fini(u64 now) {
    vlapic_write(&lapic, 0x320, 0x20040, now); /* periodic */
    vlapic_write(&lapic, 0x3e0, 0xb, now);
    home = 1;
    vlapic_write(&lapic, 0x380, 20000, now);
    while (now_ns() < now + 20000 + (now & 1023)) __builtin_ia32_pause();
    timer_cancel_wait(&timer);
    if (timer.queued || queues[1].running == &timer) abort();
}

static void test_gone_while_it_fires(void **state) {
    alarm(20);
    race(fini);
    alarm(0);
}

/* Both want it on the first one, as when guests on two of them print, and wake the shell. */
static void wake(u64 now) { timer_set(0, &timer, now); }

static void test_set_by_two(void **state) {
    sets_too = true;
    alarm(20);
    race(wake);
    alarm(0);
    sets_too = false;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_armed_while_it_fires, setup),
        cmocka_unit_test_setup(test_gone_while_it_fires, setup),
        cmocka_unit_test_setup(test_set_by_two, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
