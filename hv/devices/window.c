/* Windows: the RAM of a front VM as mapped for its back end, which reads and writes the front end's
 * buffers there. When the front VM ends, its RAM is given to others; but the back end may not have
 * noticed yet. So the RAM is replaced by one chunk (2 MiB) of memory that nobody needs, the
 * "waste": the back end may go on writing and harms nobody. All is done in short steps. A
 * generation (see tlbgen.h) says when no pCPU can hold an old translation any more. */
#include <takt/errno.h>
#include "devices/device.h"
#include "common/string.h"
#include "vcpu/vcpu.h"

#define CHUNKS_A_STEP 16u     /* how many chunks a step maps or unmaps */
#define SCRUB_STEP    65536u  /* how many bytes a step scrubs */
#define WINDOW_ALIGN  BIT(30) /* windows begin at multiples of this */
#define MAX_WINDOWS   64u     /* the most windows of a back end */

int (*devices_dma_map)(struct vm *vm, gpa_t gpa, hpa_t hpa, u64 len);

/* ---- where they are ---- */

/* Returns how many bytes of guest-physical addresses the RAM takes, with the gap below 4 GiB if it
 * reaches beyond. */
static u64 ram_span(const struct guestmem *m) {
    if (m->size == m->low_size) return m->size;
    return TAKT_HIGH_RAM + m->size - m->low_size;
}

/* Returns how many bytes of addresses a window on this RAM takes. */
static u64 window_span(const struct guestmem *m) { return ALIGN_UP(ram_span(m), WINDOW_ALIGN); }

/* Returns where chunk `n` of the front VM is in the back end. */
static gpa_t window_gpa(const struct window *w, u32 n) {
    return w->base + guestmem_chunk_gpa(&w->ram, n);
}

/* Returns where the back end has the RAM of `front` mapped, or NULL if it has not. */
struct window *window_of(struct backend *b, const struct vm *front) {
    list_for_each(w, &b->windows, struct window, link) {
        if (w->front == front) return w;
    }
    return NULL;
}

/* Returns the back end's window on the RAM of the VM with this id, which may be gone already, or
 * NULL. */
struct window *window_of_id(struct backend *b, u32 id) {
    list_for_each(w, &b->windows, struct window, link) {
        if (w->front_id == id) return w;
    }
    return NULL;
}

/* Makes an empty window in the first gap that is large enough, after the back end's own RAM. */
static int window_create(struct vm *vm, struct vm *front, struct window **out) {
    const struct guestmem *own = &vm->mem, *mem = &front->mem;
    u64 own_end = ALIGN_UP(TAKT_HIGH_RAM + own->size - own->low_size, WINDOW_ALIGN);
    u64 span = window_span(mem), base = MAX(TAKT_FOREIGN_GPA, own_end);
    struct list *before = &vm->back.windows;
    struct window *w;

    list_for_each(old, &vm->back.windows, struct window, link) {
        if (old->base - base >= span) {
            before = &old->link;
            break;
        }
        base = old->base + window_span(&old->ram);
    }
    if (vm->back.nr_windows >= MAX_WINDOWS) return -ENOSPC;
    if (base + span > BIT(cpuid_physical_bits())) return -ENOSPC;
    w = heap_alloc(sizeof(*w));
    if (!w) return -ENOMEM;
    *w = (struct window){ .front = front, .front_id = front->id, .base = base };
    w->ram = (struct guestmem){ .size = mem->size, .low_size = mem->low_size };
    list_add_tail(before, &w->link);
    vm->back.nr_windows++;
    *out = w;
    return 0;
}

/* Forgets a window. Nothing may be mapped there any more, or the whole back end ends. */
static void window_free(struct backend *b, struct window *w) {
    list_del(&w->link);
    b->nr_windows--;
    heap_free(w);
}

/* ---- waste ---- */

/* Allocates the waste chunk of a back end and fills it with zeros, a part at each step. It has to
 * exist before the first window does. If a front VM ends, there may be no memory left for it.
 * Returns 1 if there is more to do, 0 when the chunk is ready, or -ENOMEM. */
static int waste_make_step(struct backend *b) {
    if (!b->waste) {
        hpa_t chunk = frame_alloc(FRAME_ORDER_2M);

        if (chunk == HPA_NONE) return -ENOMEM;
        b->waste = chunk;
        b->scrubbed = 0;
    }
    if (b->scrubbed == CHUNK_SIZE) return 0;
    memset((u8 *)hpa_to_va(b->waste) + b->scrubbed, 0, SCRUB_STEP);
    b->scrubbed += SCRUB_STEP;
    return 1;
}

/* Scrubs the waste chunk of a back end that ends, a part at each call, and frees it. Returns true
 * if there is more to do. `scrubbed` now counts downwards: it is how many bytes still have to be
 * scrubbed. */
int waste_free_step(struct backend *b) {
    if (!b->waste) return 0;
    b->scrubbed -= MIN(b->scrubbed, SCRUB_STEP);
    memset((u8 *)hpa_to_va(b->waste) + b->scrubbed, 0, SCRUB_STEP);
    if (b->scrubbed) return 1;
    frame_free(b->waste, FRAME_ORDER_2M);
    b->waste = 0;
    return 0;
}

/* ---- what is in them ---- */

/* Maps `chunk` (2 MiB of memory) as chunk `n` of the window, for the back end's vCPUs and for the
 * devices of the machine that the back end has. */
