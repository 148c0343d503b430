/* Guest images: ELF with a PVH note (Xen's docs/misc/pvh.pandoc), or multiboot1 (specification 0.6.96).
 * Nothing in a file is believed: each offset and size is checked against the file and the VM's RAM before a
 * byte is copied; the checks return NULL, or why the image is refused. RAM is zero already, so what a segment
 * has in memory beyond the file needs no work. */
#include <takt/errno.h>
#include <takt/start_info.h>
#include "lib/printf.h"
#include "lib/string.h"
#include "vm/vm.h"

#define COPY_STEP  65536u
#define NOTES_MAX  4096u /* bytes of notes that are searched */
#define MB_SEARCH  8192u /* multiboot1, 3.1: the header is in here */
#define START_LOW  0x6000u
#define START_HIGH 0x90000u

#define ELF_MAGIC  0x464c457fu
#define PT_LOAD    1
#define PT_NOTE    4
#define EM_386     3
#define EM_X86_64  62
#define XEN_NAME   0x6e6558u /* "Xen" and its end */

#define MB_UNKNOWN 0xfffcu /* flags that a loader has to know, but for page-aligned modules and memory */

/* What a guest finds at its start, in a page that its memory map calls reserved. */
struct start_page {
    struct hvm_start_info info;
    struct mb_info mb;
    struct hvm_memmap_entry map[6];
    struct mb_mmap mb_map[6];
    char loader[8];
    char cmdline[CONFIG_VALUE];
};

/* ---- modules ---- */

static struct module modules[MAX_MODULES];
static u32 nr_modules;

int module_add(const struct module *m) {
    if (module_find(m->name)) return -EEXIST;
    if (nr_modules == MAX_MODULES) return -ENOSPC;
    modules[nr_modules++] = *m;
    return 0;
}

const struct module *module_find(const char *name) {
    for (u32 i = 0; i < nr_modules; i++)
        if (strcmp(modules[i].name, name) == 0) return &modules[i];
    return NULL;
}

/* ---- checks ---- */

static bool in_file(const struct loader *l, u64 offset, u64 len) {
    return offset <= l->size && len <= l->size - offset;
}

static bool overlaps(const struct loader *l, gpa_t gpa, u64 len) {
    for (u32 i = 0; i < l->nr; i++)
        if (gpa < l->segment[i].gpa + l->segment[i].memsz && l->segment[i].gpa < gpa + len) return true;
    return false;
}

static const char *add_segment(struct loader *l, gpa_t gpa, u64 offset, u64 filesz, u64 memsz) {
    if (memsz == 0 && filesz == 0) return NULL;
    if (l->nr == LOAD_SEGMENTS) return "the image has too many segments";
    if (!in_file(l, offset, filesz)) return "a segment of the image lies outside the file";
    if (memsz < filesz) return "a segment of the image is larger in the file than in memory";
    if (!guestmem_has(&l->vm->mem, gpa, memsz)) return "a segment of the image lies outside the VM's memory";
    if (overlaps(l, gpa, memsz)) return "segments of the image overlap";
    l->segment[l->nr++] = (struct load_segment){ gpa, offset, filesz, memsz };
    return NULL;
}

/* Bytes of the file as a number; 0 if they are not all there. */
static u64 get(const struct loader *l, u64 at, unsigned bytes) {
    u64 value = 0;

    if (in_file(l, at, bytes)) memcpy(&value, l->image + at, bytes);
    return value;
}

/* ---- ELF: from 32 to 64 bits only the width of a word changes, and with it where things are ---- */

/* Looks for Xen's PHYS32_ENTRY in one PT_NOTE. Names and descriptors are padded to four bytes. */
static bool find_pvh(struct loader *l, u64 at, u64 len) {
    u64 end = in_file(l, at, len) ? at + MIN(len, NOTES_MAX) : at, name, desc, next;
    bool found = false;

    for (; end - at >= 12; at = next) {
        name = get(l, at, 4);
        desc = get(l, at + 4, 4);
        next = at + 12 + ALIGN_UP(name, 4) + ALIGN_UP(desc, 4);
        if (next > end) break;
        if (get(l, at + 8, 4) != XEN_ELFNOTE_PHYS32_ENTRY || name != 4 || get(l, at + 12, 4) != XEN_NAME ||
            (desc != 4 && desc != 8))
            continue;
        l->entry = get(l, at + 16, (unsigned)desc);
        found = true;
    }
    return found;
}

