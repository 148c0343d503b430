/* Where things are in the hypervisor's address space. */
#ifndef BOOT_LAYOUT_H
#define BOOT_LAYOUT_H

#define LOAD_BASE 0x200000ul           /* physical: where GRUB puts the image */
#define LINK_BASE 0xffffffff80000000ul /* the image runs at LINK_BASE + its physical address */
/* all RAM is mapped from here on, and all of the first 4 GiB */
#define DIRECTMAP   0xffff800000000000ul
#define DIRECT_SIZE 0x0000400000000000ul /* 64 TiB; RAM above is not used */
#define MMIO_BASE   0xffffc00000000000ul /* device registers, uncached, by mmio_map() */
#define STACK_BASE  0xffffd00000000000ul /* stacks, each with an unmapped page below */

#define BOOT_STACK  16384

/* The boot GDT's and every CPU's selectors. */
#define SEL_CODE 0x08
#define SEL_DATA 0x10
#define SEL_TSS  0x18

#endif