static int window_put(struct vm *vm, const struct window *w, u32 n, hpa_t chunk) {
    gpa_t at = window_gpa(w, n);
    int err = npt_map(&vm->virt.npt, at, chunk, CHUNK_SIZE, NPT_RW, NPT_WB);

    if (err || !vm->dma) return err;
    return devices_dma_map(vm, at, chunk, CHUNK_SIZE);
}

/* Notes the TLB generation after pages of the window were taken away. Until all pCPUs have passed
 * it, earlier translations may still be in use. */
static void window_taken(const struct vm *vm, struct window *w) {
    w->generation = vm->virt.npt.tlb.current;
    w->kicked = false;
}

/* Unmaps the last chunk of a window. The window itself stays, because its generation says when the
 * RAM of a front VM that ends can be freed. */
static void unmap_last(struct vm *vm, struct window *w) {
    gpa_t at = window_gpa(w, --w->chunks);

    /* This is a whole chunk, so no large page is split, and the call cannot fail. */
    npt_unmap(&vm->virt.npt, at, CHUNK_SIZE);
    if (vm->dma) devices_dma_map(vm, at, HPA_NONE, CHUNK_SIZE);
    w->waste = MIN(w->waste, w->chunks);
    window_taken(vm, w);
}

/* Maps the next chunks of a window, for the vCPUs and for the devices of the back end. If only one
 * of the two gets a chunk, it is taken from both again. Returns 1 if there is more to do, 0, or
 * -ENOMEM. */
static int map_step(struct vm *vm, struct window *w) {
    u32 all = (u32)(w->ram.size >> CHUNK_SHIFT);

    for (u32 i = 0; i < CHUNKS_A_STEP && w->chunks < all; i++) {
        u32 n = w->chunks++;

        if (!window_put(vm, w, n, w->front->mem.chunk[n])) continue;
        unmap_last(vm, w);
        return -ENOMEM;
    }
    return w->chunks < all;
}

/* Maps the next chunks of the RAM of `front` in the back end `vm`. Returns 1 if there is more to
 * do, 0 when the whole RAM is mapped, or a negative errno. The waste chunk, whose pages stand in
 * for RAM that has been taken away, is made first, because window_waste_step() must not fail for
 * lack of memory. */
int window_map_step(struct vm *vm, struct vm *front, struct takt_window *out) {
    struct window *w = window_of(&vm->back, front);
    int r = waste_make_step(&vm->back);

    if (r) return r;
    if (!w) {
        r = window_create(vm, front, &w);
        if (r) return r;
    }
    if (w->unmapping) return -EBUSY;
    r = map_step(vm, w);
    if (r) return r;
    *out = (struct takt_window){ w->base, w->ram.low_size, w->ram.size - w->ram.low_size };
    return 0;
}

/* Unmaps some chunks of a window. Returns 1 if there is more to do. `unmapping` makes
 * window_map_step() refuse the window meanwhile. Otherwise one caller could map the chunks that
 * another one unmaps. */
int window_unmap_step(struct vm *vm, struct window *w) {
    w->unmapping = true;
    for (u32 i = 0; i < CHUNKS_A_STEP && w->chunks; i++) unmap_last(vm, w);
    if (w->chunks) return 1;
    w->unmapping = false;
    if (!w->front) window_free(&vm->back, w);
    return 0;
}

/* ---- an end goes ---- */

/* Maps the waste chunk (memory that nobody needs) in the place of the next chunks of a window.
 * Returns true if there is more to do. This needs no memory, so it cannot fail. */
static int window_waste_step(struct vm *vm, struct window *w) {
    if (w->waste == w->chunks) return 0;
    for (u32 i = 0; i < CHUNKS_A_STEP && w->waste < w->chunks; i++) {
        window_put(vm, w, w->waste, vm->back.waste);
        w->waste++;
    }
    window_taken(vm, w);
    return w->waste < w->chunks;
}

/* Does a step of taking the RAM of the front VM, which ends, out of one window: puts the waste
 * chunk in its place, and then waits until no pCPU uses old translations. Returns 1 if there is
 * more to do. Then the window no longer belongs to a VM. It stays, full of waste, until the back
 * end unmaps it. */
static int window_revoke_step(struct backend *b, struct window *w) {
    struct vm *vm = vm_of_backend(b);
    struct tlbgen *g = &vm->virt.npt.tlb;

    if (window_waste_step(vm, w)) return 1;
    if (!tlbgen_passed(g, w->generation)) {
        if (!w->kicked) kick_users(g);
        w->kicked = true;
        return 1;
    }
    w->front = NULL;
    if (!w->chunks) window_free(b, w);
    return 0;
}

/* Does a step of taking the RAM of `vm`, which ends, out of all windows on it. Returns 1 if there
 * is more to do, or 0. It goes through all back ends, because several of them may serve devices of
 * `vm`. */
int windows_revoke_step(struct vm *vm) {
    list_for_each(b, &back_ends, struct backend, in_all) {
        struct window *w = window_of(b, vm);

        if (w && window_revoke_step(b, w)) return 1;
    }
    return 0;
}

/* Forgets all windows of a back end that ends. No pCPU runs it any more. */
void windows_forget(struct vm *vm) {
    list_for_each_safe(w, &vm->back.windows, struct window, link) window_free(&vm->back, w);
}
