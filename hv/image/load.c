/* The loader of guest images: ELF files, which a guest starts by PVH (an entry point in 32-bit mode
 * that a note in the file names), and files with a multiboot1 header. A "segment" is a piece of the
 * file that has to be at a certain place in the VM's RAM. The "start page" tells the guest its
 * command line and its memory. The image is not trusted: nothing is read outside it. The checks
 * return NULL, or a sentence that says why the image is refused. RAM is all zeros before. So the
 * part of a segment that has no bytes in the file needs no work. */
#include <takt/start_info.h>
#include "config.h"
#include "image/image.h"
#include "lib/printf.h"
#include "common/string.h"

#define COPY_STEP  65536u  /* bytes that one load_step() copies */
#define NOTES_MAX  4096u   /* bytes of notes that are searched */
#define START_LOW  0x6000u /* the start page goes here, or above it where the image leaves room */
#define START_HIGH 0x90000u
#define RAM_FROM   0x100000u /* where multiboot's "upper memory" begins, and PCs' firmware ends */

/* ELF: System V gABI, chapters 4 and 5. From 32 to 64 bits only the width of a word changes, and
 * with it where the members are. */
#define EH_DATA     5 /* in e_ident: the byte order */
#define EH_DATA_LSB 1
#define EH_MACHINE  18
#define EM_386      3
#define EM_X86_64   62
#define EH_ENTRY    24
#define EHDR32_SIZE 52
#define EHDR64_SIZE 64
#define PHDR32_SIZE 32
#define PHDR64_SIZE 56
#define PT_LOAD     1
#define PT_NOTE     4

/* A note: three words, the owner's name and the descriptor, each padded to four bytes. */
#define NOTE_HEAD     12u
#define NOTE_PAD      4u
#define XEN_NAME      0x6e6558u /* "Xen" and its end */
#define XEN_NAME_SIZE 4

/* multiboot1, 3.1: the header and its members */
#define MB_SEARCH      8192u /* the header is in this many bytes */
#define MB_HEADER      12u   /* the least that a header has */
#define MB_FLAGS       4
#define MB_CHECKSUM    8
#define MB_HEADER_ADDR 12
#define MB_LOAD_ADDR   16
#define MB_LOAD_END    20
#define MB_BSS_END     24
#define MB_ENTRY       28
/* Flags that a loader has to know, apart from page-aligned modules and memory. */
#define MB_UNKNOWN 0xfffcu

/* multiboot1, 3.3: what is valid in struct mb_info */
#define MB_INFO_MEMORY  BIT(0)
#define MB_INFO_CMDLINE BIT(2)
#define MB_INFO_MODULES BIT(3)
#define MB_INFO_MMAP    BIT(6)
#define MB_INFO_LOADER  BIT(9)

enum { E820_RAM = 1, E820_RESERVED = 2 };

#define MAP_MAX 8 /* entries of the memory map */

/* What a guest finds at its start, in a page that its memory map calls reserved. */
struct start_page {
    struct hvm_start_info info;
    struct mb_info mb;
    struct hvm_modlist_entry ramdisk;
    struct mb_module mb_ramdisk;
    char ramdisk_name[CONFIG_VALUE];
    struct hvm_memmap_entry map[MAP_MAX];
    struct mb_mmap mb_map[MAP_MAX];
    char loader[8];
    char cmdline[CONFIG_CMDLINE];
};

/* ---- segments ---- */

/* Returns whether a segment lies at any of the `len` bytes at `gpa`. */
static bool load_overlaps(const struct loader *l, gpa_t gpa, u64 len) {
    for (u32 i = 0; i < l->nr; i++) {
        const struct load_segment *s = &l->segment[i];

        if (gpa < s->gpa + s->memsz && s->gpa < gpa + len) return true;
    }
    return false;
}

/* Notes a segment that has to be copied to `gpa`: `filesz` bytes of the image at `offset`. The
 * rest, up to `memsz` bytes, stays zero. Returns NULL, or the sentence that says what is wrong with
 * it. Segments that overlap are refused, because the result would depend on their order. */
