/* The hypervisor's own page tables. All functions are called on the boot CPU, before other CPUs
 * have left smp_start(): they take no lock, and they flush no TLB. */
#ifndef HV_PLATFORM_HOSTMAP_H
#define HV_PLATFORM_HOSTMAP_H

#include "mm/frame.h"

/* The top-level page table that boot.asm has made; it contains the direct map at DIRECTMAP. */
extern const u64 boot_pml4[512];
/* Where the parts of the image begin and where the image ends (boot/takt.ld). */
extern const u8 image_rodata[], image_data[], image_end[];

/* Maps the part of [start, end) that is above 4 GiB at DIRECTMAP. The first 4 GiB are mapped
 * there by boot.asm already. Panics if there is no memory for page tables. */
void hostmap_direct(hpa_t start, hpa_t end);
/* Makes new page tables for the image and switches to them: code is read-only and executable,
 * constants are read-only, data is writable, and nothing but code is executable. The identity map
 * of boot.asm is gone afterwards. To be called once frames exist, and before all other functions
 * here. Panics if there is no memory for page tables. */
void hostmap_image(void);
/* Maps the device registers at [pa, pa + len), uncached and for ever, and returns where they are.
 * Returns NULL if there is no memory for page tables, or if there can be no such address: tables of
 * the firmware may name any. */
volatile void *mmio_map(hpa_t pa, u64 len);
/* As mmio_map(), for a frame buffer, with write combining: the CPU collects writes and sends them
 * together. Without that, a real screen would need more than a second to scroll. What was written
 * must not be read back, as that is slow. */
volatile void *mmio_map_wc(hpa_t pa, u64 len);
/* Allocates and maps a stack of `size` bytes. The page below it is not mapped, so that an overflow
 * causes a fault rather than overwriting other data. Returns the top of the stack, or NULL if there
 * is no memory. */
u8 *stack_map(u32 size);
/* Returns the physical address of the top-level page table, for CR3 of all CPUs. */
hpa_t hostmap_root(void);

#endif
