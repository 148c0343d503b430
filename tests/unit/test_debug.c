/* Debugging a VM from outside: the commands that look into a VM and change it, breakpoints, and
 * single steps. A debugger that sees another value than the guest has, or that lets other vCPUs run
 * during a step, misleads the person who uses it; and a register with a value that the CPU refuses
 * would stop the hypervisor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "shell_rig.h"

#define CODE 0x100200u /* where vCPU 0 runs */

static struct config cfg;
static struct vm *vm;
static u64 entries[2]; /* how often each vCPU was entered */

/* What the vCPUs do: each entry ends with an interrupt, unless the test has put an exit here. */
static struct vm_exit next[2];
static u64 late; /* how many entries come before that exit */

static void guest(struct virt_vcpu *x, struct vm_exit *e) {
    struct vcpu *v = container_of(x, struct vcpu, virt);

    e->reason = EXIT_INTR;
    if (v->vm != vm) return;
    entries[v->id]++;
    if (!next[v->id].reason || entries[v->id] <= late) return;
    *e = next[v->id];
    next[v->id].reason = 0;
}

static void answers(const char *line, const char *expected) {
    const char *said = rig_say(line);

    if (!strstr(said, expected)) fail_msg("%s\n  said: %s\n  expected: %s", line, said, expected);
}

static int setup(void **state) {
    fake_machine("credit");
    fake_run = guest;
    rig_start(&cfg, "[vm two]\nimage = null\nmemory = 4M\nvcpus = 2\ncpus = 1\n");
    answers("create two", "takt> ");
    vm = vm_find("two");
    assert_non_null(vm);
    for (u32 i = 0; i < 2; i++) {
        vm->vcpu[i]->waiting_sipi = false;
        vcpu_notify(vm->vcpu[i], TODO_EVENT);
        vm->vcpu[i]->virt.regs.rip = CODE + i;
        vm->vcpu[i]->virt.regs.rflags = RFLAGS_ONE;
    }
    rig_run(100 * NS_PER_MS);
    memset(entries, 0, sizeof(entries));
    memset(next, 0, sizeof(next));
    late = 0;
    return 0;
}

static int teardown(void **state) {
    vm_put(vm);
    answers("destroy two", "takt> ");
    rig_run(NS_PER_S);
    return 0;
}

/* Lets the VM run until it is paused. */
static void until_paused(void) {
    for (u32 i = 0; i < 100 && vm->state == VM_RUNNING; i++) rig_run(NS_PER_MS);
    assert_int_equal(vm->state, VM_PAUSED);
}

static void debugged(void) {
    answers("pause two", "takt> ");
    answers("debug two on", "takt> ");
    answers("unpause two", "takt> ");
}

static void test_only_of_a_vm_that_rests(void **state) {
    static const char *const lines[] = { "vcpu-regs two 0", "mem-read two 0", "mem-write two 0 00",
                                         "debug two on", "step two 0" };

    for (u32 i = 0; i < ARRAY_SIZE(lines); i++) answers(lines[i], "two is running: pause it first");
    answers("pause two", "takt> ");
    answers("vcpu-regs two 2", "two has no vCPU 2\n");
    answers("mem-read -v 7 two 0", "two has no vCPU 7\n");
    answers("step two 0", "two is not debugged: type debug two on first\n");
    vm_crash(vm, "for the test");
    vm->state = VM_CRASHED;
    answers("vcpu-regs two 0", "  0x100200\n");
}

static void test_registers(void **state) {
    struct vcpu *v = vm->vcpu[1];

    answers("pause two", "takt> ");
    answers("vcpu-regs -j two 1", "{\"name\": \"rip\", \"value\": \"0x100201\"}");
    answers("vcpu-regs two 1 rip=0x1234 r9=77 dr3=0x5000 rflags=0xffffffffffffffff", "takt> ");
    assert_int_equal(v->virt.regs.rip, 0x1234);
    assert_int_equal(v->virt.regs.gpr[9], 77);
    assert_int_equal(vcpu_reg(v, VREG_DR3), 0x5000);
    assert_int_equal(v->virt.regs.rflags & 0x8028, 0);
    answers("vcpu-regs two 1 dr7=0x100000000", "dr7 cannot be 0x100000000\n");
    answers("vcpu-regs two 1 rip=0x800000000000", "rip cannot be 0x800000000000\n");
    answers("vcpu-regs two 1 cr3=0", "cr3 cannot be 0\n");
    answers("vcpu-regs two 1 foo=1", "foo is no register: vcpu-regs lists them\n");
    answers("vcpu-regs two 1 rax=1g", "1g is no number: expected one such as 0x1f\n");
    answers("vcpu-regs two 1 rax", "expected register=value, not rax\n");
    assert_int_equal(v->virt.regs.rip, 0x1234);
}

