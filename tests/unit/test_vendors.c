/* The files vmx.c, svm.c and virt.c run over a model of the CPU, which checks each entry by the
 * rules of the manuals and of KVM (fake_hw.h). The tests look at what they write at creation,
 * inject, decode, flush and switch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <takt/errno.h>
#include "fake_hw.h"
#include "fake_log.h"
#include "fake_machine.h"
#include "vcpu/exits.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"

static struct vm *vm;
static struct vcpu *v;

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

/* Nothing of the VMCS or VMCB of a new vCPU is what happened to lie there, whichever vCPU it is,
 * and RIP, RSP and RFLAGS are written though they are 0. */
static void test_first_entries(void **state) {
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        start(kinds[i]);
        hw_enter(ignore);
        assert_null(hw_broken);
        v = vm->vcpu[1];
        fake_cpu(v->sched.cpu);
        v->waiting_sipi = false;
        v->virt.regs.rip = 0;
        sched_wake(&v->sched);
        hw_enter(ignore);
        assert_null(hw_broken);
        stop();
    }
}

/* ---- AMD-V: VM_CR, CR0 ---- */

#define SVM_LOCK BIT(3) /* of VM_CR: APM2 15.30.1 */
#define SVMDIS   BIT(4)

/* Firmware has switched SVM off on the second CPU alone: it is allowed there, unless that is
 * locked. */
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

/* Makes `insn`, of 3 bytes, the instruction that the guest executes next. */
static void put_insn(const char *insn) {
    assert_int_equal(guestmem_write(&vm->mem, CODE, insn, 3), 0);
    v->virt.regs.rip = CODE;
}

static void exit_cr0_selective(struct guest_regs *regs) {
    hw_vmcb()->exit_code = SVM_EXIT_CR0_SELECTIVE;
}
static void exit_cr0_read(struct guest_regs *regs) { hw_vmcb()->exit_code = SVM_EXIT_CR_READ; }
static void exit_cr0_write(struct guest_regs *regs) { hw_vmcb()->exit_code = SVM_EXIT_CR_WRITE; }

/* CD and NW never reach the CPU; the guest reads what it wrote. */
static void test_svm_guest_cannot_switch_caches_off(void **state) {
    u64 off = CR0_PE | CR0_ET | CR0_CD | CR0_NW;

    start(HW_AMD);
    hw_enter(NULL);
    assert_true(hw_vmcb()->intercept[0] & BIT(5)); /* APM2 table B-1: CR0 but TS and MP */
    assert_false(hw_vmcb()->intercept_cr & (CR_READ(0) | CR_WRITE(0)));
    put_insn("\x0f\x22\xc1"); /* mov %ecx, %cr0 */
    v->virt.regs.gpr[REG_RCX] = off;
    hw_enter(exit_cr0_selective);
    assert_int_equal(v->virt.regs.rip, CODE + 3);
    assert_int_equal(cr0(), off);
    assert_int_equal(hw_vmcb_of(&v->virt)->cr0, CR0_PE | CR0_ET);
    put_insn("\x0f\x20\xc2"); /* mov %cr0, %edx */
    hw_enter(exit_cr0_read);
    assert_int_equal(hw_vmcb()->intercept_cr & 0x10001, CR_READ(0) | CR_WRITE(0));
    assert_int_equal(v->virt.regs.gpr[REG_RDX], off);
    v->virt.regs.gpr[REG_RDX] = off;
    put_insn("\x0f\x20\xe2"); /* mov %cr4, %edx: QEMU exits with the code of CR0 */
    hw_enter(exit_cr0_read);
    assert_int_equal(v->virt.regs.gpr[REG_RDX], vcpu_reg(v, VREG_CR4));
    put_insn("\x0f\x22\xc1");
    v->virt.regs.gpr[REG_RCX] = CR0_PE;
    hw_enter(exit_cr0_write);
    assert_int_equal(cr0(), CR0_PE | CR0_ET);
    hw_enter(NULL);
    assert_false(hw_vmcb()->intercept_cr & (CR_READ(0) | CR_WRITE(0)));
    stop();
}

