/* APIC virtualization: hv/vcpu, hv/vdev and vmx_apic.c over the model of a CPU (fake_hw.h), which
 * checks each entry. The guest here is played together with what the CPU does for it: it delivers
 * interrupts and carries EOIs out by the rules of SDM 3C chapter 30. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "fake_hw.h"
#include "fake_machine.h"
#include "vcpu/exits.h"
#include "virt/hw.h"
#include "virt/vendor.h"
#include "virt/vmcs.h"
#include "x86/tsc.h"

#define CODE         0x100000u
#define LEVEL_VECTOR 0x51
#define REG(offset)  ((offset) / 4)
#define IRR          0x200
#define ISR          0x100
#define DELIVERY     (SEC_APIC_REGS | SEC_VIRQ)
#define IF           BIT(9)
#define TIMER        0xef
#define PERIOD       (100 * NS_PER_US)

static struct vm *vm;
static struct vcpu *v;
static void (*guest_once)(void);
static u32 injected; /* the event of the last entry */

static void run(struct guest_regs *regs) {
    injected = (u32)hw_get(VMCS_ENTRY_EVENT);
    if (guest_once) guest_once();
}

static void enter(void (*guest)(void)) {
    guest_once = guest;
    hw_enter(run);
}

/* The LAPIC, also while its registers are in the page. */
static struct vlapic *lapic(struct vcpu *of) {
    vcpu_lapic_fetch(of);
    return vcpu_lapic(of);
}

static void enable_apic(struct vcpu *of) { vlapic_write(lapic(of), 0xf0, 0x1ff, 0); }

static u32 eois;
static void count_eoi(struct vlapic *l, u8 vector) { eois += vector == LEVEL_VECTOR; }

static int start(void **state) {
    static struct vlapic_ops ops;
    struct config_vm c = fake_config("guest", 2);

    fake_machine("null");
    fake_clock(1000);
    hw_start(HW_INTEL);
    assert_true(vmx_use_apicv());
    apicv_init();
    vm = fake_vm(&c);
    v = vm->vcpu[0];
    ops = *v->lapic.ops;
    ops.eoi = count_eoi; /* the VM has no IOAPIC */
    v->lapic.ops = &ops;
    eois = 0;
    enable_apic(v);
    enable_apic(vm->vcpu[1]);
    v->virt.regs.rflags |= IF;
    fake_cpu(v->sched.cpu);
    return 0;
}

static int stop(void **state) {
    hw_guest = NULL;
    fake_destroy(vm);
    return 0;
}

/* ---- what the CPU does ---- */

static u32 *page(void) { return hpa_to_va(hw_get(VMCS_VAPIC)); }

static bool bit(const u32 *reg, u32 base, u32 vector) {
    return reg[REG(base + vector / 32 * 16)] >> vector % 32 & 1;
}

static void flip(u32 base, u32 vector) {
    page()[REG(base + vector / 32 * 16)] ^= 1u << vector % 32;
}

static u32 top(u32 base) {
    for (u32 vector = 256; vector-- > 0;)
        if (bit(page(), base, vector)) return vector;
    return 0;
}

static u32 rvi(void) { return hw_get(VMCS_GUEST_APIC) & 0xff; }
static u32 svi(void) { return (u32)hw_get(VMCS_GUEST_APIC) >> 8; }
static bool by_cpu(void) { return hw_get(VMCS_SECONDARY) & SEC_VIRQ; }

/* 30.1.3, 30.2.2. Returns whether it delivered an interrupt. */
static bool deliver(void) {
    u32 tpr = page()[REG(0x80)] & 0xf0, ppr = MAX(tpr, svi() & 0xf0), vector = rvi();

    if (!by_cpu() || hw_get(VMCS_PRIMARY) & PRI_IRQ_WINDOW || (vector & 0xf0) <= ppr) return false;
    flip(IRR, vector);
    flip(ISR, vector);
    hw_set(VMCS_GUEST_APIC, GUEST_APIC(top(IRR), vector));
    return true;
}

static void take(void) { assert_true(deliver()); }
static void do_not_take(void) { assert_false(deliver()); }

/* 30.1.4 */
static void end(void) {
    u32 vector = svi();

    assert_true(by_cpu());
    flip(ISR, vector);
    hw_set(VMCS_GUEST_APIC, GUEST_APIC(rvi(), top(ISR)));
    if (!(hw_get(VMCS_EOI_EXITS + 2 * (vector / 64)) >> vector % 64 & 1)) return;
    hw_set(VMCS_REASON, VMX_VIRTUAL_EOI);
    hw_set(VMCS_QUALIFICATION, vector);
}

