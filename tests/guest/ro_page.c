/* expect: crashed */
/* The pages with the vCPUs' times are read-only: a write stops the VM. */
#include <guest/test.h>

int main(void) {
    test_begin();
    *(volatile u64 *)TAKT_INFO_GPA = 1;
    test_survived();
}