static bool msr_is_written;

static void exit_msr(struct guest_regs *regs) {
    hw_vmcb()->exit_code = 0x7c;
    hw_vmcb()->exit_info1 = msr_is_written;
}

/* No bit of CPUID announces the counters of the K7, so kernels use them without asking. On Intel's
 * CPUs these MSRs are none. */
static void test_counters_that_each_amd_cpu_has(void **state) {
    start(HW_AMD);
    hw_enter(NULL);
    for (u32 msr = 0xc0010000; msr <= 0xc0010008; msr++) {
        bool there = msr < 0xc0010008;

        put_insn("\x0f\x32\x90"); /* rdmsr */
        v->virt.regs.gpr[REG_RCX] = msr;
        v->virt.regs.gpr[REG_RAX] = v->virt.regs.gpr[REG_RDX] = 1;
        hw_enter(exit_msr);
        assert_int_equal(v->virt.regs.rip, there ? CODE + 2 : CODE);
        assert_int_equal(v->virt.pending.type, there ? EVENT_NONE : EVENT_EXCEPTION);
        if (!there) break;
        assert_int_equal(v->virt.regs.gpr[REG_RAX], 0);
        assert_int_equal(v->virt.regs.gpr[REG_RDX], 0);
        put_insn("\x0f\x30\x90"); /* wrmsr */
        v->virt.regs.gpr[REG_RAX] = 0x530076;
        msr_is_written = true;
        hw_enter(exit_msr);
        assert_int_equal(v->virt.pending.type, EVENT_NONE);
        msr_is_written = false;
    }
    stop();
    assert_true(cpuid_is_amd());
    start(HW_INTEL);
    assert_false(cpuid_is_amd());
    stop();
}

static u64 tf_seen, free_seen;

/* The guest executes that one instruction, and the trap comes after it. */
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
    hw_enter(NULL);
    put_insn("\x0f\x01\xf0"); /* lmsw %ax */
    hw_enter(exit_cr0_selective);
    assert_int_equal(v->virt.regs.rip, CODE);
    hw_enter(exit_step);
    assert_true(tf_seen);
    assert_false(free_seen);
    assert_int_equal(v->virt.regs.rip, CODE + 3);
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
    assert_false(v->virt.regs.rflags & RFLAGS_TF);
    assert_int_equal(cr0(), CR0_PE | CR0_ET | BIT(3));
    assert_true(hw_vmcb_of(&v->virt)->intercept[0] & BIT(5));
    stop();
}

static void exit_of_icebp(struct guest_regs *regs) { hw_vmcb()->exit_code = SVM_EXIT_ICEBP; }

/* The guest gets its #DB with RIP behind the instruction. A debugger finds RIP at it. */
static void test_svm_icebp(void **state) {
    start(HW_AMD);
    hw_enter(NULL);
    assert_true(hw_vmcb()->intercept[(SVM_EXIT_ICEBP - SVM_EXIT_WORD1) / 32] &
                SVM_INTERCEPT(SVM_EXIT_ICEBP));
    put_insn("\xf1\x90\x90"); /* icebp; nop; nop */
    hw_enter(exit_of_icebp);
    assert_int_equal(v->virt.regs.rip, CODE + 1);
    assert_int_equal(v->virt.pending.type, EVENT_EXCEPTION);
    assert_int_equal(v->virt.pending.vector, EXC_DB);
    hw_enter(NULL);
    vm->debug.on = true;
    v->virt.regs.rip = CODE;
    hw_enter(exit_of_icebp);
    assert_int_equal(v->virt.regs.rip, CODE);
    assert_int_equal(v->virt.pending.type, EVENT_NONE);
    assert_int_equal(vm->state, VM_PAUSED);
    stop();
}

static u64 next_rip;

static void exit_of_cpuid(struct guest_regs *regs) {
    hw_vmcb()->exit_code = SVM_EXIT_CPUID;
    hw_vmcb()->next_rip = next_rip;
}

/* Where the guest goes on after an instruction that exited: a CPU with next RIP tells it, and what
 * is in memory by now does not count. On other CPUs the bytes in memory tell how long it is, also
 * with prefixes, at the end of a page and in code that is not 64-bit. */