static void written(u32 offset, u32 value) {
    page()[REG(offset)] = value;
    hw_set(VMCS_REASON, VMX_APIC_WRITE);
    hw_set(VMCS_QUALIFICATION, offset);
}

/* ---- tests ---- */

static void test_found(void **state) {
    struct virt_caps caps;

    assert_int_equal(virt_probe(&caps), 0);
    assert_true(caps.apicv);
    hw_power_on(HW_KVM_INTEL);
    assert_int_equal(virt_probe(&caps), 0);
    assert_false(caps.apicv || vmx_use_apicv());
}

static void test_the_cpu_delivers(void **state) {
    vlapic_raise(&v->lapic, 0x61);
    enter(take);
    assert_false(injected & EVENT_VALID);
    assert_true(bit(page(), ISR, 0x61));
    vlapic_raise(&v->lapic, 0x42); /* of a lower class, so it waits for the EOI */
    enter(do_not_take);
    assert_int_equal(rvi(), 0x42);
    assert_int_equal(vlapic_pending(lapic(v)), -1);
    assert_int_equal(vlapic_read(lapic(v), 0xa0, 0), 0x60);
    enter(end);
    assert_int_equal(vlapic_pending(lapic(v)), 0x42);
    enter(take);
    assert_int_equal(vlapic_read(lapic(v), IRR + 0x20, 0), 0);
    assert_int_equal(vlapic_read(lapic(v), ISR + 0x20, 0), 1u << 2);
}

/* From now on interrupts of this class and below wait in the page. */
static void set_tpr(u32 tpr) {
    vlapic_write(lapic(v), 0x80, tpr, 0);
    vcpu_lapic_written(v);
}

/* What waits in the page and what came meanwhile are one. */
static void test_two_wait(void **state) {
    set_tpr(0x70);
    vlapic_raise(&v->lapic, 0x61);
    enter(NULL);
    vlapic_raise(&v->lapic, 0x42);
    vlapic_raise(&v->lapic, 0x61);
    enter(NULL);
    assert_int_equal(rvi(), 0x61);
    assert_true(bit(page(), IRR, 0x42) && bit(page(), IRR, 0x61));
}

static void halts(void) {
    hw_set(VMCS_REASON, VMX_HLT);
    hw_set(VMCS_INSN_LEN, 1);
}

/* The CPU ends a HLT, too; and a vCPU with IF clear goes on sleeping. */
static void test_halted(void **state) {
    vlapic_raise(&v->lapic, 0x61);
    enter(halts);
    enter(take);
    enter(end);
    v->virt.regs.rflags &= ~IF;
    enter(halts);
    vlapic_raise(&v->lapic, 0x61);
    for (int i = 0; i < 5; i++) cpu_pass();
    assert_true(v->halted && sched_blocked(&v->sched));
}

static void irq_window(void) { hw_set(VMCS_REASON, VMX_IRQ_WINDOW); }

/* What the guest cannot take yet, because IF is clear, is not given to the CPU. */
static void test_if_clear(void **state) {
    v->virt.regs.rflags &= ~IF;
    vlapic_raise(&v->lapic, 0x61);
    enter(irq_window);
    assert_false(by_cpu());
    assert_true(hw_get(VMCS_PRIMARY) & PRI_IRQ_WINDOW);
    v->virt.regs.rflags |= IF;
    enter(take);
    assert_false(hw_get(VMCS_PRIMARY) & PRI_IRQ_WINDOW);
    assert_int_equal(svi(), 0x61);
}

/* A vector whose handler makes no EOI must not get into service: it is injected. If it has to wait,
 * all the others wait with it, and the CPU does nothing with them. */
static void test_without_eoi(void **state) {
    vlapic_set_no_eoi(&v->lapic, 0x61, true);
    vlapic_raise(&v->lapic, 0x61);
    vlapic_raise(&v->lapic, 0x42);
    enter(irq_window); /* injected is the first, and the other one has to wait for its handler */
    assert_true(injected & EVENT_VALID && (u8)injected == 0x61);
    assert_true(hw_get(VMCS_PRIMARY) & PRI_IRQ_WINDOW);
    enter(take);
    assert_int_equal(svi(), 0x42);
    enter(end);

    v->virt.regs.rflags &= ~IF;
    vlapic_raise(&v->lapic, 0x61);
    vlapic_raise(&v->lapic, 0x72);
    enter(do_not_take);
    assert_false(injected & EVENT_VALID || by_cpu());
    assert_true(hw_get(VMCS_PRIMARY) & PRI_IRQ_WINDOW);
    v->virt.regs.rflags |= IF;
    enter(irq_window);
    enter(NULL); /* 0x72 is the first */
    assert_true(injected & EVENT_VALID && (u8)injected == 0x72);
    assert_false(by_cpu()); /* so that the EOI, after which 0x61 comes, exits */
}

