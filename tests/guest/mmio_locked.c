/* expect: crashed */
/* A locked read-modify-write on the register of a device stops the VM: the hypervisor does not
 * emulate it. */
#include <guest/lapic.h>
#include <guest/test.h>

int main(void) {
    test_begin();
    lapic_set_mode(false);
    __asm__ volatile("lock xaddl %k0, (%1)"
                     :
                     : "r"(0ull), "r"(TAKT_LAPIC_GPA + LAPIC_TPR)
                     : "memory");
    test_survived();
}