static void test_svm_length_of_instructions(void **state) {
    static const struct {
        u64 rip;
        const char *bytes;
        u32 len, skipped;
    } t[] = {
        { CODE, "\x0f\xa2\x90", 3, 2 },
        { CODE, "\x66\x0f\xa2", 3, 3 },
        { CODE + PAGE_SIZE - 2, "\x0f\xa2", 2, 2 },
        { CODE + PAGE_SIZE - 1, "\x0f\xa2", 2, 2 },         /* over the end of the page */
        { CODE + PAGE_SIZE - 2, "\xf3\x66\x0f\xa2", 4, 4 }, /* so are its prefixes */
        { CODE, "\x90\x90\x90", 3, 0 },                     /* another vCPU has overwritten it */
    };

    start(HW_AMD);
    hw_enter(NULL);
    next_rip = CODE + 7;
    for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
        assert_int_equal(guestmem_write(&vm->mem, t[i].rip, t[i].bytes, t[i].len), 0);
        v->virt.regs.rip = t[i].rip;
        hw_enter(exit_of_cpuid);
        assert_int_equal(v->virt.regs.rip, t[i].rip + t[i].skipped);
    }
    stop();
    hw_svm_features = (u32)BIT(3);
    start(HW_AMD);
    hw_enter(NULL);
    put_insn("\x90\x90\x90");
    hw_enter(exit_of_cpuid);
    assert_int_equal(v->virt.regs.rip, CODE + 7);
    stop();
    hw_svm_features = 0;
}

/* ---- AMD-V: interrupts on a QEMU with -icount ---- */

#define GIVEN_MOST 8

static u8 given[GIVEN_MOST]; /* the vectors that were delivered, in this order */
static u32 nr_given;

static void give(u8 vector) {
    if (nr_given < GIVEN_MOST) given[nr_given++] = vector;
}

/* An interrupt of the host comes before the guest's first instruction. A virtual interrupt is then
 * not delivered yet. */
static void exit_before_virtual_irq(struct guest_regs *regs) {
    const struct vmcb *b = hw_vmcb();

    assert_true(b->int_ctl & INT_CTL_IRQ);
    assert_false(b->event_inj & EVENT_VALID);
}

/* What QEMU with -icount delivers (docs/virt.md): a virtual interrupt once. An injected one is
 * delivered again when the loop of QEMU ends, unless an interrupt that is already pending makes the
 * guest exit first. */
static void deliver_as_icount(struct guest_regs *regs) {
    struct vmcb *b = hw_vmcb();
    bool window = b->intercept[0] & SVM_INTERCEPT(SVM_EXIT_VINTR);

    if (b->event_inj & EVENT_VALID) {
        give((u8)b->event_inj);
        if (!fake_interrupted_self) give((u8)b->event_inj);
    } else if (window && b->int_ctl & INT_CTL_IRQ) {
        b->exit_code = SVM_EXIT_VINTR;
    } else if (b->int_ctl & INT_CTL_IRQ) {
        give((u8)(b->int_ctl >> INT_CTL_VECTOR));
        b->int_ctl &= ~(u64)INT_CTL_IRQ;
    }
    fake_interrupted_self = false;
}

/* The host's interrupt comes before the first of two interrupts is delivered, and the second one is
 * raised meanwhile. So the next entry has both an interrupt and a window. */
