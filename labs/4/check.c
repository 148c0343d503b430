/* The tests of lab 4. Times are in ns. The timer counts nanoseconds before its divider; the value
 * 0xb of R_DIVIDE divides by 1. */
#include "rig.h"

static void raise(void) {
    begin();
    expect_result("vlapic_pending when nothing came", vlapic_pending(&apic), 0);
    vlapic_raise(&apic, 0x31);
    expect("how often the vCPU was told", told, 1);
    expect("the bit of 0x31 in IRR", bit_of(R_IRR, 0x31), 1);
    vlapic_raise(&apic, 0x31);
    expect("how often it was told when the same came again", told, 1);
    vlapic_raise(&apic, 0xfe);
    vlapic_raise(&apic, 0x52);
    expect("how often it was told of two others", told, 3);
    expect_result("the highest that is pending", vlapic_pending(&apic), 0xfe);
}

static void classes(void) {
    begin();
    vlapic_raise(&apic, 0x45);
    wr(R_TPR, 0x40, 0);
    expect_result("0x45 while TPR is 0x40", vlapic_pending(&apic), -1);
    expect("PPR", rd(R_PPR, 0), 0x40);
    wr(R_TPR, 0x3f, 0);
    expect_result("0x45 while TPR is 0x3f", vlapic_pending(&apic), 0x45);
    expect("PPR", rd(R_PPR, 0), 0x3f);
    apic.reg[R_ISR + 2] = 1u << 5; /* 0x45 is in service */
    apic.isr_top = 0x45;
    apic.reg[R_IRR + 2] = 1u << 15; /* 0x4f is pending, and of the same class */
    expect_result("0x4f while 0x45 is in service", vlapic_pending(&apic), -1);
    expect("PPR", rd(R_PPR, 0), 0x40);
    vlapic_raise(&apic, 0x50);
    expect_result("0x50 while 0x45 is in service", vlapic_pending(&apic), 0x50);
}

static void nested(void) {
    begin();
    vlapic_raise(&apic, 0x41);
    take("the first interrupt", 0x41);
    expect("the bit of 0x41 in IRR when it was taken", bit_of(R_IRR, 0x41), 0);
    expect("the bit of 0x41 in ISR when it was taken", bit_of(R_ISR, 0x41), 1);
    vlapic_raise(&apic, 0x33);
    take("a lower one meanwhile", -1);
    vlapic_raise(&apic, 0x99);
    take("a higher one meanwhile", 0x99);
    wr(R_EOI, 0, 0);
    expect("the bit of 0x99 in ISR after its EOI", bit_of(R_ISR, 0x99), 0);
    expect("the bit of 0x41 in ISR after the EOI of 0x99", bit_of(R_ISR, 0x41), 1);
    take("the lower one, while 0x41 is still in service", -1);
    wr(R_EOI, 0, 0);
    take("the lower one, after the second EOI", 0x33);
    wr(R_EOI, 0, 0);
    wr(R_EOI, 0, 0); /* nothing is in service any more */
    expect("EOIs that the IOAPIC heard of", eois, 0);
    vlapic_message(&apic, 0x61, 0, true);
    take("an interrupt of the IOAPIC, level triggered", 0x61);
    wr(R_EOI, 0, 0);
    expect("EOIs that the IOAPIC heard of", eois, 1);
    expect("the vector of that EOI", eoi_of, 0x61);
    vlapic_set_no_eoi(&apic, 0x70, true);
    vlapic_raise(&apic, 0x70);
    take("an interrupt whose handler makes no EOI", 0x70);
    expect("its bit in ISR", bit_of(R_ISR, 0x70), 0);
}

static void oneshot(void) {
    begin();
    wr(R_DIVIDE, 0xb, 0);
    wr(R_LVT_TIMER, 0x80, 0);
    wr(R_INITIAL, 500000, 1000);
    expect("when the timer is to fire", armed, 501000);
    expect("the count after 200 us", rd(R_CURRENT, 201000), 300000);
    vlapic_tick(&apic, 500999);
    expect_result("what is pending just before", vlapic_pending(&apic), 0);
    vlapic_tick(&apic, 501000);
    take("the timer's interrupt", 0x80);
    wr(R_EOI, 0, 501000);
    expect("when it is to fire again", armed, NEVER);
    expect("the count afterwards", rd(R_CURRENT, 600000), 0);
    wr(R_DIVIDE, 0x3, 700000); /* divides by 16 */
    wr(R_INITIAL, 1000, 700000);
    expect("when the timer is to fire, divided by 16", armed, 716000);
    wr(R_LVT_TIMER, MASKED | 0x80, 701000);
    vlapic_tick(&apic, 720000);
    expect_result("what is pending when the timer is masked", vlapic_pending(&apic), 0);
    wr(R_LVT_TIMER, 0x80, 730000);
    wr(R_INITIAL, 1000, 730000);
    wr(R_INITIAL, 0, 731000);
    expect("when the timer is to fire, after a count of 0 was written", armed, NEVER);
}

static void periodic(void) {
    begin();
    wr(R_DIVIDE, 0xb, 0);
    wr(R_LVT_TIMER, PERIODIC | 0x80, 0);
    wr(R_INITIAL, 100000, 0);
    vlapic_tick(&apic, 100000);
    expect("when it is to fire while its tick was not taken", armed, NEVER);
    take("the first tick", 0x80);
    expect("when the next tick is due", armed, 200000);
    wr(R_EOI, 0, 100000);
    vlapic_tick(&apic, 200000);
    vlapic_tick(&apic, 300000);
    take("the second tick, taken late", 0x80);
    wr(R_EOI, 0, 450000);
    vlapic_tick(&apic, 450000);
    take("the tick that is due then", 0x80);
    wr(R_EOI, 0, 450000);
    expect("when the next tick is due: at the same times as before", armed, 500000);
    expect("the count between two ticks", rd(R_CURRENT, 480000), 20000);
    vlapic_tick(&apic, 500000);
    take("the next tick", 0x80);
    wr(R_EOI, 0, 500000);
    wr(R_INITIAL, 10, 510000);
    expect("when it fires with a period of 10 ns: at least 20 us", armed, 530000);
}

static void deadline(void) {
    begin();
    wr(R_LVT_TIMER, DEADLINE | 0x90, 0);
    expect_result("a write of the deadline", vlapic_wrmsr(&apic, MSR_TSC_DEADLINE, 80000, 1000), 0);
    expect("when the timer is to fire", armed, 40000);
    expect("the count in this mode", rd(R_CURRENT, 2000), 0);
    vlapic_tick(&apic, 40000);
    take("the timer's interrupt", 0x90);
    wr(R_EOI, 0, 40000);
    expect("the deadline afterwards", apic.deadline, 0);
    vlapic_wrmsr(&apic, MSR_TSC_DEADLINE, 100000, 41000);
    vlapic_wrmsr(&apic, MSR_TSC_DEADLINE, 0, 42000);
    expect("when it is to fire, after a deadline of 0", armed, NEVER);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        { "raise", raise },     { "classes", classes },   { "nested", nested },
        { "oneshot", oneshot }, { "periodic", periodic }, { "deadline", deadline },
        { NULL, NULL },
    };

    return run_tests(tests, argc, argv);
}
