/* expect: crashed */
/* A VM that executes where there is no RAM is stopped. */
#include <guest/test.h>

int main(void) {
    test_begin();
    __asm__ volatile("call *%0" : : "r"(0xd0000000ull) : "memory");
    test_survived();
}