static void test_svm_interrupts_come_once_under_icount(void **state) {
    start(HW_KVM_AMD);
    svm_use_virtual_irqs(true);
    nr_given = 0;
    hw_enter(NULL);
    v->virt.regs.rflags |= RFLAGS_IF;
    vlapic_write(&v->lapic, 0xf0, 0x1ff, 0); /* SVR: enabled */
    vlapic_raise(&v->lapic, 0x30);
    hw_enter(exit_before_virtual_irq);
    vlapic_raise(&v->lapic, 0x50);
    hw_enter(deliver_as_icount); /* the first interrupt */
    hw_enter(deliver_as_icount); /* the window */
    hw_enter(deliver_as_icount); /* the second interrupt */
    assert_int_equal(nr_given, 2);
    assert_int_equal(given[0], 0x30);
    assert_int_equal(given[1], 0x50);
    svm_use_virtual_irqs(false);
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
    hw_enter(exit_bad_msr);
    hw_enter(look);
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

/* ICEBP is injected as what it is, from its own RIP: if its gate is not present the CPU has to
 * push that. */
static void test_vmx_icebp(void **state) {
    start(HW_KVM_INTEL);
    hw_enter(NULL);
    v->virt.regs.rip = CODE;
    hw_enter(exit_icebp);
    assert_int_equal(v->virt.regs.rip, CODE);
    hw_enter(exit_np_of_icebp);
    assert_int_equal(injected, BIT(31) | 5 << 8 | EXC_DB);
    assert_int_equal(injected_len, 1);
    assert_int_equal(rip_seen, CODE);
    assert_int_equal(vm->state, VM_CRASHED); /* what delivers an event has to be in RAM */
    assert_non_null(strstr(vm->why, "what an event is delivered by"));
    stop();
}

/* ---- translations ---- */

/* A right that one VM loses costs no other VM its translations: INVEPT of type 1, with its own
 * tables. */
static void test_vmx_flush_of_one_vm(void **state) {
    u64 eptp;
    u32 singles, all;

    start(HW_INTEL);
    hw_enter(NULL);
    eptp = hw_get(VMCS_EPTP);
    singles = hw_cpu()->invept_singles;
    all = hw_cpu()->invept_all;
    assert_int_equal(npt_unmap(&vm->virt.npt, 0, PAGE_SIZE), 0);
    hw_enter(NULL);
    assert_int_equal(hw_cpu()->invept_singles, singles + 1);
    assert_int_equal(hw_cpu()->invept_single[singles % 8], eptp);
    assert_int_equal(hw_cpu()->invept_all, all);
    hw_enter(NULL);
    assert_int_equal(hw_cpu()->invept_singles, singles + 1);
    stop();

    hw_power_on(HW_INTEL); /* a CPU that has no type 1 */
    for (u32 i = 0; i < FAKE_CPUS; i++) *hw_msr(hw_cpu_nr(i), 0x48c) &= ~BIT(25);
    hw_enable();
    vm = new_vm("guest", 1);
    v = vm->vcpu[0];
    fake_cpu(v->sched.cpu);
    hw_enter(NULL);
    assert_int_equal(hw_cpu()->invept_singles, 0);
    assert_int_equal(hw_cpu()->invept_all, 1);
    stop();
}

/* ---- x87 ---- */

/* The guest's x87 unit is as after a reset but for one word, and is switched out and in again.
 * Returns whether XRSTOR loaded x87. */
static bool x87_loaded(unsigned word, u64 value) {
    struct hw_cpu *c = hw_cpu();
    u64 expected[ARRAY_SIZE(c->x87)] = { 0x37f }; /* FCW after a reset */

    expected[word] = value;
    hw_enter(NULL);
    for (unsigned i = 0; i < ARRAY_SIZE(c->x87); i++) c->x87[i] = expected[i];
    virt->save(&v->virt);
    memset(c->x87, 0xcc, sizeof(c->x87)); /* another guest */
    virt->load(&v->virt);
    for (unsigned i = 0; i < ARRAY_SIZE(c->x87); i++) assert_int_equal(c->x87[i], expected[i]);
    return c->loaded & XCR0_X87;
}

/* Where a guest does not use x87 it is not loaded, but initialised, as QEMU loads it unsafely.
 * Word 0 holds FCW, FSW, tags and opcode, 1 and 2 the addresses of the last instruction and of
 * its operand, 4 and 5 the first register, 18 and 19 the last one. */
static void test_x87_is_loaded_if_used(void **state) {
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        start(kinds[i]);
        assert_false(x87_loaded(0, 0x37f));
        assert_true(x87_loaded(0, 0x27f));                 /* another precision */
        assert_true(x87_loaded(0, 0x37f | 1ull << 16));    /* FSW: a flag */
        assert_true(x87_loaded(0, 0x37f | 0x80ull << 32)); /* tags: ST(7) holds a value */
        assert_true(x87_loaded(1, 0x1000));
        assert_true(x87_loaded(2, 0x1000));
        assert_true(x87_loaded(4, 1)); /* MM0: a guest may read it though its tag says "empty" */
        assert_true(x87_loaded(19, 1));
        assert_false(x87_loaded(0, 0x37f));
        stop();
    }
}

