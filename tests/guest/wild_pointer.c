/* expect: crashed, in poke */
/* A pointer into nowhere: no exception reaches the guest, so only the hypervisor can say where
 * it was. */
#include <guest/test.h>

static __attribute__((noinline)) void poke(volatile u32 *p) { *p = 1; }

int main(void) {
    poke((volatile u32 *)0xd0000000ull);
    test_survived();
}
