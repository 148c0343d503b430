/* Makes sure that memory is not reused while some CPU can still reach it. A CPU keeps translations
 * in its TLB, also after the page table was changed. So each second-level table has a "generation",
 * a number that grows with each right that is taken away. Before it enters a guest, a pCPU compares
 * it with the generation that it has flushed, and flushes its TLB if it is behind. A "tag" (ASID or
 * VPID) marks whose translations are whose, so that a switch between vCPUs needs no flush. */
#include "mm/tlbgen.h"

#include <takt/errno.h>
#include "mm/frame.h"

u32 tlbgen_cpus = TAKT_MAX_CPUS;

/* Makes a tlbgen for as many pCPUs as the machine has. Returns 0 or -ENOMEM. */
int tlbgen_init(struct tlbgen *g) {
    *g = (struct tlbgen){ .current = 1, .nr_cpus = tlbgen_cpus };
    g->cpu = heap_alloc(tlbgen_cpus * sizeof(*g->cpu));
    if (!g->cpu) return -ENOMEM;
    return 0;
}

/* Frees what tlbgen_init() has allocated. */
void tlbgen_fini(struct tlbgen *g) {
    heap_free(g->cpu);
    g->cpu = NULL;
}

/* Notes that entries of the tables were changed, so that translations from before are old: raises
 * the generation. Returns the generation that pCPUs have to pass. */
u64 tlbgen_bump(struct tlbgen *g) { return __atomic_add_fetch(&g->current, 1, __ATOMIC_SEQ_CST); }

/* Returns whether no pCPU can use a translation that is older than `generation` any more. A pCPU on
 * which no vCPU of the VM is loaded uses no translation; before the next entry there it compares
 * the generation. */
bool tlbgen_passed(const struct tlbgen *g, u64 generation) {
    for (u32 cpu = 0; cpu < g->nr_cpus; cpu++)
        if (__atomic_load_n(&g->cpu[cpu].loaded, __ATOMIC_SEQ_CST) &&
            __atomic_load_n(&g->cpu[cpu].flushed, __ATOMIC_ACQUIRE) < generation)
            return false;
    return true;
}

/* Prepares the `nr` tags that this pCPU's hardware has. Tag 0 is the host's. */
void tlb_tags_init(struct tlb_tags *t, u32 nr) {
    *t = (struct tlb_tags){ .next = 1, .nr = nr, .epoch = 1 };
}

/* Notes that a vCPU of the VM is loaded on this pCPU. */
void tlb_load(struct tlbgen *g, const struct tlb_tags *t, struct tlb_user *u, unsigned cpu) {
    /* What another pCPU has flushed says nothing about this one. And a tag of an earlier epoch
     * may belong to another vCPU now. */
    if (u->cpu != cpu || u->epoch != t->epoch) {
        u->cpu = cpu;
        u->generation = 0;
        u->tag = 0;
    }
    tlb_resume(g, cpu);
}

/* Marks a loaded vCPU as one that may use translations again. This and tlbgen_bump() may run at the
 * same time on two pCPUs. Here the vCPU is marked as loaded first, and then the generation is read.
 * There the generation is bumped first, and then the marks are read. The fence makes sure that at
 * least one side sees the other: either the code that bumps it sees this vCPU, or this pCPU sees
 * the bump before the next entry. */
void tlb_resume(struct tlbgen *g, unsigned cpu) {
    __atomic_store_n(&g->cpu[cpu].loaded, true, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Notes that no vCPU of the VM is loaded on this pCPU any more. */
void tlb_save(struct tlbgen *g, unsigned cpu) {
    __atomic_store_n(&g->cpu[cpu].loaded, false, __ATOMIC_RELEASE);
}

/* Gives the vCPU the next tag. Tags are given out in turn. When all of them were used, a new epoch
 * begins: everything has to be flushed, and every vCPU needs a new tag, because its old one may
 * soon belong to another vCPU. Returns true if so. */
static bool take_tag(struct tlb_tags *t, struct tlb_user *u) {
    bool all_used = t->next == t->nr;

    if (all_used) {
        t->next = 1;
        t->epoch++;
    }
    u->tag = t->next++;
    u->epoch = t->epoch;
    return all_used;
}

/* Makes sure that this pCPU's TLB holds no old translation under the tag of the loaded vCPU. It is
 * called before an entry. Either that tag is flushed, or the vCPU gets a new one. A guest that
 * causes many flushes uses up the tags only in the second case; then all other VMs lose their
 * translations, too. The flush has to come before `flushed` is stored, or at the entry. Otherwise
 * memory could be freed while this pCPU still has translations of it. */
void tlb_prepare(struct tlbgen *g, struct tlb_tags *t, struct tlb_user *u, unsigned cpu,
                 void (*flush)(enum tlb_flush what, void *ctx), void *ctx) {
    u64 now = __atomic_load_n(&g->current, __ATOMIC_ACQUIRE);
    enum tlb_flush what = TLB_FLUSH_VM;

    if (g->cpu[cpu].flushed == now) what = TLB_KEEP;
    if (t->flushes_one && u->tag)
        what = TLB_FLUSH_TAG;
    else if (take_tag(t, u))
        what = TLB_FLUSH_ALL;
    u->generation = now;
    if (what != TLB_KEEP) flush(what, ctx);
    __atomic_store_n(&g->cpu[cpu].flushed, now, __ATOMIC_RELEASE);
}
