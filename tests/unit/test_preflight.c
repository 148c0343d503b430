/* What Takt says to a machine on which it cannot run. The CPUs are made up here; those of real
 * machines are in tests/machines/. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include <takt/errno.h>

#include "fake_insn.h"
#include "fake_log.h"
#include "platform/apic.h"
#include "preflight.h"
#include "virt/virt.h"

#define CPUID_1_ECX_VMX        BIT(5)
#define CPUID_80000001_ECX_SVM BIT(2)
#define SVM_NESTED_PAGING      BIT(0) /* leaf 8000000A, EDX */

/* SDM 3D A.1 to A.10 */
#define VMX_BASIC              0x480u
#define VMX_SECONDARY          0x48bu
#define VMX_EPT_VPID           0x48cu
#define VMX_PIN                0x48du
#define VMX_PRIMARY            0x48eu
#define VMX_ENTRY              0x490u
#define BASIC_TRUE_CONTROLS    BIT(55)
#define ALL_MAY_BE_SET         0xffffffff00000000ull
#define SECONDARY_EPT          BIT(32 + 1)
#define SECONDARY_VPID         BIT(32 + 5)
#define SECONDARY_UNRESTRICTED BIT(32 + 7)
#define SECONDARY_VIRQ         BIT(32 + 9) /* virtual-interrupt delivery */
#define PIN_VIRTUAL_NMIS       BIT(32 + 5)
#define PIN_TIMER              BIT(32 + 6)
#define EPT_2M_PAGES           BIT(16)
#define FEATURE_LOCKED         BIT(0)
#define VM_CR_LOCKED_OFF       (BIT(3) | BIT(4)) /* APM2 15.30.1 */

static struct cpuid leaf_1, leaf_80000001, leaf_8000000a;
static u64 feature_control, basic, secondary, ept_vpid, pin, vm_cr;

static struct cpuid made_up_cpuid(u32 leaf, u32 sub) {
    switch (leaf) {
    case 0: return (struct cpuid){ .eax = 7 };
    case 1: return leaf_1;
    case 0x80000000: return (struct cpuid){ .eax = 0x8000000a };
    case 0x80000001: return leaf_80000001;
    case 0x8000000a: return leaf_8000000a;
    default: return (struct cpuid){ 0 };
    }
}

static u64 made_up_msr(u32 msr) {
    switch (msr) {
    case MSR_FEATURE_CONTROL: return feature_control;
    case MSR_VM_CR: return vm_cr;
    case VMX_BASIC: return basic;
    case VMX_SECONDARY: return secondary;
    case VMX_EPT_VPID:
        /* Without one of these two controls the MSR does not exist (A.10). */
        assert_true(secondary & (SECONDARY_EPT | SECONDARY_VPID));
        return ept_vpid;
    case VMX_PIN: return pin;
    case VMX_PRIMARY ... VMX_ENTRY: return ALL_MAY_BE_SET;
    default: return 0;
    }
}

static void written(u32 msr, u64 value) {
    assert_int_equal(msr, MSR_VM_CR);
    vm_cr = value;
}

static int setup(void **state) {
    fake_cpuid = made_up_cpuid;
    fake_rdmsr = made_up_msr;
    fake_wrmsr = written;
    leaf_1 = (struct cpuid){ .edx = BIT(9) };
    leaf_80000001 = leaf_8000000a = (struct cpuid){ 0 };
    feature_control = vm_cr = 0;
    basic = BASIC_TRUE_CONTROLS;
    secondary = pin = ALL_MAY_BE_SET;
    ept_vpid = ~0ull;
    return apic_probe();
}

static void test_neither(void **state) {
    assert_string_equal(preflight("there is none"), "this CPU has neither VT-x nor AMD-V.");
}

