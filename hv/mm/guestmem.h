/* RAM of one VM: 2 MiB chunks, all present from the start. The one place where a guest-physical address
 * becomes memory that the hypervisor may touch; the second-level tables are built from it. */
#ifndef HV_MM_GUESTMEM_H
#define HV_MM_GUESTMEM_H

#include <takt/abi.h>
#include "mm/frame.h"

#define CHUNK_SHIFT 21
#define CHUNK_SIZE  BIT(CHUNK_SHIFT)

struct guestmem {
    u64 size;     /* bytes, a multiple of CHUNK_SIZE; constant after creation */
    u64 low_size; /* of which below TAKT_LOW_RAM_MAX */
    hpa_t *chunk; /* by chunk number, low RAM first */
    u32 grown;    /* chunks that are there; guestmem_at() is for VMs with all of them */
    u32 node;     /* whose frames are taken first (frame.h); set after guestmem_init(), 0 before */
    u32 reserved; /* chunks that have their frames, if more than `grown` */
};

/* How far into RAM `gpa` is; ~0 if it is not RAM. */
static inline u64 guestmem_offset(const struct guestmem *m, gpa_t gpa) {
    if (gpa < m->low_size) return gpa;
    return gpa - TAKT_HIGH_RAM < m->size - m->low_size ? gpa - TAKT_HIGH_RAM + m->low_size : ~0ull;
}

/* Is all of it RAM? `len` is not 0. */
static inline bool guestmem_has(const struct guestmem *m, gpa_t gpa, u64 len) {
    u64 first = guestmem_offset(m, gpa);

    return first < m->size && len <= m->size && guestmem_offset(m, gpa + len - 1) - first == len - 1;
}

/* The address of `gpa`, and in *room how many bytes follow it in the same chunk. NULL if it is not RAM. */
static inline void *guestmem_at(const struct guestmem *m, gpa_t gpa, u64 *room) {
    u64 off = guestmem_offset(m, gpa);

    if (off == ~0ull) return NULL;
    *room = CHUNK_SIZE - (off & (CHUNK_SIZE - 1));
    return hpa_to_va(m->chunk[off >> CHUNK_SHIFT] + (off & (CHUNK_SIZE - 1)));
}

/* Reserve the chunk table for `size` bytes: -EINVAL if size is 0 or no multiple of CHUNK_SIZE, -ENOMEM.
 * Chunks are then added one a step with guestmem_grow(), so that no step is long; each is scrubbed in steps
 * by the caller. */
int guestmem_init(struct guestmem *m, u64 size);
int guestmem_grow(
    struct guestmem *m); /* one more chunk, contents undefined; -ENOMEM; -ENOSPC: has them all */
/* Before the first guestmem_grow(), which will hand them out: takes the frames of all chunks, one after
 * the other, below `limit`. -ENOMEM. */
int guestmem_reserve(struct guestmem *m, hpa_t limit);
void guestmem_shrink(struct guestmem *m); /* frees the last chunk */
/* Where chunk `n` (below size / CHUNK_SIZE) is in the guest. */
gpa_t guestmem_chunk_gpa(const struct guestmem *m, u32 n);
void guestmem_fini(struct guestmem *m); /* frees what was added; contents must have been scrubbed */

/* Copies that check every byte against RAM: 0, or -EFAULT with nothing copied. */
int guestmem_read(const struct guestmem *m, gpa_t gpa, void *to, u64 len);
int guestmem_write(const struct guestmem *m, gpa_t gpa, const void *from, u64 len);

#endif
