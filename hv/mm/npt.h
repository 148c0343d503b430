/* Second-level page tables: those of EPT, nested paging and VT-d. One walker serves all; what
 * their entries look like is data. */
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

/* Only the hypervisor's own page tables know NPT_WC. */
enum npt_memtype { NPT_UC, NPT_WB, NPT_WC, NPT_TYPES };

struct npt_format {
    u64 table;              /* bits of an entry that points to a table: it takes no right away */
    u64 right[NPT_RWX + 1]; /* bits of a leaf, by its rights (NPT_R ...) */
    u64 type[NPT_TYPES];    /* bits of a leaf, by its memory type */
    bool small;             /* there are no 2 MiB pages */
    /* the hardware reads the tables from memory, without looking into caches */
    bool write_back;
};
extern const struct npt_format npt_format_ept, npt_format_amd, npt_format_vtd;

struct npt {
    const struct npt_format *format;
    hpa_t root;
    struct spinlock lock;
    struct tlbgen tlb; /* bumped whenever a mapping was replaced or taken away */
};

/* Makes an empty table. Returns 0 or -ENOMEM. */
int npt_init(struct npt *t, const struct npt_format *format);
/* Frees the tables, but not the memory that they map. */
void npt_fini(struct npt *t);

/* Maps [gpa, gpa + len) to [hpa, ...), with 2 MiB pages where both addresses and the length
 * allow it. All are page aligned and below NPT_LIMIT; `prot` contains NPT_R. What was mapped
 * there before is replaced; if there was anything, the generation is bumped before the return.
 * Takes t->lock. Returns 0, or -ENOMEM if only a first part was mapped. Tables are freed by
 * npt_fini() alone, because until then a pCPU may hold a pointer to them. */
int npt_map(struct npt *t, gpa_t gpa, hpa_t hpa, u64 len, unsigned prot, enum npt_memtype type);
/* Unmaps [gpa, gpa + len). Returns 0, or -ENOMEM if only a first part was unmapped because a 2
 * MiB page had to be split and there was no memory for that. */
int npt_unmap(struct npt *t, gpa_t gpa, u64 len);
/* Returns where `gpa` is mapped to now, or HPA_NONE if it is not; *writable: whether with NPT_W.
 * Takes no lock. The answer is valid as long as a vCPU that uses `t` is loaded on this pCPU and
 * is not entered (tlbgen.h). */
hpa_t npt_find(const struct npt *t, gpa_t gpa, bool *writable);
/* For tests: makes the entry of a 2 MiB page one that no CPU accepts. */
void npt_damage(struct npt *t, gpa_t gpa);

#endif
