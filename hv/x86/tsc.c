#include "x86/tsc.h"

u64 tsc_khz, tsc_boot, tsc_to_ns_mul, ns_to_tsc_mul;

void tsc_set_khz(u64 khz) {
    tsc_khz = khz;
    tsc_to_ns_mul = (1000000ull << 32) / khz;
    ns_to_tsc_mul = (khz << 32) / 1000000;
}
