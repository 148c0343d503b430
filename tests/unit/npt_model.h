/* A model of the processor's walk through a second-level page table (SDM 3C 29.3, APM2 15.25): what
 * the hardware would find there. Tests compare it with what the hypervisor meant to map. */
#ifndef NPT_MODEL_H
#define NPT_MODEL_H

#include "mm/npt.h"

#define NPT_MODEL_ADDRESS 0x000ffffffffff000ull /* bits 12 to 51 of an entry */

/* The rights that an entry gives. In both formats they are the low bits; NPT has a bit that forbids
 * execution instead of one that allows it. */
static inline unsigned npt_rights(const struct npt *t, u64 entry) {
    unsigned prot = NPT_R;

    if (t->format == &npt_format_ept) return entry & NPT_RWX;
    if (entry & BIT(1)) prot |= NPT_W;
    if (!(entry & BIT(63))) prot |= NPT_X;
    return prot;
}

/* EPT: any right; NPT: the bit "present". */
static inline bool npt_present(const struct npt *t, u64 entry) {
    if (t->format == &npt_format_ept) return (entry & NPT_RWX) != 0;
    return (entry & BIT(0)) != 0;
}

/* Returns the host address that a guest address is mapped to, or HPA_NONE. *prot receives the
 * rights; `prot` may be NULL. */
static inline hpa_t npt_lookup(const struct npt *t, gpa_t gpa, unsigned *prot) {
    hpa_t table = t->root;

    for (unsigned shift = 39; gpa < NPT_LIMIT; shift -= 9) {
        u64 e = ((const u64 *)hpa_to_va(table))[gpa >> shift & 511], mask = BIT(shift) - 1;

        if (!npt_present(t, e)) break;
        if (shift == 12 || (shift == 21 && e & BIT(7))) { /* a page of 4 KiB or of 2 MiB */
            if (prot) *prot = npt_rights(t, e);
            return (e & NPT_MODEL_ADDRESS & ~mask) | (gpa & mask);
        }
        table = e & NPT_MODEL_ADDRESS;
    }
    return HPA_NONE;
}

#endif