static const char *elf_load(struct loader *l, bool multiboot) {
    unsigned class = (unsigned)get(l, 4, 1), w = class == 2 ? 8 : 4;
    u64 machine = get(l, 18, 2), start = get(l, 24, w), ph = get(l, 24 + w, w);
    u64 ph_size = get(l, 30 + 3 * w, 2), n = get(l, 32 + 3 * w, 2), entry = start;
    const char *why;
    bool pvh = false;

    if (l->size < 40 + 3 * w || class < 1 || class > 2)
        return "the image's ELF header is cut off or of an unknown class";
    if (get(l, 5, 1) != 1 || (machine != EM_386 && machine != EM_X86_64)) return "the image is not for x86";
    if (ph_size != (w == 8 ? 56 : 32)) return "the image's program headers have an odd size";
    if (n > 2 * LOAD_SEGMENTS) return "the image has too many program headers";
    if (!in_file(l, ph, n * ph_size)) return "the image's program headers lie outside the file";
    for (; n; n--, ph += ph_size) {
        u64 type = get(l, ph, 4), offset = get(l, ph + w, w), vaddr = get(l, ph + 2 * w, w);
        u64 paddr = get(l, ph + 3 * w, w), filesz = get(l, ph + 4 * w, w), memsz = get(l, ph + 5 * w, w);

        if (type == PT_NOTE) pvh |= find_pvh(l, offset, filesz);
        if (type != PT_LOAD) continue;
        why = add_segment(l, paddr, offset, filesz, memsz);
        if (why) return why;
        if (entry == start && start - vaddr < memsz) entry = start - vaddr + paddr; /* it may be virtual */
    }
    if (l->nr == 0) return "the image has nothing to load";
    if (pvh) return NULL;
    if (!multiboot) return "the image has neither a PVH note nor a multiboot header";
    l->multiboot = true;
    l->entry = entry;
    return NULL;
}

/* ---- multiboot1 ---- */

static bool mb_find(const struct loader *l, u64 *at) {
    for (*at = 0; *at + 12 <= MIN(l->size, MB_SEARCH); *at += 4)
        if (get(l, *at, 4) == MB_MAGIC && (u32)(MB_MAGIC + get(l, *at + 4, 4) + get(l, *at + 8, 4)) == 0)
            return true;
    return false;
}

/* 3.1.3: the header is at `at` in the file and at header_addr in memory. */
static const char *mb_load(struct loader *l, u64 at) {
    u64 header = get(l, at + 12, 4), start = get(l, at + 16, 4), end = get(l, at + 20, 4);
    u64 bss_end = get(l, at + 24, 4), offset = at - (header - start), filesz, memsz;

    if (start > header || header - start > at || (end && end < start))
        return "the multiboot header's addresses contradict each other";
    filesz = end ? end - start : l->size - offset;
    memsz = bss_end ? bss_end - start : filesz;
    l->multiboot = true;
    l->entry = get(l, at + 28, 4);
    return add_segment(l, start, offset, filesz, memsz);
}

/* ---- symbols, for the report of a crash ---- */

#define SHT_SYMTAB    2
#define SHF_EXECINSTR 4u
#define STT_NOTYPE    0 /* what assemblers make */
#define STT_FUNC      2
#define SECTIONS_MAX  64u
#define SYMBOLS_MAX   4096u /* some ten instructions each, with interrupts off */
#define SECTION       64u   /* bytes of Elf64_Shdr */

struct symbol { /* Elf64_Sym */
    u32 name;
    u8 info, other;
    u16 section;
    u64 value, size;
} __attribute__((packed)); /* a file may have it at any address */

struct symtab {
    u64 symbols, n, names, names_len; /* where they are in the file, and how many */
};

/* Finds the symbol table; false: there is none, or the address is not in the image's code. */
static bool find_symtab(const struct loader *l, u64 address, struct symtab *t) {
    u64 sections = get(l, 40, 8), n = MIN(get(l, 60, 2), SECTIONS_MAX);
    bool code = false, found = false;

    if (get(l, 0, 4) != ELF_MAGIC || get(l, 4, 1) != 2 || get(l, 58, 2) != SECTION) return false;
    if (!in_file(l, sections, n * SECTION)) return false;
    for (u64 i = 0, at = sections; i < n; i++, at += SECTION) {
        u64 names = sections + get(l, at + 40, 4) * SECTION;

        if (get(l, at + 8, 8) & SHF_EXECINSTR) code |= address - get(l, at + 16, 8) < get(l, at + 32, 8);
        if (get(l, at + 4, 4) != SHT_SYMTAB || get(l, at + 56, 8) != sizeof(struct symbol)) continue;
        if (get(l, at + 40, 4) >= n) continue;
        *t = (struct symtab){ .symbols = get(l, at + 24, 8),
                              .n = get(l, at + 32, 8) / sizeof(struct symbol),
                              .names = get(l, names + 24, 8),
                              .names_len = get(l, names + 32, 8) };
        found = t->n <= SYMBOLS_MAX && in_file(l, t->symbols, t->n * sizeof(struct symbol)) &&
                in_file(l, t->names, t->names_len);
    }
    return code && found;
}

