/* Included before each guest's own source, by the Makefile. A guest runs without the FPU and its
 * registers (-mgeneral-regs-only), so that no switch between threads has to save them. What GCC
 * says of floating point then ("SSE register return with SSE disabled") tells a newcomer
 * nothing. */
#include <stddef.h> /* it has a `long double` of its own (max_align_t) */

typedef long takt_no_floating_point __attribute__((
    unavailable("a guest has no floating point: compute with integers, for example u64 in "
                "nanoseconds or in thousandths")));
#define float takt_no_floating_point
#define double takt_no_floating_point
