/* TLB generations and tags: how a pCPU learns that translations of a VM are out of date, and how
 * the owner of a frame learns that no pCPU can reach it any more.
 *
 * Code that takes a right away from a second-level table changes the entry and then bumps
 * `current`. A pCPU compares before every entry (tlb_stale()) and flushes before it lets the
 * guest run (tlb_prepare()). A vCPU that is loaded on a pCPU may hold translations of the
 * generation in `flushed`. So a frame may be freed once tlbgen_passed() is true of the number
 * that the bump returned. The caller kicks pCPUs that have not passed: they do at their next
 * entry or save.
 *
 * Tags (ASIDs, VPIDs) are handed out by each pCPU in ascending order, and none is used twice
 * within an epoch: so a new tag is an empty TLB. Where the CPU can flush a single tag, a vCPU keeps
 * its tag instead, until it is loaded on another pCPU. All of this is pure data; the vendor's code
 * executes the flush that tlb_prepare() asks for. */
#ifndef HV_MM_TLBGEN_H
#define HV_MM_TLBGEN_H

#include "lib/cpumask.h"

/* Of a VM. `current` begins at 1, so that 0 means "never flushed". */
struct tlbgen {
    u64 current;
    u32 nr_cpus;
    struct tlb_cpu {
        u64 flushed;
        bool loaded; /* a vCPU of this VM is loaded there */
    } * cpu;         /* by the number of a pCPU, which alone writes its entry */
};

/* How many pCPUs a tlbgen that is made from now on is for. At first that is TAKT_MAX_CPUS. It is
 * set once it is known how many the machine has, so no memory is wasted on others. */
extern u32 tlbgen_cpus;
/* Makes a tlbgen that no pCPU has used yet. Returns 0 or -ENOMEM. */
int tlbgen_init(struct tlbgen *g);
/* Frees its memory. No pCPU enters a guest with its table any more. */
void tlbgen_fini(struct tlbgen *g);

/* Of a pCPU: it has the tags 1 to nr - 1; tag 0 is the host's. All are 0 before tlb_tags_init(). */
struct tlb_tags {
    u32 next, nr;
    u64 epoch;
    /* The CPU can flush a single tag, and all that it caches belongs to a tag: TLB_FLUSH_TAG. */
    bool flushes_one;
};

/* Of a vCPU. All are 0 at first; no pCPU's epoch is 0. */
struct tlb_user {
    u32 tag;        /* 0: it has none on this pCPU */
    u64 epoch;      /* the epoch of `cpu` that the tag is from */
    u64 generation; /* no translation under `tag` is older than this generation; 0: none is good */
    u32 cpu;        /* the pCPU where it was loaded last */
};

enum tlb_flush {
    TLB_KEEP,
    /* Everything that is cached of this VM's second-level table, under any tag (INVEPT,
     * single-context). Nothing has to be done where all that is cached belongs to a tag (AMD-V). */
    TLB_FLUSH_VM,
    TLB_FLUSH_TAG, /* everything under the tag of this vCPU */
    TLB_FLUSH_ALL, /* everything of all tags on this pCPU */
};

/* To be called after entries were changed; is a full barrier. Returns the generation that pCPUs
 * have to pass. */
u64 tlbgen_bump(struct tlbgen *g);
/* Is it certain that no pCPU can use a translation that is older than `generation`? */
bool tlbgen_passed(const struct tlbgen *g, u64 generation);

void tlb_tags_init(struct tlb_tags *t, u32 nr); /* nr >= 2 */
/* The vCPU is loaded on this pCPU, and taken off it. */
void tlb_load(struct tlbgen *g, const struct tlb_tags *t, struct tlb_user *u, unsigned cpu);
void tlb_save(struct tlbgen *g, unsigned cpu);
/* The vCPU stays loaded while the pCPU does something else. Between these two calls it uses no
 * translation. */
static inline void tlb_rest(struct tlbgen *g, unsigned cpu) { tlb_save(g, cpu); }
void tlb_resume(struct tlbgen *g, unsigned cpu);

/* Forgets all translations of this vCPU, because the hypervisor has changed a register for it
 * whose change flushes them (CR0, CR3, CR4, EFER). */
static inline void tlb_forget(struct tlb_user *u) { u->generation = 0; }

/* Asked before every entry: does tlb_prepare() have to be called? */
static inline bool tlb_stale(const struct tlbgen *g, const struct tlb_user *u) {
    return __builtin_expect(u->generation != __atomic_load_n(&g->current, __ATOMIC_ACQUIRE), 0);
}

/* Makes sure that at the next entry nothing old is cached under the vCPU's tag, which may be a new
 * one. Calls `flush` if something has to be flushed on this pCPU for that; only then are others
 * told that this pCPU has passed. */
void tlb_prepare(struct tlbgen *g, struct tlb_tags *t, struct tlb_user *u, unsigned cpu,
                 void (*flush)(enum tlb_flush what, void *ctx), void *ctx);

#endif