/* ---- the checker itself ---- */

/* Starts over on `kind`, and enters once. */
static void start_and_enter(enum hw_kind kind) {
    start(kind);
    hw_enter(NULL);
    hw_expect_broken = true;
}

static void assert_broken(const char *sentence) {
    hw_enter(NULL);
    assert_non_null(hw_broken);
    assert_string_equal(hw_broken, sentence);
    hw_expect_broken = false;
    stop();
}

/* What KVM refuses of a hypervisor in its guest. Each field is set behind the hypervisor's back. */
static void test_vmx_rules_of_kvm(void **state) {
    static const struct {
        u32 field;
        u64 set; /* these bits, in addition */
        const char *sentence;
    } faults[] = {
        { VMCS_PIN, BIT(7), "pin-based controls that are not offered" }, /* posted interrupts */
        { VMCS_SECONDARY, SEC_PLE, "secondary controls that are not offered" },
        { VMCS_EXIT_CTL, BIT(24), "exit controls that are not offered" },
        { VMCS_ENTRY_CTL, BIT(17), "entry controls that are not offered" },
        { VMCS_CR3_TARGETS, 1, "more CR3 targets than are offered" },
        { VMCS_MSR_BITMAP, 8, "the address of the MSR bitmap" },
        { VMCS_TPR_THRESHOLD, 1, "a TPR threshold above the virtual TPR" },
        { VMCS_EPTP, BIT(7), "reserved bits of the EPT pointer" },
        { VMCS_ENTRY_EVENT, EVENT_VALID | 7 << 8, "an injected event of a reserved type" },
        { VMCS_ENTRY_EVENT, EVENT_VALID | EVENT_TYPE_NMI << 8,
          "an injected NMI with another vector than 2" },
        { VMCS_ENTRY_EVENT, EVENT_VALID | EVENT_TYPE_INTR << 8 | 0x30,
          "an interrupt is injected with IF clear" },
        { VMCS_HOST_CR0, BIT(40), "the host's CR0" },
        { VMCS_HOST_CR4, BIT(14), "the host's CR4" },
        { VMCS_HOST_CS, 3, "a selector of the host with RPL or TI" },
        { VMCS_HOST_SYSENTER_EIP, BIT(62), "an address of the host that is not canonical" },
        { VMCS_GUEST_CR4, BIT(12), "bits of CR4 that VT-x keeps set, or clear" }, /* LA57 */
        { VMCS_GUEST_DR7, BIT(32), "the upper half of DR7" },
        { VMCS_GUEST_PAT, BIT(3), "the guest's PAT" },
        { VMCS_GUEST_EFER, BIT(1), "reserved bits of EFER" },
        { VMCS_ACTIVITY, 3, "the activity state is not active" },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(faults); i++) {
        start_and_enter(HW_KVM_INTEL);
        hw_set(faults[i].field, hw_get(faults[i].field) | faults[i].set);
        assert_broken(faults[i].sentence);
    }
}

