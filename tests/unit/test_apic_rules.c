/* The rules of a VM entry for APIC virtualization (entry_vmx.c): SDM 3C 27.2.1.1, 30. Each test
 * enters a guest, sets fields behind the hypervisor's back, and enters it again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "fake_hw.h"
#include "fake_machine.h"
#include "virt/hw.h"
#include "virt/vmcs.h"

#define VECTOR 0x61

static struct vm *vm;

/* It is not inlined, as the compiler would then move this_cpu() to before fake_machine(), which
 * makes the CPUs. */
static __attribute__((noinline)) void enter(void) {
    u32 before = hw_cpu()->entries;

    for (int i = 0; i < 100 && hw_cpu()->entries == before; i++) {
        this_cpu()->need_resched = true;
        cpu_pass();
    }
    assert_int_not_equal(hw_cpu()->entries, before);
}

static int start(void **state) {
    struct config_vm c = fake_config("guest", 1);

    fake_machine("null");
    fake_clock(1000);
    hw_start(HW_INTEL);
    vm = fake_vm(&c);
    assert_non_null(vm);
    fake_cpu(vm->vcpu[0]->sched.cpu);
    enter();
    assert_null(hw_broken);
    for (u32 i = 0; i < 4; i++) hw_set(VMCS_EOI_EXITS + 2 * i, 0);
    hw_set(VMCS_GUEST_APIC, 0);
    hw_set(VMCS_APIC_ACCESS, 0x7000);
    return 0;
}

static int stop(void **state) {
    fake_destroy(vm);
    return 0;
}

static void set(u32 field, u64 bits) { hw_set(field, hw_get(field) | bits); }
static void clear(u32 field, u64 bits) { hw_set(field, hw_get(field) & ~bits); }

static void assert_broken(const char *sentence) {
    const char *rule = vmx_broken_rule();

    if (sentence)
        assert_string_equal(rule, sentence);
    else
        assert_null(rule);
}

/* The registers of the virtual-APIC page that begin at this offset. */
static void set_vector(u32 offset, u32 vector) {
    u32 *page = hpa_to_va(hw_get(VMCS_VAPIC));

    page[offset / 4 + vector / 32 * 4] |= 1u << vector % 32;
}

/* Each control needs the TPR shadow, apart from that for accesses to the page. */
static void test_tpr_shadow(void **state) {
    static const u32 controls[] = { SEC_X2APIC, SEC_APIC_REGS, SEC_VIRQ };

    clear(VMCS_PRIMARY, PRI_TPR_SHADOW);
    set(VMCS_SECONDARY, SEC_APIC_PAGE);
    assert_broken(NULL);
    clear(VMCS_SECONDARY, SEC_APIC_PAGE);
    for (unsigned i = 0; i < ARRAY_SIZE(controls); i++) {
        set(VMCS_SECONDARY, controls[i]);
        assert_broken("APIC virtualization without a TPR shadow");
        clear(VMCS_SECONDARY, controls[i]);
    }
}

static void test_page_or_msrs(void **state) {
    set(VMCS_SECONDARY, SEC_APIC_PAGE | SEC_APIC_REGS);
    assert_broken(NULL);
    set(VMCS_SECONDARY, SEC_X2APIC);
    assert_broken("both the page of a LAPIC and its MSRs are virtualized");
    clear(VMCS_SECONDARY, SEC_APIC_PAGE);
    assert_broken(NULL);
}

static void test_page_address(void **state) {
    set(VMCS_SECONDARY, SEC_APIC_PAGE);
    set(VMCS_APIC_ACCESS, 8);
    assert_broken("the address of the APIC-access page");
    hw_set(VMCS_APIC_ACCESS, BIT(HW_PHYSBITS));
    assert_broken("the address of the APIC-access page");
}

static void test_delivery_needs_exits(void **state) {
    set(VMCS_SECONDARY, SEC_VIRQ);
    assert_broken(NULL);
    clear(VMCS_PIN, PIN_INTR);
    assert_broken("virtual-interrupt delivery without exits by interrupts");
}

/* The threshold counts only without virtual-interrupt delivery, and may be above the TPR if
 * accesses to the page are virtualized: then the entry ends in an exit. */
static void test_threshold(void **state) {
    hw_set(VMCS_TPR_THRESHOLD, 16);
    assert_broken("a TPR threshold above 15");
    set(VMCS_SECONDARY, SEC_VIRQ);
    assert_broken(NULL);
    clear(VMCS_SECONDARY, SEC_VIRQ);
    hw_set(VMCS_TPR_THRESHOLD, 3);
    assert_broken("a TPR threshold above the virtual TPR");
    set(VMCS_SECONDARY, SEC_APIC_PAGE);
    assert_broken(NULL);
}

/* A guest must not reach the LAPIC of the machine. */
static void test_msrs_of_the_machine(void **state) {
    u8 *bitmap = hpa_to_va(hw_get(VMCS_MSR_BITMAP)), *eoi = bitmap + 2048 + 0x80b / 8;

    *eoi &= (u8)~BIT(0x80b % 8);
    assert_broken("MSRs of the machine's own LAPIC");
    set(VMCS_SECONDARY, SEC_X2APIC);
    assert_broken(NULL);
    *eoi |= (u8)BIT(0x80b % 8); /* all VMs share the bitmap */
}

/* What the CPU is told of the interrupts in the page is what is there. */
static void test_status(void **state) {
    set(VMCS_SECONDARY, SEC_VIRQ);
    set_vector(0x200, VECTOR);
    assert_broken("RVI is not the highest vector of IRR");
    hw_set(VMCS_GUEST_APIC, VECTOR);
    assert_broken(NULL);
    set_vector(0x100, VECTOR + 1);
    assert_broken("SVI is not the highest vector of ISR");
    hw_set(VMCS_GUEST_APIC, VECTOR | (VECTOR + 1) << 8);
    assert_broken(NULL);
    set_vector(0x200, VECTOR + 1);
    assert_broken("RVI is not the highest vector of IRR");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_tpr_shadow),   TEST(test_page_or_msrs),
        TEST(test_page_address), TEST(test_delivery_needs_exits),
        TEST(test_threshold),    TEST(test_msrs_of_the_machine),
        TEST(test_status),
    };

    return cmocka_run_group_tests_name("apic rules", tests, NULL, NULL);
}
