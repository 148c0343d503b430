/* expect: crashed */
/* A triple fault stops the VM. */
#include <guest/test.h>

int main(void) {
    static const u8 no_idt[10];

    test_begin();
    __asm__ volatile("lidt %0; ud2" : : "m"(no_idt));
    test_survived();
}
