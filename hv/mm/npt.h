/* Second-level page tables: EPT, nested paging and VT-d through one walker whose formats are data. */
#ifndef HV_MM_NPT_H
#define HV_MM_NPT_H

#include "mm/frame.h"
#include "mm/tlbgen.h"
#include "lib/spinlock.h"

#define NPT_R     1u
#define NPT_W     2u
#define NPT_X     4u
#define NPT_RW    (NPT_R | NPT_W)
#define NPT_RWX   (NPT_R | NPT_W | NPT_X)

#define SIZE_2M   BIT(21)
#define NPT_LIMIT BIT(48)

/* NPT_WC: the hypervisor's own page tables alone have it. */
enum npt_memtype { NPT_UC, NPT_WB, NPT_WC, NPT_TYPES };

struct npt_format {
    u64 table;              /* set in entries that point to tables: all rights */
    u64 right[NPT_RWX + 1]; /* set in leaves, by NPT_R ... */
    u64 type[NPT_TYPES];    /* and by enum npt_memtype */
    bool small;             /* there are no 2 MiB pages */
    bool write_back;        /* who walks the tables does not look into caches */
};
extern const struct npt_format npt_format_ept, npt_format_amd, npt_format_vtd;

struct npt {
    const struct npt_format *format;
    hpa_t root;
    struct spinlock lock;
    struct tlbgen tlb; /* bumped whenever a mapping was replaced or taken away */
};

int npt_init(struct npt *t, const struct npt_format *format); /* -ENOMEM */
void npt_fini(struct npt *t);                                 /* frees tables, not what they map */

/* Maps [gpa, gpa + len) to [hpa, ...), 2 MiB pages where both sides and the length fit; all page aligned,
 * below NPT_LIMIT, `prot` with NPT_R. Replaces what was there; if there was anything, the generation is
 * bumped before the return. -ENOMEM leaves a mapping of a prefix. Tables are freed by npt_fini
 * alone: until then a pCPU may hold a pointer to them. */
int npt_map(struct npt *t, gpa_t gpa, hpa_t hpa, u64 len, unsigned prot, enum npt_memtype type);
/* -ENOMEM if a 2 MiB page had to be split and could not: then a prefix is unmapped. */
int npt_unmap(struct npt *t, gpa_t gpa, u64 len);
/* Where `gpa` is mapped to now, and whether with NPT_W; HPA_NONE if it is not. Valid as long as a vCPU that
 * uses `t` is loaded on this pCPU and is not entered (tlbgen.h). */
hpa_t npt_find(const struct npt *t, gpa_t gpa, bool *writable);
/* For tests: the entry of a 2 MiB page becomes one that no CPU accepts. */
void npt_damage(struct npt *t, gpa_t gpa);

#endif
