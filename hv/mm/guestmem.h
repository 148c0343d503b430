/* The RAM of one VM: chunks of 2 MiB, all of which are there before the VM starts. Only here
 * does a guest-physical address become memory that the hypervisor may touch. The second-level
 * tables are made from it. */
#ifndef HV_MM_GUESTMEM_H
#define HV_MM_GUESTMEM_H

#include <takt/abi.h>
#include "mm/frame.h"

#define CHUNK_SHIFT 21
#define CHUNK_SIZE  BIT(CHUNK_SHIFT)

struct guestmem {
    u64 size;     /* bytes, a multiple of CHUNK_SIZE; constant after creation */
    u64 low_size; /* bytes of it that are below TAKT_LOW_RAM_MAX */
    hpa_t *chunk; /* where each chunk is, in the order of guest-physical addresses */
    u32 grown;    /* chunks that are there; guestmem_at() is for VMs that have them all */
    /* the node whose frames are taken first (frame.h); set after guestmem_init(), 0 before */
    u32 node;
    u32 reserved; /* chunks for which there are frames, if more than `grown` */
};

/* Returns how far into the VM's RAM `gpa` is, or ~0 if there is no RAM. */
static inline u64 guestmem_offset(const struct guestmem *m, gpa_t gpa) {
    u64 high = gpa - TAKT_HIGH_RAM; /* a large number if gpa is below that */

    if (gpa < m->low_size) return gpa;
    if (high >= m->size - m->low_size) return ~0ull;
    return high + m->low_size;
}

/* Is all of [gpa, gpa + len) RAM? `len` is not 0. It is if both ends are, and are as far apart
 * in RAM as in guest-physical space: then no hole is between them. */
static inline bool guestmem_has(const struct guestmem *m, gpa_t gpa, u64 len) {
    u64 first = guestmem_offset(m, gpa);

    return first < m->size && len <= m->size &&
           guestmem_offset(m, gpa + len - 1) - first == len - 1;
}

/* Returns the address of `gpa`, and in *room how many bytes from there on are in the same chunk.
 * NULL if it is not RAM. */
static inline void *guestmem_at(const struct guestmem *m, gpa_t gpa, u64 *room) {
    u64 off = guestmem_offset(m, gpa);

    if (off == ~0ull) return NULL;
    *room = CHUNK_SIZE - (off & (CHUNK_SIZE - 1));
    return hpa_to_va(m->chunk[off >> CHUNK_SHIFT] + (off & (CHUNK_SIZE - 1)));
}

/* Allocates the table of chunks for `size` bytes. Chunks are then added one a step with
 * guestmem_grow(), so that no step is long; the caller scrubs each, in steps. Returns 0, -EINVAL
 * if size is 0 or not a multiple of CHUNK_SIZE, or -ENOMEM. */
int guestmem_init(struct guestmem *m, u64 size);
/* Adds a chunk, with undefined contents. Returns 0, -ENOMEM, or -ENOSPC if all are there. */
int guestmem_grow(struct guestmem *m);
/* Takes the frames of all chunks, one after the other in memory and below `limit`, for
 * guestmem_grow() to hand out. To be called before that. Returns 0 or -ENOMEM. */
int guestmem_reserve(struct guestmem *m, hpa_t limit);
/* Frees the last chunk. */
void guestmem_shrink(struct guestmem *m);
/* Returns where chunk `n` (below size / CHUNK_SIZE) is in guest-physical space. */
gpa_t guestmem_chunk_gpa(const struct guestmem *m, u32 n);
/* Frees all. The contents must have been scrubbed. */
void guestmem_fini(struct guestmem *m);

/* Copy between the VM and the hypervisor. Return 0, or -EFAULT with nothing copied if not all of
 * it is RAM. */
int guestmem_read(const struct guestmem *m, gpa_t gpa, void *to, u64 len);
int guestmem_write(const struct guestmem *m, gpa_t gpa, const void *from, u64 len);

#endif
