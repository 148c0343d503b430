/* Memory: pages, a small allocator, and the mapping. All RAM is mapped one to one. It is readable,
 * writable and executable, also at CPL 3, because a library operating system has one address space.
 */
#ifndef GUEST_MEM_H
#define GUEST_MEM_H

#include <takt/types.h>

/* Allocates `n` pages in a row. They are not zeroed. Returns NULL if there is no memory. */
void *page_alloc(size_t n);
/* Frees what page_alloc(n) returned, with the same n. */
void page_free(void *p, size_t n);
/* Returns how many pages are free. */
size_t page_count_free(void);

/* As in C. The memory is aligned to 16 bytes. NULL means that there is none. */
void *malloc(size_t size);
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
/* The bits of the address of the page or of the next table, 51 to 12 (SDM 3A, 4.5.4). */
#define PTE_ADDRESS 0x000ffffffffff000ull

/* Maps the 4 KiB at `va` to `pa` with `flags` (PTE_*; 0 means not present). Splits a larger page if
 * it has to. The change holds at once on this vCPU. Other vCPUs see it after they have flushed
 * their TLBs. Returns 0, or -ENOMEM. */
int page_map(u64 va, u64 pa, u64 flags);
/* Maps [start, end), which is above 4 GiB, one to one in 2 MiB pages, cached. Returns 0, or
 * -ENOMEM. */
int mem_map(u64 start, u64 end);

/* A range of the memory map that the VM was started with. */
struct mem_range {
    u64 start, end; /* [start, end) */
    u32 type;       /* as in E820: 1 is RAM */
};
/* Returns the ranges of the memory map; *n is their number. */
const struct mem_range *mem_ranges(unsigned *n);
/* Returns how many bytes of RAM the VM has. */
u64 mem_ram(void);
/* Returns the end of the guest's image, page-aligned. */
u64 mem_image_end(void);

struct hvm_start_info;
void mem_init(const struct hvm_start_info *si); /* for the start of the guest */

#endif