/* Such a vector may come from another pCPU after the CPU was chosen for the next entry. Then the
 * others go on, and it is injected when the vCPU looks again. */
static void test_late_without_eoi(void **state) {
    vlapic_set_no_eoi(&v->lapic, 0x61, true);
    enter(NULL);
    vlapic_raise(&v->lapic, 0x42);
    assert_true(vcpu_prepare(v));
    vlapic_raise(&v->lapic, 0x61);
    v->todo = 0; /* it has looked already, and the other pCPU kicks */
    enter(take);
    assert_int_equal(svi(), 0x42);
    __atomic_fetch_or(&v->todo, TODO_EVENT, __ATOMIC_SEQ_CST);
    enter(NULL);
    assert_true(injected & EVENT_VALID && (u8)injected == 0x61);
    assert_int_equal(svi(), 0x42);
}

/* The guest says of a vector that its handler makes no EOI while one waits in the page already. */
static void test_no_eoi_from_now_on(void **state) {
    set_tpr(0x70);
    vlapic_raise(&v->lapic, 0x61);
    enter(NULL);
    assert_int_equal(rvi(), 0x61);
    vlapic_set_no_eoi(&v->lapic, 0x61, true);
    apicv_vector_changed(v);
    enter(NULL);
    assert_false(by_cpu());
    set_tpr(0);
    enter(NULL);
    assert_true(injected & EVENT_VALID && (u8)injected == 0x61);
}

/* A guest that has disabled its LAPIC by SVR cannot send itself IPIs. */
static void test_disabled(void **state) {
    enter(NULL);
    assert_true(by_cpu());
    vlapic_write(lapic(v), 0xf0, 0xff, 0);
    vcpu_lapic_written(v);
    enter(NULL);
    assert_false(by_cpu());
    enable_apic(v);
    vcpu_lapic_written(v);
    enter(NULL);
    assert_true(by_cpu());
}

static void lower_tpr(void) { hw_set(VMCS_REASON, VMX_TPR_BELOW); }

/* One that is to be injected waits for a lower TPR: its write exits. */
static void test_injection_waits_for_tpr(void **state) {
    vlapic_set_no_eoi(&v->lapic, 0x61, true);
    set_tpr(0x75);
    vlapic_raise(&v->lapic, 0x61);
    enter(lower_tpr);
    assert_int_equal(hw_get(VMCS_TPR_THRESHOLD), 7);
    assert_true(hw_get(VMCS_PRIMARY) & PRI_CR8_LOAD);
    assert_int_equal(page()[REG(0x80)], 0x75);
    page()[REG(0x80)] = 0x13;
    enter(NULL);
    assert_true(injected & EVENT_VALID && (u8)injected == 0x61);
    assert_int_equal(vlapic_read(lapic(v), 0x80, 0), 0x13);
}

static void take_level(void) {
    assert_true(deliver());
    end();
    assert_int_equal(hw_get(VMCS_REASON), VMX_VIRTUAL_EOI);
}

/* The IOAPIC is told of the EOI of a level-triggered interrupt, and of no other. */
static void test_level(void **state) {
    vlapic_message(&v->lapic, LEVEL_VECTOR, 0, true);
    enter(take_level);
    assert_int_equal(eois, 1);
    vlapic_message(&v->lapic, LEVEL_VECTOR, 0, false);
    enter(take);
    enter(end);
    assert_int_equal(eois, 1);
}

static void sends(void) {
    page()[REG(0x310)] = 1u << 24;
    written(0x300, 0x43);
}

static void sets_lint0(void) { written(0x350, 0x10045); }

/* A write that the CPU only stores is carried out after it. */
static void test_write(void **state) {
    enter(sets_lint0);
    assert_int_equal(vlapic_read(lapic(v), 0x350, 0), 0x10045);
    enter(sends);
    assert_int_equal(vm->vcpu[1]->lapic.reg[R_IRR + 2], 1u << 3);
    assert_int_equal(vlapic_read(lapic(v), 0x310, 0), 1u << 24);
}

