/* Memory of a guest. Free pages are kept as *runs* (free pages in a row), in the order of their
 * addresses. malloc() takes blocks from pages, whose sizes are powers of two. All RAM is mapped one
 * to one, so an address is also the physical one; the page tables can be changed page by page, for
 * the guard pages of stacks and for registers of devices. mem.h has the contracts. */
#include <guest/guest.h>
#include <guest/mem.h>
#include <guest/string.h>
#include <guest/sync.h>
#include <guest/x86.h>
#include <takt/io.h>
#include <takt/start_info.h>

#define MAX_RANGES 32
/* RAM below this address has start-up data and pages for real-mode code. It is never allocated. */
#define LOW    0x100000ull
#define MAPPED 0x100000000ull /* start.asm maps all addresses below this one */

extern char image_end[];
extern u64 boot_pml4[512];

static struct mem_range ranges[MAX_RANGES];
static unsigned nr_ranges;
/* RAM that is going to be freed, page-aligned. Used at the start only. */
static struct mem_range pool[MAX_RANGES];
static unsigned nr_pool;
static size_t free_pages;
static struct spinlock lock;
static struct spinlock map_lock; /* guards the page tables */

/* A run is a number of free pages in a row. This structure lies in the first of them. */
struct run {
    struct run *next; /* in the order of addresses; runs that touch are joined */
    size_t n;
};
static struct run *runs;

const struct mem_range *mem_ranges(unsigned *n) {
    *n = nr_ranges;
    return ranges;
}

u64 mem_ram(void) {
    u64 sum = 0;

    for (unsigned i = 0; i < nr_ranges; i++)
        if (ranges[i].type == 1) sum += ranges[i].end - ranges[i].start;
    return sum;
}

u64 mem_image_end(void) { return ptr_to_pa(image_end); }

size_t page_count_free(void) { return free_pages; }

static struct run *mem_after(struct run *r, size_t n) {
    return (struct run *)((char *)r + n * PAGE_SIZE);
}

/* Returns `n` free pages in a row, or NULL if there is no such run. It takes them from the low end
 * of the first run that is long enough. Pages that were never allocated before contain what the RAM
 * of the VM contained at the start. */
void *page_alloc(size_t n) {
    u64 f = spin_lock_irqsave(&lock);
    struct run **link = &runs, *r = runs; /* `link` points at what points at `r` */

    while (r && r->n < n) {
        link = &r->next;
        r = r->next;
    }
    if (r) {
        if (r->n > n) {
            struct run *rest = mem_after(r, n);

            *rest = (struct run){ r->next, r->n - n };
            *link = rest;
        } else {
            *link = r->next;
        }
        *r = (struct run){ 0 };
        free_pages -= n;
    }
    spin_unlock_irqrestore(&lock, f);
    return r;
}

/* Frees `n` pages. They go into the list of free runs where they belong by their address, and are
 * joined with the run before and the run after if they touch. Otherwise memory would fall into ever
 * smaller pieces. */
void page_free(void *p, size_t n) {
    u64 f = spin_lock_irqsave(&lock);
    struct run *r = p, *before = NULL, *next = runs;

    for (; next && next < r; next = next->next) before = next;
    *r = (struct run){ next, n };
    if (next && mem_after(r, n) == next) *r = (struct run){ next->next, n + next->n };
    if (!before)
        runs = r;
    else if (mem_after(before, before->n) == r)
        *before = (struct run){ r->next, before->n + r->n };
    else
        before->next = r;
    free_pages += n;
    spin_unlock_irqrestore(&lock, f);
}

/* ---- the small allocator: blocks of 2^n bytes with a head of 16 bytes ---- */

#define HEAD      16
#define MIN_SHIFT 5
#define MAX_SHIFT 11
/* A number of pages is shifted by this, so that it is never taken for a MIN_SHIFT to MAX_SHIFT. */
#define PAGES_SHIFT 8
#define TOO_LARGE   (1ull << 40) /* no VM has so many bytes; sums of larger sizes could overflow */

