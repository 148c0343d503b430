/* expect: crashed */
/* INS into the page of a device stops the VM: the hypervisor does not emulate it. */
#include <guest/lapic.h>
#include <guest/test.h>

int main(void) {
    test_begin();
    lapic_set_mode(false);
    __asm__ volatile("rep insl"
                     :
                     : "D"(TAKT_LAPIC_GPA + LAPIC_TPR), "c"(4ull), "d"(0x5e0)
                     : "memory");
    test_survived();
}