static void reads_ppr(void) {
    page()[REG(0x80)] = 0x45; /* before, and without an exit */
    hw_set(VMCS_GUEST_RIP, CODE);
    hw_set(VMCS_REASON, VMX_APIC_ACCESS);
    hw_set(VMCS_QUALIFICATION, APIC_ACCESS_READ << 12 | 0xa0);
}

/* A register that the CPU does not read in the page: what is there is known to Takt. */
static void test_read(void **state) {
    guestmem_write(&vm->mem, CODE, "\x8b\x03", 2); /* mov eax, [ebx] */
    enter(reads_ppr);
    assert_int_equal(v->virt.regs.gpr[REG_RAX], 0x45);
    assert_int_equal(v->virt.regs.rip, CODE + 2);
}

static u64 apic_base;
static void sets_base(void) {
    v->virt.regs.gpr[REG_RCX] = MSR_APIC_BASE;
    v->virt.regs.gpr[REG_RAX] = (u32)apic_base;
    v->virt.regs.gpr[REG_RDX] = 0;
    hw_set(VMCS_REASON, VMX_WRMSR);
    hw_set(VMCS_INSN_LEN, 2);
}

static bool mapped(void) {
    bool writable;

    return npt_find(&vm->virt.npt, TAKT_LAPIC_GPA, &writable) != HPA_NONE;
}

/* The mode of the LAPIC, and the page that is there as long as all vCPUs want it. */
static void test_modes(void **state) {
    u32 controls = SEC_APIC_PAGE | SEC_X2APIC | DELIVERY;
    u64 bitmap;

    enter(NULL);
    assert_true(mapped());
    assert_int_equal(hw_get(VMCS_SECONDARY) & controls, SEC_APIC_PAGE | DELIVERY);
    bitmap = hw_get(VMCS_MSR_BITMAP);
    apic_base = v->lapic.base | APIC_BASE_EXTD;
    enter(sets_base);
    vlapic_raise(&v->lapic, 0x61);
    enter(take);
    assert_int_equal(hw_get(VMCS_SECONDARY) & controls, SEC_X2APIC | DELIVERY);
    assert_int_not_equal(hw_get(VMCS_MSR_BITMAP), bitmap);
    assert_false(mapped());
    apic_base = v->lapic.base & ~(APIC_BASE_EXTD | APIC_BASE_EN);
    enter(sets_base);
    enter(NULL);
    assert_int_equal(hw_get(VMCS_SECONDARY) & controls, SEC_APIC_PAGE);
    assert_int_equal(hw_get(VMCS_MSR_BITMAP), bitmap);
    assert_int_equal(rvi() | svi(), 0);
}

/* INIT forgets what was in the page. */
static void test_init(void **state) {
    vlapic_raise(&v->lapic, 0x61);
    enter(take);
    vlapic_raise(&v->lapic, 0x42);
    enter(do_not_take);
    __atomic_fetch_or(&v->todo, TODO_INIT, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 5; i++) cpu_pass();
    assert_true(v->waiting_sipi);
    assert_int_equal(vlapic_pending(lapic(v)), 0);
    __atomic_fetch_or(&v->todo, TODO_SIPI, __ATOMIC_SEQ_CST);
    sched_wake(&v->sched);
    enter(NULL);
    assert_int_equal(rvi() | svi() | top(IRR) | top(ISR), 0);
}

/* The timer's time comes while the registers are in the page. */
static void test_tick(void **state) {
    u64 now = now_ns();

    set_tpr(0xf0);
    vlapic_write(lapic(v), 0x320, TIMER, now);
    vlapic_write(lapic(v), 0x380, PERIOD, now);
    enter(NULL);
    fake_clock(now + 16 * PERIOD);
    __atomic_fetch_or(&v->todo, TODO_TICK, __ATOMIC_SEQ_CST);
    enter(NULL);
    assert_int_equal(rvi(), TIMER);
}

/* Waits for an event behind an STI, with the TPR lowered. */
static void polls(void) {
    page()[REG(0x80)] = 0;
    hw_set(VMCS_SHADOW, 1);
    hw_set(VMCS_REASON, VMX_VMCALL);
    hw_set(VMCS_INSN_LEN, 3);
    v->virt.regs.gpr[REG_RAX] = TAKT_HC_POLL;
    v->virt.regs.gpr[REG_RBX] = TAKT_PORT_ANY;
    v->virt.regs.gpr[REG_RCX] = 0;
}

