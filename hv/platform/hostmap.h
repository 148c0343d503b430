/* The hypervisor's own page tables. */
#ifndef HV_PLATFORM_HOSTMAP_H
#define HV_PLATFORM_HOSTMAP_H

#include "mm/frame.h"

/* Maps RAM in [start, end) above 4 GiB at DIRECTMAP; what lies below has been mapped since boot.asm. */
void hostmap_direct(hpa_t start, hpa_t end);
/* Maps the image page by page: text read-only and executable, the rest neither; drops the identity map. After
 * frames exist. */
void hostmap_image(void);
/* Device registers, uncached, for ever. NULL when memory for tables is out. */
volatile void *mmio_map(hpa_t pa, u64 len);
/* A stack of `size` bytes with an unmapped page below it; returns its top, NULL when memory is out. */
u8 *stack_map(u32 size);
/* CR3 of all CPUs, and of one that is still on its way from real mode (with the identity map). */
hpa_t hostmap_root(void);
hpa_t hostmap_boot_root(void);

#endif
