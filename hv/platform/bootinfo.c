/* Multiboot2 specification 3.6 (boot information). Nothing is read outside [mbi, mbi + total_size). */
#include "platform/bootinfo.h"

#include <takt/errno.h>
#include "lib/string.h"

enum {
    TAG_END,
    TAG_CMDLINE,
    TAG_LOADER,
    TAG_MODULE,
    TAG_MMAP = 6,
    TAG_SCREEN = 8,
    TAG_RSDP1 = 14,
    TAG_RSDP2
};
enum { MEM_RAM = 1 };

static u16 get16(const u8 *p) {
    u16 v;

    memcpy(&v, p, 2);
    return v;
}

static u32 get32(const u8 *p) {
    u32 v;

    memcpy(&v, p, 4);
    return v;
}

static u64 get64(const u8 *p) {
    u64 v;

    memcpy(&v, p, 8);
    return v;
}

/* ---- sets of ranges ---- */

static void range_delete(struct memmap *m, u32 i) {
    memmove(&m->range[i], &m->range[i + 1], (m->nr - i - 1) * sizeof(m->range[0]));
    m->nr--;
}

static void range_insert(struct memmap *m, u32 i, u64 start, u64 end) {
    if (m->nr == BOOT_MAX_RANGES) {
        m->overflow = true;
        return;
    }
    memmove(&m->range[i + 1], &m->range[i], (m->nr - i) * sizeof(m->range[0]));
    m->range[i] = (struct boot_range){ start, end };
    m->nr++;
}

void memmap_add(struct memmap *m, u64 start, u64 end) {
    u32 i = 0;

    if (start >= end) return;
    while (i < m->nr && m->range[i].end < start) i++;
    while (i < m->nr && m->range[i].start <= end) { /* touches: swallow it */
        start = MIN(start, m->range[i].start);
        end = MAX(end, m->range[i].end);
        range_delete(m, i);
    }
    range_insert(m, i, start, end);
}

void memmap_remove(struct memmap *m, u64 start, u64 end) {
    if (start >= end) return;
    for (u32 i = 0; i < m->nr; i++) {
        struct boot_range r = m->range[i];

        if (r.end <= start || r.start >= end) continue;
        range_delete(m, i);
        if (end < r.end) range_insert(m, i, end, r.end);
        if (r.start < start)
            range_insert(m, i, r.start, start);
        else
            i--; /* looks again at what moved up; wraps from 0 to 0 with the increment */
    }
}

bool memmap_contains(const struct memmap *m, u64 start, u64 end) {
    for (u32 i = 0; i < m->nr; i++)
        if (m->range[i].start <= start && end <= m->range[i].end) return start <= end;
    return false;
}

u64 memmap_bytes(const struct memmap *m) {
    u64 sum = 0;

    for (u32 i = 0; i < m->nr; i++) sum += m->range[i].end - m->range[i].start;
    return sum;
}

/* ---- tags ---- */

/* Copies text of at most `len` bytes that may lack its terminator. */
static void copy_text(char *to, size_t size, const u8 *from, size_t len) {
    size_t n = strnlen((const char *)from, len);

    n = MIN(n, size - 1);
    memcpy(to, from, n);
    to[n] = 0;
}

/* "/boot/busy.elf anything" is named busy.elf */
static void module_name(char name[BOOT_NAME], const u8 *line, size_t len) {
    size_t n = 0, base = 0;

    while (n < len && line[n] && line[n] != ' ') {
        if (line[n] == '/') base = n + 1;
        n++;
    }
    copy_text(name, BOOT_NAME, line + base, n - base);
}

static int parse_module(struct boot_info *b, const u8 *tag, u32 size, const char **why) {
    struct boot_module *m = &b->module[b->nr_modules];

    *why = "a module tag is malformed";
    if (size < 17) return -EINVAL;
    *why = "there are too many modules";
    if (b->nr_modules == BOOT_MAX_MODULES) return -EINVAL;
    m->start = get32(tag + 8);
    m->end = get32(tag + 12);
    module_name(m->name, tag + 16, size - 16);
    *why = "a module ends before it starts";
    if (m->end < m->start) return -EINVAL;
    *why = "two modules overlap";
    for (u32 i = 0; i < b->nr_modules; i++)
        if (m->start < b->module[i].end && b->module[i].start < m->end) return -EINVAL;
    b->nr_modules++;
    return 0;
}