void image_symbol(const struct module *m, u64 address, char text[IMAGE_SYMBOL]) {
    struct loader l = { .image = m->data, .size = m->size };
    u64 best = 0, name = 0;
    char function[IMAGE_SYMBOL - 20]; /* the rest is for +0x and 16 digits */
    const struct symbol *first;
    struct symtab t = { 0 };
    u32 len = 0;

    text[0] = 0;
    if (!find_symtab(&l, address, &t)) return;
    first = (const void *)(l.image + t.symbols);
    for (const struct symbol *s = first; s < first + t.n; s++) {
        unsigned type = s->info & 15;

        if (type != STT_FUNC && type != STT_NOTYPE) continue;
        if (s->section == 0 || s->section >= SECTIONS_MAX) continue; /* undefined; a constant */
        if (s->value > address || s->value < best) continue;
        best = s->value;
        name = s->name;
    }
    for (; name < t.names_len && len < sizeof(function) - 1; name++) {
        char c = (char)get(&l, t.names + name, 1);

        if (!c) break;
        function[len++] = c < ' ' || c > '~' ? '?' : c; /* it goes to a terminal */
    }
    function[len] = 0;
    if (len) hv_snprintf(text, IMAGE_SYMBOL, "%s+0x%lx", function, address - best);
}

/* ---- the whole ---- */

/* Where the start page goes: in low memory that the image leaves free. 0: nowhere. */
static gpa_t start_page_at(const struct loader *l) {
    gpa_t gpa = START_LOW;

    while (overlaps(l, gpa, sizeof(struct start_page))) gpa += PAGE_SIZE;
    return gpa + sizeof(struct start_page) <= START_HIGH ? gpa : 0;
}

const char *load_start(struct loader *l, struct vm *vm, const struct module *m) {
    const char *why;
    u64 at, flags;
    bool multiboot;

    *l = (struct loader){ .vm = vm, .image = m->data, .size = m->size };
    multiboot = mb_find(l, &at);
    flags = multiboot ? get(l, at + 4, 4) : 0;
    if (flags & MB_UNKNOWN) return "the image's multiboot header asks for more than there is";
    if (!(flags & MB_ADDRESSES) && get(l, 0, 4) != ELF_MAGIC) return "the image is neither ELF nor multiboot";
    why = flags & MB_ADDRESSES ? mb_load(l, at) : elf_load(l, multiboot);
    if (why) return why;
    if (l->entry > 0xffffffffu || !overlaps(l, l->entry, 1))
        return "the image's entry lies outside what is loaded";
    if (!start_page_at(l))
        return "the image leaves no room in low memory for what it is to find at its start";
    return NULL;
}

static void finish(struct loader *l) {
    const struct guestmem *m = &l->vm->mem;
    u32 at = (u32)start_page_at(l), end = at + (u32)ALIGN_UP(sizeof(struct start_page), PAGE_SIZE);
    struct start_page page = {
        .info = { .magic = HVM_START_MAGIC,
                  .version = 1,
                  .cmdline_paddr = at + offsetof(struct start_page, cmdline),
                  .memmap_paddr = at + offsetof(struct start_page, map),
                  .memmap_entries = m->size > m->low_size ? 5 : 4 },
        .mb = { .flags = 0x24d, /* memory, command line, modules, map, loader's name */
                .mem_lower = 640,
                .mem_upper = (u32)((m->low_size - 0x100000) / 1024),
                .cmdline = at + offsetof(struct start_page, cmdline),
                .mmap_addr = at + offsetof(struct start_page, mb_map),
                .loader_name = at + offsetof(struct start_page, loader) },
        .map = { { 0, at, 1, 0 },
                 { at, end - at, 2, 0 },
                 { end, m->low_size - end, 1, 0 },
                 { TAKT_IOAPIC_GPA, TAKT_HIGH_RAM - TAKT_IOAPIC_GPA, 2, 0 },
                 { TAKT_HIGH_RAM, m->size - m->low_size, 1, 0 } },
        .loader = "Takt",
    };

    for (u32 i = 0; i < page.info.memmap_entries; i++)
        page.mb_map[i] = (struct mb_mmap){ sizeof(struct mb_mmap) - 4, page.map[i].addr, page.map[i].size,
                                           page.map[i].type };
    page.mb.mmap_length = page.info.memmap_entries * sizeof(struct mb_mmap);
    memcpy(page.cmdline, l->vm->config.cmdline, sizeof(page.cmdline));
    guestmem_write(m, at, &page, sizeof(page));
    vcpu_start_state(l->vm->vcpu[0], (u32)l->entry, l->multiboot ? MB_BOOTED : 0,
                     at + (l->multiboot ? (u32)offsetof(struct start_page, mb) : 0));
}

bool load_step(struct loader *l) {
    const struct load_segment *s = &l->segment[l->at];
    u64 n;

    if (l->at == l->nr) {
        finish(l);
        return false;
    }
    n = MIN(s->filesz - l->done, COPY_STEP);
    guestmem_write(&l->vm->mem, s->gpa + l->done, l->image + s->offset + l->done, n);
    l->done += n;
    if (l->done == s->filesz) {
        l->at++;
        l->done = 0;
    }
    return true;
}
