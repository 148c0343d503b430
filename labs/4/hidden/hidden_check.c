/* A test of lab 4 that students do not have. */
#include "rig.h"

/* All vectors are raised, taken and ended, each while the one below it is in service or waits. */
static void all(void) {
    begin();
    for (u32 vector = 0x10; vector < 0x100; vector += 0x10) {
        vlapic_raise(&apic, (u8)(vector + 3));
        vlapic_raise(&apic, (u8)(vector + 9));
        take("the higher one of a class", (int)(vector + 9));
        take("the lower one of that class", -1);
    }
    for (u32 vector = 0xf0; vector >= 0x10; vector -= 0x10) {
        expect("PPR", rd(R_PPR, 0), vector);
        wr(R_EOI, 0, 0);
        take("the lower one of a class, after an EOI", (int)(vector + 3));
        wr(R_EOI, 0, 0);
    }
    expect("PPR in the end", rd(R_PPR, 0), 0);
}

int main(int argc, char **argv) {
    static const struct test tests[] = { { "all", all }, { NULL, NULL } };

    return run_tests(tests, argc, argv);
}
