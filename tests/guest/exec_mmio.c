/* expect: crashed */
/* A VM that executes in a device's registers is stopped. */
#include <guest/test.h>

int main(void) {
    test_begin();
    __asm__ volatile("call *%0" : : "r"(TAKT_LAPIC_GPA + 0x20) : "memory");
    test_survived();
}
