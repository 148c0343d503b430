/* The loop of a pCPU: a kick that a pCPU gives to itself while it decides is answered before it
 * halts or enters a guest. The fake machine asserts that at every halt and at every entry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "fake_machine.h"

#define HERE  1u /* the pCPU under test: the other one does the housekeeping */
#define OTHER 0u

static const struct vm *entered; /* the VM whose guest was entered last */

static void note_entry(struct virt_vcpu *x, struct vm_exit *e) {
    entered = container_of(x, struct vcpu, virt)->vm;
    e->reason = EXIT_INTR;
}

static struct vm *vm_on(const char *name, u32 cpu) {
    struct config_vm c = fake_config(name, 1);
    struct vm *vm;

    cpumask_zero(&c.cpus);
    cpumask_set(&c.cpus, cpu);
    vm = fake_vm(&c);
    assert_non_null(vm);
    return vm;
}

static int setup(void **state) {
    fake_machine("null");
    fake_run = note_entry;
    return 0;
}

static int teardown(void **state) {
    fake_run = NULL;
    fake_cpu(0);
    return 0;
}

/* Under `null` a pCPU belongs to one vCPU, and the next one waits. An owner that is sent elsewhere
 * gives up its pCPU once its state is saved, and that kicks the pCPU which has just decided. Were
 * the kick lost, the pCPU would halt, and the vCPU that waits would not run before the next
 * interrupt comes. */
static void test_owner_leaves(void **state) {
    struct vm *owner = vm_on("owner", HERE), *waits = vm_on("waits", HERE);
    struct cpumask other;
    u32 halts;

    fake_pass(HERE);
    assert_ptr_equal(entered, owner);
    cpumask_zero(&other);
    cpumask_set(&other, OTHER);
    halts = fake_halts;
    assert_int_equal(sched_set_affinity(&owner->vcpu[0]->sched, &other), 0);
    fake_pass(HERE);
    assert_ptr_equal(entered, waits);
    assert_int_equal(fake_halts, halts);
    fake_cpu(0);
    fake_destroy(owner);
    fake_destroy(waits);
}

static u32 picks;

/* A policy with a fault: it kicks the pCPU that is just deciding, each time. */
static struct sched_pick restless_pick(struct sched_pool *p, u32 cpu, struct sched_vcpu *current) {
    picks++;
    sched_kick(p, cpu);
    return null_policy.pick(p, cpu, current);
}

/* Such a policy costs time, but its VMs run, and so interrupts are taken. */
static void test_policy_never_rests(void **state) {
    struct vm *vm = vm_on("vm", HERE);
    struct sched_pool *p = sched_pool_of_cpu(HERE);
    struct sched_policy restless = null_policy;

    restless.pick = restless_pick;
    p->policy = &restless;
    fake_kick_may_stay = true;
    entered = NULL;
    picks = 0;
    percpu_of[HERE]->need_resched = true;
    fake_pass(HERE);
    assert_ptr_equal(entered, vm);
    assert_in_range(picks, 2, 100);
    assert_true(percpu_of[HERE]->need_resched); /* it decides anew after the next exit */
    p->policy = &null_policy;
    percpu_of[HERE]->need_resched = true;
    fake_pass(HERE);
    fake_kick_may_stay = false;
    fake_cpu(0);
    fake_destroy(vm);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_owner_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_policy_never_rests, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
