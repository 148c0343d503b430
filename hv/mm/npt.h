/* Second-level page tables: EPT, nested paging (and later VT-d) through one walker whose formats are data. */
#ifndef HV_MM_NPT_H
#define HV_MM_NPT_H

#include "mm/frame.h"
#include "lib/spinlock.h"

#define NPT_R   1u
#define NPT_W   2u
#define NPT_X   4u
#define NPT_RW  (NPT_R | NPT_W)
#define NPT_RWX (NPT_R | NPT_W | NPT_X)

enum npt_memtype { NPT_UC, NPT_WB };

struct npt_format;
extern const struct npt_format npt_format_ept, npt_format_amd;

struct npt {
    const struct npt_format *format;
    hpa_t root;
    u32 table_frames; /* how many frames its tables take */
    u64 generation;   /* bumped whenever a mapping was taken away or cut; see mm/tlbgen.h */
    struct spinlock lock;
};

int npt_init(struct npt *t, const struct npt_format *format); /* -ENOMEM */
void npt_fini(struct npt *t);                                 /* frees tables, not what they map */

/* Maps [gpa, gpa + len) to [hpa, ...), 2 MiB pages where both sides and the length fit; all page aligned.
 * Replaces what was there and bumps the generation if that took a right away. -ENOMEM leaves a mapping of a
 * prefix. */
int npt_map(struct npt *t, gpa_t gpa, hpa_t hpa, u64 len, unsigned prot, enum npt_memtype type);
void npt_unmap(struct npt *t, gpa_t gpa, u64 len);

/* What `gpa` maps to: its hpa, or HPA_NONE; *prot (may be NULL) receives the rights. */
hpa_t npt_lookup(const struct npt *t, gpa_t gpa, unsigned *prot);

#endif
