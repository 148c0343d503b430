/* expect: crashed */
/* A bit string instruction with an index in a register, which may touch memory far from its
 * base, on the page of a device. It is not one that the hypervisor emulates, so the VM is
 * stopped. */
#include <guest/lapic.h>
#include <guest/test.h>

int main(void) {
    test_begin();
    lapic_set_mode(false);
    __asm__ volatile("btsq %0, (%1)"
                     :
                     : "r"(-(i64)0x1000 * 8), "r"(TAKT_LAPIC_GPA + 0x1080)
                     : "memory");
    test_survived();
}
