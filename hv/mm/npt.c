/* Second-level page tables: they translate the addresses that a guest takes for physical (GPA) to
 * where that memory is (HPA). What is not mapped there, the VM cannot reach. VT-x calls them EPT,
 * AMD-V nested paging; an IOMMU (VT-d) walks similar ones for devices. The three differ only in the
 * bits of an entry, so this file works by a table of bits, struct npt_format. A "leaf" is an entry
 * that maps a page, of 4 KiB at level 1 or 2 MiB at level 2. When an entry is replaced, CPUs may
 * still hold the old translation in their TLBs; tlbgen.h explains how they are made to forget
 * it. */
#include <takt/errno.h>
#include "lib/log.h"
#include "mm/npt.h"
#include "x86/cpu.h"

/* What the entries of each kind of table look like. In all of them an entry that maps nothing is
 * 0, and bit 7 marks a leaf that is a 2 MiB page.
 *
 * EPT: SDM 3C 29.3.2. Nested paging: APM2 15.25.5, with entries as in APM2 5.3.3. Nested walks
 * are user accesses, so U/S is set in all entries. The host's PAT has uncached memory at PCD and
 * PWT together. VT-d: 9.8. Devices execute nothing, and there is no memory type. */

#define AMD_P     1ull
#define AMD_PU    (AMD_P | BIT(2))
#define AMD_PUW   (AMD_PU | BIT(1))
#define AMD_NX    BIT(63)

#define LEVELS    4
#define LARGE     BIT(7)
#define ADDR_MASK 0x000ffffffffff000ull

const struct npt_format npt_format_ept = {
    .table = NPT_RWX,
    .right = { 0, 1, 0, 3, 0, 5, 0, 7 },
    .type = { [NPT_UC] = 0, [NPT_WB] = 6 << 3 },
};

const struct npt_format npt_format_amd = {
    .table = AMD_PUW,
    .right = { 0, AMD_PU | AMD_NX, 0, AMD_PUW | AMD_NX, 0, AMD_PU, 0, AMD_PUW },
    .type = { [NPT_UC] = BIT(3) | BIT(4), [NPT_WB] = 0 },
};

const struct npt_format npt_format_vtd = { .table = NPT_RW, .right = { 0, 1, 0, 3, 0, 1, 0, 3 } };

/* Makes what was written to a table visible to hardware that does not look into caches. */
static void npt_publish(const struct npt *t, const void *p, u64 len) {
    if (t->format->write_back) cache_write_back(p, len);
}

/* Writes an entry as a whole, so that a CPU that walks the table sees the old or the new one. */
static void entry_write(const struct npt *t, u64 *e, u64 v) {
    __atomic_store_n(e, v, __ATOMIC_RELEASE);
    npt_publish(t, e, sizeof(*e));
}

/* Returns how many bits of an address are below those that choose the entry at this level. */
static unsigned shift_of(unsigned level) { return PAGE_SHIFT + 9 * (level - 1); }

/* Does entry `e` of this level lead to a further table, instead of mapping a page or nothing? */
static bool is_table(u64 e, unsigned level) { return e && level > 1 && !(e & LARGE); }

/* Puts a table where a 2 MiB page or nothing was. The table's 512 pages of 4 KiB map what the 2 MiB
 * page did, so nothing changes for the guest. Returns NULL if there is no memory. */
static u64 *make_table(struct npt *t, u64 *e) {
    u64 old = *e, *table;
    hpa_t pa = frame_alloc_zeroed(0);

    if (pa == HPA_NONE) return NULL;
    table = hpa_to_va(pa);
    for (unsigned i = 0; old && i < 512; i++) table[i] = (old & ~LARGE) + i * PAGE_SIZE;
    npt_publish(t, table, PAGE_SIZE);
    entry_write(t, e, pa | t->format->table);
    return table;
}

/* Returns the entry for `gpa` at level *level, or NULL if there is no memory. *level is lowered to
 * 1 if a page table already occupies the 2 MiB slot. With `make`, tables that are missing on the
 * way are made. Without it, the walk ends at the first table that is missing, and *level becomes
 * that level. */
static u64 *entry_for(struct npt *t, gpa_t gpa, unsigned *level, bool make) {
    u64 *table = hpa_to_va(t->root), *e;

    for (unsigned l = LEVELS;; l--) {
        e = &table[gpa >> shift_of(l) & 511];
        if ((l == *level && !is_table(*e, l)) || (!*e && !make)) {
            *level = l;
            return e;
        }
        *level = MIN(*level, l - 1);
        if (is_table(*e, l))
            table = hpa_to_va(*e & ADDR_MASK);
        else
            table = make_table(t, e);
        if (!table) return NULL;
    }
}