static const char *add_segment(struct loader *l, gpa_t gpa, u64 offset, u64 filesz, u64 memsz) {
    if (memsz == 0 && filesz == 0) return NULL;
    if (l->nr == LOAD_SEGMENTS) return "the image has too many segments";
    if (!image_has(l, offset, filesz)) return "a segment of the image lies outside the file";
    if (memsz < filesz) return "a segment of the image is larger in the file than in memory";
    if (!guestmem_has(l->order.mem, gpa, memsz))
        return "a segment of the image lies outside the VM's memory";
    if (load_overlaps(l, gpa, memsz)) return "segments of the image overlap";
    l->segment[l->nr++] = (struct load_segment){ gpa, l->image + offset, filesz, memsz };
    return NULL;
}

/* Notes the ramdisk, if there is one, as a segment that has to be copied. Returns NULL, or the
 * sentence that says why that is not possible. The ramdisk goes to the end of the RAM below
 * TAKT_LOW_RAM_MAX, where no kernel puts anything before it has read the ramdisk. */
static const char *add_ramdisk(struct loader *l) {
    const struct module *m = l->order.ramdisk;
    u64 room = l->order.mem->low_size - MIN(RAM_FROM, l->order.mem->low_size), size;
    gpa_t gpa;

    if (!m) return NULL;
    size = ALIGN_UP(m->size, PAGE_SIZE);
    if (size > room) return "the ramdisk is larger than the VM's memory";
    gpa = l->order.mem->low_size - size;
    if (load_overlaps(l, gpa, size))
        return "the VM's memory is too small for both the image and the ramdisk";
    if (l->nr == LOAD_SEGMENTS) return "the image has too many segments";
    l->ramdisk = gpa;
    l->segment[l->nr++] = (struct load_segment){ gpa, m->data, m->size, m->size };
    return NULL;
}

/* ---- ELF ---- */

/* Looks for Xen's PHYS32_ENTRY in the notes (a part of an ELF image, of type PT_NOTE) at `at`. It
 * is the address at which a kernel wants to be started by the PVH protocol. Notes it in l->entry,
 * and returns whether it was found. If there are several, the last one counts. */
static bool find_pvh(struct loader *l, u64 at, u64 len) {
    bool found = false;
    u64 end = at;

    if (image_has(l, at, len)) end = at + MIN(len, NOTES_MAX);
    while (end - at >= NOTE_HEAD) {
        u64 name_size = image_number(l, at, 4), desc_size = image_number(l, at + 4, 4);
        u64 type = image_number(l, at + 8, 4);
        u64 desc = at + NOTE_HEAD + ALIGN_UP(name_size, NOTE_PAD);
        u64 next = desc + ALIGN_UP(desc_size, NOTE_PAD);

        if (next > end) break;
        if (type == XEN_ELFNOTE_PHYS32_ENTRY && name_size == XEN_NAME_SIZE &&
            image_number(l, at + NOTE_HEAD, XEN_NAME_SIZE) == XEN_NAME &&
            (desc_size == 4 || desc_size == 8)) {
            l->entry = image_number(l, desc, (unsigned)desc_size);
            found = true;
        }
        at = next;
    }
    return found;
}

/* The members of an ELF header and of a program header that matter here. */
struct elf_header {
    unsigned word; /* bytes: 4 or 8 */
    u64 machine, entry, phoff, phentsize, phnum;
};

struct elf_segment {
    u64 type, offset, vaddr, paddr, filesz, memsz;
};

/* Reads the header of the ELF image. The first word after e_entry is e_phoff. After e_shoff come
 * e_flags (4 bytes) and e_ehsize (2). */
static void read_elf_header(const struct loader *l, unsigned word, struct elf_header *h) {
    u64 phentsize = EH_ENTRY + 3 * word + 6;

    *h = (struct elf_header){ .word = word,
                              .machine = image_number(l, EH_MACHINE, 2),
                              .entry = image_number(l, EH_ENTRY, word),
                              .phoff = image_number(l, EH_ENTRY + word, word),
                              .phentsize = image_number(l, phentsize, 2),
                              .phnum = image_number(l, phentsize + 2, 2) };
}

