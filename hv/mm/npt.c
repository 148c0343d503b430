#include <takt/errno.h>
#include "lib/string.h"
#include "mm/npt.h"

/* Formats are data. EPT: SDM 3C 29.3.2; nested paging: APM2 15.25.5 (nested walks are user accesses, so U/S
 * is set everywhere), entries as in APM2 5.3.3; the host's PAT has UC at PCD|PWT. */
struct npt_format {
    u64 present; /* any of these: the entry is there */
    u64 table;   /* set in entries that point to tables: all rights */
    u64 leaf;    /* set in every leaf */
    u64 large;   /* this leaf is 2 MiB */
    u64 right[NPT_RWX + 1];
    u64 rights; /* the bits that right[] uses */
    u64 status; /* accessed and dirty: written by the CPU, never read by us */
    u64 type[2];
};

#define EPT_RWX 7ull
#define AMD_P   1ull
#define AMD_W   2ull
#define AMD_US  4ull
#define AMD_NX  BIT(63)

const struct npt_format npt_format_ept = {
    .present = EPT_RWX,
    .table = EPT_RWX,
    .large = BIT(7),
    .right = { 0, 1, 0, 3, 0, 5, 0, 7 },
    .rights = EPT_RWX,
    .type = { [NPT_UC] = 0, [NPT_WB] = 6 << 3 },
};

const struct npt_format npt_format_amd = {
    .present = AMD_P,
    .table = AMD_P | AMD_W | AMD_US,
    .leaf = AMD_US,
    .large = BIT(7),
    .right = { 0, AMD_P | AMD_NX, 0, AMD_P | AMD_W | AMD_NX, 0, AMD_P, 0, AMD_P | AMD_W },
    .rights = AMD_P | AMD_W | AMD_NX,
    .status = BIT(5) | BIT(6),
    .type = { [NPT_UC] = BIT(3) | BIT(4), [NPT_WB] = 0 },
};

#define LEVELS    4
#define ADDR_MASK 0x000ffffffffff000ull
#define SIZE_2M   BIT(21)

static u64 entry_read(const u64 *e) { return __atomic_load_n(e, __ATOMIC_RELAXED); }

static void entry_write(u64 *e, u64 v) { __atomic_store_n(e, v, __ATOMIC_RELEASE); }

static unsigned index_of(gpa_t gpa, unsigned level) { return gpa >> (PAGE_SHIFT + 9 * (level - 1)) & 511; }

static bool is_present(const struct npt *t, u64 e) { return e & t->format->present; }

static bool is_large(const struct npt *t, u64 e, unsigned level) {
    return level == 2 && (e & t->format->large);
}

static unsigned rights_of(const struct npt *t, u64 e) {
    for (unsigned p = NPT_RWX; p; p--)
        if (t->format->right[p] && (e & t->format->rights) == t->format->right[p]) return p;
    return 0;
}

/* Did going from `old` to `new` take away anything that a TLB may hold? */
static bool lost(const struct npt *t, u64 old, u64 new) {
    u64 rest = ~(t->format->rights | t->format->status);

    if (!is_present(t, old)) return false;
    return rights_of(t, old) & ~rights_of(t, new) || (old & rest) != (new &rest);
}

static u64 *table_at(u64 e) { return hpa_to_va(e & ADDR_MASK); }

/* Puts a table of 512 equal 4 KiB pages where a 2 MiB page or nothing was. NULL: no memory. */
static u64 *make_table(struct npt *t, u64 *e, unsigned level) {
    u64 old = *e, *table;
    hpa_t pa = frame_alloc_zeroed(0);

    if (pa == HPA_NONE) return NULL;
    t->table_frames++;
    table = hpa_to_va(pa);
    if (is_large(t, old, level))
        for (unsigned i = 0; i < 512; i++) table[i] = (old & ~t->format->large) + i * PAGE_SIZE;
    entry_write(e, pa | t->format->table);
    return table;
}

/* The entry for `gpa` at *level; NULL: no memory. If a table hangs where a 2 MiB page was wanted, *level
 * becomes
 * 1. Tables that are missing on the way are made if `make`; else *level is where the first is missing. */
