/* expect: crashed, in poke */
/* The guest follows a pointer to where there is no RAM. No exception reaches it, so only the
 * hypervisor can say where that was. */
#include <guest/test.h>

static __attribute__((noinline)) void poke(volatile u32 *p) { *p = 1; }

int main(void) {
    poke((volatile u32 *)0xd0000000ull);
    test_survived();
}