/* Reads a program header of the ELF image. p_type and, with 64 bits, p_flags take the first word;
 * then come offset, vaddr, paddr, filesz and memsz, a word each. */
static struct elf_segment read_elf_segment(const struct loader *l, unsigned word, u64 at) {
    return (struct elf_segment){ .type = image_number(l, at, 4),
                                 .offset = image_number(l, at + word, word),
                                 .vaddr = image_number(l, at + 2 * word, word),
                                 .paddr = image_number(l, at + 3 * word, word),
                                 .filesz = image_number(l, at + 4 * word, word),
                                 .memsz = image_number(l, at + 5 * word, word) };
}

/* Checks what elf_load() relies on. Returns NULL, or the sentence that says why the image is
 * refused. */
static const char *check_elf_header(const struct loader *l, const struct elf_header *h) {
    u64 phdr_size = PHDR32_SIZE;

    if (h->word == 8) phdr_size = PHDR64_SIZE;
    if (image_number(l, EH_DATA, 1) != EH_DATA_LSB) return "the image is not for x86";
    if (h->machine != EM_386 && h->machine != EM_X86_64) return "the image is not for x86";
    if (h->phentsize != phdr_size) return "the image's program headers have an odd size";
    if (h->phnum > 2 * LOAD_SEGMENTS) return "the image has too many program headers";
    if (!image_has(l, h->phoff, h->phnum * phdr_size))
        return "the image's program headers lie outside the file";
    return NULL;
}

/* Notes the segments and the entry of an ELF image. The entry is the one that a PVH note names.
 * Without such a note the image needs a multiboot1 header (`multiboot` says whether it has one),
 * and the entry is that of the ELF header. Returns NULL, or the sentence that says why the image is
 * refused. */
static const char *elf_load(struct loader *l, bool multiboot) {
    u64 class = image_number(l, ELF_CLASS, 1), entry, header_size = EHDR32_SIZE;
    unsigned word = 4;
    bool pvh = false, entry_is_physical = false;
    struct elf_header h;
    const char *why;

    if (class != ELF_CLASS32 && class != ELF_CLASS64)
        return "the image's ELF header is cut off or of an unknown class";
    if (class == ELF_CLASS64) {
        header_size = EHDR64_SIZE;
        word = 8;
    }
    if (l->size < header_size) return "the image's ELF header is cut off or of an unknown class";
    read_elf_header(l, word, &h);
    why = check_elf_header(l, &h);
    if (why) return why;
    entry = h.entry;
    for (u64 i = 0; i < h.phnum; i++) {
        struct elf_segment s = read_elf_segment(l, h.word, h.phoff + i * h.phentsize);

        if (s.type == PT_NOTE && find_pvh(l, s.offset, s.filesz)) pvh = true;
        if (s.type != PT_LOAD) continue;
        why = add_segment(l, s.paddr, s.offset, s.filesz, s.memsz);
        if (why) return why;
        /* e_entry may be a virtual address. The first segment that contains it tells the physical
         * one. */
        if (!entry_is_physical && h.entry - s.vaddr < s.memsz) {
            entry = h.entry - s.vaddr + s.paddr;
            entry_is_physical = entry != h.entry;
        }
    }
    if (l->nr == 0) return "the image has nothing to load";
    if (pvh) return NULL;
    if (!multiboot) return "the image has neither a PVH note nor a multiboot header";
    l->multiboot = true;
    l->entry = entry;
    return NULL;
}

/* ---- multiboot1 ---- */

/* Finds the header of multiboot1, and stores its place in the file in *at. */
static bool mb_find(const struct loader *l, u64 *at) {
    for (*at = 0; *at + MB_HEADER <= MIN(l->size, MB_SEARCH); *at += 4) {
        u64 sum =
            MB_MAGIC + image_number(l, *at + MB_FLAGS, 4) + image_number(l, *at + MB_CHECKSUM, 4);

        if (image_number(l, *at, 4) == MB_MAGIC && (u32)sum == 0) return true;
    }
    return false;
}

