/* expect: crashed */
/* REP MOVS from RAM over the page of a device, backwards, with a count that never ends, stops
 * the VM. */
#include <guest/lapic.h>
#include <guest/test.h>

int main(void) {
    static u8 from[64];

    test_begin();
    lapic_set_mode(false);
    __asm__ volatile("std; rep movsb; cld"
                     :
                     : "S"(from + 63), "D"(TAKT_LAPIC_GPA + 0x83), "c"(1ull << 32)
                     : "memory");
    test_survived();
}