static u64 *entry_for(struct npt *t, gpa_t gpa, unsigned *level, bool make) {
    u64 *table = hpa_to_va(t->root), *e;

    for (unsigned l = LEVELS;; l--) {
        e = &table[index_of(gpa, l)];
        if (l == *level && (l == 1 || !is_present(t, *e) || is_large(t, *e, l))) return e;
        if (!make && !is_present(t, *e)) {
            *level = l;
            return e;
        }
        *level = MIN(*level, l - 1);
        table = is_present(t, *e) && !is_large(t, *e, l) ? table_at(*e) : make_table(t, e, l);
        if (!table) return NULL;
    }
}

/* Sets the leaves of [gpa, gpa + len) to `leaf`, whose address advances unless it is 0. */
static int set_range(struct npt *t, gpa_t gpa, u64 len, u64 leaf) {
    bool stale = false;
    int err = 0;

    spin_lock(&t->lock);
    while (len) {
        bool fits = !((gpa | (leaf & ADDR_MASK)) & (SIZE_2M - 1)) && len >= SIZE_2M;
        unsigned level = fits ? 2 : 1;
        u64 *e = entry_for(t, gpa, &level, leaf);
        u64 size = BIT(PAGE_SHIFT + 9 * (level - 1));
        u64 new = leaf &&level == 2 ? leaf | t->format->large : leaf;

        if (!e) {
            err = -ENOMEM;
            break;
        }
        stale |= lost(t, *e, new);
        entry_write(e, new);
        size = MIN(size - (gpa & (size - 1)), len);
        gpa += size;
        len -= size;
        leaf += leaf ? size : 0;
    }
    spin_unlock(&t->lock);
    if (stale) tlbgen_bump(&t->tlb);
    return err;
}

static bool is_range(gpa_t gpa, u64 len) {
    return !((gpa | len) & (PAGE_SIZE - 1)) && gpa < NPT_LIMIT && len <= NPT_LIMIT - gpa;
}

int npt_map(struct npt *t, gpa_t gpa, hpa_t hpa, u64 len, unsigned prot, enum npt_memtype type) {
    if (!is_range(gpa, len) || !is_range(hpa, len) || prot > NPT_RWX || !(prot & NPT_R)) return -EINVAL;
    return set_range(t, gpa, len, hpa | t->format->leaf | t->format->right[prot] | t->format->type[type]);
}

int npt_unmap(struct npt *t, gpa_t gpa, u64 len) {
    return is_range(gpa, len) ? set_range(t, gpa, len, 0) : -EINVAL;
}

hpa_t npt_lookup(const struct npt *t, gpa_t gpa, unsigned *prot) {
    const u64 *table = hpa_to_va(t->root);

    for (unsigned level = LEVELS; gpa < NPT_LIMIT; level--) {
        u64 e = entry_read(&table[index_of(gpa, level)]);
        u64 mask = (level == 2 ? SIZE_2M : PAGE_SIZE) - 1;

        if (!is_present(t, e)) break;
        if (level == 1 || is_large(t, e, level)) {
            if (prot) *prot = rights_of(t, e);
            return (e & ADDR_MASK & ~mask) | (gpa & mask);
        }
        table = table_at(e);
    }
    return HPA_NONE;
}

int npt_init(struct npt *t, const struct npt_format *format) {
    *t = (struct npt){ .format = format, .root = frame_alloc_zeroed(0), .table_frames = 1 };
    tlbgen_init(&t->tlb);
    return t->root == HPA_NONE ? -ENOMEM : 0;
}

static void free_table(struct npt *t, hpa_t pa, unsigned level) {
    const u64 *table = hpa_to_va(pa);

    for (unsigned i = 0; level > 1 && i < 512; i++)
        if (is_present(t, table[i]) && !is_large(t, table[i], level))
            free_table(t, table[i] & ADDR_MASK, level - 1);
    frame_free(pa, 0);
}

void npt_fini(struct npt *t) {
    if (t->root == HPA_NONE) return;
    free_table(t, t->root, LEVELS);
    t->root = HPA_NONE;
}
