/* The MSR IA32_APIC_BASE: the modes of the local APIC, which ways lead from one to another (SDM
 * 3A 11.12.5), and its address, which a guest of Takt cannot change. A mode that the processor
 * would refuse must be #GP here as well. */
#include <guest/lapic.h>
#include <guest/test.h>
#include <guest/vcpu.h>
#include <guest/x86.h>

#define BSP BIT(8)
#define X2  BIT(10)
#define EN  BIT(11)

static bool cpuid_has_apic(void) { return cpuid(1, 0).edx & BIT(9); }

int main(void) {
    u64 f, base, where;
    u8 v;

    test_begin();
    f = irq_save();
    base = rdmsr(MSR_APIC_BASE);
    where = base & ~0xfffull;
    CHECK(where == TAKT_LAPIC_GPA && base & BSP && base & EN, "APIC_BASE is %lx", base);
    check_exception(wrmsr_fault(MSR_APIC_BASE, where | BSP | X2), EXC_GP, "x2APIC without enable");
    check_exception(wrmsr_fault(MSR_APIC_BASE, base | 1), EXC_GP, "a reserved bit");
    check_exception(wrmsr_fault(MSR_APIC_BASE, base | 1ull << 60), EXC_GP,
                    "an address beyond MAXPHYADDR");
    if (lapic_has_x2()) {
        lapic_set_mode(true);
        check_exception(wrmsr_fault(MSR_APIC_BASE, where | BSP | EN), EXC_GP, "x2APIC to xAPIC");
        CHECK(rdmsr(MSR_APIC_BASE) & X2, "and still it left x2APIC mode");
        check_exception(wrmsr_fault(MSR_APIC_BASE, where | BSP), EXC_NONE, "x2APIC to disabled");
        check_exception(wrmsr_fault(MSR_APIC_BASE, where | BSP | X2 | EN), EXC_GP,
                        "disabled to x2APIC");
        CHECK(!cpuid_has_apic(), "CPUID shows an APIC that is off");
    } else {
        wrmsr(MSR_APIC_BASE, where | BSP);
    }
    check_exception(wrmsr_fault(MSR_APIC_BASE, where | BSP | EN), EXC_NONE, "disabled to xAPIC");
    CHECK(cpuid_has_apic(), "CPUID shows no APIC though it is on");
    /* Elsewhere: refused, or honoured without harm. */
    v = wrmsr_fault(MSR_APIC_BASE, 0x200000 | BSP | EN);
    CHECK(v == EXC_GP || v == EXC_NONE, "moved: %s", exception_name(v));
    wrmsr(MSR_APIC_BASE, where | BSP | EN);
    lapic_set_mode(false);
    CHECK(lapic_id() == 0, "id %u after all that", lapic_id());
    lapic_set_mode(lapic_has_x2());
    irq_restore(f);
    return test_end("the LAPIC's modes");
}
