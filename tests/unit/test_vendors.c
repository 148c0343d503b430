/* vmx.c, svm.c and virt.c over a model of the CPU, which checks each entry by the rules of the manuals and of
 * KVM (fake_hw.h): what they write at creation, inject, decode, flush and switch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <takt/errno.h>
#include "fake_hw.h"
#include "fake_log.h"
#include "fake_machine.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"

static struct vm *vm;
static struct vcpu *v;

/* Passes of the pCPU's loop until the vCPU is entered; its guest does what `guest` does, once. */
static void (*guest_once)(struct guest_regs *);

static void run_once(struct guest_regs *regs) {
    void (*guest)(struct guest_regs *) = guest_once;

    guest_once = NULL;
    if (guest) guest(regs);
}

static void enter(void (*guest)(struct guest_regs *)) {
    u32 before = hw_cpu()->entries;

    guest_once = guest;
    hw_guest = run_once;
    for (int i = 0; i < 100 && hw_cpu()->entries == before; i++) {
        this_cpu()->need_resched = true;
        cpu_pass();
    }
    assert_int_not_equal(hw_cpu()->entries, before);
}

static struct vm *new_vm(const char *name, u32 vcpus) {
    struct config_vm c = fake_config(name, vcpus);
    struct vm *made = fake_vm(&c);

    assert_non_null(made);
    return made;
}

static void start(enum hw_kind kind) {
    fake_machine("null");
    fake_clock(1000);
    hw_start(kind);
    vm = new_vm("guest", 2);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
}

static void stop(void) {
    hw_guest = NULL;
    fake_destroy(vm);
}

static const enum hw_kind kinds[] = { HW_INTEL, HW_KVM_INTEL, HW_AMD, HW_KVM_AMD };

/* ---- creation ---- */

static void ignore(struct guest_regs *regs) {}

/* Nothing of the VMCS or VMCB of a new vCPU is what happened to lie there, whichever vCPU it is, and RIP, RSP
 * and RFLAGS are written though they are 0. */
static void test_first_entries(void **state) {
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        start(kinds[i]);
        enter(ignore);
        assert_null(hw_broken);
        v = vm->vcpu[1];
        fake_cpu(v->sched.cpu);
        v->waiting_sipi = false;
        v->virt.regs.rip = 0;
        sched_wake(&v->sched);
        enter(ignore);
        assert_null(hw_broken);
        stop();
    }
}

/* ---- AMD-V: VM_CR, CR0 ---- */

#define SVM_LOCK BIT(3) /* of VM_CR: APM2 15.30.1 */
#define SVMDIS   BIT(4)

/* Firmware has switched SVM off on the second CPU alone: it is allowed there, unless that is locked. */
static void test_vm_cr_of_each_cpu(void **state) {
    struct virt_caps caps;

    fake_machine("null");
    hw_power_on(HW_AMD);
    *hw_msr(hw_cpu_nr(1), MSR_VM_CR) = SVMDIS;
    assert_int_equal(virt_probe(&caps), 0);
    fake_cpu(1);
    assert_int_equal(virt_cpu_enable(), 0); /* else the model's EFER.SVME is #GP */
    assert_int_equal(*hw_msr(hw_cpu_nr(1), MSR_VM_CR), 0);

    hw_power_on(HW_AMD);
    *hw_msr(hw_cpu_nr(1), MSR_VM_CR) = SVMDIS | SVM_LOCK;
    assert_int_equal(virt_probe(&caps), 0);
    fake_cpu(1);
    assert_int_equal(virt_cpu_enable(), -EPERM);
    assert_non_null(strstr(fake_log_last, "the firmware has switched it off on this CPU alone"));
    fake_cpu(0);
}

#define CODE 0x100000u

static u64 cr0(void) { return virt->get_reg(&v->virt, VREG_CR0); }

/* The guest is to execute `insn`, of 3 bytes, next. */
static void put_insn(const char *insn) {
    assert_int_equal(guestmem_write(&vm->mem, CODE, insn, 3), 0);
    v->virt.regs.rip = CODE;
}

