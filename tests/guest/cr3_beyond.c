/* expect: crashed, CR3 is beyond the physical addresses */
/* only: qemu */
/* A CR3 with a bit that no physical address has. Processors refuse it with a #GP. QEMU ends the
 * guest as if an entry had failed, so the report has to name the rule that the guest has broken. */
#include <guest/test.h>
#include <guest/x86.h>

int main(void) {
    __asm__ volatile("mov %0, %%cr3" : : "r"(read_cr3() | 1ull << 51) : "memory");
    test_survived();
}
