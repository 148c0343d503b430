/* The hypervisor's own page tables. */
#ifndef HV_PLATFORM_HOSTMAP_H
#define HV_PLATFORM_HOSTMAP_H

#include "mm/frame.h"

/* boot.asm's, with DIRECTMAP; and where the parts of the image begin (takt.ld). */
extern const u64 boot_pml4[512];
extern const u8 image_rodata[], image_data[], image_end[];

/* Maps RAM in [start, end) above 4 GiB at DIRECTMAP; what lies below has been mapped since
 * boot.asm. */
void hostmap_direct(hpa_t start, hpa_t end);
/* Maps the image page by page: text read-only and executable, the rest not executable; drops the
 * identity map. After frames exist, and before the others. */
void hostmap_image(void);
/* Device registers, uncached, for ever. NULL when memory for tables is out, or where no address
 * can be: tables of the firmware may say anything. On the boot CPU, before others have left
 * smp_start(). */
volatile void *mmio_map(hpa_t pa, u64 len);
/* The same for a framebuffer: the CPU collects writes to it and sends them together, which a
 * real screen needs to scroll in less than a second. Its contents must not be read back. */
volatile void *mmio_map_wc(hpa_t pa, u64 len);
/* A stack of `size` bytes with an unmapped page below it; returns its top, NULL when memory is
 * out. */
u8 *stack_map(u32 size);
hpa_t hostmap_root(void); /* CR3 of all CPUs */

#endif
