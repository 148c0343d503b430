/* What the loader tells: the multiboot2 tags, checked and copied. No privileged instruction: also built for
 * the host, where it is tested and fuzzed. */
#ifndef HV_PLATFORM_BOOTINFO_H
#define HV_PLATFORM_BOOTINFO_H

#include <takt/types.h>

#define MB2_BOOT_MAGIC   0x36d76289u
#define BOOT_MAX_SIZE    (1u << 20) /* of the information block: more is not believed */
#define BOOT_MAX_MODULES 80
#define BOOT_MAX_RANGES  128
#define BOOT_NAME        64
#define BOOT_CMDLINE     1024
#define BOOT_RAM_LIMIT   (1ull << 46) /* 64 TiB, as the direct map */

struct boot_range {
    u64 start, end; /* bytes; end is the first that does not belong */
};

/* Disjoint, sorted, not empty, never adjacent. */
struct memmap {
    u32 nr;
    bool overflow; /* something did not fit and was left out */
    struct boot_range range[BOOT_MAX_RANGES];
};

void memmap_add(struct memmap *m, u64 start, u64 end);
void memmap_remove(struct memmap *m, u64 start, u64 end);
bool memmap_contains(const struct memmap *m, u64 start, u64 end);
u64 memmap_bytes(const struct memmap *m);

struct boot_module {
    char name[BOOT_NAME]; /* the first word of its line, without directories */
    u64 start, end;
};

enum boot_screen { SCREEN_NONE, SCREEN_TEXT, SCREEN_PIXELS };

struct boot_info {
    char cmdline[BOOT_CMDLINE];
    char loader[BOOT_NAME];
    struct memmap ram; /* usable: what is reserved in any entry is taken out */
    u32 nr_modules;
    struct boot_module module[BOOT_MAX_MODULES];
    u8 rsdp[36]; /* copy of the newest; rsdp_len 0: none */
    u32 rsdp_len;
    struct {
        enum boot_screen kind;
        u64 addr;
        u32 pitch, width, height, bpp;
    } screen;
    u32 oddities; /* entries that were ignored: zero length, wrapping, too far up, duplicate tags */
};

/* Parses the block of at most `room` bytes at `mbi`. 0, or -EINVAL with *why, one sentence. */
int bootinfo_parse(const void *mbi, size_t room, struct boot_info *out, const char **why);

#endif