static void test_memory(void **state) {
    static const u8 text[] = "Takt \x01";
    u8 back[4] = { 0 };

    answers("pause two", "takt> ");
    guestmem_write(&vm->mem, 0x2000, text, sizeof(text) - 1);
    answers("mem-read two 0x2000 8", "0000000000002000  54 61 6b 74 20 01 00 00 ");
    answers("mem-read two 0x2000 8", "Takt ...\n");
    answers("mem-read -j two 0x2000 5",
            "[{\"address\": 8192, \"times\": 1, \"data\": \"VGFrdCA=\"}]");
    answers("mem-read -j two 0x2000 6", "\"data\": \"VGFrdCAB\"");
    answers("mem-read -j two 0x2000 4", "\"data\": \"VGFrdA==\"");
    /* 256 KiB of zeros are eight rows, and the text before them is one of 1 KiB. */
    answers("mem-read -j two 0x200000 262144",
            "[{\"address\": 2097152, \"times\": 4096, \"data\": \"AAAAAAAAAAA=\"}, ");
    answers("mem-write two 0x1fffff 1A2b", "takt> ");
    assert_int_equal(guestmem_read(&vm->mem, 0x1fffff, back, 2), 0);
    assert_int_equal(back[0] << 8 | back[1], 0x1a2b);
    /* What there is before the end of RAM is an answer. */
    answers("mem-read -j two 0x3ffff8 64", "\"times\": 1, \"data\": \"AAAAAAAAAAA=\"}]");
    answers("mem-read two 0x400000", "two has no RAM at 0x400000\n");
    answers("mem-write two 0x3fffff 5555", "two has no RAM at 0x400000\n");
    guestmem_read(&vm->mem, 0x3fffff, back, 1);
    assert_int_equal(back[0], 0);
    answers("mem-write two 0 5", "expected 1 to 96 bytes of two hexadecimal digits each\n");
    answers("mem-write two 0 xy", "xy are no hexadecimal digits\n");
    answers("mem-read two zero", "zero is no address: expected one such as 0x1000\n");
}

/* A guest's own #DB reaches it, unless a debugger has the VM. */
static void test_not_debugged(void **state) {
    struct vm_exit db = { .reason = EXIT_EXCEPTION, .exc.vector = EXC_DB };
    struct vcpu *v = vm->vcpu[0];

    vcpu_handle_exit(v, &db);
    assert_int_equal(v->virt.pending.vector, EXC_DB);
    assert_int_equal(vm->state, VM_RUNNING);
    v->virt.pending.type = EVENT_NONE;
    vcpu_handle_exit(v, &(struct vm_exit){ .reason = EXIT_ICEBP, .insn_len = 1 });
    assert_int_equal(v->virt.pending.vector, EXC_DB);
    assert_int_equal(v->virt.regs.rip, CODE + 1);
    v->virt.pending.type = EVENT_NONE;
}

/* VT-x and AMD-V report ICEBP by different exits. Either stops the VM, with RIP at the
 * breakpoint. */
static void test_breakpoint(void **state) {
    debugged();
    next[1] = (struct vm_exit){ .reason = EXIT_ICEBP, .insn_len = 1 };
    until_paused();
    assert_int_equal(vm->vcpu[1]->virt.regs.rip, CODE + 1);
    assert_int_equal(vm->vcpu[1]->virt.pending.type, EVENT_NONE);
    answers("debug -j two", "{\"on\": true, \"state\": \"paused\", \"vcpu\": 1, \"dr6\": 0}");
    answers("debug two on", "takt> ");
    answers("unpause two", "takt> ");
    next[0] = (struct vm_exit){ .reason = EXIT_EXCEPTION, .exc = { EXC_DB, 1, false, 0 } };
    until_paused();
    assert_int_equal(vm->vcpu[0]->virt.regs.rip, CODE);
    assert_int_equal(vm->vcpu[0]->virt.pending.type, EVENT_NONE);
    answers("debug two off", "takt> ");
    assert_false(vm->debug.on);
}