/* Notes the segment and the entry of an image with a multiboot1 header that has addresses. Returns
 * NULL, or the sentence that says why the image is refused. By 3.1.3 the header is at `at` in the
 * file and at header_addr in memory. A load_end_addr of 0 means the whole rest of the file, and a
 * bss_end_addr of 0 that there is no bss. */
static const char *mb_load(struct loader *l, u64 at) {
    u64 header = image_number(l, at + MB_HEADER_ADDR, 4),
        start = image_number(l, at + MB_LOAD_ADDR, 4);
    u64 end = image_number(l, at + MB_LOAD_END, 4), bss_end = image_number(l, at + MB_BSS_END, 4);
    u64 offset = at - (header - start), filesz = l->size - offset, memsz;

    if (start > header || header - start > at || (end && end < start))
        return "the multiboot header's addresses contradict each other";
    if (end) filesz = end - start;
    memsz = filesz;
    if (bss_end) memsz = bss_end - start;
    l->multiboot = true;
    l->entry = image_number(l, at + MB_ENTRY, 4);
    return add_segment(l, start, offset, filesz, memsz);
}

/* ---- the whole ---- */

/* Returns where the start page goes: into low memory that the image leaves free. 0 means that there
 * is no place. */
static gpa_t start_page_at(const struct loader *l) {
    gpa_t gpa = START_LOW;

    while (load_overlaps(l, gpa, sizeof(struct start_page))) gpa += PAGE_SIZE;
    if (gpa + sizeof(struct start_page) > START_HIGH) return 0;
    return gpa;
}

/* Checks the image as a whole, and notes what has to be copied. Returns NULL, or the sentence that
 * says why it is refused. A multiboot1 header with addresses counts more than ELF, as the
 * multiboot1 specification wants it (3.1.2, bit 16 of the flags). */
const char *load_start(struct loader *l, const struct load_order *order) {
    const struct module *m = order->image;
    char cmdline[CONFIG_CMDLINE];
    const char *why;
    bool multiboot;
    u64 at, flags = 0;

    *l = (struct loader){ .order = *order, .image = m->data, .size = m->size };
    multiboot = mb_find(l, &at);
    if (multiboot) flags = image_number(l, at + MB_FLAGS, 4);
    if (flags & MB_UNKNOWN) return "the image's multiboot header asks for more than there is";
    if (flags & MB_ADDRESSES)
        why = mb_load(l, at);
    else if (image_number(l, 0, 4) == ELF_MAGIC)
        why = elf_load(l, multiboot);
    else
        why = "the image is neither ELF nor multiboot";
    if (why) return why;
    if (l->entry > UINT32_MAX || !load_overlaps(l, l->entry, 1))
        return "the image's entry lies outside what is loaded";
    if (!start_page_at(l))
        return "the image leaves no room in low memory for what it is to find at its start";
    if (order->pc && load_overlaps(l, LOAD_FIRMWARE, RAM_FROM - LOAD_FIRMWARE))
        return "the image lies where a PC has its firmware, from 0xe0000 to 1 MiB";
    if (!load_cmdline(order, cmdline))
        return "the command line is too long to add what Linux needs for its turbo vCPU";
    return add_ramdisk(l);
}

/* Adds a range to the guest's memory map, unless it is empty. */
static void map_add(struct start_page *page, gpa_t from, gpa_t to, u32 type) {
    u32 n = page->info.memmap_entries;

    if (from >= to) return;
    page->map[n] = (struct hvm_memmap_entry){ from, to - from, type, 0 };
    page->mb_map[n] = (struct mb_mmap){
        .size = sizeof(struct mb_mmap) - sizeof(u32), .addr = from, .len = to - from, .type = type
    };
    page->info.memmap_entries = n + 1;
}

/* Fills in the guest's memory map. The start page itself is at [at, end). A guest without firmware
 * may use all the rest of RAM. */