/* Sets the leaves of [gpa, gpa + len) (the entries that map memory, not tables) to `leaf`, an entry
 * for the first of them; each further one has the address behind that of the one before. If `leaf`
 * is 0, the leaves map nothing afterwards. If an entry was in use before, the generation is bumped
 * at the end, so that no CPU goes on using the old translation. Returns 0, or -ENOMEM if a table
 * could not be made; then only a first part is set. */
static int set_range(struct npt *t, gpa_t gpa, u64 len, u64 leaf) {
    bool stale = false;
    u64 size, *e = NULL;

    ASSERT(!((gpa | len) & (PAGE_SIZE - 1)) && gpa < NPT_LIMIT && len <= NPT_LIMIT - gpa);
    spin_lock(&t->lock);
    while (len) {
        bool aligned = !((gpa | (leaf & ADDR_MASK)) & (SIZE_2M - 1));
        unsigned level = 1;
        u64 entry = leaf;

        if (aligned && len >= SIZE_2M && !t->format->small) level = 2;
        e = entry_for(t, gpa, &level, leaf);
        if (!e) break;
        if (*e) stale = true;
        if (leaf && level == 2) entry |= LARGE;
        entry_write(t, e, entry);
        size = BIT(shift_of(level));
        size = MIN(size - (gpa & (size - 1)), len);
        gpa += size;
        len -= size;
        if (leaf) leaf += size;
    }
    spin_unlock(&t->lock);
    if (stale) tlbgen_bump(&t->tlb);
    if (len) return -ENOMEM;
    return 0;
}

/* Maps [gpa, gpa + len) to [hpa, hpa + len), with these rights and this memory type, instead of
 * what was mapped there. Returns 0, or -ENOMEM with only a first part mapped. */
int npt_map(struct npt *t, gpa_t gpa, hpa_t hpa, u64 len, unsigned prot, enum npt_memtype type) {
    ASSERT(prot <= NPT_RWX && prot & NPT_R);
    return set_range(t, gpa, len, hpa | t->format->right[prot] | t->format->type[type]);
}

/* Unmaps [gpa, gpa + len). Returns 0 or -ENOMEM. */
int npt_unmap(struct npt *t, gpa_t gpa, u64 len) { return set_range(t, gpa, len, 0); }

/* Returns the host-physical address to which `gpa` is mapped, or HPA_NONE, and in *writable whether
 * the guest may write there. It needs no lock, because tables are only added, and each entry is
 * written as a whole. In all formats bit 0 means "present" or "readable", and bit 1 means
 * "writable". */
hpa_t npt_find(const struct npt *t, gpa_t gpa, bool *writable) {
    hpa_t table = t->root;

    if (gpa >= NPT_LIMIT) return HPA_NONE;
    for (unsigned level = LEVELS;; level--) {
        const u64 *at = (const u64 *)hpa_to_va(table) + (gpa >> shift_of(level) & 511);
        u64 e = __atomic_load_n(at, __ATOMIC_ACQUIRE), offset = gpa & (BIT(shift_of(level)) - 1);

        if (!(e & 1)) return HPA_NONE;
        table = e & ADDR_MASK;
        if (is_table(e, level)) continue;
        *writable = e & 2;
        return (table & ~(BIT(shift_of(level)) - 1)) | offset;
    }
}

/* For tests: makes the entry wrong on purpose, so that the CPU reports a misconfiguration. Bit 13
 * has to be 0 in the entry of a 2 MiB page, whose address is aligned to 2 MiB (SDM 3C 29.3.2, APM2
 * 5.3.3). */
void npt_damage(struct npt *t, gpa_t gpa) {
    unsigned level = 2;
    u64 *e = entry_for(t, gpa, &level, false);

    entry_write(t, e, *e | BIT(13));
    tlbgen_bump(&t->tlb);
}

/* Makes an empty table. Returns 0 or -ENOMEM. */
int npt_init(struct npt *t, const struct npt_format *format) {
    *t = (struct npt){ .format = format, .root = HPA_NONE };
    if (tlbgen_init(&t->tlb) < 0) return -ENOMEM;
    t->root = frame_alloc_zeroed(0);
    if (t->root == HPA_NONE) {
        tlbgen_fini(&t->tlb);
        return -ENOMEM;
    }
    npt_publish(t, hpa_to_va(t->root), PAGE_SIZE);
    return 0;
}

/* Frees a table and those below it. */
static void free_table(hpa_t pa, unsigned level) {
    const u64 *table = hpa_to_va(pa);

    for (unsigned i = 0; i < 512; i++)
        if (is_table(table[i], level)) free_table(table[i] & ADDR_MASK, level - 1);
    frame_free(pa, 0);
}

/* Frees all tables. No CPU and no device walks them any more. */
void npt_fini(struct npt *t) {
    if (t->root != HPA_NONE) free_table(t->root, LEVELS);
    t->root = HPA_NONE;
    tlbgen_fini(&t->tlb);
}