struct block {
    /* log2 of its size in bytes, at most MAX_SHIFT; for whole pages their number << PAGES_SHIFT */
    u64 size;
    struct block *next;
};
static struct block *free_blocks[MAX_SHIFT + 1];
static struct spinlock block_lock;

/* Cuts a page into free blocks of 1 << shift bytes. If there is no free page, the list stays
 * empty. */
static void refill(unsigned shift) {
    char *page = page_alloc(1);

    if (!page) return;
    for (size_t at = 0; at < PAGE_SIZE; at += 1u << shift) {
        struct block *b = (struct block *)(page + at);

        b->next = free_blocks[shift];
        free_blocks[shift] = b;
    }
}

/* Allocates `size` bytes, aligned to 16. Returns NULL if there is no memory. Small blocks come from
 * the list of their size. What is too large for a block gets whole pages, whose number is noted in
 * the block's head. */
void *malloc(size_t size) {
    unsigned shift = MIN_SHIFT;
    struct block *b;
    u64 f;

    if (size > TOO_LARGE) return NULL;
    if (size + HEAD > 1u << MAX_SHIFT) {
        size_t n = (size + HEAD + PAGE_SIZE - 1) / PAGE_SIZE;

        b = page_alloc(n);
        if (!b) return NULL;
        b->size = n << PAGES_SHIFT;
        return (char *)b + HEAD;
    }
    while (size + HEAD > 1u << shift) shift++;
    f = spin_lock_irqsave(&block_lock);
    if (!free_blocks[shift]) refill(shift);
    b = free_blocks[shift];
    if (b) {
        free_blocks[shift] = b->next;
        b->size = shift;
    }
    spin_unlock_irqrestore(&block_lock, f);
    if (!b) return NULL;
    return (char *)b + HEAD;
}

/* Allocates n * size bytes full of zeros. Returns NULL if there is no memory. A product that
 * overflows would give a block that is too small, so it is refused. */