static void exit_cr0_selective(struct guest_regs *regs) { hw_vmcb()->exit_code = SVM_EXIT_CR0_SELECTIVE; }
static void exit_cr0_read(struct guest_regs *regs) { hw_vmcb()->exit_code = SVM_EXIT_CR_READ; }
static void exit_cr0_write(struct guest_regs *regs) { hw_vmcb()->exit_code = SVM_EXIT_CR_WRITE; }

/* CD and NW never reach the CPU; the guest reads what it wrote. */
static void test_svm_guest_cannot_switch_caches_off(void **state) {
    u64 off = CR0_PE | CR0_ET | CR0_CD | CR0_NW;

    start(HW_AMD);
    enter(NULL);
    assert_true(hw_vmcb()->intercept[0] & BIT(5)); /* APM2 table B-1: CR0 but TS and MP */
    assert_false(hw_vmcb()->intercept_cr & (CR_READ(0) | CR_WRITE(0)));
    put_insn("\x0f\x22\xc1"); /* mov %ecx, %cr0 */
    v->virt.regs.gpr[REG_RCX] = off;
    enter(exit_cr0_selective);
    assert_int_equal(v->virt.regs.rip, CODE + 3);
    assert_int_equal(cr0(), off);
    assert_int_equal(hw_vmcb_of(&v->virt)->cr0, CR0_PE | CR0_ET);
    put_insn("\x0f\x20\xc2"); /* mov %cr0, %edx */
    enter(exit_cr0_read);
    assert_int_equal(hw_vmcb()->intercept_cr & 0x10001, CR_READ(0) | CR_WRITE(0));
    assert_int_equal(v->virt.regs.gpr[REG_RDX], off);
    put_insn("\x0f\x22\xc1");
    v->virt.regs.gpr[REG_RCX] = CR0_PE;
    enter(exit_cr0_write);
    assert_int_equal(cr0(), CR0_PE | CR0_ET);
    enter(NULL);
    assert_false(hw_vmcb()->intercept_cr & (CR_READ(0) | CR_WRITE(0)));
    stop();
}

static u64 tf_seen, free_seen;

/* The guest executes the one instruction, and the trap comes behind it. */
static void exit_step(struct guest_regs *regs) {
    free_seen = hw_vmcb()->intercept[0] & BIT(5);
    tf_seen = hw_vmcb()->rflags & RFLAGS_TF;
    hw_vmcb()->rip += 3;
    hw_vmcb()->cr0 |= BIT(3); /* LMSW has set TS */
    hw_vmcb()->dr6 |= DR6_BS;
    hw_vmcb()->exit_code = SVM_EXIT_EXC + EXC_DB;
}

/* LMSW is not decoded: it runs for one step without the intercept. */
static void test_svm_lmsw_is_let_through(void **state) {
    start(HW_AMD);
    enter(NULL);
    put_insn("\x0f\x01\xf0"); /* lmsw %ax */
    enter(exit_cr0_selective);
    assert_int_equal(v->virt.regs.rip, CODE);
    enter(exit_step);
    assert_true(tf_seen);
    assert_false(free_seen);
    assert_int_equal(v->virt.regs.rip, CODE + 3);
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
    assert_false(v->virt.regs.rflags & RFLAGS_TF);
    assert_int_equal(cr0(), CR0_PE | CR0_ET | BIT(3));
    assert_true(hw_vmcb_of(&v->virt)->intercept[0] & BIT(5));
    stop();
}

/* ---- events ---- */

/* The event that the entry injects, and RFLAGS, seen by the guest. */
static u64 injected, injected_len, flags_seen, rip_seen;

static void look(struct guest_regs *regs) {
    injected = hw_get(VMCS_ENTRY_EVENT);
    injected_len = hw_get(VMCS_ENTRY_INSN_LEN);
    flags_seen = hw_get(VMCS_GUEST_RFLAGS);
    rip_seen = hw_get(VMCS_GUEST_RIP);
}