static void trap(struct vcpu *v, u64 dr6) {
    vcpu_set_reg(v, VREG_DR6, dr6);
    next[v->id] = (struct vm_exit){ .reason = EXIT_EXCEPTION, .exc = { EXC_DB, 0, false, 0 } };
}

/* While a vCPU makes a step, no other one is entered, also if interrupts make the step last for
 * several slices. */
static void test_step(void **state) {
    struct vcpu *v = vm->vcpu[0];

    debugged();
    answers("pause two", "takt> ");
    memset(entries, 0, sizeof(entries));
    trap(v, BIT(14));
    late = 60;
    answers("step -j two 0", "\"state\": \"paused\", \"vcpu\": 0, \"dr6\": 16384}");
    assert_int_equal(entries[0], 61);
    assert_int_equal(entries[1], 0);
    assert_int_equal(v->virt.regs.rflags & RFLAGS_TF, 0);
    assert_int_equal(v->virt.regs.rip, CODE);
    assert_int_equal(vcpu_reg(v, VREG_DR6) & BIT(14), 0);
    answers("debug two on", "takt> ");
    answers("unpause two", "takt> ");
    rig_run(50 * NS_PER_MS);
    assert_true(entries[1] > 0);
}

/* Takt itself executes CPUID for the guest, and the trap behind it is pending then. */
static void test_step_over_an_emulated_instruction(void **state) {
    struct vcpu *v = vm->vcpu[0];

    debugged();
    answers("pause two", "takt> ");
    next[0] = (struct vm_exit){ .reason = EXIT_CPUID, .insn_len = 2 };
    memset(entries, 0, sizeof(entries));
    answers("step -j two 0", "\"state\": \"paused\", \"vcpu\": 0, \"dr6\": 16384}");
    assert_int_equal(v->virt.regs.rip, CODE + 2);
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
    assert_int_equal(entries[0], 1);
}

/* A hypercall that had to wait is made again without entering the guest. */
static void test_step_over_a_hypercall_that_waited(void **state) {
    struct vcpu *v = vm->vcpu[0];

    debugged();
    answers("pause two", "takt> ");
    v->again = (struct vm_exit){ .reason = EXIT_HYPERCALL, .insn_len = 3, .hc.mode = 64 };
    v->again_exits = v->exits = 77;
    v->virt.regs.gpr[REG_RAX] = ~0ull; /* there is no such call */
    memset(entries, 0, sizeof(entries));
    answers("step -j two 0", "\"state\": \"paused\", \"vcpu\": 0, \"dr6\": 16384}");
    assert_int_equal(v->virt.regs.rip, CODE + 3);
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
    assert_int_equal(entries[0], 0);
    answers("debug two off", "takt> ");
    answers("unpause two", "takt> ");
    rig_run(50 * NS_PER_MS);
    assert_int_equal(v->virt.regs.rip, CODE + 3); /* the call was not made once more */
}

/* A TF that the guest has kept in memory during a step does not stop it later. */
static void test_old_tf(void **state) {
    struct vcpu *v = vm->vcpu[0];

    debugged();
    v->virt.regs.rflags |= RFLAGS_TF;
    trap(v, BIT(14));
    rig_run(50 * NS_PER_MS);
    assert_int_equal(vm->state, VM_RUNNING);
    assert_int_equal(v->virt.regs.rflags & RFLAGS_TF, 0);
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_only_of_a_vm_that_rests),
        TEST(test_registers),
        TEST(test_memory),
        TEST(test_not_debugged),
        TEST(test_breakpoint),
        TEST(test_step),
        TEST(test_step_over_an_emulated_instruction),
        TEST(test_step_over_a_hypercall_that_waited),
        TEST(test_old_tf),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
