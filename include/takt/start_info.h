/* How a guest starts by the PVH protocol: its entry is called in 32-bit protected mode without
 * paging, with flat segments, and EBX points to a struct hvm_start_info. Source: Xen,
 * docs/misc/pvh.pandoc and public/arch-x86/hvm/start_info.h (layout only). */
#ifndef TAKT_START_INFO_H
#define TAKT_START_INFO_H

#include <takt/types.h>

#define HVM_START_MAGIC          0x336ec578u
#define XEN_ELFNOTE_PHYS32_ENTRY 18 /* note owner "Xen", descriptor: 32- or 64-bit entry address */

struct hvm_start_info {
    u32 magic, version; /* version 1: with memory map */
    u32 flags, nr_modules;
    u64 modlist_paddr, cmdline_paddr, rsdp_paddr, memmap_paddr;
    u32 memmap_entries, reserved;
};

struct hvm_modlist_entry {
    u64 paddr, size, cmdline_paddr, reserved;
};

struct hvm_memmap_entry {
    u64 addr, size;
    u32 type, reserved; /* type as in E820: 1 RAM, 2 reserved, 3 ACPI */
};

/* ---- multiboot1 (specification 0.6.96): the magic number of the header, the header's flag that
 * says that it has addresses, the number that the loader puts into EAX, and the structure to which
 * EBX points ---- */

#define MB_MAGIC     0x1badb002u
#define MB_ADDRESSES BIT(16)
#define MB_BOOTED    0x2badb002u

struct mb_info {
    u32 flags, mem_lower, mem_upper, boot_device, cmdline, mods_count, mods_addr, syms[4];
    u32 mmap_length, mmap_addr, drives_length, drives_addr, config_table, loader_name;
};

struct mb_module {
    u32 start, end; /* of its bytes; `end` is the address behind the last one */
    u32 string;     /* address of a text that ends with 0 */
    u32 reserved;
};

struct __attribute__((packed)) mb_mmap {
    u32 size;
    u64 addr, len;
    u32 type;
};

#endif