static void exit_bad_msr(struct guest_regs *regs) {
    hw_set(VMCS_REASON, 31); /* RDMSR */
    hw_set(VMCS_INSN_LEN, 2);
    regs->gpr[REG_RCX] = 0x999;
}

/* A fault that Takt injects pushes RF, as the CPU's own do: SDM 3B 18.3.1.1. */
static void test_vmx_fault_has_rf(void **state) {
    start(HW_KVM_INTEL);
    enter(exit_bad_msr);
    enter(look);
    assert_int_equal(injected, BIT(31) | BIT(11) | 3 << 8 | EXC_GP);
    assert_true(flags_seen & RFLAGS_RF);
    stop();
}

static void exit_icebp(struct guest_regs *regs) {
    hw_set(VMCS_REASON, 0);
    hw_set(VMCS_EXIT_EVENT, BIT(31) | 5 << 8 | EXC_DB); /* privileged software exception */
    hw_set(VMCS_INSN_LEN, 1);
}

static void exit_np_of_icebp(struct guest_regs *regs) {
    look(regs);
    hw_set(VMCS_REASON, 48); /* an EPT violation while it is delivered */
    hw_set(VMCS_GPA, 0x10000000);
    hw_set(VMCS_IDT_EVENT, BIT(31) | 5 << 8 | EXC_DB);
}

/* ICEBP is injected as what it is, from its own RIP: if its gate is not present the CPU has to push that. */
static void test_vmx_icebp(void **state) {
    start(HW_KVM_INTEL);
    enter(NULL);
    v->virt.regs.rip = CODE;
    enter(exit_icebp);
    assert_int_equal(v->virt.regs.rip, CODE);
    enter(exit_np_of_icebp);
    assert_int_equal(injected, BIT(31) | 5 << 8 | EXC_DB);
    assert_int_equal(injected_len, 1);
    assert_int_equal(rip_seen, CODE);
    assert_int_equal(vm->state, VM_CRASHED); /* what delivers an event has to be in RAM */
    assert_non_null(strstr(vm->why, "what an event is delivered by"));
    stop();
}

/* ---- translations ---- */

/* A right that one VM loses costs no other VM its translations: INVEPT of type 1, with its own tables. */
static void test_vmx_flush_of_one_vm(void **state) {
    u64 eptp;
    u32 singles, all;

    start(HW_INTEL);
    enter(NULL);
    eptp = hw_get(VMCS_EPTP);
    singles = hw_cpu()->invept_singles;
    all = hw_cpu()->invept_all;
    assert_int_equal(npt_unmap(&vm->virt.npt, 0, PAGE_SIZE), 0);
    enter(NULL);
    assert_int_equal(hw_cpu()->invept_singles, singles + 1);
    assert_int_equal(hw_cpu()->invept_single[singles % 8], eptp);
    assert_int_equal(hw_cpu()->invept_all, all);
    enter(NULL);
    assert_int_equal(hw_cpu()->invept_singles, singles + 1);
    stop();

    hw_power_on(HW_INTEL); /* a CPU that has no type 1 */
    for (u32 i = 0; i < FAKE_CPUS; i++) *hw_msr(hw_cpu_nr(i), 0x48c) &= ~BIT(25);
    hw_enable();
    vm = new_vm("guest", 1);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
    enter(NULL);
    assert_int_equal(hw_cpu()->invept_singles, 0);
    assert_int_equal(hw_cpu()->invept_all, 1);
    stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_entries),
        cmocka_unit_test(test_vm_cr_of_each_cpu),
        cmocka_unit_test(test_svm_guest_cannot_switch_caches_off),
        cmocka_unit_test(test_svm_lmsw_is_let_through),
        cmocka_unit_test(test_vmx_fault_has_rf),
        cmocka_unit_test(test_vmx_icebp),
        cmocka_unit_test(test_vmx_flush_of_one_vm),
    };

    return cmocka_run_group_tests_name("vendors", tests, NULL, NULL);
}