/* RAM is what some entry calls RAM and no entry calls anything else; partial pages are dropped. */
static int parse_mmap(struct boot_info *b, const u8 *tag, u32 size, const char **why) {
    u32 step = size >= 16 ? get32(tag + 8) : 0;

    *why = "the memory map's entries have an impossible size";
    if (step < 24 || step % 8) return -EINVAL;
    for (int pass = 0; pass < 2; pass++) {
        for (u32 at = 16; at <= size && size - at >= step; at += step) {
            u64 start = get64(tag + at), len = get64(tag + at + 8), end = start + len;
            bool is_ram = get32(tag + at + 16) == MEM_RAM;

            if (is_ram != (pass == 0)) continue;
            if (!len || end < start) {
                b->oddities++;
                continue;
            }
            if (!is_ram) {
                memmap_remove(&b->ram, ALIGN_DOWN(start, PAGE_SIZE),
                              end > ~PAGE_SIZE ? end : ALIGN_UP(end, PAGE_SIZE));
                continue;
            }
            if (end > BOOT_RAM_LIMIT) b->oddities++;
            end = MIN(end, BOOT_RAM_LIMIT);
            if (start < end) memmap_add(&b->ram, ALIGN_UP(start, PAGE_SIZE), ALIGN_DOWN(end, PAGE_SIZE));
        }
    }
    return 0;
}

static void parse_screen(struct boot_info *b, const u8 *tag, u32 size) {
    if (size < 31) return;
    b->screen.addr = get64(tag + 8);
    b->screen.pitch = get32(tag + 16);
    b->screen.width = get32(tag + 20);
    b->screen.height = get32(tag + 24);
    b->screen.bpp = tag[28];
    if (tag[29] == 2)
        b->screen.kind = SCREEN_TEXT;
    else if (tag[29] == 1 && (b->screen.bpp == 32 || b->screen.bpp == 24))
        b->screen.kind = SCREEN_PIXELS;
}

static int parse_tag(struct boot_info *b, const u8 *tag, u32 size, bool *has_map, const char **why) {
    switch (get16(tag)) {
    case TAG_CMDLINE:
        if (size - 8 > BOOT_CMDLINE) b->oddities++;
        copy_text(b->cmdline, sizeof(b->cmdline), tag + 8, size - 8);
        return 0;
    case TAG_LOADER: copy_text(b->loader, sizeof(b->loader), tag + 8, size - 8); return 0;
    case TAG_MODULE: return parse_module(b, tag, size, why);
    case TAG_MMAP:
        if (*has_map) {
            b->oddities++;
            return 0;
        }
        *has_map = true;
        return parse_mmap(b, tag, size, why);
    case TAG_SCREEN: parse_screen(b, tag, size); return 0;
    case TAG_RSDP1:
    case TAG_RSDP2:
        if (size - 8 >= 20 && size - 8 > b->rsdp_len) {
            b->rsdp_len = MIN(size - 8, (u32)sizeof(b->rsdp));
            memcpy(b->rsdp, tag + 8, b->rsdp_len);
        }
        return 0;
    }
    return 0;
}

int bootinfo_parse(const void *mbi, size_t room, struct boot_info *out, const char **why) {
    const u8 *base = mbi;
    bool has_map = false;
    u32 total, at = 8;

    memset(out, 0, sizeof(*out));
    *why = "the boot information is not aligned to 8 bytes";
    if ((u64)mbi % 8) return -EINVAL;
    *why = "the boot information has an impossible total size";
    if (room < 16) return -EINVAL;
    total = get32(base);
    if (total < 16 || total > BOOT_MAX_SIZE || total > room) return -EINVAL;
    for (;;) {
        u32 size;
        int err;

        *why = "the boot information lacks its end tag";
        if (total - at < 8) return -EINVAL;
        size = get32(base + at + 4);
        *why = "a tag of the boot information has an impossible size";
        if (size < 8 || size > total - at) return -EINVAL;
        if (get16(base + at) == TAG_END) break;
        err = parse_tag(out, base + at, size, &has_map, why);
        if (err) return err;
        *why = "the boot information lacks its end tag";
        size = ALIGN_UP(size, 8u);
        if (size > total - at) return -EINVAL;
        at += size;
    }
    *why = "the loader gave no memory map";
    if (!has_map || !out->ram.nr) return -EINVAL;
    return 0;
}