void *calloc(size_t n, size_t size) {
    size_t bytes;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
    p = malloc(bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

/* Frees a block of malloc() or calloc(); NULL is ignored. The head of the block says which list it
 * belongs to, or how many pages it has. */
void free(void *p) {
    struct block *b = (struct block *)((char *)p - HEAD);
    u64 f;

    if (!p) return;
    if (b->size > MAX_SHIFT) {
        page_free(b, b->size >> PAGES_SHIFT);
        return;
    }
    f = spin_lock_irqsave(&block_lock);
    b->next = free_blocks[b->size];
    free_blocks[b->size] = b;
    spin_unlock_irqrestore(&block_lock, f);
}

/* ---- mapping ---- */

/* Returns the table that the entry points to. If the entry maps a large page or nothing, a new
 * table takes its place; its 512 pages of `page_size` bytes map the same. Returns NULL if there is
 * no free page for the table. */
static u64 *below(u64 *entry, u64 page_size) {
    u64 *table, old = *entry;

    if (old & PTE_P && !(old & PTE_PS)) return (u64 *)(old & PTE_ADDRESS);
    table = page_alloc(1);
    if (!table) return NULL;
    for (unsigned i = 0; i < 512; i++) {
        table[i] = 0;
        if (!(old & PTE_P)) continue;
        table[i] = (old & ~PTE_PS) + i * page_size;
        if (page_size > PAGE_SIZE) table[i] |= PTE_PS;
    }
    *entry = (u64)table | PTE_P | PTE_W | PTE_U;
    return table;
}

/* Maps the 4 KiB at the virtual address `va` to the physical address `pa` with `flags` (PTE_*).
 * Returns 0, or -ENOMEM. It goes down the four levels of page tables. A large page on the way is
 * replaced by a table with the same mappings. */
int page_map(u64 va, u64 pa, u64 flags) {
    u64 *t = boot_pml4, f = spin_lock_irqsave(&map_lock);

    for (unsigned shift = 39; t && shift > 12; shift -= 9)
        t = below(&t[va >> shift & 511], 1ull << (shift - 9));
    if (t) {
        t[va >> 12 & 511] = pa | flags;
        invlpg(va);
    }
    spin_unlock_irqrestore(&map_lock, f);
    if (!t) return -ENOMEM;
    return 0;
}

/* Maps in pages of 2 MiB, which need few tables. */
int mem_map(u64 start, u64 end) {
    for (u64 pa = ALIGN_DOWN(start, 0x200000); pa < end; pa += 0x200000) {
        u64 *t = below(&boot_pml4[pa >> 39 & 511], 1ull << 30);

        if (t) t = below(&t[pa >> 30 & 511], 1ull << 21);
        if (!t) return -ENOMEM;
        t[pa >> 21 & 511] = pa | PTE_PS | PTE_U | PTE_W | PTE_P;
    }
    return 0;
}

/* ---- start ---- */

/* Notes that [start, end) can be freed later, without the part that the guest's image and start-up
 * data occupy. */
static void add_pool(u64 start, u64 end) {
    start = ALIGN_UP(MAX(start, MAX(LOW, mem_image_end())), PAGE_SIZE);
    end = ALIGN_DOWN(end, PAGE_SIZE);
    if (start >= end || nr_pool == MAX_RANGES) return;
    pool[nr_pool++] = (struct mem_range){ start, end, 1 };
}

/* Frees the pages of the pool, so that they can be allocated. */
static void open_pool(void) {
    for (unsigned i = 0; i < nr_pool; i++)
        if (pool[i].end > pool[i].start)
            page_free(pa_to_ptr(pool[i].start), (pool[i].end - pool[i].start) / PAGE_SIZE);
    nr_pool = 0;
}

/* Cuts [start, end) out of the pool, because something lies there that the guest still needs: a
 * module of the loader. */
static void mem_reserve(u64 start, u64 end) {
    unsigned n = nr_pool;

    for (unsigned i = 0; i < n; i++) {
        struct mem_range r = pool[i];

        if (start >= r.end || end <= r.start) continue;
        pool[i].end = pool[i].start;
        add_pool(r.start, MAX(start, r.start));
        add_pool(MIN(ALIGN_UP(end, PAGE_SIZE), r.end), r.end);
    }
}

/* Makes the RAM of the VM available to page_alloc(), by the map of memory that the loader has
 * passed. Only addresses below MAPPED are mapped at this moment, so only RAM below it can be used
 * at first: the pages for further page tables come from there. Then the RAM above is mapped and
 * added. */
void mem_init(const struct hvm_start_info *si) {
    const struct hvm_memmap_entry *m = pa_to_ptr(si->memmap_paddr);
    const struct hvm_modlist_entry *mod = pa_to_ptr(si->modlist_paddr);

    if (si->magic != HVM_START_MAGIC || si->version < 1 || !si->memmap_entries)
        guest_panic("the loader gave no memory map");
    for (u32 i = 0; i < si->memmap_entries && nr_ranges < MAX_RANGES; i++)
        ranges[nr_ranges++] = (struct mem_range){ m[i].addr, m[i].addr + m[i].size, m[i].type };
    for (unsigned i = 0; i < nr_ranges; i++)
        if (ranges[i].type == 1) add_pool(ranges[i].start, MIN(ranges[i].end, MAPPED));
    for (u32 i = 0; i < si->nr_modules; i++) mem_reserve(mod[i].paddr, mod[i].paddr + mod[i].size);
    open_pool();
    for (unsigned i = 0; i < nr_ranges; i++)
        if (ranges[i].type == 1 && ranges[i].end > MAPPED) {
            if (mem_map(MAX(ranges[i].start, MAPPED), ranges[i].end))
                guest_panic("there is no memory for page tables");
            add_pool(MAX(ranges[i].start, MAPPED), ranges[i].end);
        }
    open_pool();
}