static void test_svm_rules_of_kvm(void **state) {
    static const struct {
        u32 offset; /* of 8 bytes in the VMCB */
        u64 flip;
        const char *sentence;
    } faults[] = {
        { offsetof(struct vmcb, intercept[1]), BIT(0), "VMRUN is not intercepted" },
        { offsetof(struct vmcb, n_cr3), BIT(50), "the address of the nested tables" },
        { offsetof(struct vmcb, msrpm), BIT(50), "the MSR bitmap" },
        { offsetof(struct vmcb, event_inj), EVENT_VALID | 1 << 8,
          "an injected event of a reserved type" },
        { offsetof(struct vmcb, event_inj), EVENT_VALID | EVENT_TYPE_EXC << 8 | 15,
          "the vector of an injected exception" },
        { offsetof(struct vmcb, efer), EFER_SVME, "EFER.SVME is clear" },
        { offsetof(struct vmcb, efer), BIT(1), "reserved bits of EFER" },
        { offsetof(struct vmcb, cr0), CR0_NW, "CR0.NW without CR0.CD" },
        /* LA57 */
        { offsetof(struct vmcb, cr4), BIT(12), "bits of CR4 that this CPU does not have" },
        { offsetof(struct vmcb, dr6), BIT(32), "the upper half of DR6 or DR7" },
        { offsetof(struct vmcb, pat), 4, "the guest's PAT" },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(faults); i++) {
        u64 value;
        u8 *field;

        start_and_enter(HW_KVM_AMD);
        field = (u8 *)hw_vmcb_of(&v->virt) + faults[i].offset;
        memcpy(&value, field, sizeof(value));
        value ^= faults[i].flip;
        memcpy(field, &value, sizeof(value));
        assert_broken(faults[i].sentence);
    }
}

/* ---- random exits ---- */

#define PICK(array) (array)[(u32)rand() % ARRAY_SIZE(array)]

static bool one_in(int n) { return rand() % n == 0; }

/* Values that mean something as a control register, an MSR's number or an MSR's value; at times
 * with one more bit set, as most bits are reserved somewhere. */
static u64 random_value(void) {
    static const u64 values[] = {
        0,
        1,
        2,
        7,
        0x10,
        0x20,
        0xffffffffu,
        ~0ull,
        BIT(47),
        CR0_PE | CR0_PG,
        CR0_PE | CR0_CD | CR0_NW,
        CR0_PE | CR0_PG | CR0_CD,
        CR4_PAE,
        CR4_PAE | CR4_OSXSAVE,
        BIT(13), /* CR4.VMXE */
        EFER_SCE | EFER_LME,
        EFER_SCE | EFER_LME | EFER_LMA | EFER_NXE,
        0x0007040600070406ull, /* PAT */
        0x1b,
        0x6e0,
        0x830,
        MSR_PAT,
        MSR_EFER,
        0x6a0,
        0xc0000081u,
        0xc0000102u,
    };

    return one_in(3) ? BIT(rand() % 64) | PICK(values) : PICK(values);
}

static void random_registers(struct guest_regs *regs) {
    for (unsigned i = 0; i < 16; i++)
        if (i != REG_RSP && one_in(2)) regs->gpr[i] = random_value();
}

static u64 random_flags(void) {
    u64 flags = RFLAGS_ONE;

    if (one_in(2)) flags |= RFLAGS_IF;
    if (one_in(8)) flags |= RFLAGS_TF;
    return flags;
}

/* At times the exit has cut the delivery of an event short. Then the CPU tells which event it
 * was. */
static u64 random_event(void) {
    static const u64 events[] = { EVENT_TYPE_INTR << 8 | 0x30,
                                  EVENT_TYPE_INTR << 8 | 0xfe,
                                  EVENT_TYPE_NMI << 8 | 2,
                                  EVENT_TYPE_EXC << 8 | EXC_UD,
                                  EVENT_TYPE_EXC << 8 | EVENT_HAS_CODE | EXC_GP,
                                  EVENT_TYPE_EXC << 8 | EVENT_HAS_CODE | EXC_PF,
                                  EVENT_TYPE_EXC << 8 | EVENT_HAS_CODE | EXC_DF,
                                  EVENT_TYPE_SOFT << 8 | 0x90 };

    return one_in(8) ? EVENT_VALID | PICK(events) : 0;
}

/* An access to the local APIC, or to an address where nothing is. */
static u64 random_gpa(void) {
    return one_in(2) ? TAKT_LAPIC_GPA + (u32)rand() % PAGE_SIZE : 0x70000000;
}

/* Reasons are those of SDM 3D appendix C: exception, interrupt, interrupt window, NMI window,
 * CPUID, HLT, VMCALL, control register (more often), I/O, RDMSR, WRMSR (more often), PAUSE, EPT
 * violation, preemption timer, WBINVD, XSETBV. */
