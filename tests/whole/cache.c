/* What a pCPU's cache holds of each VM. A VM that comes to a pCPU waits until its working set is in
 * the cache again, and what it brings in drives out what others had there.
 *
 * This is the "cache-reload transient" of Thiebaut and Stone, Footprints in the Cache (ACM TOCS
 * 5(4), 1987), in its simplest form: each VM uses `warm` bytes over and over, the cache of `cache`
 * bytes drives out first what was used longest ago, and a missing byte costs 1 / `refill` s. Li,
 * Ding and Shen, Quantifying the Cost of Context Switch (ExpCS 2007), measured from some us to more
 * than 1 ms for that, depending on the working set. No cache is shared between pCPUs here. whole.h
 * has the contracts. */
#include "tests/whole/whole.h"

static u64 size, warm, refill; /* bytes, bytes, bytes a second; all 0: the model is off */

static struct part { /* of a pCPU's cache */
    u64 bytes;
    u64 used; /* when it was used last, in the order of `turn` */
} parts[TAKT_MAX_CPUS][PORT_VMS];
static u64 turn;

void cache_start(const struct config_model *m) {
    size = m->cache;
    warm = m->warm;
    refill = m->refill;
    if (warm > size) warm = size;
}

u64 cache_missing_ns(u32 vm, u32 cpu) {
    struct part *p = &parts[cpu][vm];

    if (!size) return 0;
    p->used = ++turn;
    return ((warm - p->bytes) * NS_PER_S + refill - 1) / refill;
}

/* Drives bytes out of a pCPU's cache until its contents fit into it, those of the VM that was used
 * least recently first. `part` has one entry for each VM: how much of its working set is in this
 * cache. */
static void drive_out(struct part *part) {
    for (;;) {
        struct part *oldest = NULL;
        u64 sum = 0;

        for (struct part *p = part; p < part + PORT_VMS; p++) {
            sum += p->bytes;
            if (p->bytes && (!oldest || p->used < oldest->used)) oldest = p;
        }
        if (sum <= size) return;
        oldest->bytes -= MIN(oldest->bytes, sum - size);
    }
}

void cache_refilled(u32 vm, u32 cpu, u64 ns) {
    struct part *p = &parts[cpu][vm];

    if (ns >= cache_missing_ns(vm, cpu))
        p->bytes = warm;
    else
        p->bytes += (u64)((unsigned __int128)refill * ns / NS_PER_S);
    drive_out(parts[cpu]);
}

void cache_forget(u32 vm) {
    for (u32 cpu = 0; cpu < TAKT_MAX_CPUS; cpu++) parts[cpu][vm] = (struct part){ 0 };
}
