/* What the hardware would find in a second-level table. */
#ifndef NPT_MODEL_H
#define NPT_MODEL_H

#include "mm/npt.h"

/* Its hpa, or HPA_NONE; *prot (may be NULL) receives the rights. */
static inline hpa_t npt_lookup(const struct npt *t, gpa_t gpa, unsigned *prot) {
    hpa_t table = t->root;

    for (unsigned shift = 39; gpa < NPT_LIMIT; shift -= 9) {
        u64 e = ((const u64 *)hpa_to_va(table))[gpa >> shift & 511], mask = BIT(shift) - 1;

        if (!(e & (t->format == &npt_format_ept ? 7 : 1))) break;
        if (shift == 12 || (shift == 21 && e & BIT(7))) {
            if (prot && t->format == &npt_format_ept)
                *prot = e & 7;
            else if (prot)
                *prot = NPT_R | (e & 2 ? NPT_W : 0) | (e >> 63 ? 0 : NPT_X);
            return (e & 0x000ffffffffff000ull & ~mask) | (gpa & mask);
        }
        table = e & 0x000ffffffffff000ull;
    }
    return HPA_NONE;
}

#endif
