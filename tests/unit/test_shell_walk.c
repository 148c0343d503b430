/* 20,000 commands of the shell in random order on VMs and pools, valid ones and invalid ones. A
 * model tells for each whether it must succeed, and what the lists must show afterwards. The tests
 * of test_shell.c look at one command after another; this one finds what only a sequence of them
 * breaks: a pool that keeps the CPU of one that was destroyed, a refused command that changed
 * something all the same, a frame that is lost when a VM ends in an unusual state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "shell_rig.h"

#define VMS            4 /* called r0 to r3 */
#define POOLS          3
#define WALK           20000
#define DEFAULT_WEIGHT 256
#define MAX_WEIGHT     65535
#define CPU_1          2 /* in the sets of CPUs below */
#define BOTH_CPUS      3

/* What the VMs and pools must be like. A set of CPUs has one bit for each of the two. */
static struct {
    struct vm_model {
        bool there, paused;
        u32 pool, weight;
    } vm[VMS];
    struct pool_model {
        bool there;
        u64 cpus;
    } pool[POOLS];
} model;

static struct config cfg;
static u32 seed = 12345;

static u32 any(u32 n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

static const char *pool_name(u32 p) {
    static const char *const names[POOLS] = { "Pool-0", "alpha", "beta" };

    return names[p];
}

static const char *cpus_text(u64 cpus) {
    static const char *const texts[] = { "none", "0", "1", "0-1" };

    return texts[cpus];
}

static u32 vms_in(u32 p) {
    u32 n = 0;

    for (u32 i = 0; i < VMS; i++) {
        if (model.vm[i].there && model.vm[i].pool == p) n++;
    }
    return n;
}

static bool is_cpu_1_free(void) {
    for (u32 p = 0; p < POOLS; p++) {
        if (model.pool[p].cpus & CPU_1) return false;
    }
    return true;
}

/* Types the command, which must succeed or fail as `expected` says. */
static void expect(const char *line, bool expected) {
    const char *said = rig_say(line);
    bool good = strstr(said, "\"error\": 0") != NULL;

    if (good != expected)
        fail_msg("%s\n  said: %s\n  it succeeded: %d, expected: %d", line, said, good, expected);
}

/* ---- one function for each command: types it, and changes the model if it must succeed ---- */

static void create(u32 number) {
    struct vm_model *vm = &model.vm[number];
    char line[128];

    sprintf(line, "create -j r%u image=null memory=2M vcpus=%u", number, 1 + any(2));
    expect(line, !vm->there);
    if (!vm->there) *vm = (struct vm_model){ .there = true, .weight = DEFAULT_WEIGHT };
}

static void destroy(u32 number) {
    char line[128];

    sprintf(line, "destroy -j r%u", number);
    expect(line, model.vm[number].there);
    model.vm[number].there = false;
}

static void pause_vm(u32 number) {
    char line[128];

    sprintf(line, "pause -j r%u", number);
    expect(line, model.vm[number].there);
    model.vm[number].paused = true;
}

static void unpause(u32 number) {
    struct vm_model *vm = &model.vm[number];
    char line[128];

    sprintf(line, "unpause -j r%u", number);
    expect(line, vm->there && vm->paused);
    vm->paused = false;
}

static void set_weight(u32 number) {
    struct vm_model *vm = &model.vm[number];
    u32 weight;
    bool good;
    char line[128];

    if (any(2))
        weight = 1 + any(MAX_WEIGHT);
    else
        weight = any(3) * (MAX_WEIGHT + 1); /* none of these is allowed */
    good = weight >= 1 && weight <= MAX_WEIGHT;
    sprintf(line, "sched-credit -j -d r%u -w %u", number, weight);
    expect(line, vm->there && good);
    if (good) vm->weight = weight;
}

static void create_pool(u32 p) {
    char line[128];

    sprintf(line, "cpupool-create -j %s sched=credit", pool_name(p));
    expect(line, !model.pool[p].there);
    model.pool[p].there = true;
}

/* Pool-0 cannot be destroyed, nor can a pool that has VMs. */
static void destroy_pool(u32 p) {
    bool may = p != 0 && vms_in(p) == 0;
    char line[128];

    sprintf(line, "cpupool-destroy -j %s", pool_name(p));
    expect(line, may && model.pool[p].there);
    if (may) model.pool[p] = (struct pool_model){ 0 };
}

static void add_cpu_1(u32 p) {
    bool may = model.pool[p].there && is_cpu_1_free();
    char line[128];

    sprintf(line, "cpupool-cpu-add -j %s 1", pool_name(p));
    expect(line, may);
    if (may) model.pool[p].cpus |= CPU_1;
}

/* The last CPU of a pool that has VMs stays. */
static void remove_cpu_1(u32 p) {
    struct pool_model *pool = &model.pool[p];
    bool may = (pool->cpus & CPU_1) && !(pool->cpus == CPU_1 && vms_in(p) != 0);
    char line[128];

    sprintf(line, "cpupool-cpu-remove -j %s 1", pool_name(p));
    expect(line, may);
    if (may) pool->cpus &= ~CPU_1;
}

/* All pools run credit, so the VM keeps its weight. */
static void migrate(u32 number, u32 p) {
    struct vm_model *vm = &model.vm[number];
    bool may = vm->there && model.pool[p].there && model.pool[p].cpus != 0;
    char line[128];

    sprintf(line, "cpupool-migrate -j r%u %s", number, pool_name(p));
    expect(line, may);
    if (may) vm->pool = p;
}

static void pin(u32 number, u64 cpus) {
    const struct vm_model *vm = &model.vm[number];
    char line[128];

    sprintf(line, "vcpu-pin -j r%u all %s", number, cpus_text(cpus));
    expect(line, vm->there && (model.pool[vm->pool].cpus & cpus) != 0);
}

static void step(void) {
    u32 what = any(11), vm = any(VMS), p = any(POOLS);
    u64 cpus = 1 + any(BOTH_CPUS);

    switch (what) {
    case 0: create(vm); break;
    case 1: destroy(vm); break;
    case 2: pause_vm(vm); break;
    case 3: unpause(vm); break;
    case 4: set_weight(vm); break;
    case 5: create_pool(p); break;
    case 6: destroy_pool(p); break;
    case 7: add_cpu_1(p); break;
    case 8: remove_cpu_1(p); break;
    case 9: migrate(vm, p); break;
    case 10: pin(vm, cpus); break;
    }
}

/* ---- what the lists must show ---- */

static void check_vm(u32 number) {
    const struct vm_model *vm = &model.vm[number];
    const char *said, *state = "running";
    char key[160];

    sprintf(key, "list -j r%u", number);
    said = rig_say(key);
    assert_int_equal(strstr(said, "\"error\": 0") != NULL, vm->there);
    if (!vm->there) return;
    if (vm->paused) state = "paused";
    sprintf(key, "\"state\": \"%s\"", state);
    assert_non_null(strstr(said, key));
    sprintf(key, "\"pool\": \"%s\"", pool_name(vm->pool));
    assert_non_null(strstr(said, key));
    sprintf(key, "sched-credit -j -d r%u", number);
    said = rig_say(key);
    sprintf(key, "\"weight\": %u,", vm->weight);
    assert_non_null(strstr(said, key));
}

static void check_pool(u32 p) {
    const char *said;
    char key[160];

    sprintf(key, "cpupool-list -j %s", pool_name(p));
    said = rig_say(key);
    assert_int_equal(strstr(said, "\"error\": 0") != NULL, model.pool[p].there);
    if (!model.pool[p].there) return;
    sprintf(key, "\"vms\": %u, \"cpus\": \"%s\"", vms_in(p), cpus_text(model.pool[p].cpus));
    assert_non_null(strstr(said, key));
}

/* Does so many random commands. At the end everything is destroyed, and CPU 1 is in no pool, as at
 * the beginning. */
static void walk(u32 steps) {
    for (u32 i = 0; i < steps; i++) {
        step();
        if (i % 100 != 0) continue;
        for (u32 number = 0; number < VMS; number++) check_vm(number);
        for (u32 p = 0; p < POOLS; p++) check_pool(p);
    }
    for (u32 number = 0; number < VMS; number++) {
        if (model.vm[number].there) destroy(number);
    }
    for (u32 p = 1; p < POOLS; p++) destroy_pool(p);
    if (model.pool[0].cpus & CPU_1) remove_cpu_1(0);
}

/* Some memory is allocated when it is needed first, and kept. So memory is counted after a short
 * walk, and none may be missing after the long one. */
static void random_walk(void **state) {
    u64 frames, heap;

    model.pool[0] = (struct pool_model){ .there = true, .cpus = BOTH_CPUS & ~CPU_1 };
    expect("cpupool-cpu-remove -j Pool-0 1", true);
    walk(WALK / 10);
    frames = frame_free_count();
    heap = heap_in_use();
    walk(WALK);
    assert_int_equal(frame_free_count(), frames);
    assert_int_equal(heap_in_use(), heap);
}

static int setup(void **state) {
    rig_start(&cfg, "[hypervisor]\nguest_console = log\n");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_walk) };

    return cmocka_run_group_tests(tests, setup, NULL);
}
