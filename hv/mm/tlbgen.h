/* TLB generations and tags: how a pCPU learns that a VM's translations are stale, and how the owner of a
 * frame learns that no pCPU can reach it any more.
 *
 * Whoever takes a right away from a second-level table changes the entry, then bumps `current`. A pCPU
 * compares before every entry (tlb_stale) and flushes before it lets the guest run (tlb_prepare). A vCPU that
 * is loaded on a pCPU may hold translations of the generation in `flushed`; so a frame may be freed once
 * tlbgen_passed(bump's result). Pending pCPUs are kicked by the caller: they pass at their next entry or
 * save.
 *
 * Tags (ASIDs, VPIDs) are handed out per pCPU in ascending order and are never used twice within an epoch: a
 * new tag is an empty TLB. Pure data structures; the vendor executes the flush that tlb_prepare() asks for.
 */
#ifndef HV_MM_TLBGEN_H
#define HV_MM_TLBGEN_H

#include "lib/cpumask.h"

/* Per VM. `current` starts at 1, so that 0 is "never flushed". */
struct tlbgen {
    u64 current;
    u64 flushed[TAKT_MAX_CPUS]; /* written by that pCPU */
    u8 loaded[TAKT_MAX_CPUS];   /* a vCPU of this VM is loaded there; written by that pCPU */
};

/* Per pCPU: tags 1 .. nr - 1; 0 is the host's. All zero: tlb_tags_init has not run. */
struct tlb_tags {
    u32 next, nr;
    u64 epoch;
};

/* Per vCPU; all zero at first, when no pCPU has such an epoch. */
struct tlb_user {
    u32 tag;
    u64 epoch;      /* of the tags of `cpu` */
    u64 generation; /* to which the translations under `tag` are known to be flushed; 0: none are good */
    u32 cpu;        /* where it was loaded last */
};

enum tlb_flush {
    TLB_KEEP,
    TLB_FLUSH_VM,  /* what is cached of this VM's second-level table, under any tag (INVEPT single-context);
                      nothing to do where all that is cached hangs on tags (AMD-V) */
    TLB_FLUSH_ALL, /* everything of all tags on this pCPU */
};

/* After the entries were changed. Returns the generation that pCPUs have to pass. A full barrier. */
u64 tlbgen_bump(struct tlbgen *g);
/* No pCPU can use a translation that is older than `generation`. */
bool tlbgen_passed(const struct tlbgen *g, u64 generation);

void tlb_tags_init(struct tlb_tags *t, u32 nr); /* nr >= 2 */
/* The vCPU becomes this pCPU's, and leaves it. */
void tlb_load(struct tlbgen *g, const struct tlb_tags *t, struct tlb_user *u, unsigned cpu);
void tlb_save(struct tlbgen *g, unsigned cpu);
/* The vCPU stays the pCPU's, which does something else: between the two it uses no translation. */
static inline void tlb_rest(struct tlbgen *g, unsigned cpu) { tlb_save(g, cpu); }
void tlb_resume(struct tlbgen *g, unsigned cpu);

/* Forget this vCPU's translations: the hypervisor changed a register that flushes (CR0, CR3, CR4, EFER). */
static inline void tlb_forget(struct tlb_user *u) { u->generation = 0; }

/* Before every entry: has tlb_prepare() to be called? */
static inline bool tlb_stale(const struct tlbgen *g, const struct tlb_user *u) {
    return __builtin_expect(u->generation != __atomic_load_n(&g->current, __ATOMIC_ACQUIRE), 0);
}

/* Gives the vCPU a tag under which nothing is cached, says what else has to be flushed on this pCPU before
 * the entry, and calls `flush` for it before it tells others that this pCPU has passed. */
void tlb_prepare(struct tlbgen *g, struct tlb_tags *t, struct tlb_user *u, unsigned cpu,
                 void (*flush)(enum tlb_flush what, void *ctx), void *ctx);

#endif
