/* Reads what the boot loader tells: a list of tags, by the Multiboot2 specification, 3.6. A tag
 * holds the command line, a module (a file that was loaded, such as a guest's image), the map of
 * memory, the screen, or a copy of ACPI's root pointer. Each tag begins with its kind and its
 * length. The list may be wrong, so nothing is read outside [mbi, mbi + total_size). */
#include "platform/firmware.h"

enum {
    TAG_END,
    TAG_CMDLINE,
    TAG_MODULE = 3,
    TAG_MMAP = 6,
    TAG_SCREEN = 8,
    TAG_RSDP1 = 14,
    TAG_RSDP2
};
enum { MEM_RAM = 1 };

/* ---- sets of ranges ---- */

/* Adds a range that touches no other one. Does nothing if it is empty or there is no room. */
static void memmap_append(struct memmap *m, u64 start, u64 end) {
    if (start >= end || m->nr == BOOT_MAX_RANGES) return;
    m->range[m->nr].start = start;
    m->range[m->nr++].end = end;
}

/* Adds [start, end) to the set. Each range that touches or overlaps the new one is taken out and
 * made part of it. */
void memmap_add(struct memmap *m, u64 start, u64 end) {
    if (start >= end) return;
    for (u32 i = 0; i < m->nr;) {
        if (m->range[i].end < start || m->range[i].start > end) {
            i++;
            continue;
        }
        start = MIN(start, m->range[i].start); /* touches: swallow it */
        end = MAX(end, m->range[i].end);
        m->range[i] = m->range[--m->nr];
    }
    memmap_append(m, start, end);
}

/* Removes [start, end) from the set. Each range that overlaps [start, end) is taken out, and what
 * is left of it on either side is put back. */
void memmap_remove(struct memmap *m, u64 start, u64 end) {
    for (u32 i = 0; i < m->nr && start < end;) {
        u64 from = m->range[i].start, to = m->range[i].end;

        if (to <= start || from >= end) {
            i++;
            continue;
        }
        m->range[i] = m->range[--m->nr];
        memmap_append(m, from, start);
        memmap_append(m, end, to);
    }
}

/* Does one range of the map contain all of [start, end)? */
bool memmap_contains(const struct memmap *m, u64 start, u64 end) {
    for (u32 i = 0; i < m->nr; i++)
        if (m->range[i].start <= start && end <= m->range[i].end) return start <= end;
    return false;
}

/* Is a byte of [start, end) in the map? */
bool memmap_overlaps(const struct memmap *m, u64 start, u64 end) {
    for (u32 i = 0; i < m->nr; i++)
        if (m->range[i].start < end && start < m->range[i].end) return true;
    return false;
}

/* ---- tags: each parser gets what follows the head, and returns NULL or why it refuses ---- */

/* Copies text of at most `len` bytes that may lack its terminator. */
static void copy_text(char *to, size_t size, const u8 *from, size_t len) {
    size_t n = strnlen((const char *)from, MIN(len, size - 1));

    memcpy(to, from, n);
    to[n] = 0;
}

/* Adds a module. Its name is the first word of its line, without directories, because guests' files
 * are named like that in VM files. Two modules that overlap would destroy each other. */
static const char *parse_module(struct boot_info *b, const u8 *tag, u32 len) {
    struct boot_module *m = &b->module[b->nr_modules];
    u32 base = 8, end = 8;

    if (len < 9) return "a module tag is malformed";
    if (b->nr_modules == BOOT_MAX_MODULES) return "there are too many modules";
    m->start = table_get(tag, 4);
    m->end = table_get(tag + 4, 4);
    if (m->end < m->start) return "a module ends before it starts";
    for (u32 i = 0; i < b->nr_modules; i++)
        if (m->start < b->module[i].end && b->module[i].start < m->end)
            return "two modules overlap";
    /* "/boot/busy.elf ..." is named busy.elf */
    for (; end < len && tag[end] && tag[end] != ' '; end++)
        if (tag[end] == '/') base = end + 1;
    copy_text(m->name, BOOT_NAME, tag + base, end - base);
    b->nr_modules++;
    return NULL;
}