static void random_vmx_exit(struct guest_regs *regs) {
    static const u8 reasons[] = { 0,  1,  7,  8,  10, 12, 18, 28, 28, 28,
                                  30, 31, 32, 32, 32, 40, 48, 52, 54, 55 };
    static const u8 control_registers[] = { 0, 0, 3, 4, 4, 8 };
    u64 flags = random_flags(), shadow = 0, reason = PICK(reasons), event = random_event();

    random_registers(regs);
    hw_set(VMCS_REASON, reason);
    hw_set(VMCS_INSN_LEN, 1 + (u32)rand() % 4);
    hw_set(VMCS_QUALIFICATION, (u32)rand());
    if (reason == 28) /* MOV from or to it: SDM 3C table 28-3 */
        hw_set(VMCS_QUALIFICATION,
               (u64)(rand() % 16) << 8 | (one_in(4) ? 1 << 4 : 0) | PICK(control_registers));
    hw_set(VMCS_GPA, random_gpa());
    hw_set(VMCS_EXIT_EVENT,
           EVENT_VALID | (one_in(2) ? EVENT_TYPE_EXC : EVENT_TYPE_ICEBP) << 8 | EXC_DB);
    if (one_in(4) && !(flags & RFLAGS_TF)) shadow = flags & RFLAGS_IF ? SHADOW_STI : SHADOW_MOV_SS;
    if (one_in(8)) shadow |= SHADOW_NMI;
    if (event) { /* the CPU had begun to deliver it, so nothing can have held it back */
        flags = RFLAGS_ONE | RFLAGS_IF;
        shadow = 0;
    }
    hw_set(VMCS_IDT_EVENT, event);
    hw_set(VMCS_GUEST_RFLAGS, flags);
    hw_set(VMCS_SHADOW, shadow);
}

static void random_svm_exit(struct guest_regs *regs) {
    static const struct {
        u16 code; /* APM2 appendix C */
        char insn[5];
    } exits[] = {
        { SVM_EXIT_CR0_SELECTIVE, "\x0f\x22\xc1" }, /* mov %ecx, %cr0 */
        { SVM_EXIT_CR0_SELECTIVE, "\x0f\x01\xf0" }, /* lmsw %ax */
        { SVM_EXIT_CR_WRITE, "\x0f\x06" },          /* clts */
        { SVM_EXIT_CR_READ, "\x0f\x20\xc2" },       /* mov %cr0, %edx */
        { SVM_EXIT_CR_WRITE + 4, "\x0f\x22\xe1" },  /* mov %ecx, %cr4 */
        { SVM_EXIT_CR_WRITE + 4, "\x0f\x22\xe1" },
        { SVM_EXIT_CR_READ + 4, "\x0f\x20\xe2" }, /* mov %cr4, %edx */
        { SVM_EXIT_EXC + EXC_DB, "\x90" },
        { 0x60, "\x90" },     /* interrupt */
        { 0x64, "\x90" },     /* interrupt window */
        { 0x72, "\x0f\xa2" }, /* cpuid */
        { SVM_EXIT_IRET, "\xcf" },
        { 0x77, "\xf3\x90" }, /* pause */
        { 0x78, "\xf4" },     /* hlt */
        { 0x7c, "\x0f\x30" }, /* wrmsr */
        { 0x7c, "\x0f\x30" },
        { 0x81, "\x0f\x01\xd9" },     /* vmmcall */
        { SVM_EXIT_NPF, "\x89\x07" }, /* mov %eax, (%edi) */
    };
    struct vmcb *b = hw_vmcb();
    unsigned i = (u32)rand() % ARRAY_SIZE(exits);

    random_registers(regs);
    guestmem_write(&vm->mem, CODE, exits[i].insn, 4);
    b->rip = CODE;
    b->next_rip = CODE + strnlen(exits[i].insn, sizeof(exits[i].insn));
    b->exit_code = exits[i].code;
    b->exit_info1 = exits[i].code == 0x7c ? 1 : (u32)rand() & 2; /* it is a write */
    b->exit_info2 = random_gpa();
    b->exit_int_info = random_event();
    b->rflags = random_flags();
    b->int_shadow = one_in(8);
}

