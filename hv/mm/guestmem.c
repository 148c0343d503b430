/* The RAM of a VM. It consists of chunks of 2 MiB, which may lie anywhere in the machine; a table
 * holds where each of them is. For the guest they follow each other: from guest-physical address 0
 * on, with a gap below 4 GiB for devices, as on a PC. RAM above the gap begins at TAKT_HIGH_RAM. To
 * scrub is to overwrite memory before another VM gets it; the callers do that. */
#include <takt/errno.h>
#include "common/string.h"
#include "mm/guestmem.h"

/* Returns how many chunks the VM's RAM has when it is complete. */
static u32 nr_chunks(const struct guestmem *m) { return (u32)(m->size >> CHUNK_SHIFT); }

/* Returns the size of the table of chunks. */
static u64 table_size(const struct guestmem *m) { return nr_chunks(m) * sizeof(hpa_t); }

/* Allocates the table of chunks. Returns NULL if there is no memory. A table that is too large for
 * the heap, which is that of a VM with more than 16 GiB, has frames of its own. */
static hpa_t *table_alloc(const struct guestmem *m) {
    hpa_t pa;

    if (table_size(m) <= HEAP_MOST) return heap_alloc(table_size(m));
    pa = frame_alloc(frame_order(table_size(m)));
    if (pa == HPA_NONE) return NULL;
    return hpa_to_va(pa);
}

/* Frees the table of chunks. */
static void table_free(struct guestmem *m) {
    if (table_size(m) <= HEAP_MOST)
        heap_free(m->chunk);
    else
        frame_free(va_to_hpa(m->chunk), frame_order(table_size(m)));
    m->chunk = NULL;
}

/* Prepares a VM's RAM of `size` bytes, which has no chunks yet. Returns 0, -ENOMEM, or -EINVAL for
 * a size that is not allowed. */
int guestmem_init(struct guestmem *m, u64 size) {
    if (size == 0 || size % CHUNK_SIZE || size > BIT(40)) return -EINVAL;
    *m = (struct guestmem){ .size = size, .low_size = MIN(size, TAKT_LOW_RAM_MAX) };
    m->chunk = table_alloc(m);
    if (!m->chunk) return -ENOMEM;
    return 0;
}

/* Adds the next chunk to the VM's RAM, with undefined contents. Returns 0, -ENOMEM, or -ENOSPC if
 * all chunks are there. If the RAM was reserved in one block, its chunks are allocated already and
 * only have to be counted. */
int guestmem_grow(struct guestmem *m) {
    if (m->grown == nr_chunks(m)) return -ENOSPC;
    if (m->grown >= m->reserved) {
        hpa_t pa = frame_alloc_near(FRAME_ORDER_2M, HPA_NONE, m->node);

        if (pa == HPA_NONE) return -ENOMEM;
        m->chunk[m->grown] = pa;
    }
    m->grown++;
    return 0;
}

/* Allocates all chunks of a VM's RAM in one piece below `limit`. Returns 0 or -ENOMEM. A device
 * that no IOMMU confines uses real addresses, so its VM needs RAM in one piece. That is not
 * possible for a VM with RAM above 4 GiB, or with more than the largest block. Blocks are powers of
 * two, so what is behind the last chunk is given back. */
int guestmem_reserve(struct guestmem *m, hpa_t limit) {
    unsigned order = frame_order(m->size);
    hpa_t pa;

    if (m->low_size < m->size || order > FRAME_ORDER_MAX) return -ENOMEM;
    pa = frame_alloc_near(order, limit, m->node);
    if (pa == HPA_NONE) return -ENOMEM;
    for (u64 n = 0; n < 1ull << (order - FRAME_ORDER_2M); n++, pa += CHUNK_SIZE) {
        if (n < nr_chunks(m))
            m->chunk[n] = pa;
        else
            frame_free(pa, FRAME_ORDER_2M);
    }
    m->reserved = nr_chunks(m);
    return 0;
}

/* Frees those chunks of a reserved block that guestmem_grow() has not handed out. */
static void free_reserve(struct guestmem *m) {
    while (m->reserved > m->grown) frame_free(m->chunk[--m->reserved], FRAME_ORDER_2M);
    m->reserved = 0;
}

/* Frees the last chunk of a VM's RAM, which the caller has scrubbed. What was reserved and not used
 * is freed as well. */
void guestmem_shrink(struct guestmem *m) {
    free_reserve(m);
    frame_free(m->chunk[--m->grown], FRAME_ORDER_2M);
}

/* Returns the guest-physical address of chunk `n`. The RAM has a gap below 4 GiB, where devices
 * are. */
gpa_t guestmem_chunk_gpa(const struct guestmem *m, u32 n) {
    u64 off = (u64)n << CHUNK_SHIFT;

    if (off < m->low_size) return off;
    return off - m->low_size + TAKT_HIGH_RAM;
}

/* Frees all RAM of a VM, which has been scrubbed. */
void guestmem_fini(struct guestmem *m) {
    if (!m->chunk) return;
    free_reserve(m);
    while (m->grown) guestmem_shrink(m);
    table_free(m);
}

/* Copies between `buf` and guest-physical memory, in pieces, because RAM consists of chunks that
 * need not follow each other. Returns -EFAULT and copies nothing if the range is not all RAM of the
 * guest. */
static int guestmem_copy(const struct guestmem *m, gpa_t gpa, u8 *buf, u64 len, bool write) {
    if (len && !guestmem_has(m, gpa, len)) return -EFAULT;
    for (u64 n, room = 0; len; gpa += n, buf += n, len -= n) {
        void *at = guestmem_at(m, gpa, &room);

        n = MIN(room, len);
        if (write)
            memcpy(at, buf, n);
        else
            memcpy(buf, at, n);
    }
    return 0;
}

/* Copies from a guest's RAM to `to`. Returns 0, or -EFAULT with nothing copied. */
int guestmem_read(const struct guestmem *m, gpa_t gpa, void *to, u64 len) {
    return guestmem_copy(m, gpa, to, len, false);
}

/* Copies to a guest's RAM from `from`. Returns 0, or -EFAULT with nothing copied. */
int guestmem_write(const struct guestmem *m, gpa_t gpa, const void *from, u64 len) {
    return guestmem_copy(m, gpa, (u8 *)from, len, true);
}
