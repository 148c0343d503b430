/* expect: crashed, in give_up\+0x */
/* A guest that ends itself, as the library does on an exception that no handler takes. The
 * hypervisor says in which function that was. */
#include <guest/test.h>

static __attribute__((noinline)) void give_up(void) { guest_panic("on purpose"); }

int main(void) {
    give_up();
    return 0;
}