/* Mixes the guest's registers, and what the next entry delivers, into `sum`. */
static u64 mix(u64 sum) {
    const u8 *regs = (const u8 *)&v->virt.regs;

    for (size_t i = 0; i < sizeof(v->virt.regs); i++) sum = (sum ^ regs[i]) * 0x100000001b3ull;
    return (sum ^ v->virt.pending.type ^ v->virt.cr8 << 8 ^ (u64)vm->state << 16) *
           0x100000001b3ull;
}

/* Plays random exits, always the same ones. Returns a sum over all that the guest can see. */
static u64 random_exits(enum hw_kind kind) {
    bool intel = kind == HW_INTEL || kind == HW_KVM_INTEL;
    u64 sum = 0;

    srand(20);
    start(kind);
    for (unsigned n = 0; n < 4000; n++) {
        if (vm->state != VM_RUNNING) {
            stop();
            vm = new_vm("guest", 2);
            v = vm->vcpu[0];
            fake_cpu(v->sched.cpu);
        }
        /* The guest may have switched its local APIC off (SVR), so it is switched on again. */
        vlapic_write(&v->lapic, 0xf0, 0x1ff, 0);
        if (one_in(4)) vlapic_raise(&v->lapic, (u8)(0x20 + rand() % 0xe0));
        /* Sometimes vCPU 1 sends an NMI to vCPU 0. */
        if (one_in(8)) vlapic_write(&vm->vcpu[1]->lapic, 0x300, 4 << 8 | 1 << 14, 0);
        v->halted = v->waiting_sipi = false;
        if (intel)
            hw_once(random_vmx_exit);
        else
            hw_once(random_svm_exit);
        sched_wake(&v->sched);
        this_cpu()->need_resched = true;
        cpu_pass();
        sum = mix(sum);
    }
    return sum;
}

/* Whatever a guest does, and whatever interrupts come meanwhile: the next entry is one that CPU
 * and KVM accept, or the VM was stopped before it. */
static void test_every_entry_is_valid(void **state) {
    for (unsigned k = 0; k < ARRAY_SIZE(kinds); k++) {
        u32 entries = 0;

        random_exits(kinds[k]);
        for (u32 i = 0; i < FAKE_CPUS; i++) entries += hw_cpu_nr(i)->entries;
        assert_in_range(entries, 1000, 8000);
        stop();
    }
}

/* The same exits on CPUs with and without decode assists and flush by ASID: a guest sees no
 * difference. */
static void test_assists_change_nothing(void **state) {
    u64 without, with;

    hw_svm_features = HW_NEXT_RIP;
    without = random_exits(HW_AMD);
    stop();
    hw_svm_features = HW_NEXT_RIP | HW_DECODE | HW_FLUSH_BY_ASID;
    with = random_exits(HW_AMD);
    stop();
    hw_svm_features = 0;
    assert_int_equal(with, without);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_entries),
        cmocka_unit_test(test_vm_cr_of_each_cpu),
        cmocka_unit_test(test_svm_guest_cannot_switch_caches_off),
        cmocka_unit_test(test_counters_that_each_amd_cpu_has),
        cmocka_unit_test(test_svm_lmsw_is_let_through),
        cmocka_unit_test(test_svm_interrupts_come_once_under_icount),
        cmocka_unit_test(test_vmx_fault_has_rf),
        cmocka_unit_test(test_vmx_icebp),
        cmocka_unit_test(test_svm_icebp),
        cmocka_unit_test(test_svm_length_of_instructions),
        cmocka_unit_test(test_vmx_flush_of_one_vm),
        cmocka_unit_test(test_x87_is_loaded_if_used),
        cmocka_unit_test(test_vmx_rules_of_kvm),
        cmocka_unit_test(test_svm_rules_of_kvm),
        cmocka_unit_test(test_every_entry_is_valid),
        cmocka_unit_test(test_assists_change_nothing),
    };

    return cmocka_run_group_tests_name("vendors", tests, NULL, NULL);
}