static void map_fill(const struct loader *l, struct start_page *page, gpa_t at, gpa_t end) {
    const struct guestmem *m = l->order.mem;

    map_add(page, 0, at, E820_RAM);
    map_add(page, at, end, E820_RESERVED);
    if (l->order.pc) {
        map_add(page, end, LOAD_FIRMWARE, E820_RAM);
        map_add(page, LOAD_FIRMWARE, RAM_FROM, E820_RESERVED);
        end = RAM_FROM;
    }
    map_add(page, end, m->low_size, E820_RAM);
    map_add(page, TAKT_IOAPIC_GPA, TAKT_HIGH_RAM, E820_RESERVED);
    map_add(page, TAKT_HIGH_RAM, TAKT_HIGH_RAM + m->size - m->low_size, E820_RAM);
}

/* Tells the guest where its ramdisk is, in both forms. A kernel that starts by multiboot1 may want
 * a module to have a string, so it gets the name. */
static void tell_ramdisk(const struct loader *l, struct start_page *page, u32 at) {
    const struct module *m = l->order.ramdisk;
    u32 start = (u32)l->ramdisk;

    if (!l->ramdisk) return;
    page->ramdisk = (struct hvm_modlist_entry){ .paddr = start, .size = m->size };
    page->info.nr_modules = 1;
    page->info.modlist_paddr = at + offsetof(struct start_page, ramdisk);
    hv_snprintf(page->ramdisk_name, sizeof(page->ramdisk_name), "%s", m->name);
    page->mb_ramdisk =
        (struct mb_module){ .start = start,
                            .end = start + (u32)m->size,
                            .string = at + offsetof(struct start_page, ramdisk_name) };
    page->mb.mods_count = 1;
    page->mb.mods_addr = at + offsetof(struct start_page, mb_ramdisk);
}

/* Writes the start page, in the form of PVH and in that of multiboot1, and says how vCPU 0
 * begins. */
static void finish(struct loader *l) {
    const struct guestmem *m = l->order.mem;
    u32 at = (u32)start_page_at(l);
    struct start_page page = {
        .info = { .magic = HVM_START_MAGIC,
                  .version = 1,
                  .cmdline_paddr = at + offsetof(struct start_page, cmdline),
                  .rsdp_paddr = l->order.pc * LOAD_FIRMWARE,
                  .memmap_paddr = at + offsetof(struct start_page, map) },
        .mb = { .flags = MB_INFO_MEMORY | MB_INFO_CMDLINE | MB_INFO_MODULES | MB_INFO_MMAP |
                         MB_INFO_LOADER,
                .mem_lower = 640,
                .mem_upper = (u32)((m->low_size - RAM_FROM) / 1024),
                .cmdline = at + offsetof(struct start_page, cmdline),
                .mmap_addr = at + offsetof(struct start_page, mb_map),
                .loader_name = at + offsetof(struct start_page, loader) },
        .loader = "Takt",
    };

    tell_ramdisk(l, &page, at);
    map_fill(l, &page, at, at + ALIGN_UP(sizeof(struct start_page), PAGE_SIZE));
    page.mb.mmap_length = page.info.memmap_entries * sizeof(struct mb_mmap);
    load_cmdline(&l->order, page.cmdline); /* there is room: load_start() has tried */
    guestmem_write(m, at, &page, sizeof(page));
    l->start = (struct image_start){ .entry = (u32)l->entry, .ebx = at };
    if (l->multiboot) {
        l->start.eax = MB_BOOTED;
        l->start.ebx = at + (u32)offsetof(struct start_page, mb);
    }
}

/* Copies the next part of the image into the VM's RAM. Returns whether there is more to do. The
 * step that finds no segment left writes the start page, which tells the kernel about its memory,
 * its command line and its ramdisk. */
bool load_step(struct loader *l) {
    const struct load_segment *s = &l->segment[l->at];
    u64 n;

    if (l->at == l->nr) {
        finish(l);
        return false;
    }
    n = MIN(s->filesz - l->done, COPY_STEP);
    guestmem_write(l->order.mem, s->gpa + l->done, s->data + l->done, n);
    l->done += n;
    if (l->done == s->filesz) {
        l->at++;
        l->done = 0;
    }
    return true;
}