/* An interrupt in the page ends a poll as soon as the guest can take it. */
static void test_poll(void **state) {
    set_tpr(0x70);
    vlapic_raise(&v->lapic, 0x61);
    enter(NULL);
    enter(polls);
    enter(take);
    assert_int_equal(svi(), 0x61);
}

/* A periodic timer goes on although nobody tells that its tick was taken. But a guest that takes
 * none gets one exit in each period, and not one after the other. */
static void test_timer_goes_on(void **state) {
    u64 now = now_ns();

    set_tpr(0xf0);
    vlapic_write(lapic(v), 0x3e0, 0xb, now);
    vlapic_write(lapic(v), 0x320, 0x20000 | TIMER, now);
    vlapic_write(lapic(v), 0x380, PERIOD, now);
    fake_clock(now + PERIOD + 10);
    vlapic_tick(lapic(v), now_ns());
    enter(NULL);
    assert_int_equal(rvi(), TIMER);
    assert_true(v->lapic.next > now_ns() && v->lapic.next <= now_ns() + PERIOD);
    fake_clock(now + 5 * PERIOD + 10);
    vlapic_tick(lapic(v), now_ns());
    enter(NULL);
    assert_int_equal(rvi(), TIMER);
    assert_true(v->lapic.next > now_ns() && v->lapic.next <= now_ns() + PERIOD);
}

static bool one_in(u32 n) { return (u32)rand() % n == 0; }

/* A guest that takes what it can, and ends its handlers in order. */
static void random_guest(void) {
    while (by_cpu() && hw_get(VMCS_REASON) == VMX_INTR && !one_in(6)) {
        if (one_in(2) && v->virt.regs.rflags & IF) deliver();
        if (svi() && one_in(2)) end();
        if (hw_get(VMCS_REASON) == VMX_INTR && one_in(8)) written(0x80, (u32)rand() & 0x3f);
    }
    if (one_in(4)) hw_set(VMCS_GUEST_RFLAGS, hw_get(VMCS_GUEST_RFLAGS) ^ IF);
    if (hw_get(VMCS_REASON) == VMX_INTR && one_in(8)) halts();
}

/* Whatever comes, each entry is valid, and at the end all that was raised is taken. */
static void test_every_entry_is_valid(void **state) {
    srand(21);
    for (u32 n = 0; n < 3000; n++) {
        u8 vector = (u8)(0x20 + rand() % 0xe0);

        if (one_in(3)) vlapic_raise(&v->lapic, vector);
        if (one_in(9)) vlapic_message(&v->lapic, vector, 0, true);
        if (one_in(16)) vlapic_set_no_eoi(&v->lapic, 0x61, one_in(2));
        if (one_in(16)) vlapic_raise(&v->lapic, 0x61);
        if (one_in(64)) __atomic_fetch_or(&v->todo, TODO_EVENT, __ATOMIC_SEQ_CST);
        if (one_in(2)) v->halted = false; /* it may have halted with IF clear */
        sched_wake(&v->sched);
        guest_once = random_guest;
        hw_once(run);
        this_cpu()->need_resched = true;
        cpu_pass();
        assert_int_equal(vm->state, VM_RUNNING);
    }
    vlapic_set_no_eoi(&v->lapic, 0x61, false);
    v->virt.regs.rflags |= IF;
    set_tpr(0);
    v->halted = false;
    sched_wake(&v->sched);
    for (u32 n = 0; n < 600; n++) {
        enter(NULL);
        if (by_cpu() && svi()) end();
        vlapic_write(lapic(v), 0xb0, 0, 0);
        vcpu_lapic_written(v);
        enter(NULL);
        if (by_cpu()) deliver();
    }
    assert_int_equal(vlapic_pending(lapic(v)), 0);
    assert_true(hw_cpu()->entries > 1500);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_found),
        TEST(test_the_cpu_delivers),
        TEST(test_two_wait),
        TEST(test_halted),
        TEST(test_if_clear),
        TEST(test_without_eoi),
        TEST(test_late_without_eoi),
        TEST(test_no_eoi_from_now_on),
        TEST(test_disabled),
        TEST(test_injection_waits_for_tpr),
        TEST(test_level),
        TEST(test_write),
        TEST(test_read),
        TEST(test_modes),
        TEST(test_init),
        TEST(test_tick),
        TEST(test_poll),
        TEST(test_timer_goes_on),
        TEST(test_every_entry_is_valid),
    };

    return cmocka_run_group_tests_name("apicv", tests, NULL, NULL);
}