static void test_vmx(void **state) {
    struct virt_caps caps;

    leaf_1.ecx = CPUID_1_ECX_VMX;
    assert_null(preflight(NULL));
    assert_ptr_equal(virt, &vmx_ops);
    assert_int_equal(virt_probe(&caps), 0);
    assert_true(caps.second_level && caps.unrestricted && caps.asid && caps.preemption_timer);
    assert_true(caps.apicv);
    pin &= ~PIN_TIMER; /* can be done without */
    assert_int_equal(virt_probe(&caps), 0);
    assert_false(caps.preemption_timer);
    secondary &= ~SECONDARY_VIRQ; /* likewise; and of several parts one is too few */
    assert_int_equal(virt_probe(&caps), 0);
    assert_false(caps.apicv);
}

static void test_vmx_locked_off(void **state) {
    leaf_1.ecx = CPUID_1_ECX_VMX;
    feature_control = FEATURE_LOCKED;
    assert_string_equal(
        preflight(NULL),
        "the firmware has switched VT-x off and locked it: allow it in its set-up.");
}

static void test_vmx_lacks(void **state) {
    static const char no_unrestricted[] =
        "VT-x of this CPU has no unrestricted guest, which Takt needs: "
        "Intel's have it since 2010 (Westmere).";
    static const char lacks[] =
        "VT-x of this CPU lacks a control, or an ability of EPT or VPID, that Takt needs.";

    leaf_1.ecx = CPUID_1_ECX_VMX;
    secondary &= ~SECONDARY_UNRESTRICTED;
    assert_string_equal(preflight(NULL), no_unrestricted);
    secondary &= ~SECONDARY_VPID;
    assert_string_equal(preflight(NULL), "VT-x of this CPU has no VPID, which Takt needs.");
    secondary &= ~SECONDARY_EPT;
    assert_string_equal(preflight(NULL), "VT-x of this CPU has no EPT, which Takt needs.");
    secondary = ALL_MAY_BE_SET;
    ept_vpid &= ~EPT_2M_PAGES;
    assert_string_equal(preflight(NULL), lacks);
    ept_vpid |= EPT_2M_PAGES;
    assert_null(preflight(NULL));
    pin &= ~PIN_VIRTUAL_NMIS;
    assert_string_equal(preflight(NULL), lacks);
}

/* Core 2: no EPT, and none of the MSRs that would tell more. */
static void test_vmx_first_generation(void **state) {
    leaf_1.ecx = CPUID_1_ECX_VMX;
    basic = 0;
    assert_string_equal(preflight(NULL), "VT-x of this CPU has no EPT, which Takt needs.");
}

static void test_svm(void **state) {
    leaf_80000001.ecx = CPUID_80000001_ECX_SVM;
    leaf_8000000a = (struct cpuid){ .ebx = 64, .edx = SVM_NESTED_PAGING };
    assert_null(preflight(NULL));
    assert_ptr_equal(virt, &svm_ops);
    vm_cr = VM_CR_LOCKED_OFF;
    assert_string_equal(
        preflight(NULL),
        "the firmware has switched AMD-V off and locked it: allow SVM in its set-up.");
    vm_cr = 0;
    leaf_8000000a.edx = 0;
    assert_string_equal(preflight(NULL),
                        "this CPU has AMD-V without nested paging, which Takt needs.");
    leaf_8000000a = (struct cpuid){ .ebx = 1, .edx = SVM_NESTED_PAGING };
    assert_string_equal(preflight(NULL), "this CPU has AMD-V without address space identifiers.");
}

static void test_no_apic(void **state) {
    leaf_1.edx = 0;
    assert_int_equal(apic_probe(), -ENODEV);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_neither, setup),
        cmocka_unit_test_setup(test_vmx, setup),
        cmocka_unit_test_setup(test_vmx_locked_off, setup),
        cmocka_unit_test_setup(test_vmx_lacks, setup),
        cmocka_unit_test_setup(test_vmx_first_generation, setup),
        cmocka_unit_test_setup(test_svm, setup),
        cmocka_unit_test_setup(test_no_apic, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
