/* Memory: pages, a small allocator, and the mapping. All RAM is mapped one to one, readable, writable,
 * executable, and by CPL 3 too: a library OS has one address space. */
#ifndef GUEST_MEM_H
#define GUEST_MEM_H

#include <takt/types.h>

void *page_alloc(size_t n);        /* n pages in a row, not zeroed; NULL: none left */
void page_free(void *p, size_t n); /* n as allocated */
size_t page_count_free(void);

void *malloc(size_t size); /* 16-byte aligned; NULL: no memory */
void *calloc(size_t n, size_t size);
void free(void *p);

#define PTE_P   BIT(0)
#define PTE_W   BIT(1)
#define PTE_U   BIT(2)
#define PTE_PWT BIT(3)
#define PTE_PCD BIT(4)
#define PTE_A   BIT(5)
#define PTE_D   BIT(6)
#define PTE_PS  BIT(7)
#define PTE_NX  BIT(63)
/* Where the page or the next table lies: bits 51 to 12 (SDM 3A, 4.5.4). */
#define PTE_ADDRESS 0x000ffffffffff000ull

/* Maps the 4 KiB at `va` to `pa` with `flags` (0: not present), splitting a larger page; on this vCPU
 * at once, elsewhere after a flush of theirs. -ENOMEM. */
int page_map(u64 va, u64 pa, u64 flags);
/* Maps all of [start, end), above 4 GiB, one to one in 2 MiB pages, cached. -ENOMEM. */
int mem_map(u64 start, u64 end);

/* A range of the start-up memory map. */
struct mem_range {
    u64 start, end; /* [start, end) */
    u32 type;       /* as in E820: 1 RAM */
};
const struct mem_range *mem_ranges(unsigned *n);
u64 mem_ram(void);       /* bytes of RAM */
u64 mem_image_end(void); /* RAM from here on (page-aligned) is free at the start */

struct hvm_start_info;
void mem_init(const struct hvm_start_info *si); /* start-up only */

#endif