/* Adds all that an entry calls RAM in a first round, and takes away all that any entry calls
 * something else in a second one. So memory about which entries contradict each other is not used.
 * Pages that are RAM in part are not used either. Of two maps the first one counts. */
static const char *parse_mmap(struct boot_info *b, const u8 *tag, u32 len) {
    u32 step = 0; /* from one entry to the next */

    if (len >= 8) step = (u32)table_get(tag, 4);
    if (step < 24) return "the memory map's entries have an impossible size";
    if (b->ram.nr) return NULL;
    for (int ram = 1; ram >= 0; ram--) {
        for (u32 at = 8; at <= len && len - at >= step; at += step) {
            u64 start = table_get(tag + at, 8), end = start + table_get(tag + at + 8, 8);

            if ((table_get(tag + at + 16, 4) == MEM_RAM) != ram) continue;
            if (end < start && ram) continue; /* its end is beyond 2^64: not believed */
            if (end < start) end = BOOT_RAM_LIMIT;
            start = MIN(start, BOOT_RAM_LIMIT);
            end = MIN(end, BOOT_RAM_LIMIT);
            if (ram)
                memmap_add(&b->ram, ALIGN_UP(start, PAGE_SIZE), ALIGN_DOWN(end, PAGE_SIZE));
            else if (start < end)
                memmap_remove(&b->ram, ALIGN_DOWN(start, PAGE_SIZE), ALIGN_UP(end, PAGE_SIZE));
        }
    }
    return NULL;
}

/* Takes one tag; `tag` is what follows its head. Returns NULL, or why the information is refused.
 * Unknown tags are skipped. Of two copies of the RSDP the longer one is kept, as it is of the newer
 * version. */
static const char *parse_tag(struct boot_info *b, u32 type, const u8 *tag, u32 len) {
    switch (type) {
    case TAG_CMDLINE: copy_text(b->cmdline, sizeof(b->cmdline), tag, len); break;
    case TAG_MODULE: return parse_module(b, tag, len);
    case TAG_MMAP: return parse_mmap(b, tag, len);
    case TAG_SCREEN:
        if (len >= 22) memcpy(&b->screen, tag, 22);
        break;
    case TAG_RSDP1:
    case TAG_RSDP2:
        if (len < 20 || len <= b->rsdp_len) break;
        b->rsdp_len = MIN(len, (u32)sizeof(b->rsdp));
        memcpy(b->rsdp, tag, b->rsdp_len);
    }
    return NULL;
}

/* Reads the boot loader's information into *out. Returns NULL, or the sentence that says why it is
 * refused. Each tag begins at a multiple of 8. The list ends with an end tag; a list without it was
 * cut off or overwritten, so it is not trusted. */
const char *bootinfo_parse(const void *mbi, size_t room, struct boot_info *out) {
    const u8 *base = mbi;
    u32 total, size;

    memset(out, 0, sizeof(*out));
    if ((u64)mbi % 8) return "the boot information is not aligned to 8 bytes";
    total = 0;
    if (room >= 16) total = (u32)table_get(base, 4);
    if (total < 16 || total > MIN(room, BOOT_MAX_SIZE))
        return "the boot information has an impossible total size";
    for (u32 at = 8;; at += ALIGN_UP(size, 8u)) {
        const char *why;

        if (at > total - 8) return "the boot information lacks its end tag";
        size = (u32)table_get(base + at + 4, 4);
        if (size < 8 || size > total - at)
            return "a tag of the boot information has an impossible size";
        if (table_get(base + at, 2) == TAG_END) break;
        why = parse_tag(out, (u32)table_get(base + at, 2), base + at + 8, size - 8);
        if (why) return why;
    }
    if (!out->ram.nr) return "the loader gave no memory map";
    return NULL;
}
